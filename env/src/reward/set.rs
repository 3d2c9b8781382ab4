//! The registered rewards and their weighted sum.

use std::collections::BTreeMap;

use forage_contracts::environment::{EnvError, Outcome};
use forage_contracts::reward::{Built, Make, Making, Pieces, Reward, RewardError};
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Score, SettingError, Task, suggestion};

use super::settings::Weighting;
use crate::registry::{REWARD_REGISTRY, rewards as registered};

impl RewardSet {
    /// The default weights: exact match for answers; for rankings mostly true NDCG, part of it only as far as it beats the baseline, and
    /// a little for valid output and for finding anything relevant.
    pub fn default_weights(outcome: Outcome) -> BTreeMap<String, f32> {
        let weights: &[(&str, f32)] = match outcome {
            Outcome::Answer => &[("em", 1.0)],
            Outcome::Ranking => &[
                ("ndcg", 0.5),
                ("gain", 0.2),
                ("mrr", 0.1),
                ("syntax", 0.1),
                ("retrieved", 0.1),
            ],
        };
        weights
            .iter()
            .map(|(name, weight)| ((*name).to_owned(), *weight))
            .collect()
    }
}

/// Weights that do not form a reward.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RewardSetError {
    /// No reward has this name.
    #[error("unknown reward `{name}`; {suggestion}")]
    Unknown {
        /// As written.
        name: String,
        /// The nearest registered name, or all of them.
        suggestion: String,
    },
    /// The environment's episodes end in something else.
    #[error(
        "reward `{name}` cannot judge this environment's episodes, which end in {outcome}; those that can are {fitting}"
    )]
    Unfit {
        /// The reward.
        name: String,
        /// What the episodes end in.
        outcome: &'static str,
        /// Names of rewards that fit.
        fitting: String,
    },
    /// Its settings cannot be used.
    #[error("[reward.{name}]: {fault}")]
    Settings {
        /// The reward.
        name: String,
        /// The setting, the fault and the fix.
        fault: SettingError,
    },
    /// The weight is infinite or not a number.
    #[error("weight of reward `{name}` is {weight}; write a finite number")]
    NotFinite {
        /// The reward.
        name: String,
        /// As written.
        weight: f32,
    },
}

struct Part {
    reward: Built,
    weight: f32,
}

impl Part {
    /// Tells whether it rewards turns instead of the episode.
    fn pays_turns(&self) -> bool {
        matches!(&self.reward, Built::Alone(reward) if reward.pays_turns())
    }

    /// Adds a part to the score of an episode with `turns` turns: its weighted value to the total, or its weighted pieces to the turns;
    /// the unweighted values to the log.
    fn add(
        &self,
        score: &mut Score,
        turns: usize,
        value: f32,
        pieces: Pieces,
    ) -> Result<(), RewardError> {
        let name = self.reward.name();
        let wrong = |message: String| RewardError {
            name: name.to_owned(),
            message,
        };
        if !value.is_finite() {
            return Err(wrong(format!("the score is {value}")));
        }
        let pays_turns = self.pays_turns();
        if pays_turns && self.weight != 0.0 {
            let of_turns = &pieces[..pieces.len().min(turns)];
            let length = score.turns.len().max(of_turns.len());
            score.turns.resize(length, 0.0);
            for (paid, (turn, piece)) in score.turns.iter_mut().zip(of_turns) {
                if !piece.is_finite() {
                    return Err(wrong(format!("the score of turn {turn} is {piece}")));
                }
                *paid += self.weight * piece;
            }
        }
        score.parts.extend(
            pieces
                .into_iter()
                .map(|(piece, value)| (format!("{name}_{piece}"), value)),
        );
        if !pays_turns {
            score.total += self.weight * value;
        }
        score.parts.insert(name.to_owned(), value);
        Ok(())
    }
}

fn unfit(name: &str, outcome: Outcome) -> RewardSetError {
    let fitting = registered()
        .filter(|entry| entry.fits(outcome))
        .map(|entry| entry.name);
    let outcome = match outcome {
        Outcome::Answer => "an answer",
        Outcome::Ranking => "a ranking",
    };
    RewardSetError::Unfit {
        name: name.to_owned(),
        outcome,
        fitting: fitting.collect::<Vec<_>>().join(", "),
    }
}

