//! What each alarm looks for. A level is the median of the last `patience` steps, the start of a metric that of its first
//! ones.

use std::collections::BTreeMap;

use serde_json::Value;

use super::explain;
use super::sentinel::{AlarmKind, Severity};
use super::text::TextFacts;
use super::trace::{Span, Trace};
use crate::metrics::Row;

pub(super) const REWARD: &str = "reward/mean";
pub(super) const NO_VARIANCE: &str = "group/zero_std_frac";
pub(super) const ENTROPY: &str = "policy/entropy";
pub(super) const KL_OLD: &str = "policy/approx_kl_old";
pub(super) const KL_REFERENCE: &str = "policy/kl_ref";
pub(super) const GRADIENT: &str = "optim/grad_norm";
pub(super) const LENGTH: &str = "response/tokens_mean";
pub(super) const REPEATED: &str = "response/repeated_frac";
pub(super) const TRUNCATED: &str = "response/truncated_frac";
pub(super) const VALID: &str = "action/valid_frac";
pub(super) const SEARCHES: &str = "search/calls_mean";
pub(super) const QUERY_WORDS: &str = "query/words_mean";
pub(super) const QUERY_DISTINCT: &str = "query/distinct_frac";
pub(super) const QUERY_STOP_WORDS: &str = "query/stop_word_frac";
pub(super) const QUERY_OPERATORS: &str = "query/operator_frac";
pub(super) const QUERY_COMPLEXITY: &str = "query/complexity_mean";

/// The metrics whose course is kept.
pub(super) const WATCHED: &[&str] = &[
    REWARD,
    NO_VARIANCE,
    ENTROPY,
    KL_OLD,
    KL_REFERENCE,
    GRADIENT,
    LENGTH,
    REPEATED,
    TRUNCATED,
    VALID,
    SEARCHES,
    QUERY_WORDS,
    QUERY_DISTINCT,
    QUERY_STOP_WORDS,
    QUERY_OPERATORS,
    QUERY_COMPLEXITY,
];

/// A metric that the row lacks, from the episodes themselves.
pub(super) fn from_text(text: &TextFacts, name: &str) -> Option<f64> {
    match name {
        REPEATED => Some(text.repeated_frac),
        LENGTH => Some(text.policy_tokens_mean),
        SEARCHES => Some(text.searches_mean),
        VALID => Some(text.valid_frac),
        _ => None,
    }
}

/// A sign of trouble in one step.
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) message: String,
    /// Needs no further steps: it cannot be chance, or has counted its steps itself.
    pub(super) at_once: bool,
}

impl Finding {
    /// A sign that must stand for some steps.
    fn sign(severity: Severity, message: String) -> Self {
        Self { severity, message, at_once: false }
    }

    fn at_once(severity: Severity, message: String) -> Self {
        Self { severity, message, at_once: true }
    }
}

/// What a rule sees.
pub(super) struct Facts<'a> {
    pub(super) row: &'a Row,
    pub(super) traces: &'a BTreeMap<String, Trace>,
    pub(super) span: Span,
    pub(super) has_search: bool,
}

pub(super) fn judge(kind: AlarmKind, facts: &Facts) -> Option<Finding> {
    match kind {
        AlarmKind::NonFinite => facts.non_finite(),
        AlarmKind::Divergence => facts.divergence(),
        AlarmKind::GradientExplosion => facts.gradient_explosion(),
        AlarmKind::KlRunaway => facts.kl_runaway(),
        AlarmKind::EntropyCollapse => facts.entropy_collapse(),
        AlarmKind::RewardCollapse => facts.reward_collapse(),
        AlarmKind::Repetition => facts.repetition(),
        AlarmKind::InvalidActions => facts.invalid_actions(),
        AlarmKind::NoVariance => facts.no_variance(),
        AlarmKind::Truncation => facts.truncation(),
        AlarmKind::NoSearch => facts.no_search(),
        AlarmKind::LengthCollapse => facts.length_collapse(),
        AlarmKind::LengthExplosion => facts.length_explosion(),
        AlarmKind::KeywordBag => facts.keyword_bag(),
    }
}

/// How far the reward is under its best.
pub(super) struct Fall {
    pub(super) best: f64,
    pub(super) level: f64,
    /// The drop over the best reward or over what was gained since the start, whichever is larger: 1 loses all.
    pub(super) share: f64,
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

    /// Level over start.
    fn ratio(&self, name: &str) -> Option<f64> {
        let trace = self.trace(name)?;
        let start = trace.start(self.span)?;
        (start > 0.0).then_some(trace.level(self.span)? / start)
    }

    fn nulls(&self) -> impl Iterator<Item = &str> {
        self.row.0.iter().filter(|(_, value)| matches!(value, Value::Null)).map(|(name, _)| name.as_str())
    }

