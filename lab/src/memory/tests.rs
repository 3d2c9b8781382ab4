//! What fits, by estimates of published shapes and of the built-in policies.

use super::*;
use crate::config::RunConfig;

#[test]
fn a_run_that_cannot_fit_is_refused_with_the_fix() {
    let text = include_str!("../../../configs/quickstart.toml");
    let of = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::parse(text, &overrides).unwrap();
        let config = config.resolve(None).unwrap();
        of_run(&config, &Start::of(&config, false).unwrap().unwrap(), None).unwrap()
    };
    let small = of(&[]);
    assert!(check(&small, 1).unwrap().starts_with("memory: about"));
    assert!(table(&small, 1).contains("moments of AdamW"));
    // A policy this small is kept whole on any machine.
    assert!(table(&small, 1).contains("# activations of 4 of 4 layers are kept"));
    let large = of(&["engine.cache_mib=1000000", "grpo.steps=100000000"]);
    if available().is_some() {
        let error = check(&large, 1).unwrap_err().to_string();
        assert!(
            error.contains("key-value cache") && error.contains("engine.cache_mib"),
            "{error}"
        );
        let lack = table(&large, 1);
        assert!(
            lack.contains("\n# of this machine: the run needs"),
            "{lack}"
        );
        // Each rank of the process takes as much.
        let error = check(&small, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("--dry-run shows all parts"), "{error}");
    }
}

#[test]
fn a_peak_above_the_estimate_says_what_is_not_counted() {
    let uncounted = |found| peak_words(found, 381, "").contains("no indexes and no pages");
    assert!(uncounted(1081) && !uncounted(381));
}

#[test]
fn programs_are_counted_where_episodes_run_some() {
    let of = |text: &str, overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::parse(text, &overrides).unwrap();
        let config = config.resolve(None).unwrap();
        let start = Start::of(&config, false).unwrap().unwrap();
        let estimate = of_run(&config, &start, None).unwrap();
        (table(&estimate, 1), estimate.memory.peak() / MIB)
    };
    let code = include_str!("../../../configs/quickstart-code.toml");
    let small = "environment.settings.limits.total_mib=342";
    let (few, low) = of(code, &[small]);
    let (many, high) = of(code, &["environment.settings.limits.total_mib=1366"]);
    assert!(
        few.contains("48.0  programs in the sandbox")
            && many.contains("156.0  programs in the sandbox"),
        "{few}\n{many}"
    );
    assert!(low < high, "{low} {high}");
    let (plain, _) = of(include_str!("../../../configs/quickstart.toml"), &[]);
    assert!(!plain.contains("sandbox"), "{plain}");
}

#[test]
fn ranks_keep_activations_in_a_share_of_what_is_free() {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let config = RunConfig::parse(text, &["device=\"cpu\"".to_owned()]).unwrap();
    let config = config.resolve(None).unwrap();
    let kept = |ranks: usize| {
        let start = Start::published("Qwen2.5-3B").by_ranks(ranks);
        let estimate = of_run_beside(&config, &start, None, Some(1 << 44));
        let table = table(&estimate.unwrap(), 1);
        let all = table.contains("# activations of 36 of 36 layers are kept");
        let none = table.contains("# activations of 0 of 36 layers are kept");
        assert!(all || none, "{table}");
        all
    };
    assert!(kept(1) && !kept(1 << 12));
}

#[test]
fn ranks_share_moments_where_the_config_says_so() {
    let text = include_str!("../../../configs/quickstart.toml");
    let needed = |sharded: bool, ranks: usize| {
        let key = format!("grpo.update.optimizer.sharded={sharded}");
        let config = RunConfig::parse(text, &[key]).unwrap();
        let config = config.resolve(None).unwrap();
        let start = Start::of(&config, false).unwrap().unwrap();
        let estimate = of_run(&config, &start.by_ranks(ranks), None).unwrap();
        estimate.memory.needed()
    };
    assert_eq!(needed(false, 1), needed(true, 1));
    // The first of several holds weights and moments of before a step too.
    assert!(needed(false, 1) < needed(false, 2));
    assert_eq!(needed(false, 2), needed(false, 4));
    assert!(needed(true, 4) < needed(true, 2));
    assert!(needed(true, 2) < needed(true, 1));
}

