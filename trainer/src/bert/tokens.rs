//! Texts and pairs to token ids.

use std::path::Path;

use forage_net::FileBounds;
use rayon::prelude::*;
use tokenizers::{Tokenizer, TruncationParams, TruncationStrategy};

use super::config::BertConfig;
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
    max_tokens: usize,
    vocab_size: usize,
    type_vocab_size: usize,
}

impl BertTokenizer {
    /// Reads `tokenizer.json`; also returns its bytes. `max_tokens` counts special tokens.
    pub(super) fn load(
        folder: &Path,
        config: &BertConfig,
        max_tokens: usize,
    ) -> Result<(Self, Vec<u8>), WeightsError> {
        let path = folder.join("tokenizer.json");
        let bytes = read(&path, FileBounds::LIST)?;
        // The library panics at some files, and reads others with which it cannot encode.
        let parsed = std::panic::catch_unwind(|| Self::parse(&path, &bytes, config, max_tokens));
        let tokenizer = parsed.unwrap_or_else(|_| {
            let message = "is malformed: reading it panics; download it again".to_owned();
            Err(FileError {
                path: path.clone(),
                message,
            })
        })?;
        Ok((tokenizer, bytes))
    }

    fn parse(
        path: &Path,
        bytes: &[u8],
        config: &BertConfig,
        max_tokens: usize,
    ) -> Result<Self, FileError> {
        let fault = |message: String| FileError {
            path: path.to_owned(),
            message,
        };
        let mut inner = Tokenizer::from_bytes(bytes)
            .map_err(|error| fault(format!("is not a tokenizer: {error}; download it again")))?;
        let (found, vocab_size) = (inner.get_vocab_size(true), config.vocab_size);
        if found > vocab_size {
            return Err(fault(format!(
                "has {found} tokens but config.json says vocab_size {vocab_size}; the files belong to different models"
            )));
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
            .map_err(|error| fault(format!("cannot truncate: {error}")))?;
        let tokenizer = Self {
            inner,
            max_tokens,
            vocab_size,
            type_vocab_size: config.type_vocab_size,
        };
        let trial = |text: &str| {
            let tokens = tokenizer.encode(text);
            tokens.map_err(|cause| fault(format!("cannot encode text: {cause}")))
        };
        if trial("")?.ids.len() < 2 {
            let message =
                "adds no [CLS] and [SEP]; use the model's own file with its post_processor";
            return Err(fault(message.to_owned()));
        }
        trial("The 1st test, it's \u{e9} \u{6771}\u{4eac}")?;
        Ok(tokenizer)
    }

    /// Token ids of each text, special tokens included.
    pub(super) fn texts(&self, texts: &[String]) -> Result<Vec<Tokens>, ModelFault> {
        texts
            .par_iter()
            .map(|text| self.encode(beginning(text, self.max_tokens)))
            .collect()
    }

    /// Token ids of the pairs of `first` with each of `seconds`.
    pub(super) fn pairs(&self, first: &str, seconds: &[&str]) -> Result<Vec<Tokens>, ModelFault> {
        // Where a pair is cut depends on which text is the longer one, so the second has to stay longer than the first.
        let most = self.max_tokens + first.len();
        seconds
            .par_iter()
            .map(|second| self.encode((first, beginning(second, most))))
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
        let (ids, types) = (encoding.get_ids(), encoding.get_type_ids());
        let within = |ids: &[u32], rows: usize| ids.iter().all(|&id| (id as usize) < rows);
        if !within(ids, self.vocab_size) || !within(types, self.type_vocab_size) {
            return Err(ModelFault::Beyond);
        }
        Ok(Tokens {
            ids: ids.to_vec(),
            types: types.to_vec(),
        })
    }
}

/// The part of a text that its first tokens come from: as many words with a letter or a digit, each of which gives at least one. A whole
/// passage of megabytes would take a hundred times its size in memory, only for nearly all of its tokens to be cut off.
fn beginning(text: &str, tokens: usize) -> &str {
    let (mut words, mut is_word) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        is_word |= byte.is_ascii_alphanumeric();
        if is_word && matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            (words, is_word) = (words + 1, false);
            if words == tokens {
                return &text[..at];
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_token_is_kept_of_is_not_read() {
        assert_eq!(beginning("a - b\tc d", 3), "a - b\tc");
        assert_eq!(beginning("a - b", 2), "a - b");
        // What is not white space to a tokenizer parts no words, and an accent alone gives no token.
        let text = "\u{301} one\u{c}two three four";
        assert_eq!(beginning(text, 2), "\u{301} one\u{c}two three");
    }

    #[test]
    fn the_beginning_of_a_text_gives_the_tokens_of_all_of_it() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny_cross_encoder");
        let config = BertConfig::from_file(&folder.join("config.json")).unwrap();
        let (tokenizer, _) = BertTokenizer::load(&folder, &config, 16).unwrap();
        let long = "The 1st test, it's \u{e9} \u{6771}\u{4eac} 'a' -- ".repeat(40);
        let longer = long.repeat(2);
        assert!(beginning(&long, 16).len() < long.len() / 4);
        let texts = tokenizer.texts(std::slice::from_ref(&long)).unwrap();
        assert_eq!(texts[0], tokenizer.encode(long.as_str()).unwrap());
        for query in ["moon", long.as_str(), longer.as_str()] {
            let passages = [longer.as_str(), long.as_str(), "tide"];
            let pairs = tokenizer.pairs(query, &passages).unwrap();
            for (pair, passage) in pairs.iter().zip(passages) {
                assert_eq!(*pair, tokenizer.encode((query, passage)).unwrap());
            }
        }
    }
}
