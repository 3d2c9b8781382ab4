//! Text to token ids and back.

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
