//! Building an index, on disk or in memory.

mod feed;
mod request;
mod segment;
mod staging;

use std::path::Path;
use std::sync::mpsc::channel;

use forage_contracts::Passage;
use tantivy::directory::{Directory, OwnedBytes, RamDirectory};

use super::change::segment_name;
use super::manifest::{Digests, Manifest, Source};
use super::open::Index;
use super::segment::{Segment, SegmentInfo};
use super::store::{Store, StoreWriter, sort_by_id};
use crate::bm25::{Bm25Params, Postings};
use crate::corpus::CorpusReader;
use crate::error::{IndexError, ReadError};
use segment::{bounds, counts, engine, index_run, repeated};

pub(super) use feed::{FileFeed, IndexFeed};
pub(super) use request::available_threads;
pub use request::{AddRequest, BuildRequest, BuildSummary};
pub(super) use segment::Plan;
pub(super) use staging::{Staging, files_below, moved_aside};

const MEMORY: &str = "memory";

impl Index {
    /// Builds an index folder, streaming the corpus.
    ///
    /// Everything is written to a hidden sibling folder that is renamed into place at the end: a build that is killed
    /// leaves no folder that looks finished, and an existing index untouched; the next build clears its remains.
    /// `progress` hears of the passages that were indexed and of their number, every few thousand passages.
    ///
    /// # Errors
    /// Any fault of the corpus (named by line), [`IndexError::Exists`], [`IndexError::NotAnIndexFolder`],
    /// [`IndexError::Busy`], or a failure of the file system or the postings engine.
    pub fn build(
        request: &BuildRequest,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BuildSummary, IndexError> {
        request.bm25.validate()?;
        let reader = CorpusReader::open_all(&request.sources, request.format)?;
        let staging = Staging::for_new(&request.out, request.replace)?;
        let mut feed = FileFeed::new(reader, request.drop_duplicates, None)?;
        let plan = Plan {
            folder: staging.path(),
            name: &segment_name(1),
            existing: 0,
            bm25: request.bm25,
            memory_mib: request.memory_mib,
            threads: request.threads,
        };
        let written = plan.write(&mut feed, progress)?;
        let written = written.ok_or_else(|| ReadError::Empty {
            path: request.sources.first().cloned().unwrap_or_default(),
            what: "passages",
        })?;
        let (textless, first_textless) = feed.textless();
        let source = feed.into_source(&request.sources, request.format.name(), &written.digest);
        let mut counts = written.entry.counts;
        counts.dropped_duplicates = source.dropped_duplicates;
        let digests = Digests {
            corpus: source.corpus_digest.clone(),
            contents: written.digest,
        };
        let mut manifest = Manifest::new(digests, request.bm25, counts);
        manifest.sources.push(source);
        manifest.segments.push(written.entry);
        staging.publish(&mut manifest)?;
        let summary = BuildSummary::of(&request.out, manifest, counts.dropped_duplicates);
        Ok(BuildSummary {
            textless,
            first_textless,
            ..summary
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
            return Err(ReadError::Empty {
                path: place.to_owned(),
                what: "passages",
            }
            .into());
        }
        let mut writer = StoreWriter::new(Vec::new(), Vec::new());
        for passage in passages {
            writer
                .add(passage)
                .map_err(IndexError::io("write", place))?;
        }
        let (docs, offsets, digest) = writer.finish().map_err(IndexError::io("write", place))?;
        let segment = segment_in_memory(
            Store::new(OwnedBytes::new(docs), OwnedBytes::new(offsets)),
            params,
        )?;
        let counts = counts(&segment.store, &segment.postings);
        let digests = Digests {
            corpus: digest.clone(),
            contents: digest.clone(),
        };
        let mut manifest = Manifest::new(digests, params, counts);
        manifest.sources.push(Source {
            path: MEMORY.to_owned(),
            format: MEMORY.to_owned(),
            corpus_digest: digest,
            passages: counts.passages,
            dropped_duplicates: 0,
        });
        Ok(Self {
            place: place.to_owned(),
            manifest,
            segments: vec![segment],
        })
    }
}

fn segment_in_memory(store: Store, params: Bm25Params) -> Result<Segment, IndexError> {
    let place = Path::new(MEMORY);
    let position = |_: &str, ordinal: u32| (place, u64::from(ordinal) + 1);
    let order = sort_by_id(&store).map_err(|pair| repeated(&store, pair, position))?;
    let directory = RamDirectory::create();
    let part = |_| Ok(Box::new(directory.clone()) as Box<dyn Directory>);
    let (progress, _) = channel();
    let parts = index_run(&store, &order, 0..order.len(), &part, usize::MAX, &progress)
        .map_err(|fault| fault.at(place))?;
    parts
        .iter()
        .try_for_each(crate::bm25::Part::check_order)
        .map_err(engine(place))?;
    let postings = Postings::open(Box::new(directory)).map_err(engine(place))?;
    let bounds = bounds(&postings, params).map_err(IndexError::io("write", place))?;
    let by_id: Vec<u8> = order
        .iter()
        .flat_map(|ordinal| ordinal.to_le_bytes())
        .collect();
    let bounds: Vec<u8> = bounds
        .iter()
        .flat_map(|bound| bound.to_le_bytes())
        .collect();
    let (name, folder) = (MEMORY.to_owned(), place.to_owned());
    let info = SegmentInfo {
        name,
        base: 0,
        passages: order.len() as u32,
        folder,
    };
    Ok(Segment {
        info,
        postings,
        store,
        by_id: OwnedBytes::new(by_id),
        bounds: OwnedBytes::new(bounds),
    })
}

impl BuildSummary {
    pub(super) fn of(folder: &Path, manifest: Manifest, dropped_duplicates: u64) -> Self {
        Self {
            path: folder.to_owned(),
            passages: manifest.counts.passages,
            terms: manifest.counts.terms,
            tokens: manifest.counts.tokens,
            dropped_duplicates,
            textless: 0,
            first_textless: None,
            segments: manifest.segments.len(),
            generation: manifest.generation,
            bytes: manifest.bytes(),
            corpus_digest: manifest.corpus_digest,
            fingerprint: manifest.fingerprint,
        }
    }
}
