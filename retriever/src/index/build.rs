//! Building an index, on disk or in memory.

mod folder;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tantivy::directory::{Directory, MmapDirectory, OwnedBytes, RamDirectory};

use super::manifest::{Counts, Fingerprint, Manifest};
use super::open::{Index, Parts, map};
use super::store::{Store, StoreWriter, sort_by_id};
use super::{BOUNDS_FILE, BY_ID_FILE, DOCS_FILE, OFFSETS_FILE, POSTINGS_FOLDER};
use crate::bm25::{Bm25Params, Postings, PostingsWriter, Scorer};
use crate::corpus::{CorpusFormat, CorpusReader, Passage};
use crate::error::{IndexError, ReadError};
use folder::BuildFolder;

/// Most passages of one index: document numbers are 31 bits.
const MAX_PASSAGES: u64 = (1 << 31) - 2;
/// Passages between two calls of the progress function.
const PROGRESS_STEP: u64 = 4096;
const MEMORY: &str = "memory";
const MIB: usize = 1 << 20;

/// What to do when an index is already where the new one should go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Fail with [`IndexError::Exists`].
    #[default]
    Keep,
    /// Put the new index in its place once it is finished; until then the old one stays usable.
    Replace,
}

/// An index to build.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Corpus file, or BEIR folder.
    pub source: PathBuf,
    /// How the corpus is written.
    pub format: CorpusFormat,
    /// Index folder to create. A folder that holds anything but an index is never touched.
    pub out: PathBuf,
    /// Default constants of searches over the index.
    pub bm25: Bm25Params,
    /// What to do with an index that is already there.
    pub existing: Existing,
    /// Memory for postings before they go to disk, MiB, 15 to 4000.
    pub memory_mib: usize,
}

impl BuildRequest {
    /// A request with the default constants (0.9, 0.4), 256 MiB, keeping what exists.
    pub fn new(source: impl Into<PathBuf>, format: CorpusFormat, out: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            format,
            out: out.into(),
            bm25: Bm25Params::default(),
            existing: Existing::Keep,
            memory_mib: 256,
        }
    }
}

/// The part of a build under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStage {
    /// Reading the corpus into the document store; the number of passages is not known yet.
    Reading,
    /// Analysing passages into postings.
    Indexing,
    /// Merging postings and computing bounds.
    Finishing,
}

/// Where a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildProgress {
    /// Current part.
    pub stage: BuildStage,
    /// Passages done in this part.
    pub done: u64,
    /// Passages in all, once known.
    pub total: Option<u64>,
}

/// What a finished build made.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildSummary {
    /// The index folder.
    pub path: PathBuf,
    /// Sizes.
    pub counts: Counts,
    /// Bytes on disk, manifest aside.
    pub bytes: u64,
    /// Digest of the corpus, hex.
    pub corpus_digest: String,
    /// Fingerprint of a search with the default constants.
    pub fingerprint: Fingerprint,
}

impl Index {
    /// Builds an index folder, streaming the corpus.
    ///
    /// Everything is written to a hidden sibling folder that is renamed into place at the end: a build that is killed
    /// leaves no folder that looks finished, and an existing index untouched; the next build clears its remains.
    /// `progress` is called every few thousand passages.
    ///
    /// # Errors
    /// Any fault of the corpus (named by line), [`IndexError::Exists`], [`IndexError::NotAnIndexFolder`],
    /// [`IndexError::Busy`], or a failure of the file system or the postings engine.
    pub fn build(request: &BuildRequest, progress: &mut dyn FnMut(BuildProgress)) -> Result<BuildSummary, IndexError> {
        request.bm25.validate()?;
        let reader = CorpusReader::open(&request.source, request.format)?;
        let folder = BuildFolder::create(&request.out, request.existing)?;
        let (store, order, digest) = write_documents(&folder, reader, progress)?;
        let postings = write_postings(&folder, &store, &order, request, progress)?;
        let counts = counts(&store, &postings);
        let source = request.source.display().to_string();
        let mut manifest = Manifest::new(digest, source, request.format.name().to_owned(), request.bm25, counts);
        manifest.files = folder.file_sizes()?;
        folder.publish(&manifest)?;
        Ok(BuildSummary {
            path: request.out.clone(),
            counts,
            bytes: manifest.files.values().sum(),
            corpus_digest: manifest.corpus_digest,
            fingerprint: manifest.fingerprint,
        })
    }

