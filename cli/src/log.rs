//! The log: lines on stderr about the work in progress, off by default.

use clap::Args;
use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::terminal::silence;

/// The log of a command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogArgs {
    /// Write to stderr what passes this filter: error, warn, info, debug or trace, or parts of the program with a level each,
    /// as in `forage_env=debug,forage_trainer=trace`.
    #[arg(
        long = "log",
        value_name = "FILTER",
        env = "FORAGE_LOG",
        global = true,
        value_parser = filter
    )]
    log_filter: Option<String>,
    /// Write every line of the log as a JSON object.
    #[arg(long = "log-json", global = true)]
    log_json: bool,
    /// Print results, warnings and errors alone, without progress and next steps.
    #[arg(short, long, global = true)]
    quiet: bool,
}

/// The filter as written, once it is known to be one.
fn filter(text: &str) -> Result<String, ParseError> {
    EnvFilter::try_new(text).map(|_| text.to_owned())
}

impl LogArgs {
    /// Starts the log, if one is asked for, and silences the rest, if that is.
    pub(crate) fn start(&self) {
        if self.quiet {
            silence();
        }
        let Some(filter) = &self.log_filter else {
            return;
        };
        let lines = fmt::layer().with_writer(std::io::stderr);
        let lines: Box<dyn Layer<Registry> + Send + Sync> = if self.log_json {
            Box::new(lines.json())
        } else {
            Box::new(lines.with_ansi(false))
        };
        let filtered = lines.with_filter(EnvFilter::new(filter));
        // An error means that a program around this one has a log of its own, which then gets the lines.
        let _ = tracing_subscriber::registry().with(filtered).try_init();
    }
}
