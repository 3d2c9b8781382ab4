//! The best k of a stream of scored documents.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A document (or row of vectors) with its score. The greater is the better: higher score, then lower number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scored {
    pub(crate) score: f32,
    pub(crate) doc: u32,
}

impl Eq for Scored {}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then(other.doc.cmp(&self.doc))
    }
}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Keeps the best `k`, in whatever order documents come.
#[derive(Debug, Clone, Default)]
pub(crate) struct TopK {
    k: usize,
    /// Only scores above it are kept; none keeps all.
    floor: Option<f32>,
    worst_first: BinaryHeap<Reverse<Scored>>,
}

impl TopK {
    pub(crate) fn new(k: usize) -> Self {
        Self {
            k,
            ..Self::default()
        }
    }

    /// Empties the list for another query or segment; only scores above `floor` are kept from now on.
    pub(crate) fn reset(&mut self, k: usize, floor: f32) {
        self.k = k;
        self.floor = Some(floor);
        self.worst_first.clear();
    }

    /// The score that a document must exceed when documents come in ascending order, as later ones lose ties: the floor
    /// until the list is full, then the score of the k-th.
    pub(crate) fn threshold(&self) -> f32 {
        if !self.is_full() {
            return self.floor.unwrap_or(f32::NEG_INFINITY);
        }
        self.worst().map_or(f32::INFINITY, |worst| worst.score)
    }

    /// Tells whether a document would be kept.
    pub(crate) fn admits(&self, offered: Scored) -> bool {
        self.floor.is_none_or(|floor| offered.score > floor)
            && (!self.is_full() || self.worst().is_some_and(|worst| offered > worst))
    }

    pub(crate) fn push(&mut self, offered: Scored) {
        if !self.admits(offered) {
            return;
        }
        if !self.is_full() {
            self.worst_first.push(Reverse(offered));
        } else if let Some(mut worst) = self.worst_first.peek_mut() {
            *worst = Reverse(offered);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.worst_first.len() == self.k
    }

    /// The worst document kept.
    pub(crate) fn worst(&self) -> Option<Scored> {
        self.worst_first.peek().map(|worst| worst.0)
    }

    /// Adds the list of another part of the documents.
    pub(crate) fn merge(&mut self, other: Self) {
        for Reverse(offered) in other.worst_first {
            self.push(offered);
        }
    }

    /// Takes documents and scores out, best first.
    pub(crate) fn drain_sorted(&mut self) -> Vec<(u32, f32)> {
        let mut ranked = vec![(0, 0.0); self.worst_first.len()];
        for slot in ranked.iter_mut().rev() {
            if let Some(Reverse(worst)) = self.worst_first.pop() {
                *slot = (worst.doc, worst.score);
            }
        }
        ranked
    }
}
