//! Facts about the policy of a run before its weights are read.

use std::path::{Path, PathBuf};

use forage_trainer::device::DeviceSpec;
use forage_trainer::{LoraConfig, ModelConfig};

use crate::builtin;
use crate::config::Resolved;
use crate::error::{Context, Result};
use crate::hub::hub;
use crate::miniature::family;
use crate::policy::needs_weights;

/// Facts about a policy before its weights are read, and who trains it.
pub(crate) struct Start {
    pub(super) shape: ModelConfig,
    /// The adapter that the folder holds.
    pub(super) adapter: Option<LoraConfig>,
    /// Bytes of its weight files.
    pub(super) file_bytes: u64,
    /// Processes that train it together.
    pub(super) ranks: usize,
}

impl Start {
    /// Sizes of the model.
    pub(crate) fn shape(&self) -> &ModelConfig {
        &self.shape
    }

    /// Tells whether the policy's folder holds an adapter.
    pub(crate) fn is_adapted(&self) -> bool {
        self.adapter.is_some()
    }

    /// Processes or devices that train it together.
    pub(crate) fn ranks(&self) -> usize {
        self.ranks
    }

    #[cfg(test)]
    pub(crate) fn published(name: &str) -> Self {
        Self::of_shape(ModelConfig::published(name).unwrap())
    }

    /// One of which no more is known than its shape.
    fn of_shape(shape: ModelConfig) -> Self {
        Self {
            shape,
            adapter: None,
            file_bytes: 0,
            ranks: 1,
        }
    }

    /// The same, trained by so many processes together.
    #[must_use]
    pub(crate) fn by_ranks(mut self, ranks: usize) -> Self {
        self.ranks = ranks;
        self
    }

    /// Reads the policy that a config names, which one process trains. What is on the hub is fetched where `fetch` says so, else it is
    /// not known.
    pub(crate) fn of(config: &Resolved, fetch: bool) -> Result<Option<Self>> {
        let name = &config.policy.checkpoint;
        needs_weights(name)?;
        if let Some(shape) = builtin_shape(name)? {
            return Ok(Some(Self::of_shape(shape)));
        }
        if fetch {
            // A device that cannot compute is refused first.
            config.device.open()?;
        }
        let cannot = || format!("policy {name} cannot be used");
        let place = |name: &str| -> Result<Option<PathBuf>> {
            let here = Path::new(name).is_dir();
            Ok(if here || fetch {
                Some(hub().fetch(name).with_context(cannot)?)
            } else {
                None
            })
        };
        let Some(mut folder) = place(name)? else {
            // A published shape is known without the files.
            return Ok(published_shape(name, config.engine.context_tokens).map(Self::of_shape));
        };
        let mut adapter = None;
        let settings = folder.join("adapter_config.json");
        if settings.exists() && !folder.join("config.json").exists() {
            let found = LoraConfig::from_file(&settings).with_context(cannot)?;
            if let Some(shape) = builtin_shape(&found.base)? {
                return Ok(Some(Self {
                    adapter: Some(found),
                    ..Self::of_shape(shape)
                }));
            }
            let Some(base) = place(&found.base)? else {
                return Ok(None);
            };
            (folder, adapter) = (base, Some(found));
        }
        let shape = ModelConfig::from_file(&folder.join("config.json")).with_context(cannot)?;
        Ok(Some(Self {
            adapter,
            file_bytes: weight_bytes(&folder),
            ..Self::of_shape(shape)
        }))
    }
}

/// The shape of a policy inside the binary; `None` for other names.
fn builtin_shape(name: &str) -> Result<Option<ModelConfig>> {
    let load =
        |builtin| builtin::load(builtin, &DeviceSpec::Cpu).map(|checkpoint| checkpoint.config);
    name.strip_prefix("builtin:").map(load).transpose()
}

/// The shape of a published model or of a variant of one, by its name. A variant such as `-2507` or `-Math` has sizes of its family and a
/// window of its own, which its files tell: until then it is as long as the engine's.
fn published_shape(name: &str, context: usize) -> Option<ModelConfig> {
    let plain = name.rsplit('/').next().unwrap_or(name);
    let plain = plain.strip_suffix("-Instruct").unwrap_or(plain);
    let variant = || {
        Some(ModelConfig {
            max_position_embeddings: context,
            ..family(name)?
        })
    };
    ModelConfig::published(plain).ok().or_else(variant)
}

/// Bytes of the weight files of a folder.
fn weight_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let weights = entries.filter(|entry| {
        entry
            .path()
            .extension()
            .is_some_and(|kind| kind == "safetensors")
    });
    weights
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .map(|file| file.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_of_published_models_have_their_sizes_and_a_window_of_their_own() {
        let shape = |name: &str| published_shape(name, 40_000);
        for (name, of) in [
            ("Qwen/Qwen3-4B-Instruct-2507", "Qwen3-4B"),
            ("Qwen/Qwen2.5-Math-7B", "Qwen2.5-7B"),
            ("Qwen/Qwen2.5-Math-7B-Instruct", "Qwen2.5-7B"),
        ] {
            let sizes = ModelConfig::published(of).unwrap();
            let found = shape(name).unwrap();
            assert_eq!(found.max_position_embeddings, 40_000, "{name}");
            assert_eq!(found.parameters(), sizes.parameters(), "{name}");
        }
        let found = shape("Qwen/Qwen2.5-3B-Instruct");
        assert_eq!(found, ModelConfig::published("Qwen2.5-3B").ok());
        assert_eq!(shape("org/unheard-of"), None);
    }
}
