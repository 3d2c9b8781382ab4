//! Sets of documents of a segment.

const WORD_BITS: usize = 64;

/// A set of document numbers of one segment, one bit each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DocSet {
    words: Vec<u64>,
    len: usize,
}

impl DocSet {
    /// No document; `len` is the number of documents of the segment.
    pub(crate) fn empty(len: usize) -> Self {
        let words = vec![0_u64; len.div_ceil(WORD_BITS)];
        Self { words, len }
    }

    /// Adds documents, in any order. Numbers at or above the number of documents of the segment are left out.
    pub(crate) fn insert(&mut self, docs: &[u32]) {
        for &doc in docs {
            let doc = doc as usize;
            if doc < self.len {
                self.words[doc / WORD_BITS] |= 1 << (doc % WORD_BITS);
            }
        }
    }

    /// The set as bits, those of 64 documents a word.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Tells whether a document is in the set.
    pub(crate) fn contains(&self, doc: u32) -> bool {
        let doc = doc as usize;
        self.words
            .get(doc / WORD_BITS)
            .is_some_and(|word| word >> (doc % WORD_BITS) & 1 == 1)
    }

    /// Keeps the documents that are in both sets, which must be of one segment.
    pub(crate) fn intersect(&mut self, other: &Self) {
        debug_assert_eq!(self.len, other.len, "sets of one segment");
        for (word, of_other) in self.words.iter_mut().zip(&other.words) {
            *word &= of_other;
        }
    }

    /// Number of documents in the set.
    pub(crate) fn count(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_set(
            one in prop::collection::btree_set(0_u32..200, 0..60),
            other in prop::collection::btree_set(0_u32..200, 0..60),
            len in 1_usize..180,
        ) {
            let of = |docs: &BTreeSet<u32>| {
                let mut set = DocSet::empty(len);
                set.insert(&docs.iter().copied().collect::<Vec<_>>());
                set
            };
            let mut both = of(&one);
            both.intersect(&of(&other));
            let expected: BTreeSet<u32> =
                one.intersection(&other).copied().filter(|&doc| (doc as usize) < len).collect();
            prop_assert_eq!(both.count(), expected.len());
            for doc in 0..260 {
                prop_assert_eq!(both.contains(doc), expected.contains(&doc));
            }
        }
    }
}
