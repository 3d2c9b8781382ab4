//! The names other trainers give to the same metrics, so that their dashboards and plots show a run of this one.

use std::borrow::Cow;

use forage_contracts::Metric;
use serde::{Deserialize, Serialize};

/// The system whose names are written.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Aliases {
    /// The canonical names, unchanged.
    #[default]
    Canonical,
    /// Search-R1 and the verl of its time.
    SearchR1,
    /// verl of today.
    Verl,
    /// TRL's `GRPOTrainer`.
    Trl,
    /// slime.
    Slime,
    /// prime-rl.
    PrimeRl,
    /// SkyRL.
    #[serde(rename = "skyrl")]
    SkyRl,
    /// torchtitan's `experiments/rl`.
    Torchtitan,
}

/// Canonical names with their names elsewhere. `*` stands for the part that the run named itself; systems that name a
/// validation set in the metric get `all` for all of them together. Search-R1, verl, slime and prime-rl count observations into a response; the others
/// do not.
type Names = &'static [(&'static str, &'static str)];

const SEARCH_R1: Names = &[
    (Metric::REWARD, "critic/score/mean"),
    (Metric::LOSS, "actor/pg_loss"),
    (Metric::CLIP, "actor/pg_clipfrac"),
    (Metric::KL_OLD, "actor/ppo_kl"),
    (Metric::KL_REFERENCE, "actor/kl_loss"),
    (Metric::ENTROPY, "actor/entropy_loss"),
    (Metric::GRADIENT, "actor/grad_norm"),
    (Metric::LEARNING_RATE, "actor/lr"),
    (Metric::VALUE_LOSS, "critic/vf_loss"),
    (Metric::VALUE_CLIP, "critic/vf_clipfrac"),
    (Metric::VALUE_EXPLAINED, "critic/vf_explained_var"),
    (Metric::VALUE_GRADIENT, "critic/grad_norm"),
    (Metric::RESPONSE_ALL_TOKENS, "response_length/mean"),
    (Metric::TRUNCATED, "response_length/clip_ratio"),
    (Metric::TURNS, "env/number_of_actions/mean"),
    (Metric::SEARCHES, "env/number_of_valid_search"),
    (Metric::VALID, "env/ratio_of_valid_action"),
    (Metric::FINISHED, "env/finish_ratio"),
    (Metric::VAL_EM, "val/test_score/all"),
    (Metric::VAL_EM_OF, "val/test_score/*"),
];

const VERL: Names = &[
    (Metric::REWARD, "critic/score/mean"),
    (Metric::LOSS, "actor/pg_loss"),
    (Metric::CLIP, "actor/pg_clipfrac"),
    (Metric::KL_OLD, "actor/ppo_kl"),
    (Metric::KL_REFERENCE, "actor/kl_loss"),
    (Metric::ENTROPY, "actor/entropy"),
    (Metric::GRADIENT, "actor/grad_norm"),
    (Metric::LEARNING_RATE, "actor/lr"),
    (Metric::VALUE_LOSS, "critic/vf_loss"),
    (Metric::VALUE_CLIP, "critic/vf_clipfrac"),
    (Metric::VALUE_EXPLAINED, "critic/vf_explained_var"),
    (Metric::VALUE_GRADIENT, "critic/grad_norm"),
    (Metric::RESPONSE_ALL_TOKENS, "response_length/mean"),
    (Metric::TRUNCATED, "response_length/clip_ratio"),
    (Metric::TURNS, "num_turns/mean"),
    (Metric::VAL_EM, "val-core/all/acc/mean@1"),
    (Metric::VAL_EM_OF, "val-core/*/acc/mean@1"),
];

const TRL: Names = &[
    (Metric::REWARD, "reward"),
    (Metric::REWARD_STD, "reward_std"),
    (Metric::REWARD_PART, "rewards/*/mean"),
    (Metric::NO_VARIANCE, "frac_reward_zero_std"),
    (Metric::LOSS_WITH_PENALTIES, "loss"),
    (Metric::CLIP, "clip_ratio/region_mean"),
    (Metric::KL_REFERENCE, "kl"),
    (Metric::ENTROPY, "entropy"),
    (Metric::MISMATCH, "sampling/sampling_logp_difference/mean"),
    (Metric::GRADIENT, "grad_norm"),
    (Metric::LEARNING_RATE, "learning_rate"),
    (Metric::RESPONSE_TOKENS, "completions/mean_length"),
    (Metric::TRUNCATED, "completions/clipped_ratio"),
    (Metric::SEARCHES, "tools/call_frequency"),
    (Metric::VAL_REWARD, "eval_reward"),
];

