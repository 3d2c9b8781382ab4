//! Curves over `k`, and two policies' curves side by side.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use super::{Attempts, attempts_by_question, majority_at_k, most_samples, pass_at_k};
use crate::compare::interval_words;
use crate::measures::QuestionKey;
use crate::pool::{Scores, by_asked, over_seeds, paired_p};
use crate::stats::{Bootstrap, Interval, StatsError, mean_interval};
use crate::text::{self, figure, signed};

/// The property that `k` samples of a question are tested for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtK {
    /// One right answer among them ([`pass_at_k`]).
    Pass,
    /// A right answer by vote ([`majority_at_k`]).
    Majority,
}

impl AtK {
    /// The value of each question that has as many samples.
    fn values(self, questions: &[Attempts], k: usize, seed: u64) -> Vec<f64> {
        let value = |(question, attempts): (usize, &Attempts)| match self {
            Self::Pass => pass_at_k(attempts.samples(), attempts.correct(), k),
            Self::Majority => majority_at_k(attempts, k, seed.wrapping_add(question as u64)),
        };
        questions.iter().enumerate().filter_map(value).collect()
    }
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CurvePoint {
    /// Samples per question.
    pub k: usize,
    /// Questions that have as many: all but the few of which faults took some.
    #[serde(default)]
    pub questions: usize,
    /// Mean over questions with its interval over questions.
    pub value: Interval,
    /// Two-sided p-value, of the difference of two curves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
}

impl CurvePoint {
    /// The mean of the values of the questions that have `k` samples.
    ///
    /// # Errors
    /// [`StatsError`] for no values and settings out of range.
    pub(super) fn of(k: usize, values: &[f64], settings: Bootstrap) -> Result<Self, StatsError> {
        Ok(Self {
            k,
            questions: values.len(),
            value: mean_interval(values, settings)?,
            p: None,
        })
    }
}

/// pass@k or maj@k at 1, 2, 4, ... up to [`most_samples`]; empty where that is below 2.
///
/// # Errors
/// [`StatsError`] for settings out of range.
pub(crate) fn curve(
    at_k: AtK,
    questions: &[Attempts],
    settings: Bootstrap,
) -> Result<Vec<CurvePoint>, StatsError> {
    let most = most_samples(questions.iter().map(Attempts::samples));
    if most < 2 {
        return Ok(Vec::new());
    }
    let point = |k: usize| CurvePoint::of(k, &at_k.values(questions, k, settings.seed), settings);
    doublings(most).into_iter().map(point).collect()
}

/// 1, 2, 4, ... and `most` itself: the usual places of a curve. Empty for 0.
pub(super) fn doublings(most: usize) -> Vec<usize> {
    let below =
        std::iter::successors(Some(1_usize), |k| k.checked_mul(2)).take_while(|k| *k < most);
    below.chain((most > 0).then_some(most)).collect()
}

/// The effect of training on pass@k, as far as interval and test show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    /// Higher at the largest `k`: questions are solved that the same number of samples did not solve before.
    Capability,
    /// The same where the first curve still rises: more samples may solve these questions without training.
    MoreSolved,
    /// Higher at `k = 1` and no gain shown at the largest: what many samples found before, one finds now.
    Sharpening,
    /// Higher at `k = 1` and lower at the largest: sharpening that lost answers.
    Narrowing,
    /// No gain shown at either end.
    NoGain,
}

/// Rise over its last doubling from which a curve counts as one that still rises.
const RISE: f64 = 0.01;

/// The last point of a curve and the one of half as many samples.
fn last_doubling(curve: &[CurvePoint]) -> Option<[&CurvePoint; 2]> {
    let last = curve.last()?;
    let half = curve.iter().rfind(|point| 2 * point.k <= last.k)?;
    Some([half, last])
}

/// pass@k of two policies on the same questions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveComparison {
    /// The first policy's curve; of several seeds a question's value is the mean over those that asked it.
    pub(crate) a: Vec<CurvePoint>,
    /// The second policy's curve.
    pub(crate) b: Vec<CurvePoint>,
    /// `b - a` at every `k`, paired by question; of several seeds with the interval of a study's gains.
    pub(crate) differences: Vec<CurvePoint>,
    /// The conclusion from the ends of the curve.
    pub(crate) finding: Finding,
    /// Questions compared, those asked under several seeds counted once.
    pub questions: usize,
    /// The settings of the intervals.
    pub bootstrap: Bootstrap,
}

/// The samples of both policies under one seed, by question.
type Pairs = BTreeMap<QuestionKey, [Attempts; 2]>;

/// The samples that a question has on both sides.
fn in_both(pair: &[Attempts; 2]) -> usize {
    let [a, b] = pair;
    a.samples().min(b.samples())
}

