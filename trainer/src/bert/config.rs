//! `config.json` of Hugging Face BERT checkpoints.

use std::path::Path;

use forage_contracts::SettingError;
use forage_net::FileBounds;
use serde::Deserialize;
use serde_json::Value;

use crate::file_error::FileError;
use crate::model::check_sizes;

/// Shape of a BERT encoder: post-norm layers, learned absolute positions, exact GELU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BertConfig {
    /// Rows of the word embedding.
    pub(super) vocab_size: usize,
    /// Width of the residual stream; the dimension of a vector.
    pub(super) hidden_size: usize,
    /// Number of layers.
    pub(super) num_hidden_layers: usize,
    /// Attention heads; divides `hidden_size`.
    pub(super) num_attention_heads: usize,
    /// Width of the feed-forward layer.
    pub(super) intermediate_size: usize,
    /// Longest sequence, in tokens.
    pub(super) max_position_embeddings: usize,
    /// Rows of the token type embedding.
    pub(super) type_vocab_size: usize,
    /// Epsilon of every layer normalisation.
    pub(super) layer_norm_eps: f64,
    /// Where the model was made from, as its makers wrote it; empty when absent.
    pub(super) name_or_path: String,
}

#[derive(Deserialize)]
struct HfConfig {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "bert_epsilon")]
    layer_norm_eps: f64,
    hidden_act: Option<Value>,
    position_embedding_type: Option<String>,
    #[serde(default)]
    is_decoder: bool,
    #[serde(default)]
    add_cross_attention: bool,
    #[serde(rename = "_name_or_path")]
    name_or_path: Option<String>,
}

fn two() -> usize {
    2
}

/// The default of transformers' `BertConfig`.
fn bert_epsilon() -> f64 {
    1e-12
}

impl BertConfig {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// When the file is missing or malformed, or asks for what is not implemented (another model type, relative positions,
    /// another activation, a decoder): never silently ignored.
    pub(super) fn from_file(path: &Path) -> Result<Self, FileError> {
        let fail = |message: String| FileError {
            path: path.to_owned(),
            message,
        };
        let text = FileBounds::JSON
            .read_text(path)
            .map_err(|error| fail(format!("cannot be read: {error}")))?;
        let value: Value =
            serde_json::from_str(&text).map_err(|error| fail(format!("is not JSON: {error}")))?;
        // Looked at first: another architecture has other keys, and a complaint about those would mislead.
        check_type(&value).map_err(|error| fail(error.to_string()))?;
        let hf: HfConfig = serde_json::from_value(value)
            .map_err(|error| fail(format!("is not a BERT config: {error}")))?;
        Self::of(hf).map_err(|error| fail(error.to_string()))
    }

    fn of(hf: HfConfig) -> Result<Self, SettingError> {
        hf.refuse_unsupported()?;
        let config = Self {
            vocab_size: hf.vocab_size,
            hidden_size: hf.hidden_size,
            num_hidden_layers: hf.num_hidden_layers,
            num_attention_heads: hf.num_attention_heads,
            intermediate_size: hf.intermediate_size,
            max_position_embeddings: hf.max_position_embeddings,
            type_vocab_size: hf.type_vocab_size,
            layer_norm_eps: hf.layer_norm_eps,
            name_or_path: hf.name_or_path.unwrap_or_default(),
        };
        config.validate()?;
        Ok(config)
    }

    fn validate(&self) -> Result<(), SettingError> {
        check_sizes(&[
            ("vocab_size", self.vocab_size, 1 << 22),
            ("hidden_size", self.hidden_size, 1 << 17),
            ("num_hidden_layers", self.num_hidden_layers, 1024),
            ("num_attention_heads", self.num_attention_heads, 1024),
            ("intermediate_size", self.intermediate_size, 1 << 20),
            (
                "max_position_embeddings",
                self.max_position_embeddings,
                1 << 21,
            ),
            ("type_vocab_size", self.type_vocab_size, 1024),
        ])?;
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let fault = "must divide hidden_size; download the file again";
            return Err(SettingError::new("num_attention_heads", fault));
        }
        if !(1e-12..1.0).contains(&self.layer_norm_eps) {
            let fault = "must be between 1e-12 and 1";
            return Err(SettingError::new("layer_norm_eps", fault));
        }
        Ok(())
    }

    /// Width of one attention head.
    pub(super) fn head_dim(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }
}

fn check_type(config: &Value) -> Result<(), SettingError> {
    let fault = match config.get("model_type").and_then(Value::as_str) {
        Some("bert") => return Ok(()),
        Some(other) => format!("`{other}` is not supported; use a BERT model (E5, BGE, MiniLM)"),
        None => "is not there; use a BERT model (E5, BGE, MiniLM)".to_owned(),
    };
    Err(SettingError::new("model_type", fault))
}

impl HfConfig {
    fn refuse_unsupported(&self) -> Result<(), SettingError> {
        let refused = |key: &str, fault: String| Err(SettingError::new(key, fault));
        if let Some(other) = self
            .position_embedding_type
            .as_deref()
            .filter(|kind| *kind != "absolute")
        {
            let fault = format!("`{other}` is not supported; use a model with `absolute`");
            return refused("position_embedding_type", fault);
        }
        // An absent key means GELU in transformers.
        if let Some(other) = self
            .hidden_act
            .as_ref()
            .filter(|act| act.as_str() != Some("gelu"))
        {
            let fault = format!("{other} is not supported; use a model with \"gelu\"");
            return refused("hidden_act", fault);
        }
        for (key, set) in [
            ("is_decoder", self.is_decoder),
            ("add_cross_attention", self.add_cross_attention),
        ] {
            if set {
                return refused(key, "= true is not supported; use an encoder".to_owned());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Value {
        serde_json::json!({
            "model_type": "bert", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 16, "max_position_embeddings": 32, "hidden_act": "gelu",
        })
    }

    fn read(config: &Value) -> Result<BertConfig, FileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, config.to_string()).unwrap();
        BertConfig::from_file(&path)
    }

    #[test]
    fn absent_keys_take_the_defaults_of_transformers() {
        let config = read(&tiny()).unwrap();
        assert_eq!((config.type_vocab_size, config.layer_norm_eps), (2, 1e-12));
        assert_eq!(config.head_dim(), 4);
    }

    #[test]
    fn what_is_not_implemented_is_refused_by_name() {
        for (key, value) in [
            ("model_type", serde_json::json!("xlm-roberta")),
            ("position_embedding_type", serde_json::json!("relative_key")),
            ("hidden_act", serde_json::json!("gelu_new")),
            ("is_decoder", serde_json::json!(true)),
            ("num_attention_heads", serde_json::json!(3)),
            ("num_hidden_layers", serde_json::json!(0)),
            ("num_hidden_layers", serde_json::json!(4_000_000_000_u64)),
            ("vocab_size", serde_json::json!(1_u64 << 60)),
            ("hidden_size", serde_json::json!(1_u64 << 40)),
            ("intermediate_size", serde_json::json!(u64::MAX)),
            ("max_position_embeddings", serde_json::json!(1_u64 << 40)),
            ("type_vocab_size", serde_json::json!(1_u64 << 40)),
            ("layer_norm_eps", serde_json::json!(-1.0)),
        ] {
            let mut json = tiny();
            json[key] = value;
            let error = read(&json).unwrap_err().to_string();
            assert!(error.contains(key), "{key}: {error}");
        }
    }
}
