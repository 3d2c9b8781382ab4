//! One episode while it is played.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;

use super::driver::{Job, Rollout};
use crate::chat::ChatError;
use crate::environment::{Action, EnvError, Environment, Step, TurnKind};
use crate::episode::{Boundary, Ending, Episode, Limit, Score, Turn};
use crate::policy::{Completion, Finish, GenerateRequest, Policy, PolicyError};
use crate::reward::RewardError;
use crate::task::Task;
use crate::tokens::TokenLog;

/// Names episodes towards engines; unique within the process, part of no result.
static NEXT_EPISODE: AtomicU64 = AtomicU64::new(0);

/// Something of ours failed.
pub(super) struct Fault {
    boundary: Boundary,
    message: String,
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

    fn contract(boundary: Boundary, message: &str) -> Self {
        Self { boundary, message: format!("broken contract: {message}") }
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
            EnvError::Retriever(_) => Boundary::Retriever,
            EnvError::Sandbox(_) => Boundary::Sandbox,
            EnvError::Task { .. } | EnvError::OutOfOrder(_) | EnvError::Own(_) => Boundary::Environment,
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

/// Awaits `work`; a panic in it becomes a fault at `boundary`.
async fn guarded<T, E>(boundary: Boundary, work: impl Future<Output = Result<T, E>>) -> Result<T, Fault>
where
    Fault: From<E>,
{
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => result.map_err(Fault::from),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(Fault { boundary, message: format!("panicked: {text}") })
        }
    }
}

/// Tells the policy that the episode is over, however it ended.
struct Release<'a> {
    policy: &'a dyn Policy,
    episode: u64,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        // A second panic while unwinding would abort the process.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| self.policy.release(self.episode)));
    }
}

/// One episode while it is played.
pub(super) struct Running<'a> {
    rollout: &'a Rollout,
    job: &'a Job,
    episode: u64,
    prompt: String,
    turns: Vec<Turn>,
    log: TokenLog,
    /// What the driver put at the beginning of the coming turn.
    forced_prefix: String,
}

impl<'a> Running<'a> {
    pub(super) fn new(rollout: &'a Rollout, job: &'a Job) -> Self {
        Self {
            rollout,
            job,
            episode: NEXT_EPISODE.fetch_add(1, Ordering::Relaxed),
            prompt: String::new(),
            turns: Vec::new(),
            log: TokenLog::default(),
            forced_prefix: String::new(),
        }
    }

    /// Plays and scores.
    pub(super) async fn play(mut self) -> Episode {
        let release = Release { policy: self.rollout.policy.as_ref(), episode: self.episode };
        let ending = self.run_turns().await.unwrap_or_else(infra);
        drop(release);
        let mut episode = Episode {
            task: Task::clone(&self.job.task),
            group: self.job.group,
            member: self.job.member,
            prompt: self.prompt,
            turns: self.turns,
            tokens: self.log,
            ending,
            score: None,
            seed: Some(self.job.seed),
        };
        if !episode.ending.is_infra() {
            match score(self.rollout, &episode).await {
                Ok(score) => episode.score = Some(score),
                Err(fault) => episode.ending = infra(fault),
            }
        }
        episode
    }

    async fn run_turns(&mut self) -> Result<Ending, Fault> {
        let factory = &self.rollout.factory;
        factory.spec().outcome.check(&self.job.task)?;
        let mut env = guarded(Boundary::Environment, async { Ok::<_, EnvError>(factory.make()) }).await?;
        let reset = env.reset(&self.job.task, self.job.seed.child("environment", &[]));
        self.prompt = guarded(Boundary::Environment, reset).await?.text;
        let opening = self.rollout.presentation.opening(&self.prompt)?;
        self.log = TokenLog::with_prompt(&self.rollout.tokenizer.encode(&opening));
        loop {
            let spec = factory.spec();
            if self.turns.len() >= spec.max_turns {
                return Ok(Ending::Truncated { limit: Limit::Turns });
            }
            let remaining = spec.max_episode_tokens.saturating_sub(self.log.len());
            if remaining == 0 {
                return Ok(Ending::Truncated { limit: Limit::Tokens });
            }
            let completion = self.generate(spec.max_turn_tokens.min(remaining)).await?;
            if let Some(ending) = self.react(env.as_mut(), &completion).await? {
                return Ok(ending);
            }
        }
    }

