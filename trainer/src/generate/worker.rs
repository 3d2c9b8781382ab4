//! The engine's thread: requests in, passes through the model, tokens out.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use forage_contracts::Tokenizer;
use forage_contracts::policy::{Finish, GenerateRequest, PolicyError};
use tokio::sync::mpsc::{self, error::TryRecvError};

use super::engine::{EngineConfig, EngineModel, EngineStats, Message, Shared};
use super::request::{Active, ScoreReply, TokenEvent};
use super::runner::Runner;
use super::sampler::{Answer, Question, Wanted};
use super::scheduler::{Limits, Planned, Scheduler};
use crate::model::{BLOCK_POSITIONS, Chunk, KvCache, Pass, RopeTables};

/// Numbers of sequences that are scored; those of episodes are below.
const SCORED: u64 = 1 << 63;

/// A sequence whose tokens are given.
struct Scoring {
    tokens: Vec<u32>,
    temperature: f32,
    reply: ScoreReply,
    scored: Vec<TokenEvent>,
}

impl Scoring {
    /// Asks for the log-probability of the token at `position`.
    fn question(&self, position: usize) -> Question {
        Question {
            token: Wanted::Score(self.tokens[position], self.temperature),
            top: self.reply.options.top_logprobs,
        }
    }
}

enum Job {
    Generate(Active),
    Score(Scoring),
}

impl Job {
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Generate(active) => active.is_abandoned(),
            Self::Score(scoring) => scoring.reply.sender.is_closed(),
        }
    }

    fn fail(self, error: PolicyError) {
        match self {
            Self::Generate(active) => active.reply.end(Err(error)),
            Self::Score(scoring) => drop(scoring.reply.sender.send(Err(error))),
        }
    }
}

/// A sequence and the place of a token in it.
type Owner = (u64, usize);

pub(super) struct Worker {
    runner: Runner,
    scheduler: Scheduler,
    jobs: BTreeMap<u64, Job>,
    context: usize,
    tokenizer: Arc<dyn Tokenizer>,
    eos: Vec<u32>,
    shared: Arc<Shared>,
    stats: EngineStats,
    next_score: u64,
    /// See [`EngineConfig::bf16`].
    bf16: bool,
}

impl Worker {
    pub(super) fn new(model: EngineModel, config: EngineConfig, shared: Arc<Shared>) -> Self {
        let EngineModel {
            decoder,
            config: shape,
            tokenizer,
            eos,
        } = model;
        let device = decoder.device();
        let limits = Limits {
            sequences: config.sequences.max(1),
            tokens: config.step_tokens.max(1),
        };
        let scheduler =
            Scheduler::new(limits, config.cache_tokens.div_ceil(BLOCK_POSITIONS).max(1));
        let context = config.window(&shape);
        let rope = RopeTables::new(&shape, context, &device);
        let decoder = decoder.for_inference(config.bf16);
        let cache = KvCache::new(&shape, scheduler.capacity() / BLOCK_POSITIONS, &decoder);
        let runner = Runner {
            decoder,
            config: shape,
            rope,
            cache,
        };
        let (jobs, stats) = (BTreeMap::new(), EngineStats::default());
        Self {
            runner,
            scheduler,
            jobs,
            context,
            tokenizer,
            eos,
            shared,
            stats,
            next_score: SCORED,
            bf16: config.bf16,
        }
    }

