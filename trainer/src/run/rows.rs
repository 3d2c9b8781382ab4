//! What a step's metrics row says.

use forage_env::environment::TurnKind;
use forage_env::episode::{Ending, Episode};
use forage_env::tokens::Provenance;

use crate::learner::UpdateStats;
use crate::metrics::Row;

/// Rewards, lengths and conduct of a step's episodes; those that a fault of ours ended are counted alone.
/// `version`: optimizer steps that the weights about to learn have done.
pub(super) fn describe_episodes(row: &mut Row, episodes: &[Episode], version: u64) {
    let scored: Vec<&Episode> = episodes.iter().filter(|episode| !episode.ending.is_infra()).collect();
    let mean = |value: &dyn Fn(&Episode) -> f64| {
        scored.iter().map(|episode| value(episode)).sum::<f64>() / scored.len().max(1) as f64
    };
    let reward = |episode: &Episode| f64::from(episode.reward().unwrap_or(0.0));
    let average = mean(&reward);
    row.set("reward/mean", average);
    row.set("reward/std", mean(&|episode| (reward(episode) - average).powi(2)).sqrt());
    row.set("reward/zero_frac", mean(&|episode| f64::from(u8::from(reward(episode) == 0.0))));
    let names = scored.first().and_then(|episode| episode.score.as_ref()).map(|score| score.parts.keys());
    for name in names.into_iter().flatten() {
        let part = |episode: &Episode| episode.score.as_ref().and_then(|score| score.parts.get(name)).copied();
        row.set(&format!("reward/component/{name}"), mean(&|episode| f64::from(part(episode).unwrap_or(0.0))));
    }
    row.set("response/tokens_mean", mean(&|episode| episode.tokens.count(Provenance::Policy) as f64));
    let response = |episode: &Episode| episode.tokens.len() - episode.tokens.count(Provenance::Prompt);
    row.set("response/tokens_with_observations_mean", mean(&|episode| response(episode) as f64));
    let truncated = |episode: &Episode| matches!(episode.ending, Ending::Truncated { .. });
    row.set("response/truncated_frac", mean(&|episode| f64::from(u8::from(truncated(episode)))));
    row.set("turns/mean", mean(&|episode| episode.turns.len() as f64));
    row.set("search/calls_mean", mean(&|episode| episode.searches() as f64));
    let turns: Vec<_> = scored.iter().flat_map(|episode| &episode.turns).collect();
    let valid = turns.iter().filter(|turn| !matches!(turn.kind, TurnKind::Invalid { .. })).count();
    row.set("action/valid_frac", valid as f64 / turns.len().max(1) as f64);
    row.set("mismatch/policy_age_mean", mean(&|episode| policy_age(episode, version)));
    let paid = |episode: &Episode| episode.turns.iter().map(|turn| f64::from(turn.reward)).sum::<f64>();
    if scored.iter().any(|episode| paid(episode).abs() > 0.0) {
        row.set("reward/turns", mean(&paid));
    }
    row.set("episode/finished_frac", mean(&|episode| f64::from(u8::from(episode.ending == Ending::Answered))));
    row.set("episode/infra_frac", (episodes.len() - scored.len()) as f64 / episodes.len().max(1) as f64);
}

/// How many groups of earlier steps are learned from again, and how old their episodes are.
pub(super) fn describe_replay(row: &mut Row, groups: &[&[Episode]], version: u64) {
    row.set("replay/groups", groups.len() as f64);
    let ages: Vec<f64> = groups.iter().copied().flatten().map(|episode| policy_age(episode, version)).collect();
    if !ages.is_empty() {
        row.set("replay/policy_age_mean", ages.iter().sum::<f64>() / ages.len() as f64);
        row.set("replay/policy_age_max", ages.iter().copied().fold(0.0, f64::max));
    }
}

/// Updates between the oldest weights that wrote in an episode and the weights of `version`.
fn policy_age(episode: &Episode, version: u64) -> f64 {
    let oldest = episode.tokens.spans().iter().filter_map(|span| span.version).min();
    oldest.map_or(0, |oldest| version.saturating_sub(oldest)) as f64
}

/// What the update did.
pub(super) fn describe_update(row: &mut Row, stats: &UpdateStats) {
    let groups = stats.groups.groups.max(1) as f64;
    row.set("group/zero_std_frac", stats.groups.zero_variance as f64 / groups);
    row.set("group/filtered_frac", stats.groups.filtered as f64 / groups);
    row.set("policy/updates", stats.updates as f64);
    if stats.updates == 0 {
        return;
    }
    row.set("policy/loss", stats.policy_loss);
    row.set("policy/loss_with_penalties", stats.loss);
    row.set("policy/clip_frac", stats.clip_frac);
    row.set("policy/approx_kl_old", stats.approx_kl_old);
    row.set("policy/kl_ref", stats.kl_reference);
    row.set("policy/entropy", stats.entropy);
    row.set("mismatch/logprob_abs_diff", stats.mismatch);
    row.set("mismatch/ratio_deviation_max", stats.ratio_deviation_max);
    row.set("mismatch/truncated_frac", stats.correction_truncated_frac);
    row.set("mismatch/masked_frac", stats.correction_masked_frac);
    row.set("optim/grad_norm", stats.grad_norm);
    row.set("optim/lr", stats.learning_rate);
    row.set("optim/tokens", stats.tokens as f64);
}
