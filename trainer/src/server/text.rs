//! Text of tokens as they come: whole characters only, and nothing that may turn out to be a stop string.

use forage_contracts::Tokenizer;

/// Marks what is not a character, or not yet one.
const REPLACEMENT: char = '\u{FFFD}';
/// Bytes of a character that can be missing at an end; decoders mark each or all of them with one [`REPLACEMENT`].
const UNFINISHED: usize = 3;

/// Decodes a completion token by token. All pieces together are the decoded completion; only where a SentencePiece model
/// spells out bytes that never become characters may the number of replacement marks differ.
#[derive(Debug, Default)]
pub(super) struct Detokenizer {
    /// A few tokens whose text is out, as context for decoders that treat a first token differently, then the new ones.
    window: Vec<u32>,
    /// Tokens of the window that are context.
    context: usize,
    /// Bytes of the new tokens' text that are out.
    sent: usize,
}

impl Detokenizer {
    /// The text that `token` completes.
    pub(super) fn push(&mut self, tokenizer: &dyn Tokenizer, token: u32) -> String {
        self.window.push(token);
        let Some(fresh) = self.fresh(tokenizer) else {
            return String::new();
        };
        if fresh.is_empty() {
            // A token without text, an id the tokenizer does not know for instance, is in nobody's way; but the blank at
            // the very beginning, which some decoders strip, has to be known to the next one.
            if self.context > 0 {
                self.window.pop();
            }
            return String::new();
        }
        let unfinished = fresh
            .chars()
            .rev()
            .take(UNFINISHED)
            .take_while(|&char| char == REPLACEMENT)
            .count();
        let stable = fresh.len() - unfinished * REPLACEMENT.len_utf8();
        let text = fresh.get(self.sent..stable).unwrap_or_default().to_owned();
        self.sent = self.sent.max(stable);
        if unfinished == 0 {
            self.window.drain(..self.context);
            self.context = self.window.len();
            self.sent = 0;
        }
        text
    }

    /// The rest: no token follows.
    pub(super) fn finish(&mut self, tokenizer: &dyn Tokenizer) -> String {
        let fresh = self
            .fresh(tokenizer)
            .unwrap_or_else(|| tokenizer.decode(&self.window[self.context..]));
        let text = fresh.get(self.sent..).unwrap_or_default().to_owned();
        self.sent = fresh.len();
        text
    }

    /// Text of the new tokens. Decoders that judge bytes in runs may not tell yet: the start of a character then hides
    /// the whole ones before it.
    fn fresh(&self, tokenizer: &dyn Tokenizer) -> Option<String> {
        let before = tokenizer.decode(&self.window[..self.context]);
        tokenizer
            .decode(&self.window)
            .strip_prefix(&before)
            .map(str::to_owned)
    }
}

/// Cuts text at the stop string that is completed first, and holds back what may become one.
#[derive(Debug)]
pub(super) struct StopFilter {
    stops: Vec<String>,
    /// Whether the stop string itself belongs to the text.
    include: bool,
    held: String,
    stopped: bool,
}

impl StopFilter {
    pub(super) fn new(stops: Vec<String>, include: bool) -> Self {
        Self {
            stops,
            include,
            held: String::new(),
            stopped: false,
        }
    }