/// pass@k of one side of the pairs that both have `k` samples or more.
fn scores(pairs: &Pairs, side: usize, k: usize) -> Scores {
    let full = pairs.iter().filter(|(_, pair)| in_both(pair) >= k);
    let score = |(asked, pair): (&QuestionKey, &[Attempts; 2])| {
        let attempts = &pair[side];
        let value = pass_at_k(attempts.samples(), attempts.correct(), k)?;
        Some((asked.clone(), value))
    };
    full.filter_map(score).collect()
}

/// Compares pass@k of two policies at 1, 2, 4, ... up to `most`, which is at least 2 and no more than [`most_samples`] of any seed, and
/// reads capability and sharpening from its ends (Yue et al. 2025, arXiv 2504.13837). The finding is about `most` samples and no more:
/// curves may cross beyond.
///
/// # Errors
/// [`StatsError`] for no questions and settings out of range.
fn compare_pass_curves(
    seeds: &[Pairs],
    most: usize,
    settings: Bootstrap,
) -> Result<CurveComparison, StatsError> {
    let mut curves = [Vec::new(), Vec::new()];
    let (mut differences, mut shown) = (Vec::new(), Vec::new());
    for k in doublings(most) {
        let sides = [0, 1].map(|side: usize| -> Vec<Scores> {
            seeds.iter().map(|seed| scores(seed, side, k)).collect()
        });
        for (curve, side) in curves.iter_mut().zip(&sides) {
            curve.push(CurvePoint::of(k, &by_asked(side), settings)?);
        }
        let [a, b] = &sides;
        let value = over_seeds(a, b, settings)?;
        let p = paired_p(a, b, settings)?;
        differences.push(CurvePoint {
            k,
            questions: by_asked(a).len(),
            value,
            p: Some(p),
        });
        shown.push(value.shown(p));
    }
    let still_rises = last_doubling(&curves[0])
        .is_some_and(|[half, last]| last.value.estimate - half.value.estimate >= RISE);
    let finding = match (shown.first(), shown.last()) {
        (_, Some(Ordering::Greater)) if still_rises => Finding::MoreSolved,
        (_, Some(Ordering::Greater)) => Finding::Capability,
        (Some(Ordering::Greater), Some(Ordering::Less)) => Finding::Narrowing,
        (Some(Ordering::Greater), _) => Finding::Sharpening,
        _ => Finding::NoGain,
    };
    let [a, b] = curves;
    let asked: BTreeSet<&QuestionKey> = seeds.iter().flat_map(BTreeMap::keys).collect();
    Ok(CurveComparison {
        a,
        b,
        differences,
        finding,
        questions: asked.len(),
        bootstrap: settings,
    })
}

impl CurveComparison {
    /// `compare_pass_curves` of two sets of episodes, over the questions that both have, up to the most samples that nine in ten of them
    /// have in both. `None` with fewer than two, and where nothing is graded by exact match.
    ///
    /// # Errors
    /// [`StatsError`] for settings out of range.
    pub fn of(
        a: &[Episode],
        b: &[Episode],
        settings: Bootstrap,
    ) -> Result<Option<Self>, StatsError> {
        Self::over_seeds([(a, b)], settings)
    }

    /// As [`Self::of`], over several seeds, each with the episodes of both policies. The intervals of the differences are then those of a
    /// study's gains: the wider of Student's over seeds and the bootstrap's over questions.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(crate) fn over_seeds<'a>(
        seeds: impl IntoIterator<Item = (&'a [Episode], &'a [Episode])>,
        settings: Bootstrap,
    ) -> Result<Option<Self>, StatsError> {
        let seeds = seeds.into_iter().map(|(a, b)| paired(a, b));
        let seeds: Vec<Pairs> = seeds.filter(|asked| !asked.is_empty()).collect();
        let most = seeds
            .iter()
            .map(|pairs| most_samples(pairs.values().map(in_both)));
        match most.min() {
            Some(most) if most >= 2 => compare_pass_curves(&seeds, most, settings).map(Some),
            _ => Ok(None),
        }
    }
}

/// The samples of the questions that both sides have.
fn paired(a: &[Episode], b: &[Episode]) -> Pairs {
    let mut others = attempts_by_question(b);
    attempts_by_question(a)
        .into_iter()
        .filter_map(|(key, attempts)| {
            let other = others.remove(&key)?;
            Some((key, [attempts, other]))
        })
        .collect()
}

