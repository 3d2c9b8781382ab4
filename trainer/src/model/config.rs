//! `config.json` of Hugging Face checkpoints.

use std::path::Path;

use forage_contracts::SettingError;
use forage_net::FileBounds;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::families::{Architecture, QkNorm};

use crate::file_error::FileError;

/// Rotary frequencies of Llama 3.1, made for longer sequences than the model was first trained on: low ones divided by
/// `factor`, high ones kept, and a blend in between.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RopeScaling {
    /// Divisor of low frequencies.
    pub factor: f64,
    /// Frequencies that turn less often than this within the original length are low.
    pub low_freq_factor: f64,
    /// Frequencies that turn more often than this are high.
    pub high_freq_factor: f64,
    /// The original length, in tokens.
    pub original_max_position_embeddings: usize,
}

/// Shape of a dense decoder.
#[derive(Clone, Debug, PartialEq)]
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
    /// Scaling of the rotary frequencies, if there is any.
    pub rope_scaling: Option<RopeScaling>,
    /// Epsilon of every RMS normalisation.
    pub rms_norm_eps: f64,
    /// True where the output head is the transposed embedding.
    pub tie_word_embeddings: bool,
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
    sliding_window: Option<u64>,
    layer_types: Option<Vec<String>>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    quantization_config: Option<Value>,
}

