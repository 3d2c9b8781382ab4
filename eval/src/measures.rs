//! The numbers read off one episode, and episodes grouped by question.

use std::collections::{BTreeMap, BTreeSet};

use forage_contracts::Direction::{Higher, Lower};
use forage_contracts::environment::Outcome;
use forage_contracts::{Direction, Ending, Episode, Metric, Provenance, Score, Split};
use forage_env::registry::{environments, rewards};
use forage_env::reward::is_give_up;
use serde::{Deserialize, Serialize};

use crate::stats::Better;

/// The numbers of an episode by name, in the order of tables; those that environments declare and any other part of the score
/// follow.
pub(crate) const MEASURES: &[Metric] = &[
    scored("em", "Exact match"),
    scored("sub_em", "A reference answer within the answer"),
    scored("f1", "Overlap of the answer's words with a reference's"),
    Metric::new(
        "reward",
        ["reward", "episodes"],
        Higher,
        "Total of the weighted parts",
    ),
    scored(
        "format",
        "The response is think, (search, information, think)*, answer: a `<think>` block comes first and after every observation",
    ),
    scored(
        "retrieval",
        "A reference answer among the passages that were shown",
    ),
    scored("ndcg", "NDCG@10 of the ranking"),
    scored(
        "gain",
        "NDCG@10 above that of the question's own keywords, or of the first stage",
    ),
    scored("mrr", "Reciprocal rank of the first relevant passage"),
    scored("recall", "Relevant passages that were found"),
    scored("retrieved", "Rankings with a relevant passage"),
    scored("syntax", "Rankings for which nothing written needed repair"),
    scored("ndcg_searchlm", "NDCG as SearchLM pays it"),
    share(
        "published_differs",
        "episodes",
        Lower,
        "Episodes that a published grader pays otherwise than the correct one",
    ),
    Metric::new(
        "published_excess",
        ["reward", "episodes"],
        Lower,
        "Reward of a published grader above that of the correct one",
    ),
    share(
        "answered",
        "episodes",
        Higher,
        "Episodes that ended by themselves",
    ),
    share("truncated", "episodes", Lower, "Episodes cut by a limit"),
    share(
        "malformed",
        "episodes",
        Lower,
        "Episodes ended by a broken protocol",
    ),
    cost("searches", "searches", "Searches per episode"),
    share(
        "repeated_queries",
        "searches",
        Lower,
        "Searches whose query was sent before",
    ),
    cost("turns", "turns", "Turns per episode"),
    share(
        "invalid_actions",
        "turns",
        Lower,
        "Turns that the environment did not understand",
    ),
    share(
        "give_up_rate",
        "answers",
        Lower,
        "Answers that say that nothing was found",
    ),
    cost("policy_tokens", "tokens", "Tokens that the policy wrote"),
    cost(
        "response_tokens",
        "tokens",
        "Tokens after the prompt, observations included",
    ),
    cost("episode_tokens", "tokens", "Tokens of the whole episode"),
];

const fn scored(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, ["score", "episodes"], Higher, about)
}

const fn share(
    name: &'static str,
    over: &'static str,
    better: Direction,
    about: &'static str,
) -> Metric {
    Metric::new(name, ["share", over], better, about)
}

const fn cost(name: &'static str, unit: &'static str, about: &'static str) -> Metric {
    Metric::new(name, [unit, "episodes"], Lower, about)
}

/// Rewards that are as close are the same.
const SAME_PAY: f64 = 1e-6;

/// Every measure that is known, in the order of tables.
fn known() -> impl Iterator<Item = &'static Metric> {
    MEASURES
        .iter()
        .chain(environments().flat_map(|entry| entry.declares))
}

fn find(name: &str) -> Option<&'static Metric> {
    known().find(|metric| metric.name == name)
}

/// The direction in which a measure is better: lower for what episodes cost and for how they go wrong.
pub(crate) fn better(name: &str) -> Better {
    match find(name) {
        Some(metric) if metric.better == Lower => Better::Lower,
        _ => Better::Higher,
    }
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
        Self {
            data_source: task.data_source.clone(),
            id: task.id.clone(),
            question: task.question.clone(),
        }
    }
}

/// The score of an episode; none of an infrastructure fault.
pub(crate) fn score(episode: &Episode) -> Option<&Score> {
    let score = episode.score.as_ref();
    score.filter(|_| !episode.ending.is_infra())
}

/// The exact match of a scored episode that is graded by it.
pub(crate) fn exact_match(episode: &Episode) -> Option<f64> {
    score(episode)?.parts.get("em").copied().map(f64::from)
}

/// Returns whether there is anything to find for the policies of some seeds: a question names its evidence, or an episode called something.
/// Neither holds of problems of mathematics, for instance, though `retrieval` is among their scores.
pub(crate) fn is_searched(seeds: &[(&[Episode], &[Episode])]) -> bool {
    let both = seeds.iter().flat_map(|(start, trained)| [*start, *trained]);
    both.flatten()
        .any(|episode| !episode.task.evidence.is_empty() || episode.calls().next().is_some())
}