    fn fall(&self) -> Option<Fall> {
        let trace = self.trace(REWARD)?;
        let (level, first) = (trace.level(self.span)?, trace.first()?);
        let best = trace.best().unwrap_or(first);
        let scale = best.abs().max(best - first).max(1e-6);
        // A median of normal numbers scatters a quarter more than their mean.
        let error = 1.25 * trace.noise(self.span).unwrap_or(0.0) / (self.span.short as f64).sqrt();
        Some(Fall { best, level, share: (best - level) / scale, errors: (best - level) / error.max(1e-9) })
    }

    /// A drop that supports another sign; by itself it would be too weak.
    fn falling_reward(&self) -> Option<Fall> {
        self.fall().filter(|fall| fall.share > 0.25 && fall.errors > 3.0)
    }

    /// Whether the reward's line through the window rises by more than two standard errors.
    fn reward_rises(&self) -> bool {
        let Some(trace) = self.trace(REWARD) else { return false };
        let (Some(slope), Some(noise)) = (trace.slope(self.span), trace.noise(self.span)) else { return false };
        let window = self.span.window as f64;
        slope * (window * (window * window - 1.0) / 12.0).sqrt() > 2.0 * noise && slope > 0.0
    }

    /// Whether nearly every group earns the same because nearly everything is earned.
    fn solved(&self) -> bool {
        let high = self.fall().is_some_and(|fall| fall.share < 0.05 && fall.best > 0.0);
        high && self.level(NO_VARIANCE).is_some_and(|share| share > 0.9)
    }

    fn non_finite(&self) -> Option<Finding> {
        let names: Vec<&str> = self.nulls().collect();
        if names.is_empty() {
            return None;
        }
        // A NaN in what the update is made of has reached the weights or would with the next step.
        let grave = names.iter().any(|name| ["policy/", "optim/", "reward/"].iter().any(|part| name.starts_with(part)));
        let severity = if grave { Severity::Stop } else { Severity::Warn };
        Some(Finding::at_once(severity, explain::non_finite(&names)))
    }

    fn divergence(&self) -> Option<Finding> {
        let burst = self.gradient_ratio().filter(|(_, _, ratio)| *ratio >= 100.0).map(|(_, norm, _)| norm);
        let broken = self.nulls().any(|name| name.starts_with("policy/") || name.starts_with("optim/"));
        let fall = self.falling_reward().filter(|_| burst.is_some() || broken)?;
        let message = explain::divergence(burst, self.row.get("optim/lr"), &fall);
        Some(Finding::at_once(Severity::Stop, message))
    }

    /// Start, level and their ratio.
    fn gradient_ratio(&self) -> Option<(f64, f64, f64)> {
        let trace = self.trace(GRADIENT)?;
        // A first norm of almost 0 (all groups alike, an adapter that has not moved) is not a measure.
        let start = trace.start(self.span)?.max(1e-4);
        let level = trace.level(self.span)?;
        Some((start, level, level / start))
    }

    fn gradient_explosion(&self) -> Option<Finding> {
        let (start, level, ratio) = self.gradient_ratio()?;
        let severity = if ratio >= 100.0 { Severity::Stop } else { Severity::Warn };
        (ratio >= 10.0).then(|| Finding::sign(severity, explain::gradient(start, level)))
    }

    fn kl_runaway(&self) -> Option<Finding> {
        self.kl_reference().or_else(|| {
            let level = self.level(KL_OLD)?.abs();
            // PPO's own early stop is at a few hundredths of a nat.
            let severity = if level > 1.0 { Severity::Stop } else { Severity::Warn };
            (level > 0.1).then(|| Finding::sign(severity, explain::kl_old(level)))
        })
    }

    fn kl_reference(&self) -> Option<Finding> {
        let trace = self.trace(KL_REFERENCE)?;
        let level = trace.level(self.span)?.abs();
        let grew = trace.before(self.span).is_some_and(|before| level > 10.0 * before.abs());
        let severity = if level > 5.0 { Severity::Stop } else { Severity::Warn };
        (level > 0.5 || (level > 0.1 && grew)).then(|| Finding::sign(severity, explain::kl_reference(level)))
    }

    fn entropy_collapse(&self) -> Option<Finding> {
        let trace = self.trace(ENTROPY)?;
        // A policy that begins without entropy cannot lose it.
        let start = trace.start(self.span).filter(|start| *start > 0.02)?;
        let level = trace.level(self.span)?;
        let message = || explain::entropy(start, level);
        if level < 0.1 * start {
            let fine = self.reward_rises() || self.solved();
            return Some(Finding::sign(if fine { Severity::Warn } else { Severity::Stop }, message()));
        }
        let falls = trace.slope(self.span).is_some_and(|slope| slope * (self.span.window as f64) < -0.1 * start);
        (level < 0.3 * start && falls).then(|| Finding::sign(Severity::Warn, message()))
    }

    fn reward_collapse(&self) -> Option<Finding> {
        self.trace(REWARD)?.best()?;
        let fall = self.fall().filter(|fall| fall.share > 0.5 && fall.errors > 4.0)?;
        let severity = if fall.share > 0.8 { Severity::Stop } else { Severity::Warn };
        Some(Finding::sign(severity, explain::reward(&fall)))
    }

