//! How corpora are written, and how to tell.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::source::{Source, corpus_files};
use super::{Passage, pages};
use crate::error::ReadError;
use crate::record::{Fault, Record};

/// How a corpus is written. In configs and on the command line: `beir`, `search-r1`, `pages`,
/// `whole-pages`.
///
/// A format is a set of columns. Each may be written as JSON lines, plain or gzip, or as parquet, in one file or in a
/// folder of shards; which it is shows in the first bytes of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CorpusFormat {
    /// BEIR: `_id`, `title` (optional), `text`.
    Beir,
    /// Search-R1 and `FlashRAG`: `id`, `contents` and optionally `title`; or `id`, `title`, `text`.
    ///
    /// Contents are `"Title"`, a line end, the text. Where a `title` column says otherwise, all of the contents are text.
    #[serde(rename = "search-r1")]
    SearchR1,
    /// Whole wiki pages in markdown: `id`, `title`, `content`, cut into passages named `page#n`; or a folder of `.md`
    /// files. Passages carry the fields `page`, the page's id, and `section`, the headings above them joined by ` > `.
    Pages,
    /// The same pages, each kept whole under its own id: for reading pages rather than passages. Never read off columns.
    WholePages,
}

impl CorpusFormat {
    /// Every format, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Beir, Self::SearchR1, Self::Pages, Self::WholePages];

    /// The name used in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Beir => "beir",
            Self::SearchR1 => "search-r1",
            Self::Pages => "pages",
            Self::WholePages => "whole-pages",
        }
    }

    /// The format that gives one passage per record: pages are not cut.
    #[must_use]
    pub fn whole(self) -> Self {
        match self {
            Self::Pages => Self::WholePages,
            other => other,
        }
    }

    /// Reads the format off the columns of the first record.
    ///
    /// # Errors
    /// When the file cannot be read, is empty, or its first record fits no format.
    pub fn detect(path: &Path) -> Result<Self, ReadError> {
        for file in corpus_files(path)? {
            let mut source = Source::open(&file)?;
            if source.advance()? {
                let record = source.record()?;
                let undetected = || ReadError::UndetectedFormat {
                    path: file.clone(),
                    fields: record.names().collect::<Vec<_>>().join(", "),
                };
                return Self::of(&record).ok_or_else(undetected);
            }
        }
        Err(ReadError::Empty { path: path.to_owned(), what: "passages" })
    }

    fn of(record: &Record<'_>) -> Option<Self> {
        if record.has("_id") {
            Some(Self::Beir)
        } else if record.has("contents") {
            Some(Self::SearchR1)
        } else if record.has("content") {
            Some(Self::Pages)
        } else {
            (record.has("id") && record.has("text")).then_some(Self::SearchR1)
        }
    }

    /// The passages of one record, in order.
    pub(super) fn passages(self, record: Record<'_>, out: &mut impl Extend<Passage>) -> Result<(), Fault> {
        match self {
            Self::Beir => out.extend([beir(record)?]),
            Self::SearchR1 => out.extend([search_r1(record)?]),
            Self::Pages => page(record, out)?,
            Self::WholePages => out.extend([whole_page(record)?]),
        }
        Ok(())
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

fn beir(mut record: Record<'_>) -> Result<Passage, Fault> {
    let fix = "BEIR rows are {\"_id\", \"title\", \"text\"}; fix the row or name another format";
    let id = record.id("_id", fix)?;
    let title = record.optional_text("title", fix)?.into_owned();
    let text = record.text("text", fix)?.into_owned();
    Ok(Passage { id, title, text, fields: record.into_fields() })
}

fn search_r1(mut record: Record<'_>) -> Result<Passage, Fault> {
    let fix = "Search-R1 rows are {\"id\", \"contents\"} or {\"id\", \"title\", \"text\"}; fix the row or name another \
                format";
    let id = record.id("id", fix)?;
    let given = record.optional_text("title", fix)?;
    if !record.has("contents") && record.has("text") {
        let text = record.text("text", fix)?.into_owned();
        return Ok(Passage { id, title: given.into_owned(), text, fields: record.into_fields() });
    }
    let contents = record.text("contents", fix)?;
    // A row with both repeats its text.
    record.optional_text("text", fix)?;
    let (title, text) = split_contents(&given, contents);
    Ok(Passage { id, title, text, fields: record.into_fields() })
}

/// The first line is the title, as upstream reads it, unless another one is given; contents of one line are all text.
fn split_contents(given: &str, contents: Cow<'_, str>) -> (String, String) {
    let Some((line, text)) = contents.split_once('\n') else {
        return (given.to_owned(), contents.into_owned());
    };
    let title = line.trim_end_matches('\r').trim_matches('"');
    if given.is_empty() || given.trim().trim_matches('"') == title.trim() {
        (title.to_owned(), text.to_owned())
    } else {
        (given.to_owned(), contents.into_owned())
    }
}

const PAGE_MEND: &str = "page rows are {\"id\", \"title\", \"content\"}; fix the row or name another format";

fn whole_page(mut record: Record<'_>) -> Result<Passage, Fault> {
    let id = record.id("id", PAGE_MEND)?;
    let title = record.optional_text("title", PAGE_MEND)?.into_owned();
    let text = record.text("content", PAGE_MEND)?.into_owned();
    Ok(Passage { id, title, text, fields: record.into_fields() })
}

fn page(mut record: Record<'_>, out: &mut impl Extend<Passage>) -> Result<(), Fault> {
    let page = record.id("id", PAGE_MEND)?;
    let title = record.optional_text("title", PAGE_MEND)?;
    let content = record.text("content", PAGE_MEND)?;
    let mut shared = record.into_fields();
    shared.insert("page".to_owned(), page.clone());
    shared.remove("section");
    let pieces = pages::cut(&title, &content).into_iter().enumerate();
    out.extend(pieces.map(|(number, piece)| {
        let mut fields = shared.clone();
        if !piece.section.is_empty() {
            fields.insert("section".to_owned(), piece.section);
        }
        Passage { id: format!("{page}#{number}"), title: title.clone().into_owned(), text: piece.text, fields }
    }));
    Ok(())
}
