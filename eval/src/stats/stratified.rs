//! Bootstrap over runs, as rliable's (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
//! precipice"). `scores[run][task]`; every run has a score on every task. Runs are drawn within each task: what other seeds
//! would give on these tasks.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use super::bootstrap::{below, percentile_ends};
use super::{Bootstrap, Interval, StatsError};

/// Interquartile mean: of the scores of all runs on all tasks together the mean without the lowest and the highest quarter, each rounded
/// down to whole scores. It is less moved by a run that went astray than the mean, and wastes fewer runs than the median. `None` without
/// scores.
pub(crate) fn interquartile_mean(scores: &[Vec<f64>]) -> Option<f64> {
    let mut values = scores.concat();
    values.sort_by(f64::total_cmp);
    let quarter = values.len() / 4;
    let inner = &values[quarter..values.len() - quarter];
    (!inner.is_empty()).then(|| super::mean(inner))
}

/// A statistic of two sets of runs on the same tasks, such as [`probability_of_improvement`], with its percentile interval.
/// The runs of the two sets are resampled apart. Resamples where the statistic is undefined are left out; `None` where it is
/// undefined for the scores themselves.
///
/// # Errors
/// [`StatsError`] for no scores, runs or sets with different numbers of tasks, scores that are not finite (counted run after
/// run) and settings out of range.
pub(crate) fn stratified_bootstrap_pair(
    x: &[Vec<f64>],
    y: &[Vec<f64>],
    settings: Bootstrap,
    statistic: impl Fn(&[Vec<f64>], &[Vec<f64>]) -> Option<f64>,
) -> Result<Option<Interval>, StatsError> {
    let values = replicates([x, y], settings, |[x, y]| statistic(x, y))?;
    Ok(statistic(x, y).and_then(|estimate| percentile_interval(estimate, values, settings)))
}

/// Probability that a run of `x` scores above a run of `y` on a task, ties counted half, averaged over tasks. `None`
/// when a side is empty or tasks differ in number.
pub(crate) fn probability_of_improvement(x: &[Vec<f64>], y: &[Vec<f64>]) -> Option<f64> {
    let tasks = x.first()?.len();
    if tasks == 0 || y.is_empty() || x.iter().chain(y).any(|run| run.len() != tasks) {
        return None;
    }
    let per_task: Vec<f64> = (0..tasks)
        .map(|task| task_improvement(x, y, task))
        .collect();
    Some(super::mean(&per_task))
}

fn task_improvement(x: &[Vec<f64>], y: &[Vec<f64>], task: usize) -> f64 {
    let mut wins = 0.0;
    for better in x {
        for worse in y {
            wins += match better[task].total_cmp(&worse[task]) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    wins / (x.len() * y.len()) as f64
}

/// A point of a performance profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProfilePoint {
    /// The score to exceed.
    pub threshold: f64,
    /// Share of runs and tasks whose score exceeds it.
    pub share: Interval,
}

/// Run-score distribution: for each threshold the share of all runs and tasks with a higher score, with a band. The band
/// holds at each threshold by itself, not for the whole curve at once.
///
/// # Errors
/// As [`stratified_bootstrap_pair`].
pub(crate) fn performance_profile(
    scores: &[Vec<f64>],
    thresholds: &[f64],
    settings: Bootstrap,
) -> Result<Vec<ProfilePoint>, StatsError> {
    let drawn = replicates([scores], settings, |[drawn]| {
        Some(shares_above(drawn, thresholds))
    })?;
    let estimates = shares_above(scores, thresholds);
    let point = |(index, &threshold): (usize, &f64)| {
        let mut values: Vec<f64> = drawn.iter().map(|shares| shares[index]).collect();
        let [low, high] = percentile_ends(&mut values, settings.confidence);
        ProfilePoint {
            threshold,
            share: Interval {
                estimate: estimates[index],
                low,
                high,
            },
        }
    };
    Ok(thresholds.iter().enumerate().map(point).collect())
}

fn shares_above(scores: &[Vec<f64>], thresholds: &[f64]) -> Vec<f64> {
    let mut values = scores.concat();
    values.sort_by(f64::total_cmp);
    let above = |threshold: &f64| values.len() - values.partition_point(|value| value <= threshold);
    thresholds
        .iter()
        .map(|threshold| above(threshold) as f64 / values.len() as f64)
        .collect()
}

fn percentile_interval(
    estimate: f64,
    mut values: Vec<f64>,
    settings: Bootstrap,
) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let [low, high] = percentile_ends(&mut values, settings.confidence);
    Some(Interval {
        estimate,
        low,
        high,
    })
}

