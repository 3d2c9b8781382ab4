use super::*;

/// Every metric of the table is seen to be emitted (`src/tests/metrics.rs`), so a rule cannot wait for one forever.
#[test]
fn every_rule_reads_metrics_of_the_table() {
    let known: Vec<&str> = forage_env::registry::metrics()
        .map(|metric| metric.name)
        .collect();
    let of_one_step = [
        Metric::LEARNING_RATE,
        Metric::REWARD_STD,
        Metric::MISMATCH,
        Metric::RATIO_DEVIATION,
        Metric::POLICY_AGE,
        Metric::REPLAY_GROUPS,
    ];
    for name in WATCHED.iter().chain(&of_one_step) {
        assert!(known.contains(name), "{name}");
    }
}
