//! BM25 and dense together: reciprocal rank fusion and weighted sums.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join_all;

use crate::error::RetrieverError;
use crate::index::Fingerprint;
use crate::query::{Hit, Query};
use crate::retriever::Retriever;

/// How lists become one.
#[derive(Debug, Clone, PartialEq)]
pub enum Fusion {
    /// The sum of `1 / (constant + rank)` over the lists that hold a passage, ranks from 1 (Cormack, Clarke and Büttcher,
    /// 2009, with 60). Scores do not matter.
    ReciprocalRank {
        /// How little the first ranks stand out.
        constant: f64,
    },
    /// The weighted sum of scores brought to `[0, 1]` in each list: `(score - lowest) / (highest - lowest)`, 1 for every
    /// passage of a list whose scores are all equal, 0 for a passage that is not in the list. Two lists with weights
    /// `1 - alpha` and `alpha` are linear interpolation.
    Weighted {
        /// One per list.
        weights: Vec<f64>,
    },
}

impl Default for Fusion {
    fn default() -> Self {
        Self::ReciprocalRank { constant: 60.0 }
    }
}

/// Asks several retrievers and fuses their lists.
pub struct HybridRetriever {
    parts: Vec<Arc<dyn Retriever>>,
    fusion: Fusion,
    depth: usize,
}

impl HybridRetriever {
    /// Fuses the best `depth` passages of each part; the best `k` where more are asked for.
    ///
    /// # Errors
    /// [`RetrieverError::Unsupported`] without parts, with depth 0, a constant that is negative, or weights that are not
    /// one finite number of at least 0 per part.
    pub fn new(parts: Vec<Arc<dyn Retriever>>, fusion: Fusion, depth: usize) -> Result<Self, RetrieverError> {
        let usable = |number: f64| number.is_finite() && number >= 0.0;
        let fault = match &fusion {
            _ if parts.is_empty() => Some("fuse the lists of no retriever"),
            _ if depth == 0 => Some("fuse lists of depth 0"),
            Fusion::ReciprocalRank { constant } if !usable(*constant) => {
                Some("fuse by ranks with a constant that is not a finite number of at least 0")
            }
            Fusion::Weighted { weights } if weights.len() != parts.len() || !weights.iter().all(|w| usable(*w)) => {
                Some("fuse by weights that are not one finite number of at least 0 per retriever")
            }
            _ => None,
        };
        match fault {
            Some(what) => Err(RetrieverError::Unsupported { retriever: "a hybrid".to_owned(), what }),
            None => Ok(Self { parts, fusion, depth }),
        }
    }
}

#[async_trait::async_trait]
impl Retriever for HybridRetriever {
    fn fingerprint(&self) -> Fingerprint {
        let mut named = format!("hybrid\nfusion={}\ndepth={}\n", self.fusion.named(), self.depth);
        for part in &self.parts {
            named.push_str(&part.fingerprint().0);
            named.push('\n');
        }
        Fingerprint(blake3::hash(named.as_bytes()).to_hex().to_string())
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let depth = self.depth.max(k);
        let lists = try_join_all(self.parts.iter().map(|part| part.search(queries, depth))).await?;
        let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
        let fused = queries.iter().map(|_| {
            let of_query = lists.iter_mut().map(|lists| lists.next().unwrap_or_default());
            self.fusion.fuse(of_query.collect(), k)
        });
        Ok(fused.collect())
    }
}

impl Fusion {
    fn named(&self) -> String {
        match self {
            Self::ReciprocalRank { constant } => format!("rrf {:016x}", constant.to_bits()),
            Self::Weighted { weights } => {
                let bits: Vec<String> = weights.iter().map(|weight| format!("{:016x}", weight.to_bits())).collect();
                format!("weighted {}", bits.join(" "))
            }
        }
    }

    /// The best `k` of the lists of one query, ties by id.
    fn fuse(&self, lists: Vec<Vec<Hit>>, k: usize) -> Vec<Hit> {
        let mut fused: BTreeMap<String, (f64, Hit)> = BTreeMap::new();
        for (list, hits) in lists.into_iter().enumerate() {
            let scores = self.scores(list, &hits);
            for (hit, score) in hits.into_iter().zip(scores) {
                fused.entry(hit.id.clone()).or_insert((0.0, hit)).0 += score;
            }
        }
        let mut hits: Vec<Hit> = fused.into_values().map(|(score, hit)| Hit { score: score as f32, ..hit }).collect();
        // Stable, so that equal scores keep the order of ids.
        hits.sort_by(|one, other| other.score.total_cmp(&one.score));
        hits.truncate(k);
        hits
    }

    /// What each hit of a list adds to the score of its passage.
    fn scores(&self, list: usize, hits: &[Hit]) -> Vec<f64> {
        match self {
            Self::ReciprocalRank { constant } => (1..=hits.len()).map(|rank| 1.0 / (constant + rank as f64)).collect(),
            Self::Weighted { weights } => {
                let scores = hits.iter().map(|hit| f64::from(hit.score));
                let lowest = scores.clone().fold(f64::INFINITY, f64::min);
                let range = scores.clone().fold(f64::NEG_INFINITY, f64::max) - lowest;
                let share = |score: f64| if range > 0.0 { (score - lowest) / range } else { 1.0 };
                scores.map(|score| weights[list] * share(score)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests;
