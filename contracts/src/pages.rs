//! Whole pages: what environments that read them stand on.

use crate::retriever::RetrieverError;

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

/// A page that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The page's id.
    pub id: String,
    /// The page's title.
    pub title: String,
    /// The retriever's score.
    pub score: f32,
}

/// The part of pages that a query is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePart {
    /// Titles alone.
    Title,
    /// Whole pages.
    Whole,
}

/// Pages by id, and a search over them.
pub trait Pages: Send + Sync {
    /// The page with this id.
    ///
    /// # Errors
    /// Only faults of the infrastructure.
    fn page(&self, id: &str) -> Result<Option<Page<'_>>, RetrieverError>;

    /// Gets ready to find pages by one of their parts, which may take long the first time.
    ///
    /// # Errors
    /// When the pages cannot be indexed.
    fn prepare(&self, part: PagePart) -> Result<(), RetrieverError>;

    /// The best `count` pages, best first, equal scores by id.
    ///
    /// # Errors
    /// Only faults of the infrastructure; a query without a match finds nothing.
    fn find(&self, part: PagePart, query: &str, count: usize)
    -> Result<Vec<Found>, RetrieverError>;
}
