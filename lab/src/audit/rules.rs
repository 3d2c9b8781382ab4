//! The audit of rules: how often exact match, F1 and the graders of published systems are wrong about answers that people have labelled.

use std::collections::BTreeMap;

use forage_contracts::environment::{Outcome, TurnKind};
use forage_contracts::policy::Finish;
use forage_contracts::seed::Seed;
use forage_contracts::{Ending, Episode, Task, Turn};
use forage_env::reward::{PublishedSettings, RewardSet};
use forage_eval::{Agreement, Bootstrap, Labelled};
use serde_json::{Value, json};

use super::{AuditRow, Audited, parsed};
use crate::error::{Context, Result, bail};
use crate::runtime::runtime;

/// Answers labelled by hand: right ones in other words, wrong ones that look alike.
const LABELLED: &str = include_str!("labelled.jsonl");
/// Rewards that compare an answer with the golds.
const PLAIN: [&str; 3] = ["em", "sub_em", "f1"];
/// A rule calls an answer right that it pays this much.
const RIGHT: f32 = 0.5;
/// The prompt, with the example that graders of the whole text count as an answer.
const PROMPT: &str = "<|im_start|>user\nWrite the answer inside <answer> and </answer>, like <answer> Beijing </answer>.\n\
    <|im_end|>\n<|im_start|>assistant\n";
/// The grader that reads a last message without tags.
const OF_MESSAGES: &str = "tinker";

impl Audited {
    /// Compares each rule with labelled answers, each with its place for errors, as the audit of a judge takes them; with those that this
    /// crate holds where none are given. A rule calls right what it pays one half or more, for an episode that
    /// gives the answer in the form that the rule's system asks for. Blocks; not to be called from async code.
    ///
    /// # Errors
    /// When a row is not a labelled answer, or there is none.
    pub fn of_rules(
        rows: Option<Vec<(String, Value)>>,
        seed: u64,
    ) -> Result<BTreeMap<&'static str, Agreement>> {
        let rows = rows.map_or_else(held, Ok)?;
        let mut answers = Vec::new();
        for (place, row) in parsed(rows)? {
            let AuditRow::Answer {
                question,
                gold,
                answer,
                label,
            } = row
            else {
                bail!("{place}: rules grade single answers; write `answer` and `label`");
            };
            let task = Task {
                golds: gold.list(),
                ..Task::new(place, question)
            };
            answers.push((task, answer, label));
        }
        let plain = PLAIN.map(|name| (name, json!({ name: 1.0 })));
        let published = PublishedSettings::GRADERS.map(|grader| {
            let settings = json!({"published": {"weight": 1.0, "grader": grader}});
            (grader, settings)
        });
        let audit = |(name, weights): (&'static str, Value)| -> Result<(&'static str, Agreement)> {
            let weights = serde_json::from_value(weights)?;
            let rule = RewardSet::configured(Outcome::Answer, &weights, Seed::root(seed))?;
            let mut judged = Vec::new();
            for (task, answer, label) in &answers {
                let episode = episode(task, answer, name == OF_MESSAGES);
                let score = runtime()?.block_on(rule.score(task, &episode));
                judged.push(Labelled {
                    verdict: score.context(task.id.clone())?.total >= RIGHT,
                    label: *label,
                    length: answer.chars().count(),
                });
            }
            Ok((name, Agreement::of(&judged, Bootstrap::new(seed))?))
        };
        plain.into_iter().chain(published).map(audit).collect()
    }
}

/// The answers of this crate with their places.
fn held() -> Result<Vec<(String, Value)>> {
    let row = |(index, line): (usize, &str)| -> Result<(String, Value)> {
        Ok((
            format!("labelled answer {}", index + 1),
            serde_json::from_str(line)?,
        ))
    };
    LABELLED.lines().enumerate().map(row).collect()
}

/// An episode whose only turn gives this answer.
fn episode(task: &Task, answer: &str, as_message: bool) -> Episode {
    let policy = if as_message {
        format!("Answer: {answer}")
    } else {
        format!("<think>I know it.</think>\n<answer>{answer}</answer>")
    };
    let turn = Turn {
        policy,
        finish: Finish::Stop,
        kind: TurnKind::Answer {
            answer: answer.to_owned(),
        },
        observation: String::new(),
        reward: 0.0,
    };
    Episode {
        prompt: PROMPT.to_owned(),
        turns: vec![turn],
        ending: Ending::Answered,
        ..Episode::new(task.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tests/fixtures/rules.py` grades the same answers with the graders that `env/tests/fixtures/graders.py` writes anew.
    #[test]
    fn rules_err_as_often_as_python_says() {
        let expected: Value =
            serde_json::from_str(include_str!("../../tests/fixtures/rules.json")).unwrap();
        let expected = expected.as_object().unwrap();
        let found = Audited::of_rules(None, 1).unwrap();
        assert_eq!(found.len(), expected.len());
        for (name, found) in &found {
            let expected = &expected[*name];
            let counts = [
                ("answers", found.answers),
                ("right", found.right),
                ("false_positives", found.false_positives),
                ("false_negatives", found.false_negatives),
            ];
            for (key, count) in counts {
                assert_eq!(
                    count as u64,
                    expected[key].as_u64().unwrap(),
                    "{name}: {key}"
                );
            }
        }
        // What the audit is for: matching misses right answers, and is fooled more by substrings.
        let [em, sub_em] = ["em", "sub_em"].map(|name| &found[name]);
        assert!(em.false_negatives > sub_em.false_negatives);
        assert!(em.false_positives > 0 && sub_em.false_positives > em.false_positives);
    }

    #[test]
    fn rows_of_another_form_are_named() {
        let row = |value| Some(vec![("a.jsonl, line 3".to_owned(), value)]);
        let pair = json!({"question": "q", "gold": "g", "answers": ["a", "b"]});
        let error = Audited::of_rules(row(pair), 1).unwrap_err().to_string();
        assert!(
            error.contains("line 3") && error.contains("single answers"),
            "{error}"
        );
        let error = Audited::of_rules(row(json!({})), 1)
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 3"), "{error}");
        assert!(Audited::of_rules(Some(Vec::new()), 1).is_err());
    }
}
