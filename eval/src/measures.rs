//! The numbers read off one episode, and episodes grouped by question.

use std::collections::{BTreeMap, BTreeSet};

use forage_env::environment::{CodeTurn, TurnKind};
use forage_env::episode::{Ending, Episode};
use forage_env::reward::give_up::is_give_up;
use forage_env::tokens::Provenance;

use crate::stats::Better;

/// Metrics in the order tables show them; any other score part follows by name.
const ORDER: [&str; 28] = [
    "em",
    "sub_em",
    "f1",
    "reward",
    "format",
    "retrieval",
    "ndcg",
    "gain",
    "mrr",
    "recall",
    "retrieved",
    "syntax",
    "ndcg_searchlm",
    "answered",
    "truncated",
    "malformed",
    "searches",
    "repeated_queries",
    "turns",
    "invalid_actions",
    "query_words",
    "query_complexity",
    "working_code_rate",
    "unprinted_results",
    "give_up_rate",
    "policy_tokens",
    "response_tokens",
    "episode_tokens",
];

/// Metrics of which less is better: what episodes cost, and how they go wrong.
const LOWER: [&str; 11] = [
    "truncated",
    "malformed",
    "searches",
    "repeated_queries",
    "turns",
    "invalid_actions",
    "unprinted_results",
    "give_up_rate",
    "policy_tokens",
    "response_tokens",
    "episode_tokens",
];

/// Which way a metric is good.
pub(crate) fn better(metric: &str) -> Better {
    if LOWER.contains(&metric) { Better::Lower } else { Better::Higher }
}

/// Identity of a question: its data set and its id there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionKey {
    /// Data set.
    pub data_source: String,
    /// Id within it.
    pub id: String,
    /// The question itself: generated worlds of other seeds give their questions the same ids.
    pub question: String,
}

impl QuestionKey {
    /// The question an episode answers.
    pub fn of(episode: &Episode) -> Self {
        let task = &episode.task;
        Self { data_source: task.data_source.clone(), id: task.id.clone(), question: task.question.clone() }
    }
}

/// Every metric of a scored episode by name; empty for an infrastructure fault, which has no numbers.
///
/// - every part of the score under its own name (`em`, `sub_em`, `f1`, `format`, `retrieval`, ...), and `reward`, the
///   total;
/// - `answered`, `truncated`, `malformed`: 1 when the episode ended that way, else 0;
/// - `searches`, `turns`; `policy_tokens` (written by the policy), `response_tokens` (everything after the prompt,
///   observations included), `episode_tokens` (the prompt too);
/// - `invalid_actions`: share of the turns the environment did not understand; absent without turns;
/// - `repeated_queries`: share of the searches whose query (case and spacing aside) was already sent in this episode;
///   absent without searches;
/// - only where a query was the goal: `query_words`, its words, and `query_complexity`, its operators, phrases, fields,
///   boosts, prefixes and parentheses together;
/// - `give_up_rate`: 1 when the answer says that nothing was found; absent without an answer;
/// - only where code was run: `working_code_rate`, the share of programs that ran to their ends; `unprinted_results`, the
///   share that had something from a function and printed nothing.
pub fn episode_measures(episode: &Episode) -> BTreeMap<String, f64> {
    let Some(score) = episode.score.as_ref().filter(|_| !episode.ending.is_infra()) else {
        return BTreeMap::new();
    };
    let mut measures: BTreeMap<String, f64> =
        score.parts.iter().map(|(name, value)| (name.clone(), f64::from(*value))).collect();
    let indicator = |holds: bool| f64::from(u8::from(holds));
    let tokens = &episode.tokens;
    let plain = [
        ("reward", f64::from(score.total)),
        ("answered", indicator(episode.ending == Ending::Answered)),
        ("truncated", indicator(matches!(episode.ending, Ending::Truncated { .. }))),
        ("malformed", indicator(matches!(episode.ending, Ending::Malformed { .. }))),
        ("searches", episode.searches() as f64),
        ("turns", episode.turns.len() as f64),
        ("policy_tokens", tokens.count(Provenance::Policy) as f64),
        ("response_tokens", (tokens.len() - tokens.count(Provenance::Prompt)) as f64),
        ("episode_tokens", tokens.len() as f64),
    ];
    measures.extend(plain.map(|(name, value)| (name.to_owned(), value)));
    let shares = [
        ("invalid_actions", invalid_share(episode)),
        ("repeated_queries", repeated_share(episode)),
        ("working_code_rate", code_share(episode, |turn| turn.worked() == Some(true))),
        ("unprinted_results", code_share(episode, CodeTurn::unprinted)),
        ("give_up_rate", episode.answer().map(|answer| f64::from(u8::from(is_give_up(answer))))),
        ("query_words", episode.query_turn().map(|turn| turn.shape().words as f64)),
        ("query_complexity", episode.query_turn().map(|turn| turn.shape().complexity() as f64)),
    ];
    for (name, share) in shares {
        if let Some(value) = share {
            measures.insert(name.to_owned(), value);
        }
    }
    measures
}

/// Whether a metric counts something, and so may pass 1.
pub(crate) fn is_count(name: &str) -> bool {
    ["searches", "turns", "query_words", "query_complexity"].contains(&name) || name.ends_with("_tokens")
}

/// Position of a metric in tables: the known ones first, the others after them by name.
pub(crate) fn display_rank(name: &str) -> (usize, &str) {
    (ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len()), name)
}

/// Episodes by question, questions in order of their keys.
pub(crate) fn by_question<'a>(
    episodes: impl IntoIterator<Item = &'a Episode>,
) -> BTreeMap<QuestionKey, Vec<&'a Episode>> {
    let mut questions: BTreeMap<QuestionKey, Vec<&Episode>> = BTreeMap::new();
    for episode in episodes {
        questions.entry(QuestionKey::of(episode)).or_default().push(episode);
    }
    questions
}

/// Values per metric and question: `clusters[metric][question]` lists its samples. Questions without a value of a metric
/// are absent from it, infrastructure faults everywhere.
pub(crate) fn clusters(
    questions: &BTreeMap<QuestionKey, Vec<&Episode>>,
) -> BTreeMap<String, BTreeMap<QuestionKey, Vec<f64>>> {
    let mut metrics: BTreeMap<String, BTreeMap<QuestionKey, Vec<f64>>> = BTreeMap::new();
    for (key, episodes) in questions {
        for (name, value) in episodes.iter().flat_map(|episode| episode_measures(episode)) {
            metrics.entry(name).or_default().entry(key.clone()).or_default().push(value);
        }
    }
    metrics
}

fn invalid_share(episode: &Episode) -> Option<f64> {
    let invalid = episode.turns.iter().filter(|turn| matches!(turn.kind, TurnKind::Invalid { .. })).count();
    share(invalid, episode.turns.len())
}

fn repeated_share(episode: &Episode) -> Option<f64> {
    let mut seen = BTreeSet::new();
    let mut searches = 0;
    for query in episode.queries() {
        searches += 1;
        seen.insert(query.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase());
    }
    share(searches - seen.len(), searches)
}

/// Share of the programs that were run for which `holds`.
fn code_share(episode: &Episode, holds: impl Fn(&CodeTurn) -> bool) -> Option<f64> {
    let run = episode.code_turns().filter(|turn| turn.status.is_some());
    share(run.clone().filter(|turn| holds(turn)).count(), run.count())
}

fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
