//! The shape of a run: `[grpo]`.

use forage_contracts::SettingError;
use forage_env::{Branching, InfraBudget};
use serde::{Deserialize, Serialize};

use super::{Endings, HintConfig, RecompositionConfig, ReplayConfig};
use crate::curriculum::Curriculum;
use crate::learner::UpdateConfig;
use crate::objective::Credit;
use crate::sample::Sample;
use crate::sequence::Sequence;
use crate::watch::SentinelConfig;

/// Shape of a GRPO run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrpoConfig {
    /// Batches of rollouts, with `grpo.update.minibatches` x `grpo.update.epochs` optimizer steps each. Those of a run that `--from` names
    /// count.
    pub steps: u64,
    /// Questions per step, those of replayed groups included.
    pub prompts_per_step: usize,
    /// Episodes per question.
    pub group_size: usize,
    /// Episodes of a group that begin at the question. Each of the others branches off one of them after a randomly drawn number of its
    /// turns. By default every episode begins at the question.
    pub trees: Option<usize>,
    /// The rule for the turns at which the others branch off.
    #[serde(skip_serializing_if = "Branching::is_random")]
    #[schemars(extend("default" = "random"))]
    pub(crate) branching: Branching,
    /// Number of the most recently solved questions of which a right episode is kept. When one is asked again, its group is played
    /// without trees, and the kept episode joins the group unless that has a right one of its own, which is then kept instead
    /// (`DeepSearch`, arXiv 2509.25454).
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schemars(extend("default" = 0))]
    pub(crate) solved: usize,
    /// Learns from only one of each group's wrong episodes, the one that the policy sampled with the least mean surprisal; the others
    /// count in the group without loss (`DeepSearch`, arXiv 2509.25454). Wrong: an accuracy below a half, or a reward below a half where
    /// nothing says what is right.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub(crate) confident_wrong: bool,
    /// Loss, optimizer, temperature.
    pub update: UpdateConfig,
    /// Steps between checkpoints; 0 writes only the last.
    pub checkpoint_every: u64,
    /// Checkpoints kept.
    pub keep_checkpoints: usize,
    /// Steps between greedy evaluations on the development questions; 0 for none.
    pub evaluate_every: u64,
    /// Steps played ahead while one is learned from; `true` is 1. A step's episodes are sampled to their end by the weights of that many
    /// steps before; the ratio (and a correction, if the objective has one) makes up for the difference. From 2 on the update must weigh
    /// rollouts by importance, this process holds as many engines, and a server must sample from adapters. Several GPUs of one process
    /// play no step ahead.
    #[serde(with = "super::ahead")]
    #[schemars(with = "super::ahead::Written")]
    pub lookahead: u64,
    /// The rule that chooses the questions of a step.
    #[serde(skip_serializing_if = "Curriculum::is_uniform")]
    #[schemars(extend("default" = "uniform"))]
    pub(crate) curriculum: Curriculum,
    /// Times that a step may ask more questions to replace the groups that the objective's filter drops (DAPO's dynamic sampling, arXiv
    /// 2503.14476), until its batch is full. By default it learns from the groups that remain.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schemars(extend("default" = 0))]
    pub(crate) refills: usize,
    /// Begins episodes with turns of the environment's oracle, as many as raise the policy's accuracy to a target (SEELE, arXiv
    /// 2509.06923). By default there are no hints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hints: Option<HintConfig>,
    /// Takes a part of each batch from earlier steps. By default nothing is replayed.
    pub(crate) replay: Option<ReplayConfig>,
    /// Learns from the shortest right and the longest wrong episodes of each group at once, and from the others later (`RoRecomp`, arXiv
    /// 2509.25958); from all at once without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recomposition: Option<RecompositionConfig>,
    /// Largest share of a step's episodes, rounded up to whole ones, that faults of the retriever, a judge, the sandbox or the sampler may
    /// take before the run stops; also of the episodes of an evaluation, and of a batch that `collect` plays. They are never learned from.
    #[serde(skip_serializing_if = "is_usual")]
    #[schemars(extend("default" = InfraBudget::default().share))]
    pub fault_share: f64,
    /// The treatment of episodes, by the way they ended. By default all count as they were scored.
    #[serde(skip_serializing_if = "Endings::are_plain")]
    pub(crate) endings: Endings,
    /// The settings of alarms, and whether a grave one stops the run.
    pub sentinel: SentinelConfig,
}

