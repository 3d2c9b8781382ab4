//! `forage serve policy`.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use forage_trainer::server::{self, ServerConfig};

use super::Front;
use crate::commands::note;
use crate::policy::PolicyArgs;

/// Serves a policy: OpenAI's protocol at /v1/completions, /v1/chat/completions and /v1/models, with /healthz, /readyz and
/// /metrics.
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
    #[arg(long, default_value_t = ServerConfig::default().queue)]
    queue: usize,
    /// Seconds that requests in flight may take to finish after SIGTERM or ctrl-c.
    #[arg(long, default_value_t = ServerConfig::default().drain.as_secs())]
    drain_seconds: u64,
}

impl Policy {
    pub(super) fn run(self) -> Result<()> {
        let begin = Instant::now();
        let config = ServerConfig {
            max_body_bytes: self.front.max_body_bytes(),
            queue: self.queue,
            token: self.front.token()?,
            drain: Duration::from_secs(self.drain_seconds),
            ..ServerConfig::default()
        };
        let mut model = self.engine.start(self.model.as_deref())?;
        if let Some(name) = self.name {
            model.name = name;
        }
        let front = self.front.bind("generate")?;
        let chat = if model.chat.is_some() { "with" } else { "without" };
        let described = format!("model `{}`, context of {} tokens, {chat} a chat template", model.name, model.context);
        let summary = front
            .run(&described, begin, async |listener, stop| Ok(server::serve(listener, config, model, stop).await?))?;
        let server::Summary { served, refused, dropped } = summary;
        note(&format!("stopped: {served} requests served, {refused} refused, {dropped} dropped"));
        Ok(())
    }
}
