//! Giving an index vectors: encoding its passages, or taking rows that were made elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_contracts::retriever::{Encoder, RetrieverError, TextKind};

use super::import::{VectorMetric, VectorRows};
use super::storage::{DenseManifest, VECTORS_FILE, index_file, save_index};
use super::vectors::{VectorFile, VectorWriter};
use super::{VectorIndexKind, fault};
use crate::error::IndexError;
use crate::index::{Document, Index, Manifest, Segment};

/// Passages that are put in order of length together.
const WINDOW: usize = 4096;
/// Passages of one call of the encoder.
const TEXTS_AT_ONCE: usize = 64;

/// The source of vectors.
#[derive(Clone, Copy)]
pub enum VectorSource<'a> {
    /// A model reads title and text of every passage.
    Encoder(&'a dyn Encoder),
    /// A `.npy` array or a FAISS flat index of rows made elsewhere, one per passage in the order of the corpus.
    File(&'a Path),
}

/// The result of embedding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedSummary {
    /// The index folder.
    pub path: PathBuf,
    /// Passages that got a vector now; the others had theirs.
    pub embedded: u64,
    /// The manifest's entry about the vectors.
    pub(crate) dense: DenseManifest,
}

impl EmbedSummary {
    /// Numbers per vector.
    pub fn dimension(&self) -> usize {
        self.dense.dimension
    }

    /// The kind of index over them.
    pub fn kind(&self) -> VectorIndexKind {
        self.dense.kind
    }
}

