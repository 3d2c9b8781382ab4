//! Which keys make a run fit the cards there are: what `forage train --dry-run` prints as `--set` arguments.
//!
//! What costs least goes first: a smaller cache (episodes wait, or are run again), smaller micro-batches (more launches), moments that
//! several ranks share (more to send, and a lost rank takes its own along), moments of 8 bits (rounded), an adapter on a base in bf16
//! (another algorithm: fewer weights learn), the same on a base of 8 bits.

use forage_trainer::AdamWConfig;
use forage_trainer::device::ComputeType;

use crate::config::{Base, Resolved, RunConfig};
use crate::error::Result;
use crate::lint::is_of_whole_models;
use crate::memory::{self, CARDS, Start};

/// Parts of the cache and of a micro-batch that are tried, in order.
const PARTS: [(usize, usize); 6] = [(1, 1), (2, 1), (4, 1), (4, 2), (8, 4), (16, 8)];

/// A line for each size of card, as comments of a plan.
pub(crate) fn table(config: &Resolved, start: &Start) -> Result<String> {
    let text = config.to_toml()?;
    let mut tried = Vec::new();
    for keys in changes(config, start) {
        // A cache may be too small for an episode.
        let changed = RunConfig::parse(&text, &keys).and_then(|config| config.resolve(None));
        if let Ok(changed) = changed {
            tried.push((keys, changed));
        }
    }
    let mut lines = vec!["# keys that make it fit:".to_owned()];
    let mut adapts = false;
    for size in CARDS {
        let mut found = None;
        for (keys, changed) in &tried {
            if memory::fits(changed, start, size)? {
                found = Some(keys);
                break;
            }
        }
        lines.push(match found {
            Some(keys) if keys.is_empty() => format!("# {size:>4} GB: fits as it is"),
            Some(keys) => format!("# {size:>4} GB: --set {}", keys.join(" --set ")),
            None => format!("# {size:>4} GB: too small for this model with these lengths"),
        });
        adapts |= found.is_some_and(|keys| keys.iter().any(|key| key.starts_with(RANK)));
    }
    if adapts {
        lines.push(format!(
            "# an adapter learns at a higher rate than all weights, usually 1e-4, and after a short warm-up: {RATE}, {WARM_UP}"
        ));
    }
    Ok(lines.join("\n"))
}

/// The key that makes an adapter.
const RANK: &str = "policy.lora.rank";

/// The key of the rate, which an adapter needs higher.
const RATE: &str = "grpo.update.optimizer.learning_rate";

/// The key of the steps in which the rate rises: an adapter has no use for the many that published runs of whole models take.
const WARM_UP: &str = "grpo.update.optimizer.warmup_steps";

/// The key with which ranks share moments.
const SHARDED: &str = "grpo.update.optimizer.sharded";

/// The key that makes moments small.
const IN_8_BITS: &str = "grpo.update.optimizer.moments_in_8_bits";