const SLIME: Names = &[
    (Metric::REWARD, "rollout/raw_reward"),
    (Metric::LOSS, "train/pg_loss"),
    (Metric::CLIP, "train/pg_clipfrac"),
    (Metric::KL_OLD, "train/ppo_kl"),
    (Metric::KL_REFERENCE, "train/kl_loss"),
    (Metric::ENTROPY, "train/entropy_loss"),
    (Metric::MISMATCH, "train/train_rollout_logprob_abs_diff"),
    (Metric::GRADIENT, "train/grad_norm"),
    (Metric::LEARNING_RATE, "train/lr-pg_0"),
    (Metric::RESPONSE_TOKENS, "rollout/wo_obs_response_length"),
    (Metric::RESPONSE_ALL_TOKENS, "rollout/response_len/mean"),
    (Metric::TRUNCATED, "rollout/truncated_ratio"),
    (Metric::TURNS, "multi_turn_metric/round_number_mean"),
    (Metric::VAL_EM, "eval/all"),
    (Metric::VAL_EM_OF, "eval/*"),
];

const PRIME_RL: Names = &[
    (Metric::REWARD, "reward/all/mean"),
    (Metric::REWARD_STD, "reward/all/std"),
    (Metric::ENTROPY, "entropy/all/mean"),
    (Metric::RESPONSE_ALL_TOKENS, "seq_len/all/mean"),
    (Metric::TRUNCATED, "is_truncated/all/mean"),
    (Metric::TURNS, "num_turns/all/mean"),
    (Metric::VAL_EM, "eval/all/avg@1"),
    (Metric::VAL_EM_OF, "eval/*/avg@1"),
];

const SKYRL: Names = &[
    (Metric::REWARD, "reward/avg_raw_reward"),
    (Metric::REWARD_PART, "environment/*"),
    (Metric::LOSS, "policy/policy_loss"),
    (Metric::CLIP, "policy/loss_metrics/clip_ratio"),
    (Metric::KL_REFERENCE, "policy/policy_kl"),
    (Metric::ENTROPY, "policy/policy_entropy"),
    (
        Metric::MISMATCH,
        "policy/rollout_train_logprobs_abs_diff_mean",
    ),
    (Metric::GRADIENT, "policy/grad_norm"),
    (Metric::LEARNING_RATE, "policy/policy_lr"),
    (Metric::RESPONSE_TOKENS, "generate/avg_num_tokens"),
    (Metric::VAL_EM, "eval/all/avg_score"),
    (Metric::VAL_EM_OF, "eval/*/avg_score"),
];

const TORCHTITAN: Names = &[
    (Metric::REWARD, "rollout_reward/_mean"),
    (Metric::REWARD_STD, "rollout_reward/_std"),
    (Metric::REWARD_PART, "rollout_reward/component/*/mean"),
    (
        Metric::NO_VARIANCE,
        "rollout_reward/group_zero_std_frac/mean",
    ),
    (Metric::LOSS, "loss/mean"),
    (Metric::CLIP, "loss/ratio_clipped_frac"),
    (Metric::ENTROPY, "trainer/entropy/mean"),
    (Metric::MISMATCH, "bit_wise/logprob_diff/mean"),
    (Metric::GRADIENT, "trainer/grad_norm/mean"),
    (Metric::LEARNING_RATE, "trainer/lr"),
    (Metric::RESPONSE_TOKENS, "rollout/response_length/mean"),
    (Metric::TRUNCATED, "rollout/truncation_rate/mean"),
    (Metric::TURNS, "rollout/num_turns/mean"),
    (Metric::VAL_REWARD, "validation_reward/_mean"),
];

