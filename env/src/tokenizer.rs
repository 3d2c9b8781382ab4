//! Text to token ids and back.

use std::path::Path;

/// Encodes and decodes text. Implementations are deterministic and thread-safe.
pub trait Tokenizer: Send + Sync {
    /// Token ids of `text`, without special tokens added around it.
    fn encode(&self, text: &str) -> Vec<u32>;

    /// Text of `ids`, special tokens included.
    fn decode(&self, ids: &[u32]) -> String;

    /// The end-of-sequence token.
    fn eos(&self) -> u32;

    /// Number of token ids, one past the largest.
    fn vocab_size(&self) -> usize;
}

/// One token per byte, plus an end-of-sequence token: exact, fast and without files. Scripted policies use it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteTokenizer;

impl Tokenizer for ByteTokenizer {
    fn encode(&self, text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().filter_map(|&id| u8::try_from(id).ok()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn eos(&self) -> u32 {
        256
    }

    fn vocab_size(&self) -> usize {
        257
    }
}

/// A tokenizer could not be read, trained or written.
#[derive(Debug, thiserror::Error)]
#[error("tokenizer {path}: {message}")]
pub struct TokenizerError {
    /// File concerned.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// A Hugging Face `tokenizer.json`.
#[derive(Clone, Debug)]
pub struct HfTokenizer {
    inner: tokenizers::Tokenizer,
    eos: u32,
}

impl HfTokenizer {
    /// Reads `tokenizer.json`; `eos` is the end-of-sequence token's text, for instance `<|endoftext|>`.
    ///
    /// # Errors
    /// When the file is missing or malformed, or has no token `eos`.
    pub fn from_file(path: &Path, eos: &str) -> Result<Self, TokenizerError> {
        let inner = tokenizers::Tokenizer::from_file(path)
            .map_err(|error| TokenizerError { path: path.display().to_string(), message: error.to_string() })?;
        Self::new(inner, eos).map_err(|message| TokenizerError { path: path.display().to_string(), message })
    }

    /// Reads the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// As [`Self::from_file`].
    pub fn from_bytes(bytes: &[u8], eos: &str) -> Result<Self, TokenizerError> {
        let error = |message| TokenizerError { path: "(embedded)".to_owned(), message };
        let inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|cause| error(cause.to_string()))?;
        Self::new(inner, eos).map_err(error)
    }

    fn new(mut inner: tokenizers::Tokenizer, eos: &str) -> Result<Self, String> {
        // Settings baked into some files would cut or pad text behind our back.
        inner.with_truncation(None).map_err(|error| error.to_string())?;
        inner.with_padding(None);
        let eos = inner.token_to_id(eos).ok_or_else(|| format!("has no token `{eos}`"))?;
        Ok(Self { inner, eos })
    }

    /// The id of a token, by its text.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }
}

impl Tokenizer for HfTokenizer {
    fn encode(&self, text: &str) -> Vec<u32> {
        // A failure would be a broken tokenizer, not a property of the text; the driver turns a panic into a fault.
        self.inner.encode_fast(text, false).expect("the tokenizer encodes any text").get_ids().to_vec()
    }

    fn decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids, false).expect("the tokenizer decodes its own ids")
    }

    fn eos(&self) -> u32 {
        self.eos
    }

    fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}
