//! `forage serve`: answers over HTTP.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use forage_retriever::Index;
use forage_retriever::server::{self, ServerConfig, Services};

use super::note;
use crate::retrieval::RetrieverConfig;

/// Serves over HTTP what other programs search through.
#[derive(Subcommand, Debug)]
pub(crate) enum Serve {
    Retriever(Box<Retriever>),
}

/// Serves an index: the protocol of Search-R1's retrieval server (slime, verl and SkyRL speak it too), a search page for
/// people at /, /healthz, /readyz, /info and /metrics.
#[derive(Args, Debug)]
pub(crate) struct Retriever {
    /// Index folder.
    index: Option<PathBuf>,
    /// TOML file that names a remote retriever to serve instead: a front of shards, for instance.
    #[arg(long, conflicts_with = "index")]
    remote: Option<PathBuf>,
    /// Address and port to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8000")]
    addr: SocketAddr,
    /// Passages per query when a request names no number.
    #[arg(long, default_value_t = ServerConfig::default().topk)]
    topk: usize,
    #[command(flatten)]
    retrieval: RetrieverConfig,
    /// Requests admitted at a time, running and waiting together; those beyond are refused with 503.
    #[arg(long, default_value_t = ServerConfig::default().queue)]
    queue: usize,
    /// File with a token that requests must carry as `Authorization: Bearer TOKEN`.
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Largest request body, MiB.
    #[arg(long, default_value_t = 8)]
    max_body_mib: usize,
    /// Threads that search; by default one per core.
    #[arg(long)]
    threads: Option<usize>,
    /// Seconds that requests in flight may take to finish after SIGTERM or ctrl-c.
    #[arg(long, default_value_t = ServerConfig::default().drain.as_secs())]
    drain_seconds: u64,
}

impl Serve {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Retriever(command) => command.run(),
        }
    }
}

impl Retriever {
    fn run(self) -> Result<()> {
        let begin = Instant::now();
        let config = self.config()?;
        let services = self.services()?;
        let listener = bind(self.addr)?;
        let addr = listener.local_addr()?;
        if !addr.ip().is_loopback() && config.token.is_none() {
            note(&format!("warning: anyone who reaches {addr} may search; set --token-file to ask for a token"));
        }
        let described = describe(&services);
        // Searches have threads of their own; this runtime only moves bytes.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(front_threads())
            .enable_all()
            .build()
            .context("start the server's threads")?;
        let summary = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).context("listen")?;
            let stop = stop_signal()?;
            note(&format!("listening on http://{addr}, {described}, ready in {} ms", begin.elapsed().as_millis()));
            Ok::<_, anyhow::Error>(server::serve(listener, config, services, stop).await?)
        })?;
        let server::Summary { served, refused, dropped, .. } = summary;
        note(&format!("stopped: {served} requests served, {refused} refused, {dropped} dropped"));
        Ok(())
    }

    fn config(&self) -> Result<ServerConfig> {
        let defaults = ServerConfig::default();
        Ok(ServerConfig {
            topk: self.topk,
            queue: self.queue,
            max_body_bytes: self.max_body_mib.saturating_mul(1024 * 1024),
            workers: self.threads.unwrap_or(defaults.workers),
            token: self.token_file.as_deref().map(read_token).transpose()?,
            drain: Duration::from_secs(self.drain_seconds),
            ..defaults
        })
    }

    fn services(&self) -> Result<Services> {
        match (&self.index, &self.remote) {
            (Some(folder), None) => self.retrieval.services(&Arc::new(Index::open(folder)?)),
            (None, Some(file)) => self.retrieval.front(self.retrieval.open(None, Some(file))?),
            _ => bail!("give an index folder or --remote FILE"),
        }
    }
}

/// A few threads move the bytes of many searchers.
fn front_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).div_ceil(8)
}

fn bind(addr: SocketAddr) -> Result<TcpListener> {
    let listener = match TcpListener::bind(addr) {
        Ok(listener) => listener,
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            bail!(
                "port {} of {} is in use; stop what listens there or choose another with --addr",
                addr.port(),
                addr.ip()
            )
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot listen on {addr}; choose another with --addr"));
        }
    };
    listener.set_nonblocking(true).context("listen")?;
    Ok(listener)
}

fn read_token(path: &Path) -> Result<String> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the token file `{}`", path.display()))?;
    let token = text.trim();
    if token.is_empty() {
        bail!("the token file `{}` is empty; write the token into it", path.display());
    }
    Ok(token.to_owned())
}

fn describe(services: &Services) -> String {
    let Some(bm25) = &services.bm25 else { return "no index".to_owned() };
    let manifest = bm25.index().manifest();
    format!("{} passages, fingerprint {}", manifest.counts.passages, manifest.fingerprint)
}

/// Completes at SIGTERM or ctrl-c. The handlers are in place when this returns.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for ctrl-c")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
