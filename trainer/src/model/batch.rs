//! Sequences as rows of matrices: every token once, none padding, and what sequences have in common at their beginning once for all
//! of them.
//!
//! Under a causal mask a token's hidden states depend on nothing but what stands before it, so sequences that begin alike agree
//! there, and gradients that meet there add up. The members of a group share their prompt, and prompts of one environment
//! their instructions.

use std::ops::Range;

use super::dropout::key_after;

/// Some sequences of a pass.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    ids: Vec<i32>,
    spans: Vec<Span>,
}

/// The rows of a sequence in its batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    /// Rows of what it has in common with sequences before it, in order.
    pub(super) shared: Vec<Range<usize>>,
    /// Rows of the rest.
    pub(super) own: Range<usize>,
}

impl Batch {
    /// Sequences of token ids. One shares what it has in common with the one just before it, so those that begin alike should
    /// stand together, as [`crate::sequence::cut`] orders them.
    ///
    /// # Panics
    /// When there are no tokens.
    pub(crate) fn new(sequences: &[&[u32]]) -> Self {
        let (mut ids, mut spans): (Vec<i32>, Vec<Span>) = (Vec::new(), Vec::new());
        for (index, sequence) in sequences.iter().enumerate() {
            let shared = index.checked_sub(1).map_or_else(Vec::new, |before| {
                spans[before].first(common_prefix(sequences[before], sequence))
            });
            let (start, known) = (ids.len(), shared.iter().map(Range::len).sum());
            ids.extend(sequence[known..].iter().map(|&id| id as i32));
            spans.push(Span {
                shared,
                own: start..ids.len(),
            });
        }
        assert!(!ids.is_empty(), "a batch has tokens");
        Self { ids, spans }
    }

    /// Rows of each sequence.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Token ids, one per row.
    pub(crate) fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// A key of each row, which depends on the tokens up to it in its sequence and on nothing else. `sequences` are those of the batch.
    pub(crate) fn keys(&self, sequences: &[&[u32]]) -> Vec<u64> {
        let mut keys = Vec::with_capacity(self.ids.len());
        for (span, ids) in self.spans.iter().zip(sequences) {
            let mut key = 0;
            for (position, &id) in ids.iter().enumerate() {
                key = key_after(key, id);
                if position >= span.before() {
                    keys.push(key);
                }
            }
        }
        keys
    }

    /// Position of each row's token in its sequence.
    pub(super) fn positions(&self) -> Vec<i32> {
        self.spans
            .iter()
            .flat_map(|span| (span.before()..span.len()).map(|position| position as i32))
            .collect()
    }
}

impl Span {
    /// Tokens of the sequence.
    pub(super) fn len(&self) -> usize {
        self.before() + self.own.len()
    }

    /// Tokens before those of its own rows.
    pub(super) fn before(&self) -> usize {
        self.shared.iter().map(Range::len).sum()
    }

    /// Rows of all its tokens, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.shared
            .iter()
            .cloned()
            .chain(std::iter::once(self.own.clone()))
    }

    /// Rows of its first `count` tokens.
    fn first(&self, count: usize) -> Vec<Range<usize>> {
        let mut left = count;
        let parts = self.ranges().map(|rows| {
            let part = rows.start..rows.start + rows.len().min(left);
            left -= part.len();
            part
        });
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Row of the token at `position`.
    ///
    /// # Panics
    /// When the sequence is not that long.
    pub(crate) fn row(&self, position: usize) -> usize {
        let mut left = position;
        for rows in self.ranges() {
            if left < rows.len() {
                return rows.start + left;
            }
            left -= rows.len();
        }
        panic!(
            "position {position} is beyond a sequence of {} tokens",
            self.len()
        )
    }
}

/// Length of the common prefix of two sequences, tokens.
pub(crate) fn common_prefix(one: &[u32], other: &[u32]) -> usize {
    one.iter()
        .zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_alike_stands_once() {
        let batch = Batch::new(&[
            &[1, 2, 3, 4],
            &[1, 2, 5, 6],
            &[1, 2, 5, 7],
            &[1, 2, 5, 7],
            &[8, 2],
        ]);
        assert_eq!(batch.ids(), [1, 2, 3, 4, 5, 6, 7, 8, 2]);
        assert_eq!(batch.positions(), [0, 1, 2, 3, 2, 3, 3, 0, 1]);
        let rows = |span: &Span| {
            (0..span.len())
                .map(|position| span.row(position))
                .collect::<Vec<_>>()
        };
        let expected = [
            vec![0, 1, 2, 3],
            vec![0, 1, 4, 5],
            vec![0, 1, 4, 6],
            vec![0, 1, 4, 6],
            vec![7, 8],
        ];
        assert_eq!(batch.spans().iter().map(rows).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn keys_depend_on_what_stands_before_alone() {
        let (first, second): ([u32; 4], [u32; 4]) = ([1, 2, 3, 4], [1, 2, 5, 4]);
        let keys = |sequences: &[&[u32]]| Batch::new(sequences).keys(sequences);
        let both = keys(&[&first, &second]);
        let (alone, other) = (keys(&[&first]), keys(&[&second]));
        assert_eq!(both, [alone.as_slice(), &other[2..]].concat());
        assert_eq!(alone[..2], other[..2]);
        assert_ne!(alone[3], other[3]);
        assert_ne!(alone[0], keys(&[&[2, 1]])[1]);
    }

    proptest! {
        #[test]
        fn every_token_has_a_row_at_its_position(
            sequences in prop::collection::vec(prop::collection::vec(0_u32..2, 1..8), 1..8),
        ) {
            let all: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
            let batch = Batch::new(&all);
            let positions = batch.positions();
            for (sequence, span) in all.iter().zip(batch.spans()) {
                prop_assert_eq!(sequence.len(), span.len());
                for (position, &id) in sequence.iter().enumerate() {
                    prop_assert_eq!(batch.ids()[span.row(position)], id as i32);
                    prop_assert_eq!(positions[span.row(position)], position as i32);
                }
            }
        }
    }
}
