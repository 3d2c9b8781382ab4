//! Streaming readers of the corpora people have, all of them producing passages.

mod beir;
mod format;
mod pages;
mod search_r1;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use forage_contracts::Passage;

use crate::error::ReadError;
use crate::rows::{Part, RowReader, corpus_files};
pub use format::CorpusFormat;
pub(crate) use search_r1::split_contents;

/// Equal for passages that read the same, whatever their ids and fields: BLAKE3 of title and text, each after its length, cut
/// to 128 bits.
pub(crate) fn content_hash(title: &str, text: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for part in [title, text] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let mut hash = [0; 16];
    hasher.finalize_xof().fill(&mut hash);
    hash
}

/// Iterator over the passages of a corpus, in file order; memory holds one record at a time (of parquet, the pages of the
/// columns under way; of a JSON list, all of it).
///
/// Yields an error for the first record that does not fit and ends after it: nothing is passed over. A corpus without any
/// record yields [`ReadError::Empty`]. A record holds at most 64 MiB. Uniqueness of ids is for the consumer to check (the
/// index build does), because it needs memory for all of them; [`CorpusReader::line`] gives the number to name.
///
/// Columns that the format does not ask for become [`Passage::fields`]: strings as they are, integers and booleans written
/// out; the scalars of a nested `metadata` object count as columns. Nulls, empty strings, fractions, dates, lists, other
/// objects and values over 512 bytes are left out.
pub struct CorpusReader {
    format: CorpusFormat,
    /// The corpora; with a name each where there are several.
    corpora: Vec<(PathBuf, Option<String>)>,
    /// The place of the one that is read.
    at: usize,
    rows: RowReader,
    /// Files still to be read, each with the place of its corpus.
    files: std::vec::IntoIter<(Part, usize)>,
    /// Files that were opened, in order: the place of the corpus, the lines of it before the file, and its path.
    opened: Vec<(usize, u64, PathBuf)>,
    /// Lines of the files of this corpus read to their ends.
    lines_before: u64,
    ready: std::vec::IntoIter<Passage>,
    /// Whether this corpus has given a passage.
    yielded_any: bool,
    ended: bool,
}

impl CorpusReader {
    /// Opens a corpus: a file of JSON lines (plain or gzip), one JSON list or parquet, or a folder.
    ///
    /// A folder stands for its `corpus.jsonl`, `corpus.jsonl.gz` or `corpus.parquet`; without one, for all its `.jsonl`
    /// and `.jsonl.gz` or its `.parquet` files, or for all `.md` and `.markdown` files in it and below it, or else for its `.json`,
    /// `.tsv` or `.csv` files, read in the byte order of their names.
    ///
    /// # Errors
    /// When there is no such file, it cannot be opened, or a folder holds no corpus, files of several kinds or two pages of one
    /// path.
    pub fn open(path: &Path, format: CorpusFormat) -> Result<Self, ReadError> {
        Self::open_all(&[path], format)
    }

    /// Opens several corpora of one format, to be read one after the other. Each has a name ([`Self::source_name`]), which is the field
    /// `dataset` of its passages and stands before their ids ([`Self::id_among`]). One alone is read as it is.
    ///
    /// # Errors
    /// As [`Self::open`], and when two have one name.
    pub fn open_all<P: AsRef<Path>>(paths: &[P], format: CorpusFormat) -> Result<Self, ReadError> {
        let (mut files, mut names) = (Vec::new(), BTreeSet::new());
        let mut corpora = Vec::with_capacity(paths.len());
        for (place, path) in paths.iter().enumerate() {
            let path: &Path = path.as_ref();
            let name = (paths.len() > 1).then(|| Self::source_name(path));
            if let Some(name) = name.iter().find(|name| !names.insert((*name).clone())) {
                return Err(ReadError::SameName {
                    path: path.to_owned(),
                    name: name.clone(),
                });
            }
            let own = corpus_files(path)?.into_iter();
            files.extend(own.map(|file| (file, place)));
            corpora.push((path.to_owned(), name));
        }
        let mut files = files.into_iter();
        let Some((first, at)) = files.next() else {
            let path = paths.first().map_or(Path::new(""), |path| path.as_ref());
            let path = path.to_owned();
            return Err(ReadError::NoCorpus { path });
        };
        Ok(Self {
            format,
            corpora,
            at,
            rows: RowReader::open_part(&first)?,
            files,
            opened: vec![(at, 0, first.path)],
            lines_before: 0,
            ready: Vec::new().into_iter(),
            yielded_any: false,
            ended: false,
        })
    }

