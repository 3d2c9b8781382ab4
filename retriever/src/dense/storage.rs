//! Vectors in an index folder: which files they are and how they came to be.
//!
//! ```text
//! seg-000001/dense-000002/vectors.f32   rows in the byte order of ids (f32 LE)
//! seg-000001/dense-000002/codes.tv      codes of a quantised index
//! seg-000001/dense-000002/lists-800.bin lists of an inverted file, by their number
//! seg-000001/dense-000002/links.bin     links of a graph
//! ```
//!
//! The folder carries the generation that made it, so that new vectors never touch files an older manifest names.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use forage_contracts::retriever::RetrieverError;
use serde::{Deserialize, Serialize};

use super::ivf::Probing;
use super::vectors::VectorFile;
use super::{FlatIndex, GraphIndex, IvfIndex, QuantisedIndex, VectorIndex, VectorIndexKind, fault};
use crate::error::IndexError;
use crate::index::{Manifest, SegmentManifest};

pub(super) const VECTORS_FILE: &str = "vectors.f32";

/// The entry `dense` of `manifest.json`, about the vectors. Sizes and digests of the files stand with their segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DenseManifest {
    /// [`crate::Encoder::identity`] of what made the vectors; none for vectors that were imported.
    pub encoder: Option<String>,
    /// Numbers per vector.
    pub dimension: usize,
    /// True when every vector has norm 1, so that inner products are cosines.
    pub unit: bool,
    /// The kind of index over them.
    pub kind: VectorIndexKind,
    /// Folder of the vectors within that of the segment, by segment. Segments added since have none.
    pub folders: BTreeMap<String, String>,
    /// The way the lists of an inverted file are read, by segment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ivf: BTreeMap<String, Probing>,
}

impl DenseManifest {
    /// Reads it off the manifest of an index; none where there are no vectors.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] when it makes no sense.
    pub(crate) fn of(manifest: &Manifest, place: &Path) -> Result<Option<Self>, IndexError> {
        let Some(dense) = &manifest.dense else {
            return Ok(None);
        };
        let damaged = |what: String| IndexError::Damaged {
            path: place.to_owned(),
            what,
        };
        let dense: Self = serde_json::from_value(dense.clone()).map_err(|cause| {
            damaged(format!("`dense` of the manifest makes no sense ({cause})"))
        })?;
        // Files are read and written under these names.
        if let Some(folder) = dense.folders.values().find(|folder| !is_name(folder)) {
            return Err(damaged(format!(
                "`{folder}` is not the name of a folder of vectors"
            )));
        }
        let mut of_lists = dense.ivf.keys();
        if let Some(segment) = of_lists.find(|segment| !dense.folders.contains_key(*segment)) {
            return Err(damaged(format!(
                "segment `{segment}` has lists and no vectors"
            )));
        }
        Ok(Some(dense))
    }

    /// Names the vectors and their index for a fingerprint, by digest.
    pub(super) fn digests(&self, manifest: &Manifest) -> String {
        let mut named = String::new();
        for segment in &manifest.segments {
            let folder = self.folders.get(&segment.name).map_or("", String::as_str);
            let index_file = self.index_file(&segment.name);
            for file in std::iter::once(VECTORS_FILE).chain(index_file.as_deref()) {
                let digest = segment
                    .files
                    .get(&format!("{folder}/{file}"))
                    .map_or("", |record| record.blake3.as_str());
                named.push_str(digest);
                named.push('\n');
            }
            if let Some(probing) = self.ivf.get(&segment.name) {
                named.extend(["nprobe=", &probing.nprobe.to_string(), "\n"]);
            }
        }
        named
    }

    /// The file of a segment's index besides the vectors.
    pub(super) fn index_file(&self, segment: &str) -> Option<String> {
        match self.kind {
            VectorIndexKind::Flat => None,
            VectorIndexKind::Quantised => Some("codes.tv".to_owned()),
            VectorIndexKind::Ivf => Some(lists_file(self.ivf.get(segment)?.lists)),
            VectorIndexKind::Graph => Some("links.bin".to_owned()),
        }
    }

    /// Opens the vectors of a segment and their index.
    pub(super) fn open(
        &self,
        place: &Path,
        segment: &SegmentManifest,
    ) -> Result<Box<dyn VectorIndex>, RetrieverError> {
        let Some(folder) = self.folders.get(&segment.name) else {
            let what = format!(
                "segment `{}` has no vectors, its passages were added later; run `forage index embed {}`",
                segment.name,
                place.display()
            );
            return Err(fault(place, what));
        };
        let folder = place.join(&segment.name).join(folder);
        let vectors = Arc::new(VectorFile::open(
            &folder.join(VECTORS_FILE),
            self.dimension,
        )?);
        if vectors.rows() as u64 != segment.counts.passages {
            let (rows, passages) = (vectors.rows(), segment.counts.passages);
            return Err(fault(
                vectors.path(),
                format!("{rows} rows for {passages} passages; embed the index again"),
            ));
        }
        let path = folder.join(self.index_file(&segment.name).unwrap_or_default());
        Ok(match self.kind {
            VectorIndexKind::Flat => Box::new(FlatIndex::new(vectors)),
            VectorIndexKind::Quantised => Box::new(QuantisedIndex::load(&path, vectors)?),
            VectorIndexKind::Ivf => {
                let Some(probing) = self.ivf.get(&segment.name) else {
                    let what =
                        "the manifest does not say how its lists are read; embed the index again";
                    return Err(fault(&folder, what));
                };
                Box::new(IvfIndex::load(&path, vectors, probing.nprobe)?)
            }
            VectorIndexKind::Graph => Box::new(GraphIndex::load(&path, vectors)?),
        })
    }
}

/// Tells whether a name is that of a folder in another one, and leads nowhere else.
fn is_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}

/// The file of so many lists. Another number is another file, so that no file that a manifest names is written to.
pub(super) fn lists_file(lists: usize) -> String {
    format!("lists-{lists}.bin")
}
