//! Judging each turn: a process reward model behind the judge's client.

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::reward::{Make, Pieces, Reward, RewardEntry, RewardError};
use forage_contracts::{Episode, Task};

use super::group::{failed, schema_without_rubric, without_rubric};
use super::{Judge, JudgeError, JudgeSettings, refused};
use crate::reward::UNIT;

/// The registry's entry.
pub(crate) const TURNS: RewardEntry = RewardEntry {
    name: "judge_turns",
    about: "a model's grade of each turn, paid to the turns for credits that read them (settings: those of judge but rubric)",
    always: false,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: Some(|| schema_without_rubric([])),
    make: Make::Configured(|making| {
        let settings: JudgeSettings = making.read()?;
        without_rubric(&settings)?;
        Ok(Box::new(Turns {
            judge: Judge::new(settings)?,
        }))
    }),
};

/// Pays each turn what a judge finds it worth, 0 to 1, and the whole nothing; logged with the mean of the turns. One request grades
/// all turns of an episode, each with what was read before it in view.
#[derive(Debug)]
struct Turns {
    judge: Judge,
}

#[async_trait]
impl Reward for Turns {
    fn name(&self) -> &'static str {
        TURNS.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        self.score_in_pieces(task, episode)
            .await
            .map(|(score, _)| score)
    }

    async fn score_in_pieces(
        &self,
        task: &Task,
        episode: &Episode,
    ) -> Result<(f32, Pieces), RewardError> {
        if episode.turns.is_empty() {
            return Ok((0.0, Pieces::new()));
        }
        let grades = self
            .judge
            .grade_turns(&task.question, &task.golds, &episode.turns);
        let (grades, count) = match grades.await {
            Ok(grades) => (grades, None),
            Err(JudgeError::Refused(_)) => (vec![0.0; episode.turns.len()], Some(refused())),
            Err(cause) => return Err(failed(TURNS.name, task, &cause)),
        };
        // Those of a hint are read and graded, but nobody is to be praised for them.
        let own = grades.get(episode.hinted..).unwrap_or_default();
        let mean = own.iter().sum::<f32>() / own.len().max(1) as f32;
        let pieces = (1..)
            .zip(grades)
            .map(|(turn, grade)| (format!("{turn}"), grade))
            .chain(count);
        Ok((mean, pieces.collect()))
    }

    fn pays_turns(&self) -> bool {
        true
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}
