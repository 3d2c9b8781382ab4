//! Exhaustive search over codes of four bits per coordinate, then exact scores for the best.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use forage_contracts::retriever::{CancelFlag, RetrieverError};
use turbovec::TurboQuantIndex;

use super::vectors::VectorFile;
use super::{VectorIndex, VectorIndexKind, fault, flat};
use crate::error::IndexError;

const BITS: usize = 4;
/// Dimensions of the codes are multiples of this; vectors are padded with zeros.
const DIMENSION_STEP: usize = 8;
/// How many rows an index over codes scores again in full precision, in words for fingerprints.
pub(super) const RESCORED: &str = "rescored=4k,40";
/// Queries that go over the codes together, between two looks at the flag that ends the search.
const QUERIES_AT_ONCE: usize = 64;
/// Rows coded at once while building.
const ROWS_AT_ONCE: usize = 8192;

/// `TurboQuant` codes (data-oblivious, nothing is trained) over a file of vectors.
///
/// A query reads an eighth of the bytes of the vectors. A row counts when its code puts it among the best `max(4 k, 40)`.
pub(crate) struct QuantisedIndex {
    vectors: Arc<VectorFile>,
    codes: TurboQuantIndex,
}

impl QuantisedIndex {
    /// Codes every row.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when the dimension is beyond what the codes can hold.
    pub(crate) fn build(vectors: Arc<VectorFile>) -> Result<Self, RetrieverError> {
        let refused = |cause: String| {
            fault(
                vectors.path(),
                format!("cannot be coded ({cause}); use a flat index"),
            )
        };
        let width = vectors.dimension().next_multiple_of(DIMENSION_STEP);
        let mut codes =
            TurboQuantIndex::new(width, BITS).map_err(|cause| refused(cause.to_string()))?;
        for rows in vectors.values().chunks(ROWS_AT_ONCE * vectors.dimension()) {
            codes
                .add_2d(&padded(rows, vectors.dimension()), width)
                .map_err(|cause| refused(cause.to_string()))?;
        }
        codes.prepare();
        Ok(Self { vectors, codes })
    }

    /// Writes the codes.
    ///
    /// # Errors
    /// Failures of the disk.
    pub(crate) fn save(&self, path: &Path) -> Result<(), RetrieverError> {
        let written = self.codes.write(path);
        Ok(written.map_err(IndexError::io("write", path))?)
    }

    /// Reads the codes that were made of `vectors`.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when the file is missing, damaged, or belongs to other vectors.
    pub(crate) fn load(path: &Path, vectors: Arc<VectorFile>) -> Result<Self, RetrieverError> {
        let codes = TurboQuantIndex::load(path).map_err(|cause| {
            fault(
                path,
                format!("cannot be read ({cause}); embed the index again"),
            )
        })?;
        let expected = (
            vectors.rows(),
            vectors.dimension().next_multiple_of(DIMENSION_STEP),
        );
        let found = (codes.len(), codes.dim_opt().unwrap_or(expected.1));
        if found != expected {
            let what = format!(
                "codes of (rows, width) {found:?} for vectors of {expected:?}; embed the index again"
            );
            return Err(fault(path, what));
        }
        codes.prepare();
        Ok(Self { vectors, codes })
    }
}

impl VectorIndex for QuantisedIndex {
    fn kind(&self) -> VectorIndexKind {
        VectorIndexKind::Quantised
    }

    fn vectors(&self) -> &VectorFile {
        &self.vectors
    }

    fn parameters(&self) -> String {
        format!("turboquant bits={BITS} {RESCORED}")
    }

    fn best(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&[bool]>,
        cancel: &CancelFlag,
    ) -> Result<Vec<Vec<(u32, f32)>>, RetrieverError> {
        let dimension = self.vectors.dimension();
        let mut answers = Vec::with_capacity(queries.len() / dimension);
        for queries in queries.chunks(QUERIES_AT_ONCE * dimension) {
            cancel.check()?;
            let found = self
                .codes
                .try_search_with_mask(&padded(queries, dimension), candidates(k), allowed)
                .map_err(|cause| fault(Path::new("query"), cause.to_string()))?;
            for (at, query) in queries.chunks_exact(dimension).enumerate() {
                let rows = found
                    .indices_for_query(at)
                    .iter()
                    .filter_map(|&row| u32::try_from(row).ok());
                answers.push(flat::best_of(&self.vectors, query, rows, k));
            }
        }
        Ok(answers)
    }
}

/// Rows that are scored again for `k` hits, see [`RESCORED`].
pub(super) fn candidates(k: usize) -> usize {
    (4 * k).max(40)
}

/// Rows with zeros after them up to the width of the codes; zeros change no inner product.
fn padded(rows: &[f32], dimension: usize) -> Cow<'_, [f32]> {
    let width = dimension.next_multiple_of(DIMENSION_STEP);
    if width == dimension {
        return Cow::Borrowed(rows);
    }
    let mut wide = Vec::with_capacity(rows.len() / dimension * width);
    for row in rows.chunks_exact(dimension) {
        wide.extend_from_slice(row);
        wide.resize(wide.len() + width - dimension, 0.0);
    }
    Cow::Owned(wide)
}
