//! Times by data sheets: those of the scripts, of types, of ranks, and what is said of them.

use super::*;
use crate::config::RunConfig;

fn of(name: &str, overrides: &[&str]) -> (Times, Times) {
    of_ranks([1, 1], name, overrides)
}

/// The times of so many ranks, of which so many are in each process.
fn of_ranks([ranks, here]: [usize; 2], name: &str, overrides: &[&str]) -> (Times, Times) {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
    let config = RunConfig::parse(text, &overrides).unwrap();
    let config = config.resolve(None).unwrap();
    let start = Start::published(name).by_ranks(ranks);
    let Sheets { assumed, cards } = sheets().unwrap();
    let work = work(&config, &start, here, &assumed);
    let on = |name: &str| {
        let card = cards.iter().find(|card| card.name == name).unwrap();
        work.on(card, &assumed)
    };
    (on("H100"), on("H200"))
}

#[test]
fn the_times_are_those_of_the_types_that_are_computed_in() {
    let updates = ["grpo.update.dtype=f32"];
    let (half, _) = of("Qwen2.5-3B", &[]);
    let (full, _) = of("Qwen2.5-3B", &updates);
    // 989 Tflop/s in bf16, 67 in f32.
    near(full.update, 272.4 * 989.0 / 67.0 + 0.3);
    near(full.rollouts, half.rollouts);
    let (full, _) = of("Qwen2.5-3B", &["engine.dtype=f32"]);
    assert!(full.rollouts > 2.0 * half.rollouts);
    near(full.update, half.update);
    near(full.push, half.push * 8.0 / 6.0);
    let small = ["grpo.update.optimizer.moments_in_8_bits=true"];
    let (small, _) = of("Qwen2.5-3B", &small);
    assert!(small.update < half.update && small.update > half.update - 0.2);
    // A sequence alone reads layers of half as many bytes, and the same head.
    let tail = |base: &str| {
        let keys = [base, "policy.lora.rank=16", "policy.lora.alpha=32"];
        of("Qwen2.5-7B", &keys).0.tail
    };
    let part = tail("policy.base=int8") / tail("policy.base=bf16");
    assert!(part > 0.5 && part < 0.7, "{part}");
}

fn near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() < 0.01 * expected,
        "{found} {expected}"
    );
}

/// The first rows of `bench/gpu/scale.py` for Qwen2.5-3B on an H100 and for 7B on an H200.
#[test]
fn the_times_are_those_of_the_scripts() {
    let (small, _) = of("Qwen2.5-3B", &[]);
    near(small.rollouts, 27.3 + 39.6);
    near(small.update, 272.4 + 0.3);
    let (_, large) = of("Qwen2.5-7B", &[]);
    near(large.rollouts, 47.5 + 96.1);
    near(large.update, 661.7 + 0.5);
}

/// Rows for eight GPUs; what travels between them by links in the script does so by the way that the ranks have.
#[test]
fn several_ranks_share_the_work_and_sum_what_they_learned() {
    let gradient = 3.086e9 * FULL;
    let sharded = ["grpo.update.optimizer.sharded=true"];
    let cases: [(usize, &[&str], f64, f64); 3] = [
        // Over links of 450 GB/s.
        (8, &[], 2.0 * 7.0 / 8.0 * gradient / 450e9, 0.28),
        (1, &[], 2.0 * gradient / 1e9, 0.28),
        (1, &sharded, (2.0 + 7.0 / 8.0) * gradient / 1e9, 0.03),
    ];
    for (here, keys, sum, optimizer) in cases {
        let (times, _) = of_ranks([8, here], "Qwen2.5-3B", keys);
        near(times.rollouts, 4.58 + 4.95);
        near(times.update, 34.06 + optimizer);
        near(times.sums, 10.0 * sum);
        near(times.step(0.0), times.rollouts + times.update + times.sums);
    }
    let (two, _) = of_ranks([2, 1], "Qwen2.5-3B", &[]);
    near(two.sums, 10.0 * gradient / 1e9);
    // Of one there is nothing to say, sharded or not.
    let both: [&[&str]; 2] = [&[], &sharded];
    for keys in both {
        let (alone, _) = of("Qwen2.5-3B", keys);
        assert!(alone.sums.abs() < 1e-9, "{alone:?}");
    }
}

#[test]
fn a_plan_of_several_ranks_has_a_column_for_their_sums() {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let config = RunConfig::parse(text, &[]).unwrap();
    let config = config.resolve(None).unwrap();
    let of = |ranks: usize, here: usize| {
        let start = Start::published("Qwen2.5-3B").by_ranks(ranks);
        table(&config, &start, here).unwrap()
    };
    let alone = of(1, 1);
    assert!(alone.contains("on one GPU"), "{alone}");
    assert!(!alone.contains("sums"), "{alone}");
    let links = of(8, 8);
    assert!(
        links.contains("on 8 GPUs") && links.contains(" sums "),
        "{links}"
    );
    assert!(links.ends_with("gradients by NCCL"), "{links}");
    let apart = of(8, 1);
    assert!(apart.contains("the sums take most"), "{apart}");
    assert!(
        apart.ends_with("over TCP; TCP at 1 GB/s, which is assumed"),
        "{apart}"
    );
}

