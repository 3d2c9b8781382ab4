//! The keyword query of a question: what a query has to beat.

/// Words of a keyword query at most.
pub(crate) const KEYWORDS: usize = 5;

/// Words that say nothing about what a question is about; lower case, sorted. The choice is ours: SearchLM's baseline is
/// published as leaving out 89 words, but which they are is not.
pub(crate) const STOP_WORDS: [&str; 88] = [
    "about", "after", "all", "also", "among", "and", "any", "are", "because", "been", "before",
    "being", "between", "both", "but", "can", "cannot", "could", "did", "does", "doing", "done",
    "each", "every", "for", "from", "had", "has", "have", "having", "her", "here", "him", "his",
    "how", "into", "its", "just", "like", "many", "may", "might", "more", "most", "much", "must",
    "nor", "not", "off", "only", "other", "our", "out", "over", "own", "same", "shall", "she",
    "should", "some", "such", "than", "that", "the", "their", "them", "then", "there", "these",
    "they", "this", "those", "too", "under", "very", "was", "were", "what", "when", "where",
    "which", "who", "whom", "whose", "why", "will", "with", "would",
];

/// Letters of the shortest keyword.
const SHORTEST: usize = 3;

/// The first `KEYWORDS` words of a question in lower case that have three letters or more and are not in `STOP_WORDS`;
/// marks count as spaces. Nothing in it is an operator.
pub(crate) fn keyword_query(question: &str) -> String {
    let lower = question.to_lowercase();
    let words = lower.split(|letter: char| !letter.is_alphanumeric());
    let kept = words
        .filter(|word| word.chars().count() >= SHORTEST && STOP_WORDS.binary_search(word).is_err());
    kept.take(KEYWORDS).collect::<Vec<_>>().join(" ")
}