impl Index {
    /// Gives every passage of an index folder a vector and builds the index over them. `progress` hears of the passages that
    /// got their vector, and of how many need one.
    ///
    /// Segments that have vectors of the same encoder keep them: after passages were added only those are encoded, and another
    /// `kind` encodes nothing. Other vectors are replaced. Everything is written to new files and becomes part of the index
    /// when its manifest is renamed; killed before that, the index is as it was.
    ///
    /// # Errors
    /// Failures of the encoder; [`RetrieverError::Vectors`] for vectors that cannot be searched (named by row) or rows that are
    /// not one per passage; the errors of [`Index::open`], [`IndexError::Busy`], and failures of the disk.
    pub fn embed(
        folder: impl AsRef<Path>,
        source: VectorSource<'_>,
        kind: VectorIndexKind,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<EmbedSummary, RetrieverError> {
        let folder = folder.as_ref();
        let index = Self::open(folder)?;
        let file = match source {
            VectorSource::Encoder(encoder) => {
                return embed_rows(&index, RowSource::Encoder(encoder), kind, progress);
            }
            VectorSource::File(file) => file,
        };
        let scratch = folder.with_file_name(format!(
            ".{}.vectors",
            folder.file_name().unwrap_or_default().display()
        ));
        let embedded = copy_rows(file, &index, &scratch)
            .and_then(|rows| embed_rows(&index, RowSource::Rows(&rows), kind, progress));
        // The copy has served, one way or the other; the next import writes over what cannot be removed.
        let _ = fs::remove_file(&scratch);
        embedded
    }
}

/// [`VectorSource`] with the rows of a file within reach.
#[derive(Clone, Copy)]
pub(super) enum RowSource<'a> {
    Encoder(&'a dyn Encoder),
    Rows(&'a VectorFile),
}

fn embed_rows(
    index: &Index,
    source: RowSource<'_>,
    kind: VectorIndexKind,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<EmbedSummary, RetrieverError> {
    let folder = index.place();
    let mut plan = Plan::new(index, source, kind)?;
    if plan.is_done(index.manifest()) {
        return Ok(EmbedSummary {
            path: folder.to_owned(),
            embedded: 0,
            dense: plan.dense,
        });
    }
    let total = plan
        .missing(index)
        .map(|segment| segment.len() as u64)
        .sum();
    let superseded = plan.superseded.clone();
    Index::rewrite_manifest(
        folder,
        &superseded,
        |manifest| -> Result<(), RetrieverError> {
            if manifest.generation != index.manifest().generation {
                return Err(IndexError::Busy {
                    path: folder.to_owned(),
                }
                .into());
            }
            plan.write(index, source, &mut |done| {
                progress(done, total);
            })?;
            let dense = serde_json::to_value(&plan.dense)
                .map_err(|cause| fault(folder, cause.to_string()))?;
            manifest.dense = Some(dense);
            Ok(())
        },
    )?;
    Ok(EmbedSummary {
        path: folder.to_owned(),
        embedded: total,
        dense: plan.dense,
    })
}

/// The vectors there are and those to be made.
struct Plan {
    dense: DenseManifest,
    /// Folders of vectors that are replaced, relative to those of segments.
    superseded: Vec<String>,
    /// Name of new folders.
    new_folder: String,
}

impl Plan {
    fn new(
        index: &Index,
        source: RowSource<'_>,
        kind: VectorIndexKind,
    ) -> Result<Self, RetrieverError> {
        let (encoder, dimension) = match source {
            RowSource::Encoder(encoder) => (Some(encoder.identity()), encoder.dimension()),
            RowSource::Rows(rows) => {
                check_count(rows.path(), rows.rows(), index)?;
                (None, rows.dimension())
            }
        };
        let new_folder = format!("dense-{:06}", index.manifest().generation + 1);
        let old = DenseManifest::of(index.manifest(), index.place())?;
        let (superseded, dense) = match old {
            Some(old)
                if encoder.is_some() && old.encoder == encoder && old.dimension == dimension =>
            {
                (Vec::new(), DenseManifest { kind, ..old })
            }
            old => {
                let superseded = old.map_or(Vec::new(), |old| old.folders.into_values().collect());
                (
                    superseded,
                    DenseManifest {
                        encoder,
                        dimension,
                        unit: true,
                        kind,
                        folders: BTreeMap::new(),
                    },
                )
            }
        };
        Ok(Self {
            dense,
            superseded,
            new_folder,
        })
    }

    fn missing<'i>(&self, index: &'i Index) -> impl Iterator<Item = &'i Segment> {
        index
            .segments()
            .iter()
            .filter(|segment| !self.dense.folders.contains_key(&segment.info.name))
    }

    fn is_done(&self, manifest: &Manifest) -> bool {
        manifest.segments.iter().all(|segment| {
            self.dense.folders.get(&segment.name).is_some_and(|folder| {
                index_file(self.dense.kind)
                    .is_none_or(|file| segment.files.contains_key(&format!("{folder}/{file}")))
            })
        }) && DenseManifest::of(manifest, Path::new(""))
            .is_ok_and(|old| old.as_ref() == Some(&self.dense))
    }

    fn write(
        &mut self,
        index: &Index,
        source: RowSource<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), RetrieverError> {
        let mut done = 0;
        let entries = &index.manifest().segments;
        for (segment, entry) in index.segments().iter().zip(entries) {
            let name = &segment.info.name;
            if !self.dense.folders.contains_key(name) {
                let folder = segment.info.folder.join(&self.new_folder);
                fs::create_dir_all(&folder).map_err(IndexError::io("create", &folder))?;
                let mut writer =
                    VectorWriter::create(&folder.join(VECTORS_FILE), self.dense.dimension)?;
                write_rows(segment, source, &mut |rows| {
                    writer.append(rows)?;
                    done += (rows.len() / self.dense.dimension) as u64;
                    progress(done);
                    Ok(())
                })?;
                self.dense.unit &= writer.finish()?.unit;
                self.dense
                    .folders
                    .insert(name.clone(), self.new_folder.clone());
            }
            let inner = &self.dense.folders[name];
            let indexed = index_file(self.dense.kind).map(|file| format!("{inner}/{file}"));
            if indexed.is_some_and(|file| !entry.files.contains_key(&file)) {
                let folder = segment.info.folder.join(inner);
                let vectors = VectorFile::open(&folder.join(VECTORS_FILE), self.dense.dimension)?;
                save_index(self.dense.kind, &folder, Arc::new(vectors))?;
            }
        }
        Ok(())
    }
}

/// Copies the rows of a file of another program to where they can be read in any order.
fn copy_rows(file: &Path, index: &Index, scratch: &Path) -> Result<VectorFile, RetrieverError> {
    let mut rows = VectorRows::open(file)?;
    check_count(file, rows.rows() as usize, index)?;
    let mut writer = VectorWriter::create(scratch, rows.dimension())?;
    while let Some(window) = rows.next_rows(WINDOW)? {
        writer.append(&window)?;
    }
    if !writer.finish()?.unit && rows.metric() == Some(VectorMetric::L2) {
        let what = "ranks by distance, and its vectors have different norms: their inner products rank otherwise; \
                    normalise the vectors and write an IndexFlatIP";
        return Err(fault(file, what));
    }
    VectorFile::open(scratch, rows.dimension())
}

fn check_count(path: &Path, rows: usize, index: &Index) -> Result<(), RetrieverError> {
    if rows == index.len() {
        return Ok(());
    }
    let dropped = index.manifest().counts.dropped_duplicates;
    let fix = if dropped > 0 && rows as u64 == index.len() as u64 + dropped {
        format!(
            ", of which {dropped} duplicates were dropped; build the index again keeping duplicates"
        )
    } else {
        "; rows must be one per passage, in the order of the corpus".to_owned()
    };
    let what = format!("{rows} rows for {} passages{fix}", index.len());
    Err(fault(path, what))
}

/// The vectors of a segment in the order of ranks, a window at a time.
pub(super) fn write_rows(
    segment: &Segment,
    source: RowSource<'_>,
    sink: &mut dyn FnMut(&[f32]) -> Result<(), RetrieverError>,
) -> Result<(), RetrieverError> {
    let count = segment.len();
    for start in (0..count).step_by(WINDOW) {
        let locals =
            (start..count.min(start + WINDOW)).map(|rank| segment.local_at_rank(rank as u32));
        let locals: Vec<u32> = locals.collect::<Result<_, IndexError>>()?;
        let rows = match source {
            RowSource::Encoder(encoder) => encode(segment, &locals, encoder)?,
            RowSource::Rows(rows) => {
                let base = segment.info.base;
                locals
                    .iter()
                    .flat_map(|local| rows.row((base + local) as usize))
                    .copied()
                    .collect()
            }
        };
        sink(&rows)?;
    }
    Ok(())
}

/// Encodes passages, those of like length together, which wastes the least on padding.
fn encode(
    segment: &Segment,
    locals: &[u32],
    encoder: &dyn Encoder,
) -> Result<Vec<f32>, RetrieverError> {
    let dimension = encoder.dimension();
    let texts = locals
        .iter()
        .map(|&local| Ok(contents(&segment.document(local)?)));
    let texts: Vec<String> = texts.collect::<Result<_, IndexError>>()?;
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&at| (texts[at].len(), at));
    let mut rows = vec![0.0; texts.len() * dimension];
    for batch in order.chunks(TEXTS_AT_ONCE) {
        let of_batch: Vec<&str> = batch.iter().map(|&at| texts[at].as_str()).collect();
        let encoded = encode_checked(encoder, TextKind::Passage, &of_batch)?;
        for (&at, row) in batch.iter().zip(encoded.chunks_exact(dimension)) {
            rows[at * dimension..(at + 1) * dimension].copy_from_slice(row);
        }
    }
    Ok(rows)
}

/// Encodes, and makes sure that there is a vector for every text.
pub(super) fn encode_checked(
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
fn contents(document: &Document<'_>) -> String {
    let Document { title, text, .. } = document;
    if title.is_empty() {
        (*text).to_owned()
    } else {
        format!("\"{title}\"\n{text}")
    }
}
