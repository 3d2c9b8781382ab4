//! The behaviour of a policy, and the signs by which a gamed reward is known.
//!
//! Every [`Item`](forage_contracts::Item) is a number per episode with a definition and, where one value is worse than
//! another, a threshold; most are common to all environments, the others come with their environment
//! ([`EnvTelemetry`](forage_contracts::EnvTelemetry)). Of a set of episodes a [`Telemetry`] gives each item's mean with its
//! interval; of a run's [`StepTelemetry`], one per training step, a [`Course`] gives the trend. Both raise an
//! [`Alarm`](forage_env::Alarm) where an item is above its threshold, with episodes to look at. `docs/telemetry.md`
//! lists the items and says how alarms relate to the trainer's sentinel, which watches how a run's metrics change; telemetry
//! judges one set of episodes alone.

mod conduct;
pub(crate) mod course;
mod failures;
mod grounding;
mod items;
mod protocol;
mod reading;
mod set;

pub use course::{Course, StepTelemetry};
pub(crate) use failures::{Failure, count_failures};
pub(crate) use reading::shown;
pub use set::Telemetry;

/// Episodes that must have an item before its share is held against a threshold above 0.
const LEAST_EPISODES: usize = 10;

/// Data sets whose names begin with this ask canary questions: their answers are made up, so only a policy that has seen
/// the data set can give them.
const CANARY: &str = "canary";

/// Most examples of an alarm.
const EXAMPLES: usize = 3;
