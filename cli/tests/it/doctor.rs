//! `forage doctor` for programs.

use serde_json::Value;

use crate::support::{forage, json};

fn checks(report: &Value) -> Vec<(&str, &str, &str)> {
    let checks = report["checks"].as_array().expect("a list").iter();
    checks
        .map(|check| {
            let [of, name, status, found] =
                ["of", "name", "status", "found"].map(|key| check[key].as_str().expect("a text"));
            assert!(!found.is_empty(), "{check}");
            (of, name, status)
        })
        .collect()
}

#[test]
fn the_processor_computes_what_it_must() {
    let report = json(&["doctor", "--device", "cpu"]);
    assert_eq!(report["holds"], true, "{report}");
    let checks = checks(&report);
    for name in ["processor", "memory", "disk, runs", "compiled in"] {
        assert!(
            checks
                .iter()
                .any(|(of, found, _)| (*of, *found) == ("machine", name)),
            "{name}: {checks:?}"
        );
    }
    for name in [
        "an f32 product",
        "a bf16 product",
        "log-probabilities and gradients of a decoder",
        "generation",
    ] {
        assert!(checks.contains(&("cpu", name, "ok")), "{name}: {checks:?}");
    }
}

#[test]
fn a_device_that_is_not_there_fails_and_is_explained() {
    let ran = forage(&["doctor", "--device", "cuda:7", "--json"]);
    assert_eq!(ran.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["holds"], false);
    assert!(
        checks(&report).contains(&("cuda:7", "open", "failed")),
        "{report}"
    );
}
