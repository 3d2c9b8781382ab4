//! Measures optimizer steps on recorded rollouts: `train_bench MODEL ROLLOUTS RANK f32|bf16|int8 layers|graph DEVICE
//! THREADS MICRO_BATCH_TOKENS STEPS [FOLDER]`, one line of JSON per step. DEVICE is `cpu` or `cuda:0`. RANK 0 trains all weights, else a fresh adapter of that rank
//! on every projection; MODEL is a checkpoint folder (of PEFT: the adapter in it is trained, RANK is ignored) or
//! `random:SHAPE`. `graph` is one
//! autodiff graph through the whole decoder, `layers` what the program does. FOLDER receives the weights after the last step.
//!
//! The objective is GRPO: advantages of the groups, clip 0.2 and 0.28, token mean, `AdamW` at 1e-3 without warm-up.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use burn::tensor::Tensor;
use forage_env::seed::Seed;
use forage_trainer::backward;
use forage_trainer::device::DeviceSpec;
use forage_trainer::grads::{NamedGrads, track};
use forage_trainer::logprobs::token_logprobs;
use forage_trainer::lora::{LoraConfig, Targets};
use forage_trainer::memory::{BatchSize, MemoryPlan, Workload, peak};
use forage_trainer::model::{Decoder, ModelConfig, RopeTables};
use forage_trainer::objective::{Algorithm, Recipe};
use forage_trainer::optim::{AdamW, AdamWConfig};
use forage_trainer::sample::read_groups;
use forage_trainer::sequence::{Sequence, cut, ids};
use forage_trainer::update::{Scored, TokenSums, loss, minibatches, score};
use forage_trainer::weights::{Checkpoint, Hub, Precision};
use forage_trainer::workers::Workers;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, rollouts, rank, precision, way, device, threads, micro_batch, steps, rest @ ..] = arguments.as_slice()
    else {
        return Err("see the head of this file for the arguments".into());
    };
    let precision = match precision.as_str() {
        "bf16" => Precision::Half,
        "int8" => Precision::Int8,
        _ => Precision::Full,
    };
    let device = device.parse::<DeviceSpec>()?.open()?;
    let mut checkpoint = match model.strip_prefix("random:") {
        Some(shape) => Checkpoint::random(shape, None, Seed::root(1), precision, &device)?,
        None => Checkpoint::open(model, &Hub::from_variables(|_| None), precision, &device)?,
    };
    let rank: usize = rank.parse()?;
    if rank > 0 && checkpoint.lora.is_none() {
        let config = LoraConfig {
            rank,
            alpha: 2.0 * rank as f64,
            rank_stabilised: false,
            targets: Targets::AllLinear,
            base: model.clone(),
        };
        checkpoint.adapt(config, Seed::root(1))?;
    }
    let recipe = Algorithm::Dapo.recipe(1);
    let context = checkpoint.config.max_position_embeddings.min(4096);
    let (scored, _) = score(read_groups(Path::new(rollouts), checkpoint.config.vocab_size, context)?, &recipe);
    let step = minibatches(scored, 1, &recipe).pop().ok_or("no group has a direction")?;
    let job = Job {
        rope: RopeTables::new(&checkpoint.config, context, &device),
        context,
        config: checkpoint.config.clone(),
        workers: Workers::for_model(threads.parse()?, &checkpoint.config),
        micro_batch: micro_batch.parse()?,
        graph: way == "graph",
        recipe,
    };
    let files = std::fs::metadata(Path::new(model).join("model.safetensors")).map_or(0, |file| file.len());
    let estimated = estimate(&checkpoint, precision, &step, &job, files);
    let config = AdamWConfig { learning_rate: 1e-3, warmup_steps: 0, ..AdamWConfig::default() };
    let mut optimizer = AdamW::new(config);
    for _ in 0..steps.parse::<usize>()? {
        let start = Instant::now();
        let (gradients, sums) = job.run(&checkpoint.decoder, &step);
        let norm = gradients.global_norm();
        optimizer.apply(&mut checkpoint.decoder, &checkpoint.config, gradients, norm);
        let line = serde_json::json!({
            "seconds": start.elapsed().as_secs_f64(),
            "tokens": step.iter().map(|row| row.sequence.ids.len()).sum::<usize>(),
            "loss": sums.loss,
            "grad_norm": norm,
            "peak_mib": peak().map(|bytes| bytes >> 20),
            "estimate_mib": estimated >> 20,
        });
        #[expect(clippy::print_stdout, reason = "a program that prints figures")]
        {
            println!("{line}");
        }
    }
    if let [folder] = rest {
        match checkpoint.lora {
            Some(_) => checkpoint.save_adapter(Path::new(folder))?,
            None => checkpoint.save(Path::new(folder))?,
        }
    }
    Ok(())
}

struct Job {
    config: ModelConfig,
    rope: RopeTables,
    context: usize,
    workers: Workers,
    micro_batch: usize,
    graph: bool,
    recipe: Recipe,
}

impl Job {
    fn run(&self, decoder: &Decoder, step: &[Scored]) -> (NamedGrads, TokenSums) {
        let batches = cut(&ids(step.iter().map(|row| &row.sequence)), self.micro_batch);
        let (gradients, parts) = self.workers.gradients(batches.len(), |index| {
            let rows: Vec<&Scored> = batches[index].iter().map(|&row| &step[row]).collect();
            let sequences: Vec<&Sequence> = rows.iter().map(|row| &row.sequence).collect();
            if self.graph {
                return self.whole_graph(decoder, &rows, &sequences);
            }
            backward::gradients(decoder, &self.config, &self.rope, &sequences, 1.0, |scores| {
                loss(&rows, &self.recipe, scores, None)
            })
        });
        let mut sums = TokenSums::default();
        for part in parts {
            sums += part;
        }
        (gradients, sums)
    }

    fn whole_graph(
        &self,
        decoder: &Decoder,
        rows: &[&Scored],
        sequences: &[&Sequence],
    ) -> Option<(NamedGrads, TokenSums)> {
        let decoder = &track(decoder);
        let found = token_logprobs(decoder, &self.config, &self.rope, sequences, 1.0)?;
        let (slopes, sums) = loss(rows, &self.recipe, &found.scores(), None);
        let device = decoder.device().without_autodiff();
        let slopes = Tensor::<1>::from_floats(slopes.logprobs.as_slice(), &device).autodiff();
        let gradients = (found.logprobs * slopes).sum().backward();
        Some((NamedGrads::collect(decoder, &gradients), sums))
    }
}

/// What the program would say before such a run.
fn estimate(checkpoint: &Checkpoint, base: Precision, step: &[Scored], job: &Job, file_bytes: u64) -> u64 {
    let batches = cut(&ids(step.iter().map(|row| &row.sequence)), job.micro_batch);
    let mut work = Workload::default();
    work.grow(batches.iter().map(|batch| {
        let sequences: Vec<&Sequence> = batch.iter().map(|&row| &step[row].sequence).collect();
        BatchSize::of(&sequences)
    }));
    let plan = MemoryPlan {
        model: &checkpoint.config,
        base,
        adapter: checkpoint.lora.as_ref(),
        reference: false,
        file_bytes,
        context: job.context,
        work,
        workers: job.workers.at_a_time(),
        engine: None,
    };
    plan.estimate().peak()
}
