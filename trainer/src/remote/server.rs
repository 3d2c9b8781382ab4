//! One server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forage_contracts::policy::{Completion, GenerateRequest};
use tokio::sync::Mutex;

use super::answer::Sampled;
use super::call::Caller;
use super::config::{RemoteConfig, RemoteKind};
use super::error::{RemoteError, RemoteFault};
#[cfg(test)]
use super::stats::RemoteStats;
use super::weights::{Under, Weights};
use super::{sglang, vllm};

/// The fault of a server without the weights that an episode began with.
const NOT_THERE: &str = "the adapter that an episode began with is not there";

/// A vLLM or SGLang server. Shared by all episodes; the server batches them.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) kind: RemoteKind,
    /// Empty for a server that takes none.
    pub(super) model: String,
    pub(super) context: usize,
    /// Token ids are below this, where the policy's own vocabulary is known.
    pub(super) vocabulary: usize,
    request_timeout: Duration,
    pub(super) push_timeout: Duration,
    pub(super) caller: Caller,
    pub(super) weights: Weights,
    /// One push at a time.
    pub(super) pushing: Mutex<()>,
    /// Faults so far after which it may be another process.
    failed: AtomicU64,
    /// How many of them there were when it was last seen to have its weights.
    seen: AtomicU64,
    /// True when the server is too old to list token ids: found out at the first answer.
    names: AtomicBool,
}

impl Server {
    /// The server at `url`; nothing is sent.
    pub(super) fn new(config: &RemoteConfig, url: &str) -> Result<Self, RemoteError> {
        Ok(Self {
            kind: config.kind,
            model: config.model.clone().unwrap_or_default(),
            context: config.context,
            vocabulary: usize::MAX,
            request_timeout: config.request_timeout(),
            push_timeout: config.push_timeout(),
            caller: Caller::new(config, url)?,
            weights: Weights::default(),
            pushing: Mutex::default(),
            failed: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            names: AtomicBool::new(false),
        })
    }

    /// The server's address.
    pub(crate) fn url(&self) -> &str {
        self.caller.client.base()
    }

    /// Counters since the start.
    #[cfg(test)]
    pub(crate) fn stats(&self) -> RemoteStats {
        *self.caller.counters.lock()
    }

    /// Asks it nothing more, since others are there, until a push succeeds.
    pub(crate) fn give_up(&self, error: &RemoteError) {
        self.caller.give_up(error);
    }

    /// The version of the weights that it was seen to have.
    pub(super) fn version(&self) -> u64 {
        self.weights.version()
    }

