//! Writing the files of one segment.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

use rayon::ThreadPool;
use rayon::prelude::*;
use tantivy::directory::{Directory, MmapDirectory};

use super::feed::Feed;
use super::request::available_threads;
use super::staging::files_below;
use crate::bm25::{Bm25Params, Entry, Part, PartWriter, Postings, Scorer, Totals, merge_parts};
use crate::error::{IndexError, ReadError};
use crate::index::manifest::{Counts, SegmentManifest, sync_folder};
use crate::index::segment::{map, open_postings};
use crate::index::store::{Store, StoreWriter, sort_by_id};
use crate::index::{BOUNDS_FILE, BY_ID_FILE, DOCS_FILE, OFFSETS_FILE, POSTINGS_FOLDER, verify};

/// Most passages of one index: document numbers are 31 bits.
pub(super) const MAX_PASSAGES: u64 = (1 << 31) - 2;
/// Passages between two calls of the progress function.
const PROGRESS_STEP: u64 = 4096;
/// Less memory for a thread would make many small parts.
const LEAST_MEMORY_MIB: usize = 15;
/// The folder that the threads write in before their postings are merged.
const PARTS_FOLDER: &str = "parts";
const MIB: usize = 1 << 20;

/// The parameters of a segment to be built.
pub(in crate::index) struct Plan<'a> {
    /// The folder to make the segment's folder in.
    pub(in crate::index) folder: &'a Path,
    /// Name of the segment's folder.
    pub(in crate::index) name: &'a str,
    /// Passages the index holds already.
    pub(in crate::index) existing: u64,
    /// Constants for which bounds are computed.
    pub(in crate::index) bm25: Bm25Params,
    pub(in crate::index) memory_mib: usize,
    pub(in crate::index) threads: usize,
}

/// A segment whose files are complete and durable.
pub(in crate::index) struct Written {
    pub(in crate::index) entry: SegmentManifest,
    /// Digest of its passages.
    pub(in crate::index) digest: String,
}

/// Progress towards the caller: passages in the postings, and passages in all.
pub(in crate::index) type Report<'a> = &'a mut dyn FnMut(u64, u64);

