//! Phrases and words in one part, which the index cannot decide because it holds no positions: read off the stored passage.

use super::Part;
use crate::analyzer::TermStream;
use crate::index::Document;

/// The words or phrase to be found in a passage.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Check {
    pub(super) part: Part,
    pub(super) wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wanted {
    /// Terms in order with their positions in the phrase, and how many extra words may stand between them.
    Sequence {
        terms: Vec<(String, usize)>,
        slop: u32,
    },
    /// A word whose term begins with this or is the second.
    Prefix {
        beginning: String,
        own: Option<String>,
    },
}

impl Check {
    /// The number of matches: Lucene's phrase frequency; zero for none.
    pub(super) fn frequency(&self, document: Document<'_>) -> f32 {
        match self.part {
            Part::Title => self.wanted.frequency(document.title),
            Part::Text => self.wanted.frequency(document.text),
            // As it is indexed.
            Part::Anywhere => self
                .wanted
                .frequency(&format!("{} {}", document.title, document.text)),
        }
    }
}

impl Wanted {
    fn frequency(&self, text: &str) -> f32 {
        match self {
            Self::Sequence { terms, slop } => sequence_frequency(terms, *slop, text),
            Self::Prefix { beginning, own } => {
                let mut count = 0_u32;
                let fits = |term: &str| {
                    term.starts_with(beginning.as_str()) || Some(term) == own.as_deref()
                };
                each_word(
                    text,
                    |first| beginning.starts_with(first),
                    |term, _| count += u32::from(fits(term)),
                );
                count as f32
            }
        }
    }
}

/// Analyses the words of a text that may have a wanted term. The stemmer never touches the first letter of a word, so an
/// ASCII letter no wanted term begins with rules the word out.
fn each_word(text: &str, may_begin: impl Fn(char) -> bool, mut visit: impl FnMut(&str, usize)) {
    let mut stream = TermStream::new(text);
    let mut position = 0;
    while let Some(word) = stream.next_raw_word() {
        let first = word.as_bytes()[0];
        if !first.is_ascii() || may_begin(char::from(first.to_ascii_lowercase())) {
            let term = stream.analyze_word(word);
            if !term.is_empty() {
                visit(term, position);
            }
        }
        position += 1;
    }
}

/// Counts the places where the first term begins a match, each by `1 / (1 + extra words)`. The terms have to come in
/// order, at least as far apart as in the phrase; with every next term taken as early as it comes, the match that begins
/// at a place is the shortest there.
fn sequence_frequency(terms: &[(String, usize)], slop: u32, text: &str) -> f32 {
    let mut places: Vec<Vec<usize>> = vec![Vec::new(); terms.len()];
    let may_begin = |first: char| terms.iter().any(|(term, _)| term.starts_with(first));
    each_word(text, may_begin, |found, position| {
        for ((term, _), places) in terms.iter().zip(&mut places) {
            if term == found {
                places.push(position);
            }
        }
    });
    let (Some(starts), Some((_, last))) = (places.first(), terms.last()) else {
        return 0.0;
    };
    let length = last - terms[0].1;
    let mut frequency = 0.0;
    for &start in starts {
        let mut at = Some(start);
        for number in 1..terms.len() {
            let gap = terms[number].1 - terms[number - 1].1;
            at = at.and_then(|at| {
                let later = &places[number];
                later
                    .get(later.partition_point(|&place| place < at + gap))
                    .copied()
            });
        }
        if let Some(extra) = at
            .map(|end| end - start - length)
            .filter(|&extra| extra as u64 <= u64::from(slop))
        {
            frequency += 1.0 / (1.0 + extra as f32);
        }
    }
    frequency
}
