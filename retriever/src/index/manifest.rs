//! The description of an index: its manifest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path};

use forage_contracts::retriever::Fingerprint;
use serde::{Deserialize, Serialize};

use super::MANIFEST_FILE;
use crate::analyzer::ANALYZER_ID;
use crate::bm25::Bm25Params;
use crate::corpus::CorpusFormat;
use crate::error::IndexError;

/// Version of the folder layout and of every file in it.
pub(super) const FORMAT_VERSION: u32 = 3;
/// The name of a manifest until it is whole.
pub(super) const MANIFEST_DRAFT: &str = "manifest.json.draft";

/// Sizes of an index or of one of its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counts {
    /// Passages stored.
    pub passages: u64,
    /// Distinct terms.
    pub terms: u64,
    /// Terms over all passages, repeats counted.
    pub tokens: u64,
    /// Passages read and left out because their title and text were there already.
    pub dropped_duplicates: u64,
}

/// A corpus file an index was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Path as given at build time, of several corpora each behind a comma, `memory` for an index without a folder.
    pub path: String,
    /// Corpus format as given at build time, `memory` for an index without a folder.
    pub format: String,
    /// BLAKE3 over its passages as read, dropped duplicates included; see [`crate::CorpusHasher`].
    pub corpus_digest: String,
    /// Passages read, dropped duplicates included.
    pub passages: u64,
    /// Passages left out as duplicates.
    pub dropped_duplicates: u64,
}

/// Size and digest of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileRecord {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3, 64 hex digits.
    pub blake3: String,
}

/// One segment: a run of the corpus with files of its own, which never change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentManifest {
    /// Folder, relative to the index folder: `seg-000001`.
    pub name: String,
    /// Sizes.
    pub counts: Counts,
    /// Its files, by path relative to its folder, with `/`.
    pub files: BTreeMap<String, FileRecord>,
}

/// The contents of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Version of the on-disk format.
    pub format_version: u32,
    /// 1 for a new index, one more with every change (passages added, segments merged, vectors added).
    pub generation: u64,
    /// BLAKE3 of the corpus as read, 64 hex digits; see [`crate::CorpusHasher`]. Once passages were added to an index of
    /// which duplicates were dropped, it is that of the stored passages.
    pub corpus_digest: String,
    /// BLAKE3 of the stored passages in the order of their ordinals: `corpus_digest` unless duplicates were dropped.
    pub contents_digest: String,
    /// The corpora that were read, in order.
    pub(crate) sources: Vec<Source>,
    /// Analyzer name and version.
    pub analyzer: String,
    /// Default constants of searches.
    pub bm25: Bm25Params,
    /// Fingerprint of a BM25 search with the default constants.
    pub fingerprint: Fingerprint,
    /// Sizes over all segments; a term of several segments counts once.
    pub counts: Counts,
    /// The making of the segments' vectors, when there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dense: Option<serde_json::Value>,
    /// The segments, in the order of their ordinals.
    pub(crate) segments: Vec<SegmentManifest>,
    /// BLAKE3 of this manifest as compact JSON with an empty checksum, 64 hex digits.
    pub checksum: String,
}