impl Plan<'_> {
    /// Writes the segment; `None`, and no folder, when the feed is empty.
    pub(in crate::index) fn write(
        &self,
        feed: &mut dyn Feed,
        report: Report<'_>,
    ) -> Result<Option<Written>, IndexError> {
        let path = self.path();
        fs::create_dir(&path).map_err(IndexError::io("write", &path))?;
        // More than there are cores would take time to begin and save none.
        let threads = self.threads.clamp(1, available_threads());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|cause| IndexError::io("write", &path)(io::Error::other(cause)))?;
        let started = Instant::now();
        let done = |phase| {
            let ms = started.elapsed().as_millis() as u64;
            tracing::debug!(segment = self.name, phase, ms, "index build");
        };
        let (lines, digest) = self.write_store(feed)?;
        done("passages read");
        if lines.is_empty() {
            fs::remove_dir_all(&path).map_err(IndexError::io("write", &path))?;
            return Ok(None);
        }
        let store = Store::new(
            map(self.folder, self.name, DOCS_FILE)?,
            map(self.folder, self.name, OFFSETS_FILE)?,
        );
        let order = pool.install(|| sort_by_id(&store)).map_err(|pair| {
            repeated(&store, pair, |id, ordinal| {
                feed.place(id, lines[ordinal as usize])
            })
        })?;
        drop(lines);
        self.write_table(
            BY_ID_FILE,
            order.iter().map(|ordinal| ordinal.to_le_bytes()),
        )?;
        done("ids sorted");
        self.write_postings(&store, &order, report)?;
        done("postings written");
        let entry = self.finish(&store, &pool)?;
        let (passages, ms) = (order.len(), started.elapsed().as_millis() as u64);
        tracing::info!(segment = self.name, passages, ms, "index segment built");
        Ok(Some(Written { entry, digest }))
    }

    fn path(&self) -> PathBuf {
        self.folder.join(self.name)
    }

    /// Stores every passage; returns the line of each, for the error about a repeated id, and their digest.
    fn write_store(&self, feed: &mut dyn Feed) -> Result<(Vec<u64>, String), IndexError> {
        let path = self.path();
        let mut writer = StoreWriter::new(self.file(DOCS_FILE)?, self.file(OFFSETS_FILE)?);
        let mut lines = Vec::new();
        while let Some((line, passage)) = feed.next()? {
            if self.existing + writer.count() == MAX_PASSAGES {
                return Err(IndexError::TooLarge {
                    limit: MAX_PASSAGES,
                });
            }
            writer
                .add(&passage)
                .map_err(IndexError::io("write", &path))?;
            lines.push(line);
        }
        let (docs, offsets, digest) = writer.finish().map_err(IndexError::io("write", &path))?;
        sync(docs, &path)?;
        sync(offsets, &path)?;
        Ok((lines, digest))
    }

    /// Every thread indexes a run of ranks into parts of its own; they are merged in the order of the ranks.
    fn write_postings(
        &self,
        store: &Store,
        order: &[u32],
        report: Report<'_>,
    ) -> Result<(), IndexError> {
        let path = self.path();
        let parts_folder = path.join(PARTS_FOLDER);
        let parts = self.index_parts(store, order, &parts_folder, report)?;
        let postings_folder = path.join(POSTINGS_FOLDER);
        if let [only] = parts.as_slice() {
            only.check_order().map_err(engine(&path))?;
            drop(parts);
            let made = parts_folder.join("0").join("0");
            fs::rename(&made, &postings_folder)
                .map_err(IndexError::io("write", &postings_folder))?;
        } else {
            let directory = part_directory(&postings_folder).map_err(|fault| fault.at(&path))?;
            merge_parts(&parts, directory)
                .and_then(|merged| merged.check_order())
                .map_err(engine(&path))?;
            drop(parts);
        }
        fs::remove_dir_all(&parts_folder).map_err(IndexError::io("write", &parts_folder))
    }

    /// The parts of all threads, in the order of their ranks.
    fn index_parts(
        &self,
        store: &Store,
        order: &[u32],
        folder: &Path,
        report: Report<'_>,
    ) -> Result<Vec<Part>, IndexError> {
        let path = self.path();
        let memory_mib = self.memory_mib.clamp(LEAST_MEMORY_MIB, 4000);
        let threads = self.threads.clamp(1, memory_mib / LEAST_MEMORY_MIB);
        let memory_bytes = memory_mib * MIB / threads;
        let run = order.len().div_ceil(threads).max(1);
        let (sender, receiver) = channel();
        let ranges = (0..order.len())
            .step_by(run)
            .map(|from| from..(from + run).min(order.len()));
        thread::scope(|scope| {
            let workers: Vec<_> = ranges
                .enumerate()
                .map(|(worker, range)| {
                    let (sender, folder) = (sender.clone(), folder.join(worker.to_string()));
                    let place =
                        move |number: usize| part_directory(&folder.join(number.to_string()));
                    scope.spawn(move || {
                        index_run(store, order, range, &place, memory_bytes, &sender)
                    })
                })
                .collect();
            drop(sender);
            let mut done = 0;
            for step in receiver {
                done += step;
                report(done, order.len() as u64);
            }
            let mut parts = Vec::new();
            for worker in workers {
                let of_worker = worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                parts.extend(of_worker.map_err(|fault| fault.at(&path))?);
            }
            Ok(parts)
        })
    }

    /// Computes the bounds and records the files.
    fn finish(&self, store: &Store, pool: &ThreadPool) -> Result<SegmentManifest, IndexError> {
        let path = self.path();
        let postings = open_postings(self.folder, &path)?;
        let bounds = pool
            .install(|| bounds(&postings, self.bm25))
            .map_err(IndexError::io("write", &path))?;
        self.write_table(BOUNDS_FILE, bounds.iter().map(|bound| bound.to_le_bytes()))?;
        sync_folder(&path).map_err(IndexError::io("write", &path))?;
        let files = files_below(&path).map_err(IndexError::io("write", &path))?;
        let records: io::Result<_> = pool.install(|| {
            files
                .into_par_iter()
                .map(|name| verify::record(&path.join(&name)).map(|record| (name, record)))
                .collect()
        });
        let files = records.map_err(IndexError::io("write", &path))?;
        Ok(SegmentManifest {
            name: self.name.to_owned(),
            counts: counts(store, &postings),
            files,
        })
    }

    fn file(&self, name: &str) -> Result<BufWriter<File>, IndexError> {
        let path = self.path().join(name);
        let file = File::create(&path).map_err(IndexError::io("write", &path))?;
        Ok(BufWriter::with_capacity(MIB, file))
    }

    fn write_table<const N: usize>(
        &self,
        name: &str,
        rows: impl Iterator<Item = [u8; N]>,
    ) -> Result<(), IndexError> {
        let path = self.path();
        let mut file = self.file(name)?;
        for row in rows {
            file.write_all(&row)
                .map_err(IndexError::io("write", &path))?;
        }
        sync(file, &path)
    }
}

