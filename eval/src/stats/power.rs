//! The power of a paired comparison, from the spread of the differences between questions (normal approximation).

use super::normal::normal_quantile;
use super::standard_deviation;

/// Differences other than 0 below which their spread says nothing of other questions: the next one would change it by half.
const FEWEST: usize = 5;

/// Smallest true mean difference that a paired comparison with these differences would show with probability `power`
/// at this confidence. `None` when fewer than five of them are not 0, or all are equal.
pub(crate) fn minimum_detectable_effect(
    differences: &[f64],
    confidence: f64,
    power: f64,
) -> Option<f64> {
    let differing = differences.iter().filter(|found| found.abs() > 0.0).count();
    if differing < FEWEST {
        return None;
    }
    Some(width(confidence, power)? * spread(differences)? / (differences.len() as f64).sqrt())
}

/// Standard errors between no effect and one that shows with probability `power`.
fn width(confidence: f64, power: f64) -> Option<f64> {
    let in_range = |share: f64| share > 0.0 && share < 1.0;
    (in_range(confidence) && in_range(power))
        .then(|| normal_quantile(f64::midpoint(1.0, confidence)) + normal_quantile(power))
}

fn spread(differences: &[f64]) -> Option<f64> {
    Some(standard_deviation(differences)).filter(|deviation| *deviation > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detectable_effect_follows_the_textbook() {
        let differences: Vec<f64> = (0..400)
            .map(|index| if index % 2 == 0 { 1.0 } else { -1.0 })
            .collect();
        let effect = minimum_detectable_effect(&differences, 0.95, 0.8).unwrap_or(f64::NAN);
        let expected = (1.959_964 + 0.841_621) * (400.0_f64 / 399.0).sqrt() / 20.0;
        assert!((effect - expected).abs() < 1e-5, "{effect} {expected}");
        assert_eq!(minimum_detectable_effect(&[0.0; 10], 0.95, 0.8), None);
        assert_eq!(minimum_detectable_effect(&differences, 1.0, 0.8), None);
    }

    /// With one question of 25 changed by a quarter the formula gives 0.028, a gain that the test cannot show at all.
    #[test]
    fn nothing_is_detectable_where_hardly_any_question_differs() {
        let effect = |differing: usize| {
            let mut differences = [0.0; 25];
            differences[..differing].fill(0.25);
            minimum_detectable_effect(&differences, 0.95, 0.8)
        };
        assert_eq!((effect(1), effect(FEWEST - 1)), (None, None));
        assert!(effect(FEWEST).is_some());
    }
}