    fn repetition(&self) -> Option<Finding> {
        let trace = self.trace(REPEATED)?;
        let level = trace.level(self.span)?;
        // The tags of a protocol and words of the question repeat in every healthy episode: the growth counts.
        let growth = level - trace.start(self.span).unwrap_or(0.0);
        let grew = trace.start(self.span).is_some() && level > 0.3 && growth > 0.15;
        let severity = if level > 0.6 && growth > 0.3 { Severity::Stop } else { Severity::Warn };
        (grew || level > 0.6).then(|| Finding::sign(severity, explain::repetition(trace.start(self.span), level)))
    }

    fn invalid_actions(&self) -> Option<Finding> {
        let trace = self.trace(VALID)?;
        let level = trace.level(self.span)?;
        if let Some(ratio) = self.ratio(VALID).filter(|ratio| *ratio < 0.7) {
            let severity = if ratio < 0.3 { Severity::Stop } else { Severity::Warn };
            return Some(Finding::sign(severity, explain::invalid_fell(level / ratio, level)));
        }
        let learns = trace.slope(self.span).is_some_and(|slope| slope * (self.span.window as f64) > 0.02);
        let low = trace.held(self.span.window, |share| share < 0.3) && !learns;
        low.then(|| Finding::at_once(Severity::Warn, explain::invalid_low(level)))
    }

    fn no_variance(&self) -> Option<Finding> {
        let trace = self.trace(NO_VARIANCE)?;
        let none = |share: f64| share > 0.999;
        let severity = if trace.held(self.span.window, none) {
            Severity::Stop
        } else if trace.held(self.span.short, none) {
            Severity::Warn
        } else if trace.long(self.span).is_some_and(|share| share > 0.9) {
            Severity::Note
        } else {
            return None;
        };
        Some(Finding::at_once(severity, explain::no_variance(severity, self.span, self.level(REWARD))))
    }

    fn truncation(&self) -> Option<Finding> {
        let level = self.level(TRUNCATED).filter(|level| *level > 0.5)?;
        let severity = if level >= 0.95 { Severity::Stop } else { Severity::Warn };
        Some(Finding::sign(severity, explain::truncation(level, self.level(LENGTH))))
    }

    fn no_search(&self) -> Option<Finding> {
        let trace = self.trace(SEARCHES).filter(|_| self.has_search)?;
        // One stray search in a batch of some hundred episodes is none.
        let none = |calls: f64| calls < 0.02;
        // The first steps count apart: searching may end before a first window is full.
        let best = trace.first().into_iter().chain(trace.best()).reduce(f64::max).filter(|best| *best > 0.2);
        if let Some(best) = best.filter(|_| trace.held(self.span.short, none)) {
            let useless = trace.held(self.span.window, none) && self.falling_reward().is_some();
            let severity = if useless { Severity::Stop } else { Severity::Warn };
            return Some(Finding::at_once(severity, explain::search_ceased(best, self.fall().as_ref())));
        }
        trace.held(self.span.window, none).then(|| Finding::at_once(Severity::Warn, explain::never_searched(self.span)))
    }

    fn length_collapse(&self) -> Option<Finding> {
        let ratio = self.ratio(LENGTH).filter(|ratio| *ratio < 0.25)?;
        let level = self.level(LENGTH)?;
        let severity = if ratio < 0.1 { Severity::Stop } else { Severity::Warn };
        Some(Finding::sign(severity, explain::length_collapse(level / ratio, level)))
    }

    /// Slow growth may be a policy that learns to think; a multiple within one window is not.
    fn length_explosion(&self) -> Option<Finding> {
        let before = self.trace(LENGTH)?.before(self.span)?;
        let level = self.level(LENGTH)?;
        (level > 3.0 * before)
            .then(|| Finding::sign(Severity::Warn, explain::length_explosion(before, level, self.level(TRUNCATED))))
    }

    fn keyword_bag(&self) -> Option<Finding> {
        let under = |name: &str, bound: f64| self.ratio(name).is_some_and(|ratio| ratio < bound);
        let words = self.ratio(QUERY_WORDS)?;
        let (alike, bare) = (under(QUERY_DISTINCT, 0.6), under(QUERY_STOP_WORDS, 0.5));
        // One operator at the end of a long list of words is decoration.
        let thin = under(QUERY_COMPLEXITY, 0.5 * words);
        // Where every fourth word carries an operator or a phrase, longer queries are better thought out, no bags.
        let density = self.level(QUERY_COMPLEXITY).zip(self.level(QUERY_WORDS)).map(|(parts, words)| parts / words);
        let grown = words > 1.5 && density.is_none_or(|density| density < 0.25);
        let severity = if words > 2.0 && grown && alike && bare { Severity::Stop } else { Severity::Warn };
        let operators_lost = under(QUERY_OPERATORS, 0.1);
        let signs = [alike, bare, operators_lost, thin && !operators_lost];
        ((grown && (alike || bare || thin)) || operators_lost)
            .then(|| Finding::sign(severity, explain::keyword_bag(words, self.level(QUERY_WORDS), signs)))
    }
}
