//! Figures over several seeds: Student's over the seeds, the bootstrap over questions.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::measures::QuestionKey;
use crate::stats::{Bootstrap, Interval, StatsError, mean, percentile_mean, standard_deviation};

/// Values of a measure by question.
pub(crate) type Scores = BTreeMap<QuestionKey, f64>;

/// `b - a` of the questions that both sides have, seed by seed.
pub(crate) fn differences(a: &[Scores], b: &[Scores]) -> Vec<Scores> {
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
pub(crate) fn by_seed(values: &[Scores]) -> Vec<f64> {
    let seeds = values.iter();
    seeds
        .map(|seed| mean(&seed.values().copied().collect::<Vec<_>>()))
        .collect()
}

/// Mean of `b - a` over seeds. The interval is the wider, on each side, of two: Student's t over the seeds' means, which speaks of
/// other seeds, and the bootstrap over questions, which speaks of other questions.
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
pub(crate) fn student_p(values: &[f64]) -> f64 {
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
