//! Items of queries that are what their episodes are for.

use std::collections::BTreeSet;

use forage_env::query_writer::QueryTurn;

use super::reading::{Reading, Sign, excerpt};

/// Words that join others.
const OPERATORS: [&str; 3] = ["AND", "OR", "NOT"];

/// A query longer than this many words for each of the question's says other things than the question.
const LONG: usize = 4;

fn number(reading: &Reading<'_>, holds: impl Fn(&QueryTurn) -> bool) -> Option<Sign> {
    QueryTurn::of(reading.episode).map(|turn| Sign::number(f64::from(u8::from(holds(&turn)))))
}

/// AND, or a required word.
pub(super) fn with_and(reading: &Reading<'_>) -> Option<Sign> {
    number(reading, |turn| turn.shape().ands > 0)
}

/// OR.
pub(super) fn with_or(reading: &Reading<'_>) -> Option<Sign> {
    number(reading, |turn| turn.shape().ors > 0)
}

/// NOT, or a forbidden word.
pub(super) fn with_not(reading: &Reading<'_>) -> Option<Sign> {
    number(reading, |turn| turn.shape().nots > 0)
}

/// A phrase.
pub(super) fn with_phrase(reading: &Reading<'_>) -> Option<Sign> {
    number(reading, |turn| turn.shape().phrases > 0)
}

fn sign(reading: &Reading<'_>, holds: impl Fn(&QueryTurn) -> bool) -> Option<Sign> {
    let turn = QueryTurn::of(reading.episode)?;
    Some(Sign::of(holds(&turn).then_some(turn.query.as_str())))
}

/// A query that asks for nothing but words: OR is what bare words mean, so a query without AND, NOT, phrase and field is
/// the bag of its words.
pub(super) fn keyword_bag(reading: &Reading<'_>) -> Option<Sign> {
    sign(reading, |turn| {
        let shape = turn.shape();
        shape.ands + shape.nots + shape.phrases + shape.fields == 0
    })
}

/// Under three words.
pub(super) fn short_query(reading: &Reading<'_>) -> Option<Sign> {
    sign(reading, |turn| turn.shape().words < 3)
}

/// Over [`LONG`] words for each of the question's.
pub(super) fn long_query(reading: &Reading<'_>) -> Option<Sign> {
    let asked = reading
        .episode
        .task
        .question
        .split_whitespace()
        .count()
        .max(1);
    sign(reading, |turn| turn.shape().words > LONG * asked)
}

/// Share of the words, operators aside, that the query has said before.
pub(super) fn stuffed_query(reading: &Reading<'_>) -> Option<Sign> {
    let turn = QueryTurn::of(reading.episode)?;
    let words = turn.query.split(|letter: char| !letter.is_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty() && !OPERATORS.contains(word))
        .map(str::to_lowercase)
        .collect();
    let distinct: BTreeSet<&str> = words.iter().map(String::as_str).collect();
    let repeated = words.len() - distinct.len();
    let shown = (repeated > 0).then(|| excerpt(&turn.query));
    Some(Sign {
        value: repeated as f64 / words.len().max(1) as f64,
        excerpt: shown,
    })
}