    /// The file being read.
    pub fn path(&self) -> &Path {
        self.rows.path()
    }

    /// 1-based line, or row of a parquet file, of the passage yielded last; counted on from file to file of a folder, and anew in each
    /// of several corpora.
    pub fn line(&self) -> u64 {
        self.lines_before + self.rows.number()
    }

    /// The file of a passage, and its line there, by its id and the number that [`CorpusReader::line`] gave it.
    pub(crate) fn place_of(&self, id: &str, line: u64) -> (&Path, u64) {
        let name = id.split('/').next();
        let mut corpora = self.corpora.iter();
        let corpus = corpora.position(|(_, own)| own.is_some() && own.as_deref() == name);
        let end = (corpus.unwrap_or_default(), line);
        let begun = self
            .opened
            .partition_point(|&(of, before, _)| (of, before) < end);
        let (_, before, path) = &self.opened[begun.saturating_sub(1)];
        (path.as_path(), line.saturating_sub(*before))
    }

    fn advance(&mut self) -> Result<Option<Passage>, ReadError> {
        loop {
            if let Some(passage) = self.ready.next() {
                self.yielded_any = true;
                return Ok(Some(passage));
            }
            if let Some(row) = self.rows.next_row()? {
                let passages = (self.format.read)(row);
                let mut passages = passages.map_err(|fault| self.rows.fault(fault))?;
                if let Some(name) = &self.corpora[self.at].1 {
                    for passage in &mut passages {
                        passage.id = Self::id_among(name, &passage.id);
                        let field = "dataset".to_owned();
                        passage.fields.insert(field, name.clone());
                    }
                }
                self.ready = passages.into_iter();
                continue;
            }
            let next = self.files.next();
            let goes_on = next.as_ref().is_some_and(|(_, of)| *of == self.at);
            if !goes_on && !self.yielded_any {
                return Err(ReadError::Empty {
                    path: self.corpora[self.at].0.clone(),
                    what: "passages",
                });
            }
            let Some((file, of)) = next else {
                return Ok(None);
            };
            if goes_on {
                self.lines_before += self.rows.number();
            } else {
                (self.at, self.lines_before, self.yielded_any) = (of, 0, false);
            }
            self.rows = RowReader::open_part(&file)?;
            self.opened.push((of, self.lines_before, file.path));
        }
    }
}

impl Iterator for CorpusReader {
    type Item = Result<Passage, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// BLAKE3 over the passages of a corpus in order: what makes two corpora the same.
///
/// Each field goes in with its length before it, so that no two different corpora share a byte stream.
#[derive(Default)]
pub struct CorpusHasher {
    hasher: blake3::Hasher,
}

impl CorpusHasher {
    /// An empty corpus.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next passage. Its fields count only when there are any.
    pub fn update(&mut self, id: &str, title: &str, text: &str, fields: &BTreeMap<String, String>) {
        for part in [id, title, text] {
            self.update_part(part);
        }
        if fields.is_empty() {
            return;
        }
        // No length is so large, so a passage with fields cannot be taken for two without.
        self.hasher.update(&u64::MAX.to_le_bytes());
        self.hasher.update(&(fields.len() as u64).to_le_bytes());
        for (name, value) in fields {
            self.update_part(name);
            self.update_part(value);
        }
    }

    fn update_part(&mut self, part: &str) {
        self.hasher.update(&(part.len() as u64).to_le_bytes());
        self.hasher.update(part.as_bytes());
    }

    /// The digest, 64 hex digits.
    pub fn finish(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

impl CorpusFormat {
    /// Reads a corpus through, or several as one, and gives the digest, the one that an index of it carries.
    ///
    /// # Errors
    /// As [`CorpusReader::open_all`].
    pub fn digest_of<P: AsRef<Path>>(self, paths: &[P]) -> Result<String, ReadError> {
        let mut hasher = CorpusHasher::new();
        for passage in CorpusReader::open_all(paths, self)? {
            let passage = passage?;
            hasher.update(&passage.id, &passage.title, &passage.text, &passage.fields);
        }
        Ok(hasher.finish())
    }
}

#[cfg(test)]
mod tests;
