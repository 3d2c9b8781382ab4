//! Rewards of the ranking that an episode ends in, compared with the task's relevance judgments; 0 without a ranking.

use async_trait::async_trait;
use forage_contracts::environment::{Call, Outcome};
use forage_contracts::{Episode, Task};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::ranking::{Graded, Judgments};
use super::{Make, Reward, RewardEntry, RewardError, UNIT, indicator, judgments};

/// Passages that NDCG looks at.
pub(crate) const DEPTH: usize = 10;

/// NDCG of the first ten passages, with the ideal order of all that is judged.
pub(crate) const NDCG: RewardEntry = entry(
    "ndcg",
    "rankings: NDCG@10 as trec_eval computes it",
    Make::Plain(|_| {
        Box::new(Ranked {
            name: "ndcg",
            score: |judged| judged.found().ndcg(DEPTH),
        })
    }),
);

/// NDCG less that of the ranking to beat, and not below 0: what the question's own keywords find, or a first stage.
///
/// Members of a group share that ranking, so that only the bound at 0 changes what is learned: whatever ranks no better
/// earns nothing here.
pub(crate) const GAIN: RewardEntry = entry(
    "gain",
    "rankings: NDCG@10 above that of the question's own keywords, or of the first stage",
    Make::Plain(|_| {
        Box::new(Ranked {
            name: "gain",
            score: |judged| {
                let [found, baseline] =
                    [judged.found(), judged.baseline()].map(|ranking| ranking.ndcg(DEPTH) as f32);
                f64::from((found - baseline).max(0.0))
            },
        })
    }),
);

/// One over the rank of the first relevant passage among all; 0 when there is none.
pub(crate) const MRR: RewardEntry = entry(
    "mrr",
    "rankings: one over the rank of the first relevant passage",
    Make::Plain(|_| {
        Box::new(Ranked {
            name: "mrr",
            score: |judged| judged.found().reciprocal_rank(judged.ids.len()),
        })
    }),
);

/// Share of the relevant passages among all that were found, as many as the environment's settings allow.
pub(crate) const RECALL: RewardEntry = entry(
    "recall",
    "rankings: share of the relevant passages found",
    Make::Plain(|_| {
        Box::new(Ranked {
            name: "recall",
            score: |judged| judged.found().recall(judged.ids.len()),
        })
    }),
);

/// Share of relevant passages among the first ten found, or among all where fewer are found: words alone match hundreds, and what cannot
/// be relevant is kept out by operators.
pub(crate) const PRECISION: RewardEntry = RewardEntry {
    always: false,
    ..entry(
        "precision",
        "rankings: share of relevant passages among the first ten found, or among all where fewer are found",
        Make::Plain(|_| {
            Box::new(Ranked {
                name: "precision",
                score: |judged| judged.found().precision(judged.ids.len().min(DEPTH)),
            })
        }),
    )
};

/// 1 when any passage is relevant.
pub(crate) const RETRIEVED: RewardEntry = entry(
    "retrieved",
    "rankings: anything relevant was found",
    Make::Plain(|_| {
        Box::new(Ranked {
            name: "retrieved",
            score: |judged| {
                let relevant =
                    |id: &String| judged.judgments.get(id).is_some_and(|grade| *grade > 0);
                f64::from(indicator(judged.ids.iter().any(relevant)))
            },
        })
    }),
);

/// 1 when nothing that the policy wrote had to be mended, whatever was found.
pub(crate) const SYNTAX: RewardEntry = entry(
    "syntax",
    "rankings: nothing that was written needed repair",
    Make::Plain(|_| {
        Box::new(Ranked {
            name: "syntax",
            score: |judged| {
                let sound = |call| Recorded::of(call).repairs.is_empty();
                f64::from(indicator(judged.episode.calls().all(sound)))
            },
        })
    }),
);

/// 1 when the first passage is one of the best that were found and nothing had to be mended: the reward of `Rank-R1` (arXiv
/// 2503.06034), which asks for the one right pick, in the right format.
pub(crate) const RIGHT_PICK: RewardEntry = RewardEntry {
    always: false,
    ..entry(
        "right_pick",
        "rankings: the first passage is one of the best grade found, and nothing that was written needed repair",
        Make::Plain(|_| {
            Box::new(Ranked {
                name: "right_pick",
                score: |judged| {
                    let grade = |id: &String| judged.judgments.get(id).copied().unwrap_or(0);
                    let best = judged.ids.iter().map(grade).max().unwrap_or(0);
                    let picked = best > 0 && judged.ids.first().map(grade) == Some(best);
                    let sound = |call| Recorded::of(call).repairs.is_empty();
                    f64::from(indicator(picked && judged.episode.calls().all(sound)))
                },
            })
        }),
    )
};

const fn entry(name: &'static str, about: &'static str, make: Make) -> RewardEntry {
    RewardEntry {
        name,
        about,
        always: true,
        judges: Some(Outcome::Ranking),
        range: UNIT,
        schema: None,
        make,
    }
}

/// What environments record for these rewards in the payload of a call ([`Call::payload`]).
#[derive(Default, Deserialize)]
#[serde(default)]
struct Recorded {
    repairs: Vec<IgnoredAny>,
    #[serde(alias = "keywords_found")]
    baseline: Vec<String>,
}

impl Recorded {
    fn of(call: &Call) -> Self {
        Self::deserialize(&call.payload).unwrap_or_default()
    }
}

/// The ranking that an episode ended in.
pub(crate) struct Judged<'a> {
    episode: &'a Episode,
    ids: &'a [String],
    judgments: &'a Judgments,
}

impl Judged<'_> {
    /// The ranking beside its judgments.
    pub(crate) fn found(&self) -> Graded {
        Graded::new(self.ids, self.judgments)
    }

    /// The ranking to beat beside the same judgments; an empty one where none is recorded.
    fn baseline(&self) -> Graded {
        let last = self.episode.calls().last();
        let recorded = last.map(Recorded::of).unwrap_or_default();
        Graded::new(&recorded.baseline, self.judgments)
    }
}

/// A measure of the ranking.
pub(crate) struct Ranked {
    pub(crate) name: &'static str,
    pub(crate) score: fn(&Judged<'_>) -> f64,
}

#[async_trait]
impl Reward for Ranked {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let judgments = judgments(self.name, task)?;
        let score = |ids| {
            (self.score)(&Judged {
                episode,
                ids,
                judgments: &judgments,
            })
        };
        Ok(episode.ranking().map_or(0.0, score) as f32)
    }
}
