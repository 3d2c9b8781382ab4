//! One episode while it is played.

mod text;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use forage_contracts::environment::Step;
use forage_contracts::policy::{Completion, Finish, GenerateRequest, Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_contracts::{
    Boundary, Branch, Ending, Episode, Limit, Provenance, Span, Task, TokenLog, Turn,
};
use serde_json::{Map, Value};

use super::driver::{Job, Rollout};
use super::stage::{Fault, Stage, guarded, judge};

/// Number of the next episode, by which engines tell episodes apart; unique within the process and part of no result.
static NEXT_EPISODE: AtomicU64 = AtomicU64::new(0);

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

/// A finished episode that others may branch from.
pub(super) struct Root {
    pub(super) episode: Episode,
    /// Length of the log before each completion.
    pub(super) starts: Vec<usize>,
}

impl Root {
    /// Number of turns; a branch shares fewer.
    pub(super) fn turns(&self) -> usize {
        self.episode.turns.len().min(self.starts.len())
    }
}

/// The episode that another branches off, and where.
pub(super) struct BranchPoint {
    root: Arc<Root>,
    /// Number of turns that both share.
    turns: usize,
}

impl BranchPoint {
    /// Chooses among the episodes `played` before a job; `most` is the most turns that an episode can have.
    pub(super) fn of(job: &Job, mut played: Vec<Option<Arc<Root>>>, most: usize) -> Option<Self> {
        let (_, branching) = job.branches_from?;
        let (place, turns) = branching.choose(&played, job.seed, most)?;
        let root = played.swap_remove(place)?;
        Some(Self { root, turns })
    }
}

/// One episode while it is played.
pub(super) struct Running<'a> {
    rollout: &'a Rollout,
    job: &'a Job,
    episode: u64,
    /// The environment and its record; `None` before the episode is opened.
    stage: Option<Stage>,
    log: TokenLog,
    /// The conversation so far, for a policy that reads text.
    conversation: Map<String, Value>,
    /// Text that the driver puts at the beginning of the next turn.
    forced_prefix: String,
    /// Length of the log before each completion.
    starts: Vec<usize>,
    branch: Option<Branch>,
    /// Number of turns given as a hint.
    hinted: usize,
}

impl<'a> Running<'a> {
    pub(super) fn new(rollout: &'a Rollout, job: &'a Job) -> Self {
        Self {
            rollout,
            job,
            episode: NEXT_EPISODE.fetch_add(1, Ordering::Relaxed),
            stage: None,
            log: TokenLog::default(),
            conversation: Map::new(),
            forced_prefix: String::new(),
            starts: Vec::new(),
            branch: None,
            hinted: 0,
        }
    }

    /// Plays and scores the episode, from a branch point if there is one; also returns the length of the log before each completion.
    pub(super) async fn play(mut self, start: Option<&BranchPoint>) -> (Episode, Vec<usize>) {
        // A branch, or an episode with a hint, replays shared turns in the environment that first answered them, so it takes that
        // episode's seed.
        let left = start.map(|start| &start.root.episode);
        let shown = left.or(self.hint().map(|(shown, _)| shown));
        let seed = shown
            .and_then(|episode| episode.seed)
            .unwrap_or(self.job.seed);
        let started = Instant::now();
        let release = Release {
            policy: self.rollout.policy.as_ref(),
            episode: self.episode,
        };
        let ending = self
            .run_turns(start, seed)
            .await
            .unwrap_or_else(Ending::from);
        drop(release);
        let (prompt, turns) = self.stage.map(Stage::into_record).unwrap_or_default();
        let episode = Episode {
            task: Task::clone(&self.job.task),
            group: self.job.group,
            member: self.job.member,
            branch: self.branch,
            hinted: self.hinted,
            environment: self.rollout.factory.spec().id.clone(),
            prompt,
            turns,
            tokens: self.log,
            // A running text can be put together from prompt and turns.
            conversation: self
                .conversation
                .contains_key("messages")
                .then_some(self.conversation),
            ending,
            score: None,
            seed: Some(seed),
        };
        let episode = judge(&self.rollout.rewards, episode).await;
        tracing::debug!(
            turns = episode.turns.len(),
            tokens = episode.tokens.len(),
            ending = ?episode.ending,
            score = episode.score.as_ref().map(|score| score.total),
            ms = started.elapsed().as_millis() as u64,
            "episode done"
        );
        (episode, self.starts)
    }

