//! The two published rewards of `SearchLM`, whose difference is a case study: under the first a policy learned to write
//! three nouns and no operator.
//!
//! Both are computed with its own NDCG (`ndcg_searchlm`), the reciprocal rank over all that was found (its limit is 100) and
//! grades as the task has them. What is not the same: its parser is Tantivy's and refuses some queries, which earn 0; ours
//! repairs, and a query that had to be repaired earns 0 here. Its second reward subtracts what keywords find without 89 stop
//! words, a list that is not part of its publication: ours are those of `keywords.rs`.

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::reward::{Make, Reward, RewardEntry, RewardError};
use forage_contracts::{Episode, Task};

use super::turn::QueryTurn;
use crate::reward::ranking::{Graded, Judgments};
use crate::reward::rankings::{DEPTH, Ranked};
use crate::reward::{UNIT, judgments};

/// Its NDCG alone, beside the true one.
pub(crate) const NDCG: RewardEntry = RewardEntry {
    name: "ndcg_searchlm",
    about: "rankings: NDCG@10 against the best order of what was found, as SearchLM reports it",
    always: true,
    judges: Some(Outcome::Ranking),
    range: UNIT,
    schema: None,
    make: Make::Plain(|_| {
        Box::new(Ranked {
            name: "ndcg_searchlm",
            score: |judged| judged.found().ndcg_searchlm(DEPTH),
        })
    }),
};

/// The first reward.
pub(crate) const V1: RewardEntry = RewardEntry {
    name: "searchlm_v1",
    about: "queries: SearchLM's first reward, 0.6 ndcg_searchlm + 0.4 mrr, which short keyword queries win",
    always: false,
    judges: Some(Outcome::Ranking),
    range: UNIT,
    schema: None,
    make: Make::Plain(|_| {
        Box::new(Judged {
            name: "searchlm_v1",
            score: |turn, judgments| v1(&Facts::of(turn, judgments)) as f32,
        })
    }),
};

/// The second reward.
pub(crate) const V2: RewardEntry = RewardEntry {
    name: "searchlm_v2",
    about: "queries: SearchLM's second reward: gain over keywords, halved without operators, and a bonus for reasoning",
    always: false,
    judges: Some(Outcome::Ranking),
    range: [0.0, 1.15],
    schema: None,
    make: Make::Plain(|_| {
        Box::new(Judged {
            name: "searchlm_v2",
            score: |turn, judgments| v2(&Facts::of(turn, judgments)) as f32,
        })
    }),
};

/// A score of the query that its episode was for; 0 without one.
struct Judged {
    name: &'static str,
    score: fn(&QueryTurn, &Judgments) -> f32,
}

#[async_trait]
impl Reward for Judged {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let judgments = judgments(self.name, task)?;
        let turn = QueryTurn::of(episode);
        Ok(turn.map_or(0.0, |turn| (self.score)(&turn, &judgments)))
    }
}

/// Facts about a query that the rewards look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Facts {
    /// Whether the query could be run as written.
    pub valid: bool,
    /// `ndcg_searchlm` of the query.
    pub ndcg: f64,
    /// One over the rank of the first relevant passage.
    pub mrr: f64,
    /// `ndcg_searchlm` of the question's keywords.
    pub keywords_ndcg: f64,
    /// Words of the query between white space.
    pub words: usize,
    /// Words of the reasoning.
    pub reasoning_words: usize,
    /// Whether the query uses operators, as [`uses_operators`] finds them.
    pub boolean: bool,
}

/// `0.6 NDCG + 0.4 MRR`.
pub(crate) fn v1(judged: &Facts) -> f64 {
    if judged.valid {
        0.6 * judged.ndcg + 0.4 * judged.mrr
    } else {
        0.0
    }
}

/// `m (0.6 max(0, NDCG - keywords' NDCG) + 0.4 MRR) + 0.15 min(reasoning words / 100, 1)` with `m` 1 for boolean queries and
/// 0.5 for others; 0 for queries of less than three words.
pub(crate) fn v2(judged: &Facts) -> f64 {
    if !judged.valid || judged.words < 3 {
        return 0.0;
    }
    let factor = if judged.boolean { 1.0 } else { 0.5 };
    let gain = (judged.ndcg - judged.keywords_ndcg).max(0.0);
    factor * (0.6 * gain + 0.4 * judged.mrr)
        + 0.15 * (judged.reasoning_words as f64 / 100.0).min(1.0)
}

/// Its test for a boolean query, in upper case: ` AND `, ` OR ` or ` NOT ` inside, `NOT ` at the start, or a straight quote.
/// Lower-case words pass too, although no parser takes them for operators.
pub(crate) fn uses_operators(query: &str) -> bool {
    let query = query.to_uppercase();
    [" AND ", " OR ", " NOT ", "\""]
        .iter()
        .any(|sign| query.contains(sign))
        || query.starts_with("NOT ")
}

impl Facts {
    fn of(turn: &QueryTurn, judgments: &Judgments) -> Self {
        let found = Graded::new(&turn.found, judgments);
        Self {
            valid: turn.is_valid(),
            ndcg: found.ndcg_searchlm(DEPTH),
            mrr: found.reciprocal_rank(turn.found.len()),
            keywords_ndcg: Graded::new(&turn.keywords_found, judgments).ndcg_searchlm(DEPTH),
            words: turn.query.split_whitespace().count(),
            reasoning_words: turn.reasoning_words,
            boolean: uses_operators(&turn.query),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        valid: true,
        ndcg: 0.6,
        mrr: 0.5,
        keywords_ndcg: 0.2,
        words: 6,
        reasoning_words: 50,
        boolean: true,
    };

    #[test]
    fn published_values() {
        let close = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        };
        close(v2(&FACTS), 0.515);
        close(
            v2(&Facts {
                boolean: false,
                ..FACTS
            }),
            0.295,
        );
        close(
            v2(&Facts {
                ndcg: 0.1,
                reasoning_words: 200,
                ..FACTS
            }),
            0.35,
        );
        close(v2(&Facts { words: 2, ..FACTS }), 0.0);
        close(
            v2(&Facts {
                valid: false,
                ..FACTS
            }),
            0.0,
        );
        close(v1(&FACTS), 0.56);
        close(
            v1(&Facts {
                words: 1,
                boolean: false,
                reasoning_words: 0,
                ..FACTS
            }),
            0.56,
        );
        close(
            v1(&Facts {
                valid: false,
                ..FACTS
            }),
            0.0,
        );
    }

    #[test]
    fn operators_are_found_as_published() {
        for query in ["a AND b", "a or b", "NOT a", "not a", "a NOT b", "\"a b\""] {
            assert!(uses_operators(query), "{query}");
        }
        for query in ["a b", "ANDROID", "a AND", "sand or", "+a -b", "a && b"] {
            assert!(!uses_operators(query), "{query}");
        }
    }
}
