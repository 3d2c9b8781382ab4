//! The form of `[reward]`: a weight, or a table with a weight and the reward's own settings.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
    Table {
        /// The weight.
        weight: f32,
        /// The reward's own keys; those it does not know are refused when it is built.
        #[serde(flatten)]
        settings: Map<String, Value>,
    },
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
            Self::Weight(weight) | Self::Table { weight, .. } => *weight,
        }
    }

    /// Removes these settings.
    pub fn without(&mut self, keys: &[&str]) {
        if let Self::Table { settings, .. } = self {
            settings.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }

    /// The settings; none where only a weight is written.
    pub fn settings(&self) -> Map<String, Value> {
        match self {
            Self::Weight(_) => Map::new(),
            Self::Table { settings, .. } => settings.clone(),
        }
    }
}