/// A weighted sum of registered rewards. Parts of weight 0 that a table configures are computed and logged as well.
pub struct RewardSet {
    outcome: Outcome,
    parts: Vec<Part>,
}

impl std::fmt::Debug for RewardSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let weights = self
            .parts
            .iter()
            .map(|part| (part.reward.name(), part.weight));
        formatter.debug_map().entries(weights).finish()
    }
}

impl RewardSet {
    /// Composes the rewards named in `weights` for episodes of one kind, settings at their defaults; `seed` starts the
    /// streams of those that draw (`random`, `noisy`).
    ///
    /// # Errors
    /// When a name is not registered or judges other episodes, or a weight is not finite.
    pub fn new(
        outcome: Outcome,
        weights: &BTreeMap<String, f32>,
        seed: Seed,
    ) -> Result<Self, RewardSetError> {
        let plain = weights
            .iter()
            .map(|(name, &weight)| (name.clone(), weight.into()))
            .collect();
        Self::configured(outcome, &plain, seed)
    }

    /// As [`RewardSet::new`], with the settings that a config gives some of them.
    ///
    /// # Errors
    /// As [`RewardSet::new`], and when settings cannot be used.
    pub fn configured(
        outcome: Outcome,
        rewards: &BTreeMap<String, Weighting>,
        seed: Seed,
    ) -> Result<Self, RewardSetError> {
        for (name, weighting) in rewards {
            let Some(entry) = registered().find(|entry| entry.name == name) else {
                let names = registered().map(|entry| entry.name);
                return Err(RewardSetError::Unknown {
                    name: name.clone(),
                    suggestion: suggestion(name, names),
                });
            };
            if !entry.fits(outcome) {
                return Err(unfit(name, outcome));
            }
            let weight = weighting.weight();
            if !weight.is_finite() {
                return Err(RewardSetError::NotFinite {
                    name: name.clone(),
                    weight,
                });
            }
        }
        let mut parts = Vec::new();
        for entry in registered() {
            let written = rewards.get(entry.name);
            let weight = written.map_or(0.0, Weighting::weight);
            let logged = (entry.always && entry.fits(outcome))
                || matches!(written, Some(Weighting::Table { .. }));
            if logged || weight != 0.0 {
                let settings = written.map(Weighting::settings).unwrap_or_default();
                let reward = entry.make.build(&Making {
                    outcome,
                    seed,
                    settings,
                    registered: &REWARD_REGISTRY,
                });
                let reward = reward.map_err(|fault| RewardSetError::Settings {
                    name: entry.name.to_owned(),
                    fault,
                })?;
                parts.push(Part { reward, weight });
            }
        }
        Ok(Self { outcome, parts })
    }

    /// Exact match with weight 1, everything else logged only.
    pub fn exact_match() -> Self {
        Self::measure(Outcome::Answer)
    }

    /// [`Outcome::measure`] with weight 1, everything else logged only.
    pub fn measure(outcome: Outcome) -> Self {
        let entries = registered().filter(|entry| entry.always && entry.fits(outcome));
        let parts = entries.filter_map(|entry| {
            // Parts that are always computed take no settings.
            let Make::Plain(make) = entry.make else {
                return None;
            };
            Some(Part {
                reward: Built::Alone(make(Seed::root(0))),
                weight: if entry.name == outcome.measure() {
                    1.0
                } else {
                    0.0
                },
            })
        });
        Self {
            outcome,
            parts: parts.collect(),
        }
    }

    /// The empty set, for episodes that are not graded.
    pub(crate) fn nothing() -> Self {
        Self {
            outcome: Outcome::Answer,
            parts: Vec::new(),
        }
    }

    /// Adds a reward that is not registered, for instance one of a caller's own.
    #[must_use]
    pub fn with(mut self, reward: Box<dyn Reward>, weight: f32) -> Self {
        self.parts.push(Part {
            reward: Built::Alone(reward),
            weight,
        });
        self
    }