    /// Builds the same index in memory, for tests and corpora made on the fly.
    ///
    /// # Errors
    /// Constants out of range, no passages, or two passages with one id (named by position, counted from 1).
    pub fn in_memory(passages: &[Passage], params: Bm25Params) -> Result<Self, IndexError> {
        params.validate()?;
        let place = Path::new(MEMORY);
        if passages.is_empty() {
            return Err(ReadError::Empty { path: place.to_owned(), what: "passages" }.into());
        }
        let mut writer = StoreWriter::new(Vec::new(), Vec::new());
        for passage in passages {
            writer.add(passage).map_err(write_failure(place))?;
        }
        let (docs, offsets, digest) = writer.finish().map_err(write_failure(place))?;
        let store = Store::new(OwnedBytes::new(docs), OwnedBytes::new(offsets));
        let order = unique_order(&store, place, |ordinal| u64::from(ordinal) + 1)?;
        let directory = RamDirectory::create();
        let directories =
            (Box::new(directory.clone()) as Box<dyn Directory>, Box::new(directory) as Box<dyn Directory>);
        let postings = index_postings(&store, &order, directories, 15, place, &mut |_| {})?;
        let bounds = bounds(&postings, params, place)?;
        let counts = counts(&store, &postings);
        let manifest = Manifest::new(digest, MEMORY.to_owned(), MEMORY.to_owned(), params, counts);
        let by_id: Vec<u8> = order.iter().flat_map(|ordinal| ordinal.to_le_bytes()).collect();
        let bounds: Vec<u8> = bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
        let parts = Parts { store, by_id: OwnedBytes::new(by_id), bounds: OwnedBytes::new(bounds), postings };
        Ok(Self { place: place.to_owned(), manifest, parts })
    }
}

/// Writes the document store and the id table; gives the store, the ordinals by id, and the corpus digest.
fn write_documents(
    folder: &BuildFolder,
    reader: CorpusReader,
    progress: &mut dyn FnMut(BuildProgress),
) -> Result<(Store, Vec<u32>, String), IndexError> {
    let place = folder.path();
    let source = reader.path().to_owned();
    let mut writer = StoreWriter::new(folder.file(DOCS_FILE)?, folder.file(OFFSETS_FILE)?);
    let lines = fill_store(reader, &mut writer, place, progress)?;
    let (docs, offsets, digest) = writer.finish().map_err(write_failure(place))?;
    sync(docs, place)?;
    sync(offsets, place)?;
    let store = Store::new(map(place, DOCS_FILE)?, map(place, OFFSETS_FILE)?);
    let order = unique_order(&store, &source, |ordinal| lines[ordinal as usize])?;
    write_table(folder, BY_ID_FILE, order.iter().map(|ordinal| ordinal.to_le_bytes()))?;
    Ok((store, order, digest))
}

/// Writes the postings and the bounds of their terms.
fn write_postings(
    folder: &BuildFolder,
    store: &Store,
    order: &[u32],
    request: &BuildRequest,
    progress: &mut dyn FnMut(BuildProgress),
) -> Result<Postings, IndexError> {
    let place = folder.path();
    let postings_folder = place.join(POSTINGS_FOLDER);
    std::fs::create_dir(&postings_folder).map_err(write_failure(&postings_folder))?;
    let open = || MmapDirectory::open(&postings_folder).map(Box::<dyn Directory>::from);
    let directories = (open().map_err(engine(place))?, open().map_err(engine(place))?);
    let postings = index_postings(store, order, directories, request.memory_mib, place, progress)?;
    let bounds = bounds(&postings, request.bm25, place)?;
    write_table(folder, BOUNDS_FILE, bounds.iter().map(|bound| bound.to_le_bytes()))?;
    Ok(postings)
}

