//! Figures over several seeds: Student's over the seeds, bootstraps over questions and over runs.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{Arm, Lead, Scores};
use crate::measures::QuestionKey;
use crate::stats::{
    Bootstrap, Interval, StatsError, interquartile_mean, mean, percentile_mean,
    probability_of_improvement, standard_deviation, stratified_bootstrap,
    stratified_bootstrap_pair,
};

/// `b - a` of the questions that both sides have, seed by seed.
pub(super) fn differences(a: &[Scores], b: &[Scores]) -> Vec<Scores> {
    let paired = a.iter().zip(b).map(|(a, b)| {
        b.iter()
            .filter_map(|(asked, value)| Some((asked.clone(), value - a.get(asked)?)))
            .collect()
    });
    paired.collect()
}

/// Means of the differences over seeds, question by question.
fn by_asked(differences: &[Scores]) -> Vec<f64> {
    let mut questions: BTreeMap<&QuestionKey, Vec<f64>> = BTreeMap::new();
    for (asked, value) in differences.iter().flatten() {
        questions.entry(asked).or_default().push(*value);
    }
    questions
        .into_values()
        .map(|values| mean(&values))
        .collect()
}

/// Mean of each seed's values over its questions.
pub(super) fn by_seed(values: &[Scores]) -> Vec<f64> {
    let seeds = values.iter();
    seeds
        .map(|seed| mean(&seed.values().copied().collect::<Vec<_>>()))
        .collect()
}

/// Mean of `b - a` over seeds, and the interval of `Arm::gain`.
pub(crate) fn over_seeds(
    a: &[Scores],
    b: &[Scores],
    bootstrap: Bootstrap,
) -> Result<Interval, StatsError> {
    let differences = differences(a, b);
    let seeds = by_seed(&differences);
    let estimate = mean(&seeds);
    // As of one seed: differences take percentile ends.
    let questions = percentile_mean(&by_asked(&differences), bootstrap)?;
    // The bootstrap's interval lies about the mean over questions, which weighs seeds by their questions.
    let shift = estimate - questions.estimate;
    let half = student_half_width(&seeds, bootstrap.confidence);
    Ok(Interval {
        estimate,
        low: (questions.low + shift).min(estimate - half),
        high: (questions.high + shift).max(estimate + half),
    })
}

/// Half the width of Student's interval of the mean of several values.
fn student_half_width(values: &[f64], confidence: f64) -> f64 {
    let count = values.len() as f64;
    let student = StudentsT::new(0.0, 1.0, count - 1.0);
    student.map_or(0.0, |student| {
        student.inverse_cdf(f64::midpoint(1.0, confidence)) * standard_deviation(values)
            / count.sqrt()
    })
}

/// Two-sided p-value of Student's t-test that the mean of several values is 0. Runs of a seed are one observation, however many
/// questions they were asked.
pub(super) fn student_p(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let (centre, error) = (mean(values), standard_deviation(values) / count.sqrt());
    if error <= f64::EPSILON * centre.abs() {
        return if centre.abs() > 0.0 { 0.0 } else { 1.0 };
    }
    let student = StudentsT::new(0.0, 1.0, count - 1.0);
    student.map_or(1.0, |student| {
        (2.0 * student.cdf(-(centre / error).abs())).min(1.0)
    })
}

pub(super) fn lead(
    twin: &[Scores],
    trained: &[Scores],
    bootstrap: Bootstrap,
) -> Result<Lead, StatsError> {
    let p = student_p(&by_seed(&differences(twin, trained)));
    let finals = |side: &[Scores]| -> Vec<Vec<f64>> {
        by_seed(side).into_iter().map(|seed| vec![seed]).collect()
    };
    let improvement = stratified_bootstrap_pair(
        &finals(trained),
        &finals(twin),
        bootstrap,
        probability_of_improvement,
    )?;
    Ok(Lead {
        difference: over_seeds(twin, trained, bootstrap)?,
        improvement,
        p,
        p_adjusted: p,
    })
}

/// Fewer scores have no quarters.
const QUARTERS: usize = 4;

/// The interquartile mean of each arm's scores over seeds and data sets, with an interval that draws runs anew within each data set;
/// none of one seed, and of too few scores to cut a quarter off.
pub(super) fn interquartile(
    arms: &[Arm],
    by_source: &BTreeMap<String, Vec<Arm>>,
    bootstrap: Bootstrap,
) -> Result<BTreeMap<String, Interval>, StatsError> {
    let mut found = BTreeMap::new();
    for arm in arms {
        let same = |other: &&Arm| other.name == arm.name && other.seeds.len() == arm.seeds.len();
        let mut tasks: Vec<&Arm> = by_source.values().flatten().filter(same).collect();
        if tasks.is_empty() {
            tasks.push(arm);
        }
        let seeds = 0..arm.seeds.len();
        let run = |seed: usize| tasks.iter().map(|task| task.seeds[seed].score).collect();
        let scores: Vec<Vec<f64>> = seeds.map(run).collect();
        if scores.len() < 2 || scores.len() * tasks.len() < QUARTERS {
            continue;
        }
        let mean = stratified_bootstrap(&scores, bootstrap, interquartile_mean)?;
        found.extend(mean.map(|mean| (arm.name.clone(), mean)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::student_p;

    /// Student's distribution function is `1/2 + atan(t) / pi` with one degree of freedom and `1/2 + t / (2 sqrt(2 + t^2))` with two.
    #[test]
    fn the_test_over_seeds_is_students() {
        // Mean 0.2, standard error 0.1.
        let two = student_p(&[0.1, 0.3]);
        let expected = 1.0 - 2.0 / std::f64::consts::PI * 2.0_f64.atan();
        assert!((two - expected).abs() < 1e-9, "{two} {expected}");
        // Mean 0.2, standard deviation 0.1.
        let three = student_p(&[-0.1, -0.2, -0.3]);
        let t = 0.2 / (0.1 / 3.0_f64.sqrt());
        let expected = 1.0 - t / (2.0 + t * t).sqrt();
        assert!((three - expected).abs() < 1e-9, "{three} {expected}");
        assert!((student_p(&[0.0, 0.0]) - 1.0).abs() < 1e-12);
        assert!(student_p(&[0.4, 0.4, 0.4]) < 1e-12);
    }
}
