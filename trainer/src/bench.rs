//! Optimizer steps on recorded rollouts, for measurements: what `forage bench train` times.

mod attention;
#[cfg(feature = "gpu")]
mod products;

use std::path::Path;

pub use attention::write_attention;
#[cfg(feature = "gpu")]
pub use products::Product;

use crate::LessonError;
use crate::device::memory_bytes;
use crate::lesson_error::Fault;
use crate::logprobs::{Scores, through_graph};
use crate::memory::{MemoryPlan, Workload};
use crate::objective::{Algorithm, Recipe};
use crate::optim::AdamWConfig;
use crate::ranks::Ranks;
use crate::sample::Sample;
use crate::sequence::{BatchSize, MicroBatch, Sequence};
use crate::student::{LearnError, SftStats, Student};
use crate::update::{Readings, Scored, loss, minibatches, score};
use crate::update_stats::TokenSums;
use crate::weights::{Checkpoint, Precision};
use crate::workers::Workers;

/// One optimizer step that can be taken again and again. The objective is GRPO: advantages of the groups, clip 0.2 and 0.28, token
/// mean, `AdamW` at 1e-3 without warm-up.
pub struct MeasuredStep {
    student: Student,
    recipe: Recipe,
    rows: Vec<Scored>,
    batches: Vec<MicroBatch>,
    /// Tokens of the longest sequence.
    longest: usize,
    base: Precision,
    graph: bool,
}

impl MeasuredStep {
    /// Reads the rollouts of a step. `base` is how the weights are kept. With `in_bf16` products and activations are in bf16; with
    /// `graph`, gradients come from one graph of autodiff through the whole decoder in place of the written-out derivatives.
    ///
    /// # Errors
    /// As [`Sample::read_groups`], and when no group has a direction.
    pub fn read(
        rollouts: &Path,
        checkpoint: Checkpoint,
        base: Precision,
        threads: usize,
        micro_batch_tokens: usize,
        in_bf16: bool,
        graph: bool,
    ) -> Result<Self, LessonError> {
        let recipe = Algorithm::default().recipe(1);
        let context = checkpoint.config.max_position_embeddings.min(32_768);
        let groups = Sample::read_groups(rollouts, checkpoint.config.vocab_size, context, None)?;
        let rows = minibatches(
            score(groups, &recipe, &Readings::default(), &[]).0,
            1,
            &recipe,
        )
        .pop()
        .ok_or_else(|| {
            Fault::from("has no group with a direction; its rewards must differ").of(rollouts)
        })?;
        let lengths = rows.iter().map(|row| row.sequence.ids.len());
        let longest = lengths.max().unwrap_or(0);
        let device = checkpoint.decoder.device();
        let workers = Workers::for_model(threads, &checkpoint.config, &device);
        let optimizer = AdamWConfig {
            learning_rate: 1e-3,
            warmup_steps: 0,
            ..AdamWConfig::default()
        };
        let student = Student::new(checkpoint, optimizer, longest, micro_batch_tokens, workers)
            .computing_in(in_bf16);
        let batches = student.cut(rows.iter().map(|row| &row.sequence));
        let mut step = Self {
            student,
            recipe,
            rows,
            batches,
            longest,
            base,
            graph,
        };
        let kept_bytes = step.plan(0).on(&device, 1, 1).work.kept_bytes;
        step.student.workers = step.student.workers.clone().keeping(kept_bytes);
        Ok(step)
    }

    /// The current weights.
    pub fn checkpoint(&self) -> &Checkpoint {
        self.student.checkpoint()
    }

    /// Tokens of all sequences.
    pub fn tokens(&self) -> usize {
        self.rows.iter().map(|row| row.sequence.ids.len()).sum()
    }

    /// Number of micro-batches.
    pub fn micro_batches(&self) -> usize {
        self.batches.len()
    }

    /// The estimate that the program would give before such a run: peak memory, bytes. `file_bytes` is the size of the weight
    /// files.
    pub fn estimate(&self, file_bytes: u64) -> u64 {
        self.plan(file_bytes).estimate().peak()
    }

    fn plan(&self, file_bytes: u64) -> MemoryPlan<'_> {
        let workers = &self.student.workers;
        let mut work = Workload {
            kept_bytes: workers.kept_bytes(),
            ..Workload::default()
        };
        work.grow(
            self.batches
                .iter()
                .map(|batch| BatchSize::of(&self.sequences(batch))),
        );
        MemoryPlan {
            model: &self.checkpoint().config,
            base: self.base,
            adapter: self.checkpoint().lora.as_ref(),
            reference: false,
            file_bytes,
            context: self.longest,
            work,
            workers: workers.at_a_time(),
            engine: None,
            versions: 1,
            card_bytes: memory_bytes(&self.checkpoint().decoder.device()),
            in_bf16: self.student.computes_in_bf16(),
            moments_in_8_bits: false,
            ranks: 1,
            sharded: false,
            updates: 1,
            critic: false,
            programs: 0,
        }
    }

    /// Takes the step. `between` is called when the gradients are there.
    ///
    /// # Errors
    /// [`LearnError::NonFinite`] before anything was updated.
    pub fn take(&mut self, between: impl FnOnce(&Self)) -> Result<SftStats, LearnError> {
        let recipe = &self.recipe;
        let of_batch = |batch: &MicroBatch| {
            let rows: Vec<&Scored> = batch.iter().map(|&row| &self.rows[row]).collect();
            move |scores: &Scores| loss(&rows, recipe, scores, None)
        };
        let (gradients, parts) = if self.graph {
            let Checkpoint {
                decoder, config, ..
            } = self.checkpoint();
            let student = &self.student;
            student.workers.gradients(self.batches.len(), |index| {
                let batch = &self.batches[index];
                let sequences = self.sequences(batch);
                let loss = of_batch(batch);
                through_graph(decoder, config, &student.rope, &sequences, loss)
            })
        } else {
            let all: Vec<&Sequence> = self.rows.iter().map(|row| &row.sequence).collect();
            self.student.gradients(&all, &self.batches, of_batch)
        };
        let mut sums = TokenSums::default();
        for part in parts {
            sums += part;
        }
        between(self);
        let grad_norm = self.student.apply(gradients, &Ranks::alone())?;
        // The copy that the next step computes with belongs to this one.
        self.student.decoder();
        Ok(SftStats {
            loss: sums.loss,
            grad_norm,
            tokens: sums.objective.tokens,
        })
    }

    fn sequences(&self, batch: &MicroBatch) -> Vec<&Sequence> {
        batch.iter().map(|&row| &self.rows[row].sequence).collect()
    }
}
