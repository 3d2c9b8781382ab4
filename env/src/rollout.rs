//! Rollouts: from tasks to scored episodes, and what is kept of them.

mod budget;
mod contrasts;
mod driver;
mod frontier;
mod grading;
pub(crate) mod presentation;
mod running;
pub(crate) mod stage;

pub(crate) mod record;
pub(crate) mod rejection;
pub(crate) mod replay;

pub use budget::{BudgetExceeded, InfraBudget};
pub use driver::{Job, Rollout};
pub use frontier::Branching;

pub use presentation::{ChatSettings, Presentation};
pub use record::{EpisodeRecord, EpisodeWriter, RecordError};
pub use rejection::{Keep, Rejection, RejectionCounts};
pub use replay::{Difference, ReplayError, replay};
