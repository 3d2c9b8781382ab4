//! `forage serve env`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_contracts::{Split, Task};
use forage_env::server::{Served, ServerConfig};
use forage_lab::{Data, EnvironmentConfig, PolicyFormat, RunError, Session, Sources};
use forage_retriever::CorpusFormat;

use super::{Front, stopped};
use crate::config::read;
use crate::environment::{EnvironmentArgs, Servers};
use crate::progress::Watch;
use crate::retrieval::{RetrievalArgs, format_of};

/// Serves an environment to trainers and agents with a policy.
///
/// It speaks OpenEnv's protocol over HTTP and WebSocket, Gymnasium's shape as JSON, tools over MCP and NeMo-Gym's routes, with
/// /healthz, /readyz, /info and /metrics.
///
/// The questions are a config's, those of --questions with --index or --corpus, or else a generated world's.
#[derive(Args, Debug)]
pub(crate) struct Env {
    /// Environment; `forage envs` lists them.
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    id: Option<String>,
    /// Config whose environment, rewards, corpus and questions are served.
    #[arg(long, conflicts_with_all = ["index", "corpus", "format", "questions", "pages"], conflicts_with_all = RetrievalArgs::IDS)]
    config: Option<PathBuf>,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    overrides: Vec<String>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Index folder to search.
    #[arg(long, requires = "questions")]
    index: Option<PathBuf>,
    #[command(flatten)]
    retrieval: RetrievalArgs,
    /// Corpus to index in a temporary folder, when there is no --index.
    #[arg(long, requires = "questions", conflicts_with = "index")]
    corpus: Option<PathBuf>,
    /// The corpus format.
    #[arg(long, help = format!("Format of the corpus, read off its first record when absent: {}", CorpusFormat::help()))]
    format: Option<CorpusFormat>,
    /// Questions as JSON lines.
    #[arg(long)]
    questions: Option<PathBuf>,
    /// Pages of the generated world.
    #[arg(long, default_value_t = 1000)]
    pages: u64,
    /// Seed of the generated world, and of rewards that draw; the config's where there is one.
    #[arg(long)]
    seed: Option<u64>,
    /// Split of the questions: train, dev or test.
    #[arg(long, default_value = "train", value_parser = split)]
    split: Split,
    /// Most questions; of a world by default 1000, or as many as it has.
    #[arg(long)]
    limit: Option<usize>,
    /// The policy whose tokenizer counts tokens: a folder, a name on the hub or builtin:NAME. A config's own by default, else a byte is a
    /// token.
    #[arg(long)]
    tokenizer: Option<String>,
    #[command(flatten)]
    front: Front,
    /// Sessions at a time; those beyond are refused with 503.
    #[arg(long, default_value_t = ServerConfig::default().max_sessions)]
    max_sessions: usize,
    /// Seconds without a request after which a session is closed.
    #[arg(long, default_value_t = ServerConfig::default().session_ttl.as_secs())]
    session_ttl_seconds: u64,
    /// Seconds a step may take, its reward included.
    #[arg(long, default_value_t = ServerConfig::default().step_timeout.as_secs())]
    step_timeout_seconds: u64,
    /// Threads that run steps; by default one per core.
    #[arg(long)]
    threads: Option<usize>,
}

/// Questions a generated world makes where nobody says.
const QUESTIONS: usize = 1000;

fn split(name: &str) -> Result<Split, String> {
    serde_json::from_value(name.into()).map_err(|_| "there are train, dev and test".to_owned())
}

impl Env {
    pub(super) fn run(mut self) -> Result<()> {
        let begin = Instant::now();
        if self.environment.any() && self.config.is_none() {
            let what = "--env-command serves the environment of a config; name one with --config";
            return Err(RunError::config(what).into());
        }
        let mut servers = self.environment.start(&mut self.overrides)?;
        let done = self.serve(begin, &mut servers);
        servers.explain(done)
    }

