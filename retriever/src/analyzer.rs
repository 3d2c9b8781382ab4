//! Lucene's `EnglishAnalyzer` as Anserini and Pyserini index with it.
//!
//! UAX #29 words, at most 255 UTF-16 units each, then the possessive `'s` off, lower case, 33 stop words out, Porter's
//! first stemmer. Emoji, single ideographs and whole South-East-Asian runs are terms of their own, as in Lucene's
//! `StandardTokenizer`.

mod segments;

use std::ops::Range;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use crate::porter;
use segments::Segments;

/// Name and version of the analysis, part of every index manifest and fingerprint. Changes when any term would.
pub(crate) const ANALYZER_ID: &str = "lucene-english-3";

/// Lucene's `EnglishAnalyzer` stop set, sorted.
const STOP_WORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it",
    "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these",
    "they", "this", "to", "was", "will", "with",
];
const LONGEST_STOP_WORD: usize = 5;

/// Splits `text` into index terms, in order, repeats kept.
///
/// ```
/// assert_eq!(forage_retriever::analyze("The Panthers' defense was Kuhn's idea"), ["panther", "defens", "kuhn", "idea"]);
/// ```
pub fn analyze(text: &str) -> Vec<String> {
    let mut stream = TermStream::new(text);
    let mut terms = Vec::new();
    while let Some(term) = stream.next_term() {
        terms.push(term.to_owned());
    }
    terms
}

/// Tells whether a text holds any word, stop words included.
pub(crate) fn has_word(text: &str) -> bool {
    Segments::new(text).next().is_some()
}

/// The number of words of a text, stop words included.
pub(crate) fn count_words(text: &str) -> usize {
    Segments::new(text).count()
}

/// Tells whether a text is one word and nothing else.
pub(crate) fn is_one_word(text: &str) -> bool {
    Segments::new(text).next() == Some(text)
}

/// A term and its place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Located<'a> {
    pub(crate) term: &'a str,
    /// Words before it, stop words included: Lucene's position.
    pub(crate) position: usize,
    /// The first byte of the word in the text.
    pub(crate) start: usize,
    /// The end of the word, its possessive included.
    pub(crate) end: usize,
}

impl Located<'_> {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// The terms of one text, one at a time, without an allocation per term.
pub(crate) struct TermStream<'t> {
    text: &'t str,
    segments: Segments<'t>,
    words: usize,
    bytes: Vec<u8>,
    units: Vec<u16>,
    term: String,
}

impl<'t> TermStream<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let segments = Segments::new(text);
        Self {
            text,
            segments,
            words: 0,
            bytes: Vec::new(),
            units: Vec::new(),
            term: String::new(),
        }
    }

    /// The next term, or `None` at the end of the text.
    pub(crate) fn next_term(&mut self) -> Option<&str> {
        loop {
            self.next_word()?;
            if !self.term.is_empty() {
                return Some(&self.term);
            }
        }
    }

    /// The next term with its place.
    pub(crate) fn next_located(&mut self) -> Option<Located<'_>> {
        loop {
            let word = self.next_word()?;
            if !self.term.is_empty() {
                // A word is a slice of the text, so the distance of their addresses is its offset.
                let start = word.as_ptr().addr() - self.text.as_ptr().addr();
                return Some(Located {
                    term: &self.term,
                    position: self.words - 1,
                    start,
                    end: start + word.len(),
                });
            }
        }
    }

    /// The next word; its term is empty for a stop word.
    fn next_word(&mut self) -> Option<&'t str> {
        let word = self.segments.next()?;
        self.words += 1;
        self.term.clear();
        if word.is_ascii() {
            self.normalize_ascii(word);
        } else {
            self.normalize_unicode(word);
        }
        Some(word)
    }

    /// Leaves the term empty for a stop word.
    fn normalize_ascii(&mut self, word: &str) {
        let stem = strip_possessive(word);
        self.bytes.clear();
        self.bytes
            .extend(stem.bytes().map(|byte| byte.to_ascii_lowercase()));
        if is_stop_word(&self.bytes) {
            return;
        }
        porter::stem(&mut self.bytes);
        self.term
            .extend(self.bytes.iter().map(|&byte| char::from(byte)));
    }

    fn normalize_unicode(&mut self, word: &str) {
        let stem = strip_possessive(word);
        self.units.clear();
        let mut encoded = [0_u16; 2];
        for letter in stem.chars() {
            self.units
                .extend_from_slice(simple_lowercase(letter).encode_utf16(&mut encoded));
        }
        let mut ascii = [0_u8; LONGEST_STOP_WORD];
        if self.units.len() <= LONGEST_STOP_WORD && self.units.iter().all(|&unit| unit < 0x80) {
            for (slot, &unit) in ascii.iter_mut().zip(&self.units) {
                *slot = unit as u8;
            }
            if is_stop_word(&ascii[..self.units.len()]) {
                return;
            }
        }
        porter::stem(&mut self.units);
        self.term.extend(
            char::decode_utf16(self.units.iter().copied()).map(|unit| unit.unwrap_or('\u{fffd}')),
        );
    }
}