    /// Names of the parts that compare the episodes of a group.
    pub fn group_parts(&self) -> impl Iterator<Item = &'static str> {
        self.parts
            .iter()
            .filter(|part| matches!(part.reward, Built::Group(_)))
            .map(|part| part.reward.name())
    }

    /// Names of the weighted parts that reward turns instead of the episode.
    pub fn turn_parts(&self) -> impl Iterator<Item = &'static str> {
        self.parts
            .iter()
            .filter(|part| part.pays_turns() && part.weight != 0.0)
            .map(|part| part.reward.name())
    }

    /// Refuses a task without the labels that a weighted part needs: everything would earn 0.
    ///
    /// # Errors
    /// [`EnvError::Task`], which names the task and what needs it.
    pub fn check(&self, task: &Task) -> Result<(), EnvError> {
        self.outcome.check(task)?;
        let mut weighted = self.parts.iter().filter(|part| part.weight != 0.0);
        let Some(part) = weighted.find(|part| self.lacks_gold(part, task)) else {
            return Ok(());
        };
        Err(EnvError::Task {
            task: task.name(),
            question: task.question.clone(),
            missing: format!(
                "has no accepted answer, which the reward `{}` needs; give it `golds`, or weight rewards alone that do without",
                part.reward.name()
            ),
        })
    }

    /// Tells whether a part needs an accepted answer that a task does not have. Rankings are not compared with any.
    fn lacks_gold(&self, part: &Part, task: &Task) -> bool {
        self.outcome == Outcome::Answer && task.golds.is_empty() && part.reward.needs_golds(task)
    }

    /// Tells whether a part is left out of a task's scores: one that is only logged and has nothing to compare with.
    fn leaves_out(&self, part: &Part, task: &Task) -> bool {
        part.weight == 0.0 && self.lacks_gold(part, task)
    }

    /// Scores a finished episode by itself; the parts that compare the episodes of a group are left to
    /// [`RewardSet::score_group`]. Not for episodes that ended in an infrastructure fault: those have no score.
    ///
    /// # Errors
    /// When a part cannot be computed or is not finite.
    pub async fn score(&self, task: &Task, episode: &Episode) -> Result<Score, RewardError> {
        let mut score = Score::default();
        for part in &self.parts {
            if let Built::Alone(reward) = &part.reward
                && !self.leaves_out(part, task)
            {
                let (value, pieces) = reward.score_in_pieces(task, episode).await?;
                part.add(&mut score, episode.turns.len(), value, pieces)?;
            }
        }
        Ok(score)
    }

    /// The scores of a group's episodes of `task`, each made by [`RewardSet::score`] before, with the parts that compare
    /// them added.
    ///
    /// # Errors
    /// When a part cannot be computed or is not finite, or an episode has no score.
    pub async fn score_group(
        &self,
        task: &Task,
        members: &[&Episode],
    ) -> Result<Vec<Score>, RewardError> {
        let unscored = || RewardError {
            name: "group".to_owned(),
            message: "an episode without a score".to_owned(),
        };
        let scores = members
            .iter()
            .map(|member| member.score.clone().ok_or_else(unscored));
        let mut scores: Vec<Score> = scores.collect::<Result<_, _>>()?;
        for part in &self.parts {
            let Built::Group(reward) = &part.reward else {
                continue;
            };
            if self.leaves_out(part, task) {
                continue;
            }
            let found = reward.score_group(task, members).await?;
            if found.len() != members.len() {
                let message = format!("{} scores for a group of {}", found.len(), members.len());
                return Err(RewardError {
                    name: reward.name().to_owned(),
                    message,
                });
            }
            for ((score, member), (value, pieces)) in scores.iter_mut().zip(members).zip(found) {
                part.add(score, member.turns.len(), value, pieces)?;
            }
        }
        Ok(scores)
    }

    /// Adds to a score of [`RewardSet::score`] the parts that compare a group, as another score of the same episode has
    /// them: for an episode that is scored again without its group.
    pub(crate) fn take_group_parts(&self, score: &mut Score, recorded: &Score) {
        for part in self
            .parts
            .iter()
            .filter(|part| matches!(part.reward, Built::Group(_)))
        {
            let name = part.reward.name();
            let pieces = format!("{name}_");
            score.parts.extend(
                recorded
                    .parts
                    .iter()
                    .filter(|(piece, _)| piece.starts_with(&pieces))
                    .map(|(piece, value)| (piece.clone(), *value)),
            );
            if let Some(&value) = recorded.parts.get(name) {
                score.total += part.weight * value;
                score.parts.insert(name.to_owned(), value);
            }
        }
    }
}