    fn serve(&self, begin: Instant, servers: &mut Servers) -> Result<()> {
        let config = self.server()?;
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let served = match &self.config {
            Some(path) => self.of_config(path, scratch.path())?,
            None => self.of_flags(self.id.as_deref().unwrap_or_default(), scratch.path())?,
        };
        let front = self.front.bind("play")?;
        let described = format!(
            "environment `{}`, {} tasks",
            served.factory.spec().id,
            served.tasks.len()
        );
        let mut is_gone = false;
        let summary = front.run(&described, begin, async |listener, stop| {
            let ended = async {
                tokio::select! {
                    () = stop => {}
                    () = servers.gone() => is_gone = true,
                }
            };
            Ok(served.serve(listener, config, ended).await?)
        })?;
        let episodes = summary.episodes;
        stopped(&summary.requests, &format!(", {episodes} episodes"));
        if is_gone {
            bail!(
                "no further episode can be played; mend the command of --env-command and start the server again"
            );
        }
        Ok(())
    }

    fn server(&self) -> Result<ServerConfig> {
        let defaults = ServerConfig::default();
        let base = self.front.base(defaults.base.queue, &defaults.base)?;
        Ok(ServerConfig {
            max_sessions: self.max_sessions,
            session_ttl: Duration::from_secs(self.session_ttl_seconds),
            max_action_bytes: defaults.max_action_bytes.min(base.max_body_bytes),
            max_answer_bytes: defaults.max_answer_bytes,
            step_timeout: Duration::from_secs(self.step_timeout_seconds),
            workers: self.threads.unwrap_or(defaults.workers),
            base,
        })
    }

    fn of_config(&self, path: &Path, scratch: &Path) -> Result<Served> {
        let mut config = read(path, &self.overrides, None)?;
        if let Some(seed) = self.seed {
            config = config.vary(|config| config.seed = seed)?;
        }
        let data = Data::load(&config, scratch)?;
        let tasks = data.split(self.split);
        let limit = self.limit.unwrap_or(usize::MAX);
        let tasks = tasks.iter().take(limit).cloned().collect();
        let name = self.tokenizer.as_ref();
        let tokenizer = PolicyFormat::tokenizer(name.unwrap_or(&config.policy.checkpoint))?;
        let rewards = config.rewards()?;
        if let Some(name) = rewards.group_parts().next() {
            bail!(
                "[reward.{name}] compares the episodes of a group, and a session is one episode; leave it out here"
            );
        }
        let format = PolicyFormat::raw(tokenizer);
        let environment = &config.environment;
        let session = Session::new(environment, rewards, &data.corpus, format, &Watch::new())?;
        served(session, tasks)
    }

    fn of_flags(&self, id: &str, scratch: &Path) -> Result<Served> {
        let mut environment = EnvironmentConfig::plain(id)?;
        let format = if let Some(name) = &self.tokenizer {
            PolicyFormat::raw(PolicyFormat::tokenizer(name)?)
        } else {
            environment = environment.for_bytes()?;
            PolicyFormat::bytes()
        };
        let seed = self.seed.unwrap_or(1);
        let retrieval = self.retrieval.one_mode()?;
        let format_of_corpus = format_of(id, self.corpus.as_deref(), self.format)?;
        let sources = Sources {
            environment: id,
            questions: self.questions.as_deref(),
            index: self.index.as_deref(),
            corpus: self.corpus.as_deref().zip(format_of_corpus),
            retrieval: &retrieval,
            split: self.split,
            limit: self.limit,
            usual: QUESTIONS,
            pages: Some(self.pages),
            seed,
        };
        let (corpus, tasks) = sources.open(scratch)?;
        let rewards = environment.default_rewards(seed)?;
        let session = Session::new(&environment, rewards, &corpus, format, &Watch::new())?;
        served(session, tasks)
    }
}

fn served(session: Session, tasks: Arc<[Arc<Task>]>) -> Result<Served> {
    if tasks.is_empty() {
        bail!("there are no questions in this split; name another with --split");
    }
    Ok(session.served(tasks))
}
