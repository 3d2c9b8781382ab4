//! Facts about a step's episodes that its metrics do not hold.

use std::collections::HashSet;

use forage_env::environment::TurnKind;
use forage_env::episode::Episode;
use forage_env::tokens::Provenance;
use serde::{Deserialize, Serialize};

/// What the policy wrote in one step. Episodes lost to infrastructure faults are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextFacts {
    /// Share of 4-grams of policy tokens that occurred before in the same episode, mean over episodes. A loop comes close to
    /// 1; the tags of a protocol alone stay well under a third.
    pub repeated_frac: f64,
    /// Policy tokens per episode.
    pub policy_tokens_mean: f64,
    /// Searches per episode.
    pub searches_mean: f64,
    /// Share of turns the environment understood.
    pub valid_frac: f64,
}

impl TextFacts {
    /// The facts of `episodes`; `None` when all of them were lost to faults of ours.
    pub fn of(episodes: &[Episode]) -> Option<Self> {
        let played: Vec<&Episode> = episodes.iter().filter(|episode| !episode.ending.is_infra()).collect();
        if played.is_empty() {
            return None;
        }
        let mean =
            |value: fn(&Episode) -> f64| played.iter().map(|episode| value(episode)).sum::<f64>() / played.len() as f64;
        let turns = played.iter().flat_map(|episode| &episode.turns);
        let valid = turns.clone().filter(|turn| !matches!(turn.kind, TurnKind::Invalid { .. })).count();
        Some(Self {
            repeated_frac: mean(repeated_frac),
            policy_tokens_mean: mean(|episode| episode.tokens.count(Provenance::Policy) as f64),
            searches_mean: mean(|episode| episode.searches() as f64),
            valid_frac: valid as f64 / turns.count().max(1) as f64,
        })
    }
}

/// 4-grams do not reach over what the environment wrote between turns.
fn repeated_frac(episode: &Episode) -> f64 {
    let ids = episode.tokens.ids();
    let (mut seen, mut total) = (HashSet::new(), 0_usize);
    for span in episode.tokens.spans().iter().filter(|span| span.provenance == Provenance::Policy) {
        for gram in ids[span.start..span.end].windows(4) {
            seen.insert(gram);
            total += 1;
        }
    }
    (total - seen.len()) as f64 / total.max(1) as f64
}
