//! Real runs, written by `tests/fixtures/make_watch_fixtures.py`: one that learned, and its control with random rewards;
//! queries that became better, and queries that became bags of keywords. Settings at fault.

use forage_env::{Alarm, Severity};
use forage_trainer::SentinelConfig;
use forage_trainer::metrics::Row;
use forage_trainer::watch::Sentinel;

use crate::tests::common::fixtures;

fn alarms(name: &str) -> Vec<Alarm> {
    let text = std::fs::read_to_string(fixtures().join(name)).unwrap();
    let mut lines = text
        .lines()
        .map(|line| line.split(',').collect::<Vec<&str>>());
    let names = lines.next().unwrap();
    let mut sentinel = Sentinel::new(SentinelConfig::default(), true);
    let mut found = Vec::new();
    for (step, cells) in lines.enumerate() {
        let mut row = Row::new(step as u64);
        for (name, cell) in names
            .iter()
            .zip(cells)
            .skip(1)
            .filter(|(_, cell)| !cell.is_empty())
        {
            row.set(name, cell.parse().unwrap());
        }
        found.extend(sentinel.observe(&row));
    }
    found
}

#[test]
fn a_run_that_learns_raises_nothing() {
    assert_eq!(alarms("watch_trained.csv"), []);
}

/// Random rewards first drive out the searches, then the format, then all variety.
#[test]
fn a_run_on_random_rewards_is_stopped() {
    let alarms = alarms("watch_control.csv");
    let found: Vec<(&str, Severity)> = alarms
        .iter()
        .map(|alarm| (alarm.kind.as_str(), alarm.severity))
        .collect();
    assert_eq!(found[0], ("no_search", Severity::Warn), "{found:?}");
    assert!(
        found.contains(&("invalid_actions", Severity::Stop)),
        "{found:?}"
    );
    assert_eq!(
        found.last(),
        Some(&("entropy_collapse", Severity::Stop)),
        "{found:?}"
    );
}

/// Longer queries that carry more operators, from questions that repeat.
#[test]
fn queries_that_become_better_are_no_bags() {
    let found = alarms("watch_queries.csv");
    assert!(
        found.iter().all(|alarm| alarm.kind != "keyword_bag"),
        "{found:?}"
    );
}

/// Under the first reward operators vanish and stay away. Under the second they vanish, and come back as one AND behind a list
/// of words, which is told apart.
#[test]
fn the_collapse_of_searchlm_is_reported() {
    let bags = |name| {
        let found = alarms(name)
            .into_iter()
            .filter(|alarm| alarm.kind == "keyword_bag");
        found
            .map(|alarm| (alarm.step, alarm.message))
            .collect::<Vec<_>>()
    };
    let first = bags("watch_searchlm_v1.csv");
    assert!(
        first[0].0 <= Some(15) && first[0].1.contains("operators are no longer used"),
        "{first:?}"
    );
    let second = bags("watch_searchlm_v2.csv");
    assert!(
        second
            .iter()
            .any(|(_, message)| message.contains("few operators are left")),
        "{second:?}"
    );
}

#[test]
fn settings_at_fault_are_named() {
    for (config, key) in [
        (
            SentinelConfig {
                patience: 0,
                ..SentinelConfig::default()
            },
            "patience",
        ),
        (
            SentinelConfig {
                window: 9,
                ..SentinelConfig::default()
            },
            "window",
        ),
    ] {
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with(key), "{error}");
    }
    let error = serde_json::from_str::<SentinelConfig>(r#"{"windows": 3}"#).unwrap_err();
    assert!(error.to_string().contains("windows"));
}
