//! Bootstrap over runs and tasks, as rliable's (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the
//! statistical precipice"). `scores[run][task]`; every run has a score on every task.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use super::bootstrap::{below, percentile_ends};
use super::{Bootstrap, Interval, StatsError};

/// The units that a resample draws, and so the population that an interval covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resampling {
    /// Runs within each task, tasks apart from each other: what other seeds would give on these tasks.
    Runs,
    /// Tasks too: what other seeds would give on other tasks of this kind.
    RunsAndTasks,
}

/// An aggregate of runs and tasks with its percentile interval. Resamples where the aggregate is undefined are left out;
/// `None` where it is undefined for the scores themselves.
///
/// ```
/// use forage_eval::stats::{Bootstrap, Resampling, interquartile_mean, stratified_bootstrap};
///
/// let scores = vec![vec![0.2, 0.5], vec![0.3, 0.4], vec![0.1, 0.6]]; // three seeds, two tasks
/// let found = stratified_bootstrap(&scores, Resampling::Runs, Bootstrap::new(1), interquartile_mean)?;
/// assert!(found.is_some_and(|interval| interval.low < 0.35 && interval.high > 0.35));
/// # Ok::<(), forage_eval::StatsError>(())
/// ```
///
/// # Errors
/// [`StatsError`] for no scores, runs with different numbers of tasks, scores that are not finite (counted run after run)
/// and settings out of range.
pub fn stratified_bootstrap(
    scores: &[Vec<f64>],
    resampling: Resampling,
    settings: Bootstrap,
    aggregate: impl Fn(&[Vec<f64>]) -> Option<f64>,
) -> Result<Option<Interval>, StatsError> {
    let values = replicates([scores], resampling, settings, |[drawn]| aggregate(drawn))?;
    Ok(aggregate(scores).and_then(|estimate| percentile_interval(estimate, values, settings)))
}

/// A statistic of two sets of runs on the same tasks, such as [`super::probability_of_improvement`], with its percentile
/// interval. The runs of the two sets are resampled apart; tasks, where they are resampled, are the same for both.
///
/// # Errors
/// As [`stratified_bootstrap`], and [`StatsError::Lengths`] where the sets differ in tasks.
pub fn stratified_bootstrap_pair(
    x: &[Vec<f64>],
    y: &[Vec<f64>],
    resampling: Resampling,
    settings: Bootstrap,
    statistic: impl Fn(&[Vec<f64>], &[Vec<f64>]) -> Option<f64>,
) -> Result<Option<Interval>, StatsError> {
    let values = replicates([x, y], resampling, settings, |[x, y]| statistic(x, y))?;
    Ok(statistic(x, y).and_then(|estimate| percentile_interval(estimate, values, settings)))
}

/// A point of a performance profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfilePoint {
    /// The score to exceed.
    pub threshold: f64,
    /// Share of runs and tasks whose score exceeds it.
    pub share: Interval,
}

