//! The scores that published systems train with, flaws included: for comparison with their numbers, and for runs that must
//! earn what theirs earned. Everything else in this crate reads [`Episode::answer`].
//!
//! What is graded is the scope: Search-R1 and slime take the last `<answer>` of prompt and response together, so that a
//! rollout without an answer is graded by the prompt's example; SkyRL and verl grade what was retrieved along with what was
//! written. Passages with an answer tag in them earn under each of these.
//!
//! Beside each score stands, as the piece `correct`, what the same rule pays for what the policy did: the answer it gave, the structure it
//! wrote, what it was shown. Their difference is what a run earns by the flaws.

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::{Ending, Episode, SettingError, Task};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::grading::{exact_match, f1, normalize};
use super::search_r1::{
    Judged, StructuredWeights, blocks, is_valid_whole_text, retrieved_whole_text, structured_score,
};
use super::{Make, Pieces, Reward, RewardEntry, RewardError, format, indicator, retrieval};
use crate::chat::hermes;
use crate::chat::tools::after_thoughts;
use crate::merge::over;
use crate::protocol::ANSWER_PREFIX;

/// The registry's entry.
pub(crate) const ENTRY: RewardEntry = RewardEntry {
    name: "published",
    about: "what a published system pays, flaws included (settings: grader = \"search_r1_v03\", \"verl\", ...)",
    always: false,
    judges: Some(Outcome::Answer),
    range: [-0.1, 1.23],
    schema: Some(PublishedSettings::schema),
    make: Make::Configured(|making| {
        Ok(Box::new(Published {
            settings: PublishedSettings::read(Value::Object(making.settings.clone()))?,
        }))
    }),
};

/// The system whose score it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Grader {
    /// Search-R1 v0.1: exact match of the last of two answers or more, over prompt and response.
    SearchR1V01,
    /// Search-R1 v0.2, the same.
    SearchR1V02,
    /// Search-R1 v0.3: its table of answer and structure, over the same text.
    SearchR1V03,
    /// slime: exact match over prompt and response; its `format_score` reaches no reward.
    Slime,
    /// verl: exact match over the response, a quarter of it above ten answer tags.
    Verl,
    /// SkyRL: exact match over the response.
    Skyrl,
    /// tinker-cookbook: 0.1 (format - 1) + exact match after the only `Answer:` of the last message.
    Tinker,
    /// torchtitan: exact match of the last message; nothing for an episode that a limit ended.
    Torchtitan,
    /// minisearch-r1: F1, 0.2 format and 0.1 for few searches before an answer of F1 above 0.5.
    Minisearch,
    /// Spurious Rewards' R1 style: exact match of what follows the last `<answer>`, less all trailing letters that occur in
    /// `</answer>`.
    Spurious,
}

/// The text that is graded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    /// The text of the policy.
    Policy,
    /// The text of policy and environment after the prompt.
    Response,
    /// Everything.
    PromptAndResponse,
}

/// The settings of a grader. Missing keys take those of its publication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedSettings {
    /// The system whose score it is.
    pub(crate) grader: Grader,
    /// The text that is graded. tinker and torchtitan grade the last message whatever is written here.
    pub(crate) scope: Scope,
    /// Answers there must be for the last one to count.
    pub least_answers: usize,
    /// Weights of the table of answer and structure; all 0 leave exact match.
    pub structure: f32,
    /// Paid for a wrong answer in invalid structure.
    pub final_format: f32,
    /// Paid where a gold was read: on top of the structure, or in torchtitan's for a wrong answer.
    pub retrieval: f32,
    /// Opening or closing answer tags above which the score is divided by 4; 0 sets no bound.
    pub spam_tags: usize,
    /// tinker's coefficient of the format.
    pub format: f32,
    /// torchtitan's deduction from a right answer without a search.
    pub no_search_penalty: f32,
}

impl PublishedSettings {
    /// Every grader by the name that settings give it.
    pub const GRADERS: [&str; 10] = [
        "search_r1_v01",
        "search_r1_v02",
        "search_r1_v03",
        "slime",
        "verl",
        "skyrl",
        "tinker",
        "torchtitan",
        "minisearch",
        "spurious",
    ];

    /// JSON schema of the settings: the grader is written, the rest has its values.
    fn schema() -> Value {
        let mut schema: Value = schemars::schema_for!(Self).into();
        schema["required"] = serde_json::json!(["grader"]);
        schema
    }

