//! The engine's handle: requests go to one thread, which owns the model and runs all of them together.
//!
//! Requests join and leave at any pass. An episode's tokens depend on its own tokens, seed and weights alone, not on other requests: on
//! the processor to the bit.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use forage_contracts::Tokenizer;
use forage_contracts::policy::{Completion, GenerateRequest, Policy, PolicyError};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::request::{
    Outlet, Reply, ScoreReply, StreamOptions, TokenEvent, TokenStream, UNREAD_TOGETHER,
};
use super::worker::Worker;
use crate::model::{BLOCK_POSITIONS, Decoder, KvCache, ModelConfig};
use crate::weights::Checkpoint;

/// Sizes of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Most tokens of one sequence; the model and the cache may allow fewer.
    pub context: usize,
    /// Tokens of the whole cache; sequences that do not fit wait, or run again later.
    pub cache_tokens: usize,
    /// Most tokens in one pass: prompts are cut into chunks beside the sequences that decode.
    pub step_tokens: usize,
    /// Most sequences in one pass.
    pub sequences: usize,
    /// Casts weights that are kept in f32 to bf16, at the start and at each swap, and computes in it. Weights that are kept in
    /// bf16 are computed with in bf16 anyway, except on the processor, which always computes in f32.
    pub bf16: bool,
}

impl EngineConfig {
    /// Positions of a cache of `bytes`, at least one block of them, where the engine computes in bf16 or in f32.
    pub fn cache_tokens_in(bytes: usize, model: &ModelConfig, bf16: bool) -> usize {
        let size = if bf16 {
            size_of::<half::bf16>()
        } else {
            size_of::<f32>()
        };
        (bytes / (KvCache::numbers_per_position(model) * size)).max(BLOCK_POSITIONS)
    }

    /// Tokens one sequence of `model` can have, prompt and completion together.
    pub fn window(&self, model: &ModelConfig) -> usize {
        let cache = self.cache_tokens.div_ceil(BLOCK_POSITIONS).max(1) * BLOCK_POSITIONS;
        self.context.min(model.max_position_embeddings).min(cache)
    }
}

/// A model to generate with.
pub(crate) struct EngineModel {
    /// Weights.
    pub decoder: Decoder,
    /// Their shape.
    pub config: ModelConfig,
    /// For stop strings.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// Tokens that end a completion.
    pub eos: Vec<u32>,
}

impl fmt::Debug for EngineModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineModel")
            .field("config", &self.config)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}

impl From<&Checkpoint> for EngineModel {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            decoder: checkpoint.decoder.clone(),
            config: checkpoint.config.clone(),
            tokenizer: Arc::new(checkpoint.tokenizer.clone()),
            eos: checkpoint.ends.clone(),
        }
    }
}

/// The state of the engine, and its counters since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Sequences that take part in passes.
    pub running: u64,
    /// Sequences that wait for memory.
    pub waiting: u64,
    /// Positions of the cache that are held, by episodes between turns too.
    pub cache_tokens_used: u64,
    /// Positions of the cache.
    pub cache_tokens: u64,
    /// Prompt tokens asked for.
    pub prompt_tokens: u64,
    /// Prompt tokens that another sequence, or an earlier turn, had left in the cache.
    pub cached_prompt_tokens: u64,
    /// Tokens drawn.
    pub generated_tokens: u64,
    /// Sequences that lost their blocks to an older one and ran again.
    pub preemptions: u64,
    /// Requests whose receiver went away, or whose episode was released before their end.
    pub cancelled: u64,
    /// Bytes that attention on a device has read and written, by the arithmetic of its kernels; 0 on the processor.
    pub attention_bytes: u64,
    /// Bytes of the keys and values that passes had to read, each once per pass.
    pub live_cache_bytes: u64,
}

pub(super) enum Message {
    /// A request, with the tokens to continue in place of its own.
    Generate(Arc<[u32]>, GenerateRequest, Reply),
    Score(Vec<u32>, f32, ScoreReply),
    Release(u64),
    Swap(Box<Decoder>, u64, oneshot::Sender<()>),
}

/// The state that the handle and the thread share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) version: AtomicU64,
    pub(super) stats: Mutex<EngineStats>,
}

