//! The table of metrics.

use std::fmt::{self, Display, Formatter};

/// The direction in which a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// More is better, as with rewards.
    Higher,
    /// Less is better, as with faults.
    Lower,
    /// Neither by itself.
    Neither,
}

impl Display for Direction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Neither => "neither",
        })
    }
}

/// A number with a name. The associated constants are the names that a row of `metrics.jsonl` may have, whatever the
/// environment; [`STEP_METRICS`] says what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name; `*` stands for a part that the run names itself.
    pub name: &'static str,
    /// The unit: `share` of a whole between 0 and 1, or the things that are counted.
    pub unit: &'static str,
    /// The denominator: what the mean, the share or the extreme is taken over.
    pub over: &'static str,
    /// The direction in which it is better.
    pub better: Direction,
    /// A line that describes it, fit for the title of a plot.
    pub about: &'static str,
}

impl Metric {
    /// A row of a table of metrics.
    pub const fn new(
        name: &'static str,
        [unit, over]: [&'static str; 2],
        better: Direction,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            unit,
            over,
            better,
            about,
        }
    }

    /// The part of `name` that the `*` of `pattern` matches: empty if `pattern` has no `*` and equals `name`, `None` if they do
    /// not match.
    pub fn part<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
        match pattern.split_once('*') {
            None => (pattern == name).then_some(""),
            Some((before, after)) => name
                .strip_prefix(before)?
                .strip_suffix(after)
                .filter(|part| !part.is_empty()),
        }
    }
}

