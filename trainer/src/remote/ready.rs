//! Waiting for a server.

use std::time::{Duration, Instant};

use forage_net::{Again, Fault, Request};

use super::config::{RemoteConfig, RemoteKind};
use super::error::{RemoteError, RemoteFault};
use super::server::Server;
use super::{sglang, vllm};

/// Time between two questions at first and at most; a server that loads a model takes minutes.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Longest time to wait for a server that was given up.
const LOOK: Duration = Duration::from_secs(5);

impl Server {
    /// Waits until the server answers and checks that it is the one meant.
    ///
    /// Its weights count as version 0 until the first push: where a run is resumed, push first.
    ///
    /// # Errors
    /// [`RemoteError::Setting`] for settings that cannot be right, [`RemoteError::NotReady`] when
    /// [`RemoteConfig::ready_timeout_s`] are over, or at once when waiting cannot help.
    pub(super) async fn connect(config: &RemoteConfig, url: &str) -> Result<Self, RemoteError> {
        let server = Self::new(config, url)?;
        let (started, most) = (
            Instant::now(),
            Duration::from_secs_f64(config.ready_timeout_s),
        );
        let not_ready = |what: String| {
            let url = server.caller.client.base().to_owned();
            RemoteError::NotReady {
                url,
                seconds: started.elapsed().as_secs_f64(),
                what,
            }
        };
        let mut wait = FIRST_WAIT;
        loop {
            let left = most.saturating_sub(started.elapsed());
            let fault = match server.probe(left.min(server.push_timeout)).await {
                Ok(None) => break,
                Ok(Some(what)) => return Err(not_ready(what)),
                Err(fault) => fault.shown(|text| server.caller.client.redact(text)),
            };
            let waits = matches!(&fault, RemoteFault::Net(fault) if fault.again() != Again::Never);
            if !waits || started.elapsed() + wait >= most {
                return Err(not_ready(fix(&fault, config.kind)));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(server)
    }

    /// Returns true for a server that is in use, or that was given up and answers now.
    pub(super) async fn is_there(&self) -> bool {
        self.usable(None).is_ok() || matches!(self.probe(LOOK).await, Ok(None))
    }

    /// The reason not to use the server, if it answers and there is one.
    async fn probe(&self, limit: Duration) -> Result<Option<String>, RemoteFault> {
        let path = match self.kind {
            RemoteKind::Vllm => vllm::MODELS,
            RemoteKind::Sglang => sglang::INFO,
        };
        let client = &self.caller.client;
        let body = client.send(&Request::get(client.at(path)), limit).await?;
        match self.kind {
            RemoteKind::Vllm => vllm::unfit(&body, &self.model, self.context),
            RemoteKind::Sglang => sglang::unfit(&body),
        }
    }
}

fn fix(fault: &RemoteFault, kind: RemoteKind) -> String {
    let other = match kind {
        RemoteKind::Vllm => "sglang",
        RemoteKind::Sglang => "vllm",
    };
    match fault {
        RemoteFault::Net(Fault::Status {
            status: 401 | 403, ..
        }) => {
            format!("{fault}; let token_file name a file with the server's access token")
        }
        RemoteFault::Net(Fault::Status {
            status: 404 | 405, ..
        })
        | RemoteFault::Malformed(_) => {
            format!("{fault}; is it of the other kind? then write kind = \"{other}\"")
        }
        // It says itself what to do.
        RemoteFault::Net(Fault::Status {
            status: 300..=399, ..
        }) => fault.to_string(),
        _ => {
            format!("{fault}; a server that loads a large model may need a longer ready_timeout_s")
        }
    }
}
