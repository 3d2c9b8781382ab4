//! `return`: what the environment paid for the turns.

use async_trait::async_trait;
use forage_contracts::{Episode, Task};

use super::{Make, Reward, RewardEntry, RewardError};

/// The registry's entry of [`Return`].
pub(crate) const ENTRY: RewardEntry = RewardEntry {
    name: "return",
    about: "what the environment paid for the turns, added up; credits of turns read those rewards by themselves",
    always: false,
    judges: None,
    range: [f32::NEG_INFINITY, f32::INFINITY],
    schema: None,
    make: Make::Plain(|_| Box::new(Return)),
};

/// The undiscounted return of an episode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Return;

#[async_trait]
impl Reward for Return {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let paid: f32 = episode.turns.iter().map(|turn| turn.reward).sum();
        if paid.is_finite() {
            return Ok(paid);
        }
        Err(RewardError {
            name: ENTRY.name.to_owned(),
            message: "the rewards of the turns have no finite sum".to_owned(),
        })
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::Turn;
    use forage_contracts::environment::TurnKind;
    use forage_contracts::policy::Finish;

    use super::*;

    #[tokio::test]
    async fn the_rewards_of_turns_are_added_up() {
        let task = Task::new("1", "Who?");
        let mut episode = Episode::new(task.clone());
        let paid = async |episode: &Episode| Return.score(&task, episode).await.ok();
        assert_eq!(paid(&episode).await, Some(0.0));
        for reward in [0.5, -2.0, 0.25] {
            episode.turns.push(Turn {
                policy: String::new(),
                finish: Finish::Stop,
                kind: TurnKind::answer(""),
                observation: String::new(),
                reward,
            });
        }
        assert_eq!(paid(&episode).await, Some(-1.25));
        episode.turns[0].reward = f32::MAX;
        episode.turns[1].reward = f32::MAX;
        assert_eq!(paid(&episode).await, None);
    }
}
