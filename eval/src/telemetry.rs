//! What episodes tell of a policy's conduct, and the signs by which a gamed reward is known.
//!
//! Every [`Item`] is a number per episode with a definition and, where one value is worse than another, a threshold. Of a
//! set of episodes a [`Telemetry`] gives each item's mean with its interval; of a run's [`StepTelemetry`], one per
//! training step, a [`Course`] gives the trend. Both raise an [`Alarm`] where an item is above its threshold, with
//! episodes to look at. `docs/telemetry.md` lists the items and says how alarms relate to the trainer's sentinel, which
//! watches how a run's metrics change; what is written here can be said of one set of episodes alone.

mod code;
mod conduct;
mod course;
mod grounding;
mod items;
mod query;
mod reading;
mod set;

use serde::{Deserialize, Serialize};

pub use course::{Course, StepItem, StepTelemetry, Trend};
pub use items::{ITEMS, Item};
pub use set::{SetItem, Telemetry};

/// Episodes that must have an item before its share is held against a threshold above 0.
pub const LEAST_EPISODES: usize = 10;

/// Data sets whose names begin with this ask canary questions: their answers are made up, so only a policy that has seen
/// the data set can give them.
pub const CANARY: &str = "canary";

/// An episode that shows what an item counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// Training step; absent for a set of episodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Data set of the question.
    pub data_source: String,
    /// The question's id.
    pub task: String,
    /// Which of the question's episodes, as recorded.
    pub member: u64,
    /// What is asked.
    pub question: String,
    /// Where in the episode it shows; at most a few hundred characters.
    pub excerpt: String,
}

impl Example {
    /// In a line: `step 4, ID (QUESTION): EXCERPT`.
    pub fn to_text(&self) -> String {
        let Self { step, task, question, excerpt, .. } = self;
        let step = step.map_or(String::new(), |step| format!("step {step}, "));
        format!("{step}{task} ({question}): {excerpt}")
    }
}

/// An item above its threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// The item.
    pub name: String,
    /// Its mean: over the set, or over the steps that raised the alarm.
    pub value: f64,
    /// What it may not be above.
    pub threshold: f64,
    /// The training step that raised it; absent for a set of episodes.
    pub first_step: Option<u64>,
    /// Episodes to look at, at most three.
    pub examples: Vec<Example>,
    /// What was counted, what it came to, what it probably means and what to do.
    pub explanation: String,
}

impl Alarm {
    /// The alarm as people read it: its name, the explanation, and an example a line.
    pub fn to_text(&self) -> String {
        let title = format!("alarm {}: {}", self.name, self.explanation);
        let examples = self.examples.iter().map(|example| format!("  {}", example.to_text()));
        std::iter::once(title).chain(examples).map(|line| line + "\n").collect()
    }
}

/// Most examples of an alarm.
const EXAMPLES: usize = 3;