macro_rules! step_metrics {
    ($($constant:ident = $name:literal [$($of:literal)*] $better:ident $about:literal;)*) => {
        impl Metric {
            $(#[doc = $about] pub const $constant: &'static str = $name;)*
        }

        /// The metrics of an optimizer step, those of single environments aside.
        pub const STEP_METRICS: &[Metric] = &[
            $(Metric::new($name, [$($of),*], Direction::$better, $about)),*
        ];
    };
}

// name = key [unit, denominator] direction, description
step_metrics! {
    REWARD = "reward/mean" ["reward" "episodes"] Higher "Training reward";
    REWARD_STD = "reward/std" ["reward" "episodes"] Neither "Standard deviation of the training reward";
    REWARD_ZERO = "reward/zero_frac" ["share" "episodes"] Lower "Episodes with a reward of 0";
    REWARD_PART = "reward/component/*" ["reward" "episodes"] Neither "A part of the reward before its weight";
    REWARD_TURNS = "reward/turns" ["reward" "episodes"] Higher "Rewards of an episode's turns together";
    PUBLISHED_DIFFERS = "reward/published/differs_frac" ["share" "episodes"] Lower
        "Episodes that a published grader pays otherwise than the correct one";
    PUBLISHED_EXCESS = "reward/published/excess_mean" ["reward" "episodes"] Lower
        "Reward of a published grader above that of the correct one";
    VAL_EM = "val/em" ["share" "validation questions"] Higher "Validation exact match";
    VAL_NDCG = "val/ndcg" ["score" "validation questions"] Higher "Validation NDCG@10";
    VAL_EM_OF = "val/*/em" ["share" "validation questions of a data set"] Higher
        "Validation exact match of a data set";
    VAL_NDCG_OF = "val/*/ndcg" ["score" "validation questions of a data set"] Higher
        "Validation NDCG@10 of a data set";
    VAL_EM_MACRO = "val/em_macro" ["share" "data sets"] Higher
        "Validation exact match, each data set counted once";
    VAL_NDCG_MACRO = "val/ndcg_macro" ["score" "data sets"] Higher
        "Validation NDCG@10, each data set counted once";
    VAL_REWARD = "val/reward" ["reward" "validation questions"] Higher "Validation reward";
    VAL_REWARD_OF = "val/*/reward" ["reward" "validation questions of a data set"] Higher
        "Validation reward of a data set";
    VAL_REWARD_MACRO = "val/reward_macro" ["reward" "data sets"] Higher
        "Validation reward, each data set counted once";
    VAL_QUESTIONS = "val/questions" ["questions" "validation"] Neither "Validation questions with a score";
    VAL = "val/*" ["score" "validation questions"] Higher "Another measure of the validation questions";
    RESPONSE_TOKENS = "response/tokens_mean" ["tokens" "episodes"] Neither "Tokens that the policy wrote";
    RESPONSE_ALL_TOKENS = "response/tokens_with_observations_mean" ["tokens" "episodes"] Neither
        "Tokens after the prompt, observations included";
    TRUNCATED = "response/truncated_frac" ["share" "episodes"] Lower "Episodes cut by a limit";
    REPEATED = "response/repeated_frac" ["share" "4-grams of an episode"] Lower
        "Repeated 4-grams of tokens that the policy wrote";
    TURNS = "turns/mean" ["turns" "episodes"] Neither "Turns per episode";
    SEARCHES = "search/calls_mean" ["searches" "episodes"] Neither "Searches per episode";
    SEARCH_EMPTY = "search/empty_frac" ["share" "searches that may show documents"] Lower
        "Searches that showed no document";
    VALID = "action/valid_frac" ["share" "turns"] Higher "Valid actions";
    FINISHED = "episode/finished_frac" ["share" "episodes"] Higher "Episodes that ended by themselves";
    INFRA = "episode/infra_frac" ["share" "episodes, lost ones too"] Lower
        "Episodes lost to infrastructure faults";
    ENDING = "ending/kind/*" ["share" "episodes"] Neither "Episodes that ended in this way, where endings have rules";
    ENDING_MASKED = "ending/masked_frac" ["share" "episodes"] Lower "Episodes without loss because of how they ended";
    ENDING_CHANGE = "ending/reward_change_mean" ["reward" "episodes"] Neither
        "Change of the training reward by the rules for endings";
    POLICY_AGE = "mismatch/policy_age_mean" ["updates" "episodes"] Lower
        "Age of the oldest weights that sampled an episode";
    REPLAY_GROUPS = "replay/groups" ["groups" "step"] Neither "Groups replayed from earlier steps";
    REPLAY_AGE = "replay/policy_age_mean" ["updates" "replayed episodes"] Lower "Age of replayed episodes";
    REPLAY_AGE_MAX = "replay/policy_age_max" ["updates" "replayed episodes"] Lower
        "Age of the oldest replayed episode";
    PRIORITY = "recomposition/priority_frac" ["share" "episodes"] Neither
        "Episodes learned from at once, where batches are put together anew";
    REPLAY_SOLUTIONS = "replay/solutions" ["groups" "step"] Neither
        "Groups that a right episode of an earlier step joined";
    DIFFICULTY = "curriculum/difficulty_mean" ["share" "questions of the step, those of refills aside"] Neither
        "Predicted difficulty of the questions asked";
    QUESTIONS_LEFT = "curriculum/questions_left" ["questions" "step"] Neither "Questions that the curriculum still asks";
    LARGEST_SHARE = "curriculum/largest_share" ["share" "data sets"] Neither
        "Weight of the data set that the curriculum asks most";
    HINTED = "curriculum/hinted_turns_mean" ["turns" "episodes"] Neither "Turns that episodes were given as a hint";
    REFILLED = "curriculum/refilled_groups" ["groups" "step"] Lower "Groups played in place of dropped ones";
    NO_VARIANCE = "group/zero_std_frac" ["share" "groups"] Lower "Groups without spread";
    FILTERED = "group/filtered_frac" ["share" "groups"] Neither "Groups that the filter left out";
    UPDATES = "policy/updates" ["updates" "step"] Neither "Optimizer steps on the batch";
    LOSS = "policy/loss" ["advantage" "updates"] Neither "Policy loss";
    LOSS_WITH_PENALTIES = "policy/loss_with_penalties" ["advantage" "updates"] Neither
        "Policy loss with penalty and entropy bonus";
    CLIP = "policy/clip_frac" ["share" "response tokens"] Neither "Clipped tokens";
    KL_OLD = "policy/approx_kl_old" ["nats" "response tokens"] Neither "KL to the policy at the batch's start";
    KL_REFERENCE = "policy/kl_ref" ["nats" "response tokens"] Neither "KL to the reference";
    ENTROPY = "policy/entropy" ["nats" "response tokens"] Neither "Policy entropy";
    HIDDEN_RANK = "policy/effective_rank" ["directions" "episodes"] Neither
        "Effective rank of a response's hidden states";
    HIDDEN_VELOCITY = "policy/effective_rank_velocity" ["directions" "episodes"] Neither
        "Growth of the effective rank over a response";
    HIDDEN_ACCELERATION = "policy/effective_rank_acceleration" ["directions" "episodes"] Neither
        "Change of the growth of the effective rank over a response";
    MISMATCH = "mismatch/logprob_abs_diff" ["nats" "response tokens"] Lower
        "Sampler-trainer log-probability gap";
    RATIO_DEVIATION = "mismatch/ratio_deviation_max" ["ratio" "response tokens"] Lower
        "Largest distance of the sampler-trainer ratio from 1";
    CORRECTION_CUT = "mismatch/truncated_frac" ["share" "response tokens"] Lower
        "Tokens whose weight the correction cut";
    CORRECTION_MASKED = "mismatch/masked_frac" ["share" "response tokens"] Lower
        "Tokens that the correction dropped";
    PUSH_VERIFIED = "push/verified" ["servers" "push"] Higher "Servers seen to have the pushed weights";
    PUSH_GAP = "push/logprob_abs_diff" ["nats" "tokens of the texts asked about"] Lower
        "Server-trainer log-probability gap after a push";
    GRADIENT = "optim/grad_norm" ["norm" "updates"] Neither "Gradient norm";
    GRADIENT_NUCLEAR = "optim/gradient/*/nuclear_norm" ["norm" "singular values"] Neither
        "Nuclear norm of the gradient of a projection";
    GRADIENT_RANK = "optim/gradient/*/effective_rank" ["directions" "singular values"] Neither
        "Effective rank of the gradient of a projection";
    LEARNING_RATE = "optim/lr" ["rate" "step"] Neither "Learning rate";
    OPTIM_TOKENS = "optim/tokens" ["tokens" "step"] Neither "Tokens learned from";
    VALUE_LOSS = "critic/loss" ["reward squared" "updates of the critic"] Neither "Loss of the critic's values";
    VALUE_EXPLAINED = "critic/explained_variance" ["share" "response tokens"] Higher
        "Variance of the returns that the critic explained before it learned from them";
    VALUE_CLIP = "critic/clip_frac" ["share" "response tokens"] Neither "Tokens whose value was not moved on";
    VALUE_GRADIENT = "critic/grad_norm" ["norm" "updates of the critic"] Neither "Gradient norm of the critic";
    SFT_LOSS = "sft/loss" ["nats" "learned tokens"] Lower "Loss of demonstrations";
    SFT_VAL_LOSS = "sft/val_loss" ["nats" "held-out tokens"] Lower "Loss of held-out demonstrations";
    TIME_ROLLOUT = "time/rollout_s" ["seconds" "step"] Lower "Time of the rollouts";
    TIME_UPDATE = "time/update_s" ["seconds" "step"] Lower "Time of the update";
    TIME_WAIT = "time/wait_s" ["seconds" "step"] Lower "Time spent waiting for episodes played ahead";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_gives_the_part_that_the_run_named() {
        let part = |name| Metric::part(Metric::REWARD_PART, name);
        assert_eq!(part("reward/component/em"), Some("em"));
        assert_eq!(
            (part("reward/component/"), part("reward/mean")),
            (None, None)
        );
        assert_eq!(Metric::part("val/*/em", "val/nq/em"), Some("nq"));
        assert_eq!(Metric::part(Metric::REWARD, "reward/mean"), Some(""));
        assert_eq!(Metric::part(Metric::REWARD, "reward/std"), None);
    }
}
