//! Search over an inverted file (Jégou, Douze and Schmid, 2011): rows lie in lists around centroids, a query reads the lists
//! that lie nearest to it.
//!
//! Lists hold codes of eight bits per coordinate; the best by code are scored again in full precision. How many lists are
//! read is measured when the index is made (see [`probes`]).

mod centroids;
mod lists;
mod probes;

use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;

use forage_contracts::retriever::{CancelFlag, RetrieverError};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::quantised::RESCORED;
use super::vectors::VectorFile;
use super::{VectorIndex, VectorIndexKind, fault, flat, kernel, quantised};
use crate::top::{Scored, TopK};
use lists::{LARGEST_CODE, Lists};

/// Rows of a list between two looks at the flag that ends the search: passages that are all alike lie in one long list.
const ROWS_AT_ONCE: usize = 8192;

/// An inverted file over a file of vectors.
///
/// Rows that a filter leaves out do not count as read: a query goes on to further lists until it has seen as many allowed rows
/// as `nprobe` lists hold on average, so a filter costs no recall.
pub(crate) struct IvfIndex {
    vectors: Arc<VectorFile>,
    lists: Lists,
    nprobe: usize,
}

/// How the lists of a segment are read, in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probing {
    /// Lists that there are.
    pub(crate) lists: usize,
    /// Lists that a query reads at least.
    pub(crate) nprobe: usize,
    /// Share of the ten nearest that queries find, measured with passages as queries.
    pub(crate) recall: f64,
}

/// Lists that so many rows get unless told otherwise: four times the square root.
pub(crate) fn default_lists(rows: usize) -> usize {
    (4.0 * (rows as f64).sqrt()).round() as usize
}

impl IvfIndex {
    /// Assigns every row to a list and measures how many lists queries must read. The same rows give the same lists on every
    /// number of threads.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when there are more rows than lists can hold.
    pub(crate) fn build(vectors: Arc<VectorFile>) -> Result<Self, RetrieverError> {
        let count = default_lists(check_rows(&vectors)?).min(vectors.rows());
        let lists = Lists::new(&vectors, count)?;
        let index = Self {
            vectors,
            lists,
            nprobe: 1,
        };
        let nprobe = index.measured(None)?.nprobe;
        Ok(Self { nprobe, ..index })
    }

    /// Writes `count` lists of the rows, at most as many as there are rows.
    ///
    /// # Errors
    /// As [`Self::build`], and failures of the disk.
    pub(crate) fn save(
        path: &Path,
        vectors: &VectorFile,
        count: usize,
    ) -> Result<(), RetrieverError> {
        let rows = check_rows(vectors)?;
        Lists::save(path, vectors, count.clamp(rows.min(1), rows))
    }

    /// Maps the lists that were made of `vectors`.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when the file is missing, damaged, or belongs to other vectors.
    pub(crate) fn load(
        path: &Path,
        vectors: Arc<VectorFile>,
        nprobe: usize,
    ) -> Result<Self, RetrieverError> {
        let lists = Lists::open(path, &vectors)?;
        let nprobe = nprobe.clamp(1, lists.count().max(1));
        Ok(Self {
            vectors,
            lists,
            nprobe,
        })
    }

    fn nearest(
        &self,
        query: &[f32],
        k: usize,
        nprobe: usize,
        allowed: Option<&[bool]>,
        cancel: &CancelFlag,
    ) -> Result<Vec<(u32, f32)>, RetrieverError> {
        let candidates = quantised::candidates(k);
        let enough = (self.vectors.rows() * nprobe / self.lists.count()).max(candidates);
        let codes = encode(query, self.lists.width());
        let mut lists = Vec::with_capacity(self.lists.count());
        kernel::each_product(query, self.lists.centroids(), |doc, score| {
            lists.push(Scored { score, doc });
        });
        let mut lists = BinaryHeap::from(lists);
        let mut best = TopK::new(candidates);
        let (mut probed, mut seen) = (0, 0);
        while probed < nprobe || seen < enough {
            let Some(list) = lists.pop() else { break };
            seen += self.read(list.doc, &codes, allowed, cancel, &mut best)?;
            probed += 1;
        }
        let mut rows: Vec<u32> = best.drain_sorted().iter().map(|(row, _)| *row).collect();
        rows.sort_unstable();
        // That lists name each row once is not checked when they are opened: it would read all of them.
        let twice = rows
            .iter()
            .zip(&rows[1.min(rows.len())..])
            .find(|(one, next)| one == next);
        if let Some((row, _)) = twice {
            let what = format!("row {row} lies in two lists; embed the index again");
            return Err(fault(self.vectors.path(), what));
        }
        Ok(flat::best_of(&self.vectors, query, rows.into_iter(), k))
    }

