//! What a step's metrics row says of queries that were the goal of their episodes: the signs by which a policy that games its
//! ranking reward is known. The sentinel watches them.

use std::collections::HashSet;

use forage_env::episode::Episode;
use forage_retriever::analyze;

use crate::metrics::Row;

/// Lengths, operators and syntax of a step's queries; nothing where episodes are for answers.
///
/// - `query/words_mean`: words between white space;
/// - `query/distinct_frac`: different queries over all;
/// - `query/stop_word_frac`: share of the words, operators aside, that the index leaves out (`the`, `of`, ...);
/// - `query/and_frac`, `or_frac`, `not_frac`, `phrase_frac`, `field_frac`: share of queries with at least one;
///   `query/operator_frac`: with any of the first four;
/// - `query/complexity_mean`: operators, phrases, fields, boosts, prefixes and parentheses per query;
/// - `query/valid_frac`: share of queries that needed no repair; turns without a query are in `action/valid_frac`;
/// - `query/found_mean`: passages found.
pub(super) fn describe_queries(row: &mut Row, episodes: &[Episode]) {
    let turns: Vec<_> = episodes.iter().filter_map(Episode::query_turn).collect();
    if turns.is_empty() {
        return;
    }
    let count = turns.len() as f64;
    let shapes: Vec<_> = turns.iter().map(|turn| turn.shape()).collect();
    row.set("query/words_mean", shapes.iter().map(|shape| shape.words as f64).sum::<f64>() / count);
    let distinct: HashSet<&str> = turns.iter().map(|turn| turn.query.as_str()).collect();
    row.set("query/distinct_frac", distinct.len() as f64 / count);
    let words = turns.iter().flat_map(|turn| turn.query.split_whitespace());
    let words: Vec<&str> = words.filter(|word| !matches!(*word, "AND" | "OR" | "NOT")).collect();
    let stop = words.iter().filter(|word| word.contains(char::is_alphanumeric) && analyze(word).is_empty()).count();
    row.set("query/stop_word_frac", stop as f64 / words.len().max(1) as f64);
    let mut share = |name: &str, holds: &dyn Fn(usize) -> bool| {
        let holding = (0..turns.len()).filter(|index| holds(*index)).count();
        row.set(name, holding as f64 / count);
    };
    share("query/operator_frac", &|index| shapes[index].has_operators());
    share("query/and_frac", &|index| shapes[index].ands > 0);
    share("query/or_frac", &|index| shapes[index].ors > 0);
    share("query/not_frac", &|index| shapes[index].nots > 0);
    share("query/phrase_frac", &|index| shapes[index].phrases > 0);
    share("query/field_frac", &|index| shapes[index].fields > 0);
    share("query/valid_frac", &|index| turns[index].is_valid());
    row.set("query/complexity_mean", shapes.iter().map(|shape| shape.complexity() as f64).sum::<f64>() / count);
    row.set("query/found_mean", turns.iter().map(|turn| turn.found.len() as f64).sum::<f64>() / count);
}
