//! Query and passage together to a score.

use std::path::Path;

use burn::tensor::Tensor;
use burn::tensor::activation::tanh;
use forage_retriever::{Reranker, RetrieverError};

use super::BertError;
use super::batch::Batch;
use super::config::BertConfig;
use super::encoder::{check_limit, digest, pool};
use super::load::WeightFiles;
use super::model::{Affine, BertModel};
use super::options::{Pooling, RerankerOptions};
use super::runner::{ModelFault, Runner};
use super::tokens::BertTokenizer;
use crate::device::DeviceSpec;
use crate::weights::WeightsError;

/// Longest pair when the caller does not say, as sentence-transformers.
const DEFAULT_MAX_TOKENS: usize = 512;

/// A BERT cross-encoder with one label (`BertForSequenceClassification`, for instance ms-marco-MiniLM).
///
/// The score is the raw logit. Depending on its version and the model's config, the `CrossEncoder` of
/// sentence-transformers returns it as it is or through a sigmoid; both rank alike.
#[derive(Debug)]
pub struct BertReranker {
    runner: Runner,
    tokenizer: BertTokenizer,
    pooler: Affine,
    classifier: Affine,
    identity: String,
}

impl BertReranker {
    /// Reads a Hugging Face folder: `config.json`, `tokenizer.json`, `model.safetensors`.
    ///
    /// # Errors
    /// [`BertError`] that names the file and key or tensor.
    pub fn open(folder: &Path, device: DeviceSpec) -> Result<Self, BertError> {
        let options = RerankerOptions {
            device,
            ..RerankerOptions::default()
        };
        Self::load(folder, &options)
    }

    pub(crate) fn load(folder: &Path, options: &RerankerOptions) -> Result<Self, BertError> {
        let config = BertConfig::from_file(&folder.join("config.json"))?;
        let max_tokens = match options.max_tokens {
            Some(limit) => check_limit(limit, &config)?,
            None => DEFAULT_MAX_TOKENS.min(config.max_position_embeddings),
        };
        let (tokenizer, tokenizer_json) = BertTokenizer::load(folder, &config, max_tokens)?;
        let device = options.device.open()?;
        let files = WeightFiles::read(folder)?;
        let weights = files.open()?;
        let hidden = config.hidden_size;
        if let Some(shape) = weights
            .shape("classifier.weight")
            .filter(|shape| shape.first() != Some(&1))
        {
            let message =
                format!("classifier.weight is {shape:?}; a reranker has one label, [1, {hidden}]");
            return Err(WeightsError::Tensors {
                path: folder.to_owned(),
                message,
            }
            .into());
        }
        let model = BertModel::load(&weights, &config, &device, options.device.is_cpu());
        let pooler = (
            weights.encoder("pooler.dense.weight", &[hidden, hidden]),
            weights.encoder("pooler.dense.bias", &[hidden]),
        );
        let classifier = (
            weights.get("classifier.weight", &[1, hidden]),
            weights.get("classifier.bias", &[1]),
        );
        weights.finish()?;
        let digest = digest(&config, &files, &tokenizer_json);
        Ok(Self {
            runner: Runner::new(model, options.device, options.threads),
            tokenizer,
            pooler: Affine::new(&[pooler], hidden, &device),
            classifier: Affine::new(&[classifier], hidden, &device),
            identity: format!(
                "bert-cross-encoder blake3:{digest} max_tokens={max_tokens} score=logit"
            ),
        })
    }
}

impl Reranker for BertReranker {
    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn score(&self, query: &str, passages: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        let fail = |fault: ModelFault| fault.of("BERT cross-encoder");
        let tokens = self
            .runner
            .install(|| self.tokenizer.pairs(query, passages))
            .map_err(fail)?;
        let head = |hidden: Tensor<2>, batch: &Batch| {
            let pooled = tanh(self.pooler.forward(pool(&hidden, batch, Pooling::Cls)));
            self.classifier.forward(pooled)
        };
        self.runner.run(&tokens, head).map_err(fail)
    }
}
