//! The sentinel: one row per step in, alarms out.

use std::collections::BTreeMap;

use forage_contracts::SettingError;
use forage_env::{Alarm, Severity};
use serde::{Deserialize, Serialize};

use super::rules::{Facts, Finding, RULES, WATCHED};
use super::trace::{Span, Trace};
use crate::metrics::Row;

/// The patience of the sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SentinelConfig {
    /// Steps over which slopes and best levels are taken; an alarm is armed again after as many steps without its sign.
    pub window: usize,
    /// Steps over which a level is taken, and in a row for which a sign must persist before its alarm is raised.
    pub patience: usize,
    /// Lets alarms ask for a stop; otherwise they warn. Controls with random rewards collapse by design.
    pub stop: bool,
}

impl Default for SentinelConfig {
    fn default() -> Self {
        Self {
            window: 20,
            patience: 5,
            stop: true,
        }
    }
}

impl SentinelConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`SettingError`], which names the key at fault and the fix.
    pub fn check(&self) -> Result<(), SettingError> {
        if self.patience == 0 {
            return Err(SettingError::new("patience", "must be at least 1"));
        }
        let least = 3.max(2 * self.patience);
        if self.window < least {
            let fault = format!("must be at least 3 and twice patience, here {least}");
            return Err(SettingError::new("window", fault));
        }
        Ok(())
    }
}

/// The state of a rule's alarm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// Steps in a row with the sign.
    streak: usize,
    /// Steps in a row without it.
    calm: usize,
    /// The severity it was raised with and not yet armed again.
    raised: Option<Severity>,
}

impl State {
    /// Takes one step's finding and says whether the alarm is to be raised now.
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

/// Watches a run. Serialised with a checkpoint and read back, it judges the following steps under the same settings as if it had never
/// been away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sentinel {
    config: SentinelConfig,
    has_search: bool,
    traces: BTreeMap<String, Trace>,
    states: BTreeMap<String, State>,
}

impl Sentinel {
    /// A sentinel that has seen nothing. `has_search`: whether the environment offers searches at all.
    pub(crate) fn new(config: SentinelConfig, has_search: bool) -> Self {
        Self {
            config,
            has_search,
            traces: BTreeMap::new(),
            states: BTreeMap::new(),
        }
    }

    /// Takes over what the sentinel of a checkpoint had seen; the settings stay its own.
    pub(crate) fn go_on_from(&mut self, before: Self) {
        self.traces = before.traces;
        self.states = before.states;
        for trace in self.traces.values_mut() {
            trace.trim(self.config.window);
        }
    }

    /// Takes one step's metrics and returns the alarms they raise, the gravest kind first. An alarm is raised once, again only
    /// when it becomes graver or after a window without its sign.
    pub(crate) fn observe(&mut self, row: &Row) -> Vec<Alarm> {
        let span = Span {
            window: self.config.window,
            short: self.config.patience,
        };
        for name in WATCHED {
            if let Some(value) = row.get(name) {
                let trace = self.traces.entry((*name).to_owned()).or_default();
                trace.push(value, span);
            }
        }
        let facts = Facts {
            row,
            traces: &self.traces,
            span,
            has_search: self.has_search,
        };
        let mut alarms = Vec::new();
        for (kind, judge) in RULES {
            let mut finding = judge(&facts);
            if let Some(finding) = finding.as_mut().filter(|_| !self.config.stop) {
                finding.severity = finding.severity.min(Severity::Warn);
            }
            let state = self.states.entry(kind.to_owned()).or_default();
            let raised = state.take(finding.as_ref(), &self.config);
            alarms.extend(finding.filter(|_| raised).map(|finding| Alarm {
                kind: kind.to_owned(),
                severity: finding.severity,
                step: Some(row.step()),
                value: finding.judged.map(|[value, _]| value),
                threshold: finding.judged.map(|[_, bound]| bound),
                message: finding.message,
                examples: Vec::new(),
            }));
        }
        alarms
    }
}

#[cfg(test)]
impl Sentinel {
    /// The kinds of its alarms, the gravest first.
    pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
        RULES.iter().map(|(kind, _)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinel(window: usize, patience: usize, stop: bool) -> Sentinel {
        let config = SentinelConfig {
            window,
            patience,
            stop,
        };
        Sentinel::new(config, true)
    }

    #[test]
    fn a_sentinel_that_goes_on_keeps_what_was_seen_and_its_own_settings() {
        let mut broken = Row::new(6);
        broken.set("policy/loss", f64::NAN);
        for (stop, expected) in [(true, Severity::Stop), (false, Severity::Warn)] {
            let mut before = sentinel(6, 3, !stop);
            for step in 0..6 {
                let mut row = Row::new(step);
                row.set("reward/mean", step as f64);
                assert_eq!(before.observe(&row), []);
            }
            let mut after = sentinel(4, 2, stop);
            after.go_on_from(before.clone());
            assert_eq!((after.config.window, after.config.stop), (4, stop));
            let mut trace = before.traces["reward/mean"].clone();
            trace.trim(4);
            assert_eq!(after.traces["reward/mean"], trace);
            let alarms = after.observe(&broken);
            assert_eq!(alarms[0].severity, expected, "{alarms:?}");
        }
    }
}