    async fn run_turns(
        &mut self,
        start: Option<&BranchPoint>,
        seed: Seed,
    ) -> Result<Ending, Fault> {
        let Rollout {
            factory, rewards, ..
        } = self.rollout;
        let stage = Stage::open(factory.as_ref(), rewards, &self.job.task, seed).await?;
        let stage = self.stage.insert(stage);
        if self.rollout.policy.reads_text() {
            let shares = start.is_some() || self.hint().is_some();
            return self.converse(shares).await;
        }
        let opening = self.rollout.presentation.opening(stage.prompt())?;
        self.log = TokenLog::with_prompt(&self.rollout.tokenizer.encode(&opening));
        if let Some(start) = start {
            self.branch_from(start).await?;
        } else if let Some((shown, turns)) = self.hint() {
            self.force_hint(shown, turns).await?;
        }
        loop {
            let spec = factory.spec();
            let turn = self.stage.as_ref().map_or(0, |stage| stage.turns().len());
            let remaining = spec.max_episode_tokens.saturating_sub(self.log.len());
            if remaining == 0 {
                return Ok(Ending::Truncated {
                    limit: Limit::Tokens,
                });
            }
            self.starts.push(self.log.len());
            let (prompt, begun) = (self.log.len(), Instant::now());
            let completion = self
                .generate(turn, spec.max_turn_tokens.min(remaining))
                .await?;
            let (tokens, ms) = (completion.tokens.len(), begun.elapsed().as_millis() as u64);
            tracing::trace!(turn, prompt, tokens, ms, finish = ?completion.finish, "turn");
            if let Some(ending) = self.react(&completion).await? {
                return Ok(ending);
            }
        }
    }

    /// Copies the turns shared with another episode, and replays them in the environment.
    async fn branch_from(&mut self, start: &BranchPoint) -> Result<(), Fault> {
        let BranchPoint {
            root,
            turns: shared,
        } = start;
        let shared = *shared;
        let Episode { member, branch, .. } = root.episode;
        self.branch = Some(Branch {
            member,
            turns: shared,
            root: branch.map(Branch::tree),
        });
        self.replay_turns(&root.episode.turns[..shared]).await?;
        self.starts.extend_from_slice(&root.starts[..shared]);
        if shared > 0 {
            self.log = root.episode.tokens.before(root.starts[shared]);
        }
        Ok(())
    }

    /// The hint, if it has any turns.
    fn hint(&self) -> Option<(&'a Episode, usize)> {
        let hint = self.job.hint.as_ref().filter(|(_, turns)| *turns > 0);
        hint.map(|(shown, turns)| (shown.as_ref(), *turns))
    }

    /// Logs the turns of a hint as forced tokens, and replays them in the environment.
    async fn force_hint(&mut self, shown: &Episode, turns: usize) -> Result<(), Fault> {
        let spans = shown.tokens.spans();
        let written = |span: &&Span| span.provenance == Provenance::Policy;
        let starts = spans.iter().filter(written).map(|span| span.start);
        let starts: Vec<usize> = starts.collect();
        let end = match starts.get(turns) {
            Some(&end) if starts.len() == shown.turns.len() => end,
            _ => {
                let fault = "a hint leaves a turn to write, and each of its turns has tokens";
                return Err(Fault::contract(Boundary::Policy, fault));
            }
        };
        self.replay_turns(&shown.turns[..turns]).await?;
        self.starts.extend_from_slice(&starts[..turns]);
        for span in spans.iter().take_while(|span| span.end <= end) {
            let ids = &shown.tokens.ids()[span.start..span.end];
            match span.provenance {
                Provenance::Prompt => {}
                Provenance::Environment => self.log.push_environment(ids),
                Provenance::Policy | Provenance::Forced => self.log.push_forced(ids),
            }
        }
        self.hinted = turns;
        Ok(())
    }

    /// Replays turns in the environment, which must react as it did before.
    async fn replay_turns(&mut self, turns: &[Turn]) -> Result<(), Fault> {
        for turn in turns {
            let Some(stage) = &mut self.stage else { break };
            let reaction = stage.react(turn.policy.clone(), turn.finish).await?;
            self.forced_prefix = reaction.step.forced_prefix.clone().unwrap_or_default();
            if stage.keep(reaction).is_some() || stage.turns().last() != Some(turn) {
                let fault = "the same turns under the same seed led elsewhere, so that no episode can begin with them";
                return Err(Fault::contract(Boundary::Environment, fault));
            }
        }
        Ok(())
    }

