//! The loss of a critic, and how good it is.

use super::credit::Moments;

/// The number that verl adds to the variance of the returns.
const VARIANCE_EPSILON: f64 = 1e-5;

/// The loss of the values of one sequence's policy tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueTerms {
    /// Weighed sum of the tokens' losses.
    pub(crate) loss: f64,
    /// `[n]`: derivative of `loss` by each value.
    pub(crate) gradients: Vec<f32>,
    /// Tokens at which the loss is clipped.
    pub(crate) clipped: usize,
}

/// Half the square of value - return, or of the value held within `clip` of the old one less the return where that is larger: PPO's
/// clipped loss of values, as in verl and the verl of Search-R1, whose `cliprange_value` is 0.5.
///
/// Where the bound acts there is no derivative. `values`, `old` and `returns`: `[n]`, in units of reward; `weight`: of each of the
/// tokens, from [`super::aggregate::Aggregation::weights`].
///
/// # Panics
/// When the slices differ in number.
pub(crate) fn value_loss(
    values: &[f32],
    old: &[f32],
    returns: &[f32],
    clip: f64,
    weight: f32,
) -> ValueTerms {
    let lengths = [old.len(), returns.len()];
    assert_eq!(lengths, [values.len(); 2], "values, old ones and returns");
    let weight = f64::from(weight);
    let mut terms = ValueTerms {
        loss: 0.0,
        gradients: Vec::with_capacity(values.len()),
        clipped: 0,
    };
    for ((&value, &old), &aim) in values.iter().zip(old).zip(returns) {
        let [value, old, aim] = [value, old, aim].map(f64::from);
        // `clamp` would panic where a critic that has diverged gave no number; its gradient is none either, which is an error of the step.
        let held = value.max(old - clip).min(old + clip);
        let (free, bound) = (value - aim, held - aim);
        let clipped = bound * bound > free * free;
        let distance = if clipped { bound } else { free };
        terms.loss += weight * 0.5 * distance * distance;
        let gradient = if clipped { 0.0 } else { weight * free };
        terms.gradients.push(gradient as f32);
        terms.clipped += usize::from(clipped);
    }
    terms
}

/// Share of the returns' variance that the values explain: 1 - var(return - value) / (var(return) + 1e-5) over pairs of both, with
/// unbiased variances, as verl logs it. 1 for a critic that knows, 0 for one that says the same everywhere, below 0 for a worse one.
pub(crate) fn explained_variance(pairs: &[(f32, f32)]) -> f64 {
    let variance = |number: fn(f64, f64) -> f64| {
        let numbers = pairs
            .iter()
            .map(|&(value, aim)| number(f64::from(value), f64::from(aim)));
        Moments::of(&numbers.collect::<Vec<_>>())
            .unbiased_std()
            .powi(2)
    };
    1.0 - variance(|value, aim| aim - value) / (variance(|_, aim| aim) + VARIANCE_EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_have_moved_far_enough_rest() {
        let found = value_loss(&[0.9, 0.9, 0.2], &[0.0, 0.8, 0.0], &[1.0; 3], 0.5, 2.0);
        // The first has moved by more than 0.5 towards its return: it is measured where it may be.
        assert_eq!(found.clipped, 1);
        let expected = 2.0 * 0.5 * (0.25 + 0.01 + 0.64);
        assert!((found.loss - expected).abs() < 1e-6, "{found:?}");
        for (found, expected) in found.gradients.iter().zip([0.0, -0.2, -1.6]) {
            assert!((found - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn a_value_that_is_no_number_gives_no_gradient() {
        let (none, some) = ([f32::NAN], [0.5]);
        for (value, old, aim) in [(some, none, none), (none, some, some), (none, none, none)] {
            let found = value_loss(&value, &old, &aim, 0.5, 1.0);
            assert!(
                found.gradients[0].is_nan() && found.loss.is_nan(),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_critic_that_knows_explains_all_and_a_constant_one_nothing() {
        let knows: Vec<(f32, f32)> = [0.0, 1.0, 3.0].map(|aim| (aim, aim)).to_vec();
        let same: Vec<(f32, f32)> = [0.0, 1.0, 3.0].map(|aim| (0.5, aim)).to_vec();
        assert!((explained_variance(&knows) - 1.0).abs() < 1e-12);
        assert!(explained_variance(&same).abs() < 1e-4);
    }
}
