//! The sentinel: one row per step in, alarms out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rules::{self, Facts, Finding};
use super::text::TextFacts;
use super::trace::{Span, Trace};
use crate::metrics::Row;

/// How patient the sentinel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SentinelConfig {
    /// Steps over which slopes and best levels are taken; an alarm is armed again after as many steps without its sign.
    pub window: usize,
    /// Steps over which a level is taken, and in a row for which a sign must stand before its alarm is raised.
    pub patience: usize,
    /// Whether alarms may ask for a stop; otherwise they warn. Controls with random rewards collapse by design.
    pub stop: bool,
}

impl Default for SentinelConfig {
    fn default() -> Self {
        Self { window: 20, patience: 5, stop: true }
    }
}

impl SentinelConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// A sentence that names the key at fault.
    pub fn check(&self) -> Result<(), String> {
        if self.patience == 0 {
            return Err("patience must be at least 1".to_owned());
        }
        if self.window < 3.max(2 * self.patience) {
            return Err(format!("window must be at least 3 and twice patience, here {}", 3.max(2 * self.patience)));
        }
        Ok(())
    }
}

/// What an alarm asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// The run may be going wrong: look at it.
    Warn,
    /// Further steps would be wasted or do harm: pause and go back to the last good checkpoint.
    Stop,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmKind {
    /// A metric is NaN or infinite.
    NonFinite,
    /// The learning rate is too high: gradients burst while the reward falls.
    Divergence,
    /// The gradient norm is a multiple of what it was.
    GradientExplosion,
    /// The policy leaves its reference, or the sampler's policy is no longer the trainer's.
    KlRunaway,
    /// The policy stops exploring.
    EntropyCollapse,
    /// The reward is far under its best.
    RewardCollapse,
    /// The policy writes the same again and again.
    Repetition,
    /// The environment understands ever fewer turns, or never did.
    InvalidActions,
    /// All members of every group earn the same: no step teaches.
    NoVariance,
    /// Episodes run into limits.
    Truncation,
    /// The policy does not search.
    NoSearch,
    /// Responses shrink to almost nothing.
    LengthCollapse,
    /// Responses multiply within a window.
    LengthExplosion,
    /// Queries become bags of keywords.
    KeywordBag,
}

impl AlarmKind {
    /// All kinds, the gravest first.
    pub const ALL: [Self; 14] = [
        Self::NonFinite,
        Self::Divergence,
        Self::GradientExplosion,
        Self::KlRunaway,
        Self::EntropyCollapse,
        Self::RewardCollapse,
        Self::Repetition,
        Self::InvalidActions,
        Self::NoVariance,
        Self::Truncation,
        Self::NoSearch,
        Self::LengthCollapse,
        Self::LengthExplosion,
        Self::KeywordBag,
    ];
}

/// One finding about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alarm {
    /// What went wrong.
    pub kind: AlarmKind,
    /// What it asks for.
    pub severity: Severity,
    /// The step that raised it.
    pub step: u64,
    /// What happened, the numbers, the probable cause, the fix.
    pub message: String,
}

/// Whether an alarm is ringing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// Steps in a row with the sign.
    streak: usize,
    /// Steps in a row without it.
    calm: usize,
    /// As what it was raised and not yet armed again.
    raised: Option<Severity>,
}

impl State {
    /// Takes one step's finding; whether the alarm is to be raised now.
    fn take(&mut self, finding: Option<&Finding>, config: &SentinelConfig) -> bool {
        let Some(finding) = finding else {
            self.streak = 0;
            self.calm += 1;
            if self.calm >= config.window {
                self.raised = None;
            }
            return false;
        };
        self.calm = 0;
        self.streak += 1;
        let due = finding.at_once || self.streak >= config.patience;
        let raise = due && self.raised < Some(finding.severity);
        if raise {
            self.raised = Some(finding.severity);
        }
        raise
    }
}

/// Watches a run. Serialised with a checkpoint and read back, it judges the following steps as if it had never been away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sentinel {
    config: SentinelConfig,
    has_search: bool,
    traces: BTreeMap<String, Trace>,
    states: BTreeMap<AlarmKind, State>,
}

impl Sentinel {
    /// A sentinel that has seen nothing. `has_search`: whether the environment offers searches at all.
    ///
    /// # Errors
    /// A sentence that names the key of `config` at fault.
    pub fn new(config: SentinelConfig, has_search: bool) -> Result<Self, String> {
        config.check()?;
        Ok(Self { config, has_search, traces: BTreeMap::new(), states: BTreeMap::new() })
    }

    /// Takes one step's metrics, with the facts about its episodes where there were any; returns the alarms it raises, the
    /// gravest kind first. An alarm is raised once, again only when it becomes graver or after a window without its sign.
    pub fn observe(&mut self, row: &Row, text: Option<&TextFacts>) -> Vec<Alarm> {
        let span = Span { window: self.config.window, short: self.config.patience };
        for name in rules::WATCHED {
            if let Some(value) = row.get(name).or_else(|| text.and_then(|text| rules::from_text(text, name))) {
                self.traces.entry((*name).to_owned()).or_default().push(value, span);
            }
        }
        let facts = Facts { row, traces: &self.traces, span, has_search: self.has_search };
        let mut alarms = Vec::new();
        for kind in AlarmKind::ALL {
            let mut finding = rules::judge(kind, &facts);
            if let Some(finding) = finding.as_mut().filter(|_| !self.config.stop) {
                finding.severity = finding.severity.min(Severity::Warn);
            }
            let raise = self.states.entry(kind).or_default().take(finding.as_ref(), &self.config);
            if let Some(Finding { severity, message, .. }) = finding.filter(|_| raise) {
                alarms.push(Alarm { kind, severity, step: row.step(), message });
            }
        }
        alarms
    }
}
