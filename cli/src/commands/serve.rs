//! `forage serve`: answers over HTTP.

mod env;
mod policy;
mod retriever;
mod run;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use forage_net::{BaseConfig, Summary};

use crate::signals::is_hangup_ignored;
use crate::terminal::note;

/// Serves an environment, an index, a policy or a run.
#[derive(Subcommand, Debug)]
pub(crate) enum Serve {
    Env(Box<env::Env>),
    Retriever(Box<retriever::Retriever>),
    Policy(Box<policy::Policy>),
    Run(Box<run::Run>),
}

impl Serve {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Env(command) => command.run(),
            Self::Retriever(command) => command.run(),
            Self::Policy(command) => command.run(),
            Self::Run(command) => command.run(),
        }
    }
}

/// The address of a server and its limits.
#[derive(Args, Debug)]
struct Front {
    /// Port, or address and port, to listen on; a port alone is on loopback, port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8000", value_parser = address)]
    addr: SocketAddr,
    /// File with a token that requests must carry as `Authorization: Bearer TOKEN`.
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Largest request body, MiB; 8 by default, 1 for an environment.
    #[arg(long)]
    max_body_mib: Option<usize>,
    /// Connections at a time, at most three quarters of the file descriptors. Beyond that the one that has waited longest for
    /// its client is closed; while all are being answered, new ones wait.
    #[arg(long, default_value_t = BaseConfig::default().max_connections)]
    max_connections: usize,
    /// Seconds that requests in flight may take to finish after SIGTERM or ctrl-c.
    #[arg(long, default_value_t = BaseConfig::default().drain.as_secs())]
    drain_seconds: u64,
}

/// `8000`, `localhost:8000`, `0.0.0.0:8000`: of a name's addresses the first of IPv4, else the first.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let form = |cause: &dyn std::fmt::Display| {
        format!("{cause}; write a port, or an address and a port as in localhost:8000")
    };
    let found: Vec<SocketAddr> = text
        .to_socket_addrs()
        .map_err(|error| form(&error))?
        .collect();
    let of_ipv4 = found.iter().find(|address| address.is_ipv4());
    of_ipv4
        .or(found.first())
        .copied()
        .ok_or_else(|| form(&"the name has no address"))
}

/// Completes when the server is to stop.
type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Front {
    fn base(&self, queue: usize, defaults: &BaseConfig) -> Result<BaseConfig> {
        let mib = |mib: usize| mib.saturating_mul(1024 * 1024);
        Ok(BaseConfig {
            max_body_bytes: self.max_body_mib.map_or(defaults.max_body_bytes, mib),
            queue,
            token: self.token_file.as_deref().map(read_token).transpose()?,
            drain: Duration::from_secs(self.drain_seconds),
            max_connections: self.max_connections,
        })
    }

    /// Takes the address; warns where anyone may `act`.
    fn bind(&self, act: &str) -> Result<Bound> {
        let listener = bind(self.addr)?;
        let addr = listener.local_addr()?;
        if !addr.ip().is_loopback() && self.token_file.is_none() {
            note(&format!(
                "warning: anyone who reaches {addr} may {act}; set --token-file to ask for a token"
            ));
        }
        Ok(Bound { listener, addr })
    }
}

/// An address that is taken.
struct Bound {
    listener: TcpListener,
    addr: SocketAddr,
}

impl Bound {
    /// Serves until SIGTERM, SIGHUP or ctrl-c, on a runtime that only moves bytes.
    fn run<T>(
        self,
        described: &str,
        begin: Instant,
        serve: impl AsyncFnOnce(tokio::net::TcpListener, Stop) -> Result<T>,
    ) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(front_threads())
            .enable_all()
            .build()
            .context("start the server's threads")?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener).context("listen")?;
            let stop = Box::pin(stop_signal()?);
            let ready = begin.elapsed().as_millis();
            note(&format!(
                "listening on http://{}, {described}, ready in {ready} ms",
                self.addr
            ));
            serve(listener, stop).await
        })
    }
}

/// Says at the end what a server did; `more` comes between.
fn stopped(summary: &Summary, more: &str) {
    let Summary {
        served,
        refused,
        dropped,
    } = summary;
    note(&format!(
        "stopped: {served} requests served, {refused} refused{more}, {dropped} dropped"
    ));
}

/// A few threads move the bytes of many searchers.
fn front_threads() -> usize {
    std::thread::available_parallelism()
        .map_or(1, std::num::NonZero::get)
        .div_ceil(8)
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
            return Err(error)
                .with_context(|| format!("cannot listen on {addr}; choose another with --addr"));
        }
    };
    listener.set_nonblocking(true).context("listen")?;
    Ok(listener)
}

fn read_token(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token file `{}`", path.display()))?;
    let token = text.trim();
    if token.is_empty() {
        bail!(
            "the token file `{}` is empty; write the token into it",
            path.display()
        );
    }
    Ok(token.to_owned())
}

/// Completes at SIGTERM, SIGHUP or ctrl-c. The handlers are in place when this returns.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for ctrl-c")?;
    // Of a terminal that is closed.
    let mut hangup = if is_hangup_ignored()? {
        None
    } else {
        Some(signal(SignalKind::hangup()).context("listen for SIGHUP")?)
    };
    Ok(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hung_up => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_that_asks_ends_a_server() {
        use nix::sys::signal::{Signal, raise};
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            // Tests may be run so that they outlive their terminal.
            let hangup = (!is_hangup_ignored().unwrap()).then_some(Signal::SIGHUP);
            for signal in [Signal::SIGTERM, Signal::SIGINT].into_iter().chain(hangup) {
                let stop = stop_signal().unwrap();
                raise(signal).unwrap();
                let ended = tokio::time::timeout(Duration::from_mins(1), stop).await;
                assert!(ended.is_ok(), "{signal}");
            }
        });
    }

    #[test]
    fn addresses_as_people_write_them() {
        let read = |text: &str| address(text).map(|address| address.to_string());
        assert_eq!(read("8000").as_deref(), Ok("127.0.0.1:8000"));
        assert_eq!(read("localhost:8000").as_deref(), Ok("127.0.0.1:8000"));
        assert_eq!(read("0.0.0.0:0").as_deref(), Ok("0.0.0.0:0"));
        assert_eq!(read("[::1]:80").as_deref(), Ok("[::1]:80"));
        for wrong in ["localhost", "70000", ":", ""] {
            assert!(
                read(wrong).unwrap_err().contains("localhost:8000"),
                "{wrong}"
            );
        }
    }
}