    /// The settings of a publication.
    pub(crate) fn published(grader: Grader) -> Self {
        let plain = Self {
            grader,
            scope: Scope::Response,
            least_answers: 1,
            structure: 0.0,
            final_format: 0.0,
            retrieval: 0.0,
            spam_tags: 0,
            format: 0.0,
            no_search_penalty: 0.0,
        };
        let whole = Self {
            scope: Scope::PromptAndResponse,
            least_answers: 2,
            ..plain.clone()
        };
        match grader {
            Grader::SearchR1V01 | Grader::SearchR1V02 | Grader::Slime => whole,
            Grader::SearchR1V03 => {
                let StructuredWeights {
                    structure,
                    final_format,
                    retrieval,
                } = StructuredWeights::default();
                Self {
                    structure,
                    final_format,
                    retrieval,
                    ..whole
                }
            }
            Grader::Verl => Self {
                spam_tags: 10,
                ..plain
            },
            Grader::Tinker => Self {
                format: 0.1,
                scope: Scope::Policy,
                ..plain
            },
            Grader::Torchtitan | Grader::Spurious => Self {
                scope: Scope::Policy,
                ..plain
            },
            Grader::Skyrl | Grader::Minisearch => plain,
        }
    }

    /// Reads settings as written: what is missing is that of the publication they name.
    ///
    /// # Errors
    /// When no grader is named, a key is unknown or a value does not fit.
    pub fn read(written: Value) -> Result<Self, SettingError> {
        let Some(grader) = written.get("grader") else {
            let fault =
                "is missing; write whose score it is, grader = \"search_r1_v03\" for instance";
            return Err(SettingError::new("`grader`", fault));
        };
        let grader = Grader::deserialize(grader)
            .map_err(|cause| SettingError::new("grader", format!("cannot be read: {cause}")))?;
        let settings: Self = over(&Self::published(grader), written)?;
        let Self {
            structure,
            final_format,
            retrieval,
            format,
            no_search_penalty,
            ..
        } = settings;
        if [
            structure,
            final_format,
            retrieval,
            format,
            no_search_penalty,
        ]
        .iter()
        .all(|weight| weight.is_finite())
        {
            Ok(settings)
        } else {
            let fault = "is infinite or not a number; write a finite one";
            Err(SettingError::new("a weight", fault))
        }
    }

    /// Whether the words of the prompt are graded.
    pub fn reads_prompt(&self) -> bool {
        self.scope == Scope::PromptAndResponse
    }
}

/// A published system's score.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// Whose, and with which weights.
    pub settings: PublishedSettings,
}

#[async_trait]
impl Reward for Published {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(match self.settings.grader {
            Grader::Tinker => self.tinker(task, episode),
            Grader::Torchtitan => self.torchtitan(task, episode),
            Grader::Minisearch => minisearch(task, &self.text(episode)),
            Grader::Spurious => spurious(task, &self.text(episode)),
            _ => self.tags(task, episode),
        })
    }

    async fn score_in_pieces(
        &self,
        task: &Task,
        episode: &Episode,
    ) -> Result<(f32, Pieces), RewardError> {
        let correct = ("correct".to_owned(), self.correct(task, episode));
        Ok((self.score(task, episode).await?, vec![correct]))
    }
}

impl Published {
    /// The graded text.
    fn text(&self, episode: &Episode) -> String {
        let scope = self.settings.scope;
        let mut text = if scope == Scope::PromptAndResponse {
            episode.prompt.clone()
        } else {
            String::new()
        };
        for turn in &episode.turns {
            text.push_str(&turn.policy);
            if scope != Scope::Policy {
                text.push_str(&turn.observation);
            }
        }
        text
    }

    /// The graders that read answer tags.
    fn tags(&self, task: &Task, episode: &Episode) -> f32 {
        let PublishedSettings {
            scope,
            structure,
            final_format,
            retrieval,
            spam_tags,
            ..
        } = self.settings;
        let text = self.text(episode);
        let answers = blocks("answer", &text);
        let answer = answers
            .last()
            .filter(|_| answers.len() >= self.settings.least_answers.max(1));
        let policy = scope == Scope::Policy;
        let judged = Judged {
            correct: answer.map(|answer| exact_match(answer, &task.golds)),
            valid: if policy {
                format::is_valid(episode)
            } else {
                is_valid_whole_text(&text)
            },
            retrieved: if policy {
                retrieval::was_read(task, episode)
            } else {
                retrieved_whole_text(&text, &task.golds)
            },
        };
        let score = structured_score(
            judged,
            StructuredWeights {
                structure,
                final_format,
                retrieval,
            },
        );
        let tags = text
            .matches("<answer>")
            .count()
            .max(text.matches("</answer>").count());
        if spam_tags > 0 && tags > spam_tags && judged.correct == Some(true) {
            score / 4.0
        } else {
            score
        }
    }