impl Default for GrpoConfig {
    fn default() -> Self {
        Self {
            steps: 100,
            prompts_per_step: 16,
            group_size: 8,
            trees: None,
            branching: Branching::Random,
            solved: 0,
            confident_wrong: false,
            update: UpdateConfig::default(),
            checkpoint_every: 50,
            keep_checkpoints: 2,
            evaluate_every: 0,
            lookahead: 0,
            curriculum: Curriculum::uniform(),
            refills: 0,
            hints: None,
            replay: None,
            recomposition: None,
            fault_share: InfraBudget::default().share,
            endings: Endings::default(),
            sentinel: SentinelConfig::default(),
        }
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_usual(share: &f64) -> bool {
    share.to_bits() == InfraBudget::default().share.to_bits()
}

impl GrpoConfig {
    /// The budget of infrastructure faults in a batch.
    pub(super) fn fault_budget(&self) -> InfraBudget {
        InfraBudget {
            share: self.fault_share,
        }
    }

    /// The first key in use, if any, that separates right from wrong episodes by accuracy, whatever the reward is.
    pub fn sorts_by_accuracy(&self) -> Option<&'static str> {
        let is_frontier = matches!(self.branching, Branching::Frontier { .. });
        let keys = [
            ("branching.frontier", is_frontier),
            ("solved", self.solved > 0),
            ("confident_wrong", self.confident_wrong),
            ("recomposition", self.recomposition.is_some()),
        ];
        let set = keys.into_iter().find(|(_, is_set)| *is_set);
        set.map(|(key, _)| key)
    }

    /// Faults of the settings, each with its section, without those of the update and of the numbers of questions and episodes.
    pub fn check(&self) -> Vec<SettingError> {
        let checked = [
            ("[grpo]", self.check_trees()),
            ("[grpo]", self.check_questions()),
            ("grpo.replay", self.check_replay()),
            ("grpo.lookahead above 1", self.check_lookahead(1, false)),
            ("grpo.hints", self.check_hints()),
            ("grpo.recomposition", self.check_recomposition()),
            ("[grpo]", self.check_faults()),
            ("grpo.endings", self.endings.check()),
            ("grpo.sentinel", self.sentinel.check()),
        ];
        let faults = checked.into_iter();
        let faults = faults.filter_map(|(part, checked)| Some(checked.err()?.of(part)));
        faults.collect()
    }

    /// Refuses settings that mean nothing for recorded rollouts, and temperatures that these do not record.
    pub(super) fn check_recorded(&self, groups: &[Vec<Sample>]) -> Result<(), SettingError> {
        let all = "recorded rollouts";
        let in_order = "is set, and recorded rollouts come in their own order; leave it out";
        let played = "is set, and recorded rollouts were played before; leave it out";
        // A credit may use the recorded trees.
        let grows = self.trees.is_some() && self.update.objective.recipe(1).credit != Credit::Tree;
        for (part, is_set, key, fault) in [
            (
                "grpo.replay",
                self.replay.is_some(),
                all,
                "are used again and again as it is; leave it out",
            ),
            (
                "grpo.recomposition",
                self.recomposition.is_some(),
                all,
                "are learned from as they are; leave it out",
            ),
            (
                "grpo.endings",
                !self.endings.are_plain(),
                all,
                "say themselves what is learned from them; leave it out",
            ),
            (
                "grpo.hints",
                self.hints.is_some(),
                all,
                "have the hints that they were played with; leave it out",
            ),
            ("[grpo]", self.refills > 0, "refills", in_order),
            (
                "[grpo]",
                !self.curriculum.is_uniform(),
                "curriculum",
                in_order,
            ),
            ("[grpo]", !self.branching.is_random(), "branching", played),
            ("[grpo]", self.solved > 0, "solved", played),
            ("[grpo]", self.confident_wrong, "confident_wrong", played),
            ("[grpo]", grows, "trees", played),
        ] {
            if is_set {
                return Err(SettingError::new(key, fault).of(part));
            }
        }
        let unknown = |sample: &Sample| {
            let Sequence {
                targets,
                temperatures,
                ..
            } = &sample.sequence;
            temperatures.len() < targets.len()
        };
        if self.update.one_temperature().is_none() && groups.iter().flatten().any(unknown) {
            let fault = "is a range, and the recorded rollouts do not say at which temperature each was drawn; write \
                         theirs as a number, or give each line a temperature";
            return Err(SettingError::new("temperature", fault).of("grpo.update"));
        }
        Ok(())
    }

    /// Checks the share of faults.
    fn check_faults(&self) -> Result<(), SettingError> {
        if (0.0..1.0).contains(&self.fault_share) {
            return Ok(());
        }
        let fault = format!("is {}: write 0 up to below 1", self.fault_share);
        Err(SettingError::new("fault_share", fault))
    }

    /// Questions that a step plays: those per step without replayed ones.
    pub fn prompts_played(&self) -> usize {
        self.prompts_per_step
            - self
                .replay
                .map_or(0, |replay| replay.groups(self.prompts_per_step))
    }

    /// Checks that trees fit the group and the credit.
    pub(super) fn check_trees(&self) -> Result<(), SettingError> {
        self.check_search()?;
        let credit = self.update.objective.recipe(1).credit;
        match self.trees {
            Some(trees) if trees == 0 || trees >= self.group_size => {
                let most = self.group_size.saturating_sub(1);
                let fault = format!(
                    "is {trees}: write 1 to {most}, or leave it out where every episode begins anew"
                );
                Err(SettingError::new("trees", fault))
            }
            None if credit == Credit::Tree => {
                let fault = "tree compares episodes that branch off one another; set grpo.trees";
                Err(SettingError::new("credit", fault))
            }
            _ => Ok(()),
        }
    }

    /// Checks the replay, if there is any.
    fn check_replay(&self) -> Result<(), SettingError> {
        self.replay.map_or(Ok(()), |replay| {
            replay.check(self.prompts_per_step, self.group_size, &self.update)
        })
    }

    /// Checks the recomposition, if there is any.
    fn check_recomposition(&self) -> Result<(), SettingError> {
        let Some(recomposition) = self.recomposition else {
            return Ok(());
        };
        if self.replay.is_some() {
            let fault = "keeps groups of its own to learn from later; remove grpo.replay";
            return Err(SettingError::new("recomposition", fault));
        }
        if self.solved > 0 {
            let fault = "compares members with their whole group, and what waits would lack the episode that joined it; remove grpo.solved";
            return Err(SettingError::new("recomposition", fault));
        }
        recomposition.check(self.prompts_per_step, self.group_size, &self.update)
    }
}
