//! What a step's metrics row says of queries that were the goal of their episodes: the signs by which a policy that games its
//! ranking reward is known. The sentinel watches them.

use std::collections::{HashMap, HashSet};

use forage_retriever::analyze;

use crate::environment::QueryTurn;
use crate::episode::Episode;

/// Lengths, operators and syntax of a step's queries; nothing where episodes are for answers.
///
/// - `query/words_mean`: words between white space;
/// - `query/distinct_frac`: share of queries that were written for one question only: members of a group may agree, but one
///   query for many questions asks for none of them;
/// - `query/stop_word_frac`: share of the words, operators aside, that the index leaves out (`the`, `of`, ...);
/// - `query/and_frac`, `or_frac`, `not_frac`, `phrase_frac`, `field_frac`: share of queries with at least one;
///   `query/operator_frac`: with any of the first four;
/// - `query/complexity_mean`: operators, phrases, fields, boosts, prefixes and parentheses per query;
/// - `query/valid_frac`: share of queries that needed no repair; turns without a query are in `action/valid_frac`;
/// - `query/found_mean`: passages found.
pub(super) fn describe(episodes: &[Episode], set: &mut dyn FnMut(&str, f64)) {
    let written = episodes.iter().filter_map(|episode| Some((episode.group, episode.query_turn()?)));
    let (groups, turns): (Vec<u64>, Vec<&QueryTurn>) = written.unzip();
    if turns.is_empty() {
        return;
    }
    let count = turns.len() as f64;
    let shapes: Vec<_> = turns.iter().map(|turn| turn.shape()).collect();
    set("query/words_mean", shapes.iter().map(|shape| shape.words as f64).sum::<f64>() / count);
    let mut asked_by: HashMap<&str, HashSet<u64>> = HashMap::new();
    for (group, turn) in groups.iter().zip(&turns) {
        asked_by.entry(turn.query.as_str()).or_default().insert(*group);
    }
    let distinct = turns.iter().filter(|turn| asked_by[turn.query.as_str()].len() == 1).count();
    set("query/distinct_frac", distinct as f64 / count);
    let words = turns.iter().flat_map(|turn| turn.query.split_whitespace());
    let words: Vec<&str> = words.filter(|word| !matches!(*word, "AND" | "OR" | "NOT")).collect();
    let stop = words.iter().filter(|word| word.contains(char::is_alphanumeric) && analyze(word).is_empty()).count();
    set("query/stop_word_frac", stop as f64 / words.len().max(1) as f64);
    let mut share = |name: &str, holds: &dyn Fn(usize) -> bool| {
        let holding = (0..turns.len()).filter(|index| holds(*index)).count();
        set(name, holding as f64 / count);
    };
    share("query/operator_frac", &|index| shapes[index].has_operators());
    share("query/and_frac", &|index| shapes[index].ands > 0);
    share("query/or_frac", &|index| shapes[index].ors > 0);
    share("query/not_frac", &|index| shapes[index].nots > 0);
    share("query/phrase_frac", &|index| shapes[index].phrases > 0);
    share("query/field_frac", &|index| shapes[index].fields > 0);
    share("query/valid_frac", &|index| turns[index].is_valid());
    set("query/complexity_mean", shapes.iter().map(|shape| shape.complexity() as f64).sum::<f64>() / count);
    set("query/found_mean", turns.iter().map(|turn| turn.found.len() as f64).sum::<f64>() / count);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forage_retriever::ParseIssue;

    use crate::environment::TurnKind;
    use crate::episode::{Ending, Turn};
    use crate::policy::Finish;
    use crate::task::{Split, Task};
    use crate::tokens::TokenLog;

    use super::*;

    fn episode(kind: TurnKind) -> Episode {
        let task = Task {
            id: "1".to_owned(),
            question: "Who?".to_owned(),
            golds: Vec::new(),
            evidence: vec!["d".to_owned()],
            qrels: BTreeMap::new(),
            hops: 0,
            oracle: Vec::new(),
            data_source: "test".to_owned(),
            split: Split::Train,
        };
        let turns =
            vec![Turn { policy: String::new(), finish: Finish::Stop, kind, observation: String::new(), reward: 0.0 }];
        let (tokens, ending) = (TokenLog::default(), Ending::Answered);
        let (prompt, branch, seed) = (String::new(), None, None);
        Episode { task, group: 0, member: 0, branch, prompt, turns, tokens, ending, score: None, seed }
    }

    fn query(text: &str, found: usize, repaired: bool) -> Episode {
        let repair = ParseIssue { at: 0..1, message: "closed".to_owned() };
        let repairs = if repaired { vec![repair] } else { Vec::new() };
        let found = (0..found).map(|id| id.to_string()).collect();
        episode(TurnKind::Query(QueryTurn { query: text.to_owned(), found, repairs, ..QueryTurn::default() }))
    }

    #[test]
    fn a_row_says_what_queries_are_made_of() {
        let mut episodes = vec![
            query("\"spring tide\" AND (the moon)", 4, false),
            query("moon OR tide NOT sun", 0, false),
            query("moon OR tide NOT sun", 0, false),
            query("title:moon the", 2, true),
            query("title:moon the", 2, true),
            episode(TurnKind::Invalid { fault: "no query".to_owned() }),
        ];
        episodes[4].group = 1;
        let mut row = BTreeMap::new();
        describe(&episodes, &mut |name, value| {
            row.insert(name.to_owned(), value);
        });
        for (name, expected) in [
            ("words_mean", 19.0 / 5.0),
            // Two members of a group agree; the last query was written for two questions.
            ("distinct_frac", 0.6),
            // The three `the`, one of them behind a parenthesis, of fourteen words.
            ("stop_word_frac", 3.0 / 14.0),
            ("operator_frac", 0.6),
            ("and_frac", 0.2),
            ("or_frac", 0.4),
            ("not_frac", 0.4),
            ("phrase_frac", 0.2),
            ("field_frac", 0.4),
            ("complexity_mean", 9.0 / 5.0),
            ("valid_frac", 0.6),
            ("found_mean", 8.0 / 5.0),
        ] {
            let found = row[&format!("query/{name}")];
            assert!((found - expected).abs() < 1e-12, "{name}: {found} is not {expected}");
        }
        let answered = [episode(TurnKind::Answer { answer: "a".to_owned() })];
        describe(&answered, &mut |name, _| panic!("{name} of no query"));
    }
}
