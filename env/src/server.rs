//! The environment server: episodes over HTTP, WebSocket and MCP, for trainers and agents that bring their own policy.
//!
//! | route | for |
//! |---|---|
//! | `POST /reset`, `/step`, `GET /state`, `WS /ws`, ... | OpenEnv's shapes, with real sessions over HTTP too |
//! | `POST /gym/make`, `/gym/reset`, `/gym/step`, `/gym/close` | Gymnasium's, one environment or many in a request |
//! | `/mcp` | tools over the Model Context Protocol |
//! | `POST /seed_session`, `/{tool}`, `/verify` | NeMo-Gym's resource servers |
//! | `GET /` | whoever opens it in a browser |
//! | `GET /healthz`, `/readyz`, `/info`, `/tasks`, `/metrics` | whoever runs it |
//!
//! All of them play the same episodes: a turn is text, a call of a tool is a way to write one, the reward of the last turn
//! is what the [`RewardSet`] says of the whole episode. What the policy wrote and what it read are kept apart as in the
//! rollout driver, by the same code.
//!
//! **Sessions.** An episode takes a place among [`ServerConfig::max_sessions`] and gives it back when it ends, is closed, or
//! was idle for [`ServerConfig::session_ttl`]; a WebSocket connection and a Gymnasium handle keep theirs until they are
//! closed. Beyond that number new ones are refused at once, and so are episodes and turns beyond the memory for what all
//! sessions keep: four times [`ServerConfig::max_action_bytes`] for each place, and 64 MiB at least.
//!
//! **Faults** of ours (a retriever that is down, a judge that does not answer) end the episode with a typed error, never
//! with a reward.
//!
//! **Scheduling.** The runtime that calls [`Served::serve`] moves bytes; steps run on a runtime of their own. A client that goes
//! away in the middle of a step does not tear the episode: the step is finished, and its answer can be asked for again
//! under the same `request_id`.

mod aggregate;
mod app;
mod body;
mod fault;
mod gym;
mod mcp;
mod memory;
mod metrics;
mod nemo;
mod openenv;
mod play;
mod routes;
mod session;
mod socket;
mod tasks;
mod tools;

use std::sync::Arc;
use std::time::Duration;

pub use forage_net::{BaseConfig, ServeError};
use tokio::net::TcpListener;

use crate::reward::RewardSet;
use app::App;
use forage_contracts::environment::EnvFactory;
use forage_contracts::{Task, Tokenizer};

/// The environment that is served.
#[derive(Clone)]
pub struct Served {
    /// Makes the environments.
    pub factory: Arc<dyn EnvFactory>,
    /// The tasks; ids must differ.
    pub tasks: Arc<[Arc<Task>]>,
    /// Scores finished episodes.
    pub rewards: Arc<RewardSet>,
    /// Counts tokens for rewards that look at lengths: give the policy's own.
    pub tokenizer: Arc<dyn Tokenizer>,
}

/// Limits and habits of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Sessions at a time; those beyond are refused with 503 or `CAPACITY_REACHED`.
    pub max_sessions: usize,
    /// Time without a request after which a session is closed.
    pub session_ttl: Duration,
    /// Most bytes in the text of a turn.
    pub max_action_bytes: usize,
    /// Most bytes in one answer, below 4 GiB; all answers being made and sent together take up to four times as much memory.
    pub max_answer_bytes: usize,
    /// Longest time for a step, its reward included. A request may ask for less.
    pub step_timeout: Duration,
    /// Threads that run steps; one per core by default.
    pub workers: usize,
    /// The limits that every server has, without the queue: sessions are what is limited here.
    pub base: BaseConfig,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            // As many as the sandbox has room for.
            max_sessions: 1000,
            session_ttl: Duration::from_mins(10),
            max_action_bytes: 256 * 1024,
            // A batch of all sessions, with a hundred kilobytes for each.
            max_answer_bytes: 128 * 1024 * 1024,
            // A judge answers in seconds, with its retries in tens of them.
            step_timeout: Duration::from_mins(2),
            workers: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            // A turn with its protocol around it, or the row of a question with a whole conversation.
            base: BaseConfig {
                max_body_bytes: 1024 * 1024,
                ..BaseConfig::default()
            },
        }
    }
}

/// The requests and episodes of a server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Its requests and messages.
    pub requests: forage_net::Summary,
    /// Episodes that ended with a score.
    pub episodes: u64,
}

impl Served {
    /// Serves until `shutdown` completes, then drains: `/readyz` and new episodes are refused, requests in flight may finish,
    /// for at most [`BaseConfig::drain`]; then sessions and connections are closed, wherever their episodes stand.
    ///
    /// # Errors
    /// [`ServeError`] when the configuration is contradictory, threads cannot be started, or accepting fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        config: ServerConfig,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, ServeError> {
        check(&config, &self)?;
        let app = Arc::new(App::new(config, self)?);
        let sweeper = app::sweep(&app);
        let router = routes::router(&app);
        let ran = forage_net::serve(listener, &app, router, shutdown).await;
        sweeper.abort();
        Ok(Summary {
            requests: ran?,
            episodes: app.metrics.scored(),
        })
    }
}

fn check(config: &ServerConfig, served: &Served) -> Result<(), ServeError> {
    let wrong = |what: &str| Err(ServeError::Config(what.to_owned()));
    if config.max_sessions == 0 || config.workers == 0 {
        return wrong("max_sessions and workers must be at least 1");
    }
    if config.session_ttl.is_zero() || config.step_timeout.is_zero() {
        return wrong("the times of sessions and steps must be above 0");
    }
    if config.max_action_bytes == 0 || config.max_action_bytes > config.base.max_body_bytes {
        return wrong("max_action_bytes must be at least 1 and at most max_body_bytes");
    }
    // The memory of one answer is counted in 32 bits.
    if config.max_answer_bytes == 0 || config.max_answer_bytes > u32::MAX as usize {
        return wrong("max_answer_bytes must be at least 1 and below 4 GiB");
    }
    if served.tasks.is_empty() {
        return wrong("there are no tasks; name questions, or another split");
    }
    let unfit = served
        .tasks
        .iter()
        .find_map(|task| served.rewards.check(task).err());
    unfit.map_or(Ok(()), |error| Err(ServeError::Config(error.to_string())))
}
