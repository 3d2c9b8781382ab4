//! Which texts run together.
//!
//! A batch is a list of groups, a group is rows of one width. Everything but attention works on single tokens and does not
//! see the groups, so on a processor a group holds texts of exactly one length: no padding is computed and no mask needed.
//! A GPU wants few, large and regular kernels: there a batch is one group, padded to a multiple of 32, or to as many tokens as the model
//! has positions for.

/// How to cut texts into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Groups of one length; at most so many tokens per batch, or one text.
    Exact { tokens: usize },
    /// One padded group per batch; at most so many tokens, padding included, or one text. No text is longer than `longest`.
    Padded { tokens: usize, longest: usize },
}

/// Rows of one width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Tokens per row, padding included.
    pub(super) width: usize,
    /// Tokens of each row, padding excluded.
    pub(super) lengths: Vec<usize>,
}

impl Group {
    pub(super) fn rows(&self) -> usize {
        self.lengths.len()
    }

    pub(super) fn tokens(&self) -> usize {
        self.rows() * self.width
    }

    pub(super) fn padded(&self) -> bool {
        self.lengths.iter().any(|&length| length < self.width)
    }
}

/// Texts of one forward pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// Places of the texts in the caller's list, in the order of the groups' rows.
    pub(super) texts: Vec<usize>,
    pub(super) groups: Vec<Group>,
}

impl Batch {
    fn push(&mut self, text: usize, length: usize, width: usize) {
        self.texts.push(text);
        match self.groups.last_mut() {
            Some(group) if group.width == width => group.lengths.push(length),
            _ => self.groups.push(Group {
                width,
                lengths: vec![length],
            }),
        }
    }

    pub(super) fn tokens(&self) -> usize {
        self.groups.iter().map(Group::tokens).sum()
    }
}

/// Cuts texts of the given lengths into batches, the longest texts first: those are the longest jobs, and threads that
/// share the batches then finish together.
pub(super) fn plan(lengths: &[usize], packing: Packing) -> Vec<Batch> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&text| (std::cmp::Reverse(lengths[text]), text));
    let mut batches: Vec<Batch> = Vec::new();
    for text in order {
        let length = lengths[text];
        let room = |batch: &Batch, tokens, width| batch.tokens() + width <= tokens;
        let (fits, width) = match packing {
            Packing::Exact { tokens } => (
                batches
                    .last()
                    .is_some_and(|batch| room(batch, tokens, length)),
                length,
            ),
            Packing::Padded { tokens, longest } => {
                let width = batches.last().map_or(0, |batch| batch.groups[0].width);
                let fits = batches
                    .last()
                    .is_some_and(|batch| room(batch, tokens, width));
                (
                    fits,
                    if fits {
                        width
                    } else {
                        length.next_multiple_of(32).min(longest)
                    },
                )
            }
        };
        if !fits {
            batches.push(Batch::default());
        }
        if let Some(batch) = batches.last_mut() {
            batch.push(text, length, width);
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exact_groups_hold_one_length() {
        let batches = plan(&[3, 5, 3, 9], Packing::Exact { tokens: 11 });
        assert_eq!(batches.len(), 2);
        assert_eq!(
            batches[0],
            Batch {
                texts: vec![3],
                groups: vec![Group {
                    width: 9,
                    lengths: vec![9]
                }]
            }
        );
        assert_eq!(batches[1].texts, [1, 0, 2]);
        let groups = [
            Group {
                width: 5,
                lengths: vec![5],
            },
            Group {
                width: 3,
                lengths: vec![3, 3],
            },
        ];
        assert_eq!(batches[1].groups, groups);
    }

    #[test]
    fn rows_are_padded_to_no_more_tokens_than_there_are_positions() {
        let packing = Packing::Padded {
            tokens: 1 << 15,
            longest: 500,
        };
        let width = |length: usize| plan(&[length], packing)[0].groups[0].width;
        assert_eq!([width(470), width(490)], [480, 500]);
    }

    proptest! {
        #[test]
        fn every_text_runs_once_within_the_budget(
            lengths in prop::collection::vec(1_usize..80, 0..60),
            tokens in 1_usize..300,
            padded: bool,
        ) {
            let packing = if padded {
                Packing::Padded { tokens, longest: 79 }
            } else {
                Packing::Exact { tokens }
            };
            let batches = plan(&lengths, packing);
            let mut seen = vec![0; lengths.len()];
            for batch in &batches {
                prop_assert!(batch.tokens() <= tokens || batch.texts.len() == 1);
                let rows = batch.groups.iter().flat_map(|group| group.lengths.iter().map(|&l| (l, group.width)));
                for (&text, (length, width)) in batch.texts.iter().zip(rows.clone()) {
                    seen[text] += 1;
                    prop_assert_eq!(length, lengths[text]);
                    prop_assert!(length <= width && width < 80 && (padded || length == width));
                }
                prop_assert_eq!(rows.count(), batch.texts.len());
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
        }
    }
}