/// Sets of keys, those that cost least first.
fn changes(config: &Resolved, start: &Start) -> Vec<Vec<String>> {
    let of_base = |name: &str| {
        let mut keys = vec![format!("policy.base={name}")];
        // The engine computes with such a base in bf16 alone.
        if config.engine.dtype == Some(ComputeType::F32) {
            keys.push("engine.dtype=bf16".to_owned());
        }
        keys
    };
    let adapter = |name: &str| {
        let mut keys = of_base(name);
        keys.extend([format!("{RANK}=16"), "policy.lora.alpha=32".to_owned()]);
        let optimizer = &config.grpo.update.optimizer;
        if is_of_whole_models(optimizer.learning_rate) {
            keys.push(format!("{RATE}=1e-4"));
            let usual = AdamWConfig::default().warmup_steps;
            if optimizer.warmup_steps > usual {
                keys.push(format!("{WARM_UP}={usual}"));
            }
        }
        keys
    };
    let adapted = config.policy.lora.is_some() || start.is_adapted();
    let mut bases = match (adapted, config.policy.base) {
        (false, _) => vec![Vec::new(), adapter("bf16"), adapter("int8")],
        (true, Base::F32) => vec![Vec::new(), of_base("bf16"), of_base("int8")],
        (true, Base::Bf16) => vec![Vec::new(), of_base("int8")],
        (true, Base::Int8) => vec![Vec::new()],
    };
    // The moments of an adapter are small.
    let optimizer = &config.grpo.update.optimizer;
    if !adapted && !optimizer.moments_in_8_bits {
        bases.insert(1, vec![format!("{IN_8_BITS}=true")]);
    }
    if !adapted && start.ranks() > 1 && !optimizer.sharded {
        bases.insert(1, vec![format!("{SHARDED}=true")]);
    }
    let longest = memory::longest(config, start);
    let (cache, tokens) = (
        config.engine.cache_mib,
        config.grpo.update.micro_batch_tokens,
    );
    let mut all = Vec::new();
    for base in bases {
        for (of_cache, of_tokens) in PARTS {
            let mut keys = base.clone();
            if config.sampler.is_none() && of_cache > 1 {
                keys.push(format!("engine.cache_mib={}", cache / of_cache));
            }
            // A longer episode is a micro-batch of its own.
            let fewer = (tokens / of_tokens).max(longest.min(tokens));
            if fewer < tokens {
                keys.push(format!("grpo.update.micro_batch_tokens={fewer}"));
            }
            all.push(keys);
        }
    }
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_are_named_make_it_fit() {
        let text = include_str!("../../configs/recipes/search_r1_v02.toml");
        let config = |keys: &[String]| {
            // Twice the cache that the recipe has.
            let mut all = vec!["engine.cache_mib=65536".to_owned()];
            all.extend_from_slice(keys);
            let config = RunConfig::parse(text, &all).unwrap();
            config.resolve(None).unwrap()
        };
        let start = Start::published("Qwen2.5-3B");
        let found = table(&config(&[]), &start).unwrap();
        assert!(
            found.contains("141 GB: --set engine.cache_mib=32768\n"),
            "{found}"
        );
        let rate = format!("{RATE}=1e-4");
        let sizes = CARDS.iter().zip(found.lines().skip(1));
        for (&size, line) in sizes {
            let keys: Vec<String> = line
                .split(" --set ")
                .skip(1)
                .map(ToOwned::to_owned)
                .collect();
            assert!(!keys.is_empty(), "{line}");
            assert!(
                memory::fits(&config(&keys), &start, size).unwrap(),
                "{line}"
            );
            assert_eq!(size < 80, line.contains("policy.base"), "{line}");
            assert_eq!(size < 80, line.contains(&rate), "{line}");
            let warm_up = format!("{WARM_UP}=10 ");
            assert_eq!(size < 80, line.contains(&warm_up), "{line}");
            assert_eq!(size == 80, line.contains(IN_8_BITS), "{line}");
        }
        // An adapter of a larger model fits the smallest card.
        let adapter = [
            "policy.base=bf16",
            "policy.lora.rank=16",
            "policy.lora.alpha=32",
            "engine.cache_mib=32768",
        ];
        let adapter = adapter.map(ToOwned::to_owned);
        let large = Start::published("Qwen2.5-7B");
        let found = table(&config(&adapter), &large).unwrap();
        assert!(
            found.contains(" 24 GB: --set policy.base=int8 --set engine.cache_mib=2048 "),
            "{found}"
        );
        // With the engine's type in f32, as older cards have it.
        let full = [&adapter[1..], &["engine.dtype=f32".to_owned()]].concat();
        let found = table(&config(&full), &large).unwrap();
        let keys =
            " 24 GB: --set policy.base=int8 --set engine.dtype=bf16 --set engine.cache_mib=2048 ";
        assert!(found.contains(keys), "{found}");
        // More tokens than kernels count are lowered on every card.
        let many = [
            &adapter[..],
            &["grpo.update.micro_batch_tokens=113360".to_owned()],
        ]
        .concat();
        let found = table(&config(&many), &large).unwrap();
        assert!(!found.contains(" GB: fits as it is"), "{found}");
        for line in found.lines().filter(|line| line.contains(" --set ")) {
            assert!(line.contains("micro_batch_tokens="), "{line}");
        }
        // A cache in which the longest episode has no room fits nothing.
        for (cache, fits) in [(1024, true), (128, false)] {
            let keys = [&adapter[..], &[format!("engine.cache_mib={cache}")]].concat();
            assert_eq!(memory::fits(&config(&keys), &large, 141).unwrap(), fits);
        }
        // Eight ranks that share the moments fit a smaller card with all weights.
        let found = table(&config(&[]), &start.by_ranks(8)).unwrap();
        let shared = format!(" 80 GB: --set {SHARDED}=true --set engine.cache_mib=8192 ");
        assert!(found.contains(&shared), "{found}");
        // With the keys of a card, none is named for it; but the first of several ranks that keep all moments holds them twice.
        let keys = ["engine.cache_mib=32768".to_owned()];
        for (ranks, fits) in [(1, true), (2, false)] {
            let start = Start::published("Qwen2.5-3B").by_ranks(ranks);
            let found = table(&config(&keys), &start).unwrap();
            assert_eq!(found.contains("141 GB: fits as it is"), fits, "{found}");
        }
    }
}
