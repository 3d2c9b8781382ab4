//! Estimate of the memory of a training run before it starts: arithmetic over shapes and settings, without tensors.
//!
//! Some things are held all the time (weights, moments, the engine's cache), others in a part of a step. The peak is the first
//! plus the largest moment. The bytes of an operation are stated beside it; here they are added up. `bench/run memory` compares the
//! sums with measured peaks.

mod card;
mod estimate;
mod kept;
mod process;
mod ranks;

pub use estimate::MemoryEstimate;
use estimate::{Moment, Part, part};
pub use forage_sandbox::available_memory as available;
pub use process::{held, peak};

use crate::backward::Held;
use crate::generate::{EngineConfig, pass_bytes};
use crate::lora::LoraConfig;
use crate::model::{
    Decoder, KvCache, ModelConfig, Projection, RopeTables, bytes_of_8_bits, projections,
};
use crate::optim::AdamW;
use crate::sequence::BatchSize;
use crate::weights::Precision;
use crate::workers::Workers;

const MIB: usize = 1024 * 1024;
const F32: usize = size_of::<f32>();

/// The program, its threads and a tokenizer: the peak of a step of 16 tokens on a model of 2.7 M weights with the allocator's
/// `MIMALLOC_PURGE_DELAY` at 0, less weights, file, moments and tables.
const PROGRAM: usize = 20 * MIB;
/// The rest of a program that plays episodes: corpus and index, questions, the engine's threads. Peak of `forage train` on
/// `configs/smoke.toml` with `grpo.steps = 0`, less what is counted here.
const PLAYS: usize = 40 * MIB;
/// Memory that the allocator holds back: freed memory goes back to the kernel a second later (mimalloc's `MIMALLOC_PURGE_DELAY`), and
/// every thread has a heap of its own. Measured on models of 0.7 and 2.7 M weights as what is left of the peak when all else is
/// counted, 10 to 80 MiB (`bench/run memory`): so much, and so much for each micro-batch that runs at a time.
const HELD_BACK: usize = 23 * MIB;
/// See [`HELD_BACK`].
const HELD_BACK_BY_WORKER: usize = 22 * MIB;

/// Everything an estimate depends on.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts of a run that do not depend on each other"
)]
pub struct MemoryPlan<'a> {
    /// Shape of the model.
    pub model: &'a ModelConfig,
    /// Precision of the matrices beside an adapter.
    pub base: Precision,
    /// The adapter that is trained; without one all weights are.
    pub adapter: Option<&'a LoraConfig>,
    /// True where a penalty refers to the start of the run.
    pub reference: bool,
    /// Bytes of the weight files, which are mapped while they are read.
    pub file_bytes: u64,
    /// Longest sequence the position tables are made for.
    pub context: usize,
    /// The work of the run.
    pub work: Workload,
    /// Micro-batches that run at a time.
    pub workers: usize,
    /// The engine in this process, if it samples.
    pub engine: Option<EngineConfig>,
    /// Versions of the weights that are in play at a time, at least 1: each has an engine.
    pub versions: usize,
    /// Memory of the GPU that all this is on, if it is not the processor.
    pub card_bytes: Option<u64>,
    /// Updates compute in bf16.
    pub in_bf16: bool,
    /// Moments of `AdamW` are of 8 bits.
    pub moments_in_8_bits: bool,
    /// Ranks that train together, of which this is the first.
    pub ranks: usize,
    /// Whether each rank keeps only a share of the moments.
    pub sharded: bool,
    /// Optimizer steps between two times that the engine gets the weights.
    pub updates: usize,
    /// True where a critic learns beside the policy.
    pub critic: bool,
    /// Bytes of the programs that the environment runs in this process; its ranks share them.
    pub programs: usize,
}

/// The work of a run: before it starts the most that its limits allow, after its end what there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The largest micro-batch.
    pub batch: BatchSize,
    /// Micro-batches of an optimizer step.
    pub micro_batches: usize,
    /// Tokens that the engine is given in the whole run: a cache is resident where it was used, and its blocks are used in
    /// turn.
    pub played_tokens: usize,
    /// Bytes of the activations of a micro-batch that are kept instead of being computed again.
    pub kept_bytes: usize,
}