impl Manifest {
    /// A first generation. The caller adds sources and segments.
    pub(super) fn new(digests: Digests, bm25: Bm25Params, counts: Counts) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            generation: 1,
            fingerprint: bm25.fingerprint(&digests.contents, ANALYZER_ID),
            corpus_digest: digests.corpus,
            contents_digest: digests.contents,
            sources: Vec::new(),
            analyzer: ANALYZER_ID.to_owned(),
            bm25,
            counts,
            dense: None,
            segments: Vec::new(),
            checksum: String::new(),
        }
    }

    /// Bytes of all files, the manifest aside.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments
            .iter()
            .flat_map(|segment| segment.files.values())
            .map(|file| file.bytes)
            .sum()
    }

    /// Reads and checks the manifest of an index folder.
    pub(super) fn read(folder: &Path) -> Result<Self, IndexError> {
        let path = folder.join(MANIFEST_FILE);
        let bytes = fs::read(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => IndexError::Missing {
                path: folder.to_owned(),
            },
            _ => IndexError::Io {
                action: "read",
                path,
                source,
            },
        })?;
        let damaged = |what: String| IndexError::Damaged {
            path: folder.to_owned(),
            what,
        };
        let parse_failure =
            |cause: serde_json::Error| damaged(format!("{MANIFEST_FILE} does not parse ({cause})"));
        let version: VersionOnly = serde_json::from_slice(&bytes).map_err(parse_failure)?;
        if version.format_version != FORMAT_VERSION {
            let found = version.format_version;
            return Err(IndexError::Version {
                path: folder.to_owned(),
                found,
                expected: FORMAT_VERSION,
            });
        }
        let manifest: Self = serde_json::from_slice(&bytes).map_err(parse_failure)?;
        if manifest.analyzer != ANALYZER_ID {
            let (found, expected) = (manifest.analyzer, ANALYZER_ID.to_owned());
            return Err(IndexError::Analyzer {
                path: folder.to_owned(),
                found,
                expected,
            });
        }
        if manifest.computed_checksum().map_err(parse_failure)? != manifest.checksum {
            return Err(damaged(format!(
                "{MANIFEST_FILE} does not have the checksum written in it"
            )));
        }
        manifest.bm25.validate()?;
        match manifest.stray_name() {
            None => Ok(manifest),
            Some(what) => Err(damaged(what)),
        }
    }

    /// Refuses pages in a form, whole or cut, that the index does not have.
    pub(super) fn check_pages(&self, folder: &Path, given: CorpusFormat) -> Result<(), IndexError> {
        let other_form = |source: &&Source| {
            let held: Result<CorpusFormat, _> = source.format.parse();
            held.is_ok_and(|held| held != given && held.whole() == given.whole())
        };
        match self.sources.iter().find(other_form) {
            None => Ok(()),
            Some(source) => Err(IndexError::MixedPages {
                path: folder.to_owned(),
                held: source.format.clone(),
                given: given.name(),
            }),
        }
    }

    /// The first name that leads out of the index folder, in words.
    fn stray_name(&self) -> Option<String> {
        let parts = |name: &str| {
            let mut components = Path::new(name).components();
            components.try_fold(0, |parts, component| match component {
                Component::Normal(_) => Some(parts + 1),
                _ => None,
            })
        };
        for segment in &self.segments {
            if parts(&segment.name) != Some(1) {
                let name = &segment.name;
                return Some(format!(
                    "segment `{name}` is not the name of a folder in it"
                ));
            }
            if let Some(name) = segment.files.keys().find(|name| parts(name).is_none()) {
                return Some(format!("`{name}` leads out of segment `{}`", segment.name));
            }
        }
        None
    }

    /// Writes the manifest of an index folder: whole or not at all.
    pub(super) fn write(&mut self, folder: &Path) -> Result<(), IndexError> {
        let draft = folder.join(MANIFEST_DRAFT);
        let failure = |source: io::Error| IndexError::Io {
            action: "write",
            path: draft.clone(),
            source,
        };
        self.checksum = self
            .computed_checksum()
            .map_err(|cause| failure(cause.into()))?;
        let mut text = serde_json::to_vec_pretty(self).map_err(|cause| failure(cause.into()))?;
        text.push(b'\n');
        fs::write(&draft, text).map_err(failure)?;
        File::open(&draft)
            .and_then(|file| file.sync_all())
            .map_err(failure)?;
        fs::rename(&draft, folder.join(MANIFEST_FILE)).map_err(failure)?;
        sync_folder(folder).map_err(failure)
    }

    fn computed_checksum(&self) -> serde_json::Result<String> {
        let unsigned = Self {
            checksum: String::new(),
            ..self.clone()
        };
        Ok(blake3::hash(&serde_json::to_vec(&unsigned)?)
            .to_hex()
            .to_string())
    }

    /// Compares the size of every file with the one written down.
    pub(super) fn check_sizes(&self, folder: &Path) -> Result<(), IndexError> {
        for (name, record) in self.files() {
            let expected = record.bytes;
            let what = match fs::metadata(folder.join(&name)) {
                Ok(found) if found.len() == expected => continue,
                Ok(found) => format!("`{name}` has {} bytes, {expected} expected", found.len()),
                Err(cause) => format!("`{name}` cannot be read ({cause})"),
            };
            return Err(IndexError::Damaged {
                path: folder.to_owned(),
                what,
            });
        }
        Ok(())
    }

    /// All files, by path relative to the index folder.
    pub(super) fn files(&self) -> impl Iterator<Item = (String, &FileRecord)> {
        self.segments.iter().flat_map(|segment| {
            segment
                .files
                .iter()
                .map(|(name, record)| (format!("{}/{name}", segment.name), record))
        })
    }
}

/// The two digests of an index, see [`Manifest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Digests {
    pub(super) corpus: String,
    pub(super) contents: String,
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    File::open(path)?.sync_all()
}

/// Other versions may have other fields, so the version is read by itself first.
#[derive(Deserialize)]
struct VersionOnly {
    format_version: u32,
}
