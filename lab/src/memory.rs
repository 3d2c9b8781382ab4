//! The memory of a run: estimated and compared with the machine's before time is spent on it.

use std::path::{Path, PathBuf};

use forage_trainer::device::DeviceSpec;
use forage_trainer::memory::{MemoryEstimate, MemoryPlan, Workload, available, held, peak};
use forage_trainer::{BatchSize, LoraConfig, ModelConfig, Sample, Workers};

use crate::builtin;
use crate::config::Resolved;
use crate::error::{Context, Result, bail};
use crate::policy::hub;

/// Facts about a policy before its weights are read.
pub(crate) struct Start {
    shape: ModelConfig,
    /// The adapter that the folder holds.
    adapter: Option<LoraConfig>,
    /// Bytes of its weight files.
    file_bytes: u64,
}

impl Start {
    /// Reads the policy that a config names. What is on the hub is fetched where `fetch` says so, else it is not known.
    pub(crate) fn of(config: &Resolved, fetch: bool) -> Result<Option<Self>> {
        let name = &config.policy.checkpoint;
        if let Some(shape) = builtin_shape(name)? {
            return Ok(Some(Self {
                shape,
                adapter: None,
                file_bytes: 0,
            }));
        }
        let cannot = || format!("policy {name} cannot be used");
        let place = |name: &str| -> Result<Option<PathBuf>> {
            let here = Path::new(name).is_dir();
            Ok(if here || fetch {
                Some(hub().fetch(name).with_context(cannot)?)
            } else {
                None
            })
        };
        let Some(mut folder) = place(name)? else {
            return Ok(None);
        };
        let mut adapter = None;
        let settings = folder.join("adapter_config.json");
        if settings.exists() && !folder.join("config.json").exists() {
            let found = LoraConfig::from_file(&settings).with_context(cannot)?;
            if let Some(shape) = builtin_shape(&found.base)? {
                return Ok(Some(Self {
                    shape,
                    adapter: Some(found),
                    file_bytes: 0,
                }));
            }
            let Some(base) = place(&found.base)? else {
                return Ok(None);
            };
            (folder, adapter) = (base, Some(found));
        }
        let shape = ModelConfig::from_file(&folder.join("config.json")).with_context(cannot)?;
        Ok(Some(Self {
            shape,
            adapter,
            file_bytes: weight_bytes(&folder),
        }))
    }
}

/// The shape of a policy inside the binary; `None` for other names.
fn builtin_shape(name: &str) -> Result<Option<ModelConfig>> {
    let load =
        |builtin| builtin::load(builtin, &DeviceSpec::Cpu).map(|checkpoint| checkpoint.config);
    name.strip_prefix("builtin:").map(load).transpose()
}

/// Bytes of the weight files of a folder.
fn weight_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let weights = entries.filter(|entry| {
        entry
            .path()
            .extension()
            .is_some_and(|kind| kind == "safetensors")
    });
    weights
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .map(|file| file.len())
        .sum()
}

/// The memory that a run of `config` from `start` takes if its limits are reached; `rollouts` is the file it learns from, if it does not
/// play.
pub(crate) fn of_run(
    config: &Resolved,
    start: &Start,
    rollouts: Option<&Path>,
) -> Result<MemoryEstimate> {
    let window = config.generation().window(&start.shape);
    let update = &config.grpo.update;
    let (longest, episodes) = match rollouts {
        Some(file) => {
            let groups = Sample::read_groups(file, start.shape.vocab_size, window)
                .in_config(format!("--rollouts {}", file.display()))?;
            let lengths = groups
                .iter()
                .flatten()
                .map(|sample| sample.sequence.ids.len());
            (
                lengths.max().unwrap_or(0),
                config.grpo.prompts_per_step * largest_group(&groups),
            )
        }
        None => (
            setting(config, "max_episode_tokens").min(window),
            config.grpo.prompts_per_step * config.grpo.group_size,
        ),
    };
    let (batch, micro_batches) = BatchSize::largest(
        episodes.div_ceil(update.minibatches),
        longest,
        update.micro_batch_tokens,
    );
    let plays = rollouts.is_none() && config.sampler.is_none();
    let played =
        (episodes as u64 * config.grpo.steps + config.data.dev_questions as u64) * longest as u64;
    let played_tokens = if plays {
        usize::try_from(played).unwrap_or(usize::MAX)
    } else {
        0
    };
    Ok(of_work(
        config,
        start,
        Workload {
            batch,
            micro_batches,
            played_tokens,
        },
    ))
}

