//! A config that can be run.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use forage_contracts::policy::Policy;
use forage_env::chat::ChatTemplate;
use forage_eval::Bootstrap;
use forage_trainer::device::{ComputeType, DeviceSpec};
use forage_trainer::{Checkpoint, Engine, EngineConfig, ModelConfig, Workers};

use super::run::unusable;
use super::{Base, Digests, EngineSection, RunConfig};
use crate::error::{Context, Result, RunError};

/// A config that was checked for its device, with everything that depends on the device filled in. It never changes: [`Resolved::vary`]
/// makes another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved(RunConfig);

impl Deref for Resolved {
    type Target = RunConfig;

    fn deref(&self) -> &RunConfig {
        &self.0
    }
}

impl RunConfig {
    /// Checks everything and fills in what depends on the device: `device`, or by default the config's.
    ///
    /// # Errors
    /// A sentence that names the key at fault and the fix.
    pub fn resolve(mut self, device: Option<DeviceSpec>) -> Result<Resolved> {
        self.check()?;
        self.device = device.unwrap_or(self.device);
        for (key, dtype) in [
            ("engine.dtype", self.engine.dtype),
            ("grpo.update.dtype", self.grpo.update.dtype),
        ] {
            if self.device.is_cpu() && dtype == Some(ComputeType::Bf16) {
                return Err(RunError::config_because(
                    format!("{key} is bf16, and the processor computes in f32"),
                    "remove the key, or name another device",
                ));
            }
        }
        let is_half = !self.device.is_cpu() && self.policy.base != Base::F32;
        if is_half && self.engine.dtype == Some(ComputeType::F32) {
            return Err(RunError::config_because(
                "engine.dtype is f32, and a GPU computes in bf16 with a base that is kept in fewer bits",
                "remove the key, or set policy.base = \"f32\"",
            ));
        }
        self.name_types(self.device.prefers_bf16());
        let exact = self.sampler.is_none() && self.device.is_cpu() && !self.policy.drops();
        self.grpo.update.old_logprobs = Some(self.grpo.update.old_logprobs_where(exact));
        if let Some(fault) = self.grpo.check().into_iter().next() {
            return Err(fault).in_config(format!("on {}", self.device));
        }
        Ok(Resolved(self))
    }

    /// Fills in the types that the engine and updates compute in where the device decides them, so that every rank, and a resumed run on
    /// another device, computes in the same. `prefers_bf16`: of the device.
    pub(super) fn name_types(&mut self, prefers_bf16: bool) {
        if self.generates_in_bf16(prefers_bf16) {
            self.engine.dtype = Some(ComputeType::Bf16);
        }
        if self.device.is_cuda_or_rocm() {
            self.engine.dtype.get_or_insert(ComputeType::F32);
            self.grpo.update.dtype.get_or_insert(if prefers_bf16 {
                ComputeType::Bf16
            } else {
                ComputeType::F32
            });
        }
    }

    /// Tells whether the engine computes in bf16. `prefers_bf16`: of the device.
    fn generates_in_bf16(&self, prefers_bf16: bool) -> bool {
        let default = || self.policy.base != Base::F32 || prefers_bf16;
        !self.device.is_cpu()
            && self
                .engine
                .dtype
                .map_or_else(default, |dtype| dtype == ComputeType::Bf16)
    }
}

impl Resolved {
    /// Reads a config file, applies `--set` overrides and resolves it.
    ///
    /// # Errors
    /// As [`RunConfig::read`] and [`RunConfig::resolve`].
    pub(crate) fn read(
        path: &Path,
        overrides: &[String],
        device: Option<DeviceSpec>,
    ) -> Result<Self> {
        let config = RunConfig::read(path, overrides)?;
        config.resolve(device).in_config(unusable(path))
    }

    /// A changed copy of this config, checked again.
    ///
    /// # Errors
    /// As [`RunConfig::resolve`].
    pub fn vary(&self, change: impl FnOnce(&mut RunConfig)) -> Result<Self> {
        let mut config = self.0.clone();
        change(&mut config);
        config.resolve(None)
    }

    /// The TOML record of a run, with the digests of its questions and the policy's chat template.
    pub(crate) fn record(
        &self,
        digests: Option<&Digests>,
        template: Option<&ChatTemplate>,
    ) -> Result<String> {
        let mut config = self.0.clone();
        config.stamp = self.0.stamped(template);
        config.data.digests = digests.cloned().or(config.data.digests);
        config.to_toml()
    }