/// The values of `statistic` over resamples of all `sides` at once; undefined ones are left out.
fn replicates<T, const SIDES: usize>(
    sides: [&[Vec<f64>]; SIDES],
    settings: Bootstrap,
    statistic: impl Fn(&[Vec<Vec<f64>>; SIDES]) -> Option<T>,
) -> Result<Vec<T>, StatsError> {
    settings.check()?;
    check(sides)?;
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut drawn = sides.map(<[Vec<f64>]>::to_vec);
    let mut values = Vec::with_capacity(settings.resamples);
    for _ in 0..settings.resamples {
        for (scores, drawn) in sides.iter().zip(&mut drawn) {
            resample_runs(scores, drawn, &mut rng);
        }
        values.extend(statistic(&drawn));
    }
    Ok(values)
}

/// Fills `drawn` with runs drawn anew for each of the tasks.
fn resample_runs(scores: &[Vec<f64>], drawn: &mut [Vec<f64>], rng: &mut ChaCha8Rng) {
    for run in drawn {
        for (task, value) in run.iter_mut().enumerate() {
            *value = scores[below(rng, scores.len())][task];
        }
    }
}

/// Checks that every run of every side has the same number of tasks, and that scores are finite.
fn check<const SIDES: usize>(sides: [&[Vec<f64>]; SIDES]) -> Result<(), StatsError> {
    let mut expected = None;
    for scores in sides {
        let tasks = scores.first().map_or(0, Vec::len);
        if tasks == 0 {
            return Err(StatsError::Empty);
        }
        if let Some(run) = scores.iter().position(|scores| scores.len() != tasks) {
            return Err(StatsError::Ragged {
                run,
                tasks: scores[run].len(),
                expected: tasks,
            });
        }
        if let Some(index) = scores.iter().flatten().position(|score| !score.is_finite()) {
            return Err(StatsError::NotFinite { index });
        }
        if let Some(a) = expected.filter(|a| *a != tasks) {
            return Err(StatsError::Lengths { a, b: tasks });
        }
        expected = Some(tasks);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 2000,
        confidence: 0.95,
        seed: 4,
    };

    /// Runs agree, tasks do not.
    fn scores() -> Vec<Vec<f64>> {
        let run = |run| (0..8).map(move |task| f64::from(task) + 0.01 * f64::from(run));
        (0..5).map(|number| run(number).collect()).collect()
    }

    #[test]
    fn a_pair_of_runs_is_compared_task_by_task() -> Result<(), StatsError> {
        let x = [[0.1, 0.5], [0.2, 0.6], [0.3, 0.7], [0.4, 0.9]].map(Vec::from);
        let y = [[0.1, 0.4], [0.1, 0.6], [0.2, 0.6], [0.5, 0.8]].map(Vec::from);
        assert_eq!(probability_of_improvement(&x, &y), Some(0.609_375));
        assert_eq!(probability_of_improvement(&x, &[vec![1.0]]), None);
        let better: Vec<Vec<f64>> = scores()
            .iter()
            .map(|run| run.iter().map(|score| score + 1.0).collect())
            .collect();
        let wins =
            stratified_bootstrap_pair(&better, &scores(), SETTINGS, probability_of_improvement)?;
        assert!(wins.is_some_and(|wins| wins.low > 0.999));
        // Runs alone know nothing of other tasks: those of one set differ by little, whatever the tasks do.
        let lead = |x: &[Vec<f64>], y: &[Vec<f64>]| {
            let mean = |scores: &[Vec<f64>]| crate::stats::mean(&scores.concat());
            Some(mean(x) - mean(y))
        };
        let found = stratified_bootstrap_pair(&better, &scores(), SETTINGS, lead)?;
        assert!(
            found.is_some_and(|lead| lead.low > 0.98 && lead.high < 1.02),
            "{found:?}"
        );
        Ok(())
    }

    #[test]
    fn profiles_fall() -> Result<(), StatsError> {
        let profile = performance_profile(&scores(), &[-1.0, 2.5, 3.0, 9.0], SETTINGS)?;
        let shares: Vec<f64> = profile.iter().map(|point| point.share.estimate).collect();
        assert_eq!(shares, [1.0, 5.0 / 8.0, (4.0 * 5.0 + 4.0) / 40.0, 0.0]);
        assert!(profile[2].share.low < 0.6 && profile[2].share.high > 0.6);
        Ok(())
    }

    #[test]
    fn bad_scores_are_named() {
        let profile = |scores: &[Vec<f64>]| performance_profile(scores, &[0.5], SETTINGS);
        assert_eq!(profile(&[]), Err(StatsError::Empty));
        let ragged = StatsError::Ragged {
            run: 1,
            tasks: 1,
            expected: 2,
        };
        assert_eq!(profile(&[vec![1.0, 2.0], vec![1.0]]), Err(ragged));
        assert_eq!(
            profile(&[vec![1.0, 2.0], vec![1.0, f64::NAN]]),
            Err(StatsError::NotFinite { index: 3 })
        );
        let pair = stratified_bootstrap_pair(&scores(), &[vec![1.0]], SETTINGS, |_, _| None);
        assert_eq!(pair, Err(StatsError::Lengths { a: 8, b: 1 }));
    }
}