fn strip_possessive(word: &str) -> &str {
    let Some(owner) = word.strip_suffix(['s', 'S']) else {
        return word;
    };
    owner
        .strip_suffix(['\'', '\u{2019}', '\u{ff07}'])
        .unwrap_or(word)
}

/// Java's `Character.toLowerCase`: one character to one character, no context (so no final sigma).
pub(crate) fn simple_lowercase(letter: char) -> char {
    letter.to_lowercase().next().unwrap_or(letter)
}

fn is_stop_word(word: &[u8]) -> bool {
    word.len() <= LONGEST_STOP_WORD
        && STOP_WORDS
            .binary_search_by(|stop| stop.as_bytes().cmp(word))
            .is_ok()
}

/// The analyzer in the shape tantivy's indexer asks for.
#[derive(Clone, Default)]
pub(crate) struct EnglishTokenizer;

impl Tokenizer for EnglishTokenizer {
    type TokenStream<'a> = EnglishTokenStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> EnglishTokenStream<'a> {
        EnglishTokenStream {
            terms: TermStream::new(text),
            token: Token::default(),
        }
    }
}

/// Offsets are not filled in: the index holds frequencies and positions only.
pub(crate) struct EnglishTokenStream<'a> {
    terms: TermStream<'a>,
    token: Token,
}

