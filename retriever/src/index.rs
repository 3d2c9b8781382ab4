//! The index folder: building it, opening it, fetching from it, changing it.
//!
//! ```text
//! manifest.json     what the index is of and how it was made, with size and digest of every other file; written last
//! seg-000001/       the passages of the first build; one more folder per addition; files of a segment never change
//!   docs.bin        the passages as UTF-8, corpus order; offsets.bin: where each begins (u64 LE, one more than passages)
//!   by-id.bin       ordinals in the order of their ids (u32 LE): id lookup, and the document numbers of the postings
//!   bm25/           postings of terms and of field values (tantivy, one segment)
//!   bounds.bin      highest `freq / length norm` per term (f32 LE)
//! ```
//!
//! Scores depend on the whole collection (number of passages, average length, frequency of terms), never on how it is
//! cut into segments.

mod build;
mod change;
mod guard;
mod manifest;
mod open;
mod search;
mod segment;
mod store;
mod verify;

pub use build::{AddRequest, BuildRequest, BuildSummary};
pub(crate) use manifest::{Manifest, SegmentManifest};
pub use open::Index;
pub use store::Document;

pub(crate) use guard::guarded;
pub(crate) use search::{Ranking, floor};
pub(crate) use segment::Segment;

#[cfg(test)]
mod tests;

const MANIFEST_FILE: &str = "manifest.json";
const SEGMENT_PREFIX: &str = "seg-";
const DOCS_FILE: &str = "docs.bin";
const OFFSETS_FILE: &str = "offsets.bin";
const BY_ID_FILE: &str = "by-id.bin";
const BOUNDS_FILE: &str = "bounds.bin";
const POSTINGS_FOLDER: &str = "bm25";