/// Every measure of a scored episode by name: [`MEASURES`], every part of its score, and those of its environment
/// ([`EnvEntry::measures`](forage_contracts::EnvEntry)); empty for an infrastructure fault, which has no numbers. A measure
/// without its denominator is absent: `give_up_rate` without an answer, `invalid_actions` without turns, `repeated_queries`
/// without searches. Queries are compared without case and spacing.
pub(crate) fn episode_measures(episode: &Episode) -> BTreeMap<String, f64> {
    let Some(score) = score(episode) else {
        return BTreeMap::new();
    };
    let mut measures: BTreeMap<String, f64> = score
        .parts
        .iter()
        .map(|(name, value)| (name.clone(), f64::from(*value)))
        .collect();
    let mut put = |name: &str, value: Option<f64>| {
        measures.extend(value.map(|value| (name.to_owned(), value)));
    };
    let ended = |holds: bool| Some(f64::from(u8::from(holds)));
    let count = |count: usize| Some(count as f64);
    let tokens = &episode.tokens;
    let response = tokens.len() - tokens.count(Provenance::Prompt);
    let ending = &episode.ending;
    put("reward", Some(f64::from(score.total)));
    let excess = score.published_excess().map(f64::from);
    put("published_excess", excess);
    put(
        "published_differs",
        excess.and_then(|excess| ended(excess.abs() > SAME_PAY)),
    );
    put("answered", ended(*ending == Ending::Answered));
    put(
        "truncated",
        ended(matches!(ending, Ending::Truncated { .. })),
    );
    put(
        "malformed",
        ended(matches!(ending, Ending::Malformed { .. })),
    );
    put("searches", count(episode.searches()));
    put("turns", count(episode.turns.len()));
    put("policy_tokens", count(tokens.count(Provenance::Policy)));
    put("response_tokens", count(response));
    put("episode_tokens", count(tokens.len()));
    put("invalid_actions", invalid_share(episode));
    put("repeated_queries", repeated_share(episode));
    put(
        "give_up_rate",
        episode
            .answer()
            .and_then(|answer| ended(is_give_up(answer))),
    );
    for entry in environments() {
        (entry.measures)(episode, &mut |name, value| put(name, Some(value)));
    }
    measures
}

/// The range of scores and shares.
const UNIT: [f32; 2] = [0.0, 1.0];

/// Returns true for a measure between 0 and 1, and so for no count, no cost and no piece of a reward.
pub(crate) fn is_share(name: &str) -> bool {
    match find(name) {
        // An episode does not say between what its total may lie; one that is 0 or 1 on every question most likely pays for being right.
        Some(metric) => ["score", "share"].contains(&metric.unit) || metric.name == "reward",
        None => rewards().any(|reward| reward.name == name && reward.range == UNIT),
    }
}

/// Position of a measure in tables: the known ones first, the others after them by name.
pub(crate) fn display_rank(name: &str) -> (usize, &str) {
    let place = known().position(|metric| metric.name == name);
    (place.unwrap_or(usize::MAX), name)
}

/// The metric that a breakdown is shown of, among those there are: exact match, or NDCG where episodes end in rankings.
pub(crate) fn headline<T>(metrics: &BTreeMap<String, T>) -> &'static str {
    [Outcome::Answer, Outcome::Ranking]
        .map(Outcome::measure)
        .into_iter()
        .find(|measure| metrics.contains_key(*measure))
        .unwrap_or("reward")
}

/// Metrics of answers to questions: an environment that pays by rules of its own may have no use for them.
pub(crate) const OF_ANSWERS: [&str; 5] = ["em", "sub_em", "f1", "format", "retrieval"];

/// `measure`, or the reward where the environment pays for turns (`return`) and no episode earned any of the measure.
pub(crate) fn or_reward(measure: &'static str, pays_turns: bool, is_earned: bool) -> &'static str {
    if pays_turns && !is_earned {
        "reward"
    } else {
        measure
    }
}

/// The measure that studies and verdicts speak of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Headline {
    /// Exact match.
    #[default]
    Answer,
    /// NDCG@10.
    #[serde(alias = "query")]
    Ranking,
    /// The reward.
    Reward,
}

