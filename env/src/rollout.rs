//! Rollouts: from tasks to scored episodes, and what is kept of them.

pub mod budget;
pub mod driver;
mod running;

pub mod record;

pub use budget::{BudgetExceeded, InfraBudget};
pub use driver::{Job, Rollout};
pub use record::{EpisodeRecord, EpisodeWriter, RecordError, read_episodes};
