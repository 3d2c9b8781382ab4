//! Giving an index vectors: encoding its passages, or taking rows that were made elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_contracts::retriever::{Encoder, RetrieverError, TextKind};

use super::import::{VectorMetric, VectorRows};
use super::ivf::default_lists;
use super::storage::{DenseManifest, VECTORS_FILE, lists_file};
use super::vectors::{VectorFile, VectorWriter};
use super::{
    GraphIndex, IvfIndex, QuantisedIndex, VectorIndexKind, contents, encode_checked, fault,
};
use crate::error::IndexError;
use crate::index::{Index, Manifest, Segment, SegmentManifest};

/// Passages that are put in order of length together.
const WINDOW: usize = 4096;
/// Passages of one call of the encoder.
const TEXTS_AT_ONCE: usize = 64;

/// The source of vectors.
#[derive(Clone, Copy)]
pub enum VectorSource<'a> {
    /// A model reads title and text of every passage.
    Encoder(&'a dyn Encoder),
    /// A `.npy` array or a FAISS index (`IndexFlat`, `IndexIVFFlat`) of rows made elsewhere, one per passage in the order of the
    /// corpus; in one piece, or in several in order.
    Files(&'a [PathBuf]),
    /// The vectors that the index has, for another index over them.
    Kept,
}

/// The index to build over vectors.
#[derive(Debug, Clone, Copy, Default)]
pub struct VectorIndexRequest {
    /// Its kind.
    pub kind: VectorIndexKind,
    /// Lists of an inverted file, per segment; four times the square root of its passages, or those that are there.
    pub lists: Option<usize>,
    /// Lists that a query reads at least; as few as find 99 % of the ten nearest passages, with passages as queries, or as
    /// many as were read before.
    pub nprobe: Option<usize>,
}

impl From<VectorIndexKind> for VectorIndexRequest {
    fn from(kind: VectorIndexKind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }
}

/// The result of embedding.
#[derive(Debug, Clone, PartialEq)]
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
    /// `index` encodes nothing. Other vectors are replaced. Rows of a file are read where they are, without a copy besides the
    /// index's own. Everything is written to new files and becomes part of the index when its manifest is renamed; killed before
    /// that, the index is as it was.
    ///
    /// # Errors
    /// Failures of the encoder; [`RetrieverError::Vectors`] for vectors that cannot be searched (named by row) or rows that are
    /// not one per passage; the errors of [`Index::open`], [`IndexError::Busy`], and failures of the disk.
    pub fn embed(
        folder: impl AsRef<Path>,
        source: VectorSource<'_>,
        index: impl Into<VectorIndexRequest>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<EmbedSummary, RetrieverError> {
        // In its place alone: files are written there.
        let opened = Self::settled(folder.as_ref(), Self::open_generation)?;
        let mut source = match source {
            VectorSource::Encoder(encoder) => RowSource::Encoder(encoder),
            VectorSource::Files(files) => RowSource::Rows(VectorRows::open(files)?),
            VectorSource::Kept => RowSource::Kept,
        };
        embed_rows(&opened, &mut source, index.into(), progress)
    }
}

/// [`VectorSource`] with the rows of a file within reach.
enum RowSource<'a> {
    Encoder(&'a dyn Encoder),
    Rows(VectorRows),
    Kept,
}

fn embed_rows(
    index: &Index,
    source: &mut RowSource<'_>,
    request: VectorIndexRequest,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<EmbedSummary, RetrieverError> {
    let folder = index.place();
    let mut plan = Plan::new(index, source, request)?;
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
    request: VectorIndexRequest,
    /// Numbers of lists that there were, by segment.
    lists: BTreeMap<String, usize>,
    /// Folders of vectors and files of lists that are replaced, relative to those of segments.
    superseded: Vec<String>,
    /// Name of new folders.
    new_folder: String,
}

impl Plan {
    fn new(
        index: &Index,
        source: &RowSource<'_>,
        request: VectorIndexRequest,
    ) -> Result<Self, RetrieverError> {
        let old = DenseManifest::of(index.manifest(), index.place())?;
        let (encoder, dimension) = match (source, &old) {
            (RowSource::Encoder(encoder), _) => (Some(encoder.identity()), encoder.dimension()),
            (RowSource::Rows(rows), _) => {
                check_count(rows.path(), rows.rows(), index)?;
                (None, rows.dimension())
            }
            (RowSource::Kept, Some(old)) => (old.encoder.clone(), old.dimension),
            (RowSource::Kept, None) => {
                let what = "the index has none yet; name their encoder (--encoder) or their file (--vectors)";
                return Err(fault(index.place(), what));
            }
        };
        let kind = request.kind;
        let mut plan = Self {
            dense: DenseManifest {
                encoder,
                dimension,
                unit: true,
                kind,
                folders: BTreeMap::new(),
                ivf: BTreeMap::new(),
            },
            request,
            lists: BTreeMap::new(),
            superseded: Vec::new(),
            new_folder: format!("dense-{:06}", index.manifest().generation + 1),
        };
        let Some(old) = old else {
            return Ok(plan);
        };
        let stay = match source {
            RowSource::Encoder(_) => {
                (&old.encoder, old.dimension) == (&plan.dense.encoder, dimension)
            }
            RowSource::Rows(_) => false,
            RowSource::Kept => true,
        };
        if !stay {
            plan.superseded = old.folders.into_values().collect();
            return Ok(plan);
        }
        plan.dense = DenseManifest { kind, ..old };
        if kind == VectorIndexKind::Ivf {
            plan.keep_lists(index);
        } else {
            plan.dense.ivf.clear();
        }
        Ok(plan)
    }

    /// Keeps what there is where the request does not ask for something else.
    fn keep_lists(&mut self, index: &Index) {
        for segment in index.segments() {
            let name = &segment.info.name;
            let Some(old) = self.dense.ivf.get(name).copied() else {
                continue;
            };
            self.lists.insert(name.clone(), old.lists);
            let lists = self.lists_of(segment);
            if lists != old.lists {
                let folder = &self.dense.folders[name];
                self.superseded
                    .push(format!("{folder}/{}", lists_file(old.lists)));
            }
            let nprobe = self.request.nprobe.map(|nprobe| nprobe.clamp(1, lists));
            if lists != old.lists || nprobe.is_some_and(|nprobe| nprobe != old.nprobe) {
                self.dense.ivf.remove(name);
            }
        }
    }

    fn lists_of(&self, segment: &Segment) -> usize {
        let rows = segment.len();
        let there = self.lists.get(&segment.info.name).copied();
        let lists = self.request.lists.or(there);
        lists
            .unwrap_or_else(|| default_lists(rows))
            .clamp(rows.min(1), rows)
    }

    fn missing<'i>(&self, index: &'i Index) -> impl Iterator<Item = &'i Segment> {
        index
            .segments()
            .iter()
            .filter(|segment| !self.dense.folders.contains_key(&segment.info.name))
    }

    fn is_done(&self, manifest: &Manifest) -> bool {
        let is_ivf = self.dense.kind == VectorIndexKind::Ivf;
        manifest.segments.iter().all(|segment| {
            let name = &segment.name;
            self.dense.folders.get(name).is_some_and(|folder| {
                let file = self.dense.index_file(name);
                (!is_ivf || file.is_some())
                    && file
                        .is_none_or(|file| segment.files.contains_key(&format!("{folder}/{file}")))
            })
        }) && DenseManifest::of(manifest, Path::new(""))
            .is_ok_and(|old| old.as_ref() == Some(&self.dense))
    }

    fn write(
        &mut self,
        index: &Index,
        source: &mut RowSource<'_>,
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
                check_metric(source, self.dense.unit)?;
                self.dense
                    .folders
                    .insert(name.clone(), self.new_folder.clone());
            }
            self.write_index(segment, entry)?;
        }
        Ok(())
    }

    /// Builds the index of a segment where it is not there yet.
    fn write_index(
        &mut self,
        segment: &Segment,
        entry: &SegmentManifest,
    ) -> Result<(), RetrieverError> {
        let name = &segment.info.name;
        let inner = &self.dense.folders[name];
        let folder = segment.info.folder.join(inner);
        let is_there = |file: &str| entry.files.contains_key(&format!("{inner}/{file}"));
        let vectors = || {
            let vectors = VectorFile::open(&folder.join(VECTORS_FILE), self.dense.dimension)?;
            Ok::<_, RetrieverError>(Arc::new(vectors))
        };
        if self.dense.kind == VectorIndexKind::Ivf && !self.dense.ivf.contains_key(name) {
            let (lists, vectors) = (self.lists_of(segment), vectors()?);
            let file = lists_file(lists);
            if !is_there(&file) {
                IvfIndex::save(&folder.join(&file), &vectors, lists)?;
            }
            let written = IvfIndex::load(&folder.join(&file), vectors, 1)?;
            let probing = written.measured(self.request.nprobe)?;
            self.dense.ivf.insert(name.clone(), probing);
            return Ok(());
        }
        let Some(file) = self.dense.index_file(name).filter(|file| !is_there(file)) else {
            return Ok(());
        };
        let path = folder.join(file);
        match self.dense.kind {
            VectorIndexKind::Flat | VectorIndexKind::Ivf => Ok(()),
            VectorIndexKind::Quantised => QuantisedIndex::build(vectors()?)?.save(&path),
            VectorIndexKind::Graph => GraphIndex::build(vectors()?)?.save(&path),
        }
    }
}

