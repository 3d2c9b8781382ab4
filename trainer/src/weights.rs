//! Hugging Face folders in and out: `config.json`, `*.safetensors` (one file or shards), `tokenizer.json`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use burn::store::{
    BurnToPyTorchAdapter, FloatCastAdapter, ModuleAdapter, ModuleSnapshot, PyTorchToBurnAdapter, SafetensorsStore,
};
use burn::tensor::{DType, Device};
use forage_env::tokenizer::{HfTokenizer, Tokenizer, TokenizerError};

use crate::model::{ConfigError, Decoder, ModelConfig};

/// A checkpoint folder cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The configuration is missing or unsupported.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tokenizer is missing or malformed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A file is missing, damaged or does not fit the configuration.
    #[error("{path}: {message}")]
    Tensors {
        /// File or folder concerned.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },
    /// Reading or writing failed.
    #[error("{path}: {source}")]
    Io {
        /// File concerned.
        path: PathBuf,
        /// The operating system's word.
        source: std::io::Error,
    },
}

/// A model with everything needed to run it.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Shape.
    pub config: ModelConfig,
    /// Weights in f32.
    pub decoder: Decoder,
    /// Its tokenizer.
    pub tokenizer: HfTokenizer,
    /// The content of `tokenizer.json`, written back unchanged.
    pub tokenizer_json: Vec<u8>,
    /// Text of the end-of-sequence token.
    pub eos: String,
}

impl Checkpoint {
    /// Reads a Hugging Face folder onto `device`; weights stored in bf16 or f16 become f32.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file, and for tensors the missing, unexpected and misshapen ones.
    pub fn load(folder: &Path, device: &Device) -> Result<Self, WeightsError> {
        let config = ModelConfig::from_file(&folder.join("config.json"))?;
        let tokenizer_path = folder.join("tokenizer.json");
        let tokenizer_json = read(&tokenizer_path)?;
        let eos = eos_token(folder, &tokenizer_json)?;
        let tokenizer = HfTokenizer::from_file(&tokenizer_path, &eos)?;
        if tokenizer.vocab_size() > config.vocab_size {
            let message = format!(
                "has {} tokens but config.json says vocab_size {}; the files belong to different models",
                tokenizer.vocab_size(),
                config.vocab_size
            );
            return Err(WeightsError::Tensors { path: tokenizer_path, message });
        }
        let decoder = load_decoder(folder, &config, device)?;
        Ok(Self { config, decoder, tokenizer, tokenizer_json, eos })
    }

    /// Writes a folder that transformers and vLLM load. It appears when it is complete; one that was there is replaced.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file.
    pub fn save(&self, folder: &Path) -> Result<(), WeightsError> {
        let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let partial = folder.with_file_name(format!(".partial-{name}"));
        let _ = std::fs::remove_dir_all(&partial);
        let written = self.write(&partial).and_then(|()| {
            let _ = std::fs::remove_dir_all(folder);
            std::fs::rename(&partial, folder).map_err(|source| WeightsError::Io { path: folder.to_owned(), source })
        });
        if written.is_err() {
            let _ = std::fs::remove_dir_all(&partial);
        }
        written
    }

    fn write(&self, folder: &Path) -> Result<(), WeightsError> {
        std::fs::create_dir_all(folder).map_err(|source| WeightsError::Io { path: folder.to_owned(), source })?;
        let config = self.config.to_json(self.tokenizer.eos());
        write(&folder.join("config.json"), pretty(&config).as_bytes())?;
        let generation = serde_json::json!({ "eos_token_id": self.tokenizer.eos(), "do_sample": true });
        write(&folder.join("generation_config.json"), pretty(&generation).as_bytes())?;
        write(&folder.join("tokenizer.json"), &self.tokenizer_json)?;
        let tokenizer_config = serde_json::json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": self.eos,
            "pad_token": self.eos,
            "model_max_length": self.config.max_position_embeddings,
            "clean_up_tokenization_spaces": false,
        });
        write(&folder.join("tokenizer_config.json"), pretty(&tokenizer_config).as_bytes())?;
        save_decoder(&folder.join("model.safetensors"), &self.decoder)
    }
}

/// Reads the weights of a folder into a decoder of the given shape.
///
/// # Errors
/// [`WeightsError::Tensors`] that names what is missing, unexpected or misshapen.
pub fn load_decoder(folder: &Path, config: &ModelConfig, device: &Device) -> Result<Decoder, WeightsError> {
    let mut decoder = Decoder::new(config, device);
    let files = safetensors_files(folder)?;
    let mut missing: Option<BTreeSet<String>> = None;
    let mut unexpected = BTreeSet::new();
    for path in &files {
        check_readable(path)?;
        let cast = PyTorchToBurnAdapter.chain(FloatCastAdapter::to(DType::F32));
        let mut store = SafetensorsStore::from_file(path).with_from_adapter(cast).allow_partial(true);
        let fail = |message: String| WeightsError::Tensors { path: path.clone(), message };
        let result = decoder.load_from(&mut store).map_err(|error| fail(format!("cannot be loaded: {error}")))?;
        if let Some(error) = result.errors.first() {
            return Err(fail(format!("does not fit config.json: {error}")));
        }
        unexpected.extend(result.unused);
        let absent: BTreeSet<String> = result.missing.into_iter().map(|(name, _)| hf_name(&name)).collect();
        missing = Some(match missing {
            None => absent,
            Some(before) => before.intersection(&absent).cloned().collect(),
        });
    }
    let missing = missing.unwrap_or_default();
    // A tied checkpoint may carry the head as a copy of the embedding; it is not a second set of weights.
    unexpected.retain(|name| !(config.tie_word_embeddings && name == "lm_head.weight"));
    if missing.is_empty() && unexpected.is_empty() {
        return Ok(decoder);
    }
    let message = format!(
        "does not fit config.json: missing {}; unexpected {}; download the checkpoint again or mend config.json",
        name_list(&missing),
        name_list(&unexpected)
    );
    Err(WeightsError::Tensors { path: folder.to_owned(), message })
}

