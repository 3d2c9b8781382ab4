//! `forage serve retriever`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use forage_retriever::server::{ServerConfig, Services};
use forage_retriever::{Index, Retriever as _};

use super::{Front, stopped};
use crate::retrieval::RetrievalArgs;
use crate::terminal::counted;

/// Serves an index to programs and people.
///
/// It speaks the protocol of Search-R1's retrieval server, as slime, verl and SkyRL do, and has a search page for people at /, with
/// /healthz, /readyz, /info and /metrics.
// A request says how many hits the cross-encoder looks at.
#[derive(Args, Debug)]
#[command(mut_arg("rerank_depth", |depth| depth.hide(true).conflicts_with_all(["index", "remote"])))]
pub(crate) struct Retriever {
    /// Index folder.
    index: Option<PathBuf>,
    /// TOML file that names a remote retriever to serve instead: a front of shards, for instance.
    #[arg(long, conflicts_with = "index")]
    remote: Option<PathBuf>,
    #[command(flatten)]
    front: Front,
    /// Passages per query when a request names no number.
    #[arg(long, default_value_t = ServerConfig::default().topk)]
    topk: usize,
    #[command(flatten)]
    retrieval: RetrievalArgs,
    /// Requests admitted at a time, running and waiting together; those beyond are refused with 503.
    #[arg(long, default_value_t = ServerConfig::default().base.queue)]
    queue: usize,
    /// Largest answer, MiB; all answers together take up to four times as much memory. Larger ones are refused with 413.
    #[arg(long, default_value_t = ServerConfig::default().max_answer_bytes >> 20)]
    max_answer_mib: usize,
    /// Threads that search; by default one per core.
    #[arg(long)]
    threads: Option<usize>,
}

impl Retriever {
    pub(super) fn run(self) -> Result<()> {
        let begin = Instant::now();
        let config = self.config()?;
        let services = self.services()?;
        let front = self.front.bind("search")?;
        let described = describe(&services);
        let summary = front.run(&described, begin, async |listener, stop| {
            Ok(services.serve(listener, config, stop).await?)
        })?;
        stopped(&summary, "");
        Ok(())
    }

    fn config(&self) -> Result<ServerConfig> {
        let defaults = ServerConfig::default();
        Ok(ServerConfig {
            topk: self.topk,
            max_answer_bytes: self.max_answer_mib.saturating_mul(1024 * 1024),
            workers: self.threads.unwrap_or(defaults.workers),
            base: self.front.base(self.queue, &defaults.base)?,
            ..defaults
        })
    }

    fn services(&self) -> Result<Services> {
        let retrieval = self.retrieval.config();
        match (&self.index, &self.remote) {
            (Some(folder), None) => Ok(retrieval.services(&Arc::new(Index::open(folder)?))?),
            (None, Some(file)) => Ok(retrieval.front(file)?),
            _ => bail!("give an index folder or --remote FILE"),
        }
    }
}

fn describe(services: &Services) -> String {
    let Some(bm25) = &services.bm25 else {
        return "no index".to_owned();
    };
    let passages = counted(bm25.index().len(), "passage");
    format!("{passages}, fingerprint {}", bm25.fingerprint())
}
