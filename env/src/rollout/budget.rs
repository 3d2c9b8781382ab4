//! The budget of infrastructure faults in a batch of episodes.

use std::collections::BTreeMap;
use std::fmt;

use forage_contracts::{Boundary, Ending, Episode};

/// Largest share of a batch's episodes that may end in infrastructure faults before the run stops.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InfraBudget {
    /// In `[0, 1]`; the number allowed is rounded up, so that a small batch survives a single fault.
    pub share: f64,
}

impl Default for InfraBudget {
    fn default() -> Self {
        Self { share: 0.01 }
    }
}

/// More infrastructure faults than allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetExceeded {
    /// Number of faults by the part that failed.
    pub faults: BTreeMap<Boundary, usize>,
    /// Most faults allowed.
    pub allowed: usize,
    /// Episodes in the batch.
    pub episodes: usize,
    /// The first fault's message.
    pub first: String,
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: usize = self.faults.values().sum();
        write!(
            formatter,
            "{total} of {} episodes were lost because a part failed that they are played with (at most {} may):",
            self.episodes, self.allowed
        )?;
        for (boundary, count) in &self.faults {
            let name = match boundary {
                Boundary::Policy => "the policy",
                Boundary::Retriever => "the retriever",
                Boundary::Sandbox => "the sandbox",
                Boundary::Environment => "the environment",
                Boundary::Reward => "a reward",
            };
            write!(formatter, " {name} {count} times;")?;
        }
        write!(formatter, " first: {}", self.first)
    }
}

impl std::error::Error for BudgetExceeded {}

impl InfraBudget {
    /// Returns the number of faults in a batch.
    ///
    /// # Errors
    /// When there are more than the share allows, or when nothing but faults is left.
    pub fn check(&self, episodes: &[Episode]) -> Result<usize, BudgetExceeded> {
        let mut faults: BTreeMap<Boundary, usize> = BTreeMap::new();
        let mut first = None;
        for episode in episodes {
            if let Ending::Infra { boundary, message } = &episode.ending {
                *faults.entry(*boundary).or_default() += 1;
                first.get_or_insert(message);
            }
        }
        let Some(first) = first else { return Ok(0) };
        let total: usize = faults.values().sum();
        let allowed = (self.share * episodes.len() as f64).ceil() as usize;
        if total <= allowed && total < episodes.len() {
            return Ok(total);
        }
        Err(BudgetExceeded {
            allowed,
            episodes: episodes.len(),
            first: first.clone(),
            faults,
        })
    }
}
