//! The mean of means of independent groups.

use super::{Interval, mean};

/// The mean of estimates of independent groups, each counted once, with the interval that theirs recover (Zou and Donner 2008,
/// "Construction of confidence limits about effect measures: a general approach"): the distances of the ends add as variances
/// do. Bounded and unequal intervals, as Wilson's, stay so. `None` without groups.
pub(crate) fn macro_average(groups: &[Interval]) -> Option<Interval> {
    if groups.is_empty() {
        return None;
    }
    let estimates: Vec<f64> = groups.iter().map(|group| group.estimate).collect();
    let estimate = mean(&estimates);
    let half = |distance: &dyn Fn(&Interval) -> f64| {
        let squares: f64 = groups.iter().map(|group| distance(group).powi(2)).sum();
        squares.sqrt() / groups.len() as f64
    };
    Some(Interval {
        estimate,
        low: estimate - half(&|group| group.estimate - group.low),
        high: estimate + half(&|group| group.high - group.estimate),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_add_as_variances_do() {
        let group = |estimate, low, high| Interval {
            estimate,
            low,
            high,
        };
        assert_eq!(macro_average(&[]), None);
        let one = group(0.2, 0.1, 0.4);
        let alone = macro_average(&[one]).unwrap();
        assert!((alone.low - 0.1).abs() < 1e-12 && (alone.high - 0.4).abs() < 1e-12);
        // (0.2 + 0.6) / 2 = 0.4; sqrt(0.1^2 + 0.3^2) / 2 = 0.158114; sqrt(0.2^2 + 0.1^2) / 2 = 0.111803
        let two = macro_average(&[one, group(0.6, 0.3, 0.7)]).unwrap();
        assert!((two.estimate - 0.4).abs() < 1e-12);
        assert!((two.low - (0.4 - 0.158_113_883)).abs() < 1e-9, "{two:?}");
        assert!((two.high - (0.4 + 0.111_803_399)).abs() < 1e-9, "{two:?}");
    }

    /// Wald's intervals give back the interval of a stratified mean: sqrt(sum of variances of the means) / groups.
    #[test]
    fn plain_intervals_give_the_stratified_one() {
        let errors = [0.03, 0.05, 0.012];
        let groups = errors.map(|error| Interval {
            estimate: 0.5,
            low: 0.5 - 1.96 * error,
            high: 0.5 + 1.96 * error,
        });
        let pooled = errors.iter().map(|error| error * error).sum::<f64>().sqrt() / 3.0;
        let found = macro_average(&groups).unwrap();
        assert!((found.high - (0.5 + 1.96 * pooled)).abs() < 1e-12);
    }
}