impl CurveComparison {
    /// The finding in one sentence with its evidence, naming the sides.
    pub fn words(&self, name_a: &str, name_b: &str) -> String {
        let [first, .., last] = self.differences.as_slice() else {
            return String::new();
        };
        let most = last.k;
        let said = match self.finding {
            Finding::Capability => {
                format!(
                    "{name_b} adds capability over {name_a}: it solves more questions within {most} samples"
                )
            }
            Finding::MoreSolved => {
                let rise = last_doubling(&self.a).map(|points| {
                    let [half, last] = points
                        .map(|point| format!("pass@{} {}", point.k, figure(point.value.estimate)));
                    format!(" from {half} to {last}")
                });
                format!(
                    "{name_b} solves more questions than {name_a} within {most} samples; whether it adds capability is open, \
                     because the curve of {name_a} still rises{}",
                    rise.unwrap_or_default()
                )
            }
            Finding::Sharpening => format!(
                "{name_b} sharpens {name_a}: one sample is right more often, but no gain can be shown within {most} samples"
            ),
            Finding::Narrowing => format!(
                "{name_b} sharpens {name_a} and narrows it: one sample is right more often, but {most} samples solve fewer \
                 questions"
            ),
            Finding::NoGain => format!(
                "No gain of {name_b} over {name_a} can be shown, in one sample or in {most}"
            ),
        };
        let mut letters = said.chars();
        let initial = letters
            .next()
            .map(|letter| letter.to_uppercase().to_string());
        let said = initial.unwrap_or_default() + letters.as_str();
        let (one, many) = (self.evidence(first), self.evidence(last));
        format!("{said} ({one}; {many}; n = {} questions).", self.questions)
    }

