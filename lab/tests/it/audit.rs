//! The audit of an experiment, from its files to a first update.

use forage_lab::RunConfig;
use forage_trainer::device::DeviceSpec;

const SMOKE: &str = include_str!("../../../configs/smoke.toml");

#[test]
fn an_experiment_that_is_sound_fails_no_check() {
    let larger = "grpo.group_size=8".to_owned();
    let config = RunConfig::parse(SMOKE, &[larger]).unwrap();
    let checks = config.resolve(None).unwrap().audit(6, &()).unwrap();
    for (of, check) in &checks {
        assert!(check.holds, "{of}: {check:?}");
    }
    let mut parts: Vec<&str> = checks.iter().map(|(of, _)| *of).collect();
    parts.dedup();
    assert_eq!(
        parts,
        ["config", "data", "tokenizer", "rollouts", "update", "cost"]
    );
    let has = |name: &str| checks.iter().any(|(_, check)| check.name == name);
    for name in [
        "memory",
        "answers",
        "leaks into dev",
        "tags",
        "prefixes",
        "loss mask",
        "reward varies",
        "directions",
    ] {
        assert!(has(name), "{name}");
    }
}

#[test]
fn an_experiment_without_its_files_ends_there() {
    let files = "data={ files = { train = \"nowhere.jsonl\", corpus = \"gone.jsonl\" } }";
    let never = "grpo.evaluate_every=0";
    let config = RunConfig::parse(SMOKE, &[files.to_owned(), never.to_owned()]).unwrap();
    let checks = config.resolve(None).unwrap().audit(1, &()).unwrap();
    assert!(checks.iter().all(|(of, _)| *of == "config"), "{checks:?}");
    let (_, files) = &checks[0];
    assert!(
        !files.holds && files.found.contains("nowhere.jsonl"),
        "{files:?}"
    );
    assert!(
        RunConfig::parse(SMOKE, &[])
            .unwrap()
            .resolve(None)
            .unwrap()
            .audit(0, &())
            .is_err()
    );
}

#[test]
fn without_the_device_memory_is_estimated_and_the_policy_is_not_blamed() {
    let device: DeviceSpec = "metal:9".parse().unwrap();
    let config = RunConfig::parse(SMOKE, &[]).unwrap();
    let checks = config.resolve(Some(device)).unwrap();
    let checks = checks.audit(1, &()).unwrap();
    let found = |name: &str| {
        let mut of_name = checks.iter().filter(|(_, check)| check.name == name);
        of_name.next().map(|(_, check)| check)
    };
    let device = found("device").unwrap();
    assert!(
        !device.holds && device.found.contains("metal:9"),
        "{device:?}"
    );
    let memory = found("memory").unwrap();
    assert!(!memory.found.contains("left out"), "{memory:?}");
    assert!(found("policy").is_none());
    let rest = found("all checks").unwrap();
    assert_eq!(rest.found, "left out: needs the device");
}

#[test]
fn without_the_policy_everything_else_is_examined() {
    let gone = "policy.checkpoint=\"no/such/policy\"";
    let config = RunConfig::parse(SMOKE, &[gone.to_owned()]).unwrap();
    let checks = config.resolve(None).unwrap().audit(1, &()).unwrap();
    let found = |of: &str, name: &str| {
        let mut found = checks.iter();
        let (_, check) = found
            .find(|(part, check)| *part == of && check.name == name)
            .unwrap_or_else(|| panic!("no {of}, {name}: {checks:?}"));
        (check.holds, check.found.as_str(), check.fix)
    };
    let (holds, why, fix) = found("config", "policy");
    assert!(!holds && why.contains("no/such/policy"), "{why}");
    assert!(fix.unwrap().contains("policy.checkpoint"));
    for (of, name) in [
        ("config", "files"),
        ("data", "answers"),
        ("data", "leaks into dev"),
    ] {
        assert!(found(of, name).0, "{of}, {name}");
    }
    for (of, name) in [
        ("config", "memory"),
        ("tokenizer", "all checks"),
        ("rollouts", "all checks"),
        ("update", "all checks"),
    ] {
        let (_, why, fix) = found(of, name);
        assert!(
            why == "left out: needs the policy" && fix.is_some(),
            "{of}: {why}"
        );
    }
}
