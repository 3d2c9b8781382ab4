//! The rules of the sentinel. A level is the median of the last `patience` steps, the start of a metric that of its first
//! ones.

mod finding;
mod length;
mod mismatch;
mod search;
mod size;

use std::collections::BTreeMap;

use forage_contracts::Metric;
use forage_env::Severity;
use serde_json::Value;

use self::search::{
    QUERY_COMPLEXITY, QUERY_DISTINCT, QUERY_OPERATORS, QUERY_STOP_WORDS, QUERY_WORDS,
};
use super::trace::{Span, Trace};
use crate::metrics::Row;

pub(super) use finding::Finding;

/// The metrics whose traces are kept.
pub(super) const WATCHED: &[&str] = &[
    Metric::REWARD,
    Metric::NO_VARIANCE,
    Metric::ENTROPY,
    Metric::KL_OLD,
    Metric::KL_REFERENCE,
    Metric::GRADIENT,
    Metric::RESPONSE_TOKENS,
    Metric::REPEATED,
    Metric::TRUNCATED,
    Metric::VALID,
    Metric::SEARCHES,
    Metric::SEARCH_EMPTY,
    QUERY_WORDS,
    QUERY_DISTINCT,
    QUERY_STOP_WORDS,
    QUERY_OPERATORS,
    QUERY_COMPLEXITY,
];

type Rule = fn(&Facts<'_>) -> Option<Finding>;

/// Every rule by the kind of its alarms, the gravest first.
pub(super) const RULES: [(&str, Rule); 17] = [
    ("non_finite", |facts| facts.non_finite()),
    ("mismatch", |facts| facts.mismatch()),
    ("divergence", |facts| facts.divergence()),
    ("gradient_explosion", |facts| facts.gradient_explosion()),
    ("kl_runaway", |facts| facts.kl_runaway()),
    ("entropy_collapse", |facts| facts.entropy_collapse()),
    ("reward_size", |facts| facts.reward_size()),
    ("reward_collapse", |facts| facts.reward_collapse()),
    ("repetition", |facts| facts.repetition()),
    ("invalid_actions", |facts| facts.invalid_actions()),
    ("no_variance", |facts| facts.no_variance()),
    ("truncation", |facts| facts.truncation()),
    ("no_search", |facts| facts.no_search()),
    ("empty_search", |facts| facts.empty_search()),
    ("length_collapse", |facts| facts.length_collapse()),
    ("length_explosion", |facts| facts.length_explosion()),
    ("keyword_bag", |facts| facts.keyword_bag()),
];

fn stop_if(grave: bool) -> Severity {
    if grave {
        Severity::Stop
    } else {
        Severity::Warn
    }
}

/// The material of a judgment.
pub(super) struct Facts<'a> {
    pub(super) row: &'a Row,
    pub(super) traces: &'a BTreeMap<String, Trace>,
    pub(super) span: Span,
    pub(super) has_search: bool,
}

/// The distance of the reward from its best.
struct Fall {
    best: f64,
    level: f64,
    /// The drop over the best reward or over what was gained since the start, whichever is larger: 1 loses all.
    share: f64,
    /// The drop in standard errors of the level.
    errors: f64,
}

