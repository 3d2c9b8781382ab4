//! Wikis: whole pages in markdown, their sections, and finding pages.
//!
//! A [`Wiki`] is an index whose documents are whole pages: in memory, or a folder that is mapped and stays far below its size
//! in resident memory. It reads a page by its id, lists and reads sections (`section`), and finds pages (`Finder`).

pub(crate) mod find;
pub(crate) mod section;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use forage_contracts::Passage;
use forage_contracts::retriever::{Query, RetrieverError};
use forage_contracts::{Found, Page, PagePart, Pages};
use forage_retriever::{
    Bm25Params, Bm25Retriever, CorpusFormat, CorpusReader, Index, IndexError, ReadError,
};

use crate::ask::Waiting;
use crate::world::World;

pub(crate) use section::SectionMode;

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

/// Pages by id.
pub struct Wiki {
    index: Arc<Index>,
    /// BM25 over the titles alone, made when first asked for.
    titles: OnceLock<Bm25Retriever>,
    /// BM25 over whole pages.
    whole: OnceLock<Bm25Retriever>,
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
            whole: OnceLock::new(),
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

    /// The page at a place of the index.
    fn at(&self, ordinal: u32) -> Result<Page<'_>, RetrieverError> {
        let document = self.index.document(ordinal)?;
        Ok(Page {
            id: document.id,
            title: document.title,
            content: document.text,
        })
    }

    /// What finds pages by a part: document `n` of it stands for page `n`.
    fn finds(&self, part: PagePart) -> Result<&Bm25Retriever, RetrieverError> {
        match part {
            PagePart::Whole => {
                let whole = || Bm25Retriever::new(Arc::clone(&self.index));
                Ok(self.whole.get_or_init(whole))
            }
            PagePart::Title => {
                if let Some(titles) = self.titles.get() {
                    return Ok(titles);
                }
                let mut passages = Vec::with_capacity(self.len());
                for ordinal in 0..self.len() as u32 {
                    let document = self.index.document(ordinal)?;
                    passages.push(Passage::new(document.id, document.title, ""));
                }
                let made = Bm25Retriever::in_memory(passages)?;
                Ok(self.titles.get_or_init(|| made))
            }
        }
    }
}

impl Pages for Wiki {
    /// Finds a page by binary search, without a copy.
    fn page(&self, id: &str) -> Result<Option<Page<'_>>, RetrieverError> {
        let Some(ordinal) = self.index.ordinal_of(id)? else {
            return Ok(None);
        };
        self.at(ordinal).map(Some)
    }

    fn prepare(&self, part: PagePart) -> Result<(), RetrieverError> {
        self.finds(part).map(|_| ())
    }

    fn find(
        &self,
        part: PagePart,
        query: &str,
        count: usize,
    ) -> Result<Vec<Found>, RetrieverError> {
        let waiting = Waiting::begin();
        let query = waiting.asks(Query::new(query));
        let ranked = self.finds(part)?.search_ids(&query, count)?;
        let found = ranked.into_iter().map(|(ordinal, score)| {
            let page = self.at(ordinal)?;
            Ok(Found {
                id: page.id.to_owned(),
                title: page.title.to_owned(),
                score,
            })
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests;
