//! Groups of rollouts kept for later steps: rollout replay (arXiv 2506.05316).

use forage_contracts::seed::Seed;
use forage_contracts::{Episode, SettingError};
use serde::{Deserialize, Serialize};

use crate::learner::{OldLogprobs, UpdateConfig};
use crate::objective::Recipe;
use crate::sample::Sample;
use crate::sequence::shuffled;

/// A part of each batch is taken from groups of earlier steps, so that fewer are played. Their ratio is to the log-probabilities
/// of the policy that wrote them, which makes up for their age (arXiv 2506.05316: share .5, capacity one batch).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayConfig {
    /// Most groups kept; the oldest leave first.
    pub capacity: usize,
    /// Share of a step's groups that is replayed, above 0 and below 1. As long as fewer are kept, batches are smaller.
    pub share: f64,
}

impl ReplayConfig {
    /// Groups that a step of `prompts` groups replays.
    pub(super) fn groups(&self, prompts: usize) -> usize {
        (self.share * prompts as f64).round() as usize
    }

    /// Checks the ranges, and that `update` weighs rollouts by importance.
    pub(super) fn check(
        &self,
        prompts: usize,
        group_size: usize,
        update: &UpdateConfig,
    ) -> Result<(), SettingError> {
        let Self { capacity, share } = *self;
        if group_size < 2 {
            let fault = format!(
                "is {capacity}: kept are groups whose members earned differently, and grpo.group_size is {group_size}; set at least 2"
            );
            return Err(SettingError::new("capacity", fault));
        }
        let replayed = self.groups(prompts);
        if !(share > 0.0 && share < 1.0) || replayed == 0 || replayed >= prompts {
            let fault = format!(
                "is {share}: of the {prompts} groups of a step at least one must be replayed and one played"
            );
            return Err(SettingError::new("share", fault));
        }
        if capacity < replayed {
            let fault = format!(
                "is {capacity}: a step replays {replayed} groups, so keep at least as many"
            );
            return Err(SettingError::new("capacity", fault));
        }
        check_reuse(update)
    }
}

/// Checks that `update` weighs rollouts of earlier steps by importance.
pub(super) fn check_reuse(update: &UpdateConfig) -> Result<(), SettingError> {
    let recipe = update.objective.recipe(1);
    if !recipe.loss.has_ratio() {
        let name = recipe.loss.name();
        let fault = format!("{name} has no ratio to the policy that wrote a rollout; take another");
        return Err(SettingError::new("the loss", fault));
    }
    let weighs = recipe.correction.is_some() || recipe.loss.compares_with_sampler();
    if update.old_logprobs == Some(OldLogprobs::Trainer) && !weighs {
        let fault = "= \"trainer\" leaves nothing that weighs the age of a rollout; set update.objective.correction, or \
                     old_logprobs = \"sampler\"";
        return Err(SettingError::new("update.old_logprobs", fault));
    }
    Ok(())
}

/// Groups of earlier steps, oldest first.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<Vec<Episode>>);

impl Buffer {
    /// Splits consecutive episodes into groups, each from its member 0 on.
    pub(super) fn of(episodes: &[Episode]) -> Self {
        Self(
            episodes
                .chunk_by(|before, after| after.member > before.member)
                .map(<[Episode]>::to_vec)
                .collect(),
        )
    }

    pub(super) fn groups(&self) -> &[Vec<Episode>] {
        &self.0
    }

    /// Draws at most `count` groups uniformly without replacement; oldest first.
    pub(super) fn draw(&self, count: usize, seed: Seed) -> Vec<&[Episode]> {
        let mut chosen = shuffled(self.0.len(), seed);
        chosen.truncate(count);
        chosen.sort_unstable();
        chosen
            .into_iter()
            .map(|index| self.0[index].as_slice())
            .collect()
    }

    /// Removes and returns the oldest `count` groups; none where there are fewer.
    pub(super) fn take(&mut self, count: usize) -> Vec<Vec<Episode>> {
        if self.0.len() < count {
            return Vec::new();
        }
        self.0.drain(..count).collect()
    }

    /// Keeps the groups of a step whose rewards differ under `recipe`, and drops the oldest beyond `capacity`.
    pub(super) fn keep<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a [Episode]>,
        recipe: &Recipe,
        capacity: usize,
    ) {
        let kept = groups.filter(|group| differs(group, recipe));
        self.0.extend(kept.map(<[Episode]>::to_vec));
        let surplus = self.0.len().saturating_sub(capacity);
        self.0.drain(..surplus);
    }
}

/// Returns whether two scored episodes have different rewards, under the rules for their endings and as the credit reads them.
fn differs(group: &[Episode], recipe: &Recipe) -> bool {
    let earned = |sample: Sample| -> Vec<u32> {
        let earned = recipe.earned(&sample.member());
        earned.into_iter().map(f32::to_bits).collect()
    };
    let mut scored = group.iter().filter_map(Sample::of).map(earned);
    let first = scored.next();
    scored.any(|other| Some(other) != first)
}

#[cfg(test)]
mod tests {
    use forage_contracts::environment::TurnKind;
    use forage_contracts::policy::Finish;
    use forage_contracts::{Score, Task, TokenLog, Treatment, Turn};

    use super::*;
    use crate::objective::{Algorithm, Correction, Credit, ObjectiveConfig};

