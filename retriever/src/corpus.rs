//! Streaming readers of the corpora people have, all of them producing passages.

mod pages;

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ReadError;
use crate::lines::{LineReader, Record};

/// The unit of retrieval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Unique within its corpus.
    pub id: String,
    /// May be empty.
    pub title: String,
    /// Body, without the title.
    pub text: String,
}

impl Passage {
    /// Makes a passage from anything that turns into strings.
    pub fn new(id: impl Into<String>, title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), text: text.into() }
    }
}

/// How a corpus is written. In configs and on the command line: `beir`, `search-r1`, `pages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CorpusFormat {
    /// BEIR: `{"_id", "title", "text"}` per line; the path is the file or the folder that holds `corpus.jsonl`.
    Beir,
    /// Search-R1 and `FlashRAG`: `{"id", "contents"}` per line, contents being `"Title"`, a line end, the text.
    #[serde(rename = "search-r1")]
    SearchR1,
    /// Whole wiki pages in markdown, `{"id", "title", "content"}` per line, cut into passages named `page#n`.
    Pages,
}

impl CorpusFormat {
    /// Every format, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Beir, Self::SearchR1, Self::Pages];

    /// The name used in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Beir => "beir",
            Self::SearchR1 => "search-r1",
            Self::Pages => "pages",
        }
    }

    /// Reads the format off the fields of the first record.
    ///
    /// # Errors
    /// When the file cannot be read, is empty, or its first record fits no format.
    pub fn detect(path: &Path) -> Result<Self, ReadError> {
        let path = corpus_file(path);
        let mut lines = LineReader::open(&path)?;
        let Some((_, first)) = lines.next_object()? else {
            return Err(ReadError::Empty { path, what: "passages" });
        };
        if first.contains_key("_id") {
            Ok(Self::Beir)
        } else if first.contains_key("contents") {
            Ok(Self::SearchR1)
        } else if first.contains_key("content") {
            Ok(Self::Pages)
        } else {
            let fields = first.keys().cloned().collect::<Vec<_>>().join(", ");
            Err(ReadError::UndetectedFormat { path, fields })
        }
    }
}

impl fmt::Display for CorpusFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for CorpusFormat {
    type Err = ReadError;

    fn from_str(name: &str) -> Result<Self, ReadError> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| ReadError::UnknownFormat { found: name.to_owned() })
    }
}

/// Iterator over the passages of a corpus file, in file order; memory holds one record at a time.
///
/// Yields an error for the first record that does not fit and ends after it: nothing is passed over. A file without any
/// record yields [`ReadError::Empty`]. Uniqueness of ids is for the consumer to check (the index build does), because it
/// needs memory for all of them; [`CorpusReader::line`] gives the number to name.
pub struct CorpusReader {
    format: CorpusFormat,
    lines: LineReader,
    line: u64,
    ready: VecDeque<Passage>,
    yielded_any: bool,
    ended: bool,
}

impl CorpusReader {
    /// Opens a corpus file (plain or gzip) or, for BEIR, its folder.
    ///
    /// # Errors
    /// When there is no such file or it cannot be opened.
    pub fn open(path: &Path, format: CorpusFormat) -> Result<Self, ReadError> {
        let lines = LineReader::open(&corpus_file(path))?;
        Ok(Self { format, lines, line: 0, ready: VecDeque::new(), yielded_any: false, ended: false })
    }

    /// The file being read.
    pub fn path(&self) -> &Path {
        self.lines.path()
    }

    /// 1-based line of the passage yielded last.
    pub fn line(&self) -> u64 {
        self.line
    }

    fn advance(&mut self) -> Result<Option<Passage>, ReadError> {
        loop {
            if let Some(passage) = self.ready.pop_front() {
                self.yielded_any = true;
                return Ok(Some(passage));
            }
            let Some((line, object)) = self.lines.next_object()? else {
                if self.yielded_any {
                    return Ok(None);
                }
                return Err(ReadError::Empty { path: self.path().to_owned(), what: "passages" });
            };
            self.line = line;
            let record = Record::new(&self.lines, line, object);
            match self.format {
                CorpusFormat::Beir => self.ready.push_back(beir_passage(record)?),
                CorpusFormat::SearchR1 => self.ready.push_back(search_r1_passage(record)?),
                CorpusFormat::Pages => self.ready.extend(page_passages(record)?),
            }
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

/// The file behind a path: a folder stands for its `corpus.jsonl` or `corpus.jsonl.gz`.
fn corpus_file(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_owned();
    }
    let plain = path.join("corpus.jsonl");
    let gzip = path.join("corpus.jsonl.gz");
    if !plain.exists() && gzip.exists() { gzip } else { plain }
}

fn beir_passage(mut record: Record<'_>) -> Result<Passage, ReadError> {
    let mend = "BEIR rows are {\"_id\", \"title\", \"text\"}; mend the row or name another format";
    Ok(Passage {
        id: record.id("_id", mend)?,
        title: record.optional_text("title", mend)?,
        text: record.text("text", mend)?,
    })
}

fn search_r1_passage(mut record: Record<'_>) -> Result<Passage, ReadError> {
    let mend = "Search-R1 rows are {\"id\", \"contents\"}; mend the row or name another format";
    let id = record.id("id", mend)?;
    let contents = record.text("contents", mend)?;
    // The first line is the title, as upstream reads it; contents of one line are all text.
    let (title, text) = match contents.split_once('\n') {
        Some((title, text)) => (title.trim_end_matches('\r').trim_matches('"').to_owned(), text.to_owned()),
        None => (String::new(), contents),
    };
    Ok(Passage { id, title, text })
}

fn page_passages(mut record: Record<'_>) -> Result<Vec<Passage>, ReadError> {
    let mend = "page rows are {\"id\", \"title\", \"content\"}; mend the row or name another format";
    let page = record.id("id", mend)?;
    let title = record.optional_text("title", mend)?;
    let content = record.text("content", mend)?;
    let texts = pages::cut(&title, &content);
    let numbered = texts.into_iter().enumerate();
    Ok(numbered.map(|(number, text)| Passage::new(format!("{page}#{number}"), title.clone(), text)).collect())
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

    /// Adds the next passage.
    pub fn update(&mut self, id: &str, title: &str, text: &str) {
        for field in [id, title, text] {
            self.hasher.update(&(field.len() as u64).to_le_bytes());
            self.hasher.update(field.as_bytes());
        }
    }

    /// The digest, 64 hex digits.
    pub fn finish(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

/// Reads a corpus through and gives its digest, the one an index of it carries.
///
/// # Errors
/// As [`CorpusReader`].
pub fn corpus_digest(path: &Path, format: CorpusFormat) -> Result<String, ReadError> {
    let mut hasher = CorpusHasher::new();
    for passage in CorpusReader::open(path, format)? {
        let passage = passage?;
        hasher.update(&passage.id, &passage.title, &passage.text);
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests;