/// Why a thread could not index its run.
pub(super) enum RunFault {
    Unreadable(u32),
    Engine(tantivy::TantivyError),
}

impl From<tantivy::TantivyError> for RunFault {
    fn from(cause: tantivy::TantivyError) -> Self {
        Self::Engine(cause)
    }
}

impl RunFault {
    pub(super) fn at(self, path: &Path) -> IndexError {
        match self {
            Self::Unreadable(ordinal) => {
                let what = format!("passage {ordinal} does not read back");
                IndexError::Damaged {
                    path: path.to_owned(),
                    what,
                }
            }
            Self::Engine(source) => engine(path)(source),
        }
    }
}

/// Indexes the passages of a run of ranks into as many parts as the memory asks for.
pub(super) fn index_run(
    store: &Store,
    order: &[u32],
    range: Range<usize>,
    place: &dyn Fn(usize) -> Result<Box<dyn Directory>, RunFault>,
    memory_bytes: usize,
    done: &Sender<u64>,
) -> Result<Vec<Part>, RunFault> {
    let mut parts = Vec::new();
    let mut writer = PartWriter::create(place(0)?, memory_bytes)?;
    let last = range.end - 1;
    let mut step = 0;
    for rank in range {
        let document = store
            .get(order[rank])
            .ok_or(RunFault::Unreadable(order[rank]))?;
        let entry = Entry {
            title: document.title,
            text: document.text,
            fields: &document.fields(),
        };
        writer.add(rank as u32, entry)?;
        step += 1;
        if step == PROGRESS_STEP || rank == last {
            // Nobody listens to progress any more only when the build has failed already.
            let _ = done.send(step);
            step = 0;
        }
        if rank < last && writer.is_full() {
            let next = PartWriter::create(place(parts.len() + 1)?, memory_bytes)?;
            parts.push(std::mem::replace(&mut writer, next).finish()?);
        }
    }
    parts.push(writer.finish()?);
    Ok(parts)
}

fn part_directory(path: &Path) -> Result<Box<dyn Directory>, RunFault> {
    fs::create_dir_all(path).map_err(tantivy::TantivyError::from)?;
    Ok(MmapDirectory::open(path)
        .map_err(tantivy::TantivyError::from)?
        .into())
}

/// The error about two passages of one id; `place` gives the file and the line of one of them.
pub(super) fn repeated<'a>(
    store: &Store,
    (first, second): (u32, u32),
    place: impl Fn(&str, u32) -> (&'a Path, u64),
) -> IndexError {
    let id = store
        .get(first)
        .map_or_else(String::new, |document| document.id.to_owned());
    let ((earlier, first), (path, second)) = (place(&id, first), place(&id, second));
    ReadError::DuplicateId {
        path: path.to_owned(),
        earlier: (earlier != path).then(|| earlier.to_owned()),
        id,
        first,
        second,
    }
    .into()
}

