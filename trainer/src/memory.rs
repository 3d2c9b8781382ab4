//! Estimate of the memory of a training run before it starts: arithmetic over shapes and settings, without tensors.
//!
//! Some things are held all the time (weights, moments, the engine's cache), others in a part of a step. The peak is the first
//! plus the largest moment. Every formula follows the code it names; `bench/memory/run.sh` compares them with measured peaks.

mod process;

pub use process::{available, held, peak};

use crate::device::Workspace;
use crate::generate::{EngineConfig, HEAD_ROWS};
use crate::logprobs::targets_at_once;
use crate::lora::LoraConfig;
use crate::model::{
    ARRANGED_INPUTS, BLOCK_INPUTS, Batch, LayerSizes, ModelConfig, attention_numbers,
};
use crate::sequence::{Sequence, ids};
use crate::weights::Precision;

const MIB: u64 = 1024 * 1024;
const F32: u64 = 4;

/// The program, its threads and a tokenizer: the peak of a step of 16 tokens on a model of 2.7 M weights with the allocator's
/// `MIMALLOC_PURGE_DELAY` at 0, less weights, file, moments and tables.
const PROGRAM: u64 = 20 * MIB;
/// The rest of a program that plays episodes: corpus and index, questions, the engine's threads. Peak of `forage train` on
/// `configs/smoke.toml` with `grpo.steps = 0`, less what is counted here.
const PLAYS: u64 = 40 * MIB;
/// Memory that the allocator holds back: freed memory goes back to the kernel a second later (mimalloc's `MIMALLOC_PURGE_DELAY`), and
/// every thread has a heap of its own. Measured on models of 0.7 and 2.7 M weights as what is left of the peak when all else is
/// counted, 10 to 80 MiB (`bench/memory/run.sh small`): so much, and so much for each micro-batch that runs at a time.
const HELD_BACK: u64 = 23 * MIB;
/// See [`HELD_BACK`].
const HELD_BACK_BY_WORKER: u64 = 22 * MIB;

/// Everything an estimate depends on.
#[derive(Clone, Debug)]
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

/// Size of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSize {
    /// Tokens of all its sequences, those that they share counted once.
    pub tokens: usize,
    /// Tokens of the longest.
    pub longest: usize,
    /// Tokens that carry loss.
    pub targets: usize,
}

impl BatchSize {
    /// The size of these sequences, in their order.
    pub fn of(sequences: &[&Sequence]) -> Self {
        Self {
            tokens: Batch::new(&ids(sequences.iter().copied())).ids().len(),
            longest: sequences
                .iter()
                .map(|sequence| sequence.ids.len())
                .max()
                .unwrap_or(0),
            targets: sequences
                .iter()
                .map(|sequence| sequence.targets.len())
                .sum(),
        }
    }
}

/// One thing in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name in the table.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// The settings that make it smaller, as a config names them.
    pub fix: &'static str,
}

/// A part of a run with what it holds besides what is always there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Name in the table.
    pub name: &'static str,
    /// The things it holds.
    pub parts: Vec<Part>,
    /// True where the kernel can take its memory back at once: pages of a mapped file count as the process's, but need no memory
    /// of their own.
    pub reclaimable: bool,
}

impl Moment {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        sum(&self.parts)
    }
}

/// Memory of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// Held from the first step to the last.
    pub always: Vec<Part>,
    /// Held in turn.
    pub moments: Vec<Moment>,
}

impl MemoryEstimate {
    /// Peak resident memory, bytes.
    pub fn peak(&self) -> u64 {
        sum(&self.always) + self.moments.iter().map(Moment::bytes).max().unwrap_or(0)
    }

    /// The memory that must be there, bytes.
    pub fn needed(&self) -> u64 {
        sum(&self.always) + self.largest_moment().map_or(0, Moment::bytes)
    }

    /// The moment of the largest need.
    pub fn largest_moment(&self) -> Option<&Moment> {
        self.moments
            .iter()
            .filter(|moment| !moment.reclaimable)
            .max_by_key(|moment| moment.bytes())
    }

    /// The largest of all parts at the moment of the largest need.
    pub fn largest(&self) -> Option<&Part> {
        let then = self
            .largest_moment()
            .into_iter()
            .flat_map(|moment| &moment.parts);
        self.always.iter().chain(then).max_by_key(|part| part.bytes)
    }
}

fn sum(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.bytes).sum()
}

fn part(name: &'static str, bytes: u64, fix: &'static str) -> Part {
    Part { name, bytes, fix }
}