    fn group(name: &str, rewards: &[f32]) -> Vec<Episode> {
        let task = Task {
            golds: vec![String::new()],
            ..Task::new(name.to_owned(), String::new())
        };
        let episode = |(reward, member): (&f32, u64)| {
            let mut tokens = TokenLog::with_prompt(&[1]);
            tokens.push_policy(&[2], &[-0.5], 0, None);
            Episode {
                member,
                tokens,
                score: Some(Score {
                    total: *reward,
                    ..Score::default()
                }),
                ..Episode::new(task.clone())
            }
        };
        rewards.iter().zip(0..).map(episode).collect()
    }

    fn recipe() -> Recipe {
        ObjectiveConfig::default().recipe(1)
    }

    fn names(groups: &[&[Episode]]) -> Vec<String> {
        groups
            .iter()
            .map(|group| group[0].task.id.clone())
            .collect()
    }

    #[test]
    fn the_newest_groups_that_differ_stay() {
        let mut buffer = Buffer::default();
        let played = [
            group("a", &[0.0, 1.0]),
            group("b", &[1.0, 1.0]),
            group("c", &[0.5, 1.0]),
            group("d", &[1.0, 0.0]),
        ];
        buffer.keep(played.iter().map(Vec::as_slice), &recipe(), 2);
        assert_eq!(names(&buffer.draw(9, Seed::root(1))), ["c", "d"]);
        let e = group("e", &[0.0, 0.5]);
        buffer.keep(std::iter::once(e.as_slice()), &recipe(), 2);
        assert_eq!(names(&buffer.draw(9, Seed::root(1))), ["d", "e"]);
        let kept: Vec<Episode> = buffer.groups().concat();
        assert_eq!(Buffer::of(&kept).groups(), buffer.groups());
    }

    #[test]
    fn groups_are_kept_for_what_is_learned_from_them() {
        let treated = |rewards: &[f32], rule| {
            let mut group = group("a", rewards);
            group[0].tokens.treat(rule);
            group
        };
        assert!(differs(
            &treated(&[0.0; 3], Treatment::Penalty(0.5)),
            &recipe()
        ));
        assert!(!differs(
            &treated(&[1.0, 0.0, 0.0], Treatment::Zero),
            &recipe()
        ));
        let mut paid = group("b", &[0.5, 0.5]);
        paid[0].turns.push(Turn {
            policy: "a".to_owned(),
            finish: Finish::Stop,
            kind: TurnKind::answer(""),
            observation: String::new(),
            reward: 1.0,
        });
        assert!(!differs(&paid, &recipe()));
        let by_turns = Recipe {
            credit: Credit::ProcessSupervision,
            ..recipe()
        };
        assert!(differs(&paid, &by_turns));
    }

    #[test]
    fn draws_are_without_repetition_and_of_the_seed() {
        let mut buffer = Buffer::default();
        let played: Vec<_> = (0..20)
            .map(|index| group(&format!("{index:02}"), &[0.0, 1.0]))
            .collect();
        buffer.keep(played.iter().map(Vec::as_slice), &recipe(), 20);
        let draw = |seed| names(&buffer.draw(5, Seed::root(seed)));
        let mut unique = draw(1);
        unique.dedup();
        assert!(unique.len() == 5 && unique.is_sorted());
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn what_cannot_be_replayed_is_refused() {
        let good = ReplayConfig {
            capacity: 8,
            share: 0.5,
        };
        let update = UpdateConfig::default();
        let fault = |config: ReplayConfig, update: &UpdateConfig| {
            config.check(16, 8, update).unwrap_err().to_string()
        };
        assert_eq!((good.groups(16), good.check(16, 8, &update)), (8, Ok(())));
        let alone = good.check(16, 1, &update).unwrap_err().to_string();
        assert!(alone.contains("grpo.group_size is 1"), "{alone}");
        for share in [0.0, 0.01, 0.99, 1.0, f64::NAN] {
            assert!(
                fault(ReplayConfig { share, ..good }, &update).contains("share is"),
                "{share}"
            );
        }
        assert!(
            fault(
                ReplayConfig {
                    capacity: 7,
                    ..good
                },
                &update
            )
            .contains("capacity is 7")
        );
        let trainer = UpdateConfig {
            old_logprobs: Some(OldLogprobs::Trainer),
            ..update.clone()
        };
        assert!(fault(good, &trainer).contains("update.objective.correction"));
        let correction = Some(Correction::tis_token(2.0));
        let corrected = ObjectiveConfig {
            correction,
            ..ObjectiveConfig::default()
        };
        assert_eq!(
            good.check(
                16,
                8,
                &UpdateConfig {
                    objective: corrected,
                    ..trainer
                }
            ),
            Ok(())
        );
        // Its ratio is to the sampler in any case.
        let dppo = UpdateConfig {
            objective: Algorithm::of("dppo", &[]).into(),
            old_logprobs: Some(OldLogprobs::Trainer),
            ..update.clone()
        };
        assert_eq!(good.check(16, 8, &dppo), Ok(()));
        let reinforce = UpdateConfig {
            objective: Algorithm::of("rloo", &[]).into(),
            ..update
        };
        assert!(fault(good, &reinforce).contains("no ratio"));
    }
}
