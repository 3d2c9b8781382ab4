//! The names other trainers give to the same metrics, so that their dashboards and plots show a run of this one.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Whose names are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

const SPLIT: char = '*';

/// Canonical names with their names elsewhere. `*` stands for what the run named itself; systems that name a validation set in
/// the metric get `all`. Search-R1, verl, slime and prime-rl
/// count observations into a response; the others do not.
type Names = &'static [(&'static str, &'static str)];

const SEARCH_R1: Names = &[
    ("reward/mean", "critic/score/mean"),
    ("policy/loss", "actor/pg_loss"),
    ("policy/clip_frac", "actor/pg_clipfrac"),
    ("policy/approx_kl_old", "actor/ppo_kl"),
    ("policy/kl_ref", "actor/kl_loss"),
    ("policy/entropy", "actor/entropy_loss"),
    ("optim/grad_norm", "actor/grad_norm"),
    ("optim/lr", "actor/lr"),
    ("response/tokens_with_observations_mean", "response_length/mean"),
    ("response/truncated_frac", "response_length/clip_ratio"),
    ("turns/mean", "env/number_of_actions/mean"),
    ("search/calls_mean", "env/number_of_valid_search"),
    ("action/valid_frac", "env/ratio_of_valid_action"),
    ("episode/finished_frac", "env/finish_ratio"),
    ("val/em", "val/test_score/all"),
];

const VERL: Names = &[
    ("reward/mean", "critic/score/mean"),
    ("policy/loss", "actor/pg_loss"),
    ("policy/clip_frac", "actor/pg_clipfrac"),
    ("policy/approx_kl_old", "actor/ppo_kl"),
    ("policy/kl_ref", "actor/kl_loss"),
    ("policy/entropy", "actor/entropy"),
    ("optim/grad_norm", "actor/grad_norm"),
    ("optim/lr", "actor/lr"),
    ("response/tokens_with_observations_mean", "response_length/mean"),
    ("response/truncated_frac", "response_length/clip_ratio"),
    ("turns/mean", "num_turns/mean"),
    ("val/em", "val-core/all/acc/mean@1"),
];

const TRL: Names = &[
    ("reward/mean", "reward"),
    ("reward/std", "reward_std"),
    ("reward/component/*", "rewards/*/mean"),
    ("group/zero_std_frac", "frac_reward_zero_std"),
    ("policy/loss", "loss"),
    ("policy/clip_frac", "clip_ratio/region_mean"),
    ("policy/kl_ref", "kl"),
    ("policy/entropy", "entropy"),
    ("mismatch/logprob_abs_diff", "sampling/sampling_logp_difference/mean"),
    ("optim/grad_norm", "grad_norm"),
    ("optim/lr", "learning_rate"),
    ("response/tokens_mean", "completions/mean_length"),
    ("response/truncated_frac", "completions/clipped_ratio"),
    ("search/calls_mean", "tools/call_frequency"),
    ("val/em", "eval_reward"),
];

const SLIME: Names = &[
    ("reward/mean", "rollout/raw_reward"),
    ("policy/loss", "train/pg_loss"),
    ("policy/clip_frac", "train/pg_clipfrac"),
    ("policy/approx_kl_old", "train/ppo_kl"),
    ("policy/kl_ref", "train/kl_loss"),
    ("policy/entropy", "train/entropy_loss"),
    ("mismatch/logprob_abs_diff", "train/train_rollout_logprob_abs_diff"),
    ("optim/grad_norm", "train/grad_norm"),
    ("optim/lr", "train/lr-pg_0"),
    ("response/tokens_mean", "rollout/wo_obs_response_length"),
    ("response/tokens_with_observations_mean", "rollout/response_len/mean"),
    ("response/truncated_frac", "rollout/truncated_ratio"),
    ("turns/mean", "multi_turn_metric/round_number_mean"),
    ("val/em", "eval/all"),
];

const PRIME_RL: Names = &[
    ("reward/mean", "reward/all/mean"),
    ("reward/std", "reward/all/std"),
    ("policy/entropy", "entropy/all/mean"),
    ("response/tokens_with_observations_mean", "seq_len/all/mean"),
    ("response/truncated_frac", "is_truncated/all/mean"),
    ("turns/mean", "num_turns/all/mean"),
    ("val/em", "eval/all/avg@1"),
];

