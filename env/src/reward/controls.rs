//! Control rewards for something other than a right answer: `constant`, `any_search`, `format_only` and `contains`.
//!
//! The last two are `format`, `box_only_format` and `contain_python_wo_backticks` of Spurious Rewards (Shao et al. 2025).

use std::collections::BTreeSet;

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::{Episode, SettingError, Task};
use serde::Deserialize;

use super::{Make, Reward, RewardEntry, RewardError, UNIT, indicator};

/// The registry's entry of [`Constant`].
pub(crate) const CONSTANT: RewardEntry = RewardEntry {
    name: "constant",
    about: "control: the same for every episode, so no group has a direction",
    always: false,
    judges: None,
    range: UNIT,
    schema: None,
    make: Make::Plain(|_| Box::new(Constant)),
};

/// The registry's entry of [`AnySearch`].
pub(crate) const ANY_SEARCH: RewardEntry = RewardEntry {
    name: "any_search",
    about: "control: the policy searched, whatever it asked, found or answered",
    always: false,
    judges: None,
    range: UNIT,
    schema: None,
    make: Make::Plain(|_| Box::new(AnySearch)),
};

/// The registry's entry of [`FormatOnly`].
pub(crate) const FORMAT_ONLY: RewardEntry = RewardEntry {
    name: "format_only",
    about: "control: any answer that is not empty (settings: form = \"answer\", \"boxed\" or \"text\")",
    always: false,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: Some(|| schemars::schema_for!(FormatSettings).into()),
    make: Make::Configured(|making| {
        let FormatSettings { form } = making.read()?;
        Ok(Box::new(FormatOnly { form }))
    }),
};

/// The registry's entry of [`Contains`].
pub(crate) const CONTAINS: RewardEntry = RewardEntry {
    name: "contains",
    about: "control: the policy wrote a word, or `enough` of some phrases, in any case of letters (settings: token = \"python\"; phrases, \
            enough = 1)",
    always: false,
    judges: None,
    range: UNIT,
    schema: Some(|| schemars::schema_for!(ContainsSettings).into()),
    make: Make::Configured(|making| {
        let ContainsSettings {
            token,
            phrases,
            enough,
        } = making.read()?;
        let (key, phrases) = match phrases {
            phrases if phrases.is_empty() => ("token", vec![token]),
            _ if making.settings.contains_key("token") => {
                let fault = "stands beside phrases; leave one of them out";
                return Err(SettingError::new("token", fault));
            }
            phrases => ("phrases", phrases),
        };
        let phrases: BTreeSet<String> =
            phrases.iter().map(|phrase| phrase.to_lowercase()).collect();
        if phrases.contains("") {
            let fault =
                "is empty, which every text contains; write the word that is to be paid for";
            return Err(SettingError::new(key, fault));
        }
        if !(1..=phrases.len()).contains(&enough) {
            let must = format!("1 to {}, the number of phrases", phrases.len());
            return Err(SettingError::range("enough", enough, &must));
        }
        Ok(Box::new(Contains { phrases, enough }))
    }),
};

/// 1 for every episode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Constant;

#[async_trait]
impl Reward for Constant {
    fn name(&self) -> &'static str {
        CONSTANT.name
    }

    async fn score(&self, _task: &Task, _episode: &Episode) -> Result<f32, RewardError> {
        Ok(1.0)
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}

/// 1 for an episode with a search in it: pays for the behaviour alone, without reading or being right.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnySearch;

#[async_trait]
impl Reward for AnySearch {
    fn name(&self) -> &'static str {
        ANY_SEARCH.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(episode.searches() > 0))
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}

/// The form of an answer that counts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// An answer in the environment's tags.
    #[default]
    Answer,
    /// Text in the last `\boxed{}` that the policy wrote.
    Boxed,
    /// Any text that is not empty: what `_r1_style` of Spurious Rewards comes to.
    Text,
}

#[derive(Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct FormatSettings {
    /// The form of an answer that counts.
    form: Form,
}

/// 1 for an answer with anything in it, right or wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FormatOnly {
    /// The form that counts.
    pub form: Form,
}

#[async_trait]
impl Reward for FormatOnly {
    fn name(&self) -> &'static str {
        FORMAT_ONLY.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(match self.form {
            Form::Answer => episode
                .answer()
                .is_some_and(|answer| !answer.trim().is_empty()),
            Form::Text => !written(episode).trim().is_empty(),
            Form::Boxed => boxed(&written(episode)).is_some_and(|inside| !inside.trim().is_empty()),
        }))
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}

/// Everything the policy wrote, turns of a hint aside.
fn written(episode: &Episode) -> String {
    episode
        .turns
        .iter()
        .skip(episode.hinted)
        .map(|turn| turn.policy.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

/// What stands in the last `\boxed{}`, braces balanced; `None` without one or where it stays open.
pub(crate) fn boxed(text: &str) -> Option<&str> {
    let (_, inside) = text.rsplit_once("\\boxed{")?;
    braced(inside).map(|(inside, _)| inside)
}

/// The texts before and behind the brace that closes an opened one; `None` where it stays open.
pub(crate) fn braced(inside: &str) -> Option<(&str, &str)> {
    let mut depth = 1_usize;
    for (index, byte) in inside.bytes().enumerate() {
        depth = match byte {
            b'{' => depth + 1,
            b'}' => depth - 1,
            _ => depth,
        };
        if depth == 0 {
            return Some((&inside[..index], &inside[index + 1..]));
        }
    }
    None
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ContainsSettings {
    /// The word, in any case of letters.
    token: String,
    /// Words and phrases in place of the one word, of which each counts once.
    phrases: Vec<String>,
    /// The number of phrases that earn 1; fewer earn their share.
    enough: usize,
}

impl Default for ContainsSettings {
    fn default() -> Self {
        Self {
            token: "python".to_owned(),
            phrases: Vec::new(),
            enough: 1,
        }
    }
}

/// 1 where the policy wrote `enough` of the phrases anywhere, a share for fewer; what it read does not count.
///
/// With phrases of reasoning ("first, I need to") it is the reasoning pattern reward of The Climb Carves Wisdom Deeper Than the Summit
/// (Lv et al. 2025), which counts that they appear and not whether the answer is right; that the same phrase counts once is assumed.
#[derive(Clone, Debug)]
pub(crate) struct Contains {
    /// In lower case.
    phrases: BTreeSet<String>,
    /// Phrases that earn 1.
    enough: usize,
}

#[async_trait]
impl Reward for Contains {
    fn name(&self) -> &'static str {
        CONTAINS.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let text = written(episode).to_lowercase();
        let found = self.phrases.iter().filter(|phrase| text.contains(*phrase));
        Ok(found.count().min(self.enough) as f32 / self.enough as f32)
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}