/// The bounds of all terms, for these constants and the average length of this segment alone.
pub(super) fn bounds(postings: &Postings, params: Bm25Params) -> io::Result<Vec<f32>> {
    let totals = Totals {
        docs: postings.docs_with_terms(),
        tokens: postings.tokens(),
    };
    Scorer::new(totals, params).saturations(postings)
}

pub(super) fn counts(store: &Store, postings: &Postings) -> Counts {
    let (passages, terms) = (store.len() as u64, postings.terms() as u64);
    Counts {
        passages,
        terms,
        tokens: postings.tokens(),
        dropped_duplicates: 0,
    }
}

fn sync(file: BufWriter<File>, place: &Path) -> Result<(), IndexError> {
    let file = file
        .into_inner()
        .map_err(|cause| IndexError::io("write", place)(cause.into_error()))?;
    file.sync_all().map_err(IndexError::io("write", place))
}

pub(super) fn engine(path: &Path) -> impl FnOnce(tantivy::TantivyError) -> IndexError {
    let path = path.to_owned();
    move |source| IndexError::Engine {
        action: "write postings",
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::Passage;
    use std::sync::{Arc, Mutex};

    use tantivy::directory::{OwnedBytes, RamDirectory};

    use super::*;

    /// Memory that is used up makes another part; merged, the parts hold what one would.
    #[test]
    fn parts_of_full_memory_are_merged_into_the_same_postings() {
        let mut writer = StoreWriter::new(Vec::new(), Vec::new());
        for number in 0..1500_u32 {
            let words = (0..40).map(|place| {
                format!(
                    "word{}",
                    number.wrapping_mul(40_503).wrapping_add(place) % 30_000
                )
            });
            let passage =
                Passage::new(number.to_string(), "T", words.collect::<Vec<_>>().join(" "));
            writer
                .add(&passage.with_field("page", (number / 7).to_string()))
                .unwrap();
        }
        let (docs, offsets, _) = writer.finish().unwrap();
        let store = Store::new(OwnedBytes::new(docs), OwnedBytes::new(offsets));
        let order = sort_by_id(&store).unwrap();
        let directories = Arc::new(Mutex::new(Vec::new()));
        let index = |memory_bytes: usize| {
            let place = |_| {
                let directory = RamDirectory::create();
                directories.lock().unwrap().push(directory.clone());
                Ok(Box::new(directory) as Box<dyn Directory>)
            };
            let parts = index_run(
                &store,
                &order,
                0..order.len(),
                &place,
                memory_bytes,
                &channel().0,
            );
            parts.unwrap_or_else(|fault| panic!("{}", fault.at(Path::new("memory"))))
        };
        let parts = index(2 << 20);
        assert!(parts.len() > 1, "{} parts", parts.len());
        let merged = RamDirectory::create();
        merge_parts(&parts, Box::new(merged.clone()))
            .unwrap()
            .check_order()
            .unwrap();
        directories.lock().unwrap().clear();
        assert_eq!(index(usize::MAX).len(), 1);
        let whole = directories.lock().unwrap().pop().unwrap();
        let (merged, whole) = (
            Postings::open(Box::new(merged)).unwrap(),
            Postings::open(Box::new(whole)).unwrap(),
        );
        assert_eq!(
            (merged.terms(), merged.tokens()),
            (whole.terms(), whole.tokens())
        );
        assert_eq!(merged.norms(), whole.norms());
        let params = Bm25Params::default();
        assert_eq!(
            bounds(&merged, params).unwrap(),
            bounds(&whole, params).unwrap()
        );
        for word in (0..30_000)
            .step_by(97)
            .map(|number| format!("word{number}"))
        {
            let blocks = |postings: &Postings| {
                let found = postings.find(&word).unwrap();
                found.map(|found| {
                    let blocks = postings.blocks(&found.info).unwrap();
                    (
                        found.number,
                        blocks.docs().to_vec(),
                        blocks.freqs().to_vec(),
                    )
                })
            };
            assert_eq!(blocks(&merged), blocks(&whole), "{word}");
        }
        assert_eq!(
            merged.field_docs("page", "3").unwrap(),
            whole.field_docs("page", "3").unwrap()
        );
    }
}
