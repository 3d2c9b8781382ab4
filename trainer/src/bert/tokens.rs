//! Texts and pairs to token ids.

use std::path::Path;

use rayon::prelude::*;
use tokenizers::{Tokenizer, TruncationParams, TruncationStrategy};

use super::runner::ModelFault;
use crate::file_error::FileError;
use crate::weights::{WeightsError, read};

/// One text or pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) ids: Vec<u32>,
    /// 0 for the first text, 1 for the second.
    pub(super) types: Vec<u32>,
}

/// The tokenizer of a folder with its own truncation and no padding.
#[derive(Debug)]
pub(super) struct BertTokenizer {
    inner: Tokenizer,
}

impl BertTokenizer {
    /// Reads `tokenizer.json`; also returns its bytes. `max_tokens` counts special tokens.
    pub(super) fn load(
        folder: &Path,
        vocab_size: usize,
        max_tokens: usize,
    ) -> Result<(Self, Vec<u8>), WeightsError> {
        let path = folder.join("tokenizer.json");
        let fail = |message: String| FileError {
            path: path.clone(),
            message,
        };
        let bytes = read(&path)?;
        let mut inner = Tokenizer::from_bytes(&bytes)
            .map_err(|error| fail(format!("is not a tokenizer: {error}; download it again")))?;
        if inner.get_vocab_size(true) > vocab_size {
            let found = inner.get_vocab_size(true);
            let message = format!(
                "has {found} tokens but config.json says vocab_size {vocab_size}; the files belong to different models"
            );
            return Err(fail(message).into());
        }
        // Files come with both baked in (MiniLM: 128 tokens, padded to 128), which would cut texts and waste work.
        inner.with_padding(None);
        let truncation = TruncationParams {
            max_length: max_tokens,
            strategy: TruncationStrategy::LongestFirst,
            ..Default::default()
        };
        inner
            .with_truncation(Some(truncation))
            .map_err(|error| fail(format!("cannot truncate: {error}")))?;
        let empty = inner
            .encode_fast("", true)
            .map_err(|error| fail(format!("cannot encode: {error}")))?;
        if empty.get_ids().len() < 2 {
            let message =
                "adds no [CLS] and [SEP]; use the model's own file with its post_processor"
                    .to_owned();
            return Err(fail(message).into());
        }
        Ok((Self { inner }, bytes))
    }

    /// Token ids of each text, special tokens included.
    pub(super) fn texts(&self, texts: &[String]) -> Result<Vec<Tokens>, ModelFault> {
        texts
            .par_iter()
            .map(|text| self.encode(text.as_str()))
            .collect()
    }

    /// Token ids of the pairs of `first` with each of `seconds`.
    pub(super) fn pairs(&self, first: &str, seconds: &[&str]) -> Result<Vec<Tokens>, ModelFault> {
        seconds
            .par_iter()
            .map(|second| self.encode((first, *second)))
            .collect()
    }

    fn encode<'a>(
        &self,
        input: impl Into<tokenizers::EncodeInput<'a>> + Send,
    ) -> Result<Tokens, ModelFault> {
        let encoding = self
            .inner
            .encode_fast(input, true)
            .map_err(ModelFault::Tokenizer)?;
        Ok(Tokens {
            ids: encoding.get_ids().to_vec(),
            types: encoding.get_type_ids().to_vec(),
        })
    }
}
