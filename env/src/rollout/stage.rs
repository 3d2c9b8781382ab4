//! An environment and the record of its turns, whoever writes them: the driver's policy or a remote client.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use forage_contracts::environment::{Action, EnvError, EnvFactory, Environment, Step, TurnKind};
use forage_contracts::policy::{Finish, PolicyError};
use forage_contracts::reward::RewardError;
use forage_contracts::seed::Seed;
use forage_contracts::{Boundary, Ending, Episode, Limit, Task, Turn};
use futures::FutureExt;
use futures::future::join_all;

use crate::chat::ChatError;
use crate::reward::RewardSet;

/// A failure of the infrastructure, which ends an episode without a score.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) boundary: Boundary,
    pub(crate) message: String,
}

impl Fault {
    fn new(boundary: Boundary, error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Self { boundary, message }
    }

    pub(crate) fn contract(boundary: Boundary, message: &str) -> Self {
        Self {
            boundary,
            message: format!("broken contract: {message}"),
        }
    }
}

impl From<PolicyError> for Fault {
    fn from(error: PolicyError) -> Self {
        Self::new(Boundary::Policy, &error)
    }
}

impl From<EnvError> for Fault {
    fn from(error: EnvError) -> Self {
        let boundary = match error {
            EnvError::Failed { boundary, .. } => boundary,
            EnvError::Task { .. } | EnvError::NotReset => Boundary::Environment,
        };
        Self::new(boundary, &error)
    }
}

impl From<ChatError> for Fault {
    fn from(error: ChatError) -> Self {
        Self::new(Boundary::Environment, &error)
    }
}

impl From<RewardError> for Fault {
    fn from(error: RewardError) -> Self {
        Self::new(Boundary::Reward, &error)
    }
}

impl From<Fault> for Ending {
    fn from(fault: Fault) -> Self {
        Self::Infra {
            boundary: fault.boundary,
            message: fault.message,
        }
    }
}

/// Awaits `work`; a panic in it becomes a fault at `boundary`.
pub(crate) async fn guarded<T, E>(
    boundary: Boundary,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Fault>
where
    Fault: From<E>,
{
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => result.map_err(Fault::from),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
            let text = text
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            Err(Fault {
                boundary,
                message: format!("panicked: {text}"),
            })
        }
    }
}

/// An environment during an episode, and the turns so far.
pub(crate) struct Stage {
    env: Box<dyn Environment>,
    max_turns: usize,
    prompt: String,
    turns: Vec<Turn>,
}

/// The environment's reaction to a turn that is not yet part of the record.
pub(crate) struct Reaction {
    action: Action,
    pub(crate) step: Step,
    pub(crate) ending: Option<Ending>,
}

impl Reaction {
    /// Ends the episode at a limit: the policy sees neither the observation nor the reward of this turn.
    pub(crate) fn cut(&mut self, limit: Limit) {
        self.ending = Some(Ending::Truncated { limit });
        self.step.reward = 0.0;
    }
}

impl Stage {
    /// Makes an environment and opens the episode of a task that `rewards` can score; `seed` starts the episode's random streams.
    pub(crate) async fn open(
        factory: &dyn EnvFactory,
        rewards: &RewardSet,
        task: &Task,
        seed: Seed,
    ) -> Result<Self, Fault> {
        rewards.check(task)?;
        let mut env = guarded(Boundary::Environment, async {
            Ok::<_, EnvError>(factory.make())
        })
        .await?;
        let reset = env.reset(task, seed.child("environment", &[]));
        let prompt = guarded(Boundary::Environment, reset).await?.text;
        Ok(Self {
            env,
            max_turns: factory.spec().max_turns,
            prompt,
            turns: Vec::new(),
        })
    }

    /// The opening prompt.
    pub(crate) fn prompt(&self) -> &str {
        &self.prompt
    }