/// Stores every passage; gives the line each came from, for the error about a repeated id.
fn fill_store(
    mut reader: CorpusReader,
    writer: &mut StoreWriter<impl Write, impl Write>,
    place: &Path,
    progress: &mut dyn FnMut(BuildProgress),
) -> Result<Vec<u64>, IndexError> {
    let mut lines = Vec::new();
    while let Some(passage) = reader.next() {
        if writer.count() == MAX_PASSAGES {
            return Err(IndexError::TooLarge { limit: MAX_PASSAGES });
        }
        writer.add(&passage?).map_err(write_failure(place))?;
        lines.push(reader.line());
        if writer.count().is_multiple_of(PROGRESS_STEP) {
            progress(BuildProgress { stage: BuildStage::Reading, done: writer.count(), total: None });
        }
    }
    Ok(lines)
}

fn unique_order(store: &Store, source: &Path, line: impl Fn(u32) -> u64) -> Result<Vec<u32>, IndexError> {
    sort_by_id(store).map_err(|(first, second)| {
        let id = store.get(first).map_or_else(String::new, |document| document.id.to_owned());
        ReadError::DuplicateId { path: source.to_owned(), id, first: line(first), second: line(second) }.into()
    })
}

/// Two handles on one directory: tantivy takes one each for writing and reading.
fn index_postings(
    store: &Store,
    order: &[u32],
    (write, read): (Box<dyn Directory>, Box<dyn Directory>),
    memory_mib: usize,
    place: &Path,
    progress: &mut dyn FnMut(BuildProgress),
) -> Result<Postings, IndexError> {
    let total = Some(order.len() as u64);
    let mut writer = PostingsWriter::create(write, memory_mib.clamp(15, 4000) * MIB).map_err(engine(place))?;
    let mut contents = String::new();
    for (done, &ordinal) in (1..).zip(order) {
        let document = store.get(ordinal).ok_or_else(|| IndexError::Damaged {
            path: place.to_owned(),
            what: format!("passage {ordinal} does not read back"),
        })?;
        // Anserini's flat contents.
        contents.clear();
        contents.push_str(document.title);
        contents.push(' ');
        contents.push_str(document.text);
        writer.add(&contents).map_err(engine(place))?;
        if done % PROGRESS_STEP == 0 {
            progress(BuildProgress { stage: BuildStage::Indexing, done, total });
        }
    }
    progress(BuildProgress { stage: BuildStage::Finishing, done: order.len() as u64, total });
    writer.finish().map_err(engine(place))?;
    Postings::open(read, place).map_err(engine(place))
}

fn bounds(postings: &Postings, params: Bm25Params, place: &Path) -> Result<Vec<f32>, IndexError> {
    let scorer = Scorer::new(postings, params);
    scorer.saturations(postings).map_err(|source| engine(place)(source))
}

fn counts(store: &Store, postings: &Postings) -> Counts {
    Counts { passages: store.len() as u64, terms: postings.terms() as u64, tokens: postings.tokens() }
}

fn write_table<const N: usize>(
    folder: &BuildFolder,
    name: &str,
    rows: impl Iterator<Item = [u8; N]>,
) -> Result<(), IndexError> {
    let mut file = folder.file(name)?;
    for row in rows {
        file.write_all(&row).map_err(write_failure(folder.path()))?;
    }
    sync(file, folder.path())
}

fn sync(file: BufWriter<File>, place: &Path) -> Result<(), IndexError> {
    let file = file.into_inner().map_err(|cause| write_failure(place)(cause.into_error()))?;
    file.sync_all().map_err(write_failure(place))
}

fn write_failure(path: &Path) -> impl FnOnce(io::Error) -> IndexError {
    let path = path.to_owned();
    move |source| IndexError::Io { action: "write", path, source }
}

fn engine<E: Into<tantivy::TantivyError>>(path: &Path) -> impl FnOnce(E) -> IndexError {
    let path = path.to_owned();
    move |source| IndexError::Engine { action: "write postings", path, source: source.into() }
}
