//! `forage judge`: how far a run's judge can be trusted.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use forage_eval::Interval;
use forage_lab::{Audited, RunError};

use crate::config::read;
use crate::jsonl;
use crate::terminal::out;

/// Measures how far a config's judge can be trusted.
#[derive(Subcommand, Debug)]
pub(crate) enum Judge {
    Audit(Audit),
}

impl Judge {
    pub(crate) fn run(self) -> Result<()> {
        let Self::Audit(command) = self;
        command.run()
    }
}

/// Compares the judge of a config with labelled answers.
///
/// Prints agreement, length bias and position bias.
///
/// A line of FILE is {"question", "gold", "answer", "label": true or false}, or {"question", "gold", "answers": two of them},
/// which is judged in both orders. `gold` is a string or a list of them.
#[derive(Args, Debug)]
pub(crate) struct Audit {
    /// Labelled answers (JSON lines).
    file: PathBuf,
    /// Config whose [reward.judge] is examined.
    #[arg(long)]
    config: PathBuf,
    /// Seed of the bootstrap.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

impl Audit {
    fn run(self) -> Result<()> {
        let config = read(&self.config, &[], None)?;
        let form = "a labelled answer or a pair; see `forage judge audit --help`";
        let rows = jsonl::read(&self.file, form)?
            .into_iter()
            .map(|line| {
                (
                    format!("{}, line {}", self.file.display(), line.number),
                    line.value,
                )
            })
            .collect();
        let found = config
            .audit_judge(rows, self.seed)
            .map_err(|error| match error {
                RunError::Config { .. } => {
                    let what = format!("config {}", self.config.display());
                    RunError::config_because(what, error)
                }
                error => error,
            })?;
        self.show(&found)
    }

    fn show(&self, findings: &Audited) -> Result<()> {
        if self.json {
            out(&serde_json::to_string(findings)?);
            return Ok(());
        }
        let line = |name: &str, interval: Option<Interval>| {
            let text = interval.map_or(
                "undefined: nothing varies".to_owned(),
                |Interval {
                     estimate,
                     low,
                     high,
                 }| {
                    format!("{estimate:.3}   95 % interval {low:.3} to {high:.3}")
                },
            );
            out(&format!("{name:24} {text}"));
        };
        if let Some(found) = &findings.agreement {
            out(&format!("{} labelled answers", found.answers));
            line("accuracy", Some(found.accuracy));
            line("Cohen's kappa", found.kappa);
            line("length bias", found.length_bias);
            out(&format!(
                "{:24} {}",
                "wrong, called right", found.false_positives
            ));
            out(&format!(
                "{:24} {}",
                "right, called wrong", found.false_negatives
            ));
        }
        if let Some(found) = &findings.position {
            out(&format!("{} pairs in both orders", found.pairs));
            line("same in both orders", Some(found.consistent));
            line("favour of first place", Some(found.first_place));
        }
        out(&format!(
            "{} requests, {} tokens",
            findings.calls, findings.tokens
        ));
        Ok(())
    }
}
