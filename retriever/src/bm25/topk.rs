//! The best k documents seen so far.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A document and its score; ordered so that the worst of a heap is its greatest element.
#[derive(Debug, Clone, Copy)]
struct Entry {
    score: f32,
    doc: u32,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.doc.cmp(&other.doc))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// Keeps the k highest scores; of equal scores the lower document number wins.
///
/// Documents must be offered in ascending order. Then a later document with the score of the k-th never belongs in the
/// list, so "greater than the threshold" is the exact test, ties included.
#[derive(Default)]
pub(crate) struct TopK {
    k: usize,
    floor: f32,
    heap: BinaryHeap<Entry>,
}

impl TopK {
    /// Empties the list for another query or segment. Only documents with scores above `floor` are kept; negative
    /// infinity keeps all.
    pub(crate) fn reset(&mut self, k: usize, floor: f32) {
        self.k = k;
        self.floor = floor;
        self.heap.clear();
    }

    /// The score a document must exceed; the floor while there is room.
    pub(crate) fn threshold(&self) -> f32 {
        if self.heap.len() < self.k {
            return self.floor;
        }
        self.heap.peek().map_or(f32::INFINITY, |worst| worst.score)
    }

    pub(crate) fn offer(&mut self, doc: u32, score: f32) {
        if score <= self.threshold() {
            return;
        }
        if self.heap.len() == self.k {
            self.heap.pop();
        }
        self.heap.push(Entry { score, doc });
    }

    /// Takes the list out, best first.
    pub(crate) fn drain_sorted(&mut self) -> Vec<(u32, f32)> {
        let mut ranked = vec![(0, 0.0); self.heap.len()];
        for slot in ranked.iter_mut().rev() {
            if let Some(worst) = self.heap.pop() {
                *slot = (worst.doc, worst.score);
            }
        }
        ranked
    }
}