impl MemoryPlan<'_> {
    /// The estimate.
    pub fn estimate(&self) -> MemoryEstimate {
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
        let mut always = self.always();
        always.retain(|part| part.bytes > 0);
        for moment in &mut moments {
            moment.parts.retain(|part| part.bytes > 0);
        }
        MemoryEstimate { always, moments }
    }

    fn at_a_time(&self) -> u64 {
        self.workers.min(self.work.micro_batches).max(1) as u64
    }

    /// Weights of the shape.
    fn weights(&self) -> u64 {
        self.model.parameters() as u64
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
    fn kept_weights(&self) -> u64 {
        let layers: u64 = self.maps().iter().map(|map| map.1 * map.2).sum();
        let layers = layers * self.model.num_hidden_layers as u64;
        match self.base() {
            Precision::Int8 => {
                layers + layers / BLOCK_INPUTS as u64 * F32 + (self.weights() - layers) * 2
            }
            Precision::Half => self.weights() * 2,
            Precision::Full | Precision::Stored => self.weights() * F32,
        }
    }

    /// `[vocab, hidden]`.
    fn embedding(&self) -> u64 {
        (self.model.vocab_size * self.model.hidden_size) as u64
    }

    /// Inputs and outputs of the maps of a layer, by name.
    fn maps(&self) -> [(&'static str, u64, u64); 7] {
        let ModelConfig {
            hidden_size,
            intermediate_size,
            ..
        } = *self.model;
        let [hidden, inner, queries, keys] =
            [hidden_size, intermediate_size, self.queries(), self.keys()].map(|width| width as u64);
        [
            ("q_proj", hidden, queries),
            ("k_proj", hidden, keys),
            ("v_proj", hidden, keys),
            ("o_proj", queries, hidden),
            ("gate_proj", hidden, inner),
            ("up_proj", hidden, inner),
            ("down_proj", inner, hidden),
        ]
    }

    fn queries(&self) -> usize {
        self.model.num_attention_heads * self.model.head_dim
    }

    fn keys(&self) -> usize {
        self.model.num_key_value_heads * self.model.head_dim
    }

    /// Weights that are trained.
    fn trained(&self) -> u64 {
        let Some(adapter) = self.adapter else {
            return self.weights();
        };
        let layers = 0..self.model.num_hidden_layers;
        let adapted = |name: &str| {
            layers
                .clone()
                .filter(|&layer| adapter.may_adapt(layer, name))
                .count() as u64
        };
        let layers = self
            .maps()
            .map(|(name, inputs, outputs)| adapted(name) * (inputs + outputs));
        adapter.rank as u64 * layers.iter().sum::<u64>()
    }

    fn always(&self) -> Vec<Part> {
        let adapter = if self.adapter.is_some() {
            self.trained() * F32
        } else {
            0
        };
        let reference = if self.reference && self.adapter.is_none() {
            self.weights() * F32
        } else {
            0
        };
        let tables = (self.context * self.model.head_dim / 2) as u64 * 2 * 2 * F32;
        let engines = 1 + u64::from(self.engine.is_some());
        vec![
            part(
                "program",
                PROGRAM
                    + if self.work.played_tokens > 0 {
                        PLAYS
                    } else {
                        0
                    },
                "",
            ),
            part(
                "weights",
                self.kept_weights(),
                "policy.base with [policy.lora]",
            ),
            part("adapter", adapter, "policy.lora.rank"),
            part(
                "weights of the reference",
                reference,
                "[policy.lora], or no kl in the objective",
            ),
            part(
                "moments of AdamW",
                2 * self.trained() * F32,
                "[policy.lora]",
            ),
            part(
                "weights as the engine orders them",
                self.arranged(),
                "[policy.lora]",
            ),
            part("key-value cache", self.cache(), "engine.cache_mib"),
            part("position tables", tables * engines, "engine.context_tokens"),
        ]
    }

    /// Matrices that the engine keeps in an order of its own ([`crate::model::Decoder::for_inference`]). A base beside an
    /// adapter is arranged once and shared.
    fn arranged(&self) -> u64 {
        if self.engine.is_none() || self.adapter.is_some() {
            return 0;
        }
        let wide = |inputs: u64| inputs >= ARRANGED_INPUTS as u64;
        let layer: u64 = self
            .maps()
            .iter()
            .filter(|map| wide(map.1))
            .map(|map| map.1 * map.2)
            .sum();
        let head = !self.model.tie_word_embeddings && wide(self.model.hidden_size as u64);
        (self.model.num_hidden_layers as u64 * layer + if head { self.embedding() } else { 0 })
            * F32
    }

    fn cache(&self) -> u64 {
        let Some(engine) = self.engine else { return 0 };
        let position = 2 * self.model.num_hidden_layers * self.keys();
        (engine.cache_tokens.min(self.work.played_tokens) * position) as u64 * F32
    }

    /// Reading the weights: the file is mapped, and its pages count as the process's until it is closed.
    fn loading(&self) -> Moment {
        Moment {
            name: "loading",
            parts: vec![part("weight files, mapped", self.file_bytes, "")],
            reclaimable: true,
        }
    }

    /// One pass of the engine ([`crate::generate`]): a bound on a layer of the widest matrices, or on logits
    /// of as many rows as are made at a time.
    fn rollout(&self, engine: EngineConfig) -> Moment {
        let ModelConfig {
            hidden_size,
            intermediate_size,
            vocab_size,
            ..
        } = *self.model;
        let rows = engine.step_tokens.min(self.work.played_tokens);
        let layer = rows * (3 * hidden_size + 3 * intermediate_size + 2 * self.queries());
        let logits = 2 * engine.sequences.min(HEAD_ROWS).min(self.work.played_tokens) * vocab_size;
        let parts = vec![
            part(
                "a pass of the engine",
                layer as u64 * F32,
                "engine.step_tokens",
            ),
            part(
                "logits of the engine",
                logits as u64 * F32,
                "engine.sequences",
            ),
        ];
        Moment {
            name: "rollouts",
            parts,
            reclaimable: false,
        }
    }

    /// The moments of a micro-batch's gradients ([`crate::backward`], [`crate::workers`]).
    fn gradients(&self) -> Vec<Moment> {
        let sizes = self.activations();
        let batches = self.at_a_time();
        let full = self.adapter.is_none();
        let [all, embedding] = [self.trained() * F32, self.embedding() * F32];
        let summed = if self.work.micro_batches > 1 { all } else { 0 };
        let tokens = "grpo.update.micro_batch_tokens";
        // Gradients that exist: of the head, of everything above a layer, of everything and the embedding's rows once more.
        let moment = |name, gradients: u64, kept: u64, parts: Vec<Part>| {
            let mut parts: Vec<Part> = parts
                .into_iter()
                .map(|each| Part {
                    bytes: each.bytes * batches,
                    ..each
                })
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
        let head_gradient = if full {
            sizes.head_gradients * embedding
        } else {
            0
        };
        let head = vec![
            part("logits of a chunk", sizes.logits, ""),
            part("the head in f32", sizes.head_weights, "base = \"f32\""),
            part("hidden states of the targets", sizes.picked, tokens),
        ];
        let layer = vec![
            part("one layer", sizes.layer, tokens),
            part(
                "a layer's weights in f32",
                sizes.layer_weights,
                "base = \"f32\"",
            ),
        ];
        let attention = vec![
            part("one layer's projections", sizes.projections, tokens),
            part(
                "blocks of attention",
                sizes.attention,
                "environment.settings.max_episode_tokens",
            ),
        ];
        let first = if full { embedding } else { 0 };
        vec![
            moment("gradient of the head", head_gradient, sizes.kept, head),
            moment("gradients of the layers", first, sizes.kept, layer),
            moment("gradients of attention", first, sizes.kept, attention),
            moment(
                "gradient of the embedding",
                if full { all + embedding } else { all },
                0,
                Vec::new(),
            ),
        ]
    }

    /// The update: gradients go as weights change, one parameter at a time ([`crate::optim::AdamW::apply`]).
    fn update(&self) -> Moment {
        let largest = if self.adapter.is_none() {
            self.embedding() * F32
        } else {
            0
        };
        let parts = vec![
            part("gradients", self.trained() * F32, "[policy.lora]"),
            part("the largest parameter once more", largest, ""),
        ];
        Moment {
            name: "update",
            parts,
            reclaimable: false,
        }
    }

    /// Bytes of one micro-batch: what [`crate::backward`] keeps and makes, by the sizes beside its parts.
    fn activations(&self) -> Activations {
        let ModelConfig {
            hidden_size: h,
            intermediate_size: i,
            vocab_size,
            num_hidden_layers,
            ..
        } = *self.model;
        let BatchSize {
            tokens,
            longest,
            targets,
        } = self.work.batch;
        let bytes = |numbers: usize| numbers as u64 * F32;
        let layer = LayerSizes::of(self.model);
        let activations = bytes(layer.activations * tokens) as usize;
        // A run may have had nothing to learn from.
        let kept_layers =
            (Workspace::PROCESSOR.kept_bytes / activations.max(1)).min(num_hidden_layers);
        let kept = bytes(tokens * (num_hidden_layers * layer.kept + h))
            + (kept_layers * activations) as u64;
        let shared = if kept_layers > 0 { layer.shared } else { 0 };
        // One matrix at a time is widened. `Logits`: the grad takes the logits' place.
        let at_once = targets_at_once(Workspace::PROCESSOR.logits, vocab_size);
        let (rows, chunks) = (targets.min(at_once), targets.div_ceil(at_once));
        let widened = |numbers: usize| {
            if self.base() == Precision::Full {
                0
            } else {
                bytes(numbers)
            }
        };
        Activations {
            kept,
            layer: bytes(tokens * (layer.feed_forward - shared)),
            projections: bytes(tokens * layer.attention),
            attention: bytes(attention_numbers(
                self.model,
                longest,
                Workspace::PROCESSOR.attention_scores,
            )),
            logits: bytes(rows * vocab_size),
            picked: bytes(3 * targets * h),
            layer_weights: widened(h * i),
            head_weights: widened(vocab_size * h),
            head_gradients: if chunks > 1 { 2 } else { 1 },
        }
    }
}

/// See [`MemoryPlan::activations`].
struct Activations {
    kept: u64,
    layer: u64,
    projections: u64,
    attention: u64,
    logits: u64,
    picked: u64,
    layer_weights: u64,
    head_weights: u64,
    /// Number of copies of the head's gradient at once.
    head_gradients: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_that_of_its_largest_batch_and_longest_step() {
        let mut work = Workload::default();
        let batch = |tokens, longest| BatchSize {
            tokens,
            longest,
            targets: tokens / 2,
        };
        work.grow([batch(10, 5), batch(30, 6)]);
        work.grow([batch(20, 20)]);
        assert_eq!(
            work,
            Workload {
                batch: batch(30, 6),
                micro_batches: 2,
                played_tokens: 0
            }
        );
    }

    fn plan(model: &ModelConfig, tokens: usize) -> MemoryPlan<'_> {
        MemoryPlan {
            model,
            base: Precision::Full,
            adapter: None,
            reference: false,
            file_bytes: 0,
            context: tokens,
            work: Workload {
                batch: BatchSize {
                    tokens,
                    longest: tokens,
                    targets: tokens / 2,
                },
                micro_batches: 2,
                played_tokens: 0,
            },
            workers: 1,
            engine: None,
        }
    }

    fn adapter(rank: usize) -> LoraConfig {
        let targets = crate::lora::Targets::AllLinear;
        LoraConfig {
            rank,
            alpha: 32.0,
            rank_stabilised: false,
            targets,
            base: String::new(),
        }
    }

    #[test]
    fn trained_weights_are_counted() {
        let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
        assert_eq!(plan(&model, 8).trained(), 494_032_768);
        // PEFT prints 8,798,208 trainable parameters for rank 16 on all linear maps of this model.
        let lora = adapter(16);
        assert_eq!(
            MemoryPlan {
                adapter: Some(&lora),
                ..plan(&model, 8)
            }
            .trained(),
            8_798_208
        );
    }

    #[test]
    fn long_sequences_take_memory_by_their_length() {
        let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
        let lora = adapter(16);
        let peak = |tokens| {
            MemoryPlan {
                adapter: Some(&lora),
                ..plan(&model, tokens)
            }
            .estimate()
            .peak()
        };
        let steps = [8192, 12_288, 16_384].map(|tokens| peak(tokens + 4096) - peak(tokens));
        assert!(
            steps
                .iter()
                .all(|step| step.abs_diff(steps[0]) < steps[0] / 20),
            "{steps:?}"
        );
    }

    #[test]
    fn what_is_said_to_help_helps() {
        let model = ModelConfig::published("Qwen2.5-0.5B").unwrap();
        let lora = adapter(16);
        let engine = |cache_tokens| EngineConfig {
            context: 1024,
            cache_tokens,
            step_tokens: 2048,
            sequences: 64,
            bf16: false,
        };
        let small = plan(&model, 1024);
        let work = Workload {
            played_tokens: 1 << 30,
            ..small.work
        };
        let run = |cache| MemoryPlan {
            engine: Some(engine(cache)),
            work,
            ..small.clone()
        };
        let needed = |plan: MemoryPlan<'_>| plan.estimate().needed();
        let full = needed(run(1 << 16));
        assert!(needed(run(1 << 12)) < full);
        let adapted = MemoryPlan {
            adapter: Some(&lora),
            ..run(1 << 16)
        };
        assert!(needed(adapted.clone()) < full);
        let half = needed(MemoryPlan {
            base: Precision::Half,
            ..adapted.clone()
        });
        assert!(half < needed(adapted.clone()));
        assert!(
            needed(MemoryPlan {
                base: Precision::Int8,
                ..adapted.clone()
            }) < half
        );
        let batch = BatchSize {
            tokens: 512,
            longest: 512,
            targets: 256,
        };
        assert!(
            needed(MemoryPlan {
                work: Workload { batch, ..work },
                ..adapted.clone()
            }) < needed(adapted)
        );
        // A mapped file is no need.
        let file = MemoryPlan {
            file_bytes: 1 << 40,
            ..run(1 << 16)
        };
        assert_eq!(needed(file.clone()), full);
        assert!(file.estimate().peak() > 1 << 40);
        assert_eq!(run(1 << 16).estimate().largest().unwrap().name, "gradients");
    }
}
