//! What an examined update says of itself.

use forage_contracts::Episode;
use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;
use serde_json::{Value, json};

use super::common::problem::{checkpoint, learner, problem};
use crate::doctor::Check;
use crate::learner::{Learner, UpdateConfig};
use crate::objective::Algorithm;
use crate::optim::AdamWConfig;
use crate::run::{GrpoConfig, group_jobs, rollout};
use crate::sample::Sample;

/// Who learns, and episodes of three groups of four, rewarded by `reward`.
async fn played(algorithm: &str, reward: &str) -> (Learner, Vec<Episode>) {
    let start = checkpoint(1);
    let problem = problem(&start, &[(reward, 1.0)]);
    let update = UpdateConfig {
        objective: Algorithm::of(algorithm, &[]).into(),
        optimizer: AdamWConfig {
            learning_rate: 1e-3,
            warmup_steps: 0,
            ..AdamWConfig::default()
        },
        ..UpdateConfig::default()
    };
    let learner: Learner = learner(start, update);
    let jobs = group_jobs(&problem.train[..3], 4, Seed::root(1));
    let episodes = rollout(&learner, &problem, Sampling::FULL).run(jobs).await;
    (learner, episodes)
}

/// The checks of an update on such groups.
async fn examined(algorithm: &str, reward: &str, change: impl Fn(&mut Sample)) -> Vec<Check> {
    let (mut learner, episodes) = played(algorithm, reward).await;
    let mut groups: Vec<Vec<Sample>> = episodes
        .chunks(4)
        .map(|group| group.iter().filter_map(Sample::of).collect())
        .collect();
    groups.iter_mut().flatten().for_each(change);
    learner.examine_groups(groups).unwrap().0
}

fn of<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    let found = checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("{name}: {checks:?}"))
}

#[tokio::test]
async fn an_update_of_a_sound_run_passes_every_check() {
    for algorithm in ["dapo", "ppo"] {
        let checks = examined(algorithm, "random", |_| {}).await;
        assert_eq!(checks.len(), 6, "{checks:?}");
        for check in &checks {
            assert!(check.holds && check.fix.is_none(), "{check:?}");
        }
        assert_eq!(
            of(&checks, "masks").found,
            "the gradient of tokens without loss is exactly 0"
        );
    }
}

#[tokio::test]
async fn groups_that_earn_the_same_have_no_direction() {
    let checks = examined("dapo", "em", |_| {}).await;
    let [only] = checks.as_slice() else {
        panic!("{checks:?}")
    };
    assert!(only.holds && only.fix.is_some(), "{only:?}");
    assert!(only.found.starts_with("0 of 3 groups"), "{only:?}");
}

#[tokio::test]
async fn groups_that_the_filter_drops_have_no_direction() {
    let (mut learner, episodes) = played("grpo", "random").await;
    let band = json!({"accuracy_band": {"lowest": 0.2, "highest": 0.8}});
    learner.recipe.filter = serde_json::from_value(band).unwrap();
    let samples =
        |group: &[Episode]| -> Vec<Sample> { group.iter().filter_map(Sample::of).collect() };
    let groups = episodes.chunks(4).map(samples).collect();
    let (checks, seconds) = learner.examine_groups(groups).unwrap();
    assert!(seconds.abs() < f64::EPSILON);
    // Their rewards differ, and a policy without training is never right.
    let [only] = checks.as_slice() else {
        panic!("{checks:?}")
    };
    assert!(only.fix.is_some(), "{only:?}");
    for part in ["0 of 3 groups", "3 were dropped by the filter"] {
        assert!(only.found.contains(part), "{only:?}");
    }
}

#[tokio::test]
async fn episodes_are_treated_as_in_a_run() {
    let kinds = "answered out_of_turns out_of_tokens context_full out_of_time malformed";
    let nothing: serde_json::Map<String, Value> = kinds
        .split(' ')
        .map(|kind| (kind.to_owned(), "zero".into()))
        .collect();
    for (endings, is_nothing) in [(json!({}), false), (json!(nothing), true)] {
        let (mut learner, episodes) = played("dapo", "random").await;
        let config = GrpoConfig {
            group_size: 4,
            endings: serde_json::from_value(endings).unwrap(),
            ..GrpoConfig::default()
        };
        let (checks, seconds) = learner.examine(episodes, &config).unwrap();
        let none = checks[0].found.starts_with("0 of 3 groups");
        assert_eq!(none, is_nothing, "{checks:?}");
        // What is not learned from takes no time.
        assert_eq!(seconds > 0.0, !is_nothing);
    }
}

#[tokio::test]
async fn a_sampler_with_other_weights_is_noticed() {
    let shifted = |sample: &mut Sample| {
        for logprob in &mut sample.logprobs {
            *logprob -= 0.5;
        }
    };
    let checks = examined("dapo", "random", shifted).await;
    assert!(!of(&checks, "sampler and trainer").holds, "{checks:?}");
    assert!(!of(&checks, "first ratio").holds, "{checks:?}");
    assert!(of(&checks, "masks").holds, "{checks:?}");
}
