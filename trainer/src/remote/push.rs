//! New weights for a server, by way of a folder that both sides see.

use std::path::Path;

use forage_net::Fault;
use serde_json::{Value, json};

use super::adapter::{absolute, name};
use super::call::Step;
use super::config::RemoteKind;
use super::error::{RemoteError, RemoteFault};
use super::probe::{Gap, Probe};
use super::server::Server;
use super::weights::{PushKind, Replacing, Under};
use super::{sglang, vllm};

impl Server {
    /// Hands over the weights in `folder` as `version` and asks whether the server has them; afterwards new requests are sampled
    /// under them, also by a server that was given up before.
    ///
    /// The server must see the folder at the same place. Adapters: requests under way go on under the adapter they
    /// began with; its folder must stay until they have ended. Whole weights: vLLM is paused,
    /// lets requests under way end, reloads and forgets what it cached; SGLang does so by itself. Do not drop the
    /// future: the server may stay paused.
    ///
    /// # Errors
    /// [`RemoteError`], of it [`RemoteError::Unverified`] when the server has other weights afterwards. The version stays as it was.
    /// When whole weights may have been replaced in part, every further request fails with [`RemoteError::Weights`] until a push
    /// succeeds.
    pub(crate) async fn push(
        &self,
        folder: &Path,
        version: u64,
        kind: PushKind,
        probe: &Probe<'_>,
    ) -> Result<Gap, RemoteError> {
        let _turn = self.pushing.lock().await;
        let (path, text) = absolute(folder)?;
        let gap = match kind {
            PushKind::Adapter => {
                let name = name(&path, version)?;
                self.push_adapter(&name, &text, version, probe).await?
            }
            PushKind::Full if !path.join("config.json").is_file() => {
                return Err(RemoteError::Folder {
                    path,
                    what: "it has no config.json; save a whole checkpoint".into(),
                });
            }
            PushKind::Full => self.push_full(&text, version, probe).await?,
        };
        self.caller.counters.lock().pushes += 1;
        self.caller.take_back();
        Ok(gap)
    }

