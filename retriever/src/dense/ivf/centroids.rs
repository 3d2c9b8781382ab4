//! Where the lists of an inverted file lie: spherical k-means (Dhillon and Modha, 2001) on a sample, in two levels.
//!
//! A first k-means cuts the sample into about as many cells as each cell then gets lists, so that a vector is compared with
//! twice the square root of the number of lists instead of with all. Sums run over rows in their order and every pick
//! follows from the sizes: the result does not depend on the number of threads.

use forage_contracts::seed::Seed;
use rayon::prelude::*;

use crate::dense::kernel;
use crate::dense::lift::Lift;
use crate::dense::vectors::VectorFile;
use crate::top::{Scored, TopK};

/// Rows of the sample per list, and of the sample of the first level per cell.
const ROWS_PER_LIST: usize = 64;
const ROWS_PER_CELL: usize = 256;
/// Rounds of k-means, unless nothing moves before.
const ROUNDS: usize = 10;
/// Cells in whose lists a row is looked for. More change nothing that can be measured.
const NEAR_CELLS: usize = 4;

/// The centroids of the lists, of norm 1, in the lifted space (see [`Lift`]).
pub(super) struct Centroids {
    lift: Lift,
    dimension: usize,
    /// `[cells, width]`
    cells: Vec<f32>,
    /// The first list of each cell, and the end.
    first: Vec<usize>,
    /// `[lists, width]`
    lists: Vec<f32>,
}

impl Centroids {
    /// Places `count` centroids, of which there are at most as many as rows.
    pub(super) fn train(vectors: &VectorFile, count: usize) -> Self {
        let (rows, dimension) = (vectors.rows(), vectors.dimension());
        let lift = Lift::of(vectors);
        let width = lift.width(dimension);
        let seed = Seed::root(0).child("ivf", &[rows as u64, dimension as u64, count as u64]);
        let gather = |rows: &[usize]| {
            let mut values = Vec::with_capacity(rows.len() * width);
            for &row in rows {
                lift.append(vectors.row(row), &mut values);
            }
            values
        };
        let sample = spread(
            rows,
            (ROWS_PER_LIST * count).min(rows),
            seed.child("rows", &[]),
        );
        let cells = count.isqrt();
        let few = (ROWS_PER_CELL * cells).min(sample.len());
        let few = spread(sample.len(), few, seed.child("few", &[]));
        let few: Vec<usize> = few.into_iter().map(|at| sample[at]).collect();
        let mut cells = k_means(&gather(&few), width, cells, seed.child("cells", &[]));
        let nearest_cell = sample
            .par_iter()
            .map_init(Vec::new, |lifted, &row| {
                lifted.clear();
                lift.append(vectors.row(row), lifted);
                nearest(lifted, &cells)
            })
            .collect::<Vec<u32>>();
        let mut members = vec![Vec::new(); cells.len() / width];
        for (&row, cell) in sample.iter().zip(nearest_cell) {
            members[cell as usize].push(row);
        }
        // A cell gets lists in proportion to its rows, never more than it has rows.
        let (mut before, mut first) = (0, vec![0]);
        for rows in &members {
            before += rows.len();
            first.push(before * count / sample.len());
        }
        let parts: Vec<Vec<f32>> = members
            .par_iter()
            .enumerate()
            .map(|(cell, rows)| {
                let share = first[cell + 1] - first[cell];
                let seed = seed.child("lists", &[cell as u64]);
                k_means(&gather(rows), width, share, seed)
            })
            .collect();
        // A cell without lists leads nowhere.
        let kept = |cell: &usize| first[*cell + 1] > first[*cell];
        let kept: Vec<usize> = (0..members.len()).filter(kept).collect();
        cells = kept
            .iter()
            .flat_map(|&cell| &cells[cell * width..(cell + 1) * width])
            .copied()
            .collect();
        let ends = kept.iter().map(|&cell| first[cell + 1]);
        Self {
            lift,
            dimension,
            cells,
            first: std::iter::once(0).chain(ends).collect(),
            lists: parts.concat(),
        }
    }

    fn width(&self) -> usize {
        self.lift.width(self.dimension)
    }

    /// Number of lists.
    pub(super) fn count(&self) -> usize {
        self.lists.len() / self.width()
    }

    /// The centroids one after another, without the coordinate that queries do not have.
    pub(super) fn values(&self) -> impl Iterator<Item = &[f32]> {
        let lists = self.lists.chunks_exact(self.width());
        lists.map(|centroid| &centroid[..self.dimension])
    }

    /// The list of every row: that with the nearest centroid, among those of the nearest cells.
    pub(super) fn assign(&self, vectors: &VectorFile) -> Vec<u32> {
        let rows = vectors.values().par_chunks_exact(self.dimension);
        rows.map_init(Vec::new, |lifted, row| {
            lifted.clear();
            self.lift.append(row, lifted);
            self.list_of(lifted)
        })
        .collect()
    }

    fn list_of(&self, lifted: &[f32]) -> u32 {
        let mut cells = TopK::new(NEAR_CELLS);
        kernel::each_product(lifted, &self.cells, |doc, score| {
            cells.push(Scored { score, doc });
        });
        let mut best = TopK::new(1);
        for (cell, _) in cells.drain_sorted() {
            let (begin, end) = (self.first[cell as usize], self.first[cell as usize + 1]);
            let lists = &self.lists[begin * self.width()..end * self.width()];
            kernel::each_product(lifted, lists, |list, score| {
                let doc = begin as u32 + list;
                best.push(Scored { score, doc });
            });
        }
        best.worst().map_or(0, |best| best.doc)
    }
}

/// `count` numbers below `total`, ascending, one from each of as many equal parts.
pub(super) fn spread(total: usize, count: usize, seed: Seed) -> Vec<usize> {
    let bound = |part: usize| part * total / count;
    let pick = |part: usize| {
        let (begin, end) = (bound(part), bound(part + 1));
        begin + (seed.child("part", &[part as u64]).0 % (end - begin) as u64) as usize
    };
    (0..count).map(pick).collect()
}

/// The row of `centres` with the largest inner product, the first of equal ones.
fn nearest(row: &[f32], centres: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    kernel::each_product(row, centres, |centre, score| {
        if score > best.1 {
            best = (centre, score);
        }
    });
    best.0
}

/// `count` centres of norm 1 of `rows`, of which there are at least as many.
fn k_means(rows: &[f32], width: usize, count: usize, seed: Seed) -> Vec<f32> {
    if count == 0 {
        return Vec::new();
    }
    let row = |at: usize| &rows[at * width..(at + 1) * width];
    let first = spread(rows.len() / width, count, seed);
    let mut centres: Vec<f32> = first.into_iter().flat_map(row).copied().collect();
    let mut belongs = Vec::new();
    for _ in 0..ROUNDS {
        let next = rows
            .par_chunks_exact(width)
            .map(|row| nearest(row, &centres))
            .collect::<Vec<u32>>();
        if next == belongs {
            break;
        }
        belongs = next;
        let mut sums = vec![0.0_f32; centres.len()];
        for (row, &centre) in rows.chunks_exact(width).zip(&belongs) {
            let sum = &mut sums[centre as usize * width..][..width];
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += value;
            }
        }
        for (centre, sum) in centres.chunks_exact_mut(width).zip(sums.chunks(width)) {
            let norm = kernel::product(sum, sum).sqrt();
            // A centre that lost all its rows stays where it was.
            if norm > 0.0 {
                for (value, sum) in centre.iter_mut().zip(sum) {
                    *value = sum / norm;
                }
            }
        }
    }
    centres
}
