//! How `[reward]` is written: a weight, or a table with a weight and the reward's own settings.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{GroupReward, Reward};
use crate::environment::Outcome;
use crate::seed::Seed;

/// One entry of `[reward]`: `em = 1.0`, or `contains = { weight = 1.0, token = "python" }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a weight, or a table with `weight` and the reward's settings"
)]
pub enum Weighting {
    /// The weight; settings at their defaults.
    Weight(f32),
    /// With settings. Computed and logged at a weight of 0 as well.
    Table(Settled),
}

/// A weight and settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// The weight.
    pub weight: f32,
    /// The reward's own keys; those it does not know are refused when it is built.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

impl From<f32> for Weighting {
    fn from(weight: f32) -> Self {
        Self::Weight(weight)
    }
}

impl Weighting {
    /// The weight.
    pub fn weight(&self) -> f32 {
        match self {
            Self::Weight(weight) => *weight,
            Self::Table(settled) => settled.weight,
        }
    }

    /// Forgets settings.
    pub fn without(&mut self, keys: &[&str]) {
        if let Self::Table(settled) = self {
            settled
                .settings
                .retain(|key, _| !keys.contains(&key.as_str()));
        }
    }

    /// The settings; none where only a weight is written.
    pub fn settings(&self) -> Map<String, Value> {
        match self {
            Self::Weight(_) => Map::new(),
            Self::Table(settled) => settled.settings.clone(),
        }
    }
}

/// What a reward is built from.
#[derive(Clone, Debug)]
pub struct Making {
    /// What the episodes end in.
    pub outcome: Outcome,
    /// Start of the streams of rewards that draw.
    pub seed: Seed,
    /// As written.
    pub settings: Map<String, Value>,
}

impl Making {
    /// The settings as a type, which refuses unknown keys and fills in defaults.
    ///
    /// # Errors
    /// In words, when a key is unknown or missing or a value does not fit.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_value(Value::Object(self.settings.clone()))
            .map_err(|cause| cause.to_string())
    }
}

/// How a reward is built.
#[derive(Clone, Copy, Debug)]
pub enum Make {
    /// Without settings.
    Plain(fn(Seed) -> Box<dyn Reward>),
    /// From its settings; the error says what is wrong and the fix.
    Configured(fn(&Making) -> Result<Box<dyn Reward>, String>),
    /// From its settings: one that compares the episodes of a group.
    Group(fn(&Making) -> Result<Box<dyn GroupReward>, String>),
}

/// A reward as it was built.
pub enum Built {
    /// Scores an episode by itself.
    Alone(Box<dyn Reward>),
    /// Scores the episodes of a group by comparing them.
    Group(Box<dyn GroupReward>),
}

impl Built {
    /// Name under which the part is logged.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Alone(reward) => reward.name(),
            Self::Group(reward) => reward.name(),
        }
    }
}

impl Make {
    /// Builds the reward.
    ///
    /// # Errors
    /// In words, when the settings cannot be used.
    pub fn build(&self, making: &Making) -> Result<Built, String> {
        match self {
            Self::Configured(make) => make(making).map(Built::Alone),
            Self::Group(make) => make(making).map(Built::Group),
            Self::Plain(make) => match making.settings.keys().next() {
                None => Ok(Built::Alone(make(making.seed))),
                Some(key) => Err(format!(
                    "`{key}` is not a setting: this reward has none; write its weight alone"
                )),
            },
        }
    }
}
