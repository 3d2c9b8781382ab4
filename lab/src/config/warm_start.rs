//! `[warm_start]`: the way from nothing to a policy that knows the protocol.

use forage_env::WorldSpec;
use forage_trainer::{Architecture, ModelConfig, Stage, WarmStartConfig};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Result, refuse};

/// The way from nothing to a policy that knows the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WarmStartSection {
    /// Seed of weights and demonstrations.
    pub seed: u64,
    /// Checkpoint to begin with in place of random weights: a folder, a name on the hub, or `builtin:quickstart`. Its tokenizer is kept, and
    /// `vocab_size`, `vocab_lines` and `model` are not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// World of the demonstrations; its seed must differ from the world learned in later. Without one they are of questions that the
    /// environment makes itself, from `seed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<WorldSpec>,
    /// Development questions that decide when to stop.
    pub dev_questions: usize,
    /// Tokens of the vocabulary, trained on the world's text, on demonstrations, or on both.
    pub vocab_size: usize,
    /// Lines of text the vocabulary is trained on; where demonstrations are in it, there is one for five lines.
    pub vocab_lines: u64,
    /// Shape of the decoder.
    pub(crate) model: SmallModel,
    /// Stages and optimizer.
    pub learning: WarmStartConfig,
    /// Padded tokens per forward and backward pass.
    pub micro_batch_tokens: usize,
}

/// Shape of a decoder made from scratch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SmallModel {
    /// The family, as `model_type` in a `config.json` names it.
    architecture: Architecture,
    /// The width between layers.
    hidden_size: usize,
    /// The width inside a feed-forward map.
    intermediate_size: usize,
    /// Layers of the decoder.
    layers: usize,
    /// Attention heads.
    heads: usize,
    /// Heads of keys and values, which divide `heads`.
    kv_heads: usize,
    /// The width of a head.
    head_dim: usize,
    /// Tokens of the longest sequence.
    max_tokens: usize,
    /// The base of the rotary frequencies.
    rope_theta: f64,
}

impl WarmStartSection {
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(world) = &self.world {
            world.check()?;
        }
        self.model
            .config(self.vocab_size)
            .validate()
            .in_config("model")?;
        self.learning
            .optimizer
            .check()
            .in_config("learning.optimizer")?;
        let numbers = |stage: &Stage| stage.numbers;
        let mut shares = self.learning.stages.iter().filter_map(numbers);
        if let Some(found) = shares.find(|share| !(0.0..=1.0).contains(share)) {
            refuse!("learning.stages: numbers is {found}; it must be from 0 to 1");
        }
        if self.dev_questions == 0
            || self.learning.demonstrations_per_step == 0
            || self.micro_batch_tokens == 0
        {
            refuse!(
                "dev_questions, learning.demonstrations_per_step and micro_batch_tokens must be at least 1"
            );
        }
        Ok(())
    }
}

impl SmallModel {
    /// The full shape, with tied embeddings.
    pub(crate) fn config(&self, vocab_size: usize) -> ModelConfig {
        ModelConfig {
            architecture: self.architecture,
            vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            num_key_value_heads: self.kv_heads,
            head_dim: self.head_dim,
            max_position_embeddings: self.max_tokens,
            rope_theta: self.rope_theta,
            rope_scaling: None,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
        }
    }
}
