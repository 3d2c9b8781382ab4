//! Costs: of searches and of length. Give them a positive weight; their scores are at most 0.

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::{Episode, Provenance, SettingError, Task};
use serde::Deserialize;

use super::grading::exact_match;
use super::{GroupReward, Make, Pieces, Reward, RewardEntry, RewardError};

const COST: [f32; 2] = [-1.0, 0.0];

/// The registry's entry of [`SearchCost`].
pub(crate) const SEARCH_COST: RewardEntry = RewardEntry {
    name: "search_cost",
    about: "minus the searches made, as a share of `most` (settings: most = 10)",
    always: false,
    judges: None,
    range: COST,
    schema: Some(|| schemars::schema_for!(SearchCost).into()),
    make: Make::Configured(|making| {
        let cost: SearchCost = making.read()?;
        cost.check()?;
        Ok(Box::new(cost))
    }),
};

/// The registry's entry of [`RedundantSearches`].
pub(crate) const REDUNDANT_SEARCHES: RewardEntry = RewardEntry {
    name: "redundant_searches",
    about: "where the answer is right, minus the searches beyond the fewest of a right answer in the group, as a share of `most` \
            (settings: most = 10)",
    always: false,
    judges: Some(Outcome::Answer),
    range: COST,
    schema: Some(|| schemars::schema_for!(SearchCost).into()),
    make: Make::Group(|making| {
        let cost: SearchCost = making.read()?;
        cost.check()?;
        Ok(Box::new(RedundantSearches(cost)))
    }),
};

/// The registry's entry of [`Length`].
pub(crate) const LENGTH: RewardEntry = RewardEntry {
    name: "length",
    about: "0 down to -1 over the last `buffer` of the `most` tokens a policy should sample (settings: 1024, 256)",
    always: false,
    judges: None,
    range: COST,
    schema: Some(|| schemars::schema_for!(Length).into()),
    make: Make::Configured(|making| {
        let length: Length = making.read()?;
        if length.buffer == 0 || length.buffer > length.most {
            let Length { most, buffer } = length;
            let fault = format!("is {buffer}; write 1 to `most`, which is {most}");
            return Err(SettingError::new("buffer", fault));
        }
        Ok(Box::new(length))
    }),
};

/// `-min(searches, most) / most`.
#[derive(Clone, Copy, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SearchCost {
    /// Searches that cost 1; more cost no more.
    pub most: usize,
}

impl Default for SearchCost {
    fn default() -> Self {
        Self { most: 10 }
    }
}

impl SearchCost {
    fn check(self) -> Result<(), SettingError> {
        if self.most == 0 {
            let fault = "is 0; write the number of searches that costs 1";
            return Err(SettingError::new("most", fault));
        }
        Ok(())
    }

    fn of(self, searches: usize) -> f32 {
        0.0 - searches.min(self.most) as f32 / self.most as f32
    }
}

#[async_trait]
impl Reward for SearchCost {
    fn name(&self) -> &'static str {
        SEARCH_COST.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(self.of(episode.searches()))
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}

/// The rule of `LightSearcher` (arXiv 2512.06653): needless searches cost only where the answer is right, so that no wrong answer is
/// better for having searched less. Assumed, since the abstract leaves it open: a search is needless where another right answer of
/// the group did with fewer, "right" is exact match, and each costs the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedundantSearches(pub(crate) SearchCost);

#[async_trait]
impl GroupReward for RedundantSearches {
    fn name(&self) -> &'static str {
        REDUNDANT_SEARCHES.name
    }

    async fn score_group(
        &self,
        task: &Task,
        members: &[&Episode],
    ) -> Result<Vec<(f32, Pieces)>, RewardError> {
        let right = |member: &&Episode| {
            let answer = member.answer();
            answer.is_some_and(|answer| exact_match(answer, &task.golds))
        };
        let searches = members.iter().copied().filter(right).map(Episode::searches);
        let fewest = searches.min().unwrap_or(0);
        let score = |member: &&Episode| {
            let needless = if right(member) {
                member.searches() - fewest
            } else {
                0
            };
            (self.0.of(needless), Pieces::new())
        };
        Ok(members.iter().map(score).collect())
    }
}

/// The soft punishment of overlong responses of DAPO (Yu et al. 2025, equation 13), over the tokens that the policy sampled
/// in all turns: 0 up to `most - buffer`, then evenly down to -1 at `most`, and no further.
#[derive(Clone, Copy, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Length {
    /// Tokens that cost 1.
    pub most: usize,
    /// Tokens over which the cost grows.
    pub buffer: usize,
}

impl Default for Length {
    fn default() -> Self {
        Self {
            most: 1024,
            buffer: 256,
        }
    }
}

#[async_trait]
impl Reward for Length {
    fn name(&self) -> &'static str {
        LENGTH.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let over = episode
            .tokens
            .count(Provenance::Policy)
            .saturating_sub(self.most - self.buffer);
        Ok(0.0 - over.min(self.buffer) as f32 / self.buffer as f32)
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}