    async fn generate(&self, max_tokens: usize) -> Result<Completion, Fault> {
        let request = GenerateRequest {
            episode: self.episode,
            tokens: self.log.ids().to_vec(),
            max_tokens,
            ignore_eos: false,
            stop: self.rollout.factory.spec().stop.clone(),
            sampling: self.rollout.sampling,
            seed: self.job.seed.child("turn", &[self.turns.len() as u64]),
        };
        let completion = guarded(Boundary::Policy, self.rollout.policy.generate(request)).await?;
        let fault = if completion.tokens.len() != completion.logprobs.len() {
            "not one log-probability per token"
        } else if completion.tokens.len() > max_tokens {
            "more tokens than were asked for"
        } else if completion.logprobs.iter().any(|logprob| !logprob.is_finite()) {
            "a log-probability is not finite"
        } else {
            return Ok(completion);
        };
        Err(Fault::contract(Boundary::Policy, fault))
    }

    /// Logs a completion, lets the environment react and logs that; returns the ending if this was the last turn.
    async fn react(&mut self, env: &mut dyn Environment, completion: &Completion) -> Result<Option<Ending>, Fault> {
        let text = self.log_completion(completion);
        let action = Action { text, finish: completion.finish };
        let mut step = guarded(Boundary::Environment, env.step(&action)).await?;
        if !step.reward.is_finite() {
            return Err(Fault::contract(Boundary::Environment, "the reward of a turn is not finite"));
        }
        let mut ending = ending_of(&step)?;
        let by_environment = ending.is_some();
        if ending.is_none() && completion.finish == Finish::Context {
            ending = Some(Ending::Truncated { limit: Limit::Context });
        }
        if ending.is_none() && !self.log_observation(&step)? {
            ending = Some(Ending::Truncated { limit: Limit::Tokens });
        }
        if ending.is_some() {
            hide(&mut step);
        }
        let reward = if ending.is_none() || by_environment { step.reward } else { 0.0 };
        let Action { text: policy, finish } = action;
        self.turns.push(Turn { policy, finish, kind: step.kind, observation: step.observation.text, reward });
        Ok(ending)
    }

    /// Returns the turn's text: the forced prefix and what was sampled, without the token that ends a turn.
    fn log_completion(&mut self, completion: &Completion) -> String {
        let tokenizer = &self.rollout.tokenizer;
        self.log.push_policy(&completion.tokens, &completion.logprobs, completion.version);
        let spec = self.rollout.factory.spec();
        let room = self.log.len() < spec.max_episode_tokens;
        if spec.append_eos_after_stop && completion.finish == Finish::Stop && room {
            self.log.push_forced(&[tokenizer.eos()]);
        }
        let end = tokenizer.encode(self.rollout.presentation.end());
        let written = match completion.tokens.split_last() {
            Some((&last, before)) if last == tokenizer.eos() || end == [last] => before,
            _ => &completion.tokens,
        };
        let mut text = std::mem::take(&mut self.forced_prefix);
        text.push_str(&tokenizer.decode(written));
        text
    }

    /// Logs what the policy reads next; `false`, and nothing logged, when that is beyond the token budget.
    fn log_observation(&mut self, step: &Step) -> Result<bool, Fault> {
        let tokenizer = &self.rollout.tokenizer;
        let delta = self.rollout.presentation.following(&step.observation.text)?;
        let mut end = tokenizer.encode(&delta.end);
        if self.log.ids().ends_with(&end) {
            // Sampled, or forced after a stop string.
            end.clear();
        }
        let observation = tokenizer.encode(&delta.rest);
        let prefix = step.forced_prefix.as_deref().unwrap_or_default();
        let forced = tokenizer.encode(prefix);
        let total = self.log.len() + end.len() + observation.len() + forced.len();
        if total > self.rollout.factory.spec().max_episode_tokens {
            return Ok(false);
        }
        self.log.push_forced(&end);
        self.log.push_environment(&observation);
        self.log.push_forced(&forced);
        prefix.clone_into(&mut self.forced_prefix);
        Ok(true)
    }
}

fn infra(fault: Fault) -> Ending {
    Ending::Infra { boundary: fault.boundary, message: fault.message }
}

pub(super) fn ending_of(step: &Step) -> Result<Option<Ending>, Fault> {
    match (step.terminated, step.truncated) {
        (true, true) => Err(Fault::contract(Boundary::Environment, "a step is both terminated and truncated")),
        (false, true) => Ok(Some(Ending::Truncated { limit: Limit::Turns })),
        (false, false) => Ok(None),
        (true, false) => Ok(Some(match &step.kind {
            TurnKind::Invalid { fault } => Ending::Malformed { fault: fault.clone() },
            _ => Ending::Answered,
        })),
    }
}

/// Removes from the record of a last step what the policy never read.
pub(super) fn hide(step: &mut Step) {
    step.observation.text.clear();
    step.kind.hide();
}

async fn score(rollout: &Rollout, episode: &Episode) -> Result<Score, Fault> {
    guarded(Boundary::Reward, rollout.rewards.score(&episode.task, episode)).await
}
