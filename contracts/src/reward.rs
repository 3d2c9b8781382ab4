//! Rewards: pure judgements of finished episodes, and their entries.

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::environment::Outcome;
use crate::episode::Episode;
use crate::registry::{Entry, Registry};
use crate::seed::Seed;
use crate::setting::SettingError;
use crate::task::Task;

/// A reward could not be computed. An infrastructure fault, never a reward of zero.
#[derive(Clone, Debug, thiserror::Error)]
#[error("reward `{name}` failed: {message}")]
pub struct RewardError {
    /// The reward's name.
    pub name: String,
    /// The fault.
    pub message: String,
}

/// Scores one aspect of a finished episode.
#[async_trait]
pub trait Reward: Send + Sync {
    /// Name under which the part is logged.
    fn name(&self) -> &'static str;

    /// The score, before weighting.
    ///
    /// # Errors
    /// [`RewardError`] when no score could be computed.
    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError>;

    /// The score and its pieces, each logged as `NAME_PIECE`. Most rewards have one piece.
    ///
    /// # Errors
    /// As [`Reward::score`].
    async fn score_in_pieces(
        &self,
        task: &Task,
        episode: &Episode,
    ) -> Result<(f32, Pieces), RewardError> {
        Ok((self.score(task, episode).await?, Pieces::new()))
    }

    /// Tells whether this is a process reward: its first pieces, one per turn in order, are then paid to the turns, and it adds nothing to
    /// the score of the episode. Further pieces are logged alone. Most rewards score the episode.
    fn pays_turns(&self) -> bool {
        false
    }

    /// Tells whether it needs an accepted answer to score episodes of a task. A task without one is refused where a part that needs it has
    /// a weight, and parts that are logged alone are left out of its scores.
    fn needs_golds(&self, _task: &Task) -> bool {
        true
    }
}

/// Scores the finished episodes of a group by comparing them.
#[async_trait]
pub trait GroupReward: Send + Sync {
    /// Name under which the part is logged.
    fn name(&self) -> &'static str;

    /// The scores of the members before weighting, in their order, each with the pieces it is made of. The members are the
    /// group's episodes of `task` that no fault ended; a group may be of one.
    ///
    /// # Errors
    /// [`RewardError`] when no scores could be computed; every member is then a fault.
    async fn score_group(
        &self,
        task: &Task,
        members: &[&Episode],
    ) -> Result<Vec<(f32, Pieces)>, RewardError>;

    /// As [`Reward::needs_golds`].
    fn needs_golds(&self, _task: &Task) -> bool {
        true
    }
}

/// Pieces of a score by name, for people to read: they carry no weight.
pub type Pieces = Vec<(String, f32)>;

/// One registered reward.
#[derive(Clone, Copy, Debug)]
pub struct RewardEntry {
    /// The name in configs and records.
    pub name: &'static str,
    /// The conduct that it rewards, in a few words.
    pub about: &'static str,
    /// Whether it is computed and logged without a weight.
    pub always: bool,
    /// The episodes it judges; `None` for any.
    pub judges: Option<Outcome>,
    /// Lowest and highest score.
    pub range: [f32; 2],
    /// JSON schema of its settings, for the reference of a config's keys; `None` without settings.
    pub schema: Option<fn() -> Value>,
    /// Builds it.
    pub make: Make,
}

impl RewardEntry {
    /// Whether it can judge episodes of this kind.
    pub fn fits(&self, outcome: Outcome) -> bool {
        self.judges.is_none_or(|judged| judged == outcome)
    }
}

impl Entry for RewardEntry {
    const KIND: &'static str = "reward";

    fn label(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }
}

/// The parts that a reward is built from.
#[derive(Clone, Debug)]
pub struct Making {
    /// Outcome of the episodes.
    pub outcome: Outcome,
    /// Start of the streams of rewards that draw.
    pub seed: Seed,
    /// Settings as written.
    pub settings: Map<String, Value>,
    /// The registered rewards, for one that is made of another.
    pub registered: &'static Registry<RewardEntry>,
}

impl Making {
    /// The settings as a type, which refuses unknown keys and fills in defaults.
    ///
    /// # Errors
    /// When a key is unknown or missing or a value does not fit.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, SettingError> {
        Ok(serde_json::from_value(Value::Object(
            self.settings.clone(),
        ))?)
    }

    /// Refuses settings of a reward that has none.
    ///
    /// # Errors
    /// When there are settings.
    pub fn none(&self) -> Result<(), SettingError> {
        match self.settings.keys().next() {
            None => Ok(()),
            Some(key) => Err(SettingError::new(
                format!("`{key}`"),
                "is not a setting: this reward has none; write its weight alone",
            )),
        }
    }
}

/// The way a reward is built.
#[derive(Clone, Copy, Debug)]
pub enum Make {
    /// Builds a reward without settings.
    Plain(fn(Seed) -> Box<dyn Reward>),
    /// Builds a reward from its settings.
    Configured(fn(&Making) -> Result<Box<dyn Reward>, SettingError>),
    /// Builds a reward that compares the episodes of a group, from its settings.
    Group(fn(&Making) -> Result<Box<dyn GroupReward>, SettingError>),
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

    /// As [`Reward::needs_golds`].
    pub fn needs_golds(&self, task: &Task) -> bool {
        match self {
            Self::Alone(reward) => reward.needs_golds(task),
            Self::Group(reward) => reward.needs_golds(task),
        }
    }
}

impl Make {
    /// Builds the reward.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn build(&self, making: &Making) -> Result<Built, SettingError> {
        match self {
            Self::Configured(make) => make(making).map(Built::Alone),
            Self::Group(make) => make(making).map(Built::Group),
            Self::Plain(make) => {
                making.none()?;
                Ok(Built::Alone(make(making.seed)))
            }
        }
    }
}
