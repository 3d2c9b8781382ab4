//! Tokenizers from `tokenizer.json` files.

use std::path::Path;
use std::sync::Arc;

use forage_contracts::Tokenizer;
use forage_net::FileBounds;

/// A tokenizer could not be read, trained or written.
#[derive(Debug, thiserror::Error)]
#[error("tokenizer {path}: {message}")]
pub struct TokenizerError {
    /// File concerned.
    pub path: String,
    /// The fault, and the fix.
    pub message: String,
}

/// A Hugging Face `tokenizer.json`.
#[derive(Clone, Debug)]
pub struct HfTokenizer {
    /// Shared: a vocabulary of 150,000 takes tens of megabytes.
    inner: Arc<tokenizers::Tokenizer>,
    eos: u32,
    /// Whether tokens are written in the alphabet of bytes.
    byte_level: bool,
}

/// Text that every tokenizer can encode: letters, numbers, blanks, signs, and characters of two to four bytes.
const TRIAL: &str = "The 1st test, it's\n\té 東京 🦀 <|x|>";

impl HfTokenizer {
    /// The text of the end-of-sequence token.
    pub fn eos_text(&self) -> String {
        self.inner.id_to_token(self.eos).unwrap_or_default()
    }

    /// Reads `tokenizer.json`; `eos` is the end-of-sequence token's text, for instance `<|endoftext|>`.
    ///
    /// # Errors
    /// When the file is missing, malformed or beyond [`FileBounds::LIST`], or has no token `eos`.
    pub fn from_file(path: &Path, eos: &str) -> Result<Self, TokenizerError> {
        let name = path.display().to_string();
        match FileBounds::LIST.read(path) {
            Ok(bytes) => Self::parse(&name, &bytes, eos),
            Err(error) => Err(TokenizerError {
                path: name,
                message: error.to_string(),
            }),
        }
    }

    /// Reads the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// As [`Self::from_file`].
    pub fn from_bytes(bytes: &[u8], eos: &str) -> Result<Self, TokenizerError> {
        Self::parse("(embedded)", bytes, eos)
    }

    /// Reads a file of strangers: the library panics at some, and others are read but cannot encode.
    fn parse(path: &str, bytes: &[u8], eos: &str) -> Result<Self, TokenizerError> {
        let fault = |message: String| TokenizerError {
            path: path.to_owned(),
            message,
        };
        let read = std::panic::catch_unwind(|| {
            let inner = tokenizers::Tokenizer::from_bytes(bytes)
                .map_err(|cause| fault(cause.to_string()))?;
            let read = Self::new(inner, eos, fault)?;
            let encoded = read.inner.encode_fast(TRIAL, false);
            encoded
                .and_then(|found| read.inner.decode(found.get_ids(), false))
                .map_err(|cause| fault(format!("cannot encode text: {cause}")))?;
            Ok(read)
        });
        read.unwrap_or_else(|_| Err(fault("is malformed: reading it panics".to_owned())))
    }

    fn new(
        mut inner: tokenizers::Tokenizer,
        eos: &str,
        fault: impl Fn(String) -> TokenizerError,
    ) -> Result<Self, TokenizerError> {
        // Settings baked into some files would cut or pad text behind our back.
        inner
            .with_truncation(None)
            .map_err(|cause| fault(cause.to_string()))?;
        inner.with_padding(None);
        let eos = inner
            .token_to_id(eos)
            .ok_or_else(|| fault(format!("has no token `{eos}`")))?;
        let decoder = serde_json::to_string(&inner.get_decoder()).unwrap_or_default();
        let byte_level = decoder.contains("\"ByteLevel\"");
        Ok(Self {
            inner: Arc::new(inner),
            eos,
            byte_level,
        })
    }

    /// The id of a token, by its text.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The bytes a token stands for inside a text; they need not be whole characters. Empty for an id without a token.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let Some(token) = self.inner.id_to_token(id) else {
            return Vec::new();
        };
        if self
            .inner
            .get_added_vocabulary()
            .simple_id_to_token(id)
            .is_some()
        {
            return token.into_bytes();
        }
        if self.byte_level {
            // Characters that stand for no byte do not occur in such a vocabulary.
            return token.chars().filter_map(byte_of).collect();
        }
        let byte = token
            .strip_prefix("<0x")
            .and_then(|rest| u8::from_str_radix(rest.strip_suffix('>')?, 16).ok());
        match byte {
            Some(byte) => vec![byte],
            // SentencePiece writes a blank as this mark.
            None => token.replace('\u{2581}', " ").into_bytes(),
        }
    }
}

