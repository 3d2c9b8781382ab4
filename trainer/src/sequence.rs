//! Token sequences to learn from, and how a step is cut into micro-batches.

use forage_contracts::TokenLog;
use forage_contracts::seed::Seed;

use crate::model::{Batch, common_prefix};

/// One sequence with the tokens that carry loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Positions (at least 1, ascending) of the tokens whose log-probability enters the loss.
    pub targets: Vec<usize>,
    /// `[targets]`: softmax temperature of the log-probability of each; empty where it is 1, or that of the update.
    pub temperatures: Vec<f32>,
    /// Nucleus of entropies: they are taken over the most likely tokens with this much probability together, over all where it is 0.
    pub nucleus: f32,
}

impl Sequence {
    /// An episode's tokens with the policy's as targets; a policy token at position 0 has nothing before it and is not a target.
    pub fn from_log(log: &TokenLog) -> Self {
        let mask = log.loss_mask();
        let targets = (1..log.len()).filter(|&position| mask[position]).collect();
        Self {
            ids: log.ids().to_vec(),
            targets,
            ..Self::default()
        }
    }

    /// The temperature of each target.
    pub(crate) fn temperatures(&self) -> impl Iterator<Item = f32> + '_ {
        let at = |place| self.temperatures.get(place).copied().unwrap_or(1.0);
        (0..self.targets.len()).map(at)
    }
}

/// Size of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSize {
    /// Tokens of all its sequences, those that they share counted once.
    pub tokens: usize,
    /// Tokens of the longest.
    pub longest: usize,
    /// Tokens that carry loss.
    pub targets: usize,
}

impl BatchSize {
    /// The size of these sequences, in their order.
    pub fn of(sequences: &[&Sequence]) -> Self {
        let lengths = sequences.iter().map(|sequence| sequence.ids.len());
        let targets = sequences.iter().map(|sequence| sequence.targets.len());
        Self {
            tokens: Batch::new(&ids(sequences.iter().copied())).ids().len(),
            longest: lengths.max().unwrap_or(0),
            targets: targets.sum(),
        }
    }

    /// The largest micro-batch, and the number of micro-batches, of `count` sequences of `longest` tokens each that share no prefix, as a
    /// step is cut for `budget` rows. Every token may carry loss.
    pub fn largest(count: usize, longest: usize, budget: usize) -> (Self, usize) {
        let fit = (budget / longest.max(1)).clamp(1, count.max(1));
        let tokens = (count * longest).min(budget.max(longest));
        let size = Self {
            tokens,
            longest,
            targets: tokens,
        };
        (size, count.div_ceil(fit))
    }
}

/// Indices of the sequences of one forward and backward pass, in its order.
pub(crate) type MicroBatch = Vec<usize>;

/// Cuts a step into the fewest micro-batches of at most `budget` rows each (a longer sequence is a batch of its own), the largest as
/// small as that allows.
///
/// Sequences are sorted by their tokens, so that those with a common prefix are neighbours: the prefix that a sequence shares with the
/// one before takes no rows (`model::Batch`). The cut depends on the tokens and the budget alone.
pub(crate) fn cut(sequences: &[&[u32]], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..sequences.len()).collect();
    order.sort_by_key(|&index| (sequences[index], index));
    let common = order
        .windows(2)
        .map(|pair| common_prefix(sequences[pair[0]], sequences[pair[1]]));
    let common: Vec<usize> = std::iter::once(0).chain(common).collect();
    let fill = |limit: usize| {
        let mut batches: Vec<MicroBatch> = Vec::new();
        let mut filled = 0;
        for (&index, common) in order.iter().zip(&common) {
            let rows = sequences[index].len();
            match batches.last_mut() {
                Some(batch) if filled + rows - common <= limit => {
                    batch.push(index);
                    filled += rows - common;
                }
                _ => {
                    batches.push(vec![index]);
                    filled = rows;
                }
            }
        }
        batches
    };
    let fewest = fill(budget).len();
    let total = sequences.iter().map(|sequence| sequence.len()).sum();
    let (mut low, mut high) = (0, budget.min(total));
    while low < high {
        let limit = usize::midpoint(low, high);
        if fill(limit).len() > fewest {
            low = limit + 1;
        } else {
            high = limit;
        }
    }
    fill(low)
}

/// Token ids of each, for [`cut`] and [`crate::model::Batch`].
pub(crate) fn ids<'a>(sequences: impl IntoIterator<Item = &'a Sequence>) -> Vec<&'a [u32]> {
    sequences
        .into_iter()
        .map(|sequence| sequence.ids.as_slice())
        .collect()
}

/// The numbers 0..`count`, shuffled by `seed`.
pub(crate) fn shuffled(count: usize, seed: Seed) -> Vec<usize> {
    use rand::seq::SliceRandom;
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut seed.rng());
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Batch;

    proptest! {
        #[test]
        fn every_sequence_is_in_exactly_one_micro_batch(
            sequences in prop::collection::vec(prop::collection::vec(0_u32..3, 1..50), 0..40), budget in 1_usize..200,
        ) {
            let sequences: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
            let batches = cut(&sequences, budget);
            let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..sequences.len()).collect::<Vec<_>>());
            for batch in &batches {
                let rows: Vec<&[u32]> = batch.iter().map(|&index| sequences[index]).collect();
                prop_assert!(batch.len() == 1 || Batch::new(&rows).ids().len() <= budget);
            }
            let tokens: usize = sequences.iter().map(|sequence| sequence.len()).sum();
            prop_assert_eq!(cut(&sequences, tokens).len(), usize::from(tokens > 0));
        }
    }

    #[test]
    fn members_of_a_group_stand_together_and_share_their_prompt() {
        let sequences: [&[u32]; 6] = [
            &[1, 1, 1, 5],
            &[2, 2, 2, 5],
            &[1, 1, 1, 6],
            &[2, 2, 2, 6],
            &[1, 1, 1, 7],
            &[2, 2, 2, 7],
        ];
        assert_eq!(cut(&sequences, 6), [vec![0, 2, 4], vec![1, 3, 5]]);
        assert_eq!(cut(&sequences, 12), [vec![0, 2, 4, 1, 3, 5]]);
    }

    #[test]
    fn the_largest_batch_is_that_of_the_cut() {
        for (count, longest, budget) in [
            (128, 256, 2048),
            (3, 500, 100),
            (1, 10, 1000),
            (7, 100, 300),
        ] {
            let sequences: Vec<Vec<u32>> = (0..count).map(|first| vec![first; longest]).collect();
            let batches = cut(
                &sequences.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                budget,
            );
            let most = batches
                .iter()
                .map(|batch| batch.len() * longest)
                .max()
                .unwrap();
            let (size, number) = BatchSize::largest(sequences.len(), longest, budget);
            assert_eq!((size.tokens, number), (most, batches.len()));
        }
    }
}
