//! The index folder: building it, opening it, fetching from it.
//!
//! ```text
//! manifest.json   what the index is of and how it was made, with the size of every other file; written last
//! docs.bin        the passages as UTF-8, corpus order; offsets.bin: where each begins (u64 LE, one more than passages)
//! by-id.bin       ordinals in the order of their ids (u32 LE): id lookup, and the document numbers of the postings
//! bm25/           postings (tantivy, one segment); bounds.bin: highest saturation per term (f32 LE)
//! ```

mod build;
mod manifest;
mod open;
mod store;

pub use build::{BuildProgress, BuildRequest, BuildStage, BuildSummary, Existing};
pub use manifest::{Counts, Fingerprint, Manifest};
pub use open::Index;
pub use store::Document;

const MANIFEST_FILE: &str = "manifest.json";
const DOCS_FILE: &str = "docs.bin";
const OFFSETS_FILE: &str = "offsets.bin";
const BY_ID_FILE: &str = "by-id.bin";
const BOUNDS_FILE: &str = "bounds.bin";
const POSTINGS_FOLDER: &str = "bm25";
