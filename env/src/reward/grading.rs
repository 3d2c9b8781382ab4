//! Grading of answers against golds: exact match, substring match and F1 under one normalisation.

use std::sync::LazyLock;

use regex::Regex;

/// A letter or number for word boundaries, as in Python's `re`: no combining marks.
static LETTER_OR_NUMBER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[\p{L}\p{N}]$").ok());

/// Normalises an answer: lower case, ASCII punctuation deleted, the words a, an and the removed, white space collapsed.
///
/// The order matters and is that of the `SQuAD` script: punctuation goes before articles, so `A.` becomes empty. Punctuation
/// outside ASCII and diacritics stay. Two answers of articles only are both empty, and so equal.
///
/// ```
/// use forage_env::reward::normalize;
///
/// assert_eq!(normalize("The  Beatles!"), "beatles");
/// ```
pub fn normalize(text: &str) -> String {
    let lower = if text.is_ascii() {
        text.to_ascii_lowercase()
    } else {
        text.to_lowercase()
    };
    let mut result = String::with_capacity(lower.len());
    // The start of the last run of word characters, and whether a space comes before what follows.
    let (mut run, mut spaced) = (0, false);
    // The space behind the text ends its last run.
    let characters = lower.chars().chain([' ']);
    for character in characters.filter(|character| !character.is_ascii_punctuation()) {
        let in_word = is_word(character);
        if !in_word && matches!(&result[run..], "a" | "an" | "the") {
            result.truncate(run);
            spaced = true;
        }
        if is_space(character) {
            spaced = true;
            run = result.len();
            continue;
        }
        if spaced {
            if !result.is_empty() && !result.ends_with(' ') {
                result.push(' ');
            }
            run = result.len();
            spaced = false;
        }
        result.push(character);
        if !in_word {
            run = result.len();
        }
    }
    result.truncate(result.trim_end_matches(' ').len());
    result
}

/// Python's `\w`, apart from the underscore, which is deleted before.
fn is_word(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric();
    }
    let mut bytes = [0; 4];
    character.is_alphanumeric()
        && LETTER_OR_NUMBER
            .as_ref()
            .is_some_and(|regex| regex.is_match(character.encode_utf8(&mut bytes)))
}

/// Python's `str.isspace`.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// Whether the prediction equals some gold after normalisation.
pub fn exact_match(prediction: &str, golds: &[impl AsRef<str>]) -> bool {
    let prediction = normalize(prediction);
    golds
        .iter()
        .any(|gold| normalize(gold.as_ref()) == prediction)
}

/// Whether some normalised gold occurs in the normalised prediction.
///
/// A gold that normalises to nothing occurs only in an empty prediction; otherwise every prediction would match it.
pub fn sub_exact_match(prediction: &str, golds: &[impl AsRef<str>]) -> bool {
    let prediction = normalize(prediction);
    golds
        .iter()
        .any(|gold| stands_in(&normalize(gold.as_ref()), &prediction))
}

/// Whether the normalised `gold` occurs in the normalised `text`; an empty gold only in an empty text.
pub(crate) fn stands_in(gold: &str, text: &str) -> bool {
    if gold.is_empty() {
        text.is_empty()
    } else {
        text.contains(gold)
    }
}

/// `SQuAD` F1 over the words of the normalised texts, in `[0, 1]`; the best over all golds.
///
/// When either side has no words, 1 if both have none, else 0.
pub(crate) fn f1(prediction: &str, golds: &[impl AsRef<str>]) -> f32 {
    let prediction = normalize(prediction);
    golds
        .iter()
        .map(|gold| f1_of(&prediction, &normalize(gold.as_ref())))
        .fold(0.0, f32::max)
}

