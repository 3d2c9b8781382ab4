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
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    quantization_config: Option<Value>,
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

    /// Reads the content of a `config.json`.
    ///
    /// # Errors
    /// A sentence that names the key at fault.
    pub(crate) fn from_json(text: &str) -> Result<Self, String> {
        let hf: HfConfig = serde_json::from_str(text).map_err(|error| format!("is not a model config: {error}"))?;
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
    if let Some(quantised) = hf.quantization_config.as_ref().filter(|value| !value.is_null()) {
        let method = quantised.get("quant_method").and_then(Value::as_str).unwrap_or("unnamed method");
        let fix = "use the model's f32, f16 or bf16 release";
        return Err(format!("quantization_config ({method}) is not supported; {fix}"));
    }
    // `sliding_window` and `max_window_layers` mean nothing while this is off.
    if hf.use_sliding_window == Some(true) {
        return Err("use_sliding_window = true is not supported; use a full-attention checkpoint".to_owned());
    }
    if let Some(other) = hf.layer_types.iter().flatten().find(|kind| *kind != "full_attention") {
        return Err(format!("layer_types has `{other}`; only `full_attention` is supported"));
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

/// Layers, hidden width, query heads, key-value heads, head width, feed-forward width.
type Shape = [usize; 6];

/// Shapes of the dense models that search agents are trained from.
const PUBLISHED: [(&str, Shape); 7] = [
    ("Qwen2.5-0.5B", [24, 896, 14, 2, 64, 4864]),
    ("Qwen2.5-1.5B", [28, 1536, 12, 2, 128, 8960]),
    ("Qwen2.5-3B", [36, 2048, 16, 2, 128, 11008]),
    ("Qwen2.5-7B", [28, 3584, 28, 4, 128, 18944]),
    ("Qwen3-0.6B", [28, 1024, 16, 8, 128, 3072]),
    ("Qwen3-1.7B", [28, 2048, 16, 8, 128, 6144]),
    ("Qwen3-4B", [36, 2560, 32, 8, 128, 9728]),
];

impl ModelConfig {
    /// The shape of a published model, by its name without the publisher's: `Qwen2.5-0.5B`, `-1.5B`, `-3B`, `-7B`,
    /// `Qwen3-0.6B`, `-1.7B`, `-4B`. The context is the one they were trained with, 32,768 tokens. `Qwen2.5-7B:4` is the same with
    /// four layers: enough to measure what a layer takes.
    ///
    /// # Errors
    /// A sentence that lists the names.
    pub fn published(name: &str) -> Result<Self, String> {
        let (name, depth) = match name.split_once(':') {
            Some((name, depth)) => {
                let count = depth.parse().ok().filter(|&count: &usize| count > 0);
                (name, Some(count.ok_or(format!("`{depth}` is not a number of layers"))?))
            }
            None => (name, None),
        };
        let Some((_, shape)) = PUBLISHED.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = PUBLISHED.iter().map(|(known, _)| *known).collect();
            return Err(format!("there is no shape `{name}`; there are {}", known.join(", ")));
        };
        let [layers, hidden, heads, kv_heads, head_dim, feed_forward] = *shape;
        let untied = name == "Qwen2.5-7B";
        Ok(Self {
            architecture: if name.starts_with("Qwen3") { Architecture::Qwen3 } else { Architecture::Qwen2 },
            vocab_size: if untied { 152_064 } else { 151_936 },
            hidden_size: hidden,
            intermediate_size: feed_forward,
            num_hidden_layers: depth.unwrap_or(layers),
            num_attention_heads: heads,
            num_key_value_heads: kv_heads,
            head_dim,
            max_position_embeddings: 32_768,
            rope_theta: 1e6,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: !untied,
        })
    }

    /// Number of weights; a tied head counts once.
    pub fn parameters(&self) -> usize {
        let (hidden, dim) = (self.hidden_size, self.head_dim);
        let (queries, keys) = (self.num_attention_heads * dim, self.num_key_value_heads * dim);
        let extra = match self.architecture {
            Architecture::Qwen2 => queries + 2 * keys,
            Architecture::Qwen3 => 2 * dim,
        };
        let attention = 2 * hidden * queries + 2 * hidden * keys + extra;
        let layer = attention + 3 * hidden * self.intermediate_size + 2 * hidden;
        let embeddings = self.vocab_size * hidden * if self.tie_word_embeddings { 1 } else { 2 };
        embeddings + self.num_hidden_layers * layer + hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_shapes_have_the_published_sizes() {
        // Parameters in billions as the model cards state them.
        for (name, billions) in [
            ("Qwen2.5-0.5B", 0.49),
            ("Qwen2.5-1.5B", 1.54),
            ("Qwen2.5-3B", 3.09),
            ("Qwen2.5-7B", 7.61),
            ("Qwen3-0.6B", 0.6),
            ("Qwen3-1.7B", 1.7),
            ("Qwen3-4B", 4.0),
        ] {
            let config = ModelConfig::published(name).unwrap();
            config.validate().unwrap();
            let found = config.parameters() as f64 / 1e9;
            assert!((found - billions).abs() < 0.03, "{name}: {found}");
        }
        assert!(ModelConfig::published("Qwen3-5B").unwrap_err().contains("Qwen3-4B"));
        assert_eq!(ModelConfig::published("Qwen2.5-7B:4").unwrap().num_hidden_layers, 4);
        assert!(ModelConfig::published("Qwen2.5-7B:0").unwrap_err().contains("number of layers"));
    }

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
    fn the_keys_of_published_configs_are_understood() {
        let instruct = r#"{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "eos_token_id": [151645, 151643], "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
            "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
            "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
            "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
            "torch_dtype": "bfloat16", "transformers_version": "4.43.1", "use_cache": true,
            "use_sliding_window": false, "vocab_size": 151936}"#;
        assert_eq!(ModelConfig::from_json(instruct).unwrap(), ModelConfig::published("Qwen2.5-0.5B").unwrap());
        let qwen3 = r#"{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
            "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
            "layer_types": ["full_attention"], "max_position_embeddings": 32768, "max_window_layers": 28,
            "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
            "tie_word_embeddings": true, "use_sliding_window": null, "vocab_size": 151936}"#;
        assert_eq!(ModelConfig::from_json(qwen3).unwrap(), ModelConfig::published("Qwen3-0.6B").unwrap());
    }

    #[test]
    fn what_is_not_implemented_is_refused_by_name() {
        for (key, value) in [
            ("model_type", serde_json::json!("llama")),
            ("use_sliding_window", serde_json::json!(true)),
            ("rope_scaling", serde_json::json!({"type": "yarn"})),
            ("layer_types", serde_json::json!(["full_attention", "sliding_attention"])),
            ("quantization_config", serde_json::json!({"quant_method": "fp8"})),
            ("num_key_value_heads", serde_json::json!(3)),
        ] {
            let mut json = tiny().to_json(3);
            json[key] = value;
            let error = ModelConfig::from_json(&json.to_string()).unwrap_err();
            assert!(error.contains(key), "{key}: {error}");
        }
    }
}