impl TokenStream for EnglishTokenStream<'_> {
    fn advance(&mut self) -> bool {
        let Some(located) = self.terms.next_located() else {
            return false;
        };
        self.token.text.clear();
        self.token.text.push_str(located.term);
        self.token.position = located.position;
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, terms: &[&str]) {
        assert_eq!(analyze(text), terms, "{text}");
    }

    #[test]
    fn english_prose() {
        check(
            "The quick brown foxes are jumping over the lazy dogs.",
            &["quick", "brown", "fox", "jump", "over", "lazi", "dog"],
        );
        check(
            "possibly technological relational",
            &["possibl", "technolog", "relat"],
        );
        check(
            "0-dimensional biomaterials show 3.14 and 1,000",
            &["0", "dimension", "biomateri", "show", "3.14", "1,000"],
        );
        check(
            "foo_bar U.S.A. e-mail C++ a:b ___ !!",
            &["foo_bar", "u.s.a", "e", "mail", "c", "a:b"],
        );
    }

    #[test]
    fn possessives_of_every_apostrophe() {
        check(
            "Kuhn's KUHN'S Kuhn\u{2019}s Kuhn\u{ff07}s dogs' o'neill",
            &["kuhn", "kuhn", "kuhn", "kuhn", "dog", "o'neil"],
        );
        check("it's That's", &[]);
    }

    #[test]
    fn stop_words_take_a_position() {
        let text = "The moon's tide — and the Šárka tides";
        let mut stream = TermStream::new(text);
        let mut found = Vec::new();
        while let Some(located) = stream.next_located() {
            found.push((
                located.term.to_owned(),
                located.position,
                &text[located.range()],
            ));
        }
        let expected = [
            ("moon", 1, "moon's"),
            ("tide", 2, "tide"),
            ("šárka", 5, "Šárka"),
            ("tide", 6, "tides"),
        ];
        assert_eq!(
            found,
            expected.map(|(term, position, word)| (term.to_owned(), position, word))
        );
    }

    #[test]
    fn lower_case_is_per_character() {
        check("ΟΔΟΣ İstanbul STRASSE", &["οδοσ", "istanbul", "strass"]);
    }

    #[test]
    fn every_stop_word_goes() {
        assert!(STOP_WORDS.is_sorted());
        check(&STOP_WORDS.join(" "), &[]);
        check("The \u{ff34}he i me so", &["\u{ff54}he", "i", "me", "so"]);
    }

    #[test]
    fn numbers_that_are_no_letters() {
        // Superscripts, fractions and circled digits are not words to UAX #29; Arabic-Indic digits and Roman numerals are.
        check("x² 6½ ① ٣٤ Ⅷ", &["x", "6", "٣٤", "ⅷ"]);
    }

    #[test]
    fn symbols_lucene_types_as_emoji() {
        check(
            "Brand® © 2020 ☃ 🇩🇪 👩🏽\u{200d}🔬 → § ♈\u{fe0e}",
            &["brand", "®", "©", "2020", "☃", "🇩🇪", "👩🏽\u{200d}🔬", "♈"],
        );
    }

    #[test]
    fn marks_that_stand_alone_are_no_words() {
        // From text extraction: a vowel sign or an accent after a space, and the cedilla beside its letter.
        check("ക ാ ഞ്ചന", &["ക", "ഞ്ചന"]);
        check("bint \u{650}Hussein", &["bint", "hussein"]);
        check("Franc\u{b8}ois c\u{b8}", &["franc", "oi", "c"]);
        check("e\u{301}tude \u{301} _\u{301}", &["e\u{301}tud"]);
        check("\u{1f1e9} \u{1f1e9}\u{1f1ea}", &["\u{1f1e9}\u{1f1ea}"]);
    }

    /// As Lucene's `StandardTokenizer` has them (Anserini 1.7.1).
    #[test]
    fn marks_of_south_east_asia_are_words_behind_what_is_none() {
        check("foo \u{25cc}\u{e48} bar", &["foo", "\u{e48}", "bar"]);
        check("foo \u{e48} bar", &["foo", "\u{e48}", "bar"]);
        check("x\n\u{ec8} y", &["x", "\u{ec8}", "y"]);
        check("(\u{e31}) _\u{e48} _", &["\u{e31}", "\u{e48}"]);
        check("\u{1f1e9}\u{e48}", &["\u{e48}"]);
        check("\u{25cc}\u{e48}abc", &["\u{e48}", "abc"]);
        check("\u{25cc}\u{301}\u{e48}\u{301} x", &["\u{e48}\u{301}", "x"]);
        check(".\u{e48}\u{301}\u{e49}", &["\u{e48}\u{301}\u{e49}"]);
        let run = "\u{e48}\u{e01}\u{301}\u{e02}";
        check(&format!("\u{25cc}{run} x"), &[run, "x"]);
        check("a\u{e48}b 1\u{e48}", &["a\u{e48}b", "1\u{e48}"]);
        check("☃\u{e48}", &["☃\u{e48}"]);
    }

    #[test]
    fn letters_by_word_break_class_only() {
        check(
            "a\u{2c2}b \u{2c2} \u{55b}",
            &["a\u{2c2}b", "\u{2c2}", "\u{55b}"],
        );
        check(
            "\u{2f00} \u{3300} \u{203f} 〇",
            &["\u{2f00}", "\u{3300}", "〇"],
        );
    }

    #[test]
    fn scripts_without_spaces() {
        check(
            "東京タワー ひら สวัสดีครับ abc",
            &["東", "京", "タワー", "ひ", "ら", "สวัสดีครับ", "abc"],
        );
    }

    #[test]
    fn long_words_are_cut_at_255_units() {
        let terms = analyze(&"x".repeat(600));
        assert_eq!(
            terms.iter().map(String::len).collect::<Vec<_>>(),
            [255, 255, 90]
        );
        let wide = analyze(&"é".repeat(300));
        assert_eq!(
            wide.iter()
                .map(|term| term.chars().count())
                .collect::<Vec<_>>(),
            [255, 45]
        );
    }
}
