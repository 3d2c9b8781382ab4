//! The parts of `DeepSearch` (arXiv 2509.25454) beside the frontier of its trees: which wrong episodes are learned from, and kept answers
//! to questions that need no tree any more.

use forage_contracts::environment::Outcome;
use forage_contracts::{Episode, SettingError, Task, Treatment};

use super::GrpoConfig;
use super::replay::check_reuse;
use crate::sample::Sample;

/// Whether an episode was right. `None` where it has no score.
fn is_right(episode: &Episode) -> Option<bool> {
    let score = episode.score.as_ref()?;
    Some(Outcome::is_right(Outcome::accuracy(score)))
}

/// The most confident of some episodes: that of the least mean surprisal, the first of equals. Episodes without policy tokens do not
/// count.
fn most_confident<'a>(episodes: impl Iterator<Item = &'a Episode>) -> Option<&'a Episode> {
    let surprise = |episode: &&Episode| {
        let surprisal = episode.tokens.surprisal(|_| true);
        surprisal.unwrap_or(f64::INFINITY)
    };
    episodes.min_by(|a, b| surprise(a).total_cmp(&surprise(b)))
}

/// Keeps the loss of only the most confident of each group's wrong episodes (those that no rule for endings treats); the tokens of the
/// others carry no loss, and their rewards stay in the group.
pub(super) fn keep_confident(episodes: &mut [Episode], group_size: usize) {
    let is_wrong = |episode: &Episode| {
        is_right(episode) == Some(false) && episode.tokens.treatment() == Treatment::Train
    };
    for group in episodes.chunks_mut(group_size) {
        let kept = most_confident(group.iter().filter(|episode| is_wrong(episode)));
        let kept = kept.map(|episode| episode.member);
        for episode in group {
            if is_wrong(episode) && Some(episode.member) != kept {
                episode.tokens.treat(Treatment::Mask);
            }
        }
    }
}

/// A right episode of each of the questions solved last, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Solved(Vec<Episode>);

impl Solved {
    pub(super) fn of(episodes: Vec<Episode>) -> Self {
        Self(episodes)
    }

    pub(super) fn episodes(&self) -> &[Episode] {
        &self.0
    }

    /// The right episode of a question.
    pub(super) fn find(&self, task: &Task) -> Option<&Episode> {
        self.0.iter().find(|episode| episode.task == *task)
    }

    /// Keeps the most confident right episode of each group in place of one from an earlier step; drops all but the newest `capacity`.
    pub(super) fn keep<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a [Episode]>,
        capacity: usize,
    ) {
        for group in groups {
            let right = group
                .iter()
                .filter(|episode| is_right(episode) == Some(true));
            if let Some(found) = most_confident(right) {
                self.0.retain(|episode| episode.task != found.task);
                self.0.push(found.clone());
            }
        }
        let surplus = self.0.len().saturating_sub(capacity);
        self.0.drain(..surplus);
    }

    /// The kept sample that joins a group of a solved question without a right episode of its own. A right episode of the group replaces
    /// the kept one instead, unless another group of the step asked the same.
    pub(super) fn sample(&self, group: &[Episode]) -> Option<Sample> {
        let kept = self.find(&group.first()?.task)?;
        if group.iter().any(|episode| is_right(episode) == Some(true)) {
            return None;
        }
        // The sample belongs to none of the group's trees.
        let tree = u64::MAX;
        Sample::of(kept).map(|sample| Sample { tree, ..sample })
    }
}

