//! Two policies on the same questions.

mod words;

pub(crate) use words::{SMALL_N, few_questions, interval_words, test_words};

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use forage_contracts::{Episode, suggestion};
use serde::{Deserialize, Serialize};

use crate::measures::{QuestionKey, better, by_question, clusters, sources};
use crate::stats::{
    Bootstrap, Interval, NonInferiority, StatsError, holm, macro_average, mcnemar_exact, mean,
    minimum_detectable_effect, paired_bootstrap, paired_permutation,
};

/// Chance of seeing a true effect of the minimum detectable size.
const POWER: f64 = 0.8;

/// One metric on both sides, over the questions that have it on both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Mean of the first side.
    pub a: f64,
    /// Mean of the second side.
    pub b: f64,
    /// Mean of `b - a` with its paired bootstrap interval over questions.
    pub difference: Interval,
    /// Questions compared.
    pub questions: usize,
    /// Smallest true difference these questions would show with a probability of 80 %; absent where fewer than
    /// five of them differ.
    pub minimum_detectable_effect: Option<f64>,
    /// Two-sided sign-flip test over questions.
    #[serde(default)]
    pub p: f64,
    /// The p-value after Holm's adjustment for the number of metrics compared.
    #[serde(default)]
    pub p_adjusted: f64,
    /// The p-value after Holm's adjustment for the number of policies, of a metric in which several are compared with the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_of_several: Option<f64>,
}

impl Difference {
    /// The direction in which B is shown to differ from A, by the interval and by the test, adjusted where there are several such
    /// policies. `Equal` says that neither is shown.
    pub fn direction(&self) -> Ordering {
        self.difference.shown(self.p_of_direction())
    }

    /// The p-value that decides whether a difference is shown.
    pub(crate) fn p_of_direction(&self) -> f64 {
        self.p_of_several.unwrap_or(self.p)
    }
}

/// One metric on both sides, averaged over data sets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MacroDifference {
    /// Mean of the first side.
    pub a: f64,
    /// Mean of the second side.
    pub b: f64,
    /// Mean of the data sets' differences, with the interval that theirs recover.
    pub difference: Interval,
    /// Data sets that have the metric.
    pub sources: usize,
}

/// Exact `McNemar` test on exact match.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct McNemar {
    /// Questions only the first side answers.
    pub only_a: u64,
    /// Questions only the second side answers.
    pub only_b: u64,
    /// Two-sided p-value.
    pub p: f64,
}

/// The gain of `b` over `a`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Every metric both sides have.
    pub metrics: BTreeMap<String, Difference>,
    /// The same by data set (and split, as [`EvalSummary`](crate::EvalSummary) has it), where there are several; p-values are
    /// adjusted within each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) by_source: BTreeMap<String, BTreeMap<String, Difference>>,
    /// Means over the data sets that have a metric, each counted once, where there are several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) macro_average: BTreeMap<String, MacroDifference>,
    /// The exact test on right and wrong answers ([`McNemar`]); absent when questions have several samples or there is no `em`.
    pub(crate) mcnemar: Option<McNemar>,
    /// Questions with a scored episode on both sides.
    pub questions: usize,
    /// Questions asked on both sides that infrastructure faults left without a score on at least one.
    pub lost_to_infra: usize,
    /// Questions that the two sides were asked in other words: their prompts differ.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) other_prompts: usize,
    /// Questions whose accepted answers differ between the two sides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) other_golds: usize,
    /// Whether counts of tokens are bytes, on each side.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) in_bytes: [bool; 2],
    /// The temperatures that the sides were drawn at, 0 where greedily; absent where they are the same or not recorded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) temperatures: Option<[f32; 2]>,
    /// The settings of the intervals.
    pub bootstrap: Bootstrap,
}

