//! The audit of a judge, and of rules in its place: how far their verdicts can be trusted.

mod principles;
mod rules;

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};

use forage_env::reward::judge::{Judge, JudgeError, JudgeSettings, Preference};
use forage_eval::{Agreement, Bootstrap, Labelled, PositionBias};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Resolved;
use crate::error::{Context, Result, RunError, bail};
use crate::runtime::runtime;

/// Answers labelled by hand, of each kind as many right ones as wrong ones.
const LABELLED: &str = include_str!("audit/labelled.jsonl");
/// Two answers to a question: one of them right, both or neither.
const PAIRS: &str = include_str!("audit/pairs.jsonl");
/// Most rows that a judge is asked about at once: the time that a request may take includes that in the queue.
const AT_ONCE: usize = 32;

/// One accepted answer, or several.
#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "`gold` is a string or a list of strings")]
enum Golds {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Golds {
    fn list(self) -> Vec<String> {
        match self {
            Self::One(gold) => vec![gold],
            Self::Several(golds) => golds,
        }
    }
}

/// A row as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    question: String,
    gold: Golds,
    answer: Option<String>,
    label: Option<bool>,
    kind: Option<String>,
    answers: Option<[String; 2]>,
}

/// A labelled answer, or two answers to the same question.
#[derive(Deserialize)]
#[serde(try_from = "Row")]
enum AuditRow {
    /// An answer that is known to be right or wrong.
    Answer {
        /// The question.
        question: String,
        /// Its accepted answers.
        golds: Vec<String>,
        /// The answer.
        answer: String,
        /// Whether the answer is right.
        label: bool,
        /// The kind of answers that it is counted with.
        kind: Option<String>,
    },
    /// Two answers, which are judged in both orders.
    Pair {
        /// The question.
        question: String,
        /// Its accepted answers.
        golds: Vec<String>,
        /// The answers.
        answers: [String; 2],
    },
}

impl TryFrom<Row> for AuditRow {
    type Error = &'static str;

    fn try_from(row: Row) -> Result<Self, Self::Error> {
        let (question, golds) = (row.question, row.gold.list());
        if golds.is_empty() {
            return Err("there is no accepted answer; write one as `gold`");
        }
        match (row.answer, row.label, row.kind, row.answers) {
            (Some(answer), Some(label), kind, None) => Ok(Self::Answer {
                question,
                golds,
                answer,
                label,
                kind,
            }),
            (None, None, None, Some(answers)) => Ok(Self::Pair {
                question,
                golds,
                answers,
            }),
            _ => Err(
                "write `answer` and `label`, true or false, which may have a `kind`, or else `answers`, two of them",
            ),
        }
    }
}

/// The findings of an audit.
#[derive(Debug, Serialize)]
pub struct Audited {
    /// Agreement with the labels, where there are labelled answers.
    pub agreement: Option<Agreement>,
    /// Agreement with the labels of each kind of answers that the rows name.
    pub kinds: BTreeMap<String, Agreement>,
    /// Favour of the first place, where there are pairs.
    pub position: Option<PositionBias>,
    /// Places of the rows that count nowhere, because the judge gives no verdict on what stands in them, but does without it.
    pub refused: Vec<String>,
    /// Requests to the judge.
    pub calls: u64,
    /// Tokens of the requests and replies.
    pub tokens: u64,
}

/// A row's question with what was found, and the kind of the answer.
enum Found {
    Answer(String, Option<String>, Labelled),
    Pair(String, [Preference; 2]),
}

/// The agreement of verdicts on answers, each with its question.
fn agreement(found: Vec<(String, Labelled)>, bootstrap: Bootstrap) -> Result<Agreement> {
    let found = by_question(found, |row| (row.verdict, row.label, row.length));
    Ok(Agreement::of(&found, bootstrap)?)
}

/// The rows that this crate holds with their places, `name` and a number.
fn held(name: &str, lines: &str) -> Result<Vec<(String, Value)>> {
    let row = |(number, line): (usize, &str)| -> Result<(String, Value)> {
        Ok((format!("{name} {number}"), serde_json::from_str(line)?))
    };
    (1..).zip(lines.lines()).map(row).collect()
}

/// What was found of each question, in an order that does not depend on that of the file, so that intervals do not either.
fn by_question<T, K: Ord>(found: Vec<(String, T)>, key: impl Fn(&T) -> K) -> Vec<Vec<T>> {
    let mut questions: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for (question, one) in found {
        questions.entry(question).or_default().push(one);
    }
    let mut questions: Vec<Vec<T>> = questions.into_values().collect();
    for found in &mut questions {
        found.sort_by_key(&key);
    }
    questions.sort_by_cached_key(|found| found.iter().map(&key).collect::<Vec<K>>());
    questions
}

