//! New weights for a server, by way of a folder that both sides see.

use std::path::Path;

use forage_net::Fault;
use serde_json::{Value, json};

use super::adapter::{absolute, name};
use super::call::Step;
use super::config::RemoteKind;
use super::error::{RemoteError, RemoteFault};
use super::policy::RemotePolicy;
use super::weights::PushKind;
use super::{sglang, vllm};

impl RemotePolicy {
    /// Hands over the weights in `folder` as `version`; afterwards new requests are sampled under them.
    ///
    /// The server must see the folder at the same place. Adapters: requests under way go on under the adapter they
    /// began with; the folder of an adapter must stay until two more have been pushed. Whole weights: vLLM is paused,
    /// lets requests under way end, reloads and forgets what it cached; SGLang does so by itself. Do not drop the
    /// future: the server may stay paused.
    ///
    /// # Errors
    /// [`RemoteError`]. The version stays as it was, unless vLLM has the weights and only does not resume. When whole
    /// weights may have been replaced in part, every further request fails with [`RemoteError::Weights`] until a push
    /// succeeds.
    pub(crate) async fn push(
        &self,
        folder: &Path,
        version: u64,
        kind: PushKind,
    ) -> Result<(), RemoteError> {
        let _turn = self.pushing.lock().await;
        let (path, text) = absolute(folder)?;
        match kind {
            PushKind::Adapter => {
                self.push_adapter(&name(&path, version)?, &text, version)
                    .await?;
            }
            PushKind::Full if !path.join("config.json").is_file() => {
                return Err(RemoteError::Folder {
                    path,
                    what: "it has no config.json; save a whole checkpoint".into(),
                });
            }
            PushKind::Full => self.push_full(&text, version).await?,
        }
        self.caller.counters.lock().pushes += 1;
        Ok(())
    }

    async fn push_adapter(
        &self,
        name: &str,
        folder: &str,
        version: u64,
    ) -> Result<(), RemoteError> {
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
        if let Some(unused) = self.weights.adapted(name, version) {
            // It only takes room; a server without room says so at the next load.
            self.unload(&unused).await;
        }
        Ok(())
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

    async fn push_full(&self, folder: &str, version: u64) -> Result<(), RemoteError> {
        if self.kind == RemoteKind::Sglang {
            let replacing = self.weights.replace(version);
            self.step(sglang::UPDATE, &sglang::update(folder, version))
                .await?;
            replacing.done(true);
            return Ok(());
        }
        let paused = self.step(vllm::PAUSE, &json!({})).await;
        let replaced = match paused {
            Ok(()) => self.reload(folder, version).await,
            Err(error) => Err(error),
        };
        // Also where the pause seemed to fail: a server left paused answers nobody.
        let resumed = self.step(vllm::RESUME, &json!({})).await;
        replaced.and(resumed)
    }

    async fn reload(&self, folder: &str, version: u64) -> Result<(), RemoteError> {
        let replacing = self.weights.replace(version);
        self.step(vllm::RPC, &vllm::reload(folder)).await?;
        self.step(vllm::RESET_CACHE, &json!({})).await?;
        replacing.done(false);
        Ok(())
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
