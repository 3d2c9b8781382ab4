//! Rollouts: from tasks to scored episodes, and what is kept of them.

pub mod budget;
pub mod driver;
pub mod presentation;
mod running;
pub(crate) mod stage;

pub mod record;
pub mod rejection;
pub mod replay;

pub use budget::{BudgetExceeded, InfraBudget};
pub use driver::{Job, Rollout};
pub use presentation::{ChatSettings, ObservationRole, Presentation};
pub use record::{EpisodeRecord, EpisodeWriter, RecordError, read_episodes};
pub use rejection::{Keep, Rejection, RejectionCounts};
pub use replay::{Difference, ReplayError, replay};
