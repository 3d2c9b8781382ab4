//! The memory of a run: estimated and compared with the machine's before time is spent on it.

mod start;

pub(crate) use start::Start;

use std::path::Path;

use forage_trainer::device::{ComputeType, DeviceSpec};
use forage_trainer::memory::{MemoryEstimate, MemoryPlan, Workload, available, held, peak};
use forage_trainer::{BatchSize, Checkpoint, ModelConfig, Sample, Workers};

use crate::config::Resolved;
use crate::error::{Context, Result, bail};

/// The memory that a run of `config` from `start` takes if its limits are reached; `rollouts` is the file it learns from, if it does not
/// play.
pub(crate) fn of_run(
    config: &Resolved,
    start: &Start,
    rollouts: Option<&Path>,
) -> Result<Estimate> {
    of_run_beside(config, start, rollouts, available())
}

/// The same where so many bytes are free, of which the ranks have a share each.
fn of_run_beside(
    config: &Resolved,
    start: &Start,
    rollouts: Option<&Path>,
    free: Option<u64>,
) -> Result<Estimate> {
    let work = work_of(config, start, rollouts)?;
    let share = |free: u64| free / start.ranks.max(1) as u64 + held().unwrap_or(0);
    let room = free.map_or(0, share);
    Ok(planned(config, start, work, |plan| {
        estimate(&plan.filling(room), config.device)
    }))
}

/// Bytes of activations of a micro-batch that a run beginning now at these weights keeps, and a warning where its GPU is too small for it;
/// `runs` of this process and `processes`, both counting itself, share the memory.
pub(crate) fn kept_bytes(
    config: &Resolved,
    start: &Checkpoint,
    rollouts: Option<&Path>,
    [runs, processes]: [usize; 2],
) -> Result<(usize, Option<String>)> {
    let device = start.decoder.device();
    let start = Start {
        shape: start.config.clone(),
        adapter: start.lora.clone(),
        file_bytes: 0,
        ranks: processes,
    };
    let work = work_of(config, &start, rollouts)?;
    Ok(planned(config, &start, work, |plan| {
        let plan = plan.on(&device, runs, processes);
        // Other drivers than these need not say how much there is.
        let card = plan.card_bytes.filter(|_| config.device.is_cuda_or_rocm());
        let own = card.map(|bytes| bytes / runs as u64);
        let small = own.and_then(|bytes| too_small(&plan.estimate(), config.device, bytes));
        (plan.work.kept_bytes, small)
    }))
}

/// A warning where so many bytes of a GPU, its share, do not hold a run. No refusal, since episodes are mostly shorter than estimated.
fn too_small(memory: &MemoryEstimate, device: DeviceSpec, bytes: u64) -> Option<String> {
    let (needed, at) = (memory.needed(), memory.largest_moment());
    (needed > bytes).then(|| {
        format!(
            "warning: the run needs about {} MiB in the {at}, and {device} has {} MiB for it; {}; --dry-run names keys that make it fit",
            needed.div_ceil(MIB),
            bytes / MIB,
            memory.advice()
        )
    })
}

/// Tokens of the longest episode that a run may play.
pub(crate) fn longest(config: &Resolved, start: &Start) -> usize {
    let window = config.generation().window(&start.shape);
    // Settings that cannot be read were refused with the config.
    let limit = config.environment.longest().ok().flatten();
    limit.map_or(window, |limit| limit.min(window))
}

/// Weights that learn.
pub(crate) fn trained(config: &Resolved, start: &Start) -> usize {
    planned(config, start, Workload::default(), |plan| plan.trained())
}

/// Bytes on the disk of a checkpoint of a run, and of its policy at the end.
pub(crate) fn saved_bytes(config: &Resolved, start: &Start) -> [u64; 2] {
    planned(config, start, Workload::default(), |plan| {
        plan.saved_bytes()
    })
}

