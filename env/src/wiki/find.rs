//! Finding pages.

use std::sync::Arc;

use forage_contracts::retriever::{Hit, Retriever, RetrieverError};
use forage_contracts::{Found, PagePart, Pages};
use serde::{Deserialize, Serialize};

use crate::ask::{self, Refused, ask};

/// Passages asked for per page wanted when hits of passages are folded into pages.
const PASSAGES_PER_PAGE: usize = 8;

/// The texts that a search looks at.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SearchMode {
    /// BM25 over titles alone.
    Titles,
    /// BM25 over whole pages.
    #[default]
    Pages,
    /// The configured retriever over passages; a page ranks as its best passage.
    Passages,
}

/// The reason why nothing was searched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// The query is to blame.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The infrastructure failed.
    #[error(transparent)]
    Retriever(#[from] RetrieverError),
}

/// Finds pages of a wiki, best first, equal scores by id.
#[derive(Clone)]
pub(crate) struct Finder {
    wiki: Arc<dyn Pages>,
    by: By,
}

#[derive(Clone)]
enum By {
    Part(PagePart),
    Passages(Arc<dyn Retriever>),
}

impl Finder {
    /// Finds pages in one of the three ways; `passages` is used by `SearchMode::Passages` alone, and its ids must be
    /// page ids, or page ids followed by `#` and a number.
    ///
    /// # Errors
    /// When the pages cannot be indexed.
    pub(crate) fn new(
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
    pub(crate) fn wiki(&self) -> &Arc<dyn Pages> {
        &self.wiki
    }

    /// The best `count` pages. At once when the index is in this process.
    ///
    /// # Errors
    /// Faults of the infrastructure, and queries that cannot be searched for; one without a match finds nothing.
    pub(crate) async fn find(&self, query: &str, count: usize) -> Result<Vec<Found>, FindError> {
        match &self.by {
            By::Part(part) => {
                ask::check(query)?;
                Ok(self.wiki.find(*part, query, count)?)
            }
            By::Passages(retriever) => {
                let passages = count.saturating_mul(PASSAGES_PER_PAGE);
                let hits = ask(retriever.as_ref(), &[query], passages).await?;
                let hits = hits.into_iter().next().transpose()?;
                Ok(self.fold(hits.unwrap_or_default(), count)?)
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