impl Headline {
    /// The measure of these sets of episodes, of which the first is the start's, by the rule of [`or_reward`].
    pub(crate) fn of<'a>(sets: impl IntoIterator<Item = &'a [Episode]>) -> Self {
        let sets: Vec<&[Episode]> = sets.into_iter().collect();
        let outcome = sets
            .first()
            .map_or_else(Outcome::default, |start| Outcome::of(start));
        let measure = outcome.measure();
        let parts = || sets.iter().copied().flatten().filter_map(score);
        let pays_turns = parts().any(|score| score.parts.contains_key("return"));
        let earned = |score: &Score| score.parts.get(measure).is_some_and(|part| *part > 0.0);
        if or_reward(measure, pays_turns, parts().any(earned)) != measure {
            return Self::Reward;
        }
        match outcome {
            Outcome::Answer => Self::Answer,
            Outcome::Ranking => Self::Ranking,
        }
    }

    /// Its name among the measures.
    pub(crate) fn measure(self) -> &'static str {
        match self {
            Self::Answer => Outcome::Answer.measure(),
            Self::Ranking => Outcome::Ranking.measure(),
            Self::Reward => "reward",
        }
    }

    /// [`Self::measure`] in words, and in short.
    pub(crate) fn words(self) -> [&'static str; 2] {
        match self {
            Self::Answer => Outcome::Answer.words(),
            Self::Ranking => Outcome::Ranking.words(),
            Self::Reward => ["reward", "reward"],
        }
    }
}

/// Episodes by question, questions in order of their keys.
pub(crate) fn by_question<'a>(
    episodes: impl IntoIterator<Item = &'a Episode>,
) -> BTreeMap<QuestionKey, Vec<&'a Episode>> {
    let mut questions: BTreeMap<QuestionKey, Vec<&Episode>> = BTreeMap::new();
    for episode in episodes {
        questions
            .entry(QuestionKey::of(episode))
            .or_default()
            .push(episode);
    }
    questions
}

/// The name of each question's data set; where the questions are of several splits, of its data set and split, `nq, dev`.
pub(crate) fn sources(
    questions: &BTreeMap<QuestionKey, Vec<&Episode>>,
) -> BTreeMap<QuestionKey, String> {
    let first = |(key, episodes): (&QuestionKey, &Vec<&Episode>)| {
        Some((key.clone(), episodes.first()?.task.split))
    };
    let splits: BTreeMap<QuestionKey, Split> = questions.iter().filter_map(first).collect();
    let several = splits.values().collect::<BTreeSet<_>>().len() > 1;
    let named = |(key, split): (QuestionKey, Split)| {
        let source = match key.data_source.as_str() {
            "" => "unnamed",
            source => source,
        };
        let name = if several {
            format!("{source}, {}", split_name(split))
        } else {
            source.to_owned()
        };
        (key, name)
    };
    splits.into_iter().map(named).collect()
}

fn split_name(split: Split) -> &'static str {
    match split {
        Split::Train => "train",
        Split::Dev => "dev",
        Split::Test => "test",
    }
}

/// Values per metric and question: `clusters[metric][question]` lists its samples. Questions without a value of a metric
/// are absent from it, infrastructure faults everywhere.
pub(crate) fn clusters(
    questions: &BTreeMap<QuestionKey, Vec<&Episode>>,
) -> BTreeMap<String, BTreeMap<QuestionKey, Vec<f64>>> {
    let mut metrics: BTreeMap<String, BTreeMap<QuestionKey, Vec<f64>>> = BTreeMap::new();
    for (key, episodes) in questions {
        for (name, value) in episodes
            .iter()
            .flat_map(|episode| episode_measures(episode))
        {
            metrics
                .entry(name)
                .or_default()
                .entry(key.clone())
                .or_default()
                .push(value);
        }
    }
    metrics
}

fn invalid_share(episode: &Episode) -> Option<f64> {
    let invalid = episode
        .turns
        .iter()
        .filter(|turn| turn.kind.is_invalid())
        .count();
    ratio(invalid, episode.turns.len())
}

fn repeated_share(episode: &Episode) -> Option<f64> {
    let mut seen = BTreeSet::new();
    let mut searches = 0;
    for query in episode.queries() {
        searches += 1;
        seen.insert(
            query
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .to_lowercase(),
        );
    }
    ratio(searches - seen.len(), searches)
}

fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use forage_contracts::STEP_METRICS;

    use super::*;

    fn row(metric: &Metric) -> String {
        let Metric {
            name,
            unit,
            over,
            better,
            about,
        } = metric;
        format!("| `{name}` | {unit} | {over} | {better} | {about} |")
    }

    #[test]
    fn the_guide_has_a_row_for_every_metric() {
        let page = include_str!("../../docs/metrics.md");
        let written: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        let declared = environments().flat_map(|entry| entry.declares);
        let expected: Vec<String> = STEP_METRICS
            .iter()
            .chain(declared)
            .chain(MEASURES)
            .map(row)
            .collect();
        assert_eq!(
            written,
            expected,
            "the rows of docs/metrics.md, in their order, should be\n{}",
            expected.join("\n")
        );
    }

    #[test]
    fn every_reward_that_is_always_computed_is_a_measure() {
        for reward in rewards().filter(|reward| reward.always) {
            assert!(
                MEASURES.iter().any(|measure| measure.name == reward.name),
                "{}",
                reward.name
            );
        }
    }
}