impl Workload {
    /// Includes another optimizer step in micro-batches of these sizes.
    pub fn grow(&mut self, batches: impl IntoIterator<Item = BatchSize>) {
        let mut count = 0;
        for batch in batches {
            count += 1;
            if batch.tokens > self.batch.tokens {
                self.batch = batch;
            }
        }
        self.micro_batches = self.micro_batches.max(count);
    }
}

/// Name of the part of [`MemoryPlan::programs`].
const PROGRAMS: &str = "programs in the sandbox";
/// Name of the part of [`MemoryPlan::masks`].
const DROPPED: &str = "masks of dropout";

impl MemoryPlan<'_> {
    /// The estimate.
    pub fn estimate(&self) -> MemoryEstimate {
        if let Some(bytes) = self.card_bytes {
            return self.on_card(bytes);
        }
        let mut moments = vec![self.loading()];
        moments.extend(self.engine.map(|engine| self.rollout(engine)));
        moments.extend(self.gradients());
        moments.push(self.update());
        for moment in &mut moments {
            let workers = if moment.reclaimable {
                0
            } else {
                self.at_a_time()
            };
            let held = HELD_BACK + workers * HELD_BACK_BY_WORKER;
            moment
                .parts
                .push(part("held back by the allocator", held, ""));
        }
        MemoryEstimate::of(self.always(), moments, self.layers_kept())
    }

    fn at_a_time(&self) -> usize {
        Workers::running(self.workers, self.work.micro_batches)
    }

    /// Precision of the base: full where it learns.
    fn base(&self) -> Precision {
        if self.adapter.is_some() {
            self.base
        } else {
            Precision::Full
        }
    }

    /// Bytes of the weights.
    fn kept_weights(&self) -> usize {
        let all = self.model.parameters();
        match self.base() {
            Precision::Int8 => {
                let layer: usize = projections(self.model)
                    .map(Projection::numbers)
                    .iter()
                    .sum();
                let layers = self.model.num_hidden_layers * layer;
                bytes_of_8_bits(layers) + (all - layers) * 2
            }
            Precision::Half => all * 2,
            Precision::Full | Precision::Stored => all * F32,
        }
    }

    /// Numbers of `[vocab, hidden]`.
    fn embedding(&self) -> usize {
        self.model.vocab_size * self.model.hidden_size
    }

    /// Weights that are trained.
    pub fn trained(&self) -> usize {
        match self.adapter {
            Some(adapter) => adapter.parameters(self.model),
            None => self.model.parameters(),
        }
    }

    /// Weights that are trained in a head that is not the embedding.
    fn of_head(&self) -> usize {
        match self.adapter {
            Some(adapter) => adapter.of_head(self.model),
            None if self.model.tie_word_embeddings => 0,
            None => self.embedding(),
        }
    }

    /// Tensors as large as logits while these are made: what an adapter of the head adds to them is another.
    fn logits_at_once(&self) -> usize {
        let adapts = |adapter: &LoraConfig| adapter.adapts_head(self.model);
        1 + usize::from(self.adapter.is_some_and(adapts))
    }

    /// Weights of the critic that are not the policy's: all that learn, its head not counted.
    fn critic_weights(&self) -> usize {
        if self.critic {
            self.trained() - self.of_head()
        } else {
            0
        }
    }

    /// What a critic holds from the first step to the last: weights, with a copy of `copied` bytes each, and moments. Its
    /// gradients take no more than the policy's, and are gone by then.
    fn critic_parts(&self, copied: usize) -> [Part; 2] {
        let weights = self.critic_weights();
        let moments = self.moments(weights);
        let fix = "[policy.lora]";
        [
            part("weights of the critic", weights * (F32 + copied), fix),
            part("moments of the critic", moments, fix),
        ]
    }

    /// Engines in this process.
    fn engines(&self) -> usize {
        self.engine.map_or(0, |_| self.versions)
    }

    /// The older versions of the weights that engines hold, `bytes` each.
    fn older_weights(&self, bytes: usize) -> Part {
        let older = self.engines().saturating_sub(1);
        part("weights of steps before", older * bytes, "grpo.lookahead")
    }

    /// Bytes of the moments of so many weights that are kept here.
    fn moments(&self, weights: usize) -> usize {
        let shards = if self.sharded { self.ranks.max(1) } else { 1 };
        AdamW::moments_bytes(weights.div_ceil(shards), self.moments_in_8_bits)
    }

    /// Bytes on the disk of a checkpoint, with the moments of all ranks, and of the trained policy alone.
    pub fn saved_bytes(&self) -> [u64; 2] {
        let saved =
            |weights: usize| weights * F32 + AdamW::moments_bytes(weights, self.moments_in_8_bits);
        let checkpoint = saved(self.trained()) + saved(self.critic_weights());
        [checkpoint, self.trained() * F32].map(|bytes| bytes as u64)
    }

    fn always(&self) -> Vec<Part> {
        let given = |holds: bool, bytes: usize| if holds { bytes } else { 0 };
        let full = self.adapter.is_none();
        let plays = given(self.work.played_tokens > 0, PLAYS);
        let reference = given(self.reference && full, self.model.parameters() * F32);
        let tabled = 1 + self.engines() + usize::from(self.critic);
        let [critic, critic_moments] = self.critic_parts(0);
        // A base beside an adapter is arranged once and shared.
        let arranged = given(
            self.engine.is_some() && full,
            Decoder::arranged_numbers(self.model) * F32,
        );
        let positions = self.engine.map_or(0, |engine| {
            let cached = engine.cache_tokens.saturating_mul(self.versions);
            cached.min(self.work.played_tokens)
        });
        let cache = positions * KvCache::numbers_per_position(self.model) * F32;
        let tables = RopeTables::bytes(self.model, self.context);
        vec![
            part("program", PROGRAM + plays, ""),
            part(
                "weights",
                self.kept_weights(),
                "policy.base with [policy.lora]",
            ),
            part(
                "adapter",
                given(!full, self.trained() * F32),
                "policy.lora.rank",
            ),
            part(
                "weights of the reference",
                reference,
                "[policy.lora], or no kl in the objective",
            ),
            part(
                "moments of AdamW",
                self.moments(self.trained()),
                "[policy.lora], grpo.update.optimizer.moments_in_8_bits, or grpo.update.optimizer.sharded with more --ranks",
            ),
            self.held_again(),
            part(
                "weights as the engine orders them",
                arranged,
                "[policy.lora]",
            ),
            self.older_weights(self.trained() * F32),
            part("key-value cache", cache, "engine.cache_mib"),
            part("position tables", tables * tabled, "engine.context_tokens"),
            critic,
            critic_moments,
            part(
                PROGRAMS,
                self.programs,
                "environment.settings.limits.total_mib",
            ),
        ]
    }

    /// Reading the weights: the file is mapped, and its pages count as the process's until it is closed.
    fn loading(&self) -> Moment {
        let file = Part {
            name: "weight files, mapped",
            bytes: self.file_bytes,
            fix: "",
        };
        Moment {
            name: "loading",
            parts: vec![file],
            reclaimable: true,
        }
    }

    /// One pass of the engine.
    fn rollout(&self, engine: EngineConfig) -> Moment {
        let played = |count: usize| count.min(self.work.played_tokens);
        let [layer, logits] = pass_bytes(
            self.model,
            played(engine.step_tokens),
            played(engine.sequences),
        )
        .map(|bytes| bytes * self.versions);
        Moment {
            name: "rollouts",
            parts: vec![
                part("a pass of the engine", layer, "engine.step_tokens"),
                part("logits of the engine", logits, "engine.sequences"),
            ],
            reclaimable: false,
        }
    }

    /// Bytes of the mask of what the widest adapted map reads and of that without what is dropped; none where nothing is.
    fn masks(&self) -> usize {
        let drops = self.adapter.filter(|adapter| adapter.dropout > 0.0);
        let widest = drops.map_or(0, |adapter| adapter.widest_input(self.model));
        2 * self.work.batch.tokens * widest * F32
    }

    /// Bytes of the gradients of a layer.
    fn layer_gradients(&self) -> usize {
        let numbers = match self.adapter {
            Some(_) => (self.trained() - self.of_head()) / self.model.num_hidden_layers.max(1),
            None => projections(self.model)
                .map(Projection::numbers)
                .iter()
                .sum(),
        };
        numbers * F32
    }

    /// Of the bytes of the head's gradient, those that are not in the sum over micro-batches before a pass ends: all where the head is the
    /// embedding, to which the rows of its inputs are added last.
    fn unfinished(&self, head: usize) -> usize {
        if self.model.tie_word_embeddings {
            head
        } else {
            0
        }
    }

    /// The moments of the gradients of micro-batches.
    fn gradients(&self) -> Vec<Moment> {
        let full = self.adapter.is_none();
        let masks = (DROPPED, self.masks(), "grpo.update.micro_batch_tokens");
        let [layers_kept, _] = self.layers_kept();
        let held = Held::of(
            self.model,
            self.work.batch,
            layers_kept,
            self.base() == Precision::Full,
            full,
        );
        let batches = self.at_a_time();
        let all = self.trained() * F32;
        let summed = Workers::sums(self.work.micro_batches) * all;
        // Gradients that exist: of the head, of everything above a layer, of everything and the embedding's rows once more. One
        // micro-batch at a time adds a layer's to the sum of those before.
        let embedding = held.embedding_gradient;
        let [of_layers, of_all] = if summed > 0 && batches == 1 {
            let last = if full {
                2 * embedding
            } else {
                self.layer_gradients()
            };
            [self.unfinished(embedding) + self.layer_gradients(), last]
        } else {
            [embedding, all + embedding]
        };
        let tokens = "grpo.update.micro_batch_tokens";
        let in_f32 = "base = \"f32\"";
        let moment =
            |name, gradients: usize, kept: usize, parts: &[(&'static str, usize, &'static str)]| {
                let mut parts: Vec<Part> = parts
                    .iter()
                    .map(|&(name, bytes, fix)| part(name, bytes * batches, fix))
                    .collect();
                parts.push(part(
                    "activations kept for the layers",
                    kept * batches,
                    tokens,
                ));
                parts.push(part(
                    "gradients",
                    summed + gradients * batches,
                    "[policy.lora]",
                ));
                Moment {
                    name,
                    parts,
                    reclaimable: false,
                }
            };
        vec![
            moment(
                "gradient of the head",
                held.head_gradients,
                held.kept,
                &[
                    ("logits of a chunk", self.logits_at_once() * held.logits, ""),
                    ("the head in f32", held.head_weights, in_f32),
                    ("hidden states of the targets", held.picked, tokens),
                ],
            ),
            moment(
                "gradients of the layers",
                of_layers,
                held.kept,
                &[
                    ("one layer", held.layer, tokens),
                    ("a layer's weights in f32", held.layer_weights, in_f32),
                    masks,
                ],
            ),
            moment(
                "gradients of attention",
                of_layers,
                held.kept,
                &[
                    ("one layer's projections", held.projections, tokens),
                    (
                        "blocks of attention",
                        held.attention,
                        "environment.settings.max_episode_tokens",
                    ),
                    masks,
                ],
            ),
            moment("gradient of the embedding", of_all, 0, &[]),
        ]
    }

    /// The update.
    fn update(&self) -> Moment {
        let largest = if self.adapter.is_none() {
            self.embedding()
        } else {
            0
        };
        let [gradients, largest] = AdamW::applying_bytes(self.trained(), largest);
        Moment {
            name: "update",
            parts: vec![
                part("gradients", gradients, "[policy.lora]"),
                part("the largest parameter once more", largest, ""),
            ],
            reclaimable: false,
        }
    }
}

#[cfg(test)]
mod tests;
