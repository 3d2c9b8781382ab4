//! The best `k` of a stream of scored rows.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A row with its score. The greater is the better: higher score, then lower row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scored {
    pub(super) score: f32,
    pub(super) row: u32,
}

impl Eq for Scored {}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.row.cmp(&self.row))
    }
}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Keeps the best `k`, in whatever order rows come.
#[derive(Debug, Clone)]
pub(super) struct Top {
    k: usize,
    worst_first: BinaryHeap<Reverse<Scored>>,
}

impl Top {
    pub(super) fn new(k: usize) -> Self {
        Self { k, worst_first: BinaryHeap::new() }
    }

    /// Offers a row.
    pub(super) fn push(&mut self, offered: Scored) {
        if self.worst_first.len() < self.k {
            self.worst_first.push(Reverse(offered));
        } else if let Some(mut worst) = self.worst_first.peek_mut()
            && offered > worst.0
        {
            *worst = Reverse(offered);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.worst_first.len() == self.k
    }

    /// The worst row kept.
    pub(super) fn worst(&self) -> Option<Scored> {
        self.worst_first.peek().map(|worst| worst.0)
    }

    /// Takes in what another part of the rows gave.
    pub(super) fn merge(&mut self, other: Self) {
        for Reverse(offered) in other.worst_first {
            self.push(offered);
        }
    }

    /// Rows and scores, best first.
    pub(super) fn into_sorted(self) -> Vec<(u32, f32)> {
        let sorted = self.worst_first.into_sorted_vec();
        sorted.into_iter().map(|Reverse(kept)| (kept.row, kept.score)).collect()
    }
}
