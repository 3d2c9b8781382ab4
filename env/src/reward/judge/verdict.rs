//! The strict reading of a judge's reply: one JSON object of exactly the asked form, or no verdict.
//!
//! Nothing is searched for inside a text: `yes` stands in `yesterday`, and a judge that quotes an answer may quote a
//! verdict. What may stand around the object is one leading `<think>` block, opened in the reply or in the
//! prompt, and one code fence around the whole.

use serde::Deserialize;
use serde_json::{Value, json};

/// The form of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// A verdict on an answer.
    Answer,
    /// Verdicts on so many answers.
    Answers(usize),
    /// Which of so many principles hold.
    Rubric(usize),
    /// Which of two is better.
    Pair,
    /// A grade of each of so many turns.
    Turns(usize),
    /// Principles, of any number.
    Principles,
    /// What one did better than another.
    Advice,
}

impl Form {
    /// The form of a verdict by a rubric of `principles` principles, or without a rubric.
    pub(super) fn of(principles: usize) -> Self {
        match principles {
            0 => Self::Answer,
            principles => Self::Rubric(principles),
        }
    }

    /// Its JSON schema, for servers that hold a model to one.
    pub(super) fn schema(self) -> Value {
        let object = |properties: Value| {
            let required: Vec<&String> = properties
                .as_object()
                .map(|properties| properties.keys().collect())
                .unwrap_or_default();
            json!({"type": "object", "required": required, "additionalProperties": false, "properties": properties})
        };
        let list = |items: Value, count: usize| json!({"type": "array", "items": items, "minItems": count, "maxItems": count});
        let grade = || json!({"type": "number", "minimum": 0, "maximum": 100});
        let answer = || object(json!({"correct": {"type": "boolean"}, "approach": grade()}));
        match self {
            Self::Answer => answer(),
            Self::Answers(count) => object(json!({"verdicts": list(answer(), count)})),
            Self::Rubric(count) => {
                object(json!({"holds": list(json!({"type": "boolean"}), count)}))
            }
            Self::Pair => object(json!({"better": {"type": "string", "enum": ["A", "B", "tie"]}})),
            Self::Turns(count) => object(json!({"turns": list(grade(), count)})),
            Self::Principles => {
                object(json!({"principles": {"type": "array", "items": {"type": "string"}}}))
            }
            Self::Advice => object(json!({"advice": {"type": "string"}})),
        }
    }
}

/// What a judge found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// A verdict on an answer and the approach to it.
    Answer {
        /// Whether the answer is right.
        correct: bool,
        /// How good the way to it was, 0 to 100.
        approach: f32,
    },
    /// A verdict by a rubric.
    Rubric {
        /// Whether each principle holds, in order.
        holds: Vec<bool>,
    },
}

/// The better of two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Preference {
    /// The one shown first.
    A,
    /// The one shown second.
    B,
    /// Neither.
    #[serde(rename = "tie")]
    Tie,
}

