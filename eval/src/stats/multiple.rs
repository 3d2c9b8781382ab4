//! Several tests at once: p-values adjusted so that each may be compared with the level as if it were alone.

use super::StatsError;

/// Holm's step-down adjustment (1979): rejecting adjusted p-values up to 0.05 makes any false rejection at all at most 5 %
/// likely, however the tests depend on each other. Same order as given.
///
/// # Errors
/// [`StatsError::Probability`] for a value outside `[0, 1]`.
pub(crate) fn holm(p_values: &[f64]) -> Result<Vec<f64>, StatsError> {
    if let Some(index) = p_values.iter().position(|p| !(0.0..=1.0).contains(p)) {
        return Err(StatsError::Probability {
            index,
            value: p_values[index],
        });
    }
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&left, &right| p_values[left].total_cmp(&p_values[right]));
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
        assert!(holm(&[f64::NAN]).is_err());
        assert_eq!(holm(&[]), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn adjusted_values_are_no_smaller_and_keep_the_order(p in prop::collection::vec(0.0_f64..=1.0, 1..20)) {
            let adjusted = holm(&p)?;
            for (index, value) in p.iter().enumerate() {
                prop_assert!(adjusted[index] >= *value && adjusted[index] <= 1.0);
                for (other, wide) in p.iter().enumerate() {
                    prop_assert!(wide < value || adjusted[other] >= adjusted[index]);
                }
            }
        }
    }
}
