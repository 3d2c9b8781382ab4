//! Search by vectors: encoders, vector files and the indexes over them.
//!
//! A [`VectorIndex`] answers with rows and inner products. Rows of a segment lie in the byte order of the passages' ids,
//! so that equal scores by row are equal scores by external id.

mod batcher;
mod embed;
mod flat;
mod graph;
pub(crate) mod import;
mod ivf;
mod kernel;
mod lift;
mod quantised;
mod rerank;
pub(crate) mod retriever;
pub(crate) mod storage;
mod table;
mod vectors;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use forage_contracts::retriever::{CancelFlag, Encoder, RetrieverError, TextKind};
use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};

pub use embed::{EmbedSummary, VectorIndexRequest, VectorSource};
pub(crate) use flat::FlatIndex;
pub(crate) use graph::GraphIndex;

pub use import::VectorRows;
pub(crate) use ivf::IvfIndex;
pub(crate) use quantised::QuantisedIndex;

pub(crate) use retriever::MODE;

pub use vectors::VectorFile;

/// Largest magnitude of a coordinate: sums of products of such numbers stay finite at any dimension in use.
const LARGEST: f32 = 1e15;

/// A kind of index over vectors. In configs and on the command line: `flat`, `quantised`, `ivf`, `graph`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum VectorIndexKind {
    /// Every vector is compared, in full precision: exact.
    Flat,
    /// Every vector is compared by codes of four bits per coordinate; the best are scored again in full precision.
    #[default]
    Quantised,
    /// An inverted file: the lists of vectors around the centroids nearest to a query are compared, by codes of eight bits per
    /// coordinate; the best are scored again in full precision. How many lists are read is measured when it is built.
    Ivf,
    /// A navigable small-world graph over the vectors: the time of a query grows with the logarithm of their number.
    Graph,
}

impl VectorIndexKind {
    /// Builds an index of this kind over vectors.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] for vectors that cannot be searched this way.
    pub fn build(self, vectors: Arc<VectorFile>) -> Result<Box<dyn VectorIndex>, RetrieverError> {
        Ok(match self {
            Self::Flat => Box::new(FlatIndex::new(vectors)),
            Self::Quantised => Box::new(QuantisedIndex::build(vectors)?),
            Self::Ivf => Box::new(IvfIndex::build(vectors)?),
            Self::Graph => Box::new(GraphIndex::build(vectors)?),
        })
    }

    /// The name used in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Quantised => "quantised",
            Self::Ivf => "ivf",
            Self::Graph => "graph",
        }
    }
}

impl fmt::Display for VectorIndexKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for VectorIndexKind {
    type Err = serde::de::value::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::deserialize(name.into_deserializer())
    }
}

/// Finds the rows with the largest inner products.
pub trait VectorIndex: Send + Sync {
    /// The kind.
    fn kind(&self) -> VectorIndexKind;

    /// The vectors, row by row.
    fn vectors(&self) -> &VectorFile;

    /// Whatever decides the answers besides the vectors: part of the fingerprint. One line.
    fn parameters(&self) -> String;

    /// The best `k` rows for each query, with exact inner products, best first, equal scores by row; fewer where fewer
    /// rows are allowed. The answer for a query depends neither on the queries beside it nor on the number of threads.
    ///
    /// # Shapes
    /// - `queries`: `[q, dimension]`, one after another
    /// - `allowed`: `[len]`, the rows to consider; all of them without it
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when a query has another dimension or a coordinate that is not finite, or `allowed`
    /// another length; [`RetrieverError::Cancelled`] once `cancel` is set.
    fn search(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&[bool]>,
        cancel: &CancelFlag,
    ) -> Result<Vec<Vec<(u32, f32)>>, RetrieverError> {
        let count = check_queries(self.vectors(), queries, allowed)?;
        let k = k.min(self.vectors().rows());
        if k == 0 || count == 0 {
            return Ok(vec![Vec::new(); count]);
        }
        self.best(queries, k, allowed, cancel)
    }

    /// [`Self::search`] for at least one query, all of them checked, and `k` from 1 to the number of rows.
    ///
    /// # Errors
    /// As [`Self::search`].
    fn best(
        &self,
        queries: &[f32],
        k: usize,
        allowed: Option<&[bool]>,
        cancel: &CancelFlag,
    ) -> Result<Vec<Vec<(u32, f32)>>, RetrieverError>;
}

/// Checks what every index asks of its queries; gives their number.
fn check_queries(
    vectors: &VectorFile,
    queries: &[f32],
    allowed: Option<&[bool]>,
) -> Result<usize, RetrieverError> {
    let dimension = vectors.dimension();
    if !queries.len().is_multiple_of(dimension) {
        let found = queries.len();
        let what = format!(
            "{found} numbers of queries are not a multiple of dimension {dimension}; use the index's encoder"
        );
        return Err(fault(Path::new("query"), what));
    }
    if let Some((query, column, value)) = first_unusable(queries, dimension) {
        let what = format!(
            "query vector {query} has {value} in column {column}; the encoder must give finite numbers below {LARGEST:e}"
        );
        return Err(fault(Path::new("query"), what));
    }
    match allowed {
        Some(rows) if rows.len() != vectors.rows() => {
            let what = format!(
                "{} rows are marked as allowed or not, the index has {}",
                rows.len(),
                vectors.rows()
            );
            Err(fault(Path::new("query"), what))
        }
        _ => Ok(queries.len() / dimension),
    }
}

/// The first coordinate that cannot be searched, as (row, column, value).
fn first_unusable(values: &[f32], dimension: usize) -> Option<(usize, usize, f32)> {
    // A comparison with NaN is false, so NaN counts as unusable.
    let at = values.iter().position(|value| {
        !matches!(
            value.abs().partial_cmp(&LARGEST),
            Some(std::cmp::Ordering::Less)
        )
    })?;
    Some((at / dimension, at % dimension, values[at]))
}

/// Encodes, and makes sure that there is a vector for every text.
fn encode_checked(
    encoder: &dyn Encoder,
    kind: TextKind,
    texts: &[&str],
) -> Result<Vec<f32>, RetrieverError> {
    let encoded = encoder.encode(kind, texts)?;
    if encoded.len() == texts.len() * encoder.dimension() {
        return Ok(encoded);
    }
    let what = format!(
        "it gave {} numbers for {} texts of {} each",
        encoded.len(),
        texts.len(),
        encoder.dimension()
    );
    Err(RetrieverError::Model {
        model: encoder.identity(),
        what,
    })
}

/// The text that is encoded: the contents of the passage as a Search-R1 corpus has them, the title in quotes on a line of its own.
/// The published E5 index of Wikipedia was made of these.
fn contents(title: &str, text: &str) -> String {
    if title.is_empty() {
        text.to_owned()
    } else {
        format!("\"{title}\"\n{text}")
    }
}

/// The flaw of a file of vectors or links and its fix, before the path is said.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Flaw(String);

impl Flaw {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    fn of(self, path: &Path) -> RetrieverError {
        fault(path, self.0)
    }
}

fn fault(path: &Path, what: impl Into<String>) -> RetrieverError {
    RetrieverError::Vectors {
        path: path.to_owned(),
        what: what.into(),
    }
}

#[cfg(test)]
mod tests;
