//! Search over a navigable small-world graph (Malkov and Yashunin, 2018).
//!
//! `hnsw_rs` builds the graph; only its links are kept, in one flat file that is checked when it is opened, and the walk
//! over them is here. The walk reads vectors from the mapped file, so opening copies nothing, no input can make it panic,
//! and its scores are exact.

mod build;
mod links;

use std::cell::RefCell;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;

use super::vectors::VectorFile;
use super::{VectorIndex, VectorIndexKind, flat, kernel};
use crate::top::{Scored, TopK};
use forage_contracts::retriever::{CancelFlag, RetrieverError};
use links::Links;

/// Rows kept while walking, per hit asked for and at least: the `ef` of the paper.
const KEPT_PER_HIT: usize = 16;
const FEWEST_KEPT: usize = 64;
/// Below this share of allowed rows, and above this share of wanted ones, reading the rows beats walking.
const SCAN_SHARE: usize = 8;

/// A graph over a file of vectors.
pub(crate) struct GraphIndex {
    vectors: Arc<VectorFile>,
    links: Links,
}

thread_local! {
    /// Marks of the rows a walk has seen; a row is seen when its mark is the number of the walk.
    static SEEN: RefCell<(u32, Vec<u32>)> = RefCell::default();
}

impl GraphIndex {
    /// Links every row, one after another on one thread: the same rows give the same graph.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when there are more rows than a graph can hold.
    pub(crate) fn build(vectors: Arc<VectorFile>) -> Result<Self, RetrieverError> {
        let links = build::link(&vectors)?;
        Ok(Self { vectors, links })
    }

    /// Writes the links.
    ///
    /// # Errors
    /// Failures of the disk.
    pub(crate) fn save(&self, path: &Path) -> Result<(), RetrieverError> {
        self.links.save(path)
    }

    /// Maps the links that were made of `vectors`, after checking every one of them.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when the file is missing, damaged, or belongs to other vectors.
    pub(crate) fn load(path: &Path, vectors: Arc<VectorFile>) -> Result<Self, RetrieverError> {
        let links = Links::open(path, vectors.rows())?;
        Ok(Self { vectors, links })
    }

    /// The best rows found, walking down the layers and then through the lowest.
    fn walk(&self, query: &[f32], k: usize, kept: usize, allowed: Option<&[bool]>) -> TopK {
        let mut best = self.scored(query, self.links.entry());
        for layer in (1..self.links.layers()).rev() {
            best = self.climb(query, best, layer);
        }
        let mut top = TopK::new(kept.max(k));
        SEEN.with_borrow_mut(|(walk, marks)| {
            marks.resize(marks.len().max(self.vectors.rows()), 0);
            *walk = walk.wrapping_add(1);
            if *walk == 0 {
                marks.fill(0);
                *walk = 1;
            }
            self.spread(query, best, allowed, &mut top, (*walk, marks));
        });
        top
    }

    /// Moves to the best neighbour until none is better.
    fn climb(&self, query: &[f32], start: Scored, layer: usize) -> Scored {
        let mut best = start;
        loop {
            let neighbours = self.links.of(layer, best.doc);
            let next = neighbours.iter().map(|&row| self.scored(query, row)).max();
            match next {
                Some(next) if next > best => best = next,
                _ => return best,
            }
        }
    }

    /// Looks at neighbours of the best rows until no row left to look at can add to `top`.
    fn spread(
        &self,
        query: &[f32],
        start: Scored,
        allowed: Option<&[bool]>,
        top: &mut TopK,
        (walk, marks): (u32, &mut [u32]),
    ) {
        let is_allowed = |row: u32| allowed.is_none_or(|allowed| allowed[row as usize]);
        let mut open = BinaryHeap::from([start]);
        let mut fresh = Vec::new();
        marks[start.doc as usize] = walk;
        if is_allowed(start.doc) {
            top.push(start);
        }
        while let Some(next) = open.pop() {
            if top.is_full() && top.worst().is_some_and(|worst| next < worst) {
                return;
            }
            fresh.clear();
            for &row in self.links.of(0, next.doc) {
                if marks[row as usize] != walk {
                    marks[row as usize] = walk;
                    fresh.push(row);
                }
            }
            self.score_each(query, &fresh, |scored| {
                if top.is_full() && top.worst().is_some_and(|worst| scored < worst) {
                    return;
                }
                open.push(scored);
                if is_allowed(scored.doc) {
                    top.push(scored);
                }
            });
        }
    }

    fn score_each(&self, query: &[f32], rows: &[u32], mut visit: impl FnMut(Scored)) {
        let (groups, rest) = rows.as_chunks::<{ kernel::GROUP }>();
        for group in groups {
            let scores = kernel::products(query, group.map(|row| self.vectors.row(row as usize)));
            for (&row, score) in group.iter().zip(scores) {
                visit(Scored { score, doc: row });
            }
        }
        for &row in rest {
            visit(self.scored(query, row));
        }
    }

    fn scored(&self, query: &[f32], row: u32) -> Scored {
        Scored {
            score: kernel::product(query, self.vectors.row(row as usize)),
            doc: row,
        }
    }
}

impl VectorIndex for GraphIndex {
    fn kind(&self) -> VectorIndexKind {
        VectorIndexKind::Graph
    }

    fn vectors(&self) -> &VectorFile {
        &self.vectors
    }

    fn parameters(&self) -> String {
        format!(
            "{} ef={KEPT_PER_HIT}k,{FEWEST_KEPT} scanned-below=1/{SCAN_SHARE}",
            build::PARAMETERS
        )
    }

    fn best(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&[bool]>,
        cancel: &CancelFlag,
    ) -> Result<Vec<Vec<(u32, f32)>>, RetrieverError> {
        let kept = (KEPT_PER_HIT * k).max(FEWEST_KEPT);
        let usable = allowed.map_or(self.vectors.rows(), |allowed| {
            allowed.iter().filter(|&&row| row).count()
        });
        if usable < self.vectors.rows() / SCAN_SHARE || kept > usable / SCAN_SHARE {
            return flat::scan(&self.vectors, queries, k, allowed, cancel);
        }
        let answers = queries.chunks_exact(self.vectors.dimension()).map(|query| {
            cancel.check()?;
            let mut best = self.walk(query, k, kept, allowed).drain_sorted();
            best.truncate(k);
            Ok(best)
        });
        answers.collect()
    }
}
