//! Largest inner products as nearest neighbours.

use rayon::prelude::*;

use super::kernel;
use super::vectors::VectorFile;

/// Norms closer to each other than this count as one: no dimension is added.
const SAME_NORM: f32 = 1e-3;

/// Turns the largest inner product into the smallest distance: all vectors are brought to norm 1 by one common factor and,
/// where their norms differ, one more coordinate (Bachrach et al., 2014). Queries get a zero there, which changes nothing.
pub(super) struct Lift {
    largest: f32,
    extra: bool,
}

impl Lift {
    /// The lift of these vectors, the same on every number of threads.
    pub(super) fn of(vectors: &VectorFile) -> Self {
        let norms = vectors
            .values()
            .par_chunks_exact(vectors.dimension())
            .map(|row| kernel::product(row, row).sqrt());
        let (smallest, largest) = norms.map(|norm| (norm, norm)).reduce(
            || (f32::INFINITY, 0.0),
            |one, other| (one.0.min(other.0), one.1.max(other.1)),
        );
        Self {
            largest: largest.max(f32::MIN_POSITIVE),
            extra: largest - smallest > SAME_NORM * largest,
        }
    }

    /// Numbers of a lifted vector.
    pub(super) fn width(&self, dimension: usize) -> usize {
        dimension + usize::from(self.extra)
    }

    /// Writes a lifted vector behind those already in `lifted`.
    pub(super) fn append(&self, vector: &[f32], lifted: &mut Vec<f32>) {
        let begin = lifted.len();
        lifted.extend(vector.iter().map(|value| value / self.largest));
        if self.extra {
            let square = kernel::product(&lifted[begin..], &lifted[begin..]);
            lifted.push((1.0 - square).max(0.0).sqrt());
        }
    }
}
