//! Several tests at once: p-values adjusted so that each may be compared with the level as if it were alone.

use super::StatsError;

/// Holm's step-down adjustment (1979): rejecting adjusted p-values up to 0.05 makes any false rejection at all at most 5 %
/// likely, however the tests depend on each other. Same order as given.
///
/// # Errors
/// [`StatsError::Probability`] for a value outside `[0, 1]`.
pub fn holm(p_values: &[f64]) -> Result<Vec<f64>, StatsError> {
    let order = ascending(p_values)?;
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, &index) in order.iter().enumerate() {
        largest = largest
            .max((p_values.len() - rank) as f64 * p_values[index])
            .min(1.0);
        adjusted[index] = largest;
    }
    Ok(adjusted)
}

/// Benjamini and Hochberg's step-up adjustment (1995): rejecting adjusted p-values up to 0.05 keeps the expected share of
/// false ones among the rejections at most 5 %, for tests that are independent or positively dependent. Same order as given.
///
/// # Errors
/// [`StatsError::Probability`] for a value outside `[0, 1]`.
pub fn benjamini_hochberg(p_values: &[f64]) -> Result<Vec<f64>, StatsError> {
    let order = ascending(p_values)?;
    let mut adjusted = vec![0.0; p_values.len()];
    let mut smallest = 1.0_f64;
    for (rank, &index) in order.iter().enumerate().rev() {
        smallest = smallest.min(p_values.len() as f64 / (rank + 1) as f64 * p_values[index]);
        adjusted[index] = smallest;
    }
    Ok(adjusted)
}

/// Positions of the values from the smallest to the largest.
fn ascending(p_values: &[f64]) -> Result<Vec<usize>, StatsError> {
    if let Some(index) = p_values.iter().position(|p| !(0.0..=1.0).contains(p)) {
        return Err(StatsError::Probability {
            index,
            value: p_values[index],
        });
    }
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&left, &right| p_values[left].total_cmp(&p_values[right]));
    Ok(order)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bad_values_are_named() {
        assert_eq!(
            holm(&[0.2, 1.5]),
            Err(StatsError::Probability {
                index: 1,
                value: 1.5
            })
        );
        assert!(benjamini_hochberg(&[f64::NAN]).is_err());
        assert_eq!(holm(&[]), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn holm_is_stricter_and_both_keep_the_order(p in prop::collection::vec(0.0_f64..=1.0, 1..20)) {
            let (strict, lenient) = (holm(&p)?, benjamini_hochberg(&p)?);
            for (index, value) in p.iter().enumerate() {
                prop_assert!(strict[index] >= lenient[index] && lenient[index] >= *value && strict[index] <= 1.0);
                for (other, wide) in p.iter().enumerate() {
                    prop_assert!(wide < value || (strict[other] >= strict[index] && lenient[other] >= lenient[index]));
                }
            }
        }
    }
}
