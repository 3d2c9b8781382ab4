//! What training has taken, beside what it has gained.

use serde::{Deserialize, Serialize};

use super::{Arm, Study};
use crate::stats::mean;
use crate::summary::number;

/// What the training of a policy has taken, the mean over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Episodes played, or demonstrated.
    pub episodes: f64,
    /// Seconds of play and updates.
    pub seconds: f64,
}

impl Cost {
    /// The heads of the columns of [`Self::cells`].
    pub(crate) const HEADS: [&'static str; 2] = ["episodes of training", "seconds of it"];

    /// The mean cost of a policy by its name, of one entry a seed; `None` where it has none.
    pub(crate) fn of(name: &str, costs: &[(String, [f64; 2])]) -> Option<Self> {
        let own: Vec<[f64; 2]> = costs
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, cost)| *cost)
            .collect();
        let mean_of = |place: usize| mean(&own.iter().map(|cost| cost[place]).collect::<Vec<_>>());
        (!own.is_empty()).then(|| Self {
            episodes: mean_of(0),
            seconds: mean_of(1),
        })
    }

    /// Both figures for a table, empty where nothing was trained.
    pub(crate) fn cells(cost: Option<Self>) -> [String; 2] {
        let cells = cost.map(|cost| [format!("{:.0}", cost.episodes), number(cost.seconds)]);
        cells.unwrap_or_default()
    }

    /// Both figures in a sentence.
    pub(crate) fn words(self) -> String {
        let [episodes, seconds] = Self::cells(Some(self));
        format!("after {episodes} episodes and {seconds} s of training")
    }
}

impl Arm {
    /// Adds what its training has taken.
    pub(crate) fn take_cost(&mut self, costs: &[(String, [f64; 2])]) {
        self.cost = Cost::of(&self.name, costs);
    }
}

impl Study {
    /// Adds what training has taken: episodes and seconds by the name of an arm or a baseline, once for each seed.
    #[must_use]
    pub fn with_costs(mut self, costs: &[(String, [f64; 2])]) -> Self {
        let policies = self.arms.iter_mut().chain(&mut self.baselines);
        policies.for_each(|arm| arm.take_cost(costs));
        self
    }

    /// Says that the cost of some policy is known.
    pub(crate) fn has_costs(&self) -> bool {
        let mut policies = self.arms.iter().chain(&self.baselines);
        policies.any(|arm| arm.cost.is_some())
    }
}