/// The memory that a run of `config` from `start` takes for this work.
pub(crate) fn of_work(config: &Resolved, start: &Start, work: Workload) -> MemoryEstimate {
    let window = config.generation().window(&start.shape);
    let adapter = config
        .policy
        .lora
        .as_ref()
        .map(|lora| lora.adapter(&config.policy.checkpoint));
    let plan = MemoryPlan {
        model: &start.shape,
        base: config.policy.base.precision(),
        adapter: adapter.as_ref().or(start.adapter.as_ref()),
        reference: config.grpo.update.objective.recipe(window).kl.is_some(),
        file_bytes: start.file_bytes,
        context: window,
        work,
        workers: Workers::micro_batches_at_a_time(config.threads(), &start.shape),
        // Recorded rollouts leave the engine without work, but not without weights in its order.
        engine: config
            .sampler
            .is_none()
            .then(|| config.generation().engine(&start.shape)),
    };
    plan.estimate()
}

fn largest_group<T>(groups: &[Vec<T>]) -> usize {
    groups.iter().map(Vec::len).max().unwrap_or(0)
}

/// A limit of the environment's, where the config sets one.
fn setting(config: &Resolved, key: &str) -> usize {
    let limit = config
        .environment
        .settings
        .get(key)
        .and_then(serde_json::Value::as_u64);
    limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX)
}

const MIB: u64 = 1024 * 1024;

/// Says what a run will take, in one line, and refuses one that cannot fit into this machine's memory. Nothing is compared
/// elsewhere: what a GPU has, its driver knows.
pub(crate) fn check(estimate: &MemoryEstimate, device: DeviceSpec) -> Result<String> {
    let needed = estimate.needed();
    let at = estimate.largest_moment();
    let line = format!(
        "memory: about {} MiB at the peak, in the {at}",
        estimate.peak().div_ceil(MIB)
    );
    let Some(room) = available().filter(|_| device.is_cpu()) else {
        return Ok(line);
    };
    // What this process holds already is part of the estimate.
    let room = room + held().unwrap_or(0);
    if needed <= room {
        return Ok(format!("{line}; {} MiB are available", room / MIB));
    }
    let what = estimate.advice();
    bail!(
        "the run needs about {} MiB of memory in the {at} and {} MiB are available; {what}; --dry-run shows all parts",
        needed.div_ceil(MIB),
        room / MIB
    )
}

/// The estimate beside the truth, for the end of a run; `then` is what the work that there was takes by the same arithmetic.
pub(crate) fn outcome(estimated: &MemoryEstimate, then: Option<&MemoryEstimate>) -> Option<String> {
    let [found, limits] = [peak()?, estimated.peak()].map(|bytes| bytes / MIB);
    let then = then
        .map(|then| format!(", {} for the episodes there were", then.peak() / MIB))
        .unwrap_or_default();
    Some(format!(
        "peak memory {found} MiB; {limits} MiB were estimated{then}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    #[test]
    fn a_run_that_cannot_fit_is_refused_with_the_fix() {
        let text = include_str!("../../configs/quickstart.toml");
        let of = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
            let config = RunConfig::parse(text, &overrides).unwrap();
            let config = config.resolve(None).unwrap();
            of_run(&config, &Start::of(&config, false).unwrap().unwrap(), None).unwrap()
        };
        let small = of(&[]);
        assert!(
            check(&small, DeviceSpec::Cpu)
                .unwrap()
                .starts_with("memory: about")
        );
        assert!(small.table().contains("moments of AdamW"));
        let large = of(&["engine.cache_mib=100000000", "grpo.steps=100000000"]);
        if available().is_some() {
            let error = check(&large, DeviceSpec::Cpu).unwrap_err().to_string();
            assert!(
                error.contains("key-value cache") && error.contains("engine.cache_mib"),
                "{error}"
            );
        }
        assert!(check(&large, DeviceSpec::Cuda(0)).is_ok());
    }
}