/// Tells whether a run that plays can begin on a card of so many GB: the card holds it, its kernels can count a micro-batch, and the cache
/// has room for the longest episode.
pub(crate) fn fits(config: &Resolved, start: &Start, size: u64) -> Result<bool> {
    let work = work_of(config, start, None)?;
    let countable = work.batch.tokens <= most_tokens(&start.shape);
    let cached = config
        .generation()
        .engine(&start.shape)
        .window(&start.shape);
    let playable = config.sampler.is_some() || longest(config, start) <= cached;
    let holds = planned(config, start, work, |plan| {
        on_card(&plan, size).place != Place::NoCard
    });
    Ok(holds && countable && playable)
}

/// The most work that the limits of a run allow.
fn work_of(config: &Resolved, start: &Start, rollouts: Option<&Path>) -> Result<Workload> {
    let window = config.generation().window(&start.shape);
    let update = &config.grpo.update;
    let (longest, episodes) = match rollouts {
        Some(file) => {
            let groups = Sample::read_groups(file, start.shape.vocab_size, window, None)
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
            longest(config, start),
            config.grpo.prompts_per_step * config.grpo.group_size,
        ),
    };
    let (batch, micro_batches) = BatchSize::largest(
        episodes.div_ceil(update.minibatches),
        longest,
        update.micro_batch_tokens,
    );
    let plays = rollouts.is_none() && config.sampler.is_none();
    let validated = config.data.counts()[1] as u64;
    let played = (episodes as u64 * config.grpo.steps)
        .saturating_add(validated)
        .saturating_mul(longest as u64);
    let played_tokens = if plays {
        usize::try_from(played).unwrap_or(usize::MAX)
    } else {
        0
    };
    Ok(Workload {
        batch,
        micro_batches,
        played_tokens,
        ..Workload::default()
    })
}

/// The memory that a run of `config` from `start` takes for this work.
pub(crate) fn of_work(config: &Resolved, start: &Start, work: Workload) -> Estimate {
    planned(config, start, work, |plan| estimate(&plan, config.device))
}

/// Hands the plan of this work to `then`.
fn planned<T>(
    config: &Resolved,
    start: &Start,
    work: Workload,
    then: impl FnOnce(MemoryPlan<'_>) -> T,
) -> T {
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
        reference: config
            .grpo
            .update
            .objective
            .recipe(window)
            .needs_reference(),
        file_bytes: start.file_bytes,
        context: window,
        work,
        workers: Workers::micro_batches_at_a_time(config.threads(), &start.shape),
        // Recorded rollouts leave the engine without work, but not without weights in its order.
        engine: config
            .sampler
            .is_none()
            .then(|| config.generation().engine(&start.shape)),
        // Recorded rollouts need the newest weights alone.
        versions: if work.played_tokens > 0 {
            config.grpo.lookahead.min(config.grpo.steps).max(1) as usize
        } else {
            1
        },
        card_bytes: None,
        in_bf16: config.grpo.update.dtype == Some(ComputeType::Bf16),
        moments_in_8_bits: config.grpo.update.optimizer.moments_in_8_bits,
        ranks: start.ranks,
        sharded: config.grpo.update.optimizer.sharded,
        updates: config.grpo.update.minibatches * config.grpo.update.epochs,
        critic: config.grpo.update.has_critic(),
        programs: programs(config, work),
    };
    then(plan)
}

/// Memory of the interpreter that programs run in, bytes: see [`OF_PROGRAM`].
const OF_INTERPRETER: u64 = 12 * MIB;
/// Memory of a program, with the instance that waits for the next one, bytes: the peak of `forage eval quickstart-code --policy oracle`
/// with room for 2 to 31 programs at a time, less that of `forage eval quickstart`, which runs none, was 41 to 484 MiB.
const OF_PROGRAM: u64 = 18 * MIB;
/// Most programs at a time that are counted: they take milliseconds, and with room for 63 the same peak was that of 36.
const PROGRAMS_AT_A_TIME: u64 = 40;

