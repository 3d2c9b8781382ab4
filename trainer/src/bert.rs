//! BERT encoders (E5, BGE, `MiniLM`) and BERT cross-encoders, from Hugging Face and sentence-transformers folders.
//!
//! [`BertEncoder`] implements `forage_retriever::Encoder`, [`BertReranker`] implements `forage_retriever::Reranker`. Both
//! run on any compiled-in device; weights stored in f16 or bf16 become f32.
//!
//! What decides a vector besides the weights is read from the folder:
//!
//! | what | where | else |
//! |---|---|---|
//! | prefixes | folder name (in the hub's cache the repository's) or `_name_or_path` with `e5` or `bge` | none |
//! | pooling | `1_Pooling/config.json` | CLS for BGE, mean for the others |
//! | normalisation | `modules.json` | on, except for names with `dpr` |
//! | longest text | `sentence_bert_config.json`, at most the model's positions | 256 |
//!
//! Truncation and padding written into `tokenizer.json` are ignored. The retrieval server of Search-R1 uses mean pooling
//! for every model, BGE too, and 256 tokens: to search vectors made with it, write both into these files.

mod batch;
mod config;
mod encoder;
mod family;
mod folder;
mod kernels;
mod load;
mod model;
mod reranker;
mod runner;
mod tokens;

pub use encoder::BertEncoder;
pub use reranker::BertReranker;

use crate::device::DeviceError;
use crate::file_error::FileError;
use crate::weights::WeightsError;

/// A BERT folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BertError {
    /// A file is missing, damaged or does not fit the others.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The device is unknown or not compiled in.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The folder asks for what is not implemented.
    #[error(transparent)]
    File(#[from] FileError),
}