impl ModelConfig {
    /// Reads `config.json`. Transformers 5 keeps `rope_theta` in `rope_parameters`, hub files have it at top level.
    ///
    /// # Errors
    /// When the file is missing or malformed, or asks for what is not implemented (another family, another scaling of
    /// the rotary frequencies, sliding windows): never silently ignored.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        let fail = |message: String| FileError {
            path: path.to_owned(),
            message,
        };
        let text = FileBounds::JSON
            .read_text(path)
            .map_err(|error| fail(format!("cannot be read: {error}")))?;
        Self::from_json(&text).map_err(|fault| fail(fault.to_string()))
    }

    /// Reads the content of a `config.json`.
    ///
    /// # Errors
    /// When a key is missing or its value cannot be used; the error names the key.
    pub(crate) fn from_json(text: &str) -> Result<Self, SettingError> {
        let hf: HfConfig = serde_json::from_str(text)
            .map_err(|error| SettingError::new("it", format!("is not a model config: {error}")))?;
        let architecture = Architecture::named(&hf.model_type)?;
        refuse_unsupported(&hf, architecture)?;
        let rope_scaling = scaling("rope_parameters", hf.rope_parameters.as_ref())?
            .or(scaling("rope_scaling", hf.rope_scaling.as_ref())?);
        let nested_theta = hf
            .rope_parameters
            .as_ref()
            .and_then(|rope| rope.get("rope_theta"))
            .and_then(Value::as_f64);
        let config = Self {
            architecture,
            vocab_size: hf.vocab_size,
            hidden_size: hf.hidden_size,
            intermediate_size: hf.intermediate_size,
            num_hidden_layers: hf.num_hidden_layers,
            num_attention_heads: hf.num_attention_heads,
            num_key_value_heads: hf.num_key_value_heads.unwrap_or(hf.num_attention_heads),
            head_dim: hf
                .head_dim
                .unwrap_or(hf.hidden_size / hf.num_attention_heads.max(1)),
            max_position_embeddings: hf.max_position_embeddings,
            rope_theta: nested_theta.or(hf.rope_theta).unwrap_or(10_000.0),
            rope_scaling,
            rms_norm_eps: hf.rms_norm_eps,
            tie_word_embeddings: hf.tie_word_embeddings,
        };
        config.validate()?;
        Ok(config)
    }

    /// Checks that the sizes fit together.
    ///
    /// # Errors
    /// When a size does not fit; the error names its key.
    pub fn validate(&self) -> Result<(), SettingError> {
        check_sizes(&[
            ("vocab_size", self.vocab_size, 1 << 22),
            ("hidden_size", self.hidden_size, 1 << 17),
            ("intermediate_size", self.intermediate_size, 1 << 20),
            ("num_hidden_layers", self.num_hidden_layers, 1024),
            ("num_attention_heads", self.num_attention_heads, 1024),
            ("num_key_value_heads", self.num_key_value_heads, 1024),
            ("head_dim", self.head_dim, 512),
            (
                "max_position_embeddings",
                self.max_position_embeddings,
                1 << 21,
            ),
        ])?;
        if !self
            .num_attention_heads
            .is_multiple_of(self.num_key_value_heads)
        {
            let fault = "must divide num_attention_heads";
            return Err(SettingError::new("num_key_value_heads", fault));
        }
        if !self.head_dim.is_multiple_of(2) {
            let fault = "must be even for rotary embeddings";
            return Err(SettingError::new("head_dim", fault));
        }
        if !(1e-12..1.0).contains(&self.rms_norm_eps) {
            let fault = "must be between 1e-12 and 1";
            return Err(SettingError::new("rms_norm_eps", fault));
        }
        if !(1.0..=1e12).contains(&self.rope_theta) {
            let fault = "must be between 1 and 1e12";
            return Err(SettingError::new("rope_theta", fault));
        }
        match self.rope_scaling {
            Some(RopeScaling {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            }) if !((1.0..=1e6).contains(&factor)
                && low > 0.0
                && high > low
                && high <= 1e6
                && original > 0) =>
            {
                Err(SettingError::new(
                    "rope_scaling",
                    "needs a factor between 1 and 1e6, 0 < low_freq_factor < high_freq_factor <= 1e6 and \
                 original_max_position_embeddings above 0",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The key of a size, or of the family, that another model has otherwise, if there is one.
    pub(crate) fn differing_size(&self, other: &Self) -> Option<&'static str> {
        let sizes = |config: &Self| {
            [
                ("vocab_size", config.vocab_size),
                ("hidden_size", config.hidden_size),
                ("intermediate_size", config.intermediate_size),
                ("num_hidden_layers", config.num_hidden_layers),
                ("num_attention_heads", config.num_attention_heads),
                ("num_key_value_heads", config.num_key_value_heads),
                ("head_dim", config.head_dim),
                (
                    "tie_word_embeddings",
                    usize::from(config.tie_word_embeddings),
                ),
            ]
        };
        if self.architecture != other.architecture {
            return Some("model_type");
        }
        let mut both = sizes(self).into_iter().zip(sizes(other));
        let found = both.find(|((_, own), (_, other))| own != other);
        found.map(|((key, _), _)| key)
    }

    /// The content of a `config.json` that transformers and vLLM read. `eos` is the end-of-sequence token.
    pub fn to_json(&self, eos: u32) -> Value {
        let family = self.architecture.family();
        let mut config = serde_json::json!({
            "architectures": [family.class],
            "model_type": family.model_type,
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
            "sliding_window": null,
            "initializer_range": 0.02,
            "bos_token_id": null,
            "eos_token_id": eos,
            "torch_dtype": "float32",
        });
        if let Some(scaling) = self.rope_scaling {
            config["rope_scaling"] = serde_json::json!(scaling);
            config["rope_scaling"]["rope_type"] = "llama3".into();
        }
        config
    }
}

/// Checks sizes of a `config.json` against the most of each, which is far above every published model: sizes beyond are a damaged
/// file, and memory would be asked for by them.
pub(crate) fn check_sizes(sizes: &[(&str, usize, usize)]) -> Result<(), SettingError> {
    match sizes
        .iter()
        .find(|(_, size, most)| !(1..=*most).contains(size))
    {
        Some((key, _, most)) => {
            let fault = format!("must be between 1 and {most}");
            Err(SettingError::new(*key, fault))
        }
        None => Ok(()),
    }
}

/// The scaling of rotary frequencies that the value of `key` asks for.
fn scaling(key: &str, rope: Option<&Value>) -> Result<Option<RopeScaling>, SettingError> {
    let Some(rope) = rope.filter(|rope| !rope.is_null()) else {
        return Ok(None);
    };
    let kind = rope.get("rope_type").or_else(|| rope.get("type"));
    let unnamed = if rope.get("factor").is_some() {
        "unnamed"
    } else {
        "default"
    };
    match kind.map_or(Some(unnamed), Value::as_str) {
        Some("default") => Ok(None),
        Some("llama3") => RopeScaling::deserialize(rope)
            .map(Some)
            .map_err(|error| SettingError::new(key, format!("cannot be read: {error}"))),
        other => Err(SettingError::new(
            format!("{key}.rope_type"),
            format!(
                "`{}` is not supported, only `llama3` is; remove it to use the checkpoint's native context",
                other.unwrap_or("not a text")
            ),
        )),
    }
}

fn refuse_unsupported(hf: &HfConfig, architecture: Architecture) -> Result<(), SettingError> {
    if let Some(quantised) = hf
        .quantization_config
        .as_ref()
        .filter(|value| !value.is_null())
    {
        let method = quantised
            .get("quant_method")
            .and_then(Value::as_str)
            .unwrap_or("unnamed method");
        let fix = "use the model's f32, f16 or bf16 release";
        let fault = format!("({method}) is not supported; {fix}");
        return Err(SettingError::new("quantization_config", fault));
    }
    // `sliding_window` and `max_window_layers` mean nothing while this is off.
    if hf.use_sliding_window == Some(true) {
        let fault = "= true is not supported; use a full-attention checkpoint";
        return Err(SettingError::new("use_sliding_window", fault));
    }
    // A family that has no such switch attends to a window wherever its width is given.
    if hf.use_sliding_window.is_none() && hf.sliding_window.is_some_and(|width| width > 0) {
        let fault = "is not supported; use a full-attention checkpoint, or set use_sliding_window to false where the model \
                     attends to everything before";
        return Err(SettingError::new("sliding_window", fault));
    }
    if let Some(other) = hf
        .layer_types
        .iter()
        .flatten()
        .find(|kind| *kind != "full_attention")
    {
        let fault = format!("has `{other}`; only `full_attention` is supported");
        return Err(SettingError::new("layer_types", fault));
    }
    if let Some(other) = hf.hidden_act.as_deref().filter(|act| *act != "silu") {
        let fault = format!("`{other}` is not supported; only `silu` is");
        return Err(SettingError::new("hidden_act", fault));
    }
    let biases = [
        (
            "attention_bias",
            hf.attention_bias
                .filter(|_| !architecture.family().qkv_bias),
        ),
        ("mlp_bias", hf.mlp_bias),
    ];
    if let Some((key, _)) = biases.iter().find(|(_, bias)| *bias == Some(true)) {
        let fault = format!("= true is not supported for {}", architecture.name());
        return Err(SettingError::new(*key, fault));
    }
    Ok(())
}

impl ModelConfig {
    /// The shape of a published model, by its name without the publisher's, `Qwen2.5-0.5B` for instance. `Qwen2.5-7B:4` is the
    /// same with four layers: enough to measure what a layer takes.
    ///
    /// # Errors
    /// When there is none; the error lists the names.
    pub fn published(name: &str) -> Result<Self, SettingError> {
        let (name, depth) = match name.split_once(':') {
            Some((name, depth)) => {
                let count = depth.parse().ok().filter(|&count: &usize| count > 0);
                let unreadable =
                    || SettingError::new(format!("`{depth}`"), "is not a number of layers");
                (name, Some(count.ok_or_else(unreadable)?))
            }
            None => (name, None),
        };
        let all = || {
            Architecture::all().flat_map(|each| {
                let published = each.family().published.iter();
                published.map(move |shape| (each, shape))
            })
        };
        let Some((architecture, shape)) = all().find(|(_, shape)| shape.name == name) else {
            let known = all().map(|(_, shape)| shape.name);
            return Err(SettingError::unknown("shape", name, known));
        };
        let [
            layers,
            hidden,
            heads,
            kv_heads,
            head_dim,
            feed_forward,
            vocabulary,
        ] = shape.sizes;
        Ok(Self {
            architecture,
            vocab_size: vocabulary,
            hidden_size: hidden,
            intermediate_size: feed_forward,
            num_hidden_layers: depth.unwrap_or(layers),
            num_attention_heads: heads,
            num_key_value_heads: kv_heads,
            head_dim,
            max_position_embeddings: shape.context,
            rope_theta: shape.rope_theta,
            rope_scaling: shape.rope_scaling,
            rms_norm_eps: shape.rms_norm_eps,
            tie_word_embeddings: shape.tied,
        })
    }

    /// Number of weights; a tied head counts once.
    pub fn parameters(&self) -> usize {
        let (hidden, dim) = (self.hidden_size, self.head_dim);
        let (queries, keys) = (
            self.num_attention_heads * dim,
            self.num_key_value_heads * dim,
        );
        let family = self.architecture.family();
        let biases = if family.qkv_bias {
            queries + 2 * keys
        } else {
            0
        };
        let norms = match family.qk_norm {
            QkNorm::None => 0,
            QkNorm::Head => 2 * dim,
            QkNorm::Width => queries + keys,
        };
        let attention = 2 * hidden * queries + 2 * hidden * keys + biases + norms;
        let layer = attention + 3 * hidden * self.intermediate_size + 2 * hidden;
        let embeddings = self.vocab_size * hidden * if self.tie_word_embeddings { 1 } else { 2 };
        embeddings + self.num_hidden_layers * layer + hidden
    }
}

#[cfg(test)]
mod tests;