    /// Samples one completion under the weights of a version; under the newest where none is named.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(super) async fn complete(
        &self,
        request: GenerateRequest,
        version: Option<u64>,
    ) -> Result<Completion, RemoteError> {
        self.caller.counters.lock().requests += 1;
        let outcome = self.ask(request, version).await;
        let tokens = outcome.as_ref().map_or(0, |it| it.tokens.len());
        self.caller.account(&outcome, tokens);
        outcome
    }

    async fn ask(
        &self,
        mut request: GenerateRequest,
        version: Option<u64>,
    ) -> Result<Completion, RemoteError> {
        if let Some(fault) = self.refuse(&request) {
            return Err(RemoteError::Request(fault));
        }
        self.usable(version)?;
        if request.sampling.is_greedy() {
            request.sampling.temperature = 0.0;
        }
        let (request, path) = (&request, self.path());
        let attempt = || self.attempt(path, request, version);
        let completion = self
            .caller
            .retry(path, || self.usable(version), |_| true, attempt)
            .await?;
        // A replacement of the weights may have failed meanwhile.
        self.usable(version).map(|()| completion)
    }

    /// Path of completions.
    pub(super) fn path(&self) -> &'static str {
        match self.kind {
            RemoteKind::Vllm => vllm::COMPLETIONS,
            RemoteKind::Sglang => sglang::GENERATE,
        }
    }

    /// Fails unless there is a server with weights that are known, those of the version if one is named.
    pub(super) fn usable(&self, version: Option<u64>) -> Result<(), RemoteError> {
        self.caller.alive()?;
        let what = match self.weights.unknown() {
            Some(what) => what,
            None if self.weights.under(version).is_some() => return Ok(()),
            None => NOT_THERE.to_owned(),
        };
        let url = self.caller.client.base().to_owned();
        Err(RemoteError::Weights { url, what })
    }

    /// The problem with a request, if there is one.
    fn refuse(&self, request: &GenerateRequest) -> Option<String> {
        let (count, context) = (request.tokens.len(), self.context);
        if count == 0 {
            Some("the prompt is empty".to_owned())
        } else if count >= context {
            Some(format!(
                "{count} tokens leave no room in a context of {context}"
            ))
        } else if request.max_tokens == 0 {
            Some("max_tokens must be at least 1".to_owned())
        } else {
            request
                .sampling
                .check()
                .err()
                .map(|error| error.to_string())
        }
    }

    /// One try, under the version's weights, or those of its moment.
    async fn attempt(
        &self,
        path: &str,
        request: &GenerateRequest,
        version: Option<u64>,
    ) -> Result<Completion, RemoteFault> {
        let under = self.weights.under(version);
        let under = under.ok_or_else(|| RemoteFault::Refused(NOT_THERE.to_owned()))?;
        let granted = request.max_tokens.min(self.context - request.tokens.len());
        let doubted = self.is_doubted();
        let sampled = self.sampled(path, request, &under, granted).await;
        let sampled = sampled.map_err(|fault| {
            if fault.may_be_restart() {
                self.failed.fetch_add(1, Ordering::SeqCst);
            }
            under.lacking(fault)
        })?;
        self.check_ids(&sampled.tokens)?;
        let version = self.weights.stamp(&under, sampled.weights.as_deref())?;
        if under.adapter.is_none() && (doubted || self.is_doubted()) {
            self.confirm(&under).await?;
        }
        sampled.completion(granted, request.max_tokens, version)
    }

    /// Tells whether the server may be another process than the one that was last seen to have whole weights, and would not say so itself.
    fn is_doubted(&self) -> bool {
        self.weights.mark().is_some() && self.failures() != self.seen.load(Ordering::SeqCst)
    }

    /// Faults so far after which it may be another process.
    pub(super) fn failures(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// Notes that the server was seen to have its weights after so many of these faults.
    pub(super) fn believe(&self, failures: u64) {
        self.seen.store(failures, Ordering::SeqCst);
    }

    /// Asks whether the server still has the whole weights that a completion was asked of. One that has others is not used until a push
    /// succeeds.
    async fn confirm(&self, under: &Under) -> Result<(), RemoteFault> {
        // A push would change what it says.
        let _turn = self.pushing.lock().await;
        let Some(mark) = self.weights.mark() else {
            return Ok(());
        };
        if mark.version != under.version {
            let what = "its weights were replaced after a connection to it had failed".to_owned();
            return Err(RemoteFault::Counts(what));
        }
        let failures = self.failures();
        if !self.is_doubted() {
            return Ok(());
        }
        if self.has(&mark).await? {
            self.believe(failures);
            return Ok(());
        }
        Err(RemoteFault::Counts(self.weights.lose(mark.version)))
    }

    /// The completion as the server reports it.
    async fn sampled(
        &self,
        path: &str,
        request: &GenerateRequest,
        under: &Under,
        granted: usize,
    ) -> Result<Sampled, RemoteFault> {
        let post = |json| self.caller.post(path, json, self.request_timeout);
        match self.kind {
            RemoteKind::Sglang => {
                let answer = post(sglang::body(request, under, granted)).await?;
                sglang::sampled(&answer, request)
            }
            RemoteKind::Vllm => {
                let ask = |names| {
                    let sent = post(vllm::body(request, &self.model, under, granted, names));
                    async move { vllm::sampled(&sent.await?, request) }
                };
                self.with_token_ids(ask).await
            }
        }
    }

    /// Refuses tokens that the policy does not have: nothing can be learned from them, or compared.
    pub(super) fn check_ids(&self, tokens: &[u32]) -> Result<(), RemoteFault> {
        let most = self.vocabulary;
        match tokens.iter().find(|&&id| id as usize >= most) {
            Some(id) => Err(RemoteFault::Counts(format!(
                "token id {id}, and the policy's vocabulary ends at {most}; let the server run the same model"
            ))),
            None => Ok(()),
        }
    }

    /// Asks a vLLM for something with token ids: as numbers, or by their names where it turns out to be too old for that.
    pub(super) async fn with_token_ids<T, F: Future<Output = Result<Option<T>, RemoteFault>>>(
        &self,
        ask: impl Fn(bool) -> F,
    ) -> Result<T, RemoteFault> {
        loop {
            let names = self.names.load(Ordering::Relaxed);
            match ask(names).await? {
                Some(answer) => return Ok(answer),
                None if names => {
                    let what = "no token ids in any form".to_owned();
                    return Err(RemoteFault::Malformed(what));
                }
                None => self.names.store(true, Ordering::Relaxed),
            }
        }
    }
}