/// Bytes of the programs that episodes run, where the environment has limits for their memory: of as many as their budget has room for.
fn programs(config: &Resolved, work: Workload) -> usize {
    let plays = work.played_tokens > 0 || config.sampler.is_some();
    let settings = config.environment.resolved().ok().filter(|_| plays);
    let mib = |key: &str| {
        settings
            .as_ref()?
            .settings
            .get("limits")?
            .get(key)?
            .as_u64()
    };
    let Some(limit) = mib("memory_mib").filter(|&limit| limit > 0) else {
        return 0;
    };
    let shared = mib("total_mib").or_else(|| Some(available()? / MIB / 4));
    let room = shared.map_or(PROGRAMS_AT_A_TIME, |shared| shared * 3 / 4 / limit);
    let episodes = (config.grpo.prompts_per_step * config.grpo.group_size) as u64;
    let at_a_time = room.max(1).min(episodes).min(PROGRAMS_AT_A_TIME);
    (OF_INTERPRETER + at_a_time * OF_PROGRAM) as usize
}

/// Memory of usual cards, in GB.
pub(crate) const CARDS: [u64; 4] = [24, 48, 80, 141];
const GB: u64 = 1_000_000_000;

/// The estimate of a plan: on the processor, or on the smallest card that holds it, else on the largest.
pub(crate) fn estimate(plan: &MemoryPlan<'_>, device: DeviceSpec) -> Estimate {
    if device.is_cpu() {
        return Estimate {
            memory: plan.estimate(),
            place: Place::Processor,
        };
    }
    let [first, others @ ..] = CARDS;
    let mut estimate = on_card(plan, first);
    for size in others {
        if estimate.place == Place::NoCard {
            estimate = on_card(plan, size);
        }
    }
    let (tokens, most) = (plan.work.batch.tokens, most_tokens(plan.model));
    if tokens > most {
        estimate.place = Place::Uncounted { tokens, most };
    }
    estimate
}

/// Tokens of a micro-batch up to which the kernels of a GPU, which count in 32 bits, reach all numbers of a layer.
fn most_tokens(model: &ModelConfig) -> usize {
    let heads = model.num_attention_heads + 2 * model.num_key_value_heads;
    let widest = (2 * model.intermediate_size).max(heads * model.head_dim);
    u32::MAX as usize / widest
}

/// The estimate of a plan on a card of so many GB, with as many activations kept as it has room for; a twentieth of it stays free.
fn on_card(plan: &MemoryPlan<'_>, size: u64) -> Estimate {
    let bytes = size * GB;
    let plan = MemoryPlan {
        card_bytes: Some(bytes),
        ..plan.clone()
    };
    let memory = plan.filling(bytes).estimate();
    let place = if memory.needed() <= bytes / 20 * 19 {
        Place::Card(size)
    } else {
        Place::NoCard
    };
    Estimate { memory, place }
}

/// An estimate with the place that it is of.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    pub(crate) memory: MemoryEstimate,
    place: Place,
}

impl Estimate {
    /// Bytes that must be there and bytes at the peak, of a process with the ranks `here`; of the card of one, where they have GPUs.
    fn of_process(&self, here: usize) -> [u64; 2] {
        match self.place {
            Place::Processor => self.memory.of_ranks(here),
            Place::Card(_) | Place::NoCard | Place::Uncounted { .. } => self.memory.of_ranks(1),
        }
    }
}

/// What holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Processor,
    /// A GPU: the smallest card that does, in GB.
    Card(u64),
    /// A GPU larger than those there are.
    NoCard,
    /// No GPU: a micro-batch may have more tokens than its kernels can count.
    Uncounted {
        tokens: usize,
        most: usize,
    },
}

/// Words for a run that is [`Place::Uncounted`].
fn uncounted(tokens: usize, most: usize) -> String {
    format!(
        "a micro-batch may have {tokens} tokens, and kernels of a GPU, which count in 32 bits, take {most} of this model; lower \
         grpo.update.micro_batch_tokens, and engine.context_tokens where one episode is that long"
    )
}

