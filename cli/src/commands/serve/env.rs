//! `forage serve env`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_env::dataset::read_tasks;
use forage_env::registry::{self, MakeQuestions, OpenWiki};
use forage_env::reward::RewardSet;
use forage_env::server::{self, Served, ServerConfig};
use forage_env::task::Split;
use forage_env::tokenizer::{ByteTokenizer, Tokenizer};
use forage_env::world::{WorldError, WorldSpec};
use forage_retriever::{CorpusFormat, NoPassages, Retriever};

use super::Front;
use crate::commands::note;
use crate::config::{EnvironmentConfig, RunConfig};
use crate::lint;
use crate::retrieval::RetrieverConfig;
use crate::setup::{self, Tasks};

/// Serves an environment to trainers and agents that bring their own policy: OpenEnv's protocol over HTTP and WebSocket,
/// Gymnasium's shape as JSON, tools over MCP and NeMo-Gym's routes, with /healthz, /readyz, /info and /metrics.
///
/// The questions are a config's, those of --questions with --index or --corpus, or else a generated world's.
#[derive(Args, Debug)]
pub(crate) struct Env {
    /// Environment; `forage envs` lists them.
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    id: Option<String>,
    /// Config whose environment, rewards, corpus and questions are served.
    #[arg(long, conflicts_with_all = ["index", "corpus", "questions"])]
    config: Option<PathBuf>,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    overrides: Vec<String>,
    /// Index folder to search.
    #[arg(long, requires = "questions")]
    index: Option<PathBuf>,
    #[command(flatten)]
    retrieval: RetrieverConfig,
    /// Corpus to index in a temporary folder, when there is no --index.
    #[arg(long, requires_all = ["format", "questions"], conflicts_with = "index")]
    corpus: Option<PathBuf>,
    /// Format of the corpus: beir, search-r1, pages or whole-pages.
    #[arg(long)]
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
    /// Which questions: train, dev or test.
    #[arg(long, default_value = "train", value_parser = split)]
    split: Split,
    /// Most questions; of a world by default 1000, or as many as it has.
    #[arg(long)]
    limit: Option<usize>,
    /// Checkpoint folder whose tokenizer counts tokens: the policy's. A config's own by default, else a byte is a token.
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
    /// Seconds that running episodes may take to finish after SIGTERM or ctrl-c.
    #[arg(long, default_value_t = ServerConfig::default().drain.as_secs())]
    drain_seconds: u64,
}

/// Questions a generated world makes where nobody says.
const QUESTIONS: usize = 1000;

fn split(name: &str) -> Result<Split, String> {
    serde_json::from_value(name.into()).map_err(|_| "there are train, dev and test".to_owned())
}

/// What is searched and asked.
struct Material {
    retriever: Arc<dyn Retriever>,
    wiki: Option<OpenWiki>,
    tasks: Tasks,
}

impl Env {
    pub(super) fn run(self) -> Result<()> {
        let begin = Instant::now();
        let config = self.server()?;
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let served = match &self.config {
            Some(path) => self.of_config(&RunConfig::read(path, &self.overrides)?, scratch.path())?,
            None => self.of_flags(self.id.as_deref().unwrap_or_default(), scratch.path())?,
        };
        let front = self.front.bind("play")?;
        let described = format!("environment `{}`, {} tasks", served.factory.spec().id, served.tasks.len());
        let summary = front
            .run(&described, begin, async |listener, stop| Ok(server::serve(listener, config, served, stop).await?))?;
        let server::Summary { served, refused, episodes, dropped } = summary;
        note(&format!("stopped: {served} requests served, {refused} refused, {episodes} episodes, {dropped} dropped"));
        Ok(())
    }

    fn server(&self) -> Result<ServerConfig> {
        let defaults = ServerConfig::default();
        let max_body_bytes = self.front.max_body_bytes();
        Ok(ServerConfig {
            max_sessions: self.max_sessions,
            session_ttl: Duration::from_secs(self.session_ttl_seconds),
            max_body_bytes,
            max_action_bytes: defaults.max_action_bytes.min(max_body_bytes),
            step_timeout: Duration::from_secs(self.step_timeout_seconds),
            workers: self.threads.unwrap_or(defaults.workers),
            token: self.front.token()?,
            drain: Duration::from_secs(self.drain_seconds),
        })
    }

