//! Format: 1 when the whole response has the structure think, (search, information, think)*, answer.

use async_trait::async_trait;

use super::{Reward, RewardEntry, RewardError, indicator};
use crate::episode::Episode;
use crate::protocol::{Author, Segment, is_valid_sequence};
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "format",
    about: "the response is think, (search, information, think)*, answer",
    always: true,
    make: |_| Box::new(Format),
};

/// Format: 1 when the whole response has the structure think, (search, information, think)*, answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Format;

#[async_trait]
impl Reward for Format {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(is_valid_sequence(segments(episode))))
    }
}

/// The response in order, each run of text with its author.
fn segments(episode: &Episode) -> impl Iterator<Item = Segment<'_>> {
    episode.turns.iter().flat_map(|turn| {
        [
            Segment { author: Author::Policy, text: &turn.policy },
            Segment { author: Author::Environment, text: &turn.observation },
        ]
    })
}
