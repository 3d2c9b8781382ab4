//! What a run learns from episodes, by how they ended.

use forage_contracts::{Ending, Episode, Limit, Metric, SettingError, Treatment};
use serde::{Deserialize, Serialize};

use crate::metrics::Row;

/// The rule for each kind of ending; an episode that an infrastructure fault ended is learned from under none. By default all are
/// learned from as they were scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Endings {
    /// The policy gave an answer, or the query it was asked for.
    #[schemars(schema_with = "treatment")]
    pub answered: Treatment,
    /// The last allowed turn was used.
    #[schemars(schema_with = "treatment")]
    pub out_of_turns: Treatment,
    /// The token budget of the episode was spent.
    #[schemars(schema_with = "treatment")]
    pub out_of_tokens: Treatment,
    /// The policy's context window was full.
    #[schemars(schema_with = "treatment")]
    pub context_full: Treatment,
    /// The time limit passed.
    #[schemars(schema_with = "treatment")]
    pub out_of_time: Treatment,
    /// A turn broke the protocol in a profile that ends on it.
    #[schemars(schema_with = "treatment")]
    pub malformed: Treatment,
}

/// The schema of a [`Treatment`].
fn treatment(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "anyOf": [
            { "enum": ["train", "mask", "zero"] },
            {
                "type": "object",
                "properties": {
                    "penalty": { "type": "number", "description": "The number subtracted from its reward." }
                },
                "required": ["penalty"],
                "additionalProperties": false
            }
        ]
    })
}

impl Endings {
    /// Whether every episode is learned from as it was scored.
    pub(crate) fn are_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Each rule with its key.
    fn by_key(&self) -> [(&'static str, Treatment); 6] {
        [
            ("answered", self.answered),
            ("out_of_turns", self.out_of_turns),
            ("out_of_tokens", self.out_of_tokens),
            ("context_full", self.context_full),
            ("out_of_time", self.out_of_time),
            ("malformed", self.malformed),
        ]
    }

    /// The key of an ending; `None` for infrastructure faults.
    fn key(ending: &Ending) -> Option<&'static str> {
        Some(match ending {
            Ending::Answered => "answered",
            Ending::Truncated { limit } => match limit {
                Limit::Turns => "out_of_turns",
                Limit::Tokens => "out_of_tokens",
                Limit::Context => "context_full",
                Limit::Time => "out_of_time",
            },
            Ending::Malformed { .. } => "malformed",
            Ending::Infra { .. } => return None,
        })
    }