/// A reply that is not a verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply is not a verdict: {0}")]
pub(crate) struct Refusal(pub String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerReply {
    correct: bool,
    approach: f64,
}

impl AnswerReply {
    fn verdict(self) -> Result<Verdict, Refusal> {
        let Self { correct, approach } = self;
        if !(0.0..=100.0).contains(&approach) {
            return Err(Refusal(format!("approach is {approach}, not 0 to 100")));
        }
        Ok(Verdict::Answer {
            correct,
            approach: approach as f32,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchReply {
    verdicts: Vec<AnswerReply>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RubricReply {
    holds: Vec<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnsReply {
    turns: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrinciplesReply {
    principles: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PairReply {
    better: Preference,
}

/// Reads `{"correct": true, "approach": 80}`, or for a rubric of `principles` sentences `{"holds": [true, false]}`.
///
/// # Errors
/// `Refusal` for anything else.
pub(crate) fn read_verdict(reply: &str, principles: usize) -> Result<Verdict, Refusal> {
    if principles > 0 {
        let RubricReply { holds } = object(reply)?;
        if holds.len() != principles {
            return Err(Refusal(format!(
                "{} values for {principles} principles",
                holds.len()
            )));
        }
        return Ok(Verdict::Rubric { holds });
    }
    object::<AnswerReply>(reply)?.verdict()
}

/// Reads the verdicts on `count` answers, `{"verdicts": [{"correct": true, "approach": 80}, ...]}`.
///
/// # Errors
/// `Refusal` for anything else.
pub(crate) fn read_verdicts(reply: &str, count: usize) -> Result<Vec<Verdict>, Refusal> {
    let BatchReply { verdicts } = object(reply)?;
    if verdicts.len() != count {
        return Err(Refusal(format!(
            "{} verdicts on {count} answers",
            verdicts.len()
        )));
    }
    verdicts.into_iter().map(AnswerReply::verdict).collect()
}

/// Reads `{"better": "A"}`, `"B"` or `"tie"`.
///
/// # Errors
/// `Refusal` for anything else.
pub(crate) fn read_preference(reply: &str) -> Result<Preference, Refusal> {
    object::<PairReply>(reply).map(|reply| reply.better)
}

/// Reads the grades of `count` turns, `{"turns": [80, 35]}`, as shares of 100.
///
/// # Errors
/// `Refusal` for anything else.
pub(crate) fn read_grades(reply: &str, count: usize) -> Result<Vec<f32>, Refusal> {
    let TurnsReply { turns } = object(reply)?;
    if turns.len() != count {
        return Err(Refusal(format!("{} grades of {count} turns", turns.len())));
    }
    if let Some(grade) = turns.iter().find(|grade| !(0.0..=100.0).contains(*grade)) {
        return Err(Refusal(format!("a grade is {grade}, not 0 to 100")));
    }
    Ok(turns.iter().map(|grade| (grade / 100.0) as f32).collect())
}

/// Reads `{"principles": ["The answer names its source."]}`.
///
/// # Errors
/// `Refusal` for anything else, and for an empty principle.
pub(crate) fn read_principles(reply: &str) -> Result<Vec<String>, Refusal> {
    let PrinciplesReply { principles } = object(reply)?;
    if principles
        .iter()
        .any(|principle| principle.trim().is_empty())
    {
        return Err(Refusal("a principle is empty".to_owned()));
    }
    Ok(principles)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdviceReply {
    advice: String,
}

/// Most characters of advice.
const MOST_ADVICE: usize = 1000;

/// Reads `{"advice": "..."}`: some words, on one line.
///
/// # Errors
/// `Refusal` for anything else.
pub(crate) fn read_advice(reply: &str) -> Result<String, Refusal> {
    let AdviceReply { advice } = object(reply)?;
    let words: Vec<&str> = advice.split_whitespace().collect();
    let advice = words.join(" ");
    let count = advice.chars().count();
    if count == 0 || count > MOST_ADVICE {
        return Err(Refusal(format!(
            "advice of {count} characters, not 1 to {MOST_ADVICE}"
        )));
    }
    Ok(advice)
}

fn object<'a, T: Deserialize<'a>>(reply: &'a str) -> Result<T, Refusal> {
    let text = unfenced(after_thinking(reply.trim())?);
    if !text.starts_with('{') {
        // serde_json would read a struct from an array as well.
        return Err(Refusal("it is not one JSON object".to_owned()));
    }
    serde_json::from_str(text).map_err(|cause| Refusal(cause.to_string()))
}

/// What stands behind a leading block of reasoning, which some templates open at the end of the prompt: then the reply has its end
/// alone.
fn after_thinking(text: &str) -> Result<&str, Refusal> {
    let Some(thought) = text.strip_prefix("<think>") else {
        return Ok(match text.split_once("</think>") {
            Some((thought, rest)) if !thought.contains("<think>") && !rest.contains("</think>") => {
                rest.trim()
            }
            _ => text,
        });
    };
    let Some((_, rest)) = thought.split_once("</think>") else {
        return Err(Refusal(
            "its reasoning has no end; raise max_tokens".to_owned(),
        ));
    };
    Ok(rest.trim())
}

/// What stands inside a code fence around the whole.
fn unfenced(text: &str) -> &str {
    let inside = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"));
    inside
        .and_then(|inside| inside.strip_suffix("```"))
        .map_or(text, str::trim)
}
