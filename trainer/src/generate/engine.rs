//! The generation engine: one thread that owns the model and runs every request in flight as one batch.
//!
//! Requests join and leave at any step. An episode keeps its slot of the key-value cache between turns, so a turn costs
//! only its new tokens. An episode's tokens depend on its own tokens, seed and weights alone, not on its neighbours.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use async_trait::async_trait;
use burn::tensor::{Int, Tensor};
use forage_env::policy::{Completion, GenerateRequest, Policy, PolicyError};
use forage_env::tokenizer::Tokenizer;
use tokio::sync::{mpsc, oneshot};

use super::sampler::sample;
use super::session::{Reply, Session};
use crate::model::{Batch, Decoder, KvCache, ModelConfig, RopeTables};

/// Sizes of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Episodes whose cache is kept at once; more wait their turn.
    pub slots: usize,
    /// Tokens per episode.
    pub context: usize,
    /// Most padded tokens in one prefill pass.
    pub prefill_tokens: usize,
}

enum Message {
    Generate(GenerateRequest, Reply),
    Release(u64),
    Swap(Box<Decoder>, u64, oneshot::Sender<()>),
}

/// A handle to the engine thread; dropping the last one stops it.
#[derive(Debug)]
pub struct Engine {
    sender: Option<mpsc::UnboundedSender<Message>>,
    version: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the engine on the weights' device. `pool` is where its tensor operations run.
    ///
    /// # Panics
    /// When the operating system cannot start a thread.
    pub fn start(
        decoder: Decoder,
        model: ModelConfig,
        tokenizer: Arc<dyn Tokenizer>,
        config: EngineConfig,
        pool: Arc<rayon::ThreadPool>,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let version = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&version);
        let run = move || {
            let device = decoder.device();
            let context = config.context.min(model.max_position_embeddings);
            let rope = RopeTables::new(&model, context + config.prefill_tokens, &device);
            let cache = KvCache::new(&model, config.slots, context, &device);
            let free = (0..config.slots).rev().collect();
            let sessions = BTreeMap::new();
            let waiting = VecDeque::new();
            let mut worker = Worker {
                decoder,
                model,
                tokenizer,
                config,
                rope,
                cache,
                sessions,
                free,
                waiting,
                tick: 0,
                version: seen,
                pool,
            };
            worker.run(receiver);
        };
        let thread = std::thread::Builder::new().name("forage-engine".to_owned()).spawn(run);
        Self { sender: Some(sender), version, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Replaces the weights between optimizer steps; every cached key and value is dropped.
    ///
    /// # Errors
    /// [`PolicyError::Gone`] when the engine thread has stopped.
    pub async fn swap(&self, decoder: Decoder, version: u64) -> Result<(), PolicyError> {
        let (done, swapped) = oneshot::channel();
        self.send(Message::Swap(Box::new(decoder), version, done))?;
        swapped.await.map_err(|_| gone())
    }

    fn send(&self, message: Message) -> Result<(), PolicyError> {
        self.sender.as_ref().ok_or_else(gone)?.send(message).map_err(|_| gone())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the engine was already reported to every waiting request.
            let _ = thread.join();
        }
    }
}

fn gone() -> PolicyError {
    PolicyError::Gone("the generation engine stopped; see the error above it in the log".to_owned())
}

#[async_trait]
impl Policy for Engine {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
        let (reply, completion) = oneshot::channel();
        self.send(Message::Generate(request, reply))?;
        completion.await.map_err(|_| gone())?
    }

    fn release(&self, episode: u64) {
        // A stopped engine has nothing left to release.
        let _ = self.send(Message::Release(episode));
    }
}

struct Worker {
    decoder: Decoder,
    model: ModelConfig,
    tokenizer: Arc<dyn Tokenizer>,
    config: EngineConfig,
    rope: RopeTables,
    cache: KvCache,
    sessions: BTreeMap<u64, Session>,
    free: Vec<usize>,
    waiting: VecDeque<(GenerateRequest, Reply)>,
    tick: u64,
    version: Arc<AtomicU64>,
    pool: Arc<rayon::ThreadPool>,
}

