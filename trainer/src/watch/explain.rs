//! The words of alarms: what happened, the numbers, the probable cause, the fix.

use super::rules::Fall;
use super::sentinel::Severity;
use super::trace::Span;

/// Three digits that matter.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

pub(super) fn non_finite(names: &[&str]) -> String {
    format!(
        "Not finite: {}. Usually the learning rate is too high or a reward divides by zero. Resume from the last checkpoint \
         with a lower learning rate; if it comes back at the same step, look at that step's rewards.",
        names.join(", ")
    )
}

pub(super) fn divergence(norm: Option<f64>, rate: Option<f64>, fall: &Fall) -> String {
    let gradients = norm.map_or("the update is not finite".to_owned(), |norm| {
        format!("the gradient norm is {}, over 100 times that of the first steps", number(norm))
    });
    let rate = rate.map_or(String::new(), |rate| format!(" ({})", number(rate)));
    format!(
        "The run diverges: {gradients}, while the reward fell from {} to {}. The learning rate{rate} is too high. Resume from \
         the last checkpoint before the fall with a third of it, and a longer warm-up.",
        number(fall.best),
        number(fall.level)
    )
}

pub(super) fn gradient(start: f64, level: f64) -> String {
    format!(
        "The gradient norm grew from {} to {} and stays there. The clip hides it from the weights but not from the direction: \
         the learning rate is too high, or a few tokens have become very unlikely. Lower the learning rate, or tighten the \
         ratio clip.",
        number(start),
        number(level)
    )
}

pub(super) fn kl_old(level: f64) -> String {
    format!(
        "The policy that samples and the policy that learns are {} nats per token apart. Either updates are too large for one \
         batch, or the sampler computes other probabilities than the trainer. Lower the learning rate or the updates per \
         batch; with an outside engine, check its weights and its log-probabilities.",
        number(level)
    )
}

pub(super) fn kl_reference(level: f64) -> String {
    format!(
        "The policy is {} nats per token away from its reference and what it learned before is being overwritten. The penalty \
         is too weak or the learning rate too high. Resume from an earlier checkpoint with a larger penalty or a lower \
         learning rate.",
        number(level)
    )
}

pub(super) fn entropy(start: f64, level: f64) -> String {
    format!(
        "Entropy fell from {} to {} nats per token: the policy gives almost the same episode each time, so groups hold nothing \
         to compare. If the reward still satisfies you the run is done; otherwise resume from an earlier checkpoint with \
         clip-higher, an entropy bonus or a lower learning rate.",
        number(start),
        number(level)
    )
}

pub(super) fn reward(fall: &Fall) -> String {
    format!(
        "The reward fell from its best, {}, to {}: {} of it is lost. After a long rise this is most often a too large update or \
         a policy that left the protocol. Read some episodes of the last steps, go back to the checkpoint before the fall and \
         lower the learning rate.",
        number(fall.best),
        number(fall.level),
        percent(fall.share.min(1.0))
    )
}

pub(super) fn repetition(start: Option<f64>, level: f64) -> String {
    let before = start.map_or(String::new(), |start| format!(", {} at the start", percent(start)));
    format!(
        "{} of what the policy writes repeats itself within the episode{before}. It is in a loop, mostly because long texts \
         cost nothing or the entropy has collapsed. Go back to an earlier checkpoint; make truncated episodes earn nothing and \
         lower the learning rate.",
        percent(level)
    )
}

pub(super) fn invalid_fell(start: f64, level: f64) -> String {
    format!(
        "Only {} of the turns follow the protocol, {} at the start. The policy unlearns the format, because the reward does \
         not depend on it or updates are too large. Give the format a small reward, or go back and lower the learning rate.",
        percent(level),
        percent(start)
    )
}

pub(super) fn invalid_low(level: f64) -> String {
    format!(
        "Only {} of the turns follow the protocol and the share does not rise. The policy does not know the format, so most \
         rewards are chance. Warm it up on demonstrations first, or show an example in the prompt.",
        percent(level)
    )
}

pub(super) fn no_variance(severity: Severity, span: Span, reward: Option<f64>) -> String {
    let earned = reward.map_or(String::new(), |reward| format!(" (mean reward {})", number(reward)));
    let what = match severity {
        Severity::Note => format!("Over {} steps nine groups in ten", span.window),
        Severity::Warn => format!("For {} steps every group", span.short),
        Severity::Stop => format!("For {} steps every group", span.window),
    };
    format!(
        "{what} had members that all earned the same{earned}: such groups teach nothing. If all earn much, the questions are \
         too easy; if nothing, too hard or the reward is broken. Choose questions of another difficulty, larger groups or a \
         finer reward."
    )
}

pub(super) fn truncation(level: f64, length: Option<f64>) -> String {
    let length = length.map_or(String::new(), |length| format!(" at {} policy tokens", number(length)));
    format!(
        "{} of the episodes run into a limit{length} before they answer. Either the limits are too small for the task or the \
         policy rambles. Read some episodes: raise the limits of turns and tokens, or go back to a checkpoint before the \
         lengths grew.",
        percent(level)
    )
}

pub(super) fn search_ceased(best: f64, fall: Option<&Fall>) -> String {
    let reward = fall
        .map_or(String::new(), |fall| format!(" Its reward is {}, at best {}.", number(fall.level), number(fall.best)));
    format!(
        "The policy has stopped searching; it made {} searches per episode before.{reward} Answering at once has become the \
         surer way to what the reward pays, or the format is lost. Check that answers without evidence cannot earn as much, and \
         go back to a checkpoint that searched.",
        number(best)
    )
}

pub(super) fn never_searched(span: Span) -> String {
    format!(
        "In {} steps the policy made no search. It does not know how, or the protocol does not read its queries. Read some \
         episodes; warm it up on demonstrations that search, or show an example in the prompt.",
        span.window
    )
}

pub(super) fn length_collapse(start: f64, level: f64) -> String {
    format!(
        "Responses shrank from {} to {} policy tokens. The policy found a short text that the reward pays as well, or that a \
         length penalty pays better. Read some episodes; require what was dropped in the reward, or remove the penalty.",
        number(start),
        number(level)
    )
}

pub(super) fn length_explosion(before: f64, level: f64, truncated: Option<f64>) -> String {
    let cut = truncated.map_or(String::new(), |share| format!("; {} are truncated", percent(share)));
    format!(
        "Responses grew from {} to {} policy tokens within a window{cut}. So fast a growth is rambling rather than thought: \
         averaging the loss over sequences favours long wrong texts. Average over tokens, make truncated episodes earn nothing, \
         or go back.",
        number(before),
        number(level)
    )
}

pub(super) fn keyword_bag(growth: f64, words: Option<f64>, [alike, bare, operators, thin]: [bool; 4]) -> String {
    let signs: Vec<&str> = [
        (alike, "queries repeat each other"),
        (bare, "function words vanish"),
        (operators, "operators are no longer used"),
        (thin, "few operators are left among many words"),
    ]
    .into_iter()
    .filter_map(|(holds, sign)| holds.then_some(sign))
    .collect();
    let words = words.map_or(String::new(), |words| format!(", {} words each", number(words)));
    format!(
        "Queries are {} times as long as at the start{words}, and {}: the policy writes bags of keywords. The ranking reward \
         pays overlap with the passages. Subtract what the plain question's keywords would find, or cap the length.",
        number(growth),
        signs.join(", ")
    )
}