impl Resolved {
    /// Compares the judge of a config with labelled answers, each with its place for errors: an answer with `label`, and `kind` where it is
    /// counted with others of its kind too, or `answers`, two of them; with the answers and pairs that this crate holds where none are
    /// given. A row that the judge refuses for what stands in it is left out. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When the config has no judge of answers, there are no answers, or a request fails.
    pub fn audit_judge(&self, rows: Option<Vec<(String, Value)>>, seed: u64) -> Result<Audited> {
        let judge = judge_of(self)?;
        let rows = match rows {
            Some(rows) => rows,
            None => [held("labelled answer", LABELLED)?, held("pair", PAIRS)?].concat(),
        };
        if rows.is_empty() {
            bail!("there are no answers to judge; write one JSON object per line");
        }
        let rows = parsed(rows)?;
        let asked = rows.into_iter().map(|(place, row)| {
            let judge = &judge;
            async move { unless_refused(place, examine(judge, row).await) }
        });
        let found = stream::iter(asked).buffered(AT_ONCE).try_collect();
        let found: Vec<Result<Found, LeftOut>> = runtime()?.block_on(found)?;
        let bootstrap = Bootstrap::new(seed);
        let (mut answers, mut pairs, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let mut kinds: BTreeMap<String, Vec<(String, Labelled)>> = BTreeMap::new();
        for one in found {
            match one {
                Ok(Found::Answer(question, kind, row)) => {
                    if let Some(kind) = kind {
                        kinds.entry(kind).or_default().push((question.clone(), row));
                    }
                    answers.push((question, row));
                }
                Ok(Found::Pair(question, pair)) => pairs.push((question, pair)),
                Err(LeftOut(place)) => refused.push(place),
            }
        }
        let of_kind = |(kind, found)| -> Result<(String, Agreement)> {
            Ok((kind, agreement(found, bootstrap)?))
        };
        let pairs = by_question(pairs, |pair| pair.map(|preference| preference as u8));
        let (calls, tokens) = judge.cost();
        Ok(Audited {
            agreement: (!answers.is_empty())
                .then(|| agreement(answers, bootstrap))
                .transpose()?,
            kinds: kinds.into_iter().map(of_kind).collect::<Result<_>>()?,
            position: (!pairs.is_empty())
                .then(|| PositionBias::of(&pairs, bootstrap))
                .transpose()?,
            refused,
            calls,
            tokens,
        })
    }
}

fn parsed(rows: Vec<(String, Value)>) -> Result<Vec<(String, AuditRow)>> {
    let row = |(place, row): (String, Value)| {
        let form = "not a labelled answer or a pair; see `forage judge audit --help`";
        let row = serde_json::from_value(row).with_context(|| format!("{place}: {form}"))?;
        Ok((place, row))
    };
    rows.into_iter().map(row).collect()
}

pub(crate) fn judge_settings(config: &Resolved) -> Result<JudgeSettings> {
    let weighting = config.reward.get("judge");
    let weighting = weighting.in_config("it has no [reward.judge]")?;
    let settings = Value::Object(weighting.settings());
    serde_json::from_value(settings).in_config("[reward.judge]")
}

fn judge_of(config: &Resolved) -> Result<Judge> {
    let settings = judge_settings(config)?;
    if !settings.rubric.is_empty() {
        return Err(RunError::config(
            "its judge has a rubric, which gives no verdict on answers",
        ));
    }
    Judge::new(settings).in_config("[reward.judge]")
}

/// The place of a row in which the judge refuses what stands there.
struct LeftOut(String);

/// The findings about a row, unless it is left out.
fn unless_refused<T>(place: String, found: Result<T, JudgeError>) -> Result<Result<T, LeftOut>> {
    match found {
        Err(JudgeError::Refused(_)) => Ok(Err(LeftOut(place))),
        found => Ok(Ok(found.context(place)?)),
    }
}

async fn examine(judge: &Judge, row: AuditRow) -> Result<Found, JudgeError> {
    match row {
        AuditRow::Answer {
            question,
            golds,
            answer,
            label,
            kind,
        } => {
            let found = Labelled {
                verdict: judge.is_right(&question, &golds, &answer).await?,
                label,
                length: answer.chars().count(),
            };
            Ok(Found::Answer(question, kind, found))
        }
        AuditRow::Pair {
            question,
            golds,
            answers: [a, b],
        } => {
            let written = judge.prefer(&question, &golds, [&a, &b]).await?;
            let swapped = judge.prefer(&question, &golds, [&b, &a]).await?;
            Ok(Found::Pair(question, [written, swapped]))
        }
    }
}
