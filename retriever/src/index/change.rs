//! Changing an index: adding passages, merging segments, adding vectors. Each is a new generation of the manifest.

use std::collections::BTreeSet;
use std::path::Path;

use super::build::{
    AddRequest, BuildSummary, FileFeed, IndexFeed, Plan, Staging, available_threads, files_below,
};
use super::guard::guarded;
use super::manifest::{Manifest, sync_folder};
use super::open::Index;
use super::segment::Segment;
use super::{SEGMENT_PREFIX, verify};
use crate::bm25::Postings;
use crate::corpus::CorpusReader;
use crate::error::IndexError;

/// Memory of a merge for postings, MiB.
const MERGE_MEMORY_MIB: usize = 256;

impl Index {
    /// Adds a corpus file to an index folder as a new segment.
    ///
    /// The old generation stays valid until the new manifest takes its place by a rename; killed before that, nothing
    /// changes and the next change clears the remains. Rankings are those of an index built of all passages at once.
    ///
    /// # Errors
    /// Any fault of the corpus (named by line), [`crate::ReadError::AlreadyIndexed`] for an id the index has,
    /// [`IndexError::MixedPages`], [`IndexError::Busy`], the errors of [`Index::open`], or a failure of the file system or the postings
    /// engine.
    pub fn add(
        request: &AddRequest,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BuildSummary, IndexError> {
        let reader = CorpusReader::open_all(&request.sources, request.format)?;
        let (staging, mut manifest) = Staging::for_change(&request.index)?;
        manifest.check_pages(&request.index, request.format)?;
        let mut index = Self::open_generation(&request.index, &manifest)?;
        manifest.generation += 1;
        let name = segment_name(manifest.generation);
        let existing = index.len() as u64;
        let plan = Plan {
            folder: staging.path(),
            name: &name,
            existing,
            bm25: manifest.bm25,
            memory_mib: request.memory_mib,
            threads: request.threads,
        };
        let mut feed = FileFeed::new(reader, request.drop_duplicates, Some(&index))?;
        let written = plan.write(&mut feed, progress)?;
        let digest = written
            .as_ref()
            .map_or("", |written| written.digest.as_str());
        let (textless, first_textless) = feed.textless();
        let source = feed.into_source(&request.sources, request.format.name(), digest);
        let dropped = source.dropped_duplicates;
        manifest.counts.dropped_duplicates += dropped;
        manifest.sources.push(source);
        if let Some(written) = written {
            index.segments.push(Segment::open(
                staging.path(),
                &written.entry,
                existing as u32,
            )?);
            manifest.segments.push(written.entry);
            index.describe(&mut manifest)?;
            staging.install(&name)?;
        }
        staging.commit(&mut manifest)?;
        let summary = BuildSummary::of(&request.index, manifest, dropped);
        Ok(BuildSummary {
            textless,
            first_textless,
            ..summary
        })
    }

    /// Rewrites the segments of an index folder as one. Rankings do not change.
    ///
    /// The old segments are removed once the new manifest is in place; readers that have them open keep them.
    ///
    /// # Errors
    /// [`IndexError::Busy`], the errors of [`Index::open`], [`IndexError::Vectors`] when the index holds vectors, or a
    /// failure of the file system or the postings engine.
    pub fn merge(
        folder: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BuildSummary, IndexError> {
        let folder = folder.as_ref();
        let (staging, mut manifest) = Staging::for_change(folder)?;
        if manifest.segments.len() == 1 {
            return Ok(BuildSummary::of(folder, manifest, 0));
        }
        if manifest.dense.is_some() {
            return Err(IndexError::Vectors {
                path: folder.to_owned(),
            });
        }
        let index = Self::open_generation(folder, &manifest)?;
        manifest.generation += 1;
        let name = segment_name(manifest.generation);
        let plan = Plan {
            folder: staging.path(),
            name: &name,
            existing: 0,
            bm25: manifest.bm25,
            memory_mib: MERGE_MEMORY_MIB,
            threads: available_threads(),
        };
        let written = plan.write(&mut IndexFeed::new(&index), progress)?;
        // An index holds at least one passage, and what was read is what was once written.
        let written = written
            .filter(|written| written.digest == manifest.contents_digest)
            .ok_or_else(|| {
                index.damaged("stored passages do not have the digest in the manifest".to_owned())
            })?;
        manifest.segments = vec![written.entry];
        staging.install(&name)?;
        staging.commit(&mut manifest)?;
        Ok(BuildSummary::of(folder, manifest, 0))
    }

    /// Changes the manifest of an index folder under the lock of builds: reads and checks it, lets `change` update it
    /// (and write new files into segment folders), records the files of every segment, and renames the new
    /// manifest into place as the next generation.
    ///
    /// Files the old manifest names must not be written to: new content goes to files with new names, then the old
    /// generation stays valid until the rename. Files in segment folders that `change` leaves out of a segment's `files`
    /// are added to it with their sizes and digests, except those under `superseded`, given relative to a segment folder,
    /// which are removed after the rename.
    pub(crate) fn rewrite_manifest<E: From<IndexError>>(
        folder: &Path,
        superseded: &[String],
        change: impl FnOnce(&mut Manifest) -> Result<(), E>,
    ) -> Result<Manifest, E> {
        let (staging, mut manifest) = Staging::for_change(folder)?;
        manifest.check_sizes(folder)?;
        change(&mut manifest)?;
        manifest.generation += 1;
        for segment in &mut manifest.segments {
            let path = folder.join(&segment.name);
            segment.files.retain(|name, _| !is_under(name, superseded));
            let mut folders = BTreeSet::new();
            for name in files_below(&path).map_err(IndexError::io("read", &path))? {
                if !segment.files.contains_key(&name) && !is_under(&name, superseded) {
                    let file = path.join(&name);
                    let record = verify::record(&file).map_err(IndexError::io("read", &path))?;
                    let above = file.ancestors().skip(1);
                    let above = above.take_while(|folder| folder.starts_with(&path));
                    folders.extend(above.map(Path::to_owned));
                    segment.files.insert(name, record);
                }
            }
            // The names of new files are on disk for good before a manifest that has them.
            for folder in folders {
                sync_folder(&folder).map_err(IndexError::io("write", &folder))?;
            }
        }
        staging.commit(&mut manifest)?;
        Ok(manifest)
    }

    /// Updates the manifest's sums over all segments.
    fn describe(&self, manifest: &mut Manifest) -> Result<(), IndexError> {
        let postings: Vec<&Postings> = self
            .segments
            .iter()
            .map(|segment| &segment.postings)
            .collect();
        manifest.counts.passages = self.len() as u64;
        manifest.counts.tokens = self.totals().tokens;
        manifest.counts.terms = guarded(&self.place, || {
            let terms = Postings::distinct_terms(&postings);
            terms.map_err(IndexError::io("read postings", &self.place))
        })?;
        manifest.contents_digest = self.digest_contents()?;
        manifest.corpus_digest.clone_from(&manifest.contents_digest);
        manifest.fingerprint = manifest
            .bm25
            .fingerprint(&manifest.contents_digest, &manifest.analyzer);
        Ok(())
    }
}

fn is_under(name: &str, folders: &[String]) -> bool {
    folders.iter().any(|folder| {
        name == folder
            || name
                .strip_prefix(folder.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
    })
}

/// Generations only grow, so a name is never used twice in one index.
pub(super) fn segment_name(generation: u64) -> String {
    format!("{SEGMENT_PREFIX}{generation:06}")
}