impl Worker {
    fn run(&mut self, mut receiver: mpsc::UnboundedReceiver<Message>) {
        loop {
            let idle = self.waiting.is_empty() && self.sessions.values().all(|session| session.active.is_none());
            if idle {
                let Some(message) = receiver.blocking_recv() else { return };
                self.handle(message);
            }
            loop {
                match receiver.try_recv() {
                    Ok(message) => self.handle(message),
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return,
                }
            }
            self.tick += 1;
            self.admit();
            self.prefill();
            self.decode();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Generate(request, reply) => match self.refuse(&request) {
                Some(error) => drop(reply.send(Err(error))),
                None => self.waiting.push_back((request, reply)),
            },
            Message::Release(episode) => {
                if let Some(session) = self.sessions.remove(&episode) {
                    self.free.push(session.slot);
                    // The lowest slots are used first, so that rows of a batch stand together in the cache.
                    self.free.sort_unstable_by(|a, b| b.cmp(a));
                }
            }
            Message::Swap(decoder, version, done) => {
                self.decoder = *decoder;
                for session in self.sessions.values_mut() {
                    session.forget();
                }
                self.version.store(version, Ordering::Release);
                let _ = done.send(());
            }
        }
    }

    fn refuse(&self, request: &GenerateRequest) -> Option<PolicyError> {
        let bad = |message: String| Some(PolicyError::BadRequest(message));
        let context = self.cache.positions();
        if request.tokens.is_empty() {
            return bad("the prompt is empty".to_owned());
        }
        if request.tokens.len() >= context {
            return bad(format!("{} tokens leave no room in a context of {context}", request.tokens.len()));
        }
        if let Some(id) = request.tokens.iter().find(|&&id| id as usize >= self.model.vocab_size) {
            return bad(format!("token id {id} is outside the vocabulary of {}", self.model.vocab_size));
        }
        if request.max_tokens == 0 {
            return bad("max_tokens must be at least 1".to_owned());
        }
        None
    }

    /// Gives waiting requests a slot, in order of arrival.
    fn admit(&mut self) {
        while let Some((request, reply)) = self.waiting.pop_front() {
            let episode = request.episode;
            if !self.sessions.contains_key(&episode) {
                if self.free.is_empty() {
                    self.evict();
                }
                let Some(slot) = self.free.pop() else {
                    self.waiting.push_front((request, reply));
                    return;
                };
                self.sessions.insert(episode, Session::new(slot));
            }
            if let Some(session) = self.sessions.get_mut(&episode) {
                session.start(request, reply);
                session.last_used = self.tick;
            }
        }
    }

    /// Frees the slot of the idle session that was used longest ago; its tokens are run again when it returns.
    fn evict(&mut self) {
        let idle = self.sessions.iter().filter(|(_, session)| session.active.is_none());
        let oldest = idle.min_by_key(|(_, session)| session.last_used).map(|(&episode, _)| episode);
        if let Some(session) = oldest.and_then(|episode| self.sessions.remove(&episode)) {
            self.free.push(session.slot);
        }
    }

