//! Words and what may stand in their place, from a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::{Context, Result, refuse};

/// Substitutes by word, both in lower case.
pub(super) struct Synonyms(BTreeMap<String, Substitutes>);

/// What may stand for a word.
pub(super) struct Substitutes {
    words: Vec<String>,
    /// What the word has in common with the substitute that it has least in common with: of the sets of both, each a word with
    /// its substitutes, the part they share, as a share of the larger one.
    overlap: f64,
}

impl Synonyms {
    /// Reads lines of a word and its substitutes; `#` begins a comment.
    ///
    /// # Errors
    /// When the file cannot be read or a line, named by number, says nothing that can be used.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .in_config(format!("cannot read the synonyms {}", path.display()))?;
        Self::parse(&text).in_config(format!("the synonyms {} cannot be used", path.display()))
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let words = line.split('#').next().unwrap_or_default();
            let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
            let other = words
                .iter()
                .find(|word| !word.chars().all(char::is_alphanumeric));
            if let Some(other) = other {
                refuse!(
                    "line {number}: `{other}` is not one word of letters and digits; leave it out"
                );
            }
            let Some((word, others)) = words.split_first() else {
                continue;
            };
            let mut substitutes: Vec<String> = Vec::new();
            for other in others {
                if other != word && !substitutes.contains(other) {
                    substitutes.push(other.clone());
                }
            }
            if substitutes.is_empty() {
                refuse!(
                    "line {number}: `{word}` has no substitutes; write them behind it, or leave it out"
                );
            }
            if sets.insert(word.clone(), substitutes).is_some() {
                refuse!("line {number}: `{word}` has a line above; join the two");
            }
        }
        if sets.is_empty() {
            refuse!("there is no word in it; a line is a word and its substitutes");
        }
        let overlaps: Vec<f64> = sets.keys().map(|word| overlap(&sets, word)).collect();
        let entries = sets.into_iter().zip(overlaps);
        let entries =
            entries.map(|((word, words), overlap)| (word, Substitutes { words, overlap }));
        Ok(Self(entries.collect()))
    }

    /// The words of a text that have substitutes, and what stands between them.
    pub(super) fn words<'s>(&'s self, text: &str) -> Words<'s> {
        let mut words = Words {
            between: vec![String::new()],
            words: Vec::new(),
        };
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            // Runs of letters and digits, and of anything else.
            let inside = first.is_alphanumeric();
            let end = rest.find(|next: char| next.is_alphanumeric() != inside);
            let (run, behind) = rest.split_at(end.unwrap_or(rest.len()));
            rest = behind;
            if let Some((word, substitutes)) = self.0.get_key_value(&run.to_lowercase()) {
                let word = word.as_str();
                words.words.push((run.to_owned(), word, substitutes));
                words.between.push(String::new());
            } else if let Some(before) = words.between.last_mut() {
                before.push_str(run);
            }
        }
        words
    }
}

/// A word with its substitutes; alone where it has none.
fn set<'s>(sets: &'s BTreeMap<String, Vec<String>>, word: &'s str) -> BTreeSet<&'s str> {
    let substitutes = sets.get(word).into_iter().flatten();
    std::iter::once(word)
        .chain(substitutes.map(String::as_str))
        .collect()
}

fn overlap(sets: &BTreeMap<String, Vec<String>>, word: &str) -> f64 {
    let own = set(sets, word);
    let shared = |other: &String| {
        let other = set(sets, other);
        let both = own.intersection(&other).count();
        both as f64 / own.len().max(other.len()) as f64
    };
    sets[word].iter().map(shared).fold(1.0, f64::min)
}

/// A text as words that have substitutes and what stands between them.
pub(super) struct Words<'s> {
    /// What stands before each word, and behind the last one.
    between: Vec<String>,
    /// As written, in lower case, and what may stand in its place.
    words: Vec<(String, &'s str, &'s Substitutes)>,
}

/// What stands in the place of a word: `None` the word as written, 0 the word in lower case, from 1 on its substitutes.
pub(super) type Choice = Option<usize>;

impl Words<'_> {
    /// Number of words that have substitutes.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// The number of substitutes of each word.
    pub(super) fn substitutes(&self) -> impl Iterator<Item = usize> {
        let words = self.words.iter();
        words.map(|(_, _, substitutes)| substitutes.words.len())
    }

    /// What each word has in common with its substitutes.
    pub(super) fn overlaps(&self) -> impl Iterator<Item = f64> {
        self.words.iter().map(|(_, _, found)| found.overlap)
    }

    /// The text with these choices, one for each word. Substitutes are in lower case.
    pub(super) fn render(&self, choices: &[Choice]) -> String {
        let mut text = self.between[0].clone();
        let words = self.words.iter().zip(&self.between[1..]);
        for (((written, word, substitutes), behind), choice) in words.zip(choices) {
            text.push_str(match choice {
                None => written,
                Some(0) => word,
                Some(choice) => &substitutes.words[choice - 1],
            });
            text.push_str(behind);
        }
        text
    }
}