    pub(super) fn run(
        &mut self,
        mut receiver: mpsc::UnboundedReceiver<Message>,
        pool: &rayon::ThreadPool,
    ) {
        loop {
            if self.jobs.is_empty() {
                self.publish();
                let Some(message) = receiver.blocking_recv() else {
                    return;
                };
                pool.install(|| self.handle(message));
            }
            loop {
                match receiver.try_recv() {
                    Ok(message) => pool.install(|| self.handle(message)),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.drop_abandoned();
            pool.install(|| self.pass());
            self.publish();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Generate(prompt, request, reply) => {
                if let Some(error) = self.refuse(&prompt, &request) {
                    reply.end(Err(error));
                    return;
                }
                self.scheduler.submit(request.episode, prompt, true);
                self.jobs
                    .insert(request.episode, Job::Generate(Active::new(request, reply)));
            }
            Message::Score(tokens, temperature, reply) => self.score(tokens, temperature, reply),
            Message::Release(episode) => {
                self.stats.cancelled += u64::from(self.jobs.remove(&episode).is_some());
                self.scheduler.release(episode);
            }
            Message::Swap(decoder, version, done) => {
                tracing::debug!(version, sequences = self.jobs.len(), "weights swapped");
                // The old weights go before the new ones are arranged.
                self.runner.decoder.clone_from(&decoder);
                self.runner.decoder = decoder.for_inference(self.bf16);
                self.scheduler.forget();
                for job in self.jobs.values_mut() {
                    // Numbers of one answer are of one version.
                    if let Job::Score(scoring) = job {
                        scoring.scored.clear();
                    }
                }
                self.shared.version.store(version, Ordering::Release);
                let _ = done.send(());
            }
        }
    }

    fn score(&mut self, tokens: Vec<u32>, temperature: f32, reply: ScoreReply) {
        if let Some(fault) = self.bad_tokens(&tokens, self.context) {
            let _ = reply.sender.send(Err(PolicyError::BadRequest(fault)));
            return;
        }
        if tokens.len() == 1 {
            let _ = reply.sender.send(Ok(Vec::new()));
            return;
        }
        let id = self.next_score;
        self.next_score += 1;
        // The last token predicts no known token.
        self.scheduler
            .submit(id, Arc::from(&tokens[..tokens.len() - 1]), false);
        self.jobs.insert(
            id,
            Job::Score(Scoring {
                tokens,
                temperature,
                reply,
                scored: Vec::new(),
            }),
        );
    }

    fn bad_tokens(&self, tokens: &[u32], most: usize) -> Option<String> {
        let vocab = self.runner.config.vocab_size;
        if tokens.is_empty() {
            return Some("the prompt is empty".to_owned());
        }
        if tokens.len() > most {
            let (count, context) = (tokens.len(), self.context);
            return Some(format!(
                "{count} tokens leave no room in a context of {context}"
            ));
        }
        let outside = tokens.iter().find(|&&id| id as usize >= vocab)?;
        Some(format!(
            "token id {outside} is outside the vocabulary of {vocab}"
        ))
    }

    fn refuse(&self, prompt: &[u32], request: &GenerateRequest) -> Option<PolicyError> {
        let fault = self.bad_tokens(prompt, self.context - 1).or_else(|| {
            if request.max_tokens == 0 {
                return Some("max_tokens must be at least 1".to_owned());
            }
            if request.episode >= SCORED || self.jobs.contains_key(&request.episode) {
                return Some(format!(
                    "episode {} is being continued already",
                    request.episode
                ));
            }
            request
                .sampling
                .check()
                .err()
                .map(|error| error.to_string())
        });
        fault.map(PolicyError::BadRequest)
    }

    /// Frees the memory of requests that nobody waits for any more.
    fn drop_abandoned(&mut self) {
        let abandoned: Vec<u64> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.is_abandoned())
            .map(|(&id, _)| id)
            .collect();
        for id in abandoned {
            self.jobs.remove(&id);
            self.scheduler.release(id);
            self.stats.cancelled += 1;
        }
    }

    fn pass(&mut self) {
        let plan = self.scheduler.plan();
        if plan.is_empty() {
            // Cannot happen while the scheduler keeps its contract; if it does, an error is better than silence.
            for id in self.jobs.keys().copied().collect::<Vec<_>>() {
                self.fail(
                    id,
                    PolicyError::Gone("the scheduler found nothing to run".to_owned()),
                );
            }
            return;
        }
        let (questions, owners) = self.questions(&plan);
        let started = Instant::now();
        match self.forward(&plan, &questions) {
            Ok(answers) => {
                tracing::trace!(
                    sequences = plan.len(),
                    tokens = plan.iter().map(|part| part.count).sum::<usize>(),
                    rows = questions.len(),
                    us = started.elapsed().as_micros() as u64,
                    "pass"
                );
                self.scheduler.commit(&plan);
                for ((id, position), answer) in owners.into_iter().zip(answers) {
                    self.take(id, position, answer);
                }
            }
            Err(error) => {
                tracing::debug!(%error, sequences = plan.len(), "pass failed");
                for part in plan {
                    self.fail(part.id, error.clone());
                }
            }
        }
    }

    /// The questions to the rows of a pass, and for each the sequence and the position of the token that it is about.
    fn questions(&self, plan: &[Planned]) -> (Vec<(usize, Question)>, Vec<Owner>) {
        let (mut questions, mut owners) = (Vec::new(), Vec::new());
        let mut first = 0;
        for part in plan {
            match self.jobs.get(&part.id) {
                Some(Job::Score(scoring)) => {
                    for offset in 0..part.count {
                        let position = part.start + offset + 1;
                        questions.push((first + offset, scoring.question(position)));
                        owners.push((part.id, position));
                    }
                }
                Some(Job::Generate(active)) if part.last => {
                    questions.push((first + part.count - 1, active.question()));
                    owners.push((part.id, part.start + part.count));
                }
                _ => {}
            }
            first += part.count;
        }
        (questions, owners)
    }

    fn forward(
        &mut self,
        plan: &[Planned],
        questions: &[(usize, Question)],
    ) -> Result<Vec<Option<Answer>>, PolicyError> {
        let Self {
            runner, scheduler, ..
        } = self;
        let parts: Vec<_> = plan.iter().map(|part| scheduler.part(part)).collect();
        let chunks = plan.iter().zip(&parts).map(|(part, (ids, blocks))| Chunk {
            ids,
            start: part.start,
            blocks,
        });
        let pass = Pass::new(chunks.collect());
        runner.run(&pass, questions)
    }

    fn take(&mut self, id: u64, position: usize, answer: Option<Answer>) {
        let version = self.shared.version.load(Ordering::Acquire);
        match (self.jobs.get_mut(&id), answer) {
            (Some(Job::Generate(active)), Some(drawn)) => {
                let token = drawn.sampled.token;
                self.stats.generated_tokens += 1;
                let length = self.scheduler.length(id) + 1;
                let finish = active.push(
                    drawn,
                    length >= self.context,
                    &self.eos,
                    self.tokenizer.as_ref(),
                );
                self.scheduler.push(id, token);
                if let Some(finish) = finish {
                    self.end(id, finish, version);
                }
            }
            (Some(Job::Score(scoring)), Some(Answer { sampled, top })) => {
                // A sequence that gave way runs again from its beginning.
                if position == scoring.scored.len() + 1 {
                    scoring.scored.push(TokenEvent {
                        token: sampled.token,
                        logprob: sampled.logprob,
                        top,
                    });
                }
                if scoring.scored.len() + 1 == scoring.tokens.len() {
                    self.scheduler.release(id);
                    if let Some(Job::Score(done)) = self.jobs.remove(&id) {
                        let _ = done.reply.sender.send(Ok(done.scored));
                    }
                }
            }
            (Some(_), _) => {
                let place = self.scheduler.length(id);
                self.fail(
                    id,
                    PolicyError::NonFinite(format!("logits after {place} tokens")),
                );
            }
            (None, _) => {}
        }
    }

    fn end(&mut self, id: u64, finish: Finish, version: u64) {
        tracing::debug!(
            sequence = id,
            tokens = self.scheduler.length(id),
            ?finish,
            "generated"
        );
        self.scheduler.keep(id);
        if let Some(Job::Generate(active)) = self.jobs.remove(&id) {
            active.end(finish, version);
        }
    }

    /// Does not trust a failed pass: the sequence gives its blocks back.
    fn fail(&mut self, id: u64, error: PolicyError) {
        self.scheduler.discard(id);
        if let Some(job) = self.jobs.remove(&id) {
            job.fail(error);
        }
    }

    fn publish(&mut self) {
        let counts = self.scheduler.counts;
        let traffic = self.runner.cache.traffic();
        self.stats = EngineStats {
            running: self.scheduler.running() as u64,
            waiting: self.scheduler.waiting() as u64,
            cache_tokens_used: self.scheduler.held_positions() as u64,
            cache_tokens: self.scheduler.capacity() as u64,
            prompt_tokens: counts.prompt_tokens,
            cached_prompt_tokens: counts.cached_prompt_tokens,
            preemptions: counts.preemptions,
            attention_bytes: traffic.moved,
            live_cache_bytes: traffic.live,
            ..self.stats
        };
        *self
            .shared
            .stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = self.stats;
    }
}
