//! BM25 and dense together, by reciprocal rank fusion.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_contracts::retriever::{Fingerprint, Hit, Query, Retriever, RetrieverError};
use futures::future::try_join_all;

use crate::mode::ModeEntry;
use crate::{dense, retriever};

/// Passages of each list that the mode fuses.
const FUSED: usize = 100;

/// BM25 and dense together, by reciprocal ranks.
pub(crate) const MODE: ModeEntry = ModeEntry {
    name: "hybrid",
    about: "bm25 and dense, fused by reciprocal ranks",
    needs_encoder: true,
    open: |searched| {
        let parts = [retriever::BM25, dense::MODE].map(|mode| (mode.open)(searched));
        let parts = parts.into_iter().collect::<Result<_, _>>()?;
        let hybrid = HybridRetriever::new(parts, FUSED)?;
        Ok(Arc::new(hybrid))
    },
};

/// The constant of reciprocal rank fusion: how little the first ranks stand out.
const RANK_CONSTANT: f64 = 60.0;

/// Asks several retrievers and fuses their lists by reciprocal ranks: a passage scores the sum of `1 / (60 + rank)` over the
/// lists that hold it, ranks from 1 (Cormack, Clarke and Büttcher, 2009). The scores of the lists do not matter.
struct HybridRetriever {
    parts: Vec<Arc<dyn Retriever>>,
    depth: usize,
}

impl HybridRetriever {
    /// Fuses the best `depth` passages of each part; the best `k` where more are asked for.
    ///
    /// # Errors
    /// [`RetrieverError::Unsupported`] without parts or with depth 0.
    fn new(parts: Vec<Arc<dyn Retriever>>, depth: usize) -> Result<Self, RetrieverError> {
        let what = match depth {
            _ if parts.is_empty() => "fuse the lists of no retriever",
            0 => "fuse lists of depth 0",
            _ => return Ok(Self { parts, depth }),
        };
        Err(RetrieverError::Unsupported {
            retriever: "a hybrid".to_owned(),
            what,
        })
    }
}

#[async_trait::async_trait]
impl Retriever for HybridRetriever {
    fn fingerprint(&self) -> Fingerprint {
        let (constant, depth) = (RANK_CONSTANT.to_bits(), self.depth);
        let mut named = format!("hybrid\nfusion=rrf {constant:016x}\ndepth={depth}\n");
        for part in &self.parts {
            named.push_str(&part.fingerprint().0);
            named.push('\n');
        }
        Fingerprint::of(&named)
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let depth = self.depth.max(k);
        let lists = try_join_all(self.parts.iter().map(|part| part.search(queries, depth))).await?;
        let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
        let fused = queries.iter().map(|_| {
            let of_query = lists
                .iter_mut()
                .map(|lists| lists.next().unwrap_or_default());
            fuse(of_query, k)
        });
        Ok(fused.collect())
    }
}

/// The best `k` of the lists of one query, ties by id.
fn fuse(lists: impl Iterator<Item = Vec<Hit>>, k: usize) -> Vec<Hit> {
    let mut fused: BTreeMap<String, (f64, Hit)> = BTreeMap::new();
    for hits in lists {
        for (rank, hit) in (1..).zip(hits) {
            let score = 1.0 / (RANK_CONSTANT + f64::from(rank));
            fused.entry(hit.id.clone()).or_insert((0.0, hit)).0 += score;
        }
    }
    let scored = fused.into_values().map(|(score, hit)| Hit {
        score: score as f32,
        ..hit
    });
    let mut hits: Vec<Hit> = scored.collect();
    hits.sort_by(Hit::rank);
    hits.truncate(k);
    hits
}

#[cfg(test)]
mod tests;
