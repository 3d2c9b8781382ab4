//! Answers that give up.

/// Phrases anywhere in an answer that say nothing was found.
const PHRASES: [&str; 18] = [
    "not found",
    "unable to determine",
    "unable to find",
    "unable to answer",
    "cannot determine",
    "cannot be determined",
    "cannot find",
    "cannot answer",
    "can't determine",
    "can't find",
    "could not find",
    "could not determine",
    "couldn't find",
    "don't know",
    "do not know",
    "no information",
    "insufficient information",
    "not enough information",
];

/// Answers that give up when they are all there is: as a part of an answer these may be names.
const WORDS: [&str; 8] = [
    "unknown",
    "none",
    "n/a",
    "not available",
    "not specified",
    "no answer",
    "unsure",
    "unclear",
];

/// Whether an answer gives up: it says that nothing was found or known instead of naming something.
///
/// ```
/// use forage_env::reward::is_give_up;
///
/// assert!(is_give_up("Unknown."));
/// assert!(is_give_up("I was unable to determine the mayor."));
/// assert!(!is_give_up("The Tomb of the Unknown Soldier"));
/// ```
pub fn is_give_up(answer: &str) -> bool {
    let answer = answer.to_lowercase().replace('\u{2019}', "'");
    let words = answer
        .trim_matches(|letter: char| letter.is_whitespace() || ".!?,;:\"'()[]*".contains(letter));
    words.is_empty()
        || WORDS.contains(&words)
        || PHRASES.iter().any(|phrase| answer.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_up_is_told_from_answering() {
        for answer in [
            "",
            " unknown",
            "(None)",
            "N/A",
            "Not found.",
            "I don\u{2019}t know",
            "Unable to determine.",
            "?",
        ] {
            assert!(is_give_up(answer), "{answer}");
        }
        for answer in [
            "Velm",
            "Nonesuch",
            "Unknown Pleasures",
            "1990",
            "Found",
            "not Velm",
        ] {
            assert!(!is_give_up(answer), "{answer}");
        }
    }
}