    /// Turns taken.
    pub(crate) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Lets the environment react to a turn. The reaction counts once it is [`kept`](Self::keep).
    pub(crate) async fn react(&mut self, text: String, finish: Finish) -> Result<Reaction, Fault> {
        let turns_left = self.max_turns.saturating_sub(self.turns.len() + 1);
        let action = Action {
            text,
            finish,
            turns_left,
        };
        let step = guarded(Boundary::Environment, self.env.step(&action)).await?;
        if !step.reward.is_finite() {
            return Err(Fault::contract(
                Boundary::Environment,
                "the reward of a turn is not finite",
            ));
        }
        let ending = step.terminated.then(|| match &step.kind {
            TurnKind::Invalid { fault } => Ending::Malformed {
                fault: fault.clone(),
            },
            TurnKind::Calls { .. } | TurnKind::Answer { .. } => Ending::Answered,
        });
        let mut reaction = Reaction {
            action,
            step,
            ending,
        };
        if reaction.ending.is_none() && reaction.action.is_last() {
            let limit = Limit::Turns;
            reaction.ending = Some(Ending::Truncated { limit });
        } else if reaction.ending.is_none() && finish == Finish::Context {
            reaction.cut(Limit::Context);
        }
        Ok(reaction)
    }

    /// Records a turn; returns the ending if it was the last one. Of a last turn the record leaves out what the policy
    /// never read.
    pub(crate) fn keep(&mut self, reaction: Reaction) -> Option<Ending> {
        let Reaction {
            action,
            mut step,
            ending,
        } = reaction;
        if ending.is_some() {
            step.observation.text.clear();
        }
        if matches!(ending, Some(Ending::Truncated { .. })) {
            step.kind.hide();
        }
        let Action {
            text: policy,
            finish,
            ..
        } = action;
        let (kind, observation, reward) = (step.kind, step.observation.text, step.reward);
        self.turns.push(Turn {
            policy,
            finish,
            kind,
            observation,
            reward,
        });
        ending
    }

    /// Ends the episode at a limit that was noticed when the policy was asked again: the last observation did not reach it.
    pub(crate) fn cut_last(&mut self, limit: Limit) -> Ending {
        if let Some(last) = self.turns.last_mut() {
            last.observation.clear();
            last.reward = 0.0;
            last.kind.hide();
        }
        Ending::Truncated { limit }
    }

    /// The prompt and the turns.
    pub(crate) fn into_record(self) -> (String, Vec<Turn>) {
        (self.prompt, self.turns)
    }
}

/// Scores a finished episode unless a fault ended it; a reward that fails turns the ending into a fault.
pub(crate) async fn judge(rewards: &RewardSet, mut episode: Episode) -> Episode {
    if !episode.ending.is_infra() {
        match guarded(Boundary::Reward, rewards.score(&episode.task, &episode)).await {
            Ok(score) => episode.score = Some(score),
            Err(fault) => episode.ending = fault.into(),
        }
    }
    episode
}

/// Lets the rewards compare the scored episodes of each group with each other, all groups at once; a reward that fails is a
/// fault of every episode of its group.
pub(crate) async fn judge_groups(rewards: &RewardSet, episodes: &mut [Episode]) {
    if rewards.group_parts().next().is_none() {
        return;
    }
    let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, episode) in episodes
        .iter()
        .enumerate()
        .filter(|(_, episode)| episode.score.is_some())
    {
        groups.entry(episode.group).or_default().push(index);
    }
    let judged = join_all(groups.into_values().map(|members| {
        let group: Vec<&Episode> = members.iter().map(|&index| &episodes[index]).collect();
        async move {
            (
                members,
                guarded(
                    Boundary::Reward,
                    rewards.score_group(&group[0].task, &group),
                )
                .await,
            )
        }
    }))
    .await;
    for (members, found) in judged {
        match found {
            Ok(scores) => {
                for (index, score) in members.into_iter().zip(scores) {
                    episodes[index].score = Some(score);
                }
            }
            Err(fault) => {
                for index in members {
                    episodes[index].score = None;
                    episodes[index].ending = fault.clone().into();
                }
            }
        }
    }
}