/// Tells whether a value is the default of its type, which records leave out.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Two sets of episodes that cannot be compared.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// They answer different questions.
    #[error(
        "the two sets answer different questions: {missing_in_b} of A's are missing in B, {missing_in_a} of B's are \
         missing in A (for example {example}){}",
        likely_cause(*missing_in_a, *missing_in_b)
    )]
    Questions {
        /// Questions of the second set that the first lacks.
        missing_in_a: usize,
        /// Questions of the first set that the second lacks.
        missing_in_b: usize,
        /// Some of them, with what they ask.
        example: String,
    },
    /// There is nothing on one side.
    #[error("there are no episodes to compare")]
    Empty,
    /// No question has a scored episode on both sides.
    #[error(
        "no question has a scored episode on both sides: {infra} were lost to infrastructure faults"
    )]
    NothingScored {
        /// Questions lost.
        infra: usize,
    },
    /// A data set has no question with a scored episode on every side.
    #[error(
        "no question of {data_set} has a scored episode on every side; play those that infrastructure faults ended again"
    )]
    DataSet {
        /// Its name.
        data_set: String,
    },
    /// The metric asked for is missing.
    #[error("no episode has a score part named {0}")]
    NoMetric(&'static str),
    /// The metric of a margin is missing.
    #[error("the two sets share no metric `{metric}`; {suggestion}")]
    NoMargin {
        /// The metric that was asked for.
        metric: String,
        /// The nearest that they share, or all of them.
        suggestion: String,
    },
    /// The statistics failed.
    #[error(transparent)]
    Stats(#[from] StatsError),
}

/// The likely reason why questions are missing on one side alone.
fn likely_cause(missing_in_a: usize, missing_in_b: usize) -> &'static str {
    match (missing_in_a, missing_in_b) {
        (0, _) => "; B has a part of A's: evaluate both with the same --limit",
        (_, 0) => "; A has a part of B's: evaluate both with the same --limit",
        _ => "",
    }
}

impl Comparison {
    /// Compares two sets of episodes question by question (see [`QuestionKey`]); several samples per question are allowed.
    ///
    /// # Errors
    /// [`CompareError`] when the sets answer different questions or no question was scored on both sides.
    pub fn from_episodes(
        a: &[Episode],
        b: &[Episode],
        bootstrap: Bootstrap,
    ) -> Result<Self, CompareError> {
        let (questions_a, questions_b) = (by_question(a), by_question(b));
        if a.is_empty() && b.is_empty() {
            return Err(CompareError::Empty);
        }
        check_same_questions(&questions_a, &questions_b)?;
        let (clusters_a, clusters_b) = (clusters(&questions_a), clusters(&questions_b));
        let metrics = compare_all([&clusters_a, &clusters_b], |_| true, bootstrap)?;
        let by_source = compare_sources(&questions_a, [&clusters_a, &clusters_b], bootstrap)?;
        let questions = metrics.get("reward").map_or(0, |reward| reward.questions);
        let lost_to_infra = questions_a.len() - questions;
        if questions == 0 {
            return Err(CompareError::NothingScored {
                infra: lost_to_infra,
            });
        }
        let mcnemar = clusters_a
            .get("em")
            .zip(clusters_b.get("em"))
            .and_then(|(a, b)| mcnemar(a, b));
        Ok(Self {
            metrics,
            macro_average: average(&by_source),
            by_source,
            mcnemar,
            questions,
            lost_to_infra,
            other_prompts: differing(&questions_a, &questions_b, |first| first.prompt.clone()),
            other_golds: differing(&questions_a, &questions_b, |first| {
                let golds = first.task.golds.iter().cloned();
                golds.collect::<BTreeSet<String>>()
            }),
            in_bytes: [a, b].map(|side| side.first().is_some_and(Episode::is_in_bytes)),
            temperatures: temperature(a)
                .zip(temperature(b))
                .filter(|(a, b)| (a - b).abs() > f32::EPSILON)
                .map(|(a, b)| [a, b]),
            bootstrap,
        })
    }