    /// `pass@8 +0.10, 95 % interval +0.02 to +0.18, p = 0.012`; `pass@8 of 499 questions +0.10, ...` where faults took samples of others.
    fn evidence(&self, point: &CurvePoint) -> String {
        let (k, gain) = (point.k, signed(point.value.estimate));
        let some = (1..self.questions).contains(&point.questions);
        let of = some.then(|| format!(" of {} questions", point.questions));
        let of = of.unwrap_or_default();
        let interval = interval_words(point.value, self.bootstrap.confidence);
        let p = point.p.map(|p| format!(", p {}", text::p_value(p)));
        format!("pass@{k}{of} {gain}, {interval}{}", p.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 1000,
        confidence: 0.95,
        seed: 2,
    };

    /// Questions of 16 samples, of which so many are right.
    fn questions(correct: impl Fn(usize) -> usize) -> Vec<Attempts> {
        let question = |index| Attempts {
            right: vec![correct(index)],
            wrong: vec![16 - correct(index)],
            blank: 0,
        };
        (0..100).map(question).collect()
    }

    /// The same questions under each of so many seeds.
    fn compared(
        seeds: usize,
        a: &[Attempts],
        b: &[Attempts],
    ) -> Result<CurveComparison, StatsError> {
        let asked = |id: usize| QuestionKey {
            data_source: String::new(),
            id: id.to_string(),
            question: String::new(),
        };
        let both = a.iter().cloned().zip(b.iter().cloned());
        let pairs: Pairs = (0..)
            .map(asked)
            .zip(both.map(<[Attempts; 2]>::from))
            .collect();
        compare_pass_curves(&vec![pairs; seeds], 16, SETTINGS)
    }

    fn finding(a: &[Attempts], b: &[Attempts]) -> Result<Finding, StatsError> {
        compared(1, a, b).map(|found| found.finding)
    }

    #[test]
    fn capability_is_told_from_sharpening() -> Result<(), StatsError> {
        // Half of the questions are solved now and then, the others never.
        let start = questions(|index| 2 * (index % 2));
        assert_eq!(
            finding(&start, &questions(|index| 8 * (index % 2)))?,
            Finding::Sharpening
        );
        assert_eq!(
            finding(
                &start,
                &questions(|index| 2 * (index % 2) + usize::from(index % 3 == 0))
            )?,
            Finding::MoreSolved
        );
        let flat = questions(|index| 16 * (index % 2));
        assert_eq!(
            finding(
                &flat,
                &questions(|index| 16 * (index % 2) + 8 * usize::from(index % 6 == 0))
            )?,
            Finding::Capability
        );
        assert_eq!(
            finding(&start, &questions(|index| 16 * usize::from(index % 4 == 1)))?,
            Finding::Narrowing
        );
        assert_eq!(finding(&start, &start)?, Finding::NoGain);
        Ok(())
    }

    #[test]
    fn the_finding_is_said_with_its_evidence() -> Result<(), StatsError> {
        let found = compared(
            1,
            &questions(|index| 2 * (index % 2)),
            &questions(|index| 8 * (index % 2)),
        )?;
        let words = found.words("the start", "the trained policy");
        assert!(
            words.starts_with(
                "The trained policy sharpens the start: one sample is right more often"
            ),
            "{words}"
        );
        assert!(
            words.contains("pass@1 +0.19") && words.contains("pass@16 +0.00"),
            "{words}"
        );
        assert!(words.ends_with("n = 100 questions)."), "{words}");
        Ok(())
    }

    /// The start solves 60 questions of 100 with 1 of 16 samples each, and 30 of them with 8 samples: with more it may solve others.
    #[test]
    fn a_start_that_still_rises_leaves_capability_open() -> Result<(), StatsError> {
        let start = questions(|index| usize::from(index < 60));
        let words = compared(1, &start, &questions(|_| 8))?.words("the start", "B");
        assert!(
            words.starts_with(
                "B solves more questions than the start within 16 samples; whether it adds capability is open, because the curve of \
                 the start still rises from pass@8 0.30 to pass@16 0.60 (pass@1 +0.46,"
            ),
            "{words}"
        );
        Ok(())
    }

    /// Percentile ends of +0.01 to +0.10 leave 0 out where 5 of 100 questions are solved that were not, but of 5 differences all have one
    /// sign by chance in 2 of 32 cases, of 6 in 2 of 64.
    #[test]
    fn capability_takes_a_test_as_well() -> Result<(), StatsError> {
        let none = questions(|_| 0);
        let some = |count: usize| questions(move |index| usize::from(index < count));
        let five = compared(1, &none, &some(5))?;
        assert!(
            five.differences
                .iter()
                .all(|point| point.value.is_positive())
        );
        assert_eq!(five.finding, Finding::NoGain);
        let words = five.words("A", "B");
        assert_eq!(words.matches(", p = 0.062").count(), 2, "{words}");
        assert_eq!(finding(&none, &some(6))?, Finding::Capability);
        Ok(())
    }

    /// The questions of one seed, asked again under four others with the same outcome, are no further questions.
    #[test]
    fn a_question_of_several_seeds_counts_once() -> Result<(), StatsError> {
        let (start, trained) = (
            questions(|index| 2 * (index % 2)),
            questions(|index| 8 * (index % 2)),
        );
        let (one, five) = (
            compared(1, &start, &trained)?,
            compared(5, &start, &trained)?,
        );
        assert_eq!((one.questions, five.questions), (100, 100));
        for (one, five) in one.a.iter().chain(&one.b).zip(five.a.iter().chain(&five.b)) {
            for (one, five) in one.value.ends().into_iter().zip(five.value.ends()) {
                assert!((one - five).abs() < 1e-9, "{one} {five}");
            }
        }
        Ok(())
    }

    #[test]
    fn curves_need_several_samples() -> Result<(), StatsError> {
        assert_eq!(curve(AtK::Pass, &[], SETTINGS), Ok(Vec::new()));
        let one = Attempts {
            right: vec![1],
            ..Attempts::default()
        };
        assert_eq!(curve(AtK::Pass, &[one], SETTINGS), Ok(Vec::new()));
        let majority = curve(AtK::Majority, &questions(|index| index % 2), SETTINGS)?;
        let ks: Vec<usize> = majority.iter().map(|point| point.k).collect();
        assert_eq!(ks, [1, 2, 4, 8, 16]);
        assert!(
            (majority[0].value.estimate - 1.0 / 32.0).abs() < 1e-12
                && majority[2].value.estimate < 1e-12
        );
        Ok(())
    }

    /// A fault took the last sample of the first question, and all but two of the second.
    #[test]
    fn a_lost_sample_does_not_shorten_the_curves() -> Result<(), StatsError> {
        let mut left = questions(|_| 4);
        left[0].wrong = vec![11];
        (left[1].right, left[1].wrong) = (vec![1], vec![1]);
        let found = curve(AtK::Pass, &left, SETTINGS)?;
        let of: Vec<_> = found
            .iter()
            .map(|point| (point.k, point.questions))
            .collect();
        assert_eq!(of, [(1, 100), (2, 100), (4, 99), (8, 99), (16, 98)]);
        let once = (98.0 * 4.0 / 16.0 + 4.0 / 15.0 + 0.5) / 100.0;
        assert!((found[0].value.estimate - once).abs() < 1e-12);
        let found = compared(1, &left, &questions(|_| 4))?;
        let of: Vec<_> = found.b.iter().map(|point| point.questions).collect();
        assert_eq!(of, [100, 100, 99, 99, 98], "both sides have the same");
        let words = found.words("A", "B");
        assert!(words.contains("pass@16 of 98 questions +0.00"), "{words}");
        assert!(!words.contains("pass@1 of"), "{words}");
        assert_eq!(most_samples([64, 64, 8].into_iter()), 8);
        let most =
            |few: usize| most_samples((0..100).map(|index| if index < few { 8 } else { 64 }));
        assert_eq!((most(10), most(11)), (64, 8));
        Ok(())
    }

    #[test]
    fn doublings_end_at_the_most() {
        assert_eq!(doublings(1), [1]);
        assert_eq!(doublings(8), [1, 2, 4, 8]);
        assert_eq!(doublings(10), [1, 2, 4, 8, 10]);
        assert!(doublings(0).is_empty());
    }
}
