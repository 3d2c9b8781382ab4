//! Figures over several seeds: Student's over the seeds, the bootstrap over questions.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::measures::QuestionKey;
use crate::stats::{
    Bootstrap, Interval, StatsError, macro_average, mean, paired_permutation, percentile_mean,
    standard_deviation,
};

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

/// Means over seeds, question by question.
pub(crate) fn by_asked(values: &[Scores]) -> Vec<f64> {
    let mut questions: BTreeMap<&QuestionKey, Vec<f64>> = BTreeMap::new();
    for (asked, value) in values.iter().flatten() {
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

/// Mean of `b - a` over seeds, with the interval of [`wider`].
pub(crate) fn over_seeds(
    a: &[Scores],
    b: &[Scores],
    bootstrap: Bootstrap,
) -> Result<Interval, StatsError> {
    let differences = differences(a, b);
    Ok(wider(
        &by_seed(&differences),
        over_questions(&differences, bootstrap)?,
        bootstrap.confidence,
    ))
}

/// Mean of differences over questions; they take percentile ends, as of one seed.
fn over_questions(differences: &[Scores], bootstrap: Bootstrap) -> Result<Interval, StatsError> {
    percentile_mean(&by_asked(differences), bootstrap)
}

/// Mean over data sets, each counted once, of the differences of the same seeds; `None` without data sets. Data sets share the trained
/// runs, so a seed's mean over them is one value of Student's. Their questions are independent, so the intervals over questions add as
/// those of a [`macro_average`] do.
pub(crate) fn over_sets(
    sets: &[Vec<Scores>],
    bootstrap: Bootstrap,
) -> Result<Option<Interval>, StatsError> {
    let questions = sets.iter().map(|seeds| over_questions(seeds, bootstrap));
    let questions: Vec<Interval> = questions.collect::<Result<_, _>>()?;
    let by_set: Vec<Vec<f64>> = sets.iter().map(|seeds| by_seed(seeds)).collect();
    let of_seed = |seed: usize| mean(&by_set.iter().map(|set| set[seed]).collect::<Vec<f64>>());
    let seeds: Vec<f64> = (0..by_set.first().map_or(0, Vec::len))
        .map(of_seed)
        .collect();
    Ok(macro_average(&questions).map(|found| wider(&seeds, found, bootstrap.confidence)))
}

/// Mean of a value over seeds. The interval is the wider, on each side, of two: Student's t over the seeds' values, which speaks of
/// other seeds, and the bootstrap over questions, which speaks of other questions. Of one seed it is the latter.
pub(crate) fn wider(seeds: &[f64], questions: Interval, confidence: f64) -> Interval {
    if seeds.len() < 2 {
        return questions;
    }
    let estimate = mean(seeds);
    // The bootstrap's interval lies about the mean over questions, which weighs seeds by their questions.
    let shift = estimate - questions.estimate;
    let half = student_half_width(seeds, confidence);
    Interval {
        estimate,
        low: (questions.low + shift).min(estimate - half),
        high: (questions.high + shift).max(estimate + half),
    }
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

/// Two-sided p-value that the mean of `b - a` is 0: of one seed that of the sign-flip test over questions, of several that of
/// [`student_p`].
pub(crate) fn paired_p(
    a: &[Scores],
    b: &[Scores],
    bootstrap: Bootstrap,
) -> Result<f64, StatsError> {
    let differences = differences(a, b);
    if differences.len() > 1 {
        return Ok(student_p(&differences));
    }
    let values = by_asked(&differences);
    let nothing = vec![0.0; values.len()];
    paired_permutation(&nothing, &values, bootstrap.resamples, bootstrap.seed)
}

/// Two-sided p-value of Student's t-test that the mean of `b - a` over seeds is 0. Runs of a seed are one observation, however many
/// questions they were asked. As with the interval, the standard error is the larger of that over seeds and that over questions: seeds
/// whose gains are equal show no more than their questions do.
pub(crate) fn student_p(differences: &[Scores]) -> f64 {
    let questions = by_asked(differences);
    let least = standard_deviation(&questions) / (questions.len() as f64).sqrt();
    student(&by_seed(differences), least)
}

/// Two-sided p-value of Student's t-test over the seeds' values, with a standard error of at least `least_error`.
fn student(values: &[f64], least_error: f64) -> f64 {
    let count = values.len() as f64;
    let centre = mean(values);
    let error = (standard_deviation(values) / count.sqrt()).max(least_error);
    if error <= f64::EPSILON * centre.abs() {
        // Nothing varies, so there is no t: this is the sign test over seeds.
        let agree = 2.0 * 0.5_f64.powf(count);
        return if centre.abs() > 0.0 { agree } else { 1.0 };
    }
    let student = StudentsT::new(0.0, 1.0, count - 1.0);
    student.map_or(1.0, |student| {
        (2.0 * student.cdf(-(centre / error).abs())).min(1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::{Scores, student, student_p};
    use crate::measures::QuestionKey;

    /// Student's distribution function is `1/2 + atan(t) / pi` with one degree of freedom and `1/2 + t / (2 sqrt(2 + t^2))` with two.
    #[test]
    fn the_test_over_seeds_is_students() {
        // Mean 0.2, standard error 0.1.
        let two = student(&[0.1, 0.3], 0.0);
        let expected = 1.0 - 2.0 / std::f64::consts::PI * 2.0_f64.atan();
        assert!((two - expected).abs() < 1e-9, "{two} {expected}");
        // Mean 0.2, standard deviation 0.1.
        let three = student(&[-0.1, -0.2, -0.3], 0.0);
        let t = 0.2 / (0.1 / 3.0_f64.sqrt());
        let expected = 1.0 - t / (2.0 + t * t).sqrt();
        assert!((three - expected).abs() < 1e-9, "{three} {expected}");
        assert!((student(&[0.0, 0.0], 0.0) - 1.0).abs() < 1e-12);
    }

    /// Differences of seeds on the same questions.
    fn seeds(count: usize, values: &[f64]) -> Vec<Scores> {
        let asked = |id: usize| QuestionKey {
            data_source: String::new(),
            id: id.to_string(),
            question: String::new(),
        };
        let seed: Scores = (0..).map(asked).zip(values.iter().copied()).collect();
        vec![seed; count]
    }

    #[test]
    fn equal_gains_show_no_more_than_their_questions() {
        // Two seeds that both gain two of four questions: mean 1/2, standard error over questions 1 / (2 sqrt(3)), so t is sqrt(3).
        let two = student_p(&seeds(2, &[1.0, 0.0, 1.0, 0.0]));
        let expected = 1.0 - 2.0 / std::f64::consts::PI * 3.0_f64.sqrt().atan();
        assert!((two - expected).abs() < 1e-9, "{two} {expected}");
        // Where no question varies either, the signs of the seeds are left.
        let all = [1.0; 4];
        assert!((student_p(&seeds(2, &all)) - 0.5).abs() < 1e-12);
        assert!((student_p(&seeds(5, &all)) - 0.0625).abs() < 1e-12);
        assert!((student_p(&seeds(5, &[0.0; 4])) - 1.0).abs() < 1e-12);
    }
}