    /// Hands over the weights in `folder` for the server to be seen to take them. Nobody samples under them: an adapter is unloaded
    /// again, and after whole weights every request fails with [`RemoteError::Weights`] until a push succeeds.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) async fn prove(
        &self,
        folder: &Path,
        version: u64,
        kind: PushKind,
        probe: &Probe<'_>,
    ) -> Result<Gap, RemoteError> {
        let _turn = self.pushing.lock().await;
        let (path, text) = absolute(folder)?;
        match kind {
            PushKind::Adapter => {
                let name = name(&path, version)?;
                let gap = self.see_adapter(&name, &text, version, probe).await?;
                self.unload(&name).await;
                Ok(gap)
            }
            PushKind::Full => {
                // What is not done leaves the weights unknown.
                let (gap, replacing) = self.see_full(&text, version, probe).await?;
                drop(replacing);
                Ok(gap)
            }
        }
    }

    /// Loads an adapter and asks whether the server has it; one that it has not is unloaded.
    async fn see_adapter(
        &self,
        name: &str,
        folder: &str,
        version: u64,
        probe: &Probe<'_>,
    ) -> Result<Gap, RemoteError> {
        let (path, body) = match self.kind {
            RemoteKind::Vllm => (vllm::LOAD_ADAPTER, vllm::load_adapter(name, folder)),
            RemoteKind::Sglang => (sglang::LOAD_ADAPTER, sglang::load_adapter(name, folder)),
        };
        if let Err(error) = self.step(path, &body).await {
            // The server may have it from an earlier try or run; then it can be unloaded, and comes anew.
            if !matches!(&error, RemoteError::Call { fault, .. } if refused(fault))
                || !self.unload(name).await
            {
                return Err(error);
            }
            self.step(path, &body).await?;
        }
        // Nobody asks for it before it was seen to be right.
        let under = Under {
            version,
            adapter: Some(name.to_owned()),
        };
        let seen = self.verify(probe, &under).await;
        if seen.is_err() {
            self.unload(name).await;
        }
        seen
    }

    async fn push_adapter(
        &self,
        name: &str,
        folder: &str,
        version: u64,
        probe: &Probe<'_>,
    ) -> Result<Gap, RemoteError> {
        let gap = self.see_adapter(name, folder, version, probe).await?;
        // One that was given up may have been started anew since it had those before.
        let mut unused = if self.caller.alive().is_ok() {
            Vec::new()
        } else {
            self.weights.forget(name)
        };
        unused.extend(self.weights.adapted(name, version));
        for unused in unused {
            // It only takes room; a server without room says so at the next load.
            self.unload(&unused).await;
        }
        Ok(gap)
    }

    /// Unloads an adapter; false when the server had none of that name.
    async fn unload(&self, name: &str) -> bool {
        let path = match self.kind {
            RemoteKind::Vllm => vllm::UNLOAD_ADAPTER,
            RemoteKind::Sglang => sglang::UNLOAD_ADAPTER,
        };
        // A server that evicted it answers 500 each time.
        self.send_step(path, &json!({"lora_name": name}), false)
            .await
            .is_ok()
    }

    async fn push_full(
        &self,
        folder: &str,
        version: u64,
        probe: &Probe<'_>,
    ) -> Result<Gap, RemoteError> {
        let failures = self.failures();
        let (gap, replacing) = self.see_full(folder, version, probe).await?;
        let named = self.kind == RemoteKind::Sglang;
        let mark = if named {
            None
        } else {
            self.mark(probe, version).await?
        };
        replacing.done(named, mark);
        self.believe(failures);
        Ok(gap)
    }

    /// Replaces whole weights and asks whether the server has them.
    async fn see_full(
        &self,
        folder: &str,
        version: u64,
        probe: &Probe<'_>,
    ) -> Result<(Gap, Replacing<'_>), RemoteError> {
        let replacing = if self.kind == RemoteKind::Sglang {
            let replacing = self.weights.replace(version);
            let body = sglang::update(folder, version);
            self.step(sglang::UPDATE, &body).await?;
            replacing
        } else {
            self.replace_in_pause(folder, version).await?
        };
        // A server that is paused does not answer this. What is sampled meanwhile carries the version before.
        let under = Under {
            version,
            adapter: None,
        };
        let gap = self.verify(probe, &under).await?;
        Ok((gap, replacing))
    }

    async fn replace_in_pause(
        &self,
        folder: &str,
        version: u64,
    ) -> Result<Replacing<'_>, RemoteError> {
        let paused = self.step(vllm::PAUSE, &json!({})).await;
        let replaced = match paused {
            Ok(()) => self.reload(folder, version).await,
            Err(error) => Err(error),
        };
        // Also where the pause seemed to fail: a server left paused answers nobody.
        let resumed = self.step(vllm::RESUME, &json!({})).await;
        let replacing = replaced?;
        resumed.map(|()| replacing)
    }

    async fn reload(&self, folder: &str, version: u64) -> Result<Replacing<'_>, RemoteError> {
        let replacing = self.weights.replace(version);
        self.step(vllm::RPC, &vllm::reload(folder)).await?;
        self.step(vllm::RESET_CACHE, &json!({})).await?;
        Ok(replacing)
    }

    async fn step(&self, path: &str, body: &Value) -> Result<(), RemoteError> {
        self.send_step(path, body, true).await
    }

    async fn send_step(&self, path: &str, body: &Value, again: bool) -> Result<(), RemoteError> {
        let take = match self.kind {
            RemoteKind::Vllm => vllm::done,
            RemoteKind::Sglang => sglang::done,
        };
        let step = Step {
            path,
            body,
            limit: self.push_timeout,
            again,
            take,
        };
        self.caller
            .step(&step)
            .await
            .map_err(|error| self.advised(error))
    }

    /// The error with what a server lacks that does not know a step.
    fn advised(&self, error: RemoteError) -> RemoteError {
        let RemoteError::Call {
            url,
            tries,
            fault: RemoteFault::Net(mut fault),
        } = error
        else {
            return error;
        };
        if let Fault::Status {
            status: 404 | 405,
            body,
            ..
        } = &mut fault
        {
            body.push_str(match self.kind {
                RemoteKind::Vllm => {
                    "; vLLM takes adapters with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, whole weights \
                     with VLLM_SERVER_DEV_MODE=1"
                }
                RemoteKind::Sglang => "; SGLang takes adapters with --enable-lora",
            });
        }
        let fault = fault.into();
        RemoteError::Call { url, tries, fault }
    }
}

/// Returns true when the server refused a step for its content.
fn refused(fault: &RemoteFault) -> bool {
    fault.is_refusal() || matches!(fault, RemoteFault::Refused(_))
}