#[test]
fn a_card_is_named_that_holds_the_run() {
    let of = |name: &str, overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
        let config = RunConfig::parse(text, &overrides).unwrap();
        let config = config.resolve(None).unwrap();
        of_run(&config, &Start::published(name), None).unwrap()
    };
    let full = of("Qwen2.5-3B", &["engine.cache_mib=16384"]);
    assert!(table(&full, 1).contains("copy of the weights in bf16"));
    let lines = check(&full, 1).unwrap();
    assert!(lines.contains("a card of 141 GB holds it"), "{lines}");
    let warning = |size: u64| too_small(&full.memory, DeviceSpec::Cuda(1), size * GB);
    let words = warning(80).unwrap();
    for part in ["[policy.lora]", "and cuda:1 has 76293 MiB for it"] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(warning(141), None);
    // The recipe's own cache leaves no room for activations, and half of it some.
    let none = "# activations of 0 of 36 layers are kept";
    assert!(table(&of("Qwen2.5-3B", &[]), 1).contains(none));
    assert!(!table(&full, 1).contains(none));
    // This cache is larger than what is left.
    let lines = check(&of("Qwen2.5-3B", &["engine.cache_mib=65536"]), 1).unwrap();
    assert!(lines.contains("engine.cache_mib"), "{lines}");
    let adapted = [
        "policy.base=bf16",
        "policy.lora.rank=16",
        "policy.lora.alpha=32",
    ];
    let lines = check(&of("Qwen2.5-7B", &adapted), 1).unwrap();
    assert!(
        lines.contains("holds it") && !lines.contains("no card"),
        "{lines}"
    );
    let lines = check(&of("Qwen2.5-7B", &[]), 1).unwrap();
    assert!(lines.contains("no card of up to 141 GB"), "{lines}");
}

#[test]
fn long_episodes_of_a_7b_with_an_adapter_fit_a_card_of_80_gb() {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let holds = |tokens: usize, cache_mib: usize, size: u64| {
        let mut keys = ["base=bf16", "lora.rank=16", "lora.alpha=32"]
            .map(|key| format!("policy.{key}"))
            .to_vec();
        keys.push(format!("engine.context_tokens={tokens}"));
        keys.push(format!("environment.settings.max_episode_tokens={tokens}"));
        keys.push(format!("engine.cache_mib={cache_mib}"));
        let config = RunConfig::parse(text, &keys).unwrap();
        let config = config.resolve(None).unwrap();
        let start = Start::published("Qwen2.5-7B");
        assert_eq!(longest(&config, &start), tokens);
        fits(&config, &start, size).unwrap()
    };
    assert!(holds(16_384, 32_768, 80));
    assert!(holds(32_768, 16_384, 80));
    assert!(!holds(32_768, 32_768, 48));
}

#[test]
fn episodes_are_as_long_as_the_environment_lets_them_be() {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let of = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let config = RunConfig::parse(text, &overrides).unwrap();
        let config = config.resolve(None).unwrap();
        longest(&config, &Start::published("Qwen2.5-3B"))
    };
    // The limit is the profile's, which the config does not write.
    assert_eq!(of(&[]), 4596);
    assert_eq!(of(&["engine.context_tokens=4000"]), 4000);
    assert_eq!(of(&["environment.settings.max_episode_tokens=3000"]), 3000);
}

#[test]
fn micro_batches_that_kernels_of_a_gpu_cannot_count_are_refused() {
    let text = include_str!("../../../configs/recipes/search_r1_v02.toml");
    let checked = |tokens: usize, device: &str| {
        let keys = [
            format!("grpo.update.micro_batch_tokens={tokens}"),
            format!("device=\"{device}\""),
        ];
        let config = RunConfig::parse(text, &keys).unwrap();
        let config = config.resolve(None).unwrap();
        let estimate = of_run(&config, &Start::published("Qwen2.5-7B"), None).unwrap();
        (check(&estimate, 1), table(&estimate, 1))
    };
    // Gate and up of a token are 37,888 numbers.
    let (line, _) = checked(113_359, "cuda:0");
    assert!(line.is_ok());
    let (refusal, table) = checked(113_360, "cuda:0");
    let error = refusal.unwrap_err().to_string();
    for part in ["113360 tokens", "take 113359", "micro_batch_tokens"] {
        assert!(
            error.contains(part) && table.contains(part),
            "{error}\n{table}"
        );
    }
    let (_, table) = checked(113_360, "cpu");
    assert!(!table.contains("take 113359"), "{table}");
}
