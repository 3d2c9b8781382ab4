//! Tokens of policies whose own nobody knows.

use forage_contracts::Tokenizer;

/// Four bytes to a token, as many as a model's token has of English: for limits of environments where nobody knows the policy's
/// tokens.
pub(crate) struct FourBytes;

/// Fills a last token up; no byte of any text.
const FILLER: u8 = 0xff;

impl Tokenizer for FourBytes {
    fn encode(&self, text: &str) -> Vec<u32> {
        let token = |bytes: &[u8]| {
            let mut four = [FILLER; 4];
            four[..bytes.len()].copy_from_slice(bytes);
            u32::from_le_bytes(four)
        };
        text.as_bytes().chunks(4).map(token).collect()
    }

    fn decode(&self, ids: &[u32]) -> String {
        let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
        let bytes: Vec<u8> = bytes.filter(|&byte| byte != FILLER).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn eos(&self) -> u32 {
        u32::MAX
    }

    fn vocab_size(&self) -> usize {
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_a_token_give_every_text_back() {
        for text in ["", "a", "four", "fünf 😀\0", "<tool_call>{}</tool_call>"] {
            let tokens = FourBytes.encode(text);
            assert_eq!(tokens.len(), text.len().div_ceil(4));
            assert_eq!(FourBytes.decode(&tokens), text);
        }
        assert_eq!(FourBytes.decode(&[FourBytes.eos()]), "");
    }
}
