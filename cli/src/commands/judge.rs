//! `forage judge`: how far a run's judge, and rules in its place, can be trusted.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use forage_eval::Interval;
use forage_lab::{Audited, RunError};
use serde_json::Value;

use crate::config::read;
use crate::figures::columns;
use crate::jsonl;
use crate::terminal::out;

/// Measures how far judges and rules can be trusted.
#[derive(Subcommand, Debug)]
pub(crate) enum Judge {
    Audit(Audit),
    Rules(Rules),
}

impl Judge {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Audit(command) => command.run(),
            Self::Rules(command) => command.run(),
        }
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

/// Compares rules with labelled answers: exact match, published graders.
///
/// Prints how often each rule calls a wrong answer right and a right one wrong, agreement, and Cohen's kappa. A rule calls right what it
/// pays half or more of a right answer's reward.
#[derive(Args, Debug)]
pub(crate) struct Rules {
    /// Labelled answers, lines of {"question", "gold", "answer", "label"}; by default a small set that the program holds.
    file: Option<PathBuf>,
    /// Seed of the bootstrap.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

impl Rules {
    fn run(self) -> Result<()> {
        let rows = self.file.as_deref().map(rows).transpose()?;
        let found = Audited::of_rules(rows, self.seed)?;
        if self.json {
            out(&serde_json::to_string(&found)?);
            return Ok(());
        }
        let heads = [
            "rule",
            "wrong, called right",
            "right, called wrong",
            "accuracy",
            "kappa",
        ];
        let mut table = vec![heads.map(str::to_owned).to_vec()];
        let shown = |found: Interval| {
            let [low, high] = found.ends();
            format!("{:.3} [{low:.3}, {high:.3}]", found.estimate)
        };
        table.extend(found.iter().map(|(name, found)| {
            let wrong = found.answers - found.right;
            vec![
                (*name).to_owned(),
                format!("{} of {wrong}", found.false_positives),
                format!("{} of {}", found.false_negatives, found.right),
                shown(found.accuracy),
                found.kappa.map_or("-".to_owned(), shown),
            ]
        }));
        out(&columns(&table));
        Ok(())
    }
}

/// Labelled answers with their places.
fn rows(file: &Path) -> Result<Vec<(String, Value)>> {
    let form = "a labelled answer or a pair; see `forage judge audit --help`";
    let place = |number: usize| format!("{}, line {number}", file.display());
    let lines = jsonl::read(file, form)?.into_iter();
    Ok(lines.map(|line| (place(line.number), line.value)).collect())
}

impl Audit {
    fn run(self) -> Result<()> {
        let config = read(&self.config, &[], None)?;
        let rows = rows(&self.file)?;
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