fn f1_of(prediction: &str, gold: &str) -> f32 {
    let predicted: Vec<&str> = prediction.split_whitespace().collect();
    let mut unmatched: Vec<&str> = gold.split_whitespace().collect();
    let gold_words = unmatched.len();
    if predicted.is_empty() || gold_words == 0 {
        return f32::from(u8::from(predicted.is_empty() && gold_words == 0));
    }
    let mut common = 0_usize;
    for word in &predicted {
        if let Some(index) = unmatched.iter().position(|candidate| candidate == word) {
            unmatched.swap_remove(index);
            common += 1;
        }
    }
    2.0 * common as f32 / (predicted.len() + gold_words) as f32
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    /// The steps of the script one after the other.
    fn in_steps(text: &str) -> String {
        let mut text = text.to_lowercase();
        text.retain(|character| !character.is_ascii_punctuation());
        let mut without_articles = String::new();
        let mut run = String::new();
        for character in text.chars().chain([' ']) {
            if is_word(character) {
                run.push(character);
                continue;
            }
            let article = ["a", "an", "the"].contains(&run.as_str());
            without_articles.push_str(if article { " " } else { &run });
            without_articles.push(character);
            run.clear();
        }
        let words = without_articles.split(is_space);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join(" ")
    }

    /// A word, often an article, and what ends it.
    const WORD: &str = "(a|an|the|The|[ -~]{0,3}|[\\x00-\\x7f]|\\PC{1,2})[ .\t\x1c\u{301}]?";

    proptest! {
        #[test]
        fn one_pass_comes_to_the_same_as_the_steps(words in vec(WORD, 0..12)) {
            let text = words.concat();
            prop_assert_eq!(normalize(&text), in_steps(&text), "{:?}", text);
        }
    }

    #[test]
    fn normalisation_vectors() {
        let vectors = [
            ("The  Beatles!", "beatles"),
            ("a.m.", "am"),
            ("An apple a day", "apple day"),
            ("U.S.A.", "usa"),
            ("theatre", "theatre"),
            ("“Hamlet”", "“hamlet”"),
            ("Saint-Étienne", "saintétienne"),
            ("O'Brien", "obrien"),
            ("3,000", "3000"),
            ("the", ""),
            ("A", ""),
            ("1984 (novel)", "1984 novel"),
            ("", ""),
            (" \u{a0}x\u{1c}y ", "x y"),
        ];
        for (text, expected) in vectors {
            assert_eq!(normalize(text), expected, "{text}");
        }
    }

    #[test]
    fn unicode_follows_python() {
        // Final sigma, and only there.
        assert_eq!(normalize("ΟΔΥΣΣΕΥΣ"), "οδυσσευς");
        // The dotted capital I lowers to i and a combining dot.
        assert_eq!(normalize("İstanbul"), "i\u{307}stanbul");
        assert_eq!(normalize("ISPARTA"), "isparta");
        // A combining mark is not a word character in Python's `re`: the bare letter before it is an article.
        assert_eq!(normalize("a\u{301}"), "\u{301}");
        assert_eq!(normalize("á"), "á");
        // A letter of any script joins the word.
        assert_eq!(normalize("aя"), "aя");
        assert_eq!(normalize("the“x”"), "“x”");
        // A Devanagari vowel sign is alphabetic but no word character.
        assert_eq!(normalize("a\u{93e}"), "\u{93e}");
    }

    #[test]
    fn matches() {
        assert!(exact_match(
            " william shakespeare. ",
            &["William Shakespeare"]
        ));
        assert!(exact_match("the", &["A"]));
        assert!(!exact_match(
            "Marlowe",
            &["William Shakespeare", "Shakespeare"]
        ));
        assert!(sub_exact_match(
            "It was Shakespeare who did",
            &["the Shakespeare"]
        ));
        assert!(!sub_exact_match("anything", &["the"]));
        assert!(sub_exact_match("", &["the"]));
        assert!(!exact_match("x", &[] as &[&str]));
    }

    #[test]
    fn f1_counts_words_with_multiplicity() {
        let close = |left: f32, right: f32| (left - right).abs() < 1e-6;
        assert!(close(f1("the cat sat", &["cat"]), 2.0 / 3.0));
        assert!(close(f1("cat cat", &["cat"]), 2.0 / 3.0));
        assert!(close(f1("dog", &["cat"]), 0.0));
        assert!(close(f1("dog", &["cat", "dog"]), 1.0));
        assert!(close(f1("the", &["a"]), 1.0));
        assert!(close(f1("the", &["cat"]), 0.0));
    }
}