impl Facts<'_> {
    fn trace(&self, name: &str) -> Option<&Trace> {
        self.traces.get(name)
    }

    fn level(&self, name: &str) -> Option<f64> {
        self.trace(name)?.level(self.span)
    }

    /// Start, level and their ratio.
    fn growth(&self, name: &str) -> Option<[f64; 3]> {
        let trace = self.trace(name)?;
        let (start, level) = (trace.start(self.span)?, trace.level(self.span)?);
        (start > 0.0).then_some([start, level, level / start])
    }

    fn nulls(&self) -> impl Iterator<Item = &str> {
        let nulls = self.row.0.iter().filter(|(_, value)| value.is_null());
        nulls.map(|(name, _): (&String, &Value)| name.as_str())
    }

    fn fall(&self) -> Option<Fall> {
        let trace = self.trace(Metric::REWARD)?;
        let (level, first) = (trace.level(self.span)?, trace.first()?);
        let best = trace.best().unwrap_or(first);
        let scale = best.abs().max(best - first).max(1e-6);
        // A median of normal numbers scatters a quarter more than their mean.
        let error = 1.25 * trace.noise(self.span).unwrap_or(0.0) / (self.span.short as f64).sqrt();
        Some(Fall {
            best,
            level,
            share: (best - level) / scale,
            errors: (best - level) / error.max(1e-9),
        })
    }

    /// A drop that supports another sign; by itself it would be too weak.
    fn falling_reward(&self) -> Option<Fall> {
        self.fall()
            .filter(|fall| fall.share > 0.25 && fall.errors > 3.0)
    }

    /// Says that the reward's line through the window rises by more than two standard errors.
    fn reward_rises(&self) -> bool {
        let Some(trace) = self.trace(Metric::REWARD) else {
            return false;
        };
        let (Some(slope), Some(noise)) = (trace.slope(self.span), trace.noise(self.span)) else {
            return false;
        };
        let window = self.span.window as f64;
        slope * (window * (window * window - 1.0) / 12.0).sqrt() > 2.0 * noise && slope > 0.0
    }

    /// Says that nearly every group earns the same because nearly everything is earned.
    fn solved(&self) -> bool {
        let high = self
            .fall()
            .is_some_and(|fall| fall.share < 0.05 && fall.best > 0.0);
        let equal = self.level(Metric::NO_VARIANCE);
        high && equal.is_some_and(|share| share > 0.9)
    }

    /// A metric is NaN or infinite.
    fn non_finite(&self) -> Option<Finding> {
        let names: Vec<&str> = self.nulls().collect();
        if names.is_empty() {
            return None;
        }
        // A NaN in what the update is made of has reached the weights or would with the next step.
        let grave = |name: &&str| {
            let parts = ["policy/", "optim/", "reward/"];
            parts.iter().any(|part| name.starts_with(part))
        };
        Some(Finding {
            severity: stop_if(names.iter().any(grave)),
            judged: None,
            message: format!(
                "Not finite: {}. Usually the learning rate is too high or a reward divides by zero. Resume from the last \
                 checkpoint with a lower learning rate; if it comes back at the same step, look at that step's rewards.",
                names.join(", ")
            ),
            at_once: true,
        })
    }

    /// The learning rate is too high: gradients burst while the reward falls.
    fn divergence(&self) -> Option<Finding> {
        let burst = self.gradient().filter(|[_, _, ratio]| *ratio >= 100.0);
        let broken = self
            .nulls()
            .any(|name| name.starts_with("policy/") || name.starts_with("optim/"));
        let fall = self
            .falling_reward()
            .filter(|_| burst.is_some() || broken)?;
        let gradients = burst.map_or("the update is not finite".to_owned(), |[_, norm, _]| {
            format!(
                "the gradient norm is {}, over 100 times that of the first steps",
                number(norm)
            )
        });
        let rate = self.row.get(Metric::LEARNING_RATE);
        let message = format!(
            "The run diverges: {gradients}, while the reward fell from {} to {}. The learning rate{} is too high. Resume \
             from the last checkpoint before the fall with a third of it, and a longer warm-up.",
            number(fall.best),
            number(fall.level),
            optional(rate, |rate| format!(" ({})", number(rate)))
        );
        Some(Finding::new(Severity::Stop, [fall.share, 0.25], message).at_once())
    }

    /// Start, level and their ratio. A first norm of almost 0 (all groups alike, an adapter that has not moved) is not a
    /// measure.
    fn gradient(&self) -> Option<[f64; 3]> {
        let trace = self.trace(Metric::GRADIENT)?;
        let start = trace.start(self.span)?.max(1e-4);
        let level = trace.level(self.span)?;
        Some([start, level, level / start])
    }

    /// The gradient norm is a multiple of what it was.
    fn gradient_explosion(&self) -> Option<Finding> {
        let [start, level, ratio] = self.gradient()?;
        Finding::above(ratio, [10.0, 100.0], || {
            format!(
                "The gradient norm grew from {} to {} and stays there. The clip hides it from the weights but not from the \
                 direction: the learning rate is too high, or a few tokens have become very unlikely. Lower the learning \
                 rate, or tighten the ratio clip.",
                number(start),
                number(level)
            )
        })
    }

    /// The policy leaves its reference, or the sampler's policy is no longer the trainer's.
    fn kl_runaway(&self) -> Option<Finding> {
        self.kl_reference().or_else(|| {
            let level = self.level(Metric::KL_OLD)?.abs();
            // PPO's own early stop is at a few hundredths of a nat.
            Finding::above(level, [0.1, 1.0], || {
                format!(
                    "The policy that samples and the policy that learns are {} nats per token apart. Either updates are too \
                     large for one batch, or the sampler computes other probabilities than the trainer. Lower the learning \
                     rate or the updates per batch; with an outside engine, check its weights and its log-probabilities.",
                    number(level)
                )
            })
        })
    }

    fn kl_reference(&self) -> Option<Finding> {
        let trace = self.trace(Metric::KL_REFERENCE)?;
        let level = trace.level(self.span)?.abs();
        let before = trace.before(self.span);
        let grew = before.is_some_and(|before| level > 10.0 * before.abs());
        Finding::above(level, [if grew { 0.1 } else { 0.5 }, 5.0], || {
            format!(
                "The policy is {} nats per token away from its reference and what it learned before is being overwritten. The \
                 penalty is too weak or the learning rate too high. Resume from an earlier checkpoint with a larger penalty \
                 or a lower learning rate.",
                number(level)
            )
        })
    }

    /// The policy stops exploring.
    fn entropy_collapse(&self) -> Option<Finding> {
        let trace = self.trace(Metric::ENTROPY)?;
        // A policy that begins without entropy cannot lose it.
        let start = trace.start(self.span).filter(|start| *start > 0.02)?;
        let level = trace.level(self.span)?;
        let gone = level < 0.1 * start;
        let slope = trace.slope(self.span);
        let falls = slope.is_some_and(|slope| slope * (self.span.window as f64) < -0.1 * start);
        if !(gone || (falls && level < 0.3 * start)) {
            return None;
        }
        let message = format!(
            "Entropy fell from {} to {} nats per token: the policy gives almost the same episode each time, so groups hold \
             nothing to compare. If the reward still satisfies you the run is done; otherwise resume from an earlier \
             checkpoint with clip-higher, an entropy bonus or a lower learning rate.",
            number(start),
            number(level)
        );
        let bound = if gone { 0.1 } else { 0.3 } * start;
        let severity = stop_if(gone && !self.reward_rises() && !self.solved());
        Some(Finding::new(severity, [level, bound], message))
    }

    /// The reward is far under its best.
    fn reward_collapse(&self) -> Option<Finding> {
        self.trace(Metric::REWARD)?.best()?;
        let fall = self.fall().filter(|fall| fall.errors > 4.0)?;
        Finding::above(fall.share, [0.5, 0.8], || {
            format!(
                "The reward fell from its best, {}, to {}: {} of it is lost. After a long rise this is most often a too large \
                 update or a policy that left the protocol. Read some episodes of the last steps, go back to the checkpoint \
                 before the fall and lower the learning rate.",
                number(fall.best),
                number(fall.level),
                percent(fall.share.min(1.0))
            )
        })
    }

    /// The policy writes the same again and again.
    fn repetition(&self) -> Option<Finding> {
        let trace = self.trace(Metric::REPEATED)?;
        let (level, start) = (trace.level(self.span)?, trace.start(self.span));
        // The tags of a protocol and words of the question repeat in every healthy episode: the growth counts.
        let growth = level - start.unwrap_or(0.0);
        let grew = start.is_some() && level > 0.3 && growth > 0.15;
        if !grew && level <= 0.6 {
            return None;
        }
        let before = optional(start, |start| format!(", {} at the start", percent(start)));
        let message = format!(
            "{} of what the policy writes repeats itself within the episode{before}. It is in a loop, mostly because long \
             texts cost nothing or the entropy has collapsed. Go back to an earlier checkpoint; make truncated episodes earn \
             nothing and lower the learning rate.",
            percent(level)
        );
        let bound = if grew { 0.3 } else { 0.6 };
        let severity = stop_if(level > 0.6 && growth > 0.3);
        Some(Finding::new(severity, [level, bound], message))
    }

    /// The environment understands ever fewer turns, or never did.
    fn invalid_actions(&self) -> Option<Finding> {
        let unlearned = self.growth(Metric::VALID).and_then(|[start, level, ratio]| {
            Finding::below(ratio, [0.7, 0.3], || {
                format!(
                    "Only {} of the turns follow the protocol, {} at the start. The policy unlearns the format, because the \
                     reward does not depend on it or updates are too large. Give the format a small reward, or go back and \
                     lower the learning rate.",
                    percent(level),
                    percent(start)
                )
            })
        });
        unlearned.or_else(|| self.never_valid())
    }

    fn never_valid(&self) -> Option<Finding> {
        const LOW: f64 = 0.3;
        let trace = self.trace(Metric::VALID)?;
        let level = trace.level(self.span)?;
        let slope = trace.slope(self.span);
        let learns = slope.is_some_and(|slope| slope * (self.span.window as f64) > 0.02);
        let low = trace.held(self.span.window, |share| share < LOW) && !learns;
        low.then(|| {
            let message = format!(
                "Only {} of the turns follow the protocol and the share does not rise. The policy does not know the format, \
                 so most rewards are chance. Warm it up on demonstrations first, or show an example in the prompt.",
                percent(level)
            );
            Finding::new(Severity::Warn, [level, LOW], message).at_once()
        })
    }

    /// All members of every group earn the same: no step teaches.
    fn no_variance(&self) -> Option<Finding> {
        let trace = self.trace(Metric::NO_VARIANCE)?;
        let Span { window, short } = self.span;
        let every = |share: f64| share > 0.999;
        let (severity, bound, groups) = if trace.held(window, every) {
            (
                Severity::Stop,
                0.999,
                format!("For {window} steps every group"),
            )
        } else if trace.held(short, every) {
            (
                Severity::Warn,
                0.999,
                format!("For {short} steps every group"),
            )
        } else if trace.long(self.span).is_some_and(|share| share > 0.9) {
            let groups = format!("Over {window} steps nine groups in ten");
            (Severity::Note, 0.9, groups)
        } else {
            return None;
        };
        let message = format!(
            "{groups} had members that all earned the same{}: such groups teach nothing. If all earn much, the questions are \
             too easy; if nothing, too hard or the reward is broken. Choose questions of another difficulty, larger groups or \
             a finer reward.",
            optional(self.level(Metric::REWARD), |reward| {
                format!(" (mean reward {})", number(reward))
            })
        );
        let level = trace.level(self.span).unwrap_or(1.0);
        Some(Finding::new(severity, [level, bound], message).at_once())
    }
}

fn optional(value: Option<f64>, words: impl FnOnce(f64) -> String) -> String {
    value.map_or_else(String::new, words)
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1e6 => format!("{value:.1e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests;