/// The byte that a character of a byte-level vocabulary stands for: printable ones stand for themselves, the others are
/// numbered from U+0100 on (GPT-2's `bytes_to_unicode`).
fn byte_of(char: char) -> Option<u8> {
    let code = u32::from(char);
    let own = |byte: &u8| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    match u8::try_from(code) {
        Ok(byte) => own(&byte).then_some(byte),
        Err(_) => (0..=u8::MAX)
            .filter(|byte| !own(byte))
            .nth(code as usize - 0x100),
    }
}

impl Tokenizer for HfTokenizer {
    fn encode(&self, text: &str) -> Vec<u32> {
        // A failure would be a broken tokenizer, not a property of the text; the driver turns a panic into a fault.
        self.inner
            .encode_fast(text, false)
            .expect("the tokenizer encodes any text")
            .get_ids()
            .to_vec()
    }

    fn decode(&self, ids: &[u32]) -> String {
        self.inner
            .decode(ids, false)
            .expect("the tokenizer decodes its own ids")
    }

    fn eos(&self) -> u32 {
        self.eos
    }

    fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutated_files_are_refused_or_encode() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart/tokenizer.json");
        let whole = std::fs::read(path).unwrap();
        let mut read = 0;
        for number in 0..300 {
            let mut bytes = whole.clone();
            // The settings stand at both ends, the vocabulary between them.
            let place = match number % 3 {
                0 => number * 7,
                1 => whole.len() - 1 - number * 3,
                _ => number * whole.len() / 300,
            };
            bytes[place] = b"0\"}]-9 e"[number % 8];
            if let Ok(tokenizer) = HfTokenizer::from_bytes(&bytes, "<|endoftext|>") {
                read += 1;
                let ids = tokenizer.encode("Who wrote it? é 東京");
                tokenizer.decode(&ids);
            }
            assert!(HfTokenizer::from_bytes(&whole[..place], "<|endoftext|>").is_err());
        }
        assert!(read > 0 && read < 300, "{read}");
    }

    #[test]
    fn what_is_no_file_or_too_long_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let check = |told: &str| {
            let error = HfTokenizer::from_file(&path, "<e>").unwrap_err();
            assert!(error.path.ends_with("tokenizer.json"), "{error}");
            assert!(error.message.contains(told), "{error}");
        };
        std::fs::create_dir(&path).unwrap();
        check("not a regular file");
        std::fs::remove_dir(&path).unwrap();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
            check("not a regular file");
            std::fs::remove_file(&path).unwrap();
        }
        let file = std::fs::File::create(&path).unwrap();
        file.set_len((64 << 20) + 1).unwrap();
        check("more than 64 MiB");
        std::fs::write(&path, "[],".repeat(2_000_001)).unwrap();
        check("more than 4000000 values");
    }

    #[test]
    fn a_tokenizer_that_cannot_encode_is_refused() {
        let words = r#"{"version":"1.0","added_tokens":[],"model":{"type":"WordLevel","vocab":{"<e>":0},"unk_token":"<u>"}}"#;
        let error = HfTokenizer::from_bytes(words.as_bytes(), "<e>").unwrap_err();
        assert!(error.to_string().contains("cannot encode"), "{error}");
    }

    #[test]
    fn bytes_of_tokens_are_those_of_the_text() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart/tokenizer.json");
        let tokenizer = HfTokenizer::from_file(&path, "<|endoftext|>").unwrap();
        let text = "<search> naïve 😀\t\0\u{AD}\n</search><|endoftext|>";
        let bytes: Vec<u8> = tokenizer
            .encode(text)
            .iter()
            .flat_map(|&id| tokenizer.token_bytes(id))
            .collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        let mut single: Vec<u8> = (9..265).flat_map(|id| tokenizer.token_bytes(id)).collect();
        single.sort_unstable();
        assert!(
            single.into_iter().eq(0..=u8::MAX),
            "each byte has its token"
        );
    }
}