/// The name of a canonical metric in another system; the canonical name where that system has none.
///
/// Only names of the same quantity are renamed: slime's count of groups without variance and prime-rl's KL between sampler
/// and trainer are other numbers, so the metrics that resemble them keep their canonical names.
pub(super) fn rename(preset: Aliases, name: &str) -> Cow<'_, str> {
    preset
        .names()
        .iter()
        .find_map(|(canonical, alias)| Some(alias.replace('*', Metric::part(canonical, name)?)))
        .map_or(Cow::Borrowed(name), Cow::Owned)
}

impl Aliases {
    fn names(self) -> Names {
        match self {
            Self::Canonical => &[],
            Self::SearchR1 => SEARCH_R1,
            Self::Verl => VERL,
            Self::Trl => TRL,
            Self::Slime => SLIME,
            Self::PrimeRl => PRIME_RL,
            Self::SkyRl => SKYRL,
            Self::Torchtitan => TORCHTITAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forage_contracts::STEP_METRICS;

    use super::*;

    const ALL: [Aliases; 8] = [
        Aliases::Canonical,
        Aliases::SearchR1,
        Aliases::Verl,
        Aliases::Trl,
        Aliases::Slime,
        Aliases::PrimeRl,
        Aliases::SkyRl,
        Aliases::Torchtitan,
    ];

    #[test]
    fn each_preset_renames_by_its_own_column() {
        let names = |name| ALL.map(|preset| rename(preset, name).into_owned());
        assert_eq!(
            names("policy/entropy"),
            [
                "policy/entropy",
                "actor/entropy_loss",
                "actor/entropy",
                "entropy",
                "train/entropy_loss",
                "entropy/all/mean",
                "policy/policy_entropy",
                "trainer/entropy/mean"
            ]
        );
        assert_eq!(
            rename(Aliases::Trl, "reward/component/em"),
            "rewards/em/mean"
        );
        assert_eq!(
            names("val/em"),
            [
                "val/em",
                "val/test_score/all",
                "val-core/all/acc/mean@1",
                "val/em",
                "eval/all",
                "eval/all/avg@1",
                "eval/all/avg_score",
                "val/em"
            ]
        );
        assert_eq!(
            [Aliases::Trl, Aliases::Torchtitan].map(|preset| rename(preset, "val/reward")),
            ["eval_reward", "validation_reward/_mean"]
        );
        assert_eq!(rename(Aliases::Verl, "val/nq/em"), "val-core/nq/acc/mean@1");
        assert_eq!(rename(Aliases::Trl, "val/nq/em"), "val/nq/em");
        assert_eq!(
            rename(Aliases::Slime, "group/zero_std_frac"),
            "group/zero_std_frac"
        );
        assert_eq!(rename(Aliases::Verl, "time/update_s"), "time/update_s");
        // TRL's loss has the penalty in it, verl's policy loss has not.
        assert_eq!(
            ["policy/loss", "policy/loss_with_penalties"].map(|name| rename(Aliases::Trl, name)),
            ["policy/loss", "loss"]
        );
        assert_eq!(rename(Aliases::Verl, "policy/loss"), "actor/pg_loss");
    }

    /// The names on the left are those of the table, whose every metric a run is seen to emit.
    #[test]
    fn presets_rename_metrics_of_the_table_alone() {
        for (canonical, _) in ALL.iter().flat_map(|preset| preset.names()) {
            assert!(
                STEP_METRICS.iter().any(|metric| metric.name == *canonical),
                "{canonical}"
            );
        }
    }

    /// Two metrics under one name would be drawn as one zigzag line.
    #[test]
    fn no_preset_gives_two_metrics_one_name() {
        let canonical: BTreeSet<&str> = ALL
            .iter()
            .flat_map(|preset| preset.names())
            .map(|(canonical, _)| *canonical)
            .collect();
        for preset in ALL {
            let names: Vec<String> = canonical
                .iter()
                .map(|name| rename(preset, &name.replace('*', "x")).into_owned())
                .collect();
            let distinct: BTreeSet<&String> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{preset:?}: {names:?}");
        }
    }

    #[test]
    fn presets_are_named_in_configs_as_their_systems() {
        let names = ALL.map(|preset| serde_json::to_value(preset).unwrap());
        let written = [
            "canonical",
            "search_r1",
            "verl",
            "trl",
            "slime",
            "prime_rl",
            "skyrl",
            "torchtitan",
        ];
        assert_eq!(names.map(|name| name.as_str().unwrap().to_owned()), written);
    }
}