    /// Sampling parameters of this episode.
    fn sampling(&self) -> Sampling {
        let sampling = self.rollout.sampling;
        Sampling {
            temperature: self.job.temperature.unwrap_or(sampling.temperature),
            ..sampling
        }
    }

    fn request(&self, turn: usize, max_tokens: usize) -> GenerateRequest {
        GenerateRequest {
            episode: self.episode,
            tokens: self.log.ids().to_vec(),
            max_tokens,
            ignore_eos: false,
            stop: self.stops(),
            sampling: self.sampling(),
            seed: self.job.seed.child("turn", &[turn as u64]),
        }
    }

    /// The environment's stop strings, and the token that ends a message in the chat template where it is another than the tokenizer's:
    /// a base model that was fine-tuned on chats writes it, and its engine goes on.
    fn stops(&self) -> Vec<String> {
        let Rollout {
            tokenizer,
            factory,
            presentation,
            ..
        } = self.rollout;
        let mut stops = factory.spec().stop.clone();
        let end = presentation.end();
        if matches!(tokenizer.encode(end)[..], [one] if one != tokenizer.eos()) {
            stops.push(end.to_owned());
        }
        stops
    }

    async fn generate(&mut self, turn: usize, max_tokens: usize) -> Result<Completion, Fault> {
        let request = self.request(turn, max_tokens);
        let completion = guarded(Boundary::Policy, self.rollout.policy.generate(request)).await?;
        let fault = if completion.tokens.len() != completion.logprobs.len() {
            "not one log-probability per token"
        } else if completion.tokens.len() > max_tokens {
            "more tokens than were asked for"
        } else if completion
            .logprobs
            .iter()
            .any(|logprob| !logprob.is_finite())
        {
            "a log-probability is not finite"
        } else {
            return Ok(completion);
        };
        Err(Fault::contract(Boundary::Policy, fault))
    }

    /// Logs a completion and the environment's reaction to it; returns the ending if this was the last turn.
    async fn react(&mut self, completion: &Completion) -> Result<Option<Ending>, Fault> {
        let text = self.log_completion(completion);
        // Taken out of `self`, which logs the reaction.
        let Some(mut stage) = self.stage.take() else {
            return Err(Fault::contract(
                Boundary::Environment,
                "a turn before the episode was opened",
            ));
        };
        let reaction = stage.react(text, completion.finish).await;
        let kept = reaction.and_then(|mut reaction| {
            if reaction.ending.is_none() && !self.log_observation(&reaction.step)? {
                reaction.cut(Limit::Tokens);
            }
            Ok(stage.keep(reaction))
        });
        self.stage = Some(stage);
        kept
    }

    /// Logs a completion. Returns the turn's text: the forced prefix and what was sampled, without the token that ends a turn.
    fn log_completion(&mut self, completion: &Completion) -> String {
        let tokenizer = &self.rollout.tokenizer;
        let sampling = Some(self.sampling());
        self.log.push_policy(
            &completion.tokens,
            &completion.logprobs,
            completion.version,
            sampling,
        );
        let end = tokenizer.encode(self.rollout.presentation.end());
        let is_whole = completion.tokens.last().is_some_and(|&last| end == [last]);
        let spec = self.rollout.factory.spec();
        let room = self.log.len() < spec.max_episode_tokens;
        let stopped = completion.finish == Finish::Stop && !is_whole;
        if spec.append_eos_after_stop && stopped && room {
            self.log.push_forced(&[tokenizer.eos()]);
        }
        // A model may have several end tokens, of which the tokenizer names one.
        let is_end = |last: u32| completion.finish == Finish::Eos || last == tokenizer.eos();
        let written = match completion.tokens.split_last() {
            Some((&last, before)) if is_whole || is_end(last) => before,
            _ => &completion.tokens,
        };
        let mut text = std::mem::take(&mut self.forced_prefix);
        text.push_str(&tokenizer.decode(written));
        text
    }

    /// Logs what the policy reads next. Returns `false`, with nothing logged, when that exceeds the token budget.
    fn log_observation(&mut self, step: &Step) -> Result<bool, Fault> {
        let tokenizer = &self.rollout.tokenizer;
        let delta = self.rollout.presentation.following(&step.observation)?;
        let mut end = tokenizer.encode(&delta.end);
        if self.log.ids().ends_with(&end) {
            // Already in the log: sampled, or forced after a stop string.
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
