//! `forage judge`: grades of answers, and how far a run's judge, and rules in its place, can be trusted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use forage_eval::{Agreement, Interval};
use forage_lab::{Audited, RunError};
use serde_json::Value;

use crate::config::read;
use crate::figures::{columns, number};
use crate::jsonl;
use crate::terminal::{hint, note, out};

/// Grades answers, and measures how far graders can be trusted.
#[derive(Subcommand, Debug)]
pub(crate) enum Judge {
    Grade(Grade),
    Audit(Audit),
    Rules(Rules),
    Principles(Principles),
}

impl Judge {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Grade(command) => command.run(),
            Self::Audit(command) => command.run(),
            Self::Rules(command) => command.run(),
            Self::Principles(command) => command.run(),
        }
    }
}

/// Grades answers by every rule: exact match, F1, published graders.
///
/// Prints what each rule pays on average; with --json what it pays for each answer, in the order of the file.
#[derive(Args, Debug)]
pub(crate) struct Grade {
    /// Answers, lines of {"answer", "gold"}; `gold` is a string or a list of them.
    file: PathBuf,
    /// Print a line of JSON for each answer.
    #[arg(long)]
    json: bool,
}

/// Compares the judge of a config with labelled answers.
///
/// Prints agreement, in all and by kind of answer, length bias and position bias.
///
/// A line of FILE is {"question", "gold", "answer", "label": true or false}, which may have a "kind", a name for answers that are also
/// counted by themselves, or {"question", "gold", "answers": two of them}, which is judged in both orders. `gold` is a string or a list
/// of them.
#[derive(Args, Debug)]
pub(crate) struct Audit {
    /// Labelled answers (JSON lines); by default a set of answers and pairs that the program holds.
    file: Option<PathBuf>,
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
/// pays one half or more.
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

/// Draws a rubric of yes-or-no principles from written feedback.
///
/// Asks the judge of a config about each piece of feedback, takes principles in nearly the same words for one, and prints those that
/// stand behind the most pieces as a TOML list, for `rubric` of [reward.judge]. Read it before a judge does.
///
/// A line of FILE is {"feedback"}, and with what it is about {"feedback", "question", "answer"}.
#[derive(Args, Debug)]
pub(crate) struct Principles {
    /// Feedback (JSON lines).
    file: PathBuf,
    /// Config whose [reward.judge] is asked.
    #[arg(long)]
    config: PathBuf,
    /// Fewest pieces of feedback that a principle stands behind.
    #[arg(long, default_value_t = 1)]
    support: usize,
    /// Most principles.
    #[arg(long, default_value_t = 10)]
    most: usize,
    /// Print as JSON, with the support of each.
    #[arg(long)]
    json: bool,
}

impl Principles {
    fn run(self) -> Result<()> {
        let config = read(&self.config, &[], None)?;
        let rows = rows(&self.file, "feedback; see `forage judge principles --help`")?;
        let found = config
            .principles(rows)
            .map_err(|error| named(&self.config, error))?;
        let (principles, refused, [calls, tokens]) = found;
        tell(&refused);
        let kept = principles
            .into_iter()
            .filter(|(_, support)| *support >= self.support)
            .take(self.most);
        let kept: Vec<(String, usize)> = kept.collect();
        if self.json {
            let rows = kept.iter().map(|(principle, support)| {
                serde_json::json!({"principle": principle, "support": support})
            });
            let all = serde_json::json!({
                "principles": rows.collect::<Vec<_>>(),
                "refused": refused,
                "calls": calls,
                "tokens": tokens,
            });
            out(&all.to_string());
            return Ok(());
        }
        let lines = kept.iter().map(|(principle, support)| {
            let text = toml::Value::String(principle.trim().to_owned());
            format!("    {text}, # {support}\n")
        });
        out(&format!("[\n{}]", lines.collect::<String>()));
        Ok(())
    }
}

/// Names the lines that are left out.
fn tell(refused: &[String]) {
    for place in refused {
        note(&format!(
            "{place} is left out: the judge gives no verdict on it, but does once its texts are left out"
        ));
    }
}

/// The error with the config that it is about.
fn named(config: &Path, error: RunError) -> RunError {
    match error {
        RunError::Config { .. } => {
            RunError::config_because(format!("config {}", config.display()), error)
        }
        error => error,
    }
}

impl Grade {
    fn run(self) -> Result<()> {
        let rows = rows(&self.file, "an answer; see `forage judge grade --help`")?;
        let grades = Audited::grades(rows)?;
        if self.json {
            for grade in &grades {
                out(&serde_json::to_string(grade)?);
            }
            return Ok(());
        }
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, paid) in grades.iter().flatten() {
            *sums.entry(*name).or_default() += f64::from(*paid);
        }
        let mut table = vec![["rule", "mean"].map(str::to_owned).to_vec()];
        let mean = |sum: f64| number(sum / grades.len() as f64);
        table.extend(
            sums.into_iter()
                .map(|(name, sum)| vec![name.to_owned(), mean(sum)]),
        );
        hint(&format!("{} answers", grades.len()));
        out(&columns(&table));
        Ok(())
    }
}

impl Rules {
    fn run(self) -> Result<()> {
        let found = Audited::of_rules(labelled(self.file.as_deref())?, self.seed)?;
        if self.json {
            out(&serde_json::to_string(&found)?);
            return Ok(());
        }
        out(&table("rule", &found));
        Ok(())
    }
}

/// Agreement with labels, a row for each name, which is a `head`.
fn table<N: AsRef<str>>(head: &str, found: &BTreeMap<N, Agreement>) -> String {
    let heads = [
        head,
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
            name.as_ref().to_owned(),
            format!("{} of {wrong}", found.false_positives),
            format!("{} of {}", found.false_negatives, found.right),
            shown(found.accuracy),
            found.kappa.map_or("-".to_owned(), shown),
        ]
    }));
    columns(&table)
}

/// The form of a line in a labelled set, for errors.
const LABELLED: &str = "a labelled answer or a pair; see `forage judge audit --help`";

/// Lines, at least one, with their places.
fn rows(file: &Path, form: &str) -> Result<Vec<(String, Value)>> {
    let place = |number: usize| format!("{}, line {number}", file.display());
    let lines = jsonl::read(file, form)?;
    if lines.is_empty() {
        bail!("{} has no line; each is to be {form}", file.display());
    }
    let rows = lines.into_iter();
    Ok(rows.map(|line| (place(line.number), line.value)).collect())
}

/// The lines of a labelled set, where one is named.
fn labelled(file: Option<&Path>) -> Result<Option<Vec<(String, Value)>>> {
    file.map(|file| rows(file, LABELLED)).transpose()
}

impl Audit {
    fn run(self) -> Result<()> {
        let config = read(&self.config, &[], None)?;
        let rows = labelled(self.file.as_deref())?;
        let found = config
            .audit_judge(rows, self.seed)
            .map_err(|error| named(&self.config, error))?;
        self.show(&found)
    }

    fn show(&self, findings: &Audited) -> Result<()> {
        tell(&findings.refused);
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
        if !findings.kinds.is_empty() {
            out(&table("kind", &findings.kinds));
        }
        if let Some(found) = &findings.position {
            out(&format!("{} pairs in both orders", found.pairs));
            line("same in both orders", Some(found.consistent));
            line("favour of first place", Some(found.first_place));
        }
        if !findings.refused.is_empty() {
            out(&format!("{:24} {}", "left out", findings.refused.len()));
        }
        out(&format!(
            "{} requests, {} tokens",
            findings.calls, findings.tokens
        ));
        Ok(())
    }
}
