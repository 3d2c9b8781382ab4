//! pass@k.

/// Probability that at least one of `k` samples drawn without replacement from `samples`, of which `correct` are right, is
/// right: `1 - C(n - c, k) / C(n, k)`, the unbiased estimate of pass@k (Chen et al. 2021, equation 1). `None` where `k` is
/// 0 or above `samples`, or `correct` above `samples`.
///
/// The binomials of thousands of samples pass the range of numbers, so their ratio is a sum of logarithms; results are good to
/// twelve digits, small ones too.
pub(crate) fn pass_at_k(samples: usize, correct: usize, k: usize) -> Option<f64> {
    if k == 0 || k > samples || correct > samples {
        return None;
    }
    // C(n - c, k) / C(n, k) is symmetric in c and k: the product over the fewer of the two.
    let (fewer, more) = (correct.min(k), correct.max(k));
    if fewer + more > samples {
        return Some(1.0);
    }
    let log_none: f64 = (0..fewer)
        .map(|index| (-(more as f64) / (samples - index) as f64).ln_1p())
        .sum();
    Some(-log_none.exp_m1())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cannot_be_drawn_has_no_value() {
        assert_eq!(
            [pass_at_k(4, 1, 0), pass_at_k(4, 1, 5), pass_at_k(4, 5, 1)],
            [None; 3]
        );
        assert_eq!(
            [pass_at_k(4, 0, 3), pass_at_k(4, 2, 3), pass_at_k(1, 1, 1)],
            [Some(0.0), Some(1.0), Some(1.0)]
        );
    }

    proptest! {
        #[test]
        fn it_grows_with_k_and_begins_at_the_share(samples in 1_usize..5000, part in 0.0_f64..=1.0) {
            let correct = (part * samples as f64) as usize;
            let mut last = 0.0;
            for k in [1, samples.div_ceil(3), samples] {
                let value = pass_at_k(samples, correct, k).expect("in range");
                prop_assert!(value >= last - 1e-12 && value <= 1.0);
                last = value;
            }
            let share = correct as f64 / samples as f64;
            prop_assert!((pass_at_k(samples, correct, 1).expect("in range") - share).abs() < 1e-12);
        }
    }
}