    /// Tests that the second side is worse than the first by less than `margin`, in the metric's unit.
    ///
    /// # Errors
    /// [`CompareError::NoMargin`] where there is no such metric, and [`StatsError::Margin`].
    pub fn non_inferiority(
        &self,
        metric: &str,
        margin: f64,
    ) -> Result<NonInferiority, CompareError> {
        let known = || self.metrics.keys().map(String::as_str);
        let found = self
            .metrics
            .get(metric)
            .ok_or_else(|| CompareError::NoMargin {
                metric: metric.to_owned(),
                suggestion: suggestion(metric, known()),
            })?;
        Ok(NonInferiority::of(
            found.difference,
            (found.questions, self.bootstrap.confidence),
            margin,
            better(metric),
        )?)
    }

    /// The difference in one metric.
    pub fn difference(&self, metric: &str) -> Option<&Difference> {
        self.metrics.get(metric)
    }
}

/// Most questions that an error names.
const EXAMPLES: usize = 3;

/// Episodes by question.
pub(crate) type Asked<'a> = BTreeMap<QuestionKey, Vec<&'a Episode>>;
/// Values by question.
pub(crate) type Values = BTreeMap<QuestionKey, Vec<f64>>;

pub(crate) fn check_same_questions(a: &Asked<'_>, b: &Asked<'_>) -> Result<(), CompareError> {
    let keys_a: BTreeSet<&QuestionKey> = a.keys().collect();
    let keys_b: BTreeSet<&QuestionKey> = b.keys().collect();
    let missing_in_b = keys_a.difference(&keys_b).count();
    let missing_in_a = keys_b.difference(&keys_a).count();
    let name = |key: &&QuestionKey| format!("{}/{}, {:?}", key.data_source, key.id, key.question);
    let examples: Vec<String> = keys_a
        .symmetric_difference(&keys_b)
        .take(EXAMPLES)
        .map(name)
        .collect();
    if examples.is_empty() {
        return Ok(());
    }
    Err(CompareError::Questions {
        missing_in_a,
        missing_in_b,
        example: examples.join("; "),
    })
}

/// The temperature of the first tokens whose drawing is recorded, 0 where greedy.
fn temperature(episodes: &[Episode]) -> Option<f32> {
    let mut spans = episodes.iter().flat_map(|episode| episode.tokens.spans());
    let sampling = spans.find_map(|span| span.sampling)?;
    Some(if sampling.is_greedy() {
        0.0
    } else {
        sampling.temperature
    })
}

/// Counts the questions of which the first episodes differ in a value.
fn differing<T: PartialEq>(a: &Asked<'_>, b: &Asked<'_>, value: impl Fn(&Episode) -> T) -> usize {
    let first = |episodes: &Vec<&Episode>| episodes.first().map(|first| value(first));
    a.iter()
        .filter(|(key, of_a)| b.get(*key).is_some_and(|of_b| first(of_a) != first(of_b)))
        .count()
}

/// Compares every metric over the questions that both sides have and that are to be kept.
pub(crate) fn compare_all(
    [a, b]: [&BTreeMap<String, Values>; 2],
    keep: impl Fn(&QuestionKey) -> bool,
    bootstrap: Bootstrap,
) -> Result<BTreeMap<String, Difference>, StatsError> {
    let mut metrics = BTreeMap::new();
    for (name, values_a) in a {
        let Some(values_b) = b.get(name) else {
            continue;
        };
        if let Some(difference) = compare_metric(values_a, values_b, &keep, bootstrap)? {
            metrics.insert(name.clone(), difference);
        }
    }
    adjust(&mut metrics)?;
    Ok(metrics)
}

/// Compares each data set by itself, where there are several.
pub(crate) fn compare_sources(
    asked: &Asked<'_>,
    sides: [&BTreeMap<String, Values>; 2],
    bootstrap: Bootstrap,
) -> Result<BTreeMap<String, BTreeMap<String, Difference>>, StatsError> {
    let names = sources(asked);
    let distinct: BTreeSet<&String> = names.values().collect();
    if distinct.len() < 2 {
        return Ok(BTreeMap::new());
    }
    let mut found = BTreeMap::new();
    for source in distinct {
        let of = |key: &QuestionKey| names.get(key) == Some(source);
        let metrics = compare_all(sides, of, bootstrap)?;
        // Faults may have left nothing of it.
        if !metrics.is_empty() {
            found.insert(source.clone(), metrics);
        }
    }
    if found.len() < 2 {
        found.clear();
    }
    Ok(found)
}

