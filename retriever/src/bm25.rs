//! BM25 with Lucene's arithmetic, over postings that tantivy stores.

mod docset;
mod maxscore;
mod postings;
mod scorer;
mod writer;

use forage_contracts::retriever::Fingerprint;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::error::IndexError;

pub(crate) use docset::DocSet;
pub(crate) use postings::{Located, Postings};
pub(crate) use scorer::{Bag, Scorer, Scratch, SegmentPart, Totals, Wanted, Widening};

pub(crate) use writer::{Entry, Part, PartWriter, merge_parts};

/// The two constants of BM25.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bm25Params {
    /// Term-frequency saturation, dimensionless, finite and at least 0; usual 0.9 to 1.2.
    #[serde(serialize_with = "as_written")]
    pub k1: f32,
    /// Length normalisation in `[0, 1]`.
    #[serde(serialize_with = "as_written")]
    pub b: f32,
}

impl Default for Bm25Params {
    /// Pyserini's 0.9 and 0.4, as Search-R1 and Anserini's BEIR runs use.
    fn default() -> Self {
        Self { k1: 0.9, b: 0.4 }
    }
}

impl Bm25Params {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`IndexError::Constants`] when k1 is negative or not finite, or b outside `[0, 1]`.
    pub fn validate(self) -> Result<Self, IndexError> {
        if self.k1.is_finite() && self.k1 >= 0.0 && (0.0..=1.0).contains(&self.b) {
            Ok(self)
        } else {
            Err(IndexError::Constants {
                k1: self.k1,
                b: self.b,
            })
        }
    }

    /// The fingerprint of BM25 with these constants over passages with this digest.
    pub(crate) fn fingerprint(self, contents_digest: &str, analyzer: &str) -> Fingerprint {
        let (k1, b) = (self.k1.to_bits(), self.b.to_bits());
        Fingerprint::of(&format!(
            "bm25\ncorpus={contents_digest}\nanalyzer={analyzer}\nk1={k1:08x}\nb={b:08x}\n"
        ))
    }
}

/// Writes 0.9 as that where numbers have 64 bits too, of which the nearest one of 32 is 0.8999999761581421.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn as_written<S: Serializer>(number: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    let decimal: f64 = number.to_string().parse().map_err(S::Error::custom)?;
    serializer.serialize_f64(decimal)
}
