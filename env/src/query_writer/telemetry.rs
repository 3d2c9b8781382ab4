//! Items of telemetry of queries that are what their episodes are for.

use std::collections::BTreeSet;

use forage_contracts::{EnvTelemetry, Item, Reading, Sign};

use super::turn::QueryTurn;
use crate::protocol::{QUERY_CLOSE, QUERY_OPEN, REASONING};

pub(super) const TELEMETRY: EnvTelemetry = EnvTelemetry {
    items: ITEMS,
    actions: &[[QUERY_OPEN, QUERY_CLOSE]],
    reasoning: &[REASONING],
    searches: true,
    ..EnvTelemetry::COMMON
};

const ITEMS: &[Item] = &[
    Item::measured("query_words", "words of the query that is judged"),
    Item::new("with_and", "share of the queries with AND", |reading| {
        number(reading, |turn| turn.shape().ands > 0)
    }),
    Item::new("with_or", "share of the queries with OR", |reading| {
        number(reading, |turn| turn.shape().ors > 0)
    }),
    Item::new("with_not", "share of the queries with NOT", |reading| {
        number(reading, |turn| turn.shape().nots > 0)
    }),
    Item::new(
        "with_phrase",
        "share of the queries with a phrase",
        |reading| number(reading, |turn| turn.shape().phrases > 0),
    ),
    Item::new(
        "keyword_bag",
        "share of the queries without AND, NOT, phrase and field",
        keyword_bag,
    )
    .watched(
        0.9,
        "The policy writes bags of keywords: on a small collection a few rare words rank as well as a query that was thought \
         out. Subtract what the question's own keywords would find (the part `gain`), and evaluate on a larger collection.",
    ),
    Item::new(
        "short_query",
        "share of the queries of one or two words",
        |reading| sign(reading, |turn| turn.shape().words < 3),
    )
    .watched(
        0.5,
        "One rare word is enough for this collection; it will not be in a larger one.",
    ),
    Item::new(
        "long_query",
        "share of the queries of over four words for each of the question's",
        long_query,
    )
    .watched(
        0.5,
        "The ranking reward pays overlap with the passages, and more words overlap more. Cap the length or charge for it.",
    ),
    Item::new(
        "stuffed_query",
        "share of a query's words that it has said before",
        stuffed_query,
    )
    .watched(
        0.3,
        "Repeated words weigh more, and words around an operator decorate a bag of keywords. Read some queries.",
    ),
];

/// Words that join others.
const OPERATORS: [&str; 3] = ["AND", "OR", "NOT"];

/// A query longer than this many words for each of the question's says other things than the question.
const LONG: usize = 4;

fn number(reading: &Reading<'_>, holds: impl Fn(&QueryTurn) -> bool) -> Option<Sign> {
    let turn = QueryTurn::of(reading.episode)?;
    Some(Sign::number(f64::from(u8::from(holds(&turn)))))
}

fn sign(reading: &Reading<'_>, holds: impl Fn(&QueryTurn) -> bool) -> Option<Sign> {
    let turn = QueryTurn::of(reading.episode)?;
    Some(Sign::of(holds(&turn).then_some(turn.query.as_str())))
}

/// A query that asks for nothing but words: OR is what bare words mean, so a query without AND, NOT, phrase and field is
/// the bag of its words.
fn keyword_bag(reading: &Reading<'_>) -> Option<Sign> {
    sign(reading, |turn| {
        let shape = turn.shape();
        shape.ands + shape.nots + shape.phrases + shape.fields == 0
    })
}

/// Finds a query of more than [`LONG`] words for each word of the question.
fn long_query(reading: &Reading<'_>) -> Option<Sign> {
    let question = &reading.episode.task.question;
    let asked = question.split_whitespace().count().max(1);
    sign(reading, |turn| turn.shape().words > LONG * asked)
}

/// Share of the words, operators aside, that the query has said before.
fn stuffed_query(reading: &Reading<'_>) -> Option<Sign> {
    let turn = QueryTurn::of(reading.episode)?;
    let words = turn.query.split(|letter: char| !letter.is_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty() && !OPERATORS.contains(word))
        .map(str::to_lowercase)
        .collect();
    let distinct: BTreeSet<&str> = words.iter().map(String::as_str).collect();
    let repeated = words.len() - distinct.len();
    let shown = (repeated > 0).then_some(turn.query.as_str());
    let share = repeated as f64 / words.len().max(1) as f64;
    Some(Sign::new(share, shown))
}
