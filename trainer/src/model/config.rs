//! `config.json` of Hugging Face Qwen2 and Qwen3 checkpoints.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The decoder family, which fixes biases and normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Qwen2 and Qwen2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3: RMS normalisation of each query and key head, no biases.
    Qwen3,
}

/// Shape of a dense Qwen decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Family.
    pub architecture: Architecture,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Longest sequence, in tokens.
    pub max_position_embeddings: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Epsilon of every RMS normalisation.
    pub rms_norm_eps: f64,
    /// Whether the output head is the transposed embedding.
    pub tie_word_embeddings: bool,
}

/// A `config.json` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {message}")]
pub struct ConfigError {
    /// File concerned.
    pub file: String,
    /// What is wrong and what to do.
    pub message: String,
}

#[derive(Deserialize)]
struct HfConfig {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: usize,
    rope_theta: Option<f64>,
    rope_parameters: Option<Value>,
    rope_scaling: Option<Value>,
    rms_norm_eps: f64,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default)]
    use_sliding_window: bool,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
}

impl ModelConfig {
    /// Reads `config.json`. Transformers 5 keeps `rope_theta` in `rope_parameters`, hub files have it at top level.
    ///
    /// # Errors
    /// When the file is missing or malformed, or asks for what is not implemented (another architecture, rope scaling,
    /// sliding windows): never silently ignored.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let fail = |message: String| ConfigError { file: path.display().to_string(), message };
        let text = std::fs::read_to_string(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
        Self::from_json(&text).map_err(fail)
    }

    fn from_json(text: &str) -> Result<Self, String> {
        let hf: HfConfig = serde_json::from_str(text).map_err(|error| format!("is no model config: {error}"))?;
        let architecture = match hf.model_type.as_str() {
            "qwen2" => Architecture::Qwen2,
            "qwen3" => Architecture::Qwen3,
            other => return Err(format!("model_type `{other}` is not supported; use a qwen2 or qwen3 checkpoint")),
        };
        refuse_unsupported(&hf, architecture)?;
        let nested_theta = hf.rope_parameters.as_ref().and_then(|rope| rope.get("rope_theta")).and_then(Value::as_f64);
        let config = Self {
            architecture,
            vocab_size: hf.vocab_size,
            hidden_size: hf.hidden_size,
            intermediate_size: hf.intermediate_size,
            num_hidden_layers: hf.num_hidden_layers,
            num_attention_heads: hf.num_attention_heads,
            num_key_value_heads: hf.num_key_value_heads.unwrap_or(hf.num_attention_heads),
            head_dim: hf.head_dim.unwrap_or(hf.hidden_size / hf.num_attention_heads.max(1)),
            max_position_embeddings: hf.max_position_embeddings,
            rope_theta: nested_theta.or(hf.rope_theta).unwrap_or(10_000.0),
            rms_norm_eps: hf.rms_norm_eps,
            tie_word_embeddings: hf.tie_word_embeddings,
        };
        config.validate()?;
        Ok(config)
    }

    /// Checks that the sizes fit together.
    ///
    /// # Errors
    /// A sentence that names the key at fault.
    pub fn validate(&self) -> Result<(), String> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if let Some((key, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(format!("{key} must be at least 1"));
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return Err("num_key_value_heads must divide num_attention_heads".to_owned());
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err("head_dim must be even for rotary embeddings".to_owned());
        }
        Ok(())
    }

    /// The content of a `config.json` that transformers and vLLM read. `eos` is the end-of-sequence token.
    pub fn to_json(&self, eos: u32) -> Value {
        let (model_type, class) = match self.architecture {
            Architecture::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
            Architecture::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
        };
        serde_json::json!({
            "architectures": [class],
            "model_type": model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.max_position_embeddings,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.rms_norm_eps,
            "tie_word_embeddings": self.tie_word_embeddings,
            "hidden_act": "silu",
            "attention_bias": false,
            "attention_dropout": 0.0,
            "use_sliding_window": false,
            "initializer_range": 0.02,
            "bos_token_id": null,
            "eos_token_id": eos,
            "torch_dtype": "float32",
        })
    }
}

fn refuse_unsupported(hf: &HfConfig, architecture: Architecture) -> Result<(), String> {
    if hf.use_sliding_window {
        return Err("use_sliding_window = true is not supported; use a full-attention checkpoint".to_owned());
    }
    if hf.rope_scaling.as_ref().is_some_and(|scaling| !scaling.is_null()) {
        return Err("rope_scaling is not supported; remove it to use the checkpoint's native context".to_owned());
    }
    let rope_type = hf.rope_parameters.as_ref().and_then(|rope| rope.get("rope_type")).and_then(Value::as_str);
    if let Some(other) = rope_type.filter(|kind| *kind != "default") {
        return Err(format!("rope_parameters.rope_type `{other}` is not supported; only `default` is"));
    }
    if let Some(other) = hf.hidden_act.as_deref().filter(|act| *act != "silu") {
        return Err(format!("hidden_act `{other}` is not supported; Qwen uses `silu`"));
    }
    if architecture == Architecture::Qwen3 && hf.attention_bias == Some(true) {
        return Err("attention_bias = true is not supported for qwen3".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> ModelConfig {
        ModelConfig {
            architecture: Architecture::Qwen3,
            vocab_size: 64,
            hidden_size: 32,
            intermediate_size: 64,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 16,
            max_position_embeddings: 128,
            rope_theta: 1e6,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
        }
    }

    #[test]
    fn json_round_trips() {
        let text = tiny().to_json(3).to_string();
        assert_eq!(ModelConfig::from_json(&text).unwrap(), tiny());
    }

    #[test]
    fn rope_theta_is_read_from_either_place() {
        let mut json = tiny().to_json(3);
        let object = json.as_object_mut().unwrap();
        object.remove("rope_theta");
        object.insert("rope_parameters".into(), serde_json::json!({"rope_type": "default", "rope_theta": 5e6}));
        assert_eq!(ModelConfig::from_json(&json.to_string()).unwrap().rope_theta.to_bits(), 5e6_f64.to_bits());
    }

    #[test]
    fn what_is_not_implemented_is_refused_by_name() {
        for (key, value) in [
            ("model_type", serde_json::json!("llama")),
            ("use_sliding_window", serde_json::json!(true)),
            ("rope_scaling", serde_json::json!({"type": "yarn"})),
            ("num_key_value_heads", serde_json::json!(3)),
        ] {
            let mut json = tiny().to_json(3);
            json[key] = value;
            let error = ModelConfig::from_json(&json.to_string()).unwrap_err();
            assert!(error.contains(key), "{key}: {error}");
        }
    }
}
