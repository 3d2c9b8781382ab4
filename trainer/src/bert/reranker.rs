//! Query and passage together to a score.

use std::path::Path;

use burn::tensor::Tensor;
use burn::tensor::activation::tanh;
use forage_retriever::{Reranker, RetrieverError};

use super::BertError;
use super::batch::Batch;
use super::config::BertConfig;
use super::encoder::{digest, pool};
use super::family::Pooling;
use super::load::WeightFiles;
use super::model::{Affine, BertModel};
use super::runner::{ModelFault, Runner};
use super::tokens::BertTokenizer;
use crate::device::DeviceSpec;
use crate::weights::WeightsError;

/// Longest pair, as sentence-transformers.
const MAX_TOKENS: usize = 512;

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
    /// Reads a Hugging Face folder: `config.json`, `tokenizer.json`, `model.safetensors`. Of a longer pair than the model has positions, or
    /// than 512 tokens, the longer text loses its end first.
    ///
    /// # Errors
    /// [`BertError`] that names the file and key or tensor.
    pub fn open(folder: &Path, device: DeviceSpec) -> Result<Self, BertError> {
        let config = BertConfig::from_file(&folder.join("config.json"))?;
        let max_tokens = MAX_TOKENS.min(config.max_position_embeddings);
        let (tokenizer, tokenizer_json) = BertTokenizer::load(folder, &config, max_tokens)?;
        let opened = device.open()?;
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
        let model = BertModel::load(&weights, &config, &opened, device.is_cpu());
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
            runner: Runner::new(model, device, None),
            tokenizer,
            pooler: Affine::new(&[pooler], hidden, &opened),
            classifier: Affine::new(&[classifier], hidden, &opened),
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