/// A handle to the engine thread; dropping the last one stops it.
#[derive(Debug)]
pub struct Engine {
    sender: Option<mpsc::UnboundedSender<Message>>,
    shared: Arc<Shared>,
    /// Permits for tokens that readers of streams have not taken yet.
    unread: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the engine on the weights' device. `pool` is where its tensor operations run.
    ///
    /// # Panics
    /// When the operating system cannot start a thread.
    pub fn start(
        checkpoint: &Checkpoint,
        config: EngineConfig,
        pool: Arc<rayon::ThreadPool>,
    ) -> Self {
        Self::of(checkpoint.into(), config, pool)
    }

    /// As [`Self::start`], with a tokenizer and ends of the caller's choice.
    pub(crate) fn of(
        model: EngineModel,
        config: EngineConfig,
        pool: Arc<rayon::ThreadPool>,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let run = move || {
            let inside = Arc::clone(&pool);
            // The kernels split their work among the threads of the pool the call comes from.
            inside
                .install(|| Worker::new(model, config, seen))
                .run(receiver, &pool);
        };
        let thread = std::thread::Builder::new()
            .name("forage-engine".to_owned())
            .spawn(run);
        Self {
            sender: Some(sender),
            shared,
            unread: Arc::new(Semaphore::new(UNREAD_TOGETHER)),
            thread: Some(thread.expect("a thread can be started")),
        }
    }

    /// Draws a completion token by token. `prompt`, which others may share, stands in place of the request's tokens.
    ///
    /// # Errors
    /// [`PolicyError::Gone`] when the engine thread has stopped; other errors come through the stream.
    pub(crate) fn stream(
        &self,
        prompt: Arc<[u32]>,
        request: GenerateRequest,
        options: StreamOptions,
    ) -> Result<TokenStream, PolicyError> {
        let (outlet, stream) = Outlet::new(Arc::clone(&self.unread));
        let reply = Reply::Stream(outlet, options);
        self.send(Message::Generate(prompt, request, reply))?;
        Ok(stream)
    }

    /// ln p of every token but the first, given the tokens before it, nats, at a temperature: `n - 1` values.
    ///
    /// # Errors
    /// [`PolicyError`] when the tokens do not fit the model or the engine thread has stopped.
    pub async fn score(&self, tokens: Vec<u32>, temperature: f32) -> Result<Vec<f32>, PolicyError> {
        let scored = self
            .score_with(tokens, temperature, StreamOptions::default())
            .await?;
        Ok(scored.iter().map(|event| event.logprob).collect())
    }

    /// As [`Self::score`], and what else `options` asks for at each place.
    ///
    /// # Errors
    /// As [`Self::score`].
    pub(crate) async fn score_with(
        &self,
        tokens: Vec<u32>,
        temperature: f32,
        options: StreamOptions,
    ) -> Result<Vec<TokenEvent>, PolicyError> {
        let (sender, scores) = oneshot::channel();
        self.send(Message::Score(
            tokens,
            temperature,
            ScoreReply { sender, options },
        ))?;
        scores.await.map_err(|_| gone())?
    }

    /// Replaces the weights between optimizer steps; every cached key and value is dropped.
    ///
    /// # Errors
    /// [`PolicyError::Gone`] when the engine thread has stopped.
    pub(crate) async fn swap(&self, decoder: Decoder, version: u64) -> Result<(), PolicyError> {
        let (done, swapped) = oneshot::channel();
        self.send(Message::Swap(Box::new(decoder), version, done))?;
        swapped.await.map_err(|_| gone())
    }

    /// Returns whether the engine's thread still answers.
    pub(crate) fn is_alive(&self) -> bool {
        self.sender
            .as_ref()
            .is_some_and(|sender| !sender.is_closed())
    }

    /// Counters as of the last pass.
    pub fn stats(&self) -> EngineStats {
        *self
            .shared
            .stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: Message) -> Result<(), PolicyError> {
        self.sender
            .as_ref()
            .ok_or_else(gone)?
            .send(message)
            .map_err(|_| gone())
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
        self.shared.version.load(Ordering::Acquire)
    }

    async fn generate(&self, mut request: GenerateRequest) -> Result<Completion, PolicyError> {
        let (reply, completion) = oneshot::channel();
        let prompt = std::mem::take(&mut request.tokens).into();
        self.send(Message::Generate(prompt, request, Reply::Whole(reply)))?;
        completion.await.map_err(|_| gone())?
    }

    fn release(&self, episode: u64) {
        // A stopped engine has nothing left to release.
        let _ = self.send(Message::Release(episode));
    }
}

#[cfg(test)]
mod tests;