    /// The number of processor threads to use.
    pub fn threads(&self) -> usize {
        match self.threads {
            0 => Self::all_threads(),
            count => count,
        }
    }

    /// The bootstrap of the final evaluation.
    pub(crate) fn bootstrap(&self) -> Bootstrap {
        Bootstrap {
            resamples: self.evaluation.resamples,
            ..Bootstrap::new(self.seed)
        }
    }

    /// The number of cores of this machine.
    pub fn all_threads() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Most tokens of an episode that a policy of this shape plays: as its window, its engine's cache or its server has room for.
    pub(crate) fn window(&self, model: &ModelConfig) -> usize {
        let generation = self.generation();
        match &self.sampler {
            Some(sampler) => generation.window(model).min(sampler.context),
            None => generation.engine(model).window(model),
        }
    }

    /// The smallest cache with room for an episode of this length, in steps of 256 MiB; `None` where the engine's context, the model or a
    /// server has none.
    pub(crate) fn cache_with_room(&self, model: &ModelConfig, episode: usize) -> Option<usize> {
        let generation = self.generation();
        if self.sampler.is_some() || generation.window(model) < episode {
            return None;
        }
        let mut caches = (1..=4096).map(|steps| steps * 256);
        caches.find(|&cache_mib| {
            let mut larger = generation;
            larger.sizes.cache_mib = cache_mib;
            larger.engine(model).window(model) >= episode
        })
    }

    /// The settings of generation under this config.
    pub fn generation(&self) -> Generation {
        Generation {
            sizes: self.engine,
            device: self.device,
            bf16: self.generates_in_bf16(self.device.prefers_bf16()),
            threads: self.threads(),
        }
    }
}

/// Settings of generation: sizes, number type and device.
#[derive(Clone, Copy, Debug)]
pub struct Generation {
    /// Sizes of the engine.
    pub sizes: EngineSection,
    /// The device of the weights.
    pub device: DeviceSpec,
    /// Whether the engine computes in bf16.
    pub bf16: bool,
    /// Threads of the engine on the processor.
    pub threads: usize,
}

impl Generation {
    /// Default settings of generation on a device, without a config.
    pub(crate) fn on(device: DeviceSpec) -> Self {
        Self {
            sizes: EngineSection {
                context_tokens: 8192,
                sequences: 16,
                step_tokens: 4096,
                ..EngineSection::default()
            },
            device,
            bf16: device.prefers_bf16() && !device.is_cpu(),
            threads: Resolved::all_threads(),
        }
    }

    /// Most tokens of an episode that fit into both the engine and the model.
    pub fn window(&self, model: &ModelConfig) -> usize {
        self.sizes.context_tokens.min(model.max_position_embeddings)
    }

    /// The engine's sizes for a model.
    pub fn engine(&self, model: &ModelConfig) -> EngineConfig {
        EngineConfig {
            context: self.sizes.context_tokens,
            cache_tokens: EngineConfig::cache_tokens_in(
                self.sizes.cache_mib.saturating_mul(1024 * 1024),
                model,
                self.bf16,
            ),
            step_tokens: self.sizes.step_tokens,
            sequences: self.sizes.sequences,
            bf16: self.bf16,
        }
    }

    /// Starts an engine on a checkpoint's weights.
    pub fn start(&self, checkpoint: &Checkpoint) -> Arc<dyn Policy> {
        let pool = Workers::new(self.threads).kernel_pool();
        Arc::new(Engine::start(
            checkpoint,
            self.engine(&checkpoint.config),
            pool,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_in_f32_is_refused_on_a_gpu_beside_a_base_in_fewer_bits() {
        let text = include_str!("../../../configs/quickstart.toml");
        let resolved = |device: &str, base: &str| {
            let keys = [
                "policy.lora.rank=4".to_owned(),
                "policy.lora.alpha=8".to_owned(),
                "engine.dtype=f32".to_owned(),
                format!("policy.base={base}"),
            ];
            let config = RunConfig::parse(text, &keys).unwrap();
            config.resolve(Some(device.parse().unwrap()))
        };
        for base in ["bf16", "int8"] {
            for device in ["cuda:0", "rocm:0", "wgpu:0"] {
                let error = resolved(device, base).unwrap_err().to_string();
                assert!(error.contains("engine.dtype is f32"), "{device}: {error}");
            }
            resolved("cpu", base).unwrap();
        }
        let config = resolved("cuda:0", "f32").unwrap();
        assert!(!config.generation().bf16);
    }
}