/// The macro average of each metric over the data sets that have it.
pub(crate) fn average(
    by_source: &BTreeMap<String, BTreeMap<String, Difference>>,
) -> BTreeMap<String, MacroDifference> {
    let mut found: BTreeMap<&String, Vec<&Difference>> = BTreeMap::new();
    for (name, difference) in by_source.values().flatten() {
        found.entry(name).or_default().push(difference);
    }
    let average = |(name, found): (&String, Vec<&Difference>)| {
        let side = |value: fn(&Difference) -> f64| {
            mean(&found.iter().map(|found| value(found)).collect::<Vec<_>>())
        };
        let intervals: Vec<Interval> = found.iter().map(|found| found.difference).collect();
        let average = MacroDifference {
            a: side(|found| found.a),
            b: side(|found| found.b),
            difference: macro_average(&intervals)?,
            sources: found.len(),
        };
        Some((name.clone(), average))
    };
    found.into_iter().filter_map(average).collect()
}

/// Compares one metric over the questions both sides have; `None` when there are none.
fn compare_metric(
    a: &Values,
    b: &Values,
    keep: impl Fn(&QuestionKey) -> bool,
    bootstrap: Bootstrap,
) -> Result<Option<Difference>, StatsError> {
    let (means_a, means_b): (Vec<f64>, Vec<f64>) = a
        .iter()
        .filter(|(key, _)| keep(key))
        .filter_map(|(key, values)| Some((mean(values), mean(b.get(key)?))))
        .unzip();
    if means_a.is_empty() {
        return Ok(None);
    }
    let differences: Vec<f64> = means_a.iter().zip(&means_b).map(|(a, b)| b - a).collect();
    let p = paired_permutation(&means_a, &means_b, bootstrap.resamples, bootstrap.seed)?;
    Ok(Some(Difference {
        a: mean(&means_a),
        b: mean(&means_b),
        difference: paired_bootstrap(&means_a, &means_b, bootstrap)?,
        questions: means_a.len(),
        minimum_detectable_effect: minimum_detectable_effect(
            &differences,
            bootstrap.confidence,
            POWER,
        ),
        p,
        p_adjusted: p,
        p_of_several: None,
    }))
}

/// Holm's adjustment of the tests in a metric over policies that are compared with the same one.
pub(crate) fn adjust_several(compared: &mut [Comparison], metric: &str) -> Result<(), StatsError> {
    let found = compared.iter_mut();
    let found = found.filter_map(|one| one.metrics.get_mut(metric));
    let mut found: Vec<&mut Difference> = found.collect();
    let adjusted = holm(&found.iter().map(|found| found.p).collect::<Vec<_>>())?;
    found
        .iter_mut()
        .zip(adjusted)
        .for_each(|(found, p)| found.p_of_several = Some(p));
    Ok(())
}

/// Holm's adjustment over all metrics.
fn adjust(metrics: &mut BTreeMap<String, Difference>) -> Result<(), StatsError> {
    let adjusted = holm(&metrics.values().map(|found| found.p).collect::<Vec<_>>())?;
    metrics
        .values_mut()
        .zip(adjusted)
        .for_each(|(found, p)| found.p_adjusted = p);
    Ok(())
}

/// `None` unless every shared question has exactly one sample on each side.
fn mcnemar(a: &Values, b: &Values) -> Option<McNemar> {
    let (mut only_a, mut only_b) = (0, 0);
    for (key, values) in a {
        let Some(others) = b.get(key) else { continue };
        let ([left], [right]) = (values.as_slice(), others.as_slice()) else {
            return None;
        };
        only_a += u64::from(*left > 0.5 && *right <= 0.5);
        only_b += u64::from(*right > 0.5 && *left <= 0.5);
    }
    Some(McNemar {
        only_a,
        only_b,
        p: mcnemar_exact(only_a, only_b),
    })
}
