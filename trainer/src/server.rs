//! The policy server: OpenAI's protocol over an [`Engine`].
//!
//! | route | for |
//! |---|---|
//! | `POST /v1/completions` | prompts as text or token ids, whole or streamed, with log-probabilities |
//! | `POST /v1/chat/completions` | messages by the checkpoint's chat template, tool calls in Hermes form |
//! | `GET /v1/models`, `/v1/models/{id}` | the name to ask for |
//! | `GET /healthz`, `/readyz`, `/metrics` | whoever runs it |
//!
//! **Nothing is ignored in silence.** A field that asks for what the server cannot do is refused by name, as is one it
//! does not know; only fields for the records of OpenAI's own servers (`user`, `metadata`, `store`...) have no effect.
//!
//! **Scheduling.** The engine batches whatever is in flight. The runtime that calls [`Model::serve`] only moves bytes; bodies are
//! parsed and tokenized on its blocking threads. Requests beyond [`BaseConfig::queue`] are refused at once with 429.
//! A client that goes away takes its completions along: their cache is freed at the engine's next step. So does a request whose time
//! ([`ServerConfig::deadline`]) is over.
//!
//! **Log-probabilities** are in nats, under the full-vocabulary softmax at the sampling temperature (1 when greedy),
//! before any cut by `top_p`, `top_k` or `min_p`.

mod answer;
mod app;
mod chat;
mod choice;
mod completions;
mod fault;
mod fields;
mod metrics;
mod request;
mod routes;
mod text;

use std::sync::Arc;
use std::time::Duration;

use forage_contracts::policy::Sampling;
use forage_env::HfTokenizer;
use forage_env::chat::ChatTemplate;
pub use forage_net::{BaseConfig, ServeError, Summary};
use tokio::net::TcpListener;

use crate::generate::{Engine, EngineConfig};
use crate::weights::Checkpoint;
use app::App;

/// The model that is served.
#[derive(Debug, Clone)]
pub struct Model {
    /// The name that requests may give.
    pub name: String,
    /// Generates.
    pub engine: Arc<Engine>,
    /// The tokenizer of the same checkpoint.
    pub tokenizer: HfTokenizer,
    /// Without one, chats are refused.
    pub chat: Option<ChatTemplate>,
    /// Token ids that end a completion.
    pub ends: Vec<u32>,
    /// Tokens per sequence, prompt and completion together.
    pub context: usize,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// The sampling of requests that do not say.
    pub sampling: Sampling,
}

impl Model {
    /// Starts an engine on a checkpoint's weights; how tokens are drawn where a request does not say is what the
    /// publisher recommends, else the policy's own distribution.
    ///
    /// # Panics
    /// When the operating system cannot start a thread.
    pub fn start(
        name: impl Into<String>,
        checkpoint: &Checkpoint,
        engine: EngineConfig,
        pool: Arc<rayon::ThreadPool>,
    ) -> Self {
        let (own, full) = (checkpoint.generation, Sampling::FULL);
        Self {
            name: name.into(),
            engine: Arc::new(Engine::start(checkpoint, engine, pool)),
            tokenizer: checkpoint.tokenizer.clone(),
            chat: checkpoint.chat.clone(),
            ends: checkpoint.ends.clone(),
            context: engine.window(&checkpoint.config),
            vocab_size: checkpoint.config.vocab_size,
            sampling: Sampling {
                temperature: own.temperature.unwrap_or(full.temperature),
                top_p: own.top_p.unwrap_or(full.top_p),
                top_k: own.top_k.unwrap_or(full.top_k),
                min_p: own.min_p.unwrap_or(full.min_p),
            },
        }
    }
}

/// Limits and habits of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Most completions one request may ask for, over all its prompts.
    pub max_choices: usize,
    /// Time from admission to the end of the answer, after which a request is given up with 503, or its stream with an error.
    pub deadline: Duration,
    /// The limits that every server has; requests beyond the queue are refused with 429.
    pub base: BaseConfig,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_choices: 1024,
            // As long as a trainer waits for a completion.
            deadline: Duration::from_mins(10),
            base: BaseConfig::default(),
        }
    }
}

impl Model {
    /// Serves until `shutdown` completes, then drains: `/readyz` and new work answer 503, requests in flight finish, for at
    /// most [`BaseConfig::drain`], connections are closed.
    ///
    /// Call it on a multi-threaded runtime that does no heavy work of its own.
    ///
    /// # Errors
    /// [`ServeError`] when the configuration is contradictory or accepting fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        config: ServerConfig,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, ServeError> {
        check(&config, &self)?;
        let app = Arc::new(App::new(config, self));
        forage_net::serve(listener, &app, routes::router(&app), shutdown).await
    }
}

fn check(config: &ServerConfig, model: &Model) -> Result<(), ServeError> {
    let wrong = |what: &str| Err(ServeError::Config(what.to_owned()));
    if config.max_choices == 0 {
        return wrong("max_choices must be at least 1");
    }
    if config.deadline.is_zero() {
        return wrong("the time for a request must be above 0 s");
    }
    if model.name.is_empty() {
        return wrong("the model has no name");
    }
    model
        .sampling
        .check()
        .map_err(|fault| ServeError::Config(format!("the model's default sampling: {fault}")))
}
