//! `forage judge`: how far a run's judge can be trusted.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use forage_env::reward::judge::{Judge as Judging, JudgeSettings, Preference, Question, Transcript, Verdict};
use forage_eval::judge::{Agreement, Labelled, PositionBias};
use forage_eval::stats::{Bootstrap, Interval};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::out;
use crate::config::{BadConfig, RunConfig};
use crate::jsonl;
use crate::pipeline::runtime;

/// Examines judges.
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

/// Compares the judge of a config with labelled answers: agreement, liking for length, and for the first place.
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

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Golds {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Row {
    Answer { question: String, gold: Golds, answer: String, label: bool },
    Pair { question: String, gold: Golds, answers: [String; 2] },
}

enum Found {
    Answer(Labelled),
    Pair([Preference; 2]),
}

/// What is printed.
#[derive(Serialize)]
struct Findings {
    agreement: Option<Agreement>,
    position: Option<PositionBias>,
    calls: u64,
    tokens: u64,
}

impl Audit {
    fn run(self) -> Result<()> {
        let judge = Arc::new(self.judge()?);
        let rows = jsonl::read::<Row>(&self.file, "a labelled answer or a pair; see `forage judge audit --help`")?;
        if rows.is_empty() {
            bail!("{} holds no answers; write one JSON object per line", self.file.display());
        }
        let found = runtime()?.block_on(async {
            let mut tasks = JoinSet::new();
            for row in rows {
                let judge = Arc::clone(&judge);
                let place = format!("{}, line {}", self.file.display(), row.number);
                tasks.spawn(async move { examine(&judge, row.value).await.context(place) });
            }
            let mut found = Vec::new();
            while let Some(one) = tasks.join_next().await {
                found.push(one??);
            }
            Ok::<_, anyhow::Error>(found)
        })?;
        let settings = Bootstrap::new(self.seed);
        let (mut answers, mut pairs) = (Vec::new(), Vec::new());
        for one in found {
            match one {
                Found::Answer(row) => answers.push(row),
                Found::Pair(pair) => pairs.push(pair),
            }
        }
        // They came in the order of the replies; intervals must not depend on it.
        answers.sort_by_key(|row| (row.verdict, row.label, row.length));
        pairs.sort_by_key(|pair| pair.map(|preference| preference as u8));
        let agreement = (!answers.is_empty()).then(|| Agreement::of(&answers, settings)).transpose()?;
        let position = (!pairs.is_empty()).then(|| PositionBias::of(&pairs, settings)).transpose()?;
        let spent = judge.spent();
        self.show(&Findings { agreement, position, calls: spent.calls, tokens: spent.tokens })
    }

    fn judge(&self) -> Result<Judging> {
        let config = RunConfig::read(&self.config, &[])?;
        let bad = || BadConfig(format!("config {}", self.config.display()));
        let weighting = config.reward.get("judge").context("it has no [reward.judge]").with_context(bad)?;
        let settings = serde_json::Value::Object(weighting.settings());
        let settings: JudgeSettings = serde_json::from_value(settings).context("[reward.judge]").with_context(bad)?;
        if !settings.rubric.is_empty() {
            return Err(anyhow!("its judge has a rubric, which gives no verdict on answers").context(bad()));
        }
        Judging::new(settings).context("[reward.judge]").with_context(bad)
    }

    fn show(&self, findings: &Findings) -> Result<()> {
        if self.json {
            out(&serde_json::to_string(findings)?);
            return Ok(());
        }
        let line = |name: &str, interval: Option<Interval>| {
            let text = interval.map_or("undefined: nothing varies".to_owned(), |Interval { estimate, low, high }| {
                format!("{estimate:.3}   95 % interval {low:.3} to {high:.3}")
            });
            out(&format!("{name:24} {text}"));
        };
        if let Some(found) = &findings.agreement {
            out(&format!("{} labelled answers", found.answers));
            line("accuracy", Some(found.accuracy));
            line("Cohen's kappa", found.kappa);
            line("length bias", found.length_bias);
            out(&format!("{:24} {}", "wrong, called right", found.false_positives));
            out(&format!("{:24} {}", "right, called wrong", found.false_negatives));
        }
        if let Some(found) = &findings.position {
            out(&format!("{} pairs in both orders", found.pairs));
            line("same in both orders", Some(found.consistent));
            line("favour of first place", Some(found.first_place));
        }
        out(&format!("{} requests, {} tokens", findings.calls, findings.tokens));
        Ok(())
    }
}

async fn examine(judge: &Judging, row: Row) -> Result<Found> {
    let list = |gold| match gold {
        Golds::One(gold) => vec![gold],
        Golds::Several(golds) => golds,
    };
    match row {
        Row::Answer { question, gold, answer, label } => {
            let golds = list(gold);
            let asked =
                Question { question: &question, golds: &golds, answer: Some(&answer), transcript: Transcript::Unknown };
            let Verdict::Answer { correct: verdict, .. } = judge.ask(&asked).await? else {
                bail!("a rubric's verdict where one on an answer was asked for");
            };
            Ok(Found::Answer(Labelled { verdict, label, length: answer.chars().count() }))
        }
        Row::Pair { question, gold, answers: [a, b] } => {
            let golds = list(gold);
            let written = judge.prefer(&question, &golds, [&a, &b]).await?;
            Ok(Found::Pair([written, judge.prefer(&question, &golds, [&b, &a]).await?]))
        }
    }
}
