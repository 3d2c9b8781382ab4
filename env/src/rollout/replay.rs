//! Recorded episodes played again: the same turns must get the same observations and rewards.

use forage_contracts::environment::EnvFactory;
use forage_contracts::reward::RewardError;
use forage_contracts::{Ending, Episode, Limit, Score, Turn};

use super::stage::{Fault, Stage};
use crate::reward::RewardSet;

/// A difference between a record and its replay.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The place: `prompt`, `turn 2 observation`, `score em`, `ending`.
    pub place: String,
    /// As recorded.
    pub recorded: String,
    /// As played again.
    pub replayed: String,
}

/// An episode cannot be played again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The record does not say where the episode's random streams start.
    #[error("the record of task `{task}` has no seed; record the episodes again with this program")]
    NoSeed {
        /// The task's id.
        task: String,
    },
    /// A fault of ours ended the episode: there is nothing to compare with.
    #[error("the episode of task `{task}` ended in an infrastructure fault")]
    Infra {
        /// The task's id.
        task: String,
    },
    /// The environment failed.
    #[error("task `{task}` cannot be played again: {message}")]
    Environment {
        /// The task's id.
        task: String,
        /// Why.
        message: String,
    },
    /// A reward failed.
    #[error("task `{task}` cannot be scored again")]
    Reward {
        /// The task's id.
        task: String,
        /// Why.
        #[source]
        source: RewardError,
    },
}

/// Plays the recorded turns of an episode through a fresh environment and scores what comes of it. The tokens are the
/// recorded ones: no policy and no tokenizer of the policy takes part, beyond what the environment itself counts with.
///
/// Parts of the score that compare the episodes of a group are taken from the record.
///
/// Returns the episode as it was played, and every difference, in order; none means that prompt, observations, what was understood, turn rewards, ending and all
/// parts of the score are equal to the bit.
///
/// # Errors
/// [`ReplayError`] where there is nothing to compare or our side fails.
pub async fn replay(
    factory: &dyn EnvFactory,
    rewards: &RewardSet,
    recorded: &Episode,
) -> Result<(Episode, Vec<Difference>), ReplayError> {
    let task = || recorded.task.name();
    if recorded.ending.is_infra() {
        return Err(ReplayError::Infra { task: task() });
    }
    let seed = recorded
        .seed
        .ok_or_else(|| ReplayError::NoSeed { task: task() })?;
    let environment = |fault: Fault| ReplayError::Environment {
        task: task(),
        message: fault.message,
    };
    let mut differences = Differences::default();
    let mut stage = Stage::open(factory, rewards, &recorded.task, seed)
        .await
        .map_err(environment)?;
    differences.compare("prompt", &recorded.prompt.as_str(), &stage.prompt());
    let mut ending = None;
    for (number, turn) in recorded.turns.iter().enumerate() {
        if ending.is_some() {
            differences.compare("number of turns", &recorded.turns.len(), &number);
            break;
        }
        let reaction = stage.react(turn.policy.clone(), turn.finish).await;
        let mut reaction = reaction.map_err(environment)?;
        // The driver's own limits are of tokens, which a replay does not count again.
        if let Ending::Truncated { limit } = recorded.ending
            && reaction.ending.is_none()
            && limit != Limit::Turns
            && number + 1 == recorded.turns.len()
        {
            reaction.cut(limit);
        }
        ending = stage.keep(reaction);
        if let Some(played) = stage.turns().last() {
            differences.turn(number + 1, turn, played);
        }
    }
    let over = ending.is_some();
    let (prompt, turns) = stage.into_record();
    let ending = ending.unwrap_or_else(|| recorded.ending.clone());
    let mut episode = Episode {
        prompt,
        turns,
        ending,
        score: None,
        ..recorded.clone()
    };
    differences.compare("ending", &recorded.ending, &episode.ending);
    if !over && !matches!(recorded.ending, Ending::Truncated { .. }) {
        let (place, replayed) = ("ending".to_owned(), "the episode goes on".to_owned());
        differences.0.push(Difference {
            place,
            recorded: format!("{:?}", recorded.ending),
            replayed,
        });
    }
    let score = rewards.score(&recorded.task, &episode).await;
    let mut score = score.map_err(|source| ReplayError::Reward {
        task: task(),
        source,
    })?;
    if let Some(recorded) = &recorded.score {
        rewards.take_group_parts(&mut score, recorded);
    }
    differences.score(recorded.score.as_ref(), &score);
    episode.score = Some(score);
    Ok((episode, differences.0))
}

#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    fn compare<T: PartialEq + serde::Serialize>(
        &mut self,
        place: &str,
        recorded: &T,
        replayed: &T,
    ) {
        if recorded != replayed {
            let text = |value: &T| match serde_json::to_value(value) {
                Ok(serde_json::Value::String(text)) => text,
                Ok(value) => value.to_string(),
                Err(error) => error.to_string(),
            };
            let (recorded, replayed) = (text(recorded), text(replayed));
            self.0.push(Difference {
                place: place.to_owned(),
                recorded,
                replayed,
            });
        }
    }

    fn turn(&mut self, number: usize, recorded: &Turn, replayed: &Turn) {
        self.compare(
            &format!("turn {number} observation"),
            &recorded.observation,
            &replayed.observation,
        );
        self.compare(
            &format!("turn {number} kind"),
            &recorded.kind,
            &replayed.kind,
        );
        self.compare(
            &format!("turn {number} reward"),
            &recorded.reward,
            &replayed.reward,
        );
    }

    fn score(&mut self, recorded: Option<&Score>, replayed: &Score) {
        let Some(recorded) = recorded else {
            self.compare("score", &None, &Some(replayed));
            return;
        };
        self.compare("reward", &recorded.total, &replayed.total);
        for (name, part) in &replayed.parts {
            self.compare(
                &format!("score {name}"),
                &recorded.parts.get(name),
                &Some(part),
            );
        }
        for name in recorded
            .parts
            .keys()
            .filter(|name| !replayed.parts.contains_key(*name))
        {
            self.compare(&format!("score {name}"), &recorded.parts.get(name), &None);
        }
    }
}