/// An index by distance ranks as inner products do only where all vectors have one norm.
fn check_metric(source: &RowSource<'_>, unit: bool) -> Result<(), RetrieverError> {
    match source {
        RowSource::Rows(rows) if !unit && rows.metric() == Some(VectorMetric::L2) => {
            let what = "ranks by distance, and its vectors have different norms: their inner products rank otherwise; \
                        normalise the vectors and write an IndexFlatIP";
            Err(fault(rows.path(), what))
        }
        _ => Ok(()),
    }
}

fn check_count(path: &Path, rows: u64, index: &Index) -> Result<(), RetrieverError> {
    if rows == index.len() as u64 {
        return Ok(());
    }
    let dropped = index.manifest().counts.dropped_duplicates;
    let fix = if dropped > 0 && rows == index.len() as u64 + dropped {
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
fn write_rows(
    segment: &Segment,
    source: &mut RowSource<'_>,
    sink: &mut dyn FnMut(&[f32]) -> Result<(), RetrieverError>,
) -> Result<(), RetrieverError> {
    let count = segment.len();
    for start in (0..count).step_by(WINDOW) {
        let locals =
            (start..count.min(start + WINDOW)).map(|rank| segment.local_at_rank(rank as u32));
        let locals: Vec<u32> = locals.collect::<Result<_, IndexError>>()?;
        let rows = match source {
            RowSource::Encoder(encoder) => encode(segment, &locals, *encoder)?,
            RowSource::Rows(rows) => {
                // In the order of the file, which reads ahead; ids order rows otherwise.
                let dimension = rows.dimension();
                let mut order: Vec<usize> = (0..locals.len()).collect();
                order.sort_unstable_by_key(|&at| locals[at]);
                let mut window = vec![0.0; locals.len() * dimension];
                for at in order {
                    let row = u64::from(segment.info.base) + u64::from(locals[at]);
                    rows.read(row, &mut window[at * dimension..(at + 1) * dimension])?;
                }
                window
            }
            RowSource::Kept => {
                let what = format!(
                    "segment `{}` has none, its passages were added later; name the encoder",
                    segment.info.name
                );
                return Err(fault(&segment.info.folder, what));
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
    let text = |local: u32| {
        let found = segment.document(local)?;
        Ok::<_, IndexError>(contents(found.title, found.text))
    };
    // Those of one call alone are held: passages may be megabytes.
    let lengths = locals
        .iter()
        .map(|&local| text(local).map(|text| text.len()));
    let lengths: Vec<usize> = lengths.collect::<Result<_, IndexError>>()?;
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&at| (lengths[at], at));
    let mut rows = vec![0.0; lengths.len() * dimension];
    for batch in order.chunks(TEXTS_AT_ONCE) {
        let texts = batch.iter().map(|&at| text(locals[at]));
        let texts: Vec<String> = texts.collect::<Result<_, IndexError>>()?;
        let of_batch: Vec<&str> = texts.iter().map(String::as_str).collect();
        let encoded = encode_checked(encoder, TextKind::Passage, &of_batch)?;
        for (&at, row) in batch.iter().zip(encoded.chunks_exact(dimension)) {
            rows[at * dimension..(at + 1) * dimension].copy_from_slice(row);
        }
    }
    Ok(rows)
}