    /// What the rule pays for the answer that the policy gave, the structure that it wrote and what it was shown, whatever stands in
    /// prompt and observations.
    fn correct(&self, task: &Task, episode: &Episode) -> f32 {
        let PublishedSettings {
            structure,
            final_format,
            retrieval,
            ..
        } = self.settings;
        let answer = episode.answer();
        let right = answer.map(|answer| exact_match(answer, &task.golds));
        match self.settings.grader {
            Grader::Tinker => match right.filter(|_| episode.ending == Ending::Answered) {
                Some(right) => indicator(right),
                None => -self.settings.format,
            },
            // It takes the answer that was given.
            Grader::Torchtitan => self.torchtitan(task, episode),
            Grader::Minisearch => {
                let formed = format::is_valid(episode);
                let overlap = answer.map_or(0.0, |answer| f1(answer, &task.golds));
                shaped(overlap, formed, episode.searches())
            }
            Grader::Spurious => indicator(right == Some(true)),
            _ => structured_score(
                Judged {
                    correct: right,
                    valid: format::is_valid(episode),
                    retrieved: retrieval::was_read(task, episode),
                },
                StructuredWeights {
                    structure,
                    final_format,
                    retrieval,
                },
            ),
        }
    }

    fn tinker(&self, task: &Task, episode: &Episode) -> f32 {
        let PublishedSettings { format, .. } = self.settings;
        let message = last_message(episode);
        let parts: Vec<&str> = message.split(ANSWER_PREFIX).collect();
        match (&parts[..], &episode.ending) {
            ([_, answer], Ending::Answered) => {
                f32::from(u8::from(exact_match(answer, &task.golds)))
            }
            _ => -format,
        }
    }

    fn torchtitan(&self, task: &Task, episode: &Episode) -> f32 {
        let PublishedSettings {
            retrieval,
            no_search_penalty,
            ..
        } = self.settings;
        if matches!(episode.ending, Ending::Truncated { .. }) {
            return 0.0;
        }
        if episode
            .answer()
            .is_some_and(|answer| exact_match(answer, &task.golds))
        {
            return if episode.searches() == 0 {
                1.0 - no_search_penalty
            } else {
                1.0
            };
        }
        if read_whole_words(task, episode) {
            retrieval
        } else {
            0.0
        }
    }
}

/// The last turn after its thoughts and without its calls.
fn last_message(episode: &Episode) -> String {
    episode
        .turns
        .last()
        .map(|turn| hermes::parse(after_thoughts(&turn.policy)).content)
        .unwrap_or_default()
}

/// Whether a gold stands in what a search showed as whole words.
fn read_whole_words(task: &Task, episode: &Episode) -> bool {
    let golds: Vec<String> = task
        .golds
        .iter()
        .map(|gold| normalize(gold))
        .filter(|gold| !gold.is_empty())
        .collect();
    let texts = episode.turns.iter().filter_map(retrieval::shown);
    let padded = texts.map(|text| format!(" {} ", normalize(&text)));
    padded
        .into_iter()
        .any(|text| golds.iter().any(|gold| text.contains(&format!(" {gold} "))))
}

/// The first answer, open at the end or not.
fn minisearch(task: &Task, text: &str) -> f32 {
    let after = text.split_once("<answer>").map(|(_, after)| after);
    let answer = after
        .map_or("", |after| {
            after
                .split_once("</answer>")
                .map_or(after, |(answer, _)| answer)
        })
        .trim();
    let f1 = f1(answer, &task.golds);
    let count = |tag: &str| text.matches(tag).count();
    let formed = !blocks("think", text).is_empty()
        && !blocks("answer", text).is_empty()
        && count("<search>") == count("</search>");
    shaped(f1, formed, count("<search>"))
}

/// The sum of minisearch-r1: F1, a share for the form and one for few searches before a good answer.
fn shaped(f1: f32, formed: bool, searches: usize) -> f32 {
    let quality = match (f1 > 0.5, searches) {
        (true, ..=3) => 0.3,
        (true, _) => 0.1,
        (false, _) => 0.0,
    };
    f1 + 0.2 * indicator(formed) + 0.1 * quality
}

fn spurious(task: &Task, text: &str) -> f32 {
    let Some((_, after)) = text.rsplit_once("<answer>") else {
        return 0.0;
    };
    let answer = after.trim_end_matches(|letter| "</answer>".contains(letter));
    f32::from(u8::from(exact_match(answer, &task.golds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grader_has_its_name_in_the_list() {
        let listed = PublishedSettings::GRADERS.map(|name| {
            let settings = PublishedSettings::read(serde_json::json!({ "grader": name }));
            settings.expect("a grader").grader
        });
        let schema: Value = schemars::schema_for!(Grader).into();
        let all = schema["oneOf"].as_array().expect("each with its words");
        assert_eq!(all.len(), listed.len(), "{schema}");
    }

    #[test]
    fn no_answer_is_not_the_gold_that_normalisation_empties() {
        let task = Task {
            golds: vec!["The The".to_owned()],
            ..Task::new("1", "Who sang it?")
        };
        let none = Episode::new(task.clone());
        let settings = PublishedSettings::published(Grader::Minisearch);
        let paid = Published { settings }.correct(&task, &none);
        assert!(paid.abs() < f32::EPSILON, "{paid}");
    }
}
