//! The standard normal distribution.

use std::f64::consts::PI;

/// Beyond this many standard deviations the distribution function is 0 or 1 to double precision.
const EDGE: f64 = 8.3;

/// Probability that a standard normal variable is at most `x`, with an absolute error below 1e-14.
///
/// Marsaglia's series: Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/15 + ...).
pub(crate) fn normal_cdf(x: f64) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    if x < -EDGE {
        return 0.0;
    }
    if x > EDGE {
        return 1.0;
    }
    let mut term = x;
    let mut sum = x;
    let mut divisor = 1.0;
    while term.abs() > f64::EPSILON * 1e-2 * sum.abs() {
        divisor += 2.0;
        term *= x * x / divisor;
        sum += term;
    }
    (0.5 + sum * (-x * x / 2.0).exp() / (2.0 * PI).sqrt()).clamp(0.0, 1.0)
}

/// The `x` whose [`normal_cdf`] is `p`; infinite at 0 and 1.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if p >= 1.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (-EDGE, EDGE);
    // Bisection: 64 halvings of 16.6 end below one unit in the last place.
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if normal_cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_inverts_the_distribution_function() {
        for p in [1e-9, 0.001, 0.025, 0.3, 0.5, 0.8, 0.975, 0.999_999] {
            assert!((normal_cdf(normal_quantile(p)) - p).abs() < 1e-13, "{p}");
        }
        assert!((normal_quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-12);
        assert!(normal_quantile(0.0).is_infinite() && normal_quantile(1.0).is_infinite());
    }
}
