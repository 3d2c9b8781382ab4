//! Agreement with the group: a label without a label.

use std::cmp::Reverse;
use std::collections::HashMap;

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::{Episode, Task};

use super::grading::normalize;
use super::{GroupReward, Make, Pieces, RewardEntry, RewardError, UNIT, indicator};

/// The registry's entry.
pub(crate) const ENTRY: RewardEntry = RewardEntry {
    name: "majority",
    about: "control: the answer that most of the group gave, whatever the golds say",
    always: false,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: None,
    make: Make::Group(|making| {
        making.none()?;
        Ok(Box::new(Majority))
    }),
};

/// 1 for the group's most frequent answer after normalisation, of equally frequent ones the first; 0 for others and for no
/// answer, which does not vote. The reward of TTRL (Zuo et al. 2025), which Spurious Rewards calls `ttt`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Majority;

#[async_trait]
impl GroupReward for Majority {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score_group(
        &self,
        _: &Task,
        members: &[&Episode],
    ) -> Result<Vec<(f32, Pieces)>, RewardError> {
        let answers: Vec<Option<String>> = members
            .iter()
            .map(|member| member.answer().map(normalize))
            .collect();
        let elected = most_frequent(answers.iter().flatten());
        let score =
            |answer: &Option<String>| indicator(answer.is_some() && answer.as_ref() == elected);
        Ok(answers
            .iter()
            .map(|answer| (score(answer), Pieces::new()))
            .collect())
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}

/// The most frequent of some texts; of equally frequent ones the first.
pub(crate) fn most_frequent<'a>(texts: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let mut votes = HashMap::<&String, (usize, Reverse<usize>)>::new();
    for (order, text) in texts.enumerate() {
        votes.entry(text).or_insert((0, Reverse(order))).0 += 1;
    }
    votes
        .into_iter()
        .max_by_key(|(_, votes)| *votes)
        .map(|(text, _)| text)
}
