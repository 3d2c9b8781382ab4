//! Rules: what exact match, F1 and the graders of published systems pay for answers, and how often they are wrong about answers that people
//! have labelled.

use std::collections::BTreeMap;

use forage_contracts::environment::{Outcome, TurnKind};
use forage_contracts::policy::Finish;
use forage_contracts::seed::Seed;
use forage_contracts::{Ending, Episode, Task, Turn};
use forage_env::reward::{PublishedSettings, RewardSet};
use forage_eval::{Agreement, Bootstrap, Labelled};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AuditRow, Audited, Golds, LABELLED, agreement, held, parsed};
use crate::error::{Context, Result, bail};
use crate::runtime::runtime;

/// Rewards that compare an answer with the golds.
const PLAIN: [&str; 3] = ["em", "sub_em", "f1"];
/// A rule calls an answer right that it pays this much.
const RIGHT: f32 = 0.5;
/// The prompt, with the example that graders of the whole text count as an answer.
const PROMPT: &str = "<|im_start|>user\nWrite the answer inside <answer> and </answer>, like <answer> Beijing </answer>.\n\
    <|im_end|>\n<|im_start|>assistant\n";
/// The grader that reads a last message without tags.
const OF_MESSAGES: &str = "tinker";

/// An answer to grade. Its other fields, a label for instance, are not read.
#[derive(Deserialize)]
struct Given {
    /// The question, which no rule asks for.
    #[serde(default)]
    question: String,
    /// The accepted answers.
    #[serde(alias = "golds", alias = "golden_answers")]
    gold: Golds,
    /// The answer.
    answer: String,
}

impl Audited {
    /// Grades answers, each with its place for errors: `[answer]`, what each rule pays by its name, for an episode that gives the answer in
    /// the form that the rule's system asks for. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When a row is not an answer with its accepted ones.
    pub fn grades(rows: Vec<(String, Value)>) -> Result<Vec<BTreeMap<&'static str, f32>>> {
        let rules = rules(0)?;
        let grade = |(place, row): (String, Value)| -> Result<BTreeMap<&'static str, f32>> {
            let form = "not an answer with its golds; see `forage judge grade --help`";
            let row: Given =
                serde_json::from_value(row).with_context(|| format!("{place}: {form}"))?;
            let task = Task {
                golds: row.gold.list(),
                ..Task::new(place, row.question)
            };
            if task.golds.is_empty() {
                bail!(
                    "{}: there is no accepted answer; write one as `gold`",
                    task.id
                );
            }
            let paid = |(name, rule): &(&'static str, RewardSet)| -> Result<(&'static str, f32)> {
                Ok((*name, pays(name, rule, &task, &row.answer)?))
            };
            rules.iter().map(paid).collect()
        };
        rows.into_iter().map(grade).collect()
    }

    /// Compares each rule with labelled answers, each with its place for errors, as the audit of a judge takes them; with those that this
    /// crate holds where none are given. A rule calls right what it pays one half or more, for an episode that
    /// gives the answer in the form that the rule's system asks for. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When a row is not a labelled answer, or there is none.
    pub fn of_rules(
        rows: Option<Vec<(String, Value)>>,
        seed: u64,
    ) -> Result<BTreeMap<&'static str, Agreement>> {
        let rows = rows.map_or_else(|| held("labelled answer", LABELLED), Ok)?;
        let mut answers = Vec::new();
        for (place, row) in parsed(rows)? {
            let AuditRow::Answer {
                question,
                golds,
                answer,
                label,
                ..
            } = row
            else {
                bail!("{place}: rules grade single answers; write `answer` and `label`");
            };
            let task = Task {
                golds,
                ..Task::new(place, question)
            };
            answers.push((task, answer, label));
        }
        let audit = |(name, rule): (&'static str, RewardSet)| -> Result<(&'static str, Agreement)> {
            let mut judged = Vec::new();
            for (task, answer, label) in &answers {
                let row = Labelled {
                    verdict: pays(name, &rule, task, answer)? >= RIGHT,
                    label: *label,
                    length: answer.chars().count(),
                };
                judged.push((task.question.clone(), row));
            }
            Ok((name, agreement(judged, Bootstrap::new(seed))?))
        };
        rules(seed)?.into_iter().map(audit).collect()
    }
}

/// Every rule by its name: rewards that compare an answer with the golds, and published graders.
fn rules(seed: u64) -> Result<Vec<(&'static str, RewardSet)>> {
    let plain = PLAIN.map(|name| (name, json!({ name: 1.0 })));
    let published = PublishedSettings::GRADERS.map(|grader| {
        let settings = json!({"published": {"weight": 1.0, "grader": grader}});
        (grader, settings)
    });
    let rule = |(name, weights): (&'static str, Value)| -> Result<(&'static str, RewardSet)> {
        let weights = serde_json::from_value(weights)?;
        let rule = RewardSet::configured(Outcome::Answer, &weights, Seed::root(seed))?;
        Ok((name, rule))
    };
    plain.into_iter().chain(published).map(rule).collect()
}

/// What a rule pays for this answer.
fn pays(name: &str, rule: &RewardSet, task: &Task, answer: &str) -> Result<f32> {
    let episode = episode(task, answer, name == OF_MESSAGES);
    let score = runtime()?.block_on(rule.score(task, &episode));
    Ok(score.context(task.id.clone())?.total)
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
    fn answers_are_graded_by_every_rule() {
        let row = |row| ("answers.jsonl, line 1".to_owned(), row);
        let found = Audited::grades(vec![
            row(json!({"answer": "The Velm.", "gold": "Velm"})),
            row(json!({"answer": "Velm or Orlen", "golds": ["Orlen", "Sund"], "label": false})),
        ])
        .unwrap();
        let of = |name: &str| [found[0][name], found[1][name]];
        let close = |[a, b]: [f32; 2], [c, d]: [f32; 2]| (a - c).abs() + (b - d).abs() < 1e-6;
        assert!(close(of("em"), [1.0, 0.0]));
        assert!(close(of("sub_em"), [1.0, 1.0]));
        assert!(close(of("f1"), [1.0, 0.5]));
        assert!(close(of("search_r1_v01"), [1.0, 0.0]));
        assert_eq!(
            found[0].len(),
            PLAIN.len() + PublishedSettings::GRADERS.len()
        );
        for (wrong, part) in [
            (json!({"answer": "a"}), "judge grade --help"),
            (json!({"answer": "a", "gold": []}), "write one as `gold`"),
        ] {
            let error = Audited::grades(vec![row(wrong)]).unwrap_err().to_string();
            assert!(error.contains("line 1") && error.contains(part), "{error}");
        }
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
        for (wrong, part) in [
            (
                json!({"question": "q", "gold": "g", "answer": "a"}),
                "`answer` and `label`",
            ),
            (
                json!({"question": "q", "gold": "g", "answers": ["a", "b"], "kind": "k"}),
                "which may have a `kind`",
            ),
            (
                json!({"question": "q", "gold": [], "answer": "a", "label": true}),
                "no accepted answer",
            ),
            (
                json!({"question": "q", "gold": 7, "answer": "a", "label": true}),
                "`gold` is a string or a list",
            ),
        ] {
            let error = Audited::of_rules(row(wrong), 1).unwrap_err();
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains(part), "{cause}");
        }
        assert!(Audited::of_rules(Some(Vec::new()), 1).is_err());
    }
}
