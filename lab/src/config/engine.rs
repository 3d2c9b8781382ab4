//! `[engine]`: how text is generated.

use forage_trainer::device::ComputeType;
use serde::{Deserialize, Serialize};

/// Sizes of the generation engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSection {
    /// Episodes in one pass of the model; others wait.
    pub sequences: usize,
    /// Tokens per episode; 0, the default, is the environment's `max_episode_tokens`.
    pub context_tokens: usize,
    /// Memory of the key-value cache, MiB, at least the longest episode's: what does not fit waits, or is run again later.
    pub cache_mib: usize,
    /// Tokens in one pass: longer prompts go through the model in chunks, beside episodes that decode.
    pub step_tokens: usize,
    /// The numbers that generation computes in: bf16 by default on `ROCm` and on CUDA from `sm_80` on, f32 elsewhere. Weights that learn are
    /// f32 whatever this says: with bf16 the engine has a copy, cast after each update. On a GPU a `policy.base` in fewer bits is computed
    /// with in bf16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ComputeType>,
}

impl Default for EngineSection {
    fn default() -> Self {
        Self {
            sequences: 128,
            context_tokens: 0,
            cache_mib: 1024,
            step_tokens: 2048,
            dtype: None,
        }
    }
}
