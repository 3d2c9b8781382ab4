//! `forage telemetry`: the conduct of policies, and the signs of gamed rewards.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use forage_eval::{Bootstrap, Course, Telemetry};
use forage_lab::RunFolder;
use serde::Serialize;

use super::compare::read;
use crate::figures::printable;
use crate::terminal::{hint, out, word};

/// Describes how a policy behaves, with signs of gamed rewards.
///
/// Measures lengths, tags, operators, searches, what answers rest on, failures of programs; with alarms
/// and episodes to look at. Of a run, how each changed from the first quarter of its steps to the last.
///
/// Alarms are findings, not errors: the exit code is 0. `docs/telemetry.md` defines every item and threshold.
#[derive(Args, Debug)]
pub(crate) struct TelemetryArgs {
    /// Run folders, of `forage train` or `forage quickstart`, and files of episodes, from `forage eval --out`.
    #[arg(required = true)]
    sources: Vec<PathBuf>,
    /// Seed of the bootstrap.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// The findings that are printed.
#[derive(Serialize)]
struct Found {
    runs: Vec<Named<Course>>,
    sets: Vec<Named<Telemetry>>,
}

#[derive(Serialize)]
struct Named<T> {
    source: PathBuf,
    #[serde(flatten)]
    found: T,
}

impl TelemetryArgs {
    pub(crate) fn run(self) -> Result<()> {
        let bootstrap = Bootstrap::new(self.seed);
        let mut found = Found {
            runs: Vec::new(),
            sets: Vec::new(),
        };
        for source in &self.sources {
            if source.is_dir() {
                let named = |(source, found)| Named { source, found };
                found.runs.extend(
                    RunFolder::courses(source, bootstrap)?
                        .into_iter()
                        .map(named),
                );
            } else {
                let telemetry = Telemetry::from_episodes(&read(source)?, bootstrap)?;
                found.sets.push(Named {
                    source: source.clone(),
                    found: telemetry,
                });
            }
        }
        if self.json {
            out(&serde_json::to_string(&found)?);
            return Ok(());
        }
        let told = |source: &Path, text: &str| {
            out(&printable(&format!("{}\n{text}", source.display())));
        };
        for Named { source, found } in &found.runs {
            told(source, &found.to_text());
        }
        for Named { source, found } in &found.sets {
            told(source, &found.to_text());
        }
        for source in &self.sources {
            hint(&format!("next: forage runs show {}", word(source)));
        }
        Ok(())
    }
}