    /// Offers the rows of a list by their codes; gives how many of them are allowed.
    fn read(
        &self,
        list: u32,
        query: &[i16],
        allowed: Option<&[bool]>,
        cancel: &CancelFlag,
        best: &mut TopK,
    ) -> Result<usize, RetrieverError> {
        cancel.check()?;
        let rows = self.lists.list(list);
        let count = self.vectors.rows();
        if let Some(row) = rows.rows.iter().find(|&&row| row as usize >= count) {
            let what = format!("list {list} names row {row} of {count}; embed the index again");
            return Err(fault(self.vectors.path(), what));
        }
        let mut seen = 0;
        let codes = rows.codes.chunks_exact(self.lists.width());
        let coded = rows.rows.iter().zip(rows.scales).zip(codes);
        for (at, ((&row, scale), codes)) in coded.enumerate() {
            if at > 0 && at.is_multiple_of(ROWS_AT_ONCE) {
                cancel.check()?;
            }
            if allowed.is_none_or(|allowed| allowed[row as usize]) {
                seen += 1;
                let score = kernel::code_product(query, codes) as f32 * scale;
                best.push(Scored { score, doc: row });
            }
        }
        Ok(seen)
    }
}

impl VectorIndex for IvfIndex {
    fn kind(&self) -> VectorIndexKind {
        VectorIndexKind::Ivf
    }

    fn vectors(&self) -> &VectorFile {
        &self.vectors
    }

    fn parameters(&self) -> String {
        format!(
            "ivf bits=8 lists={} nprobe={} {RESCORED}",
            self.lists.count(),
            self.nprobe
        )
    }

    fn best(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&[bool]>,
        cancel: &CancelFlag,
    ) -> Result<Vec<Vec<(u32, f32)>>, RetrieverError> {
        let dimension = self.vectors.dimension();
        if queries.len() == dimension {
            // Other work of the pool is not waited for.
            return Ok(vec![self.nearest(
                queries,
                k,
                self.nprobe,
                allowed,
                cancel,
            )?]);
        }
        let queries = queries.par_chunks_exact(dimension);
        let answers = queries.map(|query| self.nearest(query, k, self.nprobe, allowed, cancel));
        answers.collect()
    }
}

/// Rows are numbered in four bytes.
fn check_rows(vectors: &VectorFile) -> Result<usize, RetrieverError> {
    let rows = vectors.rows();
    if u32::try_from(rows).is_ok() {
        return Ok(rows);
    }
    let what = format!("{rows} rows are too many for one segment; add the corpus in parts");
    Err(fault(vectors.path(), what))
}

/// A query in whole numbers, filled up with zeros, as fine as sums in 32 bits allow. Its scale changes no order.
fn encode(query: &[f32], width: usize) -> Vec<i16> {
    // A damaged code may be one below the smallest that is written.
    let finest = i64::from(i32::MAX) / (i64::from(LARGEST_CODE + 1) * width as i64);
    let finest = finest.clamp(1, i64::from(i16::MAX)) as f32;
    let largest = query
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    let code = |value: &f32| (value / largest * finest).round() as i16;
    let mut codes: Vec<i16> = query.iter().map(code).collect();
    codes.resize(width, 0);
    codes
}
