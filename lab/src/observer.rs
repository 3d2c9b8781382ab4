//! The interface to whoever follows a run.

use forage_contracts::Metric;
use forage_env::Alarm;
use forage_trainer::metrics::Row;

use crate::layout::CONTROL;

/// Follows what runs do, and may stop them. Nothing has to be listened to: every method has a default.
pub trait Observer: Sync {
    /// A sentence or two that people should read.
    fn say(&self, _line: &str) {}

    /// A sentence about what may be wrong, also for people who want to read nothing else.
    fn warn(&self, line: &str) {
        self.say(line);
    }

    /// Reports that a task has done some of its steps; `shown` are the numbers of the last one.
    fn progress(&self, _task: &str, _done: u64, _total: u64, _shown: &str) {}

    /// Tells whether the run is to stop after this step, with a checkpoint.
    fn is_stopped(&self) -> bool {
        false
    }

    /// The function that environments call about slow work when they are made.
    fn notice(&self) -> fn(&str) {
        |_| {}
    }
}

/// Listens to nothing.
impl Observer for () {}

/// Passes on requests to stop, and reports nothing: another process does.
pub(crate) struct Quiet<'a>(pub(crate) &'a dyn Observer);

impl Observer for Quiet<'_> {
    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    fn notice(&self) -> fn(&str) {
        self.0.notice()
    }
}

/// The numbers of a metrics row that a person follows: label, metric, digits.
const FOLLOWED: [(&str, &str, usize); 14] = [
    ("reward", Metric::REWARD, 3),
    ("em", "reward/component/em", 3),
    ("val em", Metric::VAL_EM, 3),
    ("ndcg", "reward/component/ndcg", 3),
    ("val ndcg", Metric::VAL_NDCG, 3),
    ("val reward", Metric::VAL_REWARD, 3),
    ("operators", "query/operator_frac", 2),
    ("loss", Metric::SFT_LOSS, 3),
    ("val loss", Metric::SFT_VAL_LOSS, 3),
    ("len", Metric::RESPONSE_TOKENS, 1),
    ("searches", Metric::SEARCHES, 2),
    ("entropy", Metric::ENTROPY, 3),
    ("zero-var", Metric::NO_VARIANCE, 2),
    ("grad", Metric::GRADIENT, 2),
];

/// Larger numbers, without their sign, have too many digits to be read.
const LARGE: f64 = 1e6;

/// The followed numbers of a metrics row in one line. The reward of a validation stands in for a measure that it does not have.
pub(crate) fn line(row: &Row) -> String {
    let is_measured = [Metric::VAL_EM, Metric::VAL_NDCG]
        .iter()
        .any(|name| row.get(name).is_some());
    let parts = FOLLOWED
        .iter()
        .filter(|(_, name, _)| !(is_measured && *name == Metric::VAL_REWARD))
        .filter_map(|&(label, name, digits)| {
            let value = row.get(name)?;
            Some(if value.abs() < LARGE {
                format!("{label} {value:.digits$}")
            } else {
                format!("{label} {value:.2e}")
            })
        });
    parts.collect::<Vec<_>>().join("  ")
}

/// An alarm of the run of this name in one line. A control has a reward that may ruin it: what happens is told, and no advice is given.
pub(crate) fn raised(name: &str, step: u64, alarm: &Alarm) -> String {
    let message = &alarm.message;
    if name != CONTROL {
        return format!("{name} step {step}: {message}");
    }
    let happened = message.split(". ").next().unwrap_or_default();
    format!(
        "{name} step {step}: {}. This is the control, whose reward may ruin it: nothing is to be done.",
        happened.trim_end_matches('.')
    )
}

#[cfg(test)]
mod tests {
    use forage_env::Severity;

    use super::*;

    #[test]
    fn an_alarm_of_a_control_asks_for_nothing() {
        let alarm = Alarm {
            kind: "entropy_collapse".to_owned(),
            severity: Severity::Warn,
            step: Some(3),
            value: None,
            threshold: None,
            message: "Entropy fell from 1.2 to 0.1 nats. Resume from an earlier checkpoint."
                .to_owned(),
            examples: Vec::new(),
        };
        assert_eq!(
            raised("trained", 3, &alarm),
            format!("trained step 3: {}", alarm.message)
        );
        assert_eq!(
            raised(CONTROL, 3, &alarm),
            "control step 3: Entropy fell from 1.2 to 0.1 nats. This is the control, whose reward may ruin it: nothing is to be done."
        );
    }

    #[test]
    fn every_followed_number_is_a_metric_of_the_table() {
        for (_, name, _) in FOLLOWED {
            assert!(forage_env::registry::metric(name).is_some(), "{name}");
        }
    }

    #[test]
    fn large_numbers_are_written_with_an_exponent() {
        let mut row = Row::new(0);
        row.set(Metric::REWARD, -5e29);
        row.set(Metric::GRADIENT, 999_999.0);
        assert_eq!(line(&row), "reward -5.00e29  grad 999999.00");
    }

    #[test]
    fn a_validation_without_a_measure_shows_its_reward() {
        let mut row = Row::new(0);
        row.set(Metric::VAL_REWARD, 0.5);
        assert_eq!(line(&row), "val reward 0.500");
        row.set(Metric::VAL_EM, 0.25);
        assert_eq!(line(&row), "val em 0.250");
    }
}