impl GrpoConfig {
    /// Checks what is asked of trees and of the answers found in them.
    pub(super) fn check_search(&self) -> Result<(), SettingError> {
        self.branching.check()?;
        let fault = "is set, and no episode branches off another; set grpo.trees, or leave it out";
        if self.trees.is_none() && !self.branching.is_random() {
            return Err(SettingError::new("branching", fault));
        }
        if self.trees.is_none() && self.solved > 0 {
            return Err(SettingError::new("solved", fault));
        }
        if self.solved > 0 {
            check_reuse(&self.update)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::{Boundary, Ending, Score, TokenLog};
    use forage_env::Branching;

    use super::*;
    use crate::learner::{OldLogprobs, UpdateConfig};

    /// Members of a group: the accuracy, none of a lost one, and the log-probability of both tokens.
    fn group(question: &str, members: &[(Option<f32>, f32)]) -> Vec<Episode> {
        let episode = |(member, &(accuracy, logprob)): (u64, &(Option<f32>, f32))| {
            let mut tokens = TokenLog::with_prompt(&[1, 2]);
            tokens.push_policy(&[3], &[2.0 * logprob], 0, None);
            tokens.push_environment(&[4, 4]);
            tokens.push_policy(&[5], &[0.0], 0, None);
            let boundary = Boundary::Retriever;
            let message = String::new();
            let lost = Ending::Infra { boundary, message };
            Episode {
                member,
                tokens,
                score: accuracy.map(|total| Score {
                    total,
                    ..Score::default()
                }),
                ending: accuracy.map_or(lost, |_| Ending::Answered),
                ..Episode::new(Task::new(question, "Who?"))
            }
        };
        (0..).zip(members).map(episode).collect()
    }

    fn masked(episodes: &[Episode]) -> Vec<u64> {
        let masked = |episode: &&Episode| episode.tokens.treatment() == Treatment::Mask;
        let masked = episodes.iter().filter(masked);
        masked.map(|episode| episode.member).collect()
    }

    #[test]
    fn of_the_wrong_the_most_confident_is_learned_from() {
        let mut episodes = group(
            "a",
            &[
                (Some(0.0), -1.0),
                (Some(1.0), -9.0),
                (Some(0.0), -0.5),
                (None, -0.1),
                (Some(0.25), -0.75),
            ],
        );
        assert_eq!(episodes[0].tokens.surprisal(|_| true), Some(1.0));
        keep_confident(&mut episodes, 5);
        assert_eq!(masked(&episodes), [0, 4]);
        let kept = Sample::of(&episodes[4]).unwrap();
        assert!(kept.masked && kept.reward.to_bits() == 0.25_f32.to_bits());
        // A rule for endings goes before, and the next group has its own.
        let mut episodes = group("b", &[(Some(0.0), -1.0), (Some(0.0), -0.5)]);
        episodes[1].tokens.treat(Treatment::Zero);
        episodes.extend(group("c", &[(Some(1.0), -1.0), (Some(0.0), -3.0)]));
        keep_confident(&mut episodes, 2);
        assert_eq!(masked(&episodes), [0_u64; 0]);
        assert_eq!(episodes[1].tokens.treatment(), Treatment::Zero);
    }

    #[test]
    fn an_answer_is_kept_until_there_is_a_newer_one_and_joins_groups_without() {
        let mut solved = Solved::default();
        let a = group(
            "a",
            &[(Some(1.0), -2.0), (Some(1.0), -1.0), (Some(0.0), -0.1)],
        );
        let b = group("b", &[(Some(0.0), -1.0), (None, -1.0), (Some(0.0), -1.0)]);
        solved.keep([a.as_slice(), b.as_slice()].into_iter(), 2);
        assert_eq!(solved.episodes(), [a[1].clone()]);
        assert!(solved.find(&b[0].task).is_none());
        assert_eq!(solved.sample(&a), None, "it found it itself");
        let later = group("a", &[(Some(0.0), -1.0), (Some(0.0), -2.0)]);
        let joined = solved.sample(&later).unwrap();
        assert_eq!(
            (joined.reward.to_bits(), joined.tree),
            (1.0_f32.to_bits(), u64::MAX)
        );
        assert!(solved.sample(&b).is_none() && solved.sample(&[]).is_none());
        // Another group of the step found another.
        let twin = group("a", &[(Some(0.0), -1.0), (Some(1.0), -3.0)]);
        assert_eq!(solved.sample(&twin), None, "it found one too");
        let c = group("c", &[(Some(0.75), -1.0)]);
        let again = group("a", &[(Some(1.0), -4.0)]);
        let d = group("d", &[(Some(1.0), -1.0)]);
        solved.keep([c.as_slice(), again.as_slice()].into_iter(), 2);
        assert_eq!(solved.episodes(), [c[0].clone(), again[0].clone()]);
        solved.keep(std::iter::once(d.as_slice()), 2);
        assert_eq!(solved.episodes(), [again[0].clone(), d[0].clone()]);
        assert_eq!(Solved::of(solved.episodes().to_vec()), solved);
    }

    #[test]
    fn what_needs_trees_or_ratios_is_refused() {
        let frontier: Branching =
            serde_json::from_value(serde_json::json!({"frontier": {}})).unwrap();
        let good = GrpoConfig {
            trees: Some(2),
            branching: frontier,
            solved: 8,
            confident_wrong: true,
            ..GrpoConfig::default()
        };
        assert_eq!(good.check_trees(), Ok(()));
        let fault = |config: GrpoConfig| config.check_trees().unwrap_err().to_string();
        let alone = GrpoConfig {
            trees: None,
            ..good.clone()
        };
        assert!(fault(alone.clone()).starts_with("branching is set"));
        let branching = Branching::Random;
        assert!(fault(GrpoConfig { branching, ..alone }).starts_with("solved is set"));
        let branching =
            serde_json::from_value(serde_json::json!({"frontier": {"depth": -1.0}})).unwrap();
        let negative = GrpoConfig {
            branching,
            ..good.clone()
        };
        assert!(fault(negative).contains("branching.frontier.depth"));
        let update = UpdateConfig {
            old_logprobs: Some(OldLogprobs::Trainer),
            ..UpdateConfig::default()
        };
        let trainer = GrpoConfig {
            update,
            ..good.clone()
        };
        assert!(fault(trainer).contains("update.objective.correction"));
    }

    #[test]
    fn recorded_rollouts_are_not_searched_for() {
        let written =
            |written: serde_json::Value| -> GrpoConfig { serde_json::from_value(written).unwrap() };
        for (key, settings) in [
            (
                "branching",
                serde_json::json!({"trees": 2, "branching": {"frontier": {}}}),
            ),
            ("solved", serde_json::json!({"trees": 2, "solved": 8})),
            (
                "confident_wrong",
                serde_json::json!({"confident_wrong": true}),
            ),
            ("trees", serde_json::json!({"trees": 2})),
        ] {
            let config = written(settings);
            let error = config.check_recorded(&[]).unwrap_err().to_string();
            let expected = format!("[grpo]: {key} is set, and recorded");
            assert!(error.starts_with(&expected), "{error}");
        }
        let marked = written(serde_json::json!({
            "trees": 2, "update": {"objective": {"algorithm": "grpo", "credit": "tree"}},
        }));
        assert_eq!(marked.check_trees(), Ok(()));
        assert_eq!(marked.check_recorded(&[]), Ok(()));
    }
}
