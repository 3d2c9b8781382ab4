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
//! **Scheduling.** The engine batches whatever is in flight. The runtime that calls [`serve`] only moves bytes; bodies are
//! parsed and tokenized on its blocking threads. Requests beyond [`ServerConfig::queue`] are refused at once with 429.
//! A client that goes away takes its completions along: their cache is freed at the engine's next step.
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

use forage_env::chat::ChatTemplate;
use forage_env::policy::Sampling;
use forage_env::tokenizer::HfTokenizer;
use forage_retriever::server::shell;
pub use forage_retriever::server::shell::ServeError;
use tokio::net::TcpListener;

use crate::generate::{Engine, EngineConfig};
use crate::weights::Checkpoint;
use app::App;

/// What is served.
#[derive(Debug, Clone)]
pub struct Model {
    /// The name that requests may give.
    pub name: String,
    /// Generates.
    pub engine: Arc<Engine>,
    /// Of the same checkpoint.
    pub tokenizer: HfTokenizer,
    /// Without one, chats are refused.
    pub chat: Option<ChatTemplate>,
    /// Token ids that end a completion.
    pub ends: Vec<u32>,
    /// Tokens per sequence, prompt and completion together.
    pub context: usize,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// How tokens are drawn where a request does not say.
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
    /// Most bytes in a request body.
    pub max_body_bytes: usize,
    /// Requests admitted at a time, running and waiting together; those beyond are refused with 429.
    pub queue: usize,
    /// Most completions one request may ask for, over all its prompts.
    pub max_choices: usize,
    /// What `Authorization: Bearer` must carry, when set. `/healthz` and `/readyz` are open to all.
    pub token: Option<String>,
    /// How long requests in flight may take to finish once the server is told to stop.
    pub drain: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_body_bytes: 8 * 1024 * 1024,
            queue: 512,
            max_choices: 1024,
            token: None,
            // Completions take longer than searches.
            drain: Duration::from_secs(30),
        }
    }
}

/// What a server did in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Requests for completions that got an answer of any kind.
    pub served: u64,
    /// Requests refused because the queue was full or the server was stopping.
    pub refused: u64,
    /// Requests given up at the end because they did not finish within [`ServerConfig::drain`].
    pub dropped: u64,
}

/// Serves until `shutdown` completes, then drains: `/readyz` and new work answer 503, requests in flight finish, for at
/// most [`ServerConfig::drain`], connections are closed.
///
/// Call it on a multi-threaded runtime that does no heavy work of its own.
///
/// # Errors
/// [`ServeError`] when the configuration is contradictory or accepting fails.
pub async fn serve(
    listener: TcpListener,
    config: ServerConfig,
    model: Model,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, ServeError> {
    check(&config, &model)?;
    let app = Arc::new(App::new(config, model));
    let (router, drain) = (routes::router(&app), app.config.drain);
    let give_up = || app.give_up();
    let dropped =
        shell::run(listener, router, &app.flights, drain, shutdown, give_up).await.map_err(ServeError::Accept)?;
    let (served, refused) = (app.metrics.traffic.served(), app.metrics.traffic.refused());
    Ok(Summary { served: served.saturating_sub(dropped), refused, dropped })
}

fn check(config: &ServerConfig, model: &Model) -> Result<(), ServeError> {
    let wrong = |what: &str| Err(ServeError::Config(what.to_owned()));
    if config.queue == 0 || config.max_choices == 0 {
        return wrong("queue and max_choices must be at least 1");
    }
    if config.token.as_ref().is_some_and(String::is_empty) {
        return wrong("the token is empty; write one to its file or run without");
    }
    if model.name.is_empty() {
        return wrong("the model has no name");
    }
    model.sampling.check().map_err(|fault| ServeError::Config(format!("the model's default sampling: {fault}")))
}
