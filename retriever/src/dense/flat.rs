//! Exact search: every query against every row.

use std::sync::Arc;

use forage_contracts::retriever::{CancelFlag, RetrieverError};
use rayon::prelude::*;

use super::kernel::{self, GROUP};
use super::vectors::VectorFile;
use super::{VectorIndex, VectorIndexKind};
use crate::top::{Scored, TopK};

/// Bytes of rows that all queries see before the next rows are read: well inside a second-level cache.
const BLOCK_BYTES: usize = 256 << 10;
/// Products of coordinates that are worth a thread of their own.
const PARALLEL_WORK: usize = 1 << 24;

/// Compares every vector in full precision.
pub(crate) struct FlatIndex {
    vectors: Arc<VectorFile>,
}

impl FlatIndex {
    /// An index over these rows; there is nothing to build.
    pub(crate) fn new(vectors: Arc<VectorFile>) -> Self {
        Self { vectors }
    }
}

impl VectorIndex for FlatIndex {
    fn kind(&self) -> VectorIndexKind {
        VectorIndexKind::Flat
    }

    fn vectors(&self) -> &VectorFile {
        &self.vectors
    }

    fn parameters(&self) -> String {
        "exact".to_owned()
    }

    fn best(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&[bool]>,
        cancel: &CancelFlag,
    ) -> Result<Vec<Vec<(u32, f32)>>, RetrieverError> {
        scan(&self.vectors, queries, k, allowed, cancel)
    }
}

/// As [`VectorIndex::best`], over every row.
pub(super) fn scan(
    vectors: &VectorFile,
    queries: &[f32],
    k: usize,
    allowed: Option<&[bool]>,
    cancel: &CancelFlag,
) -> Result<Vec<Vec<(u32, f32)>>, RetrieverError> {
    let dimension = vectors.dimension();
    let count = queries.len() / dimension;
    let block = (BLOCK_BYTES / (4 * dimension)).max(GROUP);
    let parts =
        (vectors.rows() * queries.len() / PARALLEL_WORK).clamp(1, rayon::current_num_threads());
    let share = vectors.rows().div_ceil(parts).next_multiple_of(block);
    let scan_part = |part: usize| {
        let mut tops = vec![TopK::new(k); count];
        let end = ((part + 1) * share).min(vectors.rows());
        for start in (part * share..end).step_by(block) {
            cancel.check()?;
            scan_block(
                vectors,
                start..end.min(start + block),
                queries,
                allowed,
                &mut tops,
            );
        }
        Ok::<_, RetrieverError>(tops)
    };
    let mut tops: Vec<Vec<TopK>> = if parts == 1 {
        vec![scan_part(0)?]
    } else {
        let scanned = (0..parts).into_par_iter().map(scan_part);
        scanned.collect::<Result<_, _>>()?
    };
    // The best k of a total order are the same however the rows were shared out.
    let mut all = tops.swap_remove(0);
    for part in tops {
        for (top, of_part) in all.iter_mut().zip(part) {
            top.merge(of_part);
        }
    }
    Ok(all.iter_mut().map(TopK::drain_sorted).collect())
}

fn scan_block(
    vectors: &VectorFile,
    block: std::ops::Range<usize>,
    queries: &[f32],
    allowed: Option<&[bool]>,
    tops: &mut [TopK],
) {
    let dimension = vectors.dimension();
    let rows: Vec<usize> = match allowed {
        None => block.collect(),
        Some(allowed) => block.filter(|&row| allowed[row]).collect(),
    };
    let groups = queries
        .chunks(GROUP * dimension)
        .zip(tops.chunks_mut(GROUP));
    for (group, tops) in groups {
        if let [one, two, three, four] = tops {
            let [a, b, c, d] =
                std::array::from_fn(|at| &group[at * dimension..(at + 1) * dimension]);
            for &row in &rows {
                let scores = kernel::products(vectors.row(row), [a, b, c, d]);
                for (top, score) in [&mut *one, &mut *two, &mut *three, &mut *four]
                    .into_iter()
                    .zip(scores)
                {
                    top.push(Scored {
                        score,
                        doc: row as u32,
                    });
                }
            }
        } else {
            for (query, top) in group.chunks(dimension).zip(tops) {
                score_rows(vectors, query, rows.iter().map(|&row| row as u32), top);
            }
        }
    }
}

/// The best `k` of the given rows, scored exactly, best first.
pub(super) fn best_of(
    vectors: &VectorFile,
    query: &[f32],
    rows: impl Iterator<Item = u32>,
    k: usize,
) -> Vec<(u32, f32)> {
    let mut top = TopK::new(k);
    score_rows(vectors, query, rows, &mut top);
    top.drain_sorted()
}

/// Offers the given rows to `top`, scored exactly.
fn score_rows(
    vectors: &VectorFile,
    query: &[f32],
    rows: impl Iterator<Item = u32>,
    top: &mut TopK,
) {
    let mut rows = rows.fuse();
    loop {
        let group: [Option<u32>; GROUP] = std::array::from_fn(|_| rows.next());
        if let [Some(a), Some(b), Some(c), Some(d)] = group {
            let scores = kernel::products(query, [a, b, c, d].map(|row| vectors.row(row as usize)));
            for (row, score) in [a, b, c, d].into_iter().zip(scores) {
                top.push(Scored { score, doc: row });
            }
            continue;
        }
        for row in group.into_iter().flatten() {
            top.push(Scored {
                score: kernel::product(query, vectors.row(row as usize)),
                doc: row,
            });
        }
        return;
    }
}
