//! Token sequences to learn from, and how a step is cut into micro-batches.

use forage_env::tokens::TokenLog;

/// One sequence with the tokens that carry loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Positions (at least 1, ascending) of the tokens whose log-probability enters the loss.
    pub targets: Vec<usize>,
}

impl Sequence {
    /// The policy's tokens of an episode, as the token log says; a policy token at position 0 has nothing before it.
    pub fn from_log(log: &TokenLog) -> Self {
        let mask = log.loss_mask();
        let targets = (1..log.len()).filter(|&position| mask[position]).collect();
        Self { ids: log.ids().to_vec(), targets }
    }
}

/// Indices of the sequences of one forward and backward pass.
pub type MicroBatch = Vec<usize>;

/// Cuts a step into micro-batches of at most `budget` padded tokens each (a longer sequence stands alone).
///
/// Sequences are sorted by length so that little is padding. The cut depends on the lengths and the budget alone.
pub fn cut(lengths: &[usize], budget: usize) -> Vec<MicroBatch> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(lengths[index]), index));
    let mut batches: Vec<MicroBatch> = Vec::new();
    let mut rest = order.as_slice();
    while let Some(&longest) = rest.first() {
        let fit = (budget / lengths[longest].max(1)).clamp(1, rest.len());
        let (batch, later) = rest.split_at(fit);
        batches.push(batch.to_vec());
        rest = later;
    }
    batches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_sequence_is_in_exactly_one_micro_batch(lengths in prop::collection::vec(1_usize..50, 0..40), budget in 1_usize..200) {
            let batches = cut(&lengths, budget);
            let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            for batch in &batches {
                let width = batch.iter().map(|&index| lengths[index]).max().unwrap();
                prop_assert!(batch.len() == 1 || width * batch.len() <= budget);
            }
        }
    }
}
