//! `forage serve policy`.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use forage_trainer::server::ServerConfig;

use super::{Front, stopped};
use crate::policy::PolicyArgs;

/// Serves a policy by OpenAI's protocol.
///
/// Its routes are /v1/completions, /v1/chat/completions and /v1/models, with /healthz, /readyz and /metrics.
#[derive(Args, Debug)]
pub(crate) struct Policy {
    /// Checkpoint folder, name on the hub (ORG/NAME or ORG/NAME@REVISION), or builtin:quickstart.
    model: Option<String>,
    /// Name that requests give; the folder's own by default.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    front: Front,
    #[command(flatten)]
    engine: PolicyArgs,
    /// Requests admitted at a time, running and waiting together; those beyond are refused with 429.
    #[arg(long, default_value_t = ServerConfig::default().base.queue)]
    queue: usize,
    /// Seconds from a request's admission to the end of its answer; then its completions are cancelled, and it is answered with 503 or
    /// its stream ends with an error.
    #[arg(long, default_value_t = ServerConfig::default().deadline.as_secs())]
    request_timeout_seconds: u64,
}

impl Policy {
    pub(super) fn run(self) -> Result<()> {
        let begin = Instant::now();
        let defaults = ServerConfig::default();
        let config = ServerConfig {
            deadline: Duration::from_secs(self.request_timeout_seconds),
            base: self.front.base(self.queue, &defaults.base)?,
            ..defaults
        };
        let mut model = self.engine.start(self.model.as_deref())?;
        if let Some(name) = self.name {
            model.name = name;
        }
        let front = self.front.bind("generate")?;
        let chat = if model.chat.is_some() {
            "with"
        } else {
            "without"
        };
        let described = format!(
            "model `{}`, context of {} tokens, {chat} a chat template",
            model.name, model.context
        );
        let summary = front.run(&described, begin, async |listener, stop| {
            Ok(model.serve(listener, config, stop).await?)
        })?;
        stopped(&summary, "");
        Ok(())
    }
}
