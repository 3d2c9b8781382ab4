//! The policy that one server runs, or several.

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::policy::{Completion, GenerateRequest, Policy, PolicyError};
use futures::future::{join_all, try_join_all};

use super::config::RemoteConfig;
use super::error::RemoteError;
use super::router::Router;
use super::server::Server;
use crate::device::ComputeType;

/// One or several vLLM or SGLang servers as a [`Policy`].
///
/// An episode stays on one server, with the others of its group, whose prefix the server keeps; a new group goes where the fewest
/// episodes are. A server that fails after all tries is given up as long as another is there: what was asked of it is asked of
/// another with the same tokens and seed, so that its episodes go on there, each token with the log-probability of the server that
/// drew it.
#[derive(Debug)]
pub struct RemotePolicy {
    servers: Vec<Server>,
    router: Router,
    context: usize,
    dtype: Option<ComputeType>,
}

impl RemotePolicy {
    /// Waits until every server answers and checks that it is the one meant.
    ///
    /// Their weights count as version 0 until the first push: where a run is resumed, push first.
    ///
    /// # Errors
    /// [`RemoteError::Setting`] for settings that cannot be right, [`RemoteError::NotReady`] when
    /// [`RemoteConfig::ready_timeout_s`] are over, or at once when waiting cannot help.
    pub async fn connect(config: &RemoteConfig) -> Result<Self, RemoteError> {
        config.check()?;
        let connecting = config.url.iter().map(|url| Server::connect(config, url));
        let servers = try_join_all(connecting).await?;
        Ok(Self {
            router: Router::new(servers.len()),
            servers,
            context: config.context,
            dtype: config.dtype,
        })
    }

    /// The same policy, whose servers may sample tokens with ids below `vocabulary` alone.
    #[must_use]
    pub(crate) fn of_vocabulary(mut self, vocabulary: usize) -> Self {
        for server in &mut self.servers {
            server.vocabulary = vocabulary;
        }
        self
    }

    /// The servers, those that were given up included.
    #[cfg(test)]
    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Most tokens of a sequence.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// The type that the servers compute in, where the config says so.
    pub(crate) fn dtype(&self) -> Option<ComputeType> {
        self.dtype
    }

    /// The servers to push weights to: those in use and those of the others that answer again, or all of them where none does.
    pub(crate) async fn there(&self) -> Vec<&Server> {
        let there = join_all(self.servers.iter().map(Server::is_there)).await;
        let found: Vec<&Server> = self
            .servers
            .iter()
            .zip(there)
            .filter_map(|(server, there)| there.then_some(server))
            .collect();
        if found.is_empty() {
            self.servers.iter().collect()
        } else {
            found
        }
    }

    /// Tells that the servers have new weights.
    pub(crate) fn renewed(&self) {
        self.router.forget();
    }

    /// Samples one completion, as [`Policy::generate`] with its error untranslated.
    ///
    /// # Errors
    /// [`RemoteError`], of several servers that of the last one that was asked.
    pub async fn complete(&self, request: GenerateRequest) -> Result<Completion, RemoteError> {
        self.complete_under(request, None).await
    }

    /// The same under the weights of a version; under the newest where none is named.
    async fn complete_under(
        &self,
        request: GenerateRequest,
        version: Option<u64>,
    ) -> Result<Completion, RemoteError> {
        if let [server] = self.servers.as_slice() {
            return server.complete(request, version).await;
        }
        let usable = |server: usize| self.servers[server].usable(version).is_ok();
        loop {
            // Where none is usable, the first says why.
            let chosen = self.router.choose(&request, usable).unwrap_or(0);
            let outcome = self.servers[chosen]
                .complete(request.clone(), version)
                .await;
            match outcome {
                Err(error) if error.is_of_server() && self.gives_up(chosen, &error, usable) => {}
                outcome => return outcome,
            }
        }
    }

    /// Has the servers keep the adapters of so many versions.
    pub(crate) fn keep_versions(&self, versions: usize) {
        for server in &self.servers {
            server.weights.keep_versions(versions);
        }
    }

    /// The same policy under the weights that it has now, whatever is pushed after them.
    pub(crate) fn pinned(self: Arc<Self>) -> Pinned {
        Pinned {
            version: self.version(),
            policy: self,
        }
    }

    /// Gives a server up if another is usable.
    fn gives_up(&self, lost: usize, error: &RemoteError, usable: impl Fn(usize) -> bool) -> bool {
        let other = (0..self.servers.len()).any(|server| server != lost && usable(server));
        if other {
            self.servers[lost].give_up(error);
        }
        other
    }
}

#[async_trait]
impl Policy for RemotePolicy {
    fn version(&self) -> u64 {
        let versions = self.servers.iter().map(Server::version);
        versions.max().unwrap_or(0)
    }

    async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
        Ok(self.complete(request).await?)
    }

    fn release(&self, episode: u64) {
        self.router.release(episode);
    }
}

/// A policy under the weights of one version.
#[derive(Debug)]
pub(crate) struct Pinned {
    policy: Arc<RemotePolicy>,
    version: u64,
}

#[async_trait]
impl Policy for Pinned {
    fn version(&self) -> u64 {
        self.version
    }

    async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
        let version = Some(self.version);
        Ok(self.policy.complete_under(request, version).await?)
    }

    fn release(&self, episode: u64) {
        self.policy.release(episode);
    }
}
