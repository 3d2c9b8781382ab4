//! What an index says about itself.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::MANIFEST_FILE;
use crate::analyzer::ANALYZER_ID;
use crate::bm25::Bm25Params;
use crate::error::IndexError;

/// Version of the folder layout and of every file in it.
pub(super) const FORMAT_VERSION: u32 = 1;

/// Names everything that decides a ranking: corpus, analyzer, BM25 constants. 64 hex digits.
///
/// Equal fingerprints give equal hits for equal queries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fingerprint(pub String);

impl Fingerprint {
    /// The fingerprint of BM25 with these constants over a corpus with this digest.
    pub(crate) fn of_bm25(corpus_digest: &str, analyzer: &str, params: Bm25Params) -> Self {
        let (k1, b) = (params.k1.to_bits(), params.b.to_bits());
        let named = format!("bm25\ncorpus={corpus_digest}\nanalyzer={analyzer}\nk1={k1:08x}\nb={b:08x}\n");
        Self(blake3::hash(named.as_bytes()).to_hex().to_string())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Sizes of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Passages stored.
    pub passages: u64,
    /// Distinct terms.
    pub terms: u64,
    /// Terms over all passages, repeats counted.
    pub tokens: u64,
}

/// The contents of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the on-disk format.
    pub format_version: u32,
    /// BLAKE3 of the corpus, 64 hex digits; see [`crate::CorpusHasher`].
    pub corpus_digest: String,
    /// Corpus path as given at build time, `memory` for an index without a folder.
    pub source: String,
    /// Corpus format as given at build time, `memory` for an index without a folder.
    pub source_format: String,
    /// Analyzer name and version.
    pub analyzer: String,
    /// Default constants of searches.
    pub bm25: Bm25Params,
    /// Fingerprint of a search with the default constants.
    pub fingerprint: Fingerprint,
    /// Sizes.
    pub counts: Counts,
    /// Size in bytes of every other file, by path relative to the folder.
    pub files: BTreeMap<String, u64>,
}

impl Manifest {
    pub(super) fn new(
        corpus_digest: String,
        source: String,
        source_format: String,
        bm25: Bm25Params,
        counts: Counts,
    ) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            fingerprint: Fingerprint::of_bm25(&corpus_digest, ANALYZER_ID, bm25),
            corpus_digest,
            source,
            source_format,
            analyzer: ANALYZER_ID.to_owned(),
            bm25,
            counts,
            files: BTreeMap::new(),
        }
    }

    /// Reads and checks the manifest of an index folder.
    pub(super) fn read(folder: &Path) -> Result<Self, IndexError> {
        let path = folder.join(MANIFEST_FILE);
        let bytes = std::fs::read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                IndexError::Missing { path: folder.to_owned() }
            }
            _ => IndexError::Io { action: "read", path, source },
        })?;
        let damaged = |cause: serde_json::Error| IndexError::Damaged {
            path: folder.to_owned(),
            what: format!("{MANIFEST_FILE} does not parse ({cause})"),
        };
        let version: VersionOnly = serde_json::from_slice(&bytes).map_err(damaged)?;
        if version.format_version != FORMAT_VERSION {
            let found = version.format_version;
            return Err(IndexError::Version { path: folder.to_owned(), found, expected: FORMAT_VERSION });
        }
        let manifest: Self = serde_json::from_slice(&bytes).map_err(damaged)?;
        manifest.bm25.validate()?;
        if manifest.analyzer != ANALYZER_ID {
            let (found, expected) = (manifest.analyzer, ANALYZER_ID.to_owned());
            return Err(IndexError::Analyzer { path: folder.to_owned(), found, expected });
        }
        Ok(manifest)
    }

    /// Compares the size of every file with the one written down.
    pub(super) fn check_files(&self, folder: &Path) -> Result<(), IndexError> {
        for (name, &expected) in &self.files {
            let what = match std::fs::metadata(folder.join(name)) {
                Ok(found) if found.len() == expected => continue,
                Ok(found) => format!("`{name}` has {} bytes, {expected} expected", found.len()),
                Err(cause) => format!("`{name}` cannot be read ({cause})"),
            };
            return Err(IndexError::Damaged { path: folder.to_owned(), what });
        }
        Ok(())
    }
}

/// Other versions may have other fields, so the version is read by itself first.
#[derive(Deserialize)]
struct VersionOnly {
    format_version: u32,
}