    /// Runs every prompt and observation that waits, in passes of similar lengths.
    fn prefill(&mut self) {
        let mut rows: Vec<(usize, u64)> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.active.is_some() && session.pending.len() > 1)
            .map(|(&episode, session)| (session.pending.len(), episode))
            .collect();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        let mut rest = rows.as_slice();
        while let Some(&(width, _)) = rest.first() {
            let fit = (self.config.prefill_tokens / width).clamp(1, rest.len());
            let (pass, later) = rest.split_at(fit);
            rest = later;
            let episodes: Vec<u64> = pass.iter().map(|&(_, episode)| episode).collect();
            self.forward(&episodes);
        }
    }

    /// One more token for every request in flight.
    fn decode(&mut self) {
        let ready = self.sessions.iter().filter(|(_, session)| session.active.is_some() && session.pending.len() == 1);
        let episodes: Vec<u64> = ready.map(|(&episode, _)| episode).collect();
        if !episodes.is_empty() {
            self.forward(&episodes);
        }
    }

    fn forward(&mut self, episodes: &[u64]) {
        let logits = match self.run_model(episodes) {
            Ok(logits) => logits,
            Err(error) => return self.fail(episodes, &error),
        };
        let vocab = self.model.vocab_size;
        let version = self.version.load(Ordering::Acquire);
        for (row, episode) in episodes.iter().enumerate() {
            let Some(session) = self.sessions.get_mut(episode) else { continue };
            session.commit();
            session.last_used = self.tick;
            let Some(request) = session.active.as_ref().map(|active| &active.request) else { continue };
            let drawn =
                sample(&logits[row * vocab..(row + 1) * vocab], request.sampling, request.seed, session.index());
            let Some(drawn) = drawn else {
                session.fail(PolicyError::NonFinite(format!("logits at position {}", session.cached.len())));
                continue;
            };
            session.take(drawn, self.cache.positions(), self.tokenizer.as_ref(), version);
        }
    }

    fn fail(&mut self, episodes: &[u64], error: &PolicyError) {
        for episode in episodes {
            if let Some(session) = self.sessions.get_mut(episode) {
                session.fail(error.clone());
            }
        }
    }

    /// Logits `[episodes, vocab]` of each episode's last pending token, row-major.
    fn run_model(&mut self, episodes: &[u64]) -> Result<Vec<f32>, PolicyError> {
        let mut rows: Vec<(usize, &[u32], usize)> = episodes
            .iter()
            .map(|episode| &self.sessions[episode])
            .map(|session| (session.slot, session.pending.as_slice(), session.cached.len()))
            .collect();
        let asked: Vec<usize> = rows.iter().map(|&(slot, ..)| slot).collect();
        fill_gaps(&mut rows);
        let slots: Vec<usize> = rows.iter().map(|&(slot, ..)| slot).collect();
        let tokens: Vec<&[u32]> = rows.iter().map(|&(_, tokens, _)| tokens).collect();
        let starts: Vec<usize> = rows.iter().map(|&(.., start)| start).collect();
        let batch = Batch::new(&tokens, &starts);
        let last = |slot: &usize| {
            let row = slots.iter().position(|other| other == slot).unwrap_or(0);
            (row * batch.width() + tokens[row].len() - 1) as i32
        };
        let mut last: Vec<i32> = asked.iter().map(last).collect();
        // The head runs on at least two rows: a single one takes another path of the matrix product, with other bits.
        last.extend(last.first().copied().filter(|_| asked.len() == 1));
        let Self { decoder, model, rope, cache, .. } = self;
        let logits = self.pool.install(|| {
            let hidden = decoder.hidden_cached(model, rope, &batch, cache, &slots);
            let index = Tensor::<1, Int>::from_ints(last.as_slice(), &hidden.device());
            decoder.logits(hidden.select(0, index)).into_data_as::<f32>()
        });
        logits.try_into_vec().map_err(|error| PolicyError::Gone(format!("logits cannot be read back: {error:?}")))
    }
}

/// Orders rows by slot; where only a few slots are missing in between, empty rows fill them, so that the cache is read
/// in place instead of being gathered.
fn fill_gaps(rows: &mut Vec<(usize, &[u32], usize)>) {
    rows.sort_unstable_by_key(|&(slot, ..)| slot);
    let (Some(&(first, ..)), Some(&(last, ..))) = (rows.first(), rows.last()) else { return };
    let decoding = rows.iter().all(|(_, tokens, _)| tokens.len() == 1);
    let span = last - first + 1;
    if !decoding || span * 4 > rows.len() * 5 {
        return;
    }
    let taken = std::mem::take(rows);
    let mut next = first;
    for row in taken {
        rows.extend((next..row.0).map(|slot| (slot, [].as_slice(), 0)));
        next = row.0 + 1;
        rows.push(row);
    }
}