    /// Refuses penalties that are not above 0.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        for (key, rule) in self.by_key() {
            if let Treatment::Penalty(penalty) = rule
                && !(penalty > 0.0 && penalty.is_finite())
            {
                let fault = format!(
                    "has the penalty {penalty}, which is taken off the reward; write a number above 0"
                );
                return Err(SettingError::new(key, fault));
            }
        }
        Ok(())
    }

    /// The rule for episodes that end so; `None` for infrastructure faults.
    fn rule(&self, ending: &Ending) -> Option<Treatment> {
        let key = Self::key(ending)?;
        let rule = self.by_key().into_iter().find(|(of, _)| *of == key);
        rule.map(|(_, rule)| rule)
    }

    /// Writes the rule for each episode's ending into the spans that the policy wrote, where samples read it.
    pub(super) fn mark(&self, episodes: &mut [Episode]) {
        for episode in episodes {
            if let Some(rule) = self.rule(&episode.ending) {
                episode.tokens.treat(rule);
            }
        }
    }

    /// Counts the endings of a step's episodes and what the rules made of them, where there are rules.
    pub(super) fn describe(&self, row: &mut Row, episodes: &[Episode]) {
        let scored: Vec<(&'static str, &Episode)> = episodes
            .iter()
            .filter_map(|episode| Some((Self::key(&episode.ending)?, episode)))
            .collect();
        if self.are_plain() || scored.is_empty() {
            return;
        }
        let mean = |value: &dyn Fn(&(&'static str, &Episode)) -> f64| {
            scored.iter().map(value).sum::<f64>() / scored.len() as f64
        };
        for (key, _) in self.by_key() {
            let share = mean(&|(of, _)| f64::from(u8::from(*of == key)));
            if share > 0.0 {
                row.set(&Metric::ENDING.replace('*', key), share);
            }
        }
        // Spans also say which episodes are masked for another reason (`confident_wrong`).
        let masked = |episode: &Episode| self.rule(&episode.ending) == Some(Treatment::Mask);
        row.set(
            Metric::ENDING_MASKED,
            mean(&|(_, episode)| f64::from(u8::from(masked(episode)))),
        );
        let change = |episode: &Episode| {
            let reward = episode.reward().unwrap_or(0.0);
            f64::from(episode.tokens.treatment().reward(reward) - reward)
        };
        row.set(Metric::ENDING_CHANGE, mean(&|(_, episode)| change(episode)));
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::{Boundary, Score, Task, TokenLog};

    use super::*;
    use crate::run::GrpoConfig;
    use crate::sample::Sample;

    fn episode(ending: Ending) -> Episode {
        let mut tokens = TokenLog::with_prompt(&[1, 2]);
        tokens.push_policy(&[3, 4], &[-0.5, -1.0], 0, None);
        tokens.push_environment(&[5]);
        let score = Score {
            total: 0.75,
            ..Score::default()
        };
        Episode {
            tokens,
            score: (!ending.is_infra()).then_some(score),
            ending,
            ..Episode::new(Task::new("1", "Who?"))
        }
    }

    fn cut(limit: Limit) -> Ending {
        Ending::Truncated { limit }
    }

    fn sample(endings: &Endings, ending: Ending) -> Sample {
        let mut episodes = [episode(ending)];
        endings.mark(&mut episodes);
        Sample::of(&episodes[0]).unwrap()
    }

    #[test]
    fn without_rules_nothing_is_written() {
        let mut marked = [episode(Ending::Answered), episode(cut(Limit::Tokens))];
        let plain = marked.clone();
        Endings::default().mark(&mut marked);
        assert_eq!(marked, plain);
        let mut row = Row::new(0);
        Endings::default().describe(&mut row, &marked);
        assert_eq!(row, Row::new(0));
    }

    #[test]
    fn each_ending_is_learned_from_as_its_rule_says() {
        let endings: Endings = serde_json::from_value(serde_json::json!({
            "out_of_tokens": "mask",
            "context_full": "zero",
            "malformed": { "penalty": 0.5 },
        }))
        .unwrap();
        assert_eq!(endings.check(), Ok(()));
        let malformed = Ending::Malformed {
            fault: "no tag".into(),
        };
        for (ending, reward, targets) in [
            (Ending::Answered, 0.75, 2),
            (cut(Limit::Turns), 0.75, 2),
            (cut(Limit::Tokens), 0.75, 0),
            (cut(Limit::Context), 0.0, 2),
            (malformed, 0.25, 2),
        ] {
            let found = sample(&endings, ending.clone());
            assert_eq!(found.reward.to_bits(), f32::to_bits(reward), "{ending}");
            assert_eq!(found.sequence.targets.len(), 2, "{ending}");
            assert_eq!(found.masked, targets == 0, "{ending}");
        }
        let fault = Ending::Infra {
            boundary: Boundary::Retriever,
            message: "down".into(),
        };
        let mut step = [
            episode(Ending::Answered),
            episode(cut(Limit::Tokens)),
            episode(cut(Limit::Context)),
            episode(cut(Limit::Context)),
            episode(fault),
        ];
        endings.mark(&mut step);
        // The record keeps the rule, and a file of rollouts is learned from as it was played.
        let kept: Episode =
            serde_json::from_str(&serde_json::to_string(&step[1]).unwrap()).unwrap();
        assert_eq!(kept.tokens.treatment(), Treatment::Mask);
        let mut row = Row::new(0);
        endings.describe(&mut row, &step);
        for (name, expected) in [
            ("ending/kind/answered", 0.25),
            ("ending/kind/context_full", 0.5),
            (Metric::ENDING_MASKED, 0.25),
            (Metric::ENDING_CHANGE, -0.375),
        ] {
            assert_eq!(row.get(name), Some(expected), "{name}");
        }
        assert_eq!(row.get("ending/kind/malformed"), None);
    }

    #[test]
    fn an_episode_that_is_masked_for_another_reason_is_none_of_an_ending() {
        let endings = Endings {
            malformed: Treatment::Penalty(0.5),
            ..Endings::default()
        };
        let mut step = [episode(Ending::Answered), episode(Ending::Answered)];
        endings.mark(&mut step);
        step[0].tokens.treat(Treatment::Mask);
        let mut row = Row::new(0);
        endings.describe(&mut row, &step);
        assert_eq!(row.get(Metric::ENDING_MASKED), Some(0.0));
    }

    #[test]
    fn recorded_rollouts_take_no_rules() {
        let endings = Endings {
            out_of_turns: Treatment::Mask,
            ..Endings::default()
        };
        let ruled = GrpoConfig {
            endings,
            ..GrpoConfig::default()
        };
        let error = ruled.check_recorded(&[]).unwrap_err().to_string();
        let expected = "grpo.endings: recorded rollouts say themselves";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(GrpoConfig::default().check_recorded(&[]), Ok(()));
    }

    #[test]
    fn a_penalty_is_a_number_above_0() {
        for penalty in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let endings = Endings {
                out_of_turns: Treatment::Penalty(penalty),
                ..Endings::default()
            };
            let error = endings.check().unwrap_err().to_string();
            assert!(error.contains("out_of_turns has the penalty"), "{error}");
        }
    }
}