    fn of_config(&self, config: &RunConfig, scratch: &Path) -> Result<Served> {
        let seed = self.seed.unwrap_or(config.seed);
        let config = RunConfig { seed, ..config.clone() };
        let data = setup::load_data(&config, scratch)?;
        let all = match self.split {
            Split::Train => data.train,
            Split::Dev => data.dev,
            Split::Test => data.test,
        };
        let tasks = all.iter().take(self.limit.unwrap_or(usize::MAX)).cloned().collect();
        let tokenizer = setup::tokenizer(self.tokenizer.as_deref().unwrap_or(&config.policy.checkpoint))?;
        lint::warn(&config);
        let rewards = setup::rewards(&config.environment.id, &config.reward, seed)?;
        if let Some(name) = rewards.group_parts().next() {
            bail!("[reward.{name}] compares the episodes of a group, and a session is one episode; leave it out here");
        }
        let material = Material { retriever: data.retriever, wiki: data.wiki, tasks };
        serve_with(&config.environment, material, tokenizer, rewards)
    }

    fn of_flags(&self, id: &str, scratch: &Path) -> Result<Served> {
        let entry = registry::find(id)?;
        let mut settings = serde_json::Map::new();
        let tokenizer: Arc<dyn Tokenizer> = if let Some(name) = &self.tokenizer {
            setup::tokenizer(name)?
        } else {
            settings = (entry.for_bytes)(settings);
            Arc::new(ByteTokenizer)
        };
        let seed = self.seed.unwrap_or(1);
        let rewards = setup::rewards(id, &setup::default_rewards(entry.outcome), seed)?;
        let environment = EnvironmentConfig { id: id.to_owned(), settings };
        serve_with(&environment, self.material(entry.questions, seed, scratch)?, tokenizer, rewards)
    }

    fn material(&self, own: Option<MakeQuestions>, seed: u64, scratch: &Path) -> Result<Material> {
        let Some(questions) = &self.questions else {
            if let Some(own) = own {
                let tasks = setup::own_questions(own, self.split, self.limit.unwrap_or(QUESTIONS), seed);
                return Ok(Material { retriever: Arc::new(NoPassages), wiki: None, tasks });
            }
            let (world, retriever, wiki) = setup::generated(WorldSpec::new(self.pages, seed))?;
            let tasks = match (world.questions(self.split, self.limit.unwrap_or(QUESTIONS) as u64), self.limit) {
                // Nobody asked for so many: a small world has fewer.
                (Err(WorldError::TooManyQuestions { available, .. }), None) => {
                    world.questions(self.split, available)?
                }
                (found, _) => found?,
            };
            let tasks = tasks.map(Arc::new).collect();
            return Ok(Material { retriever, wiki: Some(wiki), tasks });
        };
        if self.index.is_none() && self.corpus.is_none() {
            bail!("--questions goes with --index or --corpus, what they are searched in");
        }
        let read = read_tasks(&setup::here(questions)?, None, self.split)?;
        let tasks = read.into_iter().take(self.limit.unwrap_or(usize::MAX)).map(Arc::new).collect();
        let corpus = self.corpus.as_deref().zip(self.format);
        let (retriever, wiki) = setup::searchable(self.index.as_deref(), corpus, &self.retrieval, scratch)?;
        Ok(Material { retriever, wiki: Some(wiki), tasks })
    }
}

fn serve_with(
    environment: &EnvironmentConfig,
    material: Material,
    tokenizer: Arc<dyn Tokenizer>,
    rewards: Arc<RewardSet>,
) -> Result<Served> {
    let Material { retriever, wiki, tasks } = material;
    if tasks.is_empty() {
        bail!("there are no questions in this split; name another with --split");
    }
    let resources = setup::resources(&retriever, wiki.as_ref(), Arc::clone(&tokenizer));
    Ok(Served { factory: setup::environment(environment, resources, None)?, tasks, rewards, tokenizer })
}