const SKYRL: Names = &[
    ("reward/mean", "reward/avg_raw_reward"),
    ("reward/component/*", "environment/*"),
    ("policy/loss", "policy/policy_loss"),
    ("policy/clip_frac", "policy/loss_metrics/clip_ratio"),
    ("policy/kl_ref", "policy/policy_kl"),
    ("policy/entropy", "policy/policy_entropy"),
    ("mismatch/logprob_abs_diff", "policy/rollout_train_logprobs_abs_diff_mean"),
    ("optim/grad_norm", "policy/grad_norm"),
    ("optim/lr", "policy/policy_lr"),
    ("response/tokens_mean", "generate/avg_num_tokens"),
    ("val/em", "eval/all/avg_score"),
];

const TORCHTITAN: Names = &[
    ("reward/mean", "rollout_reward/_mean"),
    ("reward/std", "rollout_reward/_std"),
    ("reward/component/*", "rollout_reward/component/*/mean"),
    ("group/zero_std_frac", "rollout_reward/group_zero_std_frac/mean"),
    ("policy/loss", "loss/mean"),
    ("policy/clip_frac", "loss/ratio_clipped_frac"),
    ("policy/entropy", "trainer/entropy/mean"),
    ("mismatch/logprob_abs_diff", "bit_wise/logprob_diff/mean"),
    ("optim/grad_norm", "trainer/grad_norm/mean"),
    ("optim/lr", "trainer/lr"),
    ("response/tokens_mean", "rollout/response_length/mean"),
    ("response/truncated_frac", "rollout/truncation_rate/mean"),
    ("turns/mean", "rollout/num_turns/mean"),
    ("val/em", "validation_reward/_mean"),
];

/// The name of a canonical metric in another system; the canonical name where that system has none.
///
/// Only names of the same quantity are renamed: slime's count of groups without variance or prime-rl's KL between sampler
/// and trainer are other numbers than ours, and keep our names.
pub fn rename(preset: Aliases, name: &str) -> Cow<'_, str> {
    preset
        .names()
        .iter()
        .find_map(|(canonical, alias)| Some(alias.replace(SPLIT, placeholder(canonical, name)?)))
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

/// What stands at the placeholder of `pattern` in `name`; empty for a pattern without one.
fn placeholder<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    match pattern.split_once(SPLIT) {
        None => (pattern == name).then_some(""),
        Some((before, after)) => name.strip_prefix(before)?.strip_suffix(after).filter(|found| !found.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        assert_eq!(rename(Aliases::Trl, "reward/component/em"), "rewards/em/mean");
        assert_eq!(
            names("val/em"),
            [
                "val/em",
                "val/test_score/all",
                "val-core/all/acc/mean@1",
                "eval_reward",
                "eval/all",
                "eval/all/avg@1",
                "eval/all/avg_score",
                "validation_reward/_mean"
            ]
        );
        assert_eq!(rename(Aliases::Slime, "group/zero_std_frac"), "group/zero_std_frac");
        assert_eq!(rename(Aliases::Verl, "time/update_s"), "time/update_s");
    }

    /// Two metrics under one name would be drawn as one zigzag line.
    #[test]
    fn no_preset_gives_two_metrics_one_name() {
        let canonical: BTreeSet<&str> =
            ALL.iter().flat_map(|preset| preset.names()).map(|(canonical, _)| *canonical).collect();
        for preset in ALL {
            let names: Vec<String> =
                canonical.iter().map(|name| rename(preset, &name.replace(SPLIT, "x")).into_owned()).collect();
            let distinct: BTreeSet<&String> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{preset:?}: {names:?}");
        }
    }

    #[test]
    fn presets_are_named_in_configs_as_their_systems() {
        let names = ALL.map(|preset| serde_json::to_value(preset).unwrap());
        let written = ["canonical", "search_r1", "verl", "trl", "slime", "prime_rl", "skyrl", "torchtitan"];
        assert_eq!(names.map(|name| name.as_str().unwrap().to_owned()), written);
    }
}
