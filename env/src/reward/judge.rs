//! A judge: a language model behind any OpenAI-compatible endpoint that says whether an answer is right and the way to it
//! good, or which principles of a rubric hold.
//!
//! - `settings`: `[reward.judge]`; `prompt`: what is asked, every text of others inside fences that it cannot close;
//!   `completion`: what the server answers with; `verdict`: the strict reading of replies; `client`: tries, budget and cache; `error`:
//!   why there is no verdict; `group`: several answers of a group together; `tournament`: two at a time, by a `scheme`; `turns`: each
//!   turn.
//!
//! Whatever goes wrong is a [`JudgeError`] and so an infrastructure fault of the episode: it has no score, and is counted. The exception
//! is a text on which the judge gives no verdict while it gives one without it: it is graded as wrong.

mod cache;
mod client;
mod completion;
mod error;
mod group;
mod prompt;
mod scheme;
mod settings;
#[cfg(test)]
mod tests;
mod tournament;
mod turns;
mod verdict;

use async_trait::async_trait;

pub use client::Judge;
#[cfg(test)]
pub(crate) use client::Spent;
pub use error::JudgeError;
pub(crate) use group::BATCH;
pub(crate) use prompt::{Asked, Transcript, self_grading};
pub use settings::JudgeSettings;
pub(crate) use tournament::TOURNAMENT;
pub(crate) use turns::TURNS;
pub use verdict::Preference;
pub(crate) use verdict::Verdict;

use super::{Make, Pieces, Reward, RewardEntry, RewardError, UNIT, indicator};
use forage_contracts::environment::Outcome;
use forage_contracts::{Episode, Task};

/// The registry's entry.
pub(crate) const ENTRY: RewardEntry = RewardEntry {
    name: "judge",
    about: "a model's verdict: 0.75 correct + 0.25 approach, or the share of a rubric's principles (settings: url, model, ...)",
    always: false,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: Some(|| schemars::schema_for!(JudgeSettings).into()),
    make: Make::Configured(|making| {
        let settings: JudgeSettings = making.read()?;
        Ok(Box::new(Judged {
            judge: Judge::new(settings)?,
        }))
    }),
};

/// Share of the score that being right makes, as in SLM-RL-Search; the approach makes the rest.
const CORRECT: f32 = 0.75;

/// The reward of a [`Judge`].
#[derive(Debug)]
pub(crate) struct Judged {
    /// The judge.
    pub judge: Judge,
}

#[async_trait]
impl Reward for Judged {
    fn name(&self) -> &'static str {
        ENTRY.name
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
        let found = alone(&self.judge, task, episode).await;
        found.map_err(|cause| group::failed(ENTRY.name, task, &cause))
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        self.judge.needs_golds()
    }
}

/// The score of an episode by itself.
async fn alone(judge: &Judge, task: &Task, episode: &Episode) -> Result<(f32, Pieces), JudgeError> {
    let question = Asked {
        question: &task.question,
        golds: &task.golds,
        answer: prompt::written(episode),
        transcript: Transcript::Turns(&episode.turns),
    };
    match judge.ask(&question).await {
        Ok(verdict) => Ok(points(&verdict, episode.answer().is_some())),
        Err(JudgeError::Refused(_)) => Ok((0.0, vec![refused()])),
        Err(fault) => Err(fault),
    }
}

/// The piece that counts an episode on whose text the judge gives no verdict while it gives one without it.
fn refused() -> (String, f32) {
    ("refused".to_owned(), 1.0)
}

/// The score of a verdict, with its pieces. Nothing is right without an answer, whatever a judge says.
fn points(verdict: &Verdict, answered: bool) -> (f32, Pieces) {
    match verdict {
        Verdict::Answer { correct, approach } => {
            let (correct, approach) = (indicator(*correct && answered), approach / 100.0);
            let pieces = vec![
                ("correct".to_owned(), correct),
                ("approach".to_owned(), approach),
            ];
            (CORRECT * correct + (1.0 - CORRECT) * approach, pieces)
        }
        Verdict::Rubric { holds } => {
            let pieces: Pieces = (1..)
                .zip(holds)
                .map(|(at, &holds)| (format!("{at}"), indicator(holds)))
                .collect();
            (
                pieces.iter().map(|(_, value)| value).sum::<f32>() / pieces.len().max(1) as f32,
                pieces,
            )
        }
    }
}