fn largest_group<T>(groups: &[Vec<T>]) -> usize {
    groups.iter().map(Vec::len).max().unwrap_or(0)
}

const MIB: u64 = 1024 * 1024;

/// Memory that this process may take, bytes: what it holds already is part of an estimate.
fn room() -> Option<u64> {
    Some(available()? + held().unwrap_or(0))
}

/// Says what a run will take, in one line, and refuses one that cannot fit into this machine's memory, of which the ranks `here` in this
/// process take theirs. A GPU's is compared with the cards that there are; once it is open, [`kept_bytes`] compares its own.
pub(crate) fn check(estimate: &Estimate, here: usize) -> Result<String> {
    let memory = &estimate.memory;
    let at = memory.largest_moment();
    let [_, peak] = estimate.of_process(here);
    let line = format!(
        "memory: about {} MiB at the peak, in the {at}",
        peak.div_ceil(MIB)
    );
    match estimate.place {
        Place::Card(size) => return Ok(format!("{line}: a card of {size} GB holds it")),
        Place::NoCard => {
            let fix = memory.advice();
            return Ok(format!("{line}: no card of up to 141 GB holds it; {fix}"));
        }
        Place::Uncounted { tokens, most } => bail!("{}", uncounted(tokens, most)),
        Place::Processor => {}
    }
    if let Some(lack) = lack(estimate, here) {
        bail!("{lack}; --dry-run shows all parts");
    }
    let free = room().map(|room| format!("; {} MiB are available", room / MIB));
    Ok(line + &free.unwrap_or_default())
}

/// What a run of the processor lacks of this machine's memory, with the fix; `None` where it fits, or nobody knows.
fn lack(estimate: &Estimate, here: usize) -> Option<String> {
    let (room, memory) = (room()?, &estimate.memory);
    let [needed, _] = estimate.of_process(here);
    (needed > room).then(|| {
        format!(
            "the run needs about {} MiB of memory in the {} and {} MiB are available; {}",
            needed.div_ceil(MIB),
            memory.largest_moment(),
            room / MIB,
            memory.advice()
        )
    })
}

/// All parts as a table, and what holds them; of a process with the ranks `here`.
pub(crate) fn table(estimate: &Estimate, here: usize) -> String {
    let memory = &estimate.memory;
    let place = match estimate.place {
        Place::Processor => lack(estimate, here).map(|lack| format!("this machine: {lack}")),
        Place::Card(size) => Some(format!("the GPU: a card of {size} GB holds it")),
        Place::NoCard => {
            let fix = memory.advice();
            Some(format!("the GPU: no card of up to 141 GB holds it; {fix}"))
        }
        Place::Uncounted { tokens, most } => Some(format!("the GPU: {}", uncounted(tokens, most))),
    };
    memory.table() + &place.map_or_else(String::new, |place| format!("\n# of {place}"))
}

/// The estimate beside the truth, for the end of a run with the ranks `here` in this process; `then` is what the work that there was takes
/// by the same arithmetic. Nothing of a GPU's.
pub(crate) fn outcome(
    estimated: &Estimate,
    then: Option<&Estimate>,
    here: usize,
) -> Option<String> {
    if estimated.place != Place::Processor {
        return None;
    }
    let mib = |estimate: &Estimate| estimate.of_process(here)[1] / MIB;
    let (found, limits) = (peak()? / MIB, mib(estimated));
    let then = then
        .map(|then| {
            format!(
                " for episodes of full length, {} for those that were played",
                mib(then)
            )
        })
        .unwrap_or_default();
    Some(peak_words(found, limits, &then))
}

/// The peak beside its estimate, in MiB, with what no estimate counts where the peak is above it.
fn peak_words(found: u64, estimated: u64, then: &str) -> String {
    let beyond = if found > estimated {
        " (estimates count no indexes and no pages)"
    } else {
        ""
    };
    format!("peak memory {found} MiB; estimated were {estimated} MiB{then}{beyond}")
}

#[cfg(test)]
mod tests;
