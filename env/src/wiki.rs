//! Wikis: whole pages in markdown, their sections, and finding pages.
//!
//! A [`Wiki`] is an index whose documents are whole pages: in memory, or a folder that is mapped and stays far below its size
//! in resident memory. It reads a page by its id, lists and reads sections ([`section`]), and finds pages ([`Finder`]).

pub mod find;
pub mod section;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use forage_retriever::{
    Bm25Params, Bm25Retriever, CorpusFormat, CorpusReader, Index, IndexError, Passage, ReadError,
    RetrieverError,
};

use crate::world::World;

pub use find::Finder;
pub use section::{Section, SectionMode, Span};

/// A wiki could not be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WikiError {
    /// The pages cannot be read.
    #[error("read pages")]
    Read(#[from] ReadError),
    /// The pages cannot be indexed: none, two with one id, or a damaged folder.
    #[error("index pages")]
    Index(#[from] IndexError),
}

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// Unique within the wiki.
    pub id: &'a str,
    /// May be empty.
    pub title: &'a str,
    /// Markdown.
    pub content: &'a str,
}

/// Pages by id.
pub struct Wiki {
    index: Arc<Index>,
    /// BM25 over the titles alone, made when first asked for.
    titles: OnceLock<Arc<Bm25Retriever>>,
}

impl std::fmt::Debug for Wiki {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Wiki")
            .field("place", &self.index.place())
            .field("pages", &self.len())
            .finish_non_exhaustive()
    }
}

impl Wiki {
    /// A wiki over an index whose documents are whole pages, such as one built from a corpus in the format `whole-pages`.
    pub fn of_index(index: Arc<Index>) -> Self {
        Self {
            index,
            titles: OnceLock::new(),
        }
    }

    /// Pages in memory. Each passage is a page: its text is the page's markdown.
    ///
    /// # Errors
    /// [`WikiError::Index`] when there are none, or two with one id.
    pub fn in_memory(pages: &[Passage]) -> Result<Self, WikiError> {
        Ok(Self::of_index(Arc::new(Index::in_memory(
            pages,
            Bm25Params::default(),
        )?)))
    }

    /// The pages of a generated world, in memory.
    ///
    /// # Errors
    /// As [`Self::in_memory`].
    pub fn of_world(world: &World) -> Result<Self, WikiError> {
        let passage = |page: crate::world::Page| {
            let content = page.content();
            Passage::new(page.id, page.title, content)
        };
        Self::in_memory(&world.pages().map(passage).collect::<Vec<_>>())
    }

    /// Reads a corpus into memory. Pages stay whole; in the other formats each passage is a page.
    ///
    /// # Errors
    /// When the corpus cannot be read, is empty, or has two pages with one id.
    pub fn read(path: &Path, format: CorpusFormat) -> Result<Self, WikiError> {
        let pages = CorpusReader::open(path, format.whole())?.collect::<Result<Vec<_>, _>>()?;
        Self::in_memory(&pages)
    }

    /// Number of pages; never 0.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Never true: a wiki without pages cannot be opened.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The index of the pages.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// The page with this id, by binary search and without a copy.
    ///
    /// # Errors
    /// When the index is damaged.
    pub fn page(&self, id: &str) -> Result<Option<Page<'_>>, RetrieverError> {
        let Some(ordinal) = self.index.ordinal_of(id)? else {
            return Ok(None);
        };
        self.at(ordinal).map(Some)
    }

    /// The page at a place of the index.
    fn at(&self, ordinal: u32) -> Result<Page<'_>, RetrieverError> {
        let document = self.index.document(ordinal)?;
        Ok(Page {
            id: document.id,
            title: document.title,
            content: document.text,
        })
    }

    /// The index of titles: document `n` is the title of page `n`.
    fn titles(&self) -> Result<Arc<Bm25Retriever>, WikiError> {
        if let Some(titles) = self.titles.get() {
            return Ok(Arc::clone(titles));
        }
        let mut passages = Vec::with_capacity(self.len());
        for ordinal in 0..self.len() as u32 {
            let document = self.index.document(ordinal)?;
            passages.push(Passage::new(document.id, document.title, ""));
        }
        let made = Arc::new(Bm25Retriever::in_memory(passages)?);
        Ok(Arc::clone(self.titles.get_or_init(|| made)))
    }
}

#[cfg(test)]
mod tests;