/// Burn calls the weights of a normalisation gamma.
fn hf_name(name: &str) -> String {
    name.replace(".gamma", ".weight")
}

/// Writes the weights as one f32 safetensors file with Hugging Face names.
///
/// # Errors
/// [`WeightsError::Tensors`] that names the file.
pub fn save_decoder(path: &Path, decoder: &Decoder) -> Result<(), WeightsError> {
    let mut store = SafetensorsStore::from_file(path)
        .with_to_adapter(BurnToPyTorchAdapter)
        .skip_enum_variants(true)
        .overwrite(true)
        .clear_metadata()
        .metadata("format", "pt");
    decoder.save_into(&mut store).map_err(|error| WeightsError::Tensors {
        path: path.to_owned(),
        message: format!("cannot be written: {error}; check the free space of the disk"),
    })
}

/// The weight files of a folder: the shards its index names, else `model.safetensors`.
pub(crate) fn safetensors_files(folder: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let index = folder.join("model.safetensors.index.json");
    if !index.exists() {
        return Ok(vec![folder.join("model.safetensors")]);
    }
    let fail = |message: &str| WeightsError::Tensors { path: index.clone(), message: message.to_owned() };
    let value: serde_json::Value =
        serde_json::from_slice(&read(&index)?).map_err(|_| fail("is no JSON; download it again"))?;
    let map = value.get("weight_map").and_then(|map| map.as_object()).ok_or_else(|| fail("has no weight_map"))?;
    let names: BTreeSet<&str> = map.values().filter_map(|name| name.as_str()).collect();
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Finds truncation before Burn maps the file: the header says how long the file must be.
pub(crate) fn check_readable(path: &Path) -> Result<(), WeightsError> {
    let fail = |message: String| WeightsError::Tensors { path: path.to_owned(), message };
    let file = std::fs::File::open(path).map_err(|source| WeightsError::Io { path: path.to_owned(), source })?;
    let length = file.metadata().map_err(|source| WeightsError::Io { path: path.to_owned(), source })?.len();
    let mut head = [0_u8; 8];
    std::io::Read::read_exact(&mut &file, &mut head).map_err(|_| fail("is truncated; download it again".to_owned()))?;
    let header = u64::from_le_bytes(head);
    if header > length {
        return Err(fail("is truncated or no safetensors file; download it again".to_owned()));
    }
    let mut text = vec![0_u8; header as usize];
    std::io::Read::read_exact(&mut &file, &mut text).map_err(|_| fail("is truncated; download it again".to_owned()))?;
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|_| fail("has a damaged header; download it again".to_owned()))?;
    let end = |tensor: &serde_json::Value| tensor.get("data_offsets").and_then(|ends| ends.get(1)?.as_u64());
    let data = value.as_object().into_iter().flat_map(|map| map.values()).filter_map(end).max().unwrap_or(0);
    if 8 + header + data > length {
        let message = format!("is truncated: {length} bytes of {}; download it again", 8 + header + data);
        return Err(fail(message));
    }
    Ok(())
}

/// The end-of-sequence token's text: `tokenizer_config.json` names it, else the id in `config.json`.
fn eos_token(folder: &Path, tokenizer_json: &[u8]) -> Result<String, WeightsError> {
    let named = std::fs::read(folder.join("tokenizer_config.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
        .and_then(|config| {
            let eos = config.get("eos_token")?;
            eos.as_str().or_else(|| eos.get("content")?.as_str()).map(str::to_owned)
        });
    if let Some(eos) = named {
        return Ok(eos);
    }
    let config: serde_json::Value = serde_json::from_slice(&read(&folder.join("config.json"))?).unwrap_or_default();
    let id = config.get("eos_token_id").and_then(serde_json::Value::as_u64);
    let tokenizer: serde_json::Value = serde_json::from_slice(tokenizer_json).unwrap_or_default();
    let added = tokenizer.get("added_tokens").and_then(|added| added.as_array());
    let found = added.into_iter().flatten().find(|token| token.get("id").and_then(serde_json::Value::as_u64) == id);
    found.and_then(|token| token.get("content")?.as_str()).map(str::to_owned).ok_or_else(|| WeightsError::Tensors {
        path: folder.join("tokenizer_config.json"),
        message: "names no eos_token; add `\"eos_token\": \"<|endoftext|>\"` or the one the model uses".to_owned(),
    })
}

pub(crate) fn name_list(names: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = names.iter().take(5).map(String::as_str).collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > shown.len() => format!("{} and {} more", shown.join(", "), count - shown.len()),
        _ => shown.join(", "),
    }
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, WeightsError> {
    std::fs::read(path).map_err(|source| WeightsError::Io { path: path.to_owned(), source })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), WeightsError> {
    std::fs::write(path, bytes).map_err(|source| WeightsError::Io { path: path.to_owned(), source })
}
