//! The tables of metrics and their page of the guide say the same.

use forage_env::monitor::{Metric, STEP_METRICS};
use forage_env::registry::{ENVIRONMENTS, REWARDS};
use forage_eval::measures::MEASURES;

fn row(metric: &Metric) -> String {
    let Metric {
        name,
        unit,
        over,
        better,
        about,
    } = metric;
    format!("| `{name}` | {unit} | {over} | {better} | {about} |")
}

#[test]
fn the_guide_has_a_row_for_every_metric() {
    let page = include_str!("../../../docs/metrics.md");
    let written: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let declared = ENVIRONMENTS.iter().flat_map(|entry| entry.declares);
    let expected: Vec<String> = STEP_METRICS
        .iter()
        .chain(declared)
        .chain(MEASURES)
        .map(row)
        .collect();
    assert_eq!(
        written,
        expected,
        "the rows of docs/metrics.md, in their order, should be\n{}",
        expected.join("\n")
    );
}

#[test]
fn every_reward_that_is_always_computed_is_a_measure() {
    for reward in REWARDS.iter().filter(|reward| reward.always) {
        assert!(
            MEASURES.iter().any(|measure| measure.name == reward.name),
            "{}",
            reward.name
        );
    }
}