/// Their memory, GB: with a quarter of the cache and a sharded optimizer, and as the recipe is.
#[test]
fn the_memory_is_that_of_the_scripts() {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let held = |name: &str, ranks: usize, overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::parse(text, &overrides).unwrap();
        let config = config.resolve(None).unwrap();
        let start = Start::published(name).by_ranks(ranks);
        let estimate = memory::of_run(&config, &start, None).unwrap();
        estimate.memory.needed() as f64 / 1e9
    };
    let sharded = [
        "engine.cache_mib=8192",
        "grpo.update.optimizer.sharded=true",
    ];
    near(held("Qwen2.5-3B", 4, &sharded), 73.0);
    near(held("Qwen2.5-3B", 64, &sharded), 67.0);
    near(held("Qwen2.5-7B", 1, &[]), 232.0);
}

#[test]
fn cards_that_do_not_hold_the_run_say_so() {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let config = RunConfig::parse(text, &[]).unwrap();
    let config = config.resolve(None).unwrap();
    let found = table(&config, &Start::published("Qwen2.5-3B"), 1).unwrap();
    let line = |card: &str| {
        let begins = format!("# {card} ");
        let line = found.lines().find(|line| line.starts_with(&begins));
        line.unwrap().to_owned()
    };
    for (card, small) in [
        ("RTX 4090", Some("24 GB")),
        ("L40S", Some("48 GB")),
        ("H100", Some("80 GB")),
        ("H200", None),
    ] {
        let words = line(card);
        let told = small.map(|size| format!("; {size} do not hold it"));
        assert_eq!(words.contains("not hold"), told.is_some(), "{words}");
        assert!(told.is_none_or(|told| words.ends_with(&told)), "{words}");
    }
}

#[test]
fn the_tokens_of_an_episode_say_where_they_are_from() {
    let Sheets { assumed, .. } = sheets().unwrap();
    let usual = assumed.usual();
    assert_eq!(
        assumed.origin(usual),
        "280 of the prompt, 3 turns of 120, 450 after each search"
    );
    near(usual, 280.0 + 3.0 * 120.0 + 2.0 * 450.0);
    assert_eq!(
        assumed.origin(usual - 1.0),
        "all that the config's limits allow"
    );
}

#[test]
fn the_tokens_of_an_episode_follow_its_turns_and_passages() {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let told = |key: &str, value: &str| {
        let key = format!("environment.settings.{key}={value}");
        let config = RunConfig::parse(text, &[key]).unwrap();
        let config = config.resolve(None).unwrap();
        table(&config, &Start::published("Qwen2.5-3B"), 1).unwrap()
    };
    for (key, value, origin) in [
        ("max_generations", "8", "3 turns of 120, 450 after each"),
        ("max_generations", "2", "2 turns of 120, 450 after each"),
        ("max_turn_tokens", "50", "3 turns of 50, 450 after each"),
        ("top_k", "1", "3 turns of 120, 150 after each"),
        ("top_k", "9", "3 turns of 120, 500 after each"),
    ] {
        let told = told(key, value);
        assert!(told.contains(origin), "{key}: {told}");
    }
    // A policy that answers its own searches takes one turn for them all.
    let Sheets { assumed, .. } = sheets().unwrap();
    let own = serde_json::json!({"searcher": "policy", "max_generations": 1});
    near(assumed.within(&own).usual(), 1540.0);
}

#[test]
fn what_overlaps_waits_for_the_longer_one() {
    let times = Times {
        rollouts: 3.0,
        tail: 2.0,
        update: 5.0,
        sums: 0.0,
        push: 1.0,
    };
    near(times.step(0.0), 9.0);
    near(times.step(1.0), 6.0);
    near(times.step(3.0), 6.0);
    // Of two batches in play one decodes beside the other's longest turn, and of more none has less than its own bulk.
    let slower = Times {
        rollouts: 9.0,
        tail: 6.0,
        update: 2.0,
        sums: 0.0,
        push: 1.0,
    };
    for (ahead, step) in [(1.0, 10.0), (2.0, 5.5), (3.0, 4.0), (9.0, 4.0)] {
        near(slower.step(ahead), step);
    }
    let adapter = [
        "policy.base=bf16",
        "policy.lora.rank=16",
        "policy.lora.alpha=32",
    ];
    let ((full, _), (adapted, _)) = (of("Qwen2.5-3B", &[]), of("Qwen2.5-3B", &adapter));
    assert!(adapted.update < full.update && adapted.push < full.push);
    // A critic runs as often as the policy, without the vocabulary's head.
    let [alone, beside] = ["reinforce_pp", "ppo"].map(|algorithm| {
        let objective = format!("grpo.update.objective={{ algorithm = \"{algorithm}\" }}");
        of("Qwen2.5-3B", &[&objective]).0.update
    });
    assert!(
        beside > 1.7 * alone && beside < 2.0 * alone,
        "{beside} {alone}"
    );
    // Twice as many rows that decode at a time read the weights half as often.
    let (few, _) = of("Qwen2.5-3B", &["engine.sequences=64"]);
    assert!(few.rollouts > full.rollouts);
}

#[test]
fn a_run_takes_its_steps() {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let config = RunConfig::parse(text, &["grpo.steps=1000".to_owned()]).unwrap();
    let config = config.resolve(None).unwrap();
    let table = table(&config, &Start::published("Qwen2.5-3B"), 1).unwrap();
    let card = table
        .lines()
        .find(|line| line.starts_with("# H200"))
        .unwrap();
    let numbers: Vec<f64> = card
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .take(5)
        .collect();
    let [rollouts, update, _, step, run] = numbers[..] else {
        panic!("{card}")
    };
    near(rollouts + update, step);
    near(run, step * 1000.0 / 3600.0);
}
