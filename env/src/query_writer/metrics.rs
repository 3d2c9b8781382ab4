//! Metrics of queries that were the goal of their episodes: the signs by which a policy that games its ranking reward is
//! known. The sentinel watches them.

use std::collections::{HashMap, HashSet};

use forage_contracts::{Direction, Episode, Metric};
use forage_retriever::analyze;

use super::turn::QueryTurn;

const fn share(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, ["share", "queries"], Direction::Neither, about)
}

const fn mean(name: &'static str, unit: &'static str, about: &'static str) -> Metric {
    Metric::new(name, [unit, "queries"], Direction::Neither, about)
}

/// The metrics of a step's queries, then the measures of an episode. A query is distinct when it was written for one question only: members of a group may
/// agree, but one query for many questions asks for none of them. Turns without a query are in `action/valid_frac`.
pub(super) const DECLARED: &[Metric] = &[
    mean("query/words_mean", "words", "Words per query"),
    share(
        "query/distinct_frac",
        "Queries written for one question only",
    ),
    Metric::new(
        "query/stop_word_frac",
        ["share", "words of queries"],
        Direction::Neither,
        "Words, operators aside, that the index leaves out",
    ),
    share("query/operator_frac", "Queries with an operator or phrase"),
    share("query/and_frac", "Queries with AND or a required word"),
    share("query/or_frac", "Queries with OR"),
    share("query/not_frac", "Queries with NOT or a forbidden word"),
    share("query/phrase_frac", "Queries with a phrase"),
    share("query/field_frac", "Queries with a field"),
    Metric::new(
        "query/valid_frac",
        ["share", "queries"],
        Direction::Higher,
        "Queries with valid syntax",
    ),
    mean(
        "query/complexity_mean",
        "parts",
        "Operators, phrases, fields, boosts, prefixes and parentheses per query",
    ),
    mean("query/found_mean", "passages", "Passages found per query"),
    mean("query_words", "words", "Words of the query"),
    mean(
        "query_complexity",
        "parts",
        "Operators, phrases, fields, boosts, prefixes and parentheses of the query",
    ),
];

/// Hands over the metrics of a step's queries; nothing where episodes end in answers.
pub(super) fn describe(episodes: &[&Episode], set: &mut dyn FnMut(&str, f64)) {
    let written = episodes
        .iter()
        .filter_map(|episode| Some((episode.group, QueryTurn::of(episode)?)));
    let (groups, turns): (Vec<u64>, Vec<QueryTurn>) = written.unzip();
    if turns.is_empty() {
        return;
    }
    let count = turns.len() as f64;
    let shapes: Vec<_> = turns.iter().map(QueryTurn::shape).collect();
    set(
        "query/words_mean",
        shapes.iter().map(|shape| shape.words as f64).sum::<f64>() / count,
    );
    let mut asked_by: HashMap<&str, HashSet<u64>> = HashMap::new();
    for (group, turn) in groups.iter().zip(&turns) {
        asked_by
            .entry(turn.query.as_str())
            .or_default()
            .insert(*group);
    }
    let distinct = turns
        .iter()
        .filter(|turn| asked_by[turn.query.as_str()].len() == 1)
        .count();
    set("query/distinct_frac", distinct as f64 / count);
    let words = turns.iter().flat_map(|turn| turn.query.split_whitespace());
    let words: Vec<&str> = words
        .filter(|word| !matches!(*word, "AND" | "OR" | "NOT"))
        .collect();
    let stop = words
        .iter()
        .filter(|word| word.contains(char::is_alphanumeric) && analyze(word).is_empty())
        .count();
    set(
        "query/stop_word_frac",
        stop as f64 / words.len().max(1) as f64,
    );
    let mut share = |name: &str, holds: &dyn Fn(usize) -> bool| {
        let holding = (0..turns.len()).filter(|index| holds(*index)).count();
        set(name, holding as f64 / count);
    };
    share("query/operator_frac", &|index| {
        shapes[index].has_operators()
    });
    share("query/and_frac", &|index| shapes[index].ands > 0);
    share("query/or_frac", &|index| shapes[index].ors > 0);
    share("query/not_frac", &|index| shapes[index].nots > 0);
    share("query/phrase_frac", &|index| shapes[index].phrases > 0);
    share("query/field_frac", &|index| shapes[index].fields > 0);
    share("query/valid_frac", &|index| turns[index].is_valid());
    set(
        "query/complexity_mean",
        shapes
            .iter()
            .map(|shape| shape.complexity() as f64)
            .sum::<f64>()
            / count,
    );
    set(
        "query/found_mean",
        turns
            .iter()
            .map(|turn| turn.found.len() as f64)
            .sum::<f64>()
            / count,
    );
}

#[cfg(test)]
mod tests {
    use forage_contracts::retriever::ParseIssue;
    use std::collections::{BTreeMap, BTreeSet};

    use forage_contracts::environment::TurnKind;
    use forage_contracts::policy::Finish;
    use forage_contracts::{Ending, Task, TokenLog, Turn};

    use super::*;

    fn episode(kind: TurnKind) -> Episode {
        let task = Task {
            evidence: vec!["d".to_owned()],
            data_source: "test".to_owned(),
            ..Task::new("1", "Who?")
        };
        let turns = vec![Turn {
            policy: String::new(),
            finish: Finish::Stop,
            kind,
            observation: String::new(),
            reward: 0.0,
        }];
        let (tokens, ending) = (TokenLog::default(), Ending::Answered);
        let (prompt, branch, seed) = (String::new(), None, None);
        Episode {
            branch,
            prompt,
            turns,
            tokens,
            ending,
            seed,
            ..Episode::new(task)
        }
    }

    fn query(text: &str, found: usize, repaired: bool) -> Episode {
        let repair = ParseIssue {
            at: 0..1,
            message: "closed".to_owned(),
        };
        let repairs = if repaired { vec![repair] } else { Vec::new() };
        let found = (0..found).map(|id| id.to_string()).collect();
        let turn = QueryTurn {
            query: text.to_owned(),
            found,
            repairs,
            ..QueryTurn::default()
        };
        episode(turn.record())
    }

    #[test]
    fn a_row_says_what_queries_are_made_of() {
        let mut episodes = [
            query("\"spring tide\" AND (the moon)", 4, false),
            query("moon OR tide NOT sun", 0, false),
            query("moon OR tide NOT sun", 0, false),
            query("title:moon the", 2, true),
            query("title:moon the", 2, true),
            episode(TurnKind::invalid("no query")),
        ];
        episodes[4].group = 1;
        let mut row = BTreeMap::new();
        let episodes: Vec<&Episode> = episodes.iter().collect();
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
            assert!(
                (found - expected).abs() < 1e-12,
                "{name}: {found} is not {expected}"
            );
        }
        let declared = DECLARED.iter().map(|metric| metric.name);
        let declared: BTreeSet<&str> = declared.filter(|name| name.contains('/')).collect();
        assert_eq!(
            row.keys().map(String::as_str).collect::<BTreeSet<_>>(),
            declared
        );
        let answered = episode(TurnKind::answer("a"));
        describe(&[&answered], &mut |name, _| panic!("{name} of no query"));
    }
}
