//! Finding pages.

use std::sync::Arc;

use forage_contracts::pages::{Found, PagePart, Pages};
use forage_contracts::retriever::{Hit, Query, Retriever, RetrieverError};
use serde::{Deserialize, Serialize};

/// Passages asked for per page wanted when hits of passages are folded into pages.
const PASSAGES_PER_PAGE: usize = 8;

/// What a search looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchMode {
    /// BM25 over titles alone.
    Titles,
    /// BM25 over whole pages.
    #[default]
    Pages,
    /// The configured retriever over passages; a page ranks as its best passage.
    Passages,
}

/// Finds pages of a wiki, best first, equal scores by id.
#[derive(Clone)]
pub struct Finder {
    wiki: Arc<dyn Pages>,
    by: By,
}

#[derive(Clone)]
enum By {
    Part(PagePart),
    Passages(Arc<dyn Retriever>),
}

impl Finder {
    /// Finds pages in one of the three ways; `passages` is used by [`SearchMode::Passages`] alone, and its ids must be
    /// page ids, or page ids followed by `#` and a number.
    ///
    /// # Errors
    /// When the pages cannot be indexed.
    pub fn new(
        wiki: Arc<dyn Pages>,
        mode: SearchMode,
        passages: Arc<dyn Retriever>,
    ) -> Result<Self, RetrieverError> {
        let by = match mode {
            SearchMode::Titles => By::Part(PagePart::Title),
            SearchMode::Pages => By::Part(PagePart::Whole),
            SearchMode::Passages => By::Passages(passages),
        };
        if let By::Part(part) = by {
            wiki.prepare(part)?;
        }
        Ok(Self { wiki, by })
    }

    /// The wiki searched.
    pub fn wiki(&self) -> &Arc<dyn Pages> {
        &self.wiki
    }

    /// The best `count` pages. At once when the index is in this process.
    ///
    /// # Errors
    /// Only faults of the infrastructure; a query without a match finds nothing.
    pub async fn find(&self, query: &str, count: usize) -> Result<Vec<Found>, RetrieverError> {
        match &self.by {
            By::Part(part) => self.wiki.find(*part, query, count),
            By::Passages(retriever) => {
                let asked = [Query::new(query)];
                let hits = retriever
                    .search(&asked, count.saturating_mul(PASSAGES_PER_PAGE))
                    .await?;
                self.fold(hits.into_iter().next().unwrap_or_default(), count)
            }
        }
    }

    /// Pages of passages, each at the place of its best passage; passages of pages the wiki does not have are passed over.
    fn fold(&self, hits: Vec<Hit>, count: usize) -> Result<Vec<Found>, RetrieverError> {
        let mut found: Vec<Found> = Vec::new();
        for hit in hits {
            if found.len() == count {
                break;
            }
            let cut = hit.id.rsplit_once('#').map(|(page, _)| page);
            let page = match self.wiki.page(&hit.id)? {
                Some(page) => Some(page),
                None => cut.map(|id| self.wiki.page(id)).transpose()?.flatten(),
            };
            if let Some(page) = page.filter(|page| found.iter().all(|known| known.id != page.id)) {
                found.push(Found {
                    id: page.id.to_owned(),
                    title: page.title.to_owned(),
                    score: hit.score,
                });
            }
        }
        Ok(found)
    }
}