/// Run-score distribution: for each threshold the share of all runs and tasks with a higher score, with a band. The band
/// holds at each threshold by itself, not for the whole curve at once.
///
/// # Errors
/// As [`stratified_bootstrap`].
pub fn performance_profile(
    scores: &[Vec<f64>],
    thresholds: &[f64],
    resampling: Resampling,
    settings: Bootstrap,
) -> Result<Vec<ProfilePoint>, StatsError> {
    let drawn = replicates([scores], resampling, settings, |[drawn]| {
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
    resampling: Resampling,
    settings: Bootstrap,
    statistic: impl Fn(&[Vec<Vec<f64>>; SIDES]) -> Option<T>,
) -> Result<Vec<T>, StatsError> {
    settings.check()?;
    let tasks = check(sides)?;
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut drawn = sides.map(<[Vec<f64>]>::to_vec);
    let mut tasks_drawn: Vec<usize> = (0..tasks).collect();
    let mut values = Vec::with_capacity(settings.resamples);
    for _ in 0..settings.resamples {
        if resampling == Resampling::RunsAndTasks {
            tasks_drawn.fill_with(|| below(&mut rng, tasks));
        }
        for (scores, drawn) in sides.iter().zip(&mut drawn) {
            resample_runs(scores, &tasks_drawn, drawn, &mut rng);
        }
        values.extend(statistic(&drawn));
    }
    Ok(values)
}

/// Fills `drawn` with runs drawn anew for each of the tasks.
fn resample_runs(
    scores: &[Vec<f64>],
    tasks: &[usize],
    drawn: &mut [Vec<f64>],
    rng: &mut ChaCha8Rng,
) {
    for run in drawn {
        for (value, &task) in run.iter_mut().zip(tasks) {
            *value = scores[below(rng, scores.len())][task];
        }
    }
}

/// The number of tasks, the same for every run of every side.
fn check<const SIDES: usize>(sides: [&[Vec<f64>]; SIDES]) -> Result<usize, StatsError> {
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
    expected.ok_or(StatsError::Empty)
}

#[cfg(test)]
mod tests {
    use super::super::{interquartile_mean, mean_score, probability_of_improvement};
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 2000,
        confidence: 0.95,
        seed: 4,
    };

    /// Runs agree, tasks do not.
    fn scores() -> Vec<Vec<f64>> {
        (0..5)
            .map(|run| {
                (0..8)
                    .map(|task| f64::from(task) + 0.01 * f64::from(run))
                    .collect()
            })
            .collect()
    }

    #[test]
    fn runs_alone_know_nothing_of_other_tasks() -> Result<(), StatsError> {
        let width = |resampling| -> Result<f64, StatsError> {
            let found = stratified_bootstrap(&scores(), resampling, SETTINGS, interquartile_mean)?;
            Ok(found.map_or(f64::NAN, |interval| interval.high - interval.low))
        };
        assert!(width(Resampling::Runs)? < 0.02);
        assert!(width(Resampling::RunsAndTasks)? > 1.0);
        Ok(())
    }

    #[test]
    fn tasks_are_shared_by_a_pair() -> Result<(), StatsError> {
        let better: Vec<Vec<f64>> = scores()
            .iter()
            .map(|run| run.iter().map(|score| score + 1.0).collect())
            .collect();
        let lead = |x: &[Vec<f64>], y: &[Vec<f64>]| Some(mean_score(x)? - mean_score(y)?);
        for resampling in [Resampling::Runs, Resampling::RunsAndTasks] {
            let found = stratified_bootstrap_pair(&better, &scores(), resampling, SETTINGS, lead)?;
            assert!(
                found.is_some_and(|lead| lead.low > 0.9 && lead.high < 1.1),
                "{found:?}"
            );
        }
        let wins = stratified_bootstrap_pair(
            &better,
            &scores(),
            Resampling::Runs,
            SETTINGS,
            probability_of_improvement,
        )?;
        assert!(wins.is_some_and(|wins| wins.low > 0.999));
        Ok(())
    }

    #[test]
    fn profiles_fall() -> Result<(), StatsError> {
        let profile = performance_profile(
            &scores(),
            &[-1.0, 2.5, 3.0, 9.0],
            Resampling::Runs,
            SETTINGS,
        )?;
        let shares: Vec<f64> = profile.iter().map(|point| point.share.estimate).collect();
        assert_eq!(shares, [1.0, 5.0 / 8.0, (4.0 * 5.0 + 4.0) / 40.0, 0.0]);
        assert!(profile[2].share.low < 0.6 && profile[2].share.high > 0.6);
        Ok(())
    }

    #[test]
    fn bad_scores_are_named() {
        let bootstrap = |scores: &[Vec<f64>]| {
            stratified_bootstrap(scores, Resampling::Runs, SETTINGS, mean_score)
        };
        assert_eq!(bootstrap(&[]), Err(StatsError::Empty));
        let ragged = StatsError::Ragged {
            run: 1,
            tasks: 1,
            expected: 2,
        };
        assert_eq!(bootstrap(&[vec![1.0, 2.0], vec![1.0]]), Err(ragged));
        assert_eq!(
            bootstrap(&[vec![1.0, 2.0], vec![1.0, f64::NAN]]),
            Err(StatsError::NotFinite { index: 3 })
        );
        let pair = stratified_bootstrap_pair(
            &scores(),
            &[vec![1.0]],
            Resampling::Runs,
            SETTINGS,
            |_, _| None,
        );
        assert_eq!(pair, Err(StatsError::Lengths { a: 8, b: 1 }));
    }
}
