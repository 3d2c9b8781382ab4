//! Text to vectors.

use std::path::Path;

use burn::tensor::{Tensor, TensorData};
use forage_retriever::{Encoder, RetrieverError, TextKind};

use super::BertError;
use super::batch::{Batch, Group};
use super::config::BertConfig;
use super::family::{EncoderFamily, Pooling};
use super::folder::{FolderSettings, folder_name};
use super::load::WeightFiles;
use super::model::BertModel;
use super::runner::{ModelFault, Runner};
use super::tokens::BertTokenizer;
use crate::device::DeviceSpec;
use crate::file_error::FileError;

/// Longest text when the folder does not say, as Search-R1.
const DEFAULT_MAX_TOKENS: usize = 256;

/// A BERT encoder with everything needed to turn texts into vectors.
#[derive(Debug)]
pub struct BertEncoder {
    runner: Runner,
    tokenizer: BertTokenizer,
    settings: Settings,
    dimension: usize,
    identity: String,
}

/// What decides a vector besides weights and tokenizer.
#[derive(Clone, Debug)]
struct Settings {
    family: EncoderFamily,
    pooling: Pooling,
    max_tokens: usize,
    normalise: bool,
    lowercase: bool,
}

impl BertEncoder {
    /// Reads a Hugging Face or sentence-transformers folder: `config.json`, `tokenizer.json`, `model.safetensors`, and what
    /// the table in `bert.rs` names. `threads`: on the processor; `None` for as many as there are cores.
    ///
    /// # Errors
    /// [`BertError`] that names the file and key or tensor.
    pub fn open(
        folder: &Path,
        device: DeviceSpec,
        threads: Option<usize>,
    ) -> Result<Self, BertError> {
        let config = BertConfig::from_file(&folder.join("config.json"))?;
        let settings = Settings::read(folder, &config)?;
        let (tokenizer, tokenizer_json) =
            BertTokenizer::load(folder, &config, settings.max_tokens)?;
        let opened = device.open()?;
        let files = WeightFiles::read(folder)?;
        let weights = files.open()?;
        let model = BertModel::load(&weights, &config, &opened, device.is_cpu());
        weights.finish()?;
        let digest = digest(&config, &files, &tokenizer_json);
        Ok(Self {
            runner: Runner::new(model, device, threads),
            tokenizer,
            dimension: config.hidden_size,
            identity: settings.identity(&digest),
            settings,
        })
    }
}

/// A digest of everything that decides a model's numbers: weights, tokenizer and what the tensors' shapes do not tell.
pub(super) fn digest(config: &BertConfig, files: &WeightFiles, tokenizer_json: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    files.hash(&mut hasher);
    hasher.update(tokenizer_json);
    hasher.update(
        format!(
            "heads {} eps {:e}",
            config.num_attention_heads, config.layer_norm_eps
        )
        .as_bytes(),
    );
    hasher.finalize().to_hex().to_string()
}

impl Settings {
    fn read(folder: &Path, config: &BertConfig) -> Result<Self, FileError> {
        let found = FolderSettings::read(folder)?;
        let name = folder_name(folder);
        let family = EncoderFamily::from_name(&name)
            .or_else(|| EncoderFamily::from_name(&config.name_or_path))
            .unwrap_or(EncoderFamily::Plain);
        let usual = if family == EncoderFamily::Bge {
            Pooling::Cls
        } else {
            Pooling::Mean
        };
        let is_dpr = [&name, &config.name_or_path]
            .iter()
            .any(|name| name.to_lowercase().contains("dpr"));
        let max_tokens = found.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        Ok(Self {
            family,
            pooling: found.pooling.unwrap_or(usual),
            max_tokens: max_tokens.min(config.max_position_embeddings),
            normalise: found.normalise.unwrap_or(!is_dpr),
            lowercase: found.lowercase,
        })
    }

    fn identity(&self, digest: &str) -> String {
        format!(
            "bert blake3:{digest} pooling={} query={:?} passage={:?} max_tokens={} normalise={} lowercase={}",
            match self.pooling {
                Pooling::Mean => "mean",
                Pooling::Cls => "cls",
            },
            self.family.prefix(TextKind::Query),
            self.family.prefix(TextKind::Passage),
            self.max_tokens,
            self.normalise,
            self.lowercase,
        )
    }

    fn prepare(&self, kind: TextKind, text: &str) -> String {
        let text = format!("{}{text}", self.family.prefix(kind));
        if self.lowercase {
            text.to_lowercase()
        } else {
            text
        }
    }
}

impl Encoder for BertEncoder {
    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn encode(&self, kind: TextKind, texts: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        let fail = |fault: ModelFault| fault.of("BERT encoder");
        let texts: Vec<String> = texts
            .iter()
            .map(|text| self.settings.prepare(kind, text))
            .collect();
        let tokens = self
            .runner
            .install(|| self.tokenizer.texts(&texts))
            .map_err(fail)?;
        let head = |hidden: Tensor<2>, batch: &Batch| pool(&hidden, batch, self.settings.pooling);
        let mut vectors = self.runner.run(&tokens, head).map_err(fail)?;
        if self.settings.normalise {
            vectors
                .chunks_exact_mut(self.dimension)
                .for_each(scale_to_one);
        }
        Ok(vectors)
    }
}

/// One vector per text, `[texts, hidden]`, from hidden states `[batch.tokens(), hidden]`.
pub(super) fn pool(hidden: &Tensor<2>, batch: &Batch, pooling: Pooling) -> Tensor<2> {
    let mut start = 0;
    let mut pooled = Vec::with_capacity(batch.groups.len());
    let [_, width] = hidden.dims();
    for group in &batch.groups {
        let rows = hidden.clone().narrow(0, start, group.tokens()).reshape([
            group.rows(),
            group.width,
            width,
        ]);
        let vectors = match pooling {
            Pooling::Cls => rows.narrow(1, 0, 1),
            Pooling::Mean => mean_weights(group, &rows).matmul(rows),
        };
        pooled.push(vectors.reshape([group.rows(), width]));
        start += group.tokens();
    }
    if pooled.len() == 1 {
        pooled.remove(0)
    } else {
        Tensor::cat(pooled, 0)
    }
}

/// `[rows, 1, width]`: one over the length at a row's tokens, zero at its padding.
fn mean_weights(group: &Group, like: &Tensor<3>) -> Tensor<3> {
    let weight = |length: usize, column: usize| {
        if column < length {
            1.0 / length as f32
        } else {
            0.0
        }
    };
    let weights = group
        .lengths
        .iter()
        .flat_map(|&length| (0..group.width).map(move |column| weight(length, column)));
    let weights: Vec<f32> = weights.collect();
    Tensor::from_data(
        TensorData::new(weights, [group.rows(), 1, group.width]),
        &like.device(),
    )
}

/// Euclidean length 1; a vector shorter than 1e-12 is divided by 1e-12, as in `PyTorch`.
fn scale_to_one(vector: &mut [f32]) {
    let square: f64 = vector.iter().map(|&number| f64::from(number).powi(2)).sum();
    let length = square.sqrt().max(1e-12) as f32;
    for number in vector {
        *number /= length;
    }
}