    /// Whether a stop string was completed; nothing comes after it.
    pub(super) fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes the next piece; gives what certainly belongs to the text.
    pub(super) fn push(&mut self, piece: &str) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start))
        });
        if let Some((end, start)) = found.min() {
            self.stopped = true;
            let mut text = std::mem::take(&mut self.held);
            text.truncate(if self.include { end } else { start });
            return text;
        }
        let doubtful = self
            .stops
            .iter()
            .map(|stop| overlap(&self.held, stop))
            .max()
            .unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - doubtful);
        std::mem::replace(&mut self.held, rest)
    }

    /// What was held back: no text follows.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes at the end of `text` with which `stop` begins.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len().saturating_sub(1));
    let begins = |&length: &usize| stop.is_char_boundary(length) && text.ends_with(&stop[..length]);
    (1..=longest).rev().find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forage_contracts::{ByteTokenizer, Tokenizer};
    use forage_env::HfTokenizer;
    use proptest::prelude::*;

    use super::*;

    fn quickstart() -> HfTokenizer {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart/tokenizer.json");
        HfTokenizer::from_file(&path, "<|endoftext|>").unwrap()
    }

    fn pieces(tokenizer: &dyn Tokenizer, tokens: &[u32]) -> Vec<String> {
        let mut stream = Detokenizer::default();
        let mut pieces: Vec<String> = tokens
            .iter()
            .map(|&token| stream.push(tokenizer, token))
            .collect();
        pieces.push(stream.finish(tokenizer));
        pieces
    }

    /// The definition, character by character.
    fn cut(text: &str, stops: &[String], include: bool) -> String {
        for end in text
            .char_indices()
            .map(|(start, char)| start + char.len_utf8())
        {
            let completed = stops
                .iter()
                .filter(|stop| text[..end].ends_with(stop.as_str()))
                .map(String::len)
                .max();
            if let Some(length) = completed {
                return text[..if include { end } else { end - length }].to_owned();
            }
        }
        text.to_owned()
    }

    /// A SentencePiece-like tokenizer: blanks are marks, unknown bytes have tokens of their own.
    fn byte_fallback() -> HfTokenizer {
        let mut vocab = serde_json::Map::new();
        for (id, piece) in ["<unk>", "</s>", "▁", "▁a", "b", "▁the", "é"]
            .into_iter()
            .enumerate()
        {
            vocab.insert(piece.to_owned(), id.into());
        }
        for byte in 0..=255_u8 {
            vocab.insert(format!("<0x{byte:02X}>"), vocab.len().into());
        }
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "pre_tokenizer": null,
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            "added_tokens": [{"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}],
            "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>", "byte_fallback": true},
        });
        HfTokenizer::from_bytes(json.to_string().as_bytes(), "</s>").unwrap()
    }

    #[test]
    fn half_characters_wait_for_the_other_half() {
        let tokens = ByteTokenizer.encode("aé😀.");
        assert_eq!(
            pieces(&ByteTokenizer, &tokens),
            ["a", "", "é", "", "", "", "😀", ".", ""]
        );
        assert_eq!(
            pieces(&ByteTokenizer, &tokens[..5]),
            ["a", "", "é", "", "", "\u{FFFD}"]
        );
    }

    #[test]
    fn what_may_be_a_stop_string_is_held_back() {
        let mut filter = StopFilter::new(vec!["</answer>".to_owned(), "\n\n".to_owned()], false);
        assert_eq!(filter.push("x</an"), "x");
        assert_eq!(filter.push("s"), "");
        assert_eq!(filter.push(" y\n"), "</ans y");
        assert_eq!(filter.push("z</answer"), "\nz");
        assert_eq!(filter.push("> more"), "");
        assert!(filter.stopped() && filter.finish().is_empty());
    }

    proptest! {
        #[test]
        fn pieces_are_the_decoded_whole(tokens in prop::collection::vec(0_u32..1024, 0..60)) {
            let tokenizer = quickstart();
            prop_assert_eq!(pieces(&tokenizer, &tokens).concat(), tokenizer.decode(&tokens));
        }

        #[test]
        fn pieces_of_bytes_are_the_decoded_whole(tokens in prop::collection::vec(0_u32..257, 0..60)) {
            prop_assert_eq!(pieces(&ByteTokenizer, &tokens).concat(), ByteTokenizer.decode(&tokens));
        }

        #[test]
        fn pieces_of_text_are_the_text(text in "[a é😀的</>the]{0,40}") {
            let tokenizers: [Box<dyn Tokenizer>; 2] = [Box::new(quickstart()), Box::new(byte_fallback())];
            for tokenizer in tokenizers {
                let tokens = tokenizer.encode(&text);
                prop_assert_eq!(pieces(tokenizer.as_ref(), &tokens).concat(), tokenizer.decode(&tokens));
            }
        }

        #[test]
        fn text_is_cut_where_the_first_stop_string_is_complete(
            tokens in prop::collection::vec(0_u32..1024, 0..40),
            stops in prop::collection::vec("[a-c< ]{1,3}|é|\u{FFFD}", 0..4),
            include: bool,
        ) {
            let tokenizer = quickstart();
            let mut filter = StopFilter::new(stops.clone(), include);
            let mut found: String = pieces(&tokenizer, &tokens).iter().map(|piece| filter.push(piece)).collect();
            found.push_str(&filter.finish());
            prop_assert_eq!(found, cut(&tokenizer.decode(&tokens), &stops, include));
        }
    }
}
