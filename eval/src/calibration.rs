//! Calibration: stated certainties against the share of right answers.

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use crate::measures::exact_match;
use crate::stats::{Bootstrap, Interval, StatsError, bootstrap_mean};

/// Bins of equal width that stated certainties fall into.
const BINS: usize = 10;

/// One bin of the reliability diagram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bin {
    /// Answers in it.
    pub answers: usize,
    /// Mean of the certainties stated.
    pub stated: f64,
    /// Share that is right.
    pub right: f64,
}

/// Stated certainties against what was right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calibration {
    /// Answers judged.
    pub answers: usize,
    /// Brier score (1950), the mean of `(stated - right)^2`, with its interval: 0 is perfect, 0.25 what stating 0.5 always gives.
    pub brier: Interval,
    /// Expected calibration error (Naeini et al. 2015): mean over answers of the gap between `stated` and `right` of their
    /// bin. It is above 0 by chance alone, the more so the fewer answers a bin has, and so has no interval here.
    pub ece: f64,
    /// The bins with answers, from the least certain on; edges belong to the bin below.
    pub bins: Vec<Bin>,
}

impl Calibration {
    /// Compares the certainty stated with each answer, in `[0, 1]`, with whether it is right. One answer per question: the
    /// interval takes them as independent.
    ///
    /// # Errors
    /// [`StatsError`] for no answers, a certainty outside `[0, 1]` and settings out of range.
    pub(crate) fn of(answers: &[(f64, bool)], settings: Bootstrap) -> Result<Self, StatsError> {
        if let Some(index) = answers
            .iter()
            .position(|(stated, _)| !(0.0..=1.0).contains(stated))
        {
            return Err(StatsError::Probability {
                index,
                value: answers[index].0,
            });
        }
        let errors: Vec<f64> = answers
            .iter()
            .map(|(stated, right)| (stated - value(*right)).powi(2))
            .collect();
        let brier = bootstrap_mean(&errors, settings)?;
        let bins = bins(answers);
        let gaps = bins
            .iter()
            .map(|bin| bin.answers as f64 * (bin.stated - bin.right).abs());
        Ok(Self {
            answers: answers.len(),
            brier,
            ece: gaps.sum::<f64>() / answers.len() as f64,
            bins,
        })
    }
}

/// The certainty stated with an episode's answer, and whether the answer is right (`em` is 1): the last
/// `<confidence>...</confidence>` of the turn that answers, a number in `[0, 1]` or a percentage. `None` where nothing of the
/// kind is stated.
pub(crate) fn stated(episode: &Episode) -> Option<(f64, bool)> {
    let em = exact_match(episode)?;
    episode.answer()?;
    let turn = &episode.turns.last()?.policy;
    let (_, rest) = turn.rsplit_once("<confidence>")?;
    let (written, _) = rest.split_once("</confidence>")?;
    let certainty = match written.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => written.trim().parse().ok()?,
    };
    (0.0..=1.0)
        .contains(&certainty)
        .then_some((certainty, em > 0.5))
}

fn value(right: bool) -> f64 {
    f64::from(u8::from(right))
}

fn bins(answers: &[(f64, bool)]) -> Vec<Bin> {
    let mut sums = [(0_usize, 0.0, 0.0); BINS];
    for (stated, right) in answers {
        // Upper edges as NumPy's linspace rounds them, so that a certainty on an edge falls where scikit-learn puts it.
        let bin = (1..BINS)
            .position(|edge| *stated <= edge as f64 * (1.0 / BINS as f64))
            .unwrap_or(BINS - 1);
        let (answers, certainty, hits) = &mut sums[bin];
        *answers += 1;
        *certainty += stated;
        *hits += value(*right);
    }
    let bin = |(answers, certainty, hits): (usize, f64, f64)| {
        let count = answers as f64;
        Bin {
            answers,
            stated: certainty / count,
            right: hits / count,
        }
    };
    sums.into_iter()
        .filter(|(answers, ..)| *answers > 0)
        .map(bin)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 500,
        confidence: 0.95,
        seed: 3,
    };

    #[test]
    fn by_hand() -> Result<(), StatsError> {
        // 0.05 twice, one right; 0.8 four times, three right; 1.0 once, wrong.
        let answers = [
            (0.05, true),
            (0.05, false),
            (0.8, true),
            (0.8, true),
            (0.8, true),
            (0.8, false),
            (1.0, false),
        ];
        let found = Calibration::of(&answers, SETTINGS)?;
        let bins: Vec<usize> = found.bins.iter().map(|bin| bin.answers).collect();
        assert_eq!(bins, [2, 4, 1]);
        assert!((found.ece - (2.0 * 0.45 + 4.0 * 0.05 + 1.0) / 7.0).abs() < 1e-12);
        let brier = (0.95_f64.powi(2) + 0.05_f64.powi(2) + 3.0 * 0.04 + 0.64 + 1.0) / 7.0;
        assert!((found.brier.estimate - brier).abs() < 1e-12);
        Ok(())
    }

    #[test]
    fn bad_certainties_are_named() {
        let of = |answers: &[(f64, bool)]| Calibration::of(answers, SETTINGS);
        assert_eq!(of(&[]), Err(StatsError::Empty));
        assert_eq!(
            of(&[(0.5, true), (1.1, true)]),
            Err(StatsError::Probability {
                index: 1,
                value: 1.1
            })
        );
    }
}
