//! The time of a step and of a run by data sheets, on one GPU or on those of several ranks: what `forage train --dry-run` says of rollouts, updates,
//! sums of gradients and pushes, and which waits.
//!
//! A phase takes the longer of two times, its bytes at the card's bandwidth and its products at the card's rate in the type that it
//! computes in, each at the share that is assumed to be reached, and no less than its launches take. Numbers of cards and what is assumed
//! stand in `cards.json`; `bench/gpu/roofline.py` and `bench/gpu/scale.py` read the same file. Layers that are computed again, searches and
//! judges are not counted.

mod sheets;
mod together;

use forage_trainer::device::{ComputeType, DeviceSpec};
use forage_trainer::{ModelConfig, OldLogprobs};

use self::sheets::{Assumed, Card, Sheets, sheets};
use self::together::Together;
use crate::config::{Base, Resolved};
use crate::error::Result;
use crate::memory::{self, Start};

/// Bytes of a bf16.
const HALF: f64 = 2.0;
/// Bytes of an f32.
const FULL: f64 = 4.0;
/// Bytes of a weight of 8 bits, 32 of which share a scale in f32; of a moment of 8 bits, of which 256 do.
const EIGHT_BITS: [f64; 2] = [1.0 + FULL / 32.0, 1.0 + FULL / 256.0];

/// Bytes of a number.
fn bytes(number: ComputeType) -> f64 {
    match number {
        ComputeType::F32 => FULL,
        ComputeType::Bf16 => HALF,
    }
}

/// The work of a rank in a step, in numbers of a shape.
struct Work<'a> {
    shape: &'a ModelConfig,
    /// What rollouts and updates compute in.
    sampled_in: ComputeType,
    learned_in: ComputeType,
    /// Bytes of a number in the layers' matrices that rollouts read.
    matrix: f64,
    /// Bytes of a moment.
    moment: f64,
    /// Weights that learn.
    trained: f64,
    adapted: bool,
    together: Together,
    /// Episodes that are played, and that are learned from.
    episodes: f64,
    learned: f64,
    group: f64,
    /// Sequences that decode at a time.
    rows: f64,
    /// Tokens of the prompt of an episode.
    prompt: f64,
    written: f64,
    read: f64,
    longest_turn: f64,
    /// Forward passes beside those of the gradient.
    passes: f64,
    /// A critic learns too.
    critic: bool,
    epochs: f64,
    updates: f64,
    micro_batch_tokens: f64,
    /// GPUs that sample, where servers do.
    servers: Option<f64>,
    /// Batches in play at a time while one is learned from; 0 where sampler and learner take turns.
    ahead: f64,
    /// Steps of the run.
    steps: f64,
}

/// Seconds of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    rollouts: f64,
    /// The part of the rollouts in which the longest turn decodes alone.
    tail: f64,
    update: f64,
    /// What ranks send each other to learn alike.
    sums: f64,
    push: f64,
}

impl Times {
    /// The whole step where so many batches are `ahead`, as [`Work::ahead`] says.
    fn step(self, ahead: f64) -> f64 {
        let both = if ahead > 0.0 {
            self.sampling(ahead).max(self.update)
        } else {
            self.rollouts + self.update
        };
        both + self.sums + self.push
    }

    /// The time of rollouts per step: with several batches in play, others decode beside the longest turn of one, and each may take as many
    /// steps as are in play.
    fn sampling(self, ahead: f64) -> f64 {
        (self.rollouts - self.tail).max(self.rollouts / ahead.max(1.0))
    }
}

impl Work<'_> {
    fn length(&self) -> f64 {
        self.prompt + self.written + self.read
    }

    /// Weights of the layers.
    fn inner(&self) -> f64 {
        let shape = self.shape;
        let heads = shape.num_attention_heads + shape.num_key_value_heads;
        let attention = 2 * shape.hidden_size * heads * shape.head_dim;
        let layer = attention + 3 * shape.hidden_size * shape.intermediate_size;
        (shape.num_hidden_layers * layer) as f64
    }

    fn head(&self) -> f64 {
        (self.shape.vocab_size * self.shape.hidden_size) as f64
    }

    /// All weights.
    fn weights(&self) -> f64 {
        self.inner()
            + self.head()
                * if self.shape.tie_word_embeddings {
                    1.0
                } else {
                    2.0
                }
    }

    fn layers(&self) -> f64 {
        self.shape.num_hidden_layers as f64
    }

    /// Operations of attention for each token, forwards: it sees half of an episode in the mean.
    fn attention(&self) -> f64 {
        let width = (self.shape.num_attention_heads * self.shape.head_dim) as f64;
        4.0 * self.layers() * width * self.length() / 2.0
    }

    /// Bytes and operations of the parts of a decode step of `rows` sequences at `context` tokens.
    fn decode(&self, rows: f64, context: f64) -> [(f64, f64); 4] {
        let shape = self.shape;
        let cached = (2 * shape.num_key_value_heads * shape.head_dim) as f64;
        let width = (shape.num_attention_heads * shape.head_dim) as f64;
        let seen = self.layers() * rows * context;
        let logits = rows * shape.vocab_size as f64;
        let number = bytes(self.sampled_in);
        [
            (self.inner() * self.matrix, 2.0 * self.inner() * rows),
            (seen * cached * number, 4.0 * seen * width),
            (
                self.head() * number + logits * FULL,
                2.0 * self.head() * rows,
            ),
            // The softmax's sums, and the draw.
            (2.0 * logits * FULL, 0.0),
        ]
    }

    /// Seconds on a card.
    fn on(&self, card: &Card, assumed: &Assumed) -> Times {
        let memory = card.bandwidth_tb * 1e12;
        let bandwidth = memory * assumed.bandwidth_share;
        let [rate, learning_rate] =
            [self.sampled_in, self.learned_in].map(|of| card.rate(of) * assumed.rate_share);
        let launch = assumed.launch_us * 1e-6;

        let samplers = self.servers.unwrap_or(1.0);
        let episodes = self.episodes / samplers;
        let rows = self.rows.min(episodes).max(1.0);
        let parts = self.decode(rows, self.length() / 2.0);
        let step: f64 = parts
            .iter()
            .map(|(moved, operations)| (moved / bandwidth).max(operations / rate))
            .sum();
        let step = step.max(self.layers() * assumed.decode_launches * launch);
        let alone: f64 = self
            .decode(1.0, self.length())
            .iter()
            .map(|part| part.0)
            .sum();
        let tail = self.longest_turn * alone / bandwidth;
        let decoding = episodes * self.written / rows * step + tail;
        let prompt = self.prompt / self.group;
        let filling = episodes * (prompt + self.read) * (2.0 * self.weights() + self.attention());

        let tokens = self.learned * (prompt + self.written + self.read);
        // Back takes twice as much as forwards, half of it for weights that learn.
        let gradient = if self.adapted { 2.0 } else { 3.0 };
        let learning = self.epochs * gradient;
        let forwards = learning + self.passes;
        let mut operations = forwards * (2.0 * self.weights() + self.attention());
        let (mut learners, mut trained) = (1.0, self.trained);
        if self.critic {
            // It says a number of each token where the policy has a head, and once before it learns.
            operations += (learning + 1.0) * (2.0 * self.inner() + self.attention());
            (learners, trained) = (2.0, 2.0 * trained);
        }
        let products = tokens * operations / learning_rate;
        let batches = learners * self.epochs * (tokens / self.micro_batch_tokens).max(1.0);
        let launches = batches * self.layers() * assumed.training_launches * launch;
        // Gradient, weight and moments read; weight, moments and a copy in bf16, where there is one, written.
        let copy = match self.learned_in {
            ComputeType::F32 => 0.0,
            ComputeType::Bf16 => HALF,
        };
        let moved = 3.0 * FULL + 4.0 * self.moment + copy;
        let optimizer = self.updates * trained / self.together.shards() * moved / memory;

        let copied = if self.adapted {
            self.trained
        } else {
            self.weights()
        };
        let push = match self.servers {
            Some(_) => copied * HALF / (assumed.network_gb * 1e9),
            None => copied * (FULL + bytes(self.sampled_in)) / memory,
        };
        Times {
            rollouts: decoding + filling / rate,
            tail,
            update: products.max(launches) + optimizer,
            sums: self.updates * self.together.seconds(trained * FULL, card, assumed),
            push,
        }
    }

    /// A card's line; `holds` says whether its memory holds the run.
    fn line(&self, card: &Card, assumed: &Assumed, holds: bool) -> String {
        let times = self.on(card, assumed);
        let Times {
            rollouts,
            update,
            sums,
            push,
            ..
        } = times;
        let sampling = times.sampling(self.ahead);
        let waits = match (self.ahead > 0.0, sampling > update) {
            _ if sums > sampling.max(update) => "the sums take most".to_owned(),
            (true, true) => format!("the update waits {:.1}", sampling - update),
            (true, false) => format!("rollouts wait {:.1}", update - sampling),
            (false, true) => "rollouts take most".to_owned(),
            (false, false) => "the update takes most".to_owned(),
        };
        let step = times.step(self.ahead);
        let memory = if holds {
            String::new()
        } else {
            format!("; {} GB do not hold it", card.memory_gb)
        };
        let sums = self.together.cell(&format!("{sums:.1}"));
        let hours = step * self.steps / 3600.0;
        format!(
            "# {:<12} {rollouts:>9.1} {update:>9.1}{sums} {push:>9.2} {step:>9.1} {hours:>9.1}  {waits}{memory}",
            card.name
        )
    }
}

/// Seconds of a step on each card, as comments of a plan; of a process with the ranks `here`.
pub(crate) fn table(config: &Resolved, start: &Start, here: usize) -> Result<String> {
    let Sheets { assumed, cards } = sheets()?;
    let assumed = assumed.within(&config.environment.resolved()?.settings);
    let work = work(config, start, here, &assumed);
    let gpus = match start.ranks() {
        0 | 1 => "one GPU".to_owned(),
        ranks => format!("{ranks} GPUs"),
    };
    let mut lines = vec![
        format!(
            "# time of a step on {gpus}, s, and of the run, h, by data sheets at {:.0} % of products and {:.0} % of bandwidth, {:.0} tokens an episode \
             assumed ({}):",
            assumed.rate_share * 100.0,
            assumed.bandwidth_share * 100.0,
            work.length(),
            assumed.origin(work.length())
        ),
        format!(
            "# {:<12} {:>9} {:>9}{} {:>9} {:>9} {:>9}",
            "",
            "rollouts",
            "update",
            work.together.cell("sums"),
            "push",
            "step",
            "run"
        ),
    ];
    for card in &cards {
        let holds = memory::fits(config, start, card.memory_gb)?;
        lines.push(work.line(card, &assumed, holds));
    }
    lines.extend(work.together.words(&assumed));
    Ok(lines.join("\n"))
}

fn work<'a>(config: &Resolved, start: &'a Start, here: usize, assumed: &Assumed) -> Work<'a> {
    let shape = start.shape();
    let engine = config.generation().engine(shape);
    let longest = memory::longest(config, start);
    let trained = memory::trained(config, start);
    let update = &config.grpo.update;
    let usual = assumed.usual();
    // Shorter episodes are shorter in all parts.
    let part = (longest as f64 / usual).min(1.0);
    let length = usual * part;
    let cached = (engine.cache_tokens as f64 / length).max(1.0);
    let penalty = match update.objective.recipe(longest).kl {
        // Before the batch is learned from, under the policy and under the reference.
        Some(penalty) if penalty.in_reward => 2.0,
        Some(_) => update.epochs as f64,
        None => 0.0,
    };
    let trainers = update.old_logprobs == Some(OldLogprobs::Trainer);
    let ranks = start.ranks().max(1);
    // Groups are dealt whole.
    let episodes = config.grpo.prompts_played().div_ceil(ranks) * config.grpo.group_size;
    let learned = config.grpo.prompts_per_step * config.grpo.group_size;
    let sampled_in = match &config.sampler {
        // Published weights are in bf16.
        Some(sampler) => sampler.dtype.unwrap_or(ComputeType::Bf16),
        None if engine.bf16 => ComputeType::Bf16,
        None => ComputeType::F32,
    };
    let matrix = match config.policy.base {
        Base::Int8 if config.sampler.is_none() => EIGHT_BITS[0],
        _ => bytes(sampled_in),
    };
    let moment = if update.optimizer.moments_in_8_bits {
        EIGHT_BITS[1]
    } else {
        FULL
    };
    Work {
        shape,
        sampled_in,
        learned_in: update.dtype.unwrap_or(ComputeType::F32),
        matrix,
        moment,
        trained: trained as f64,
        adapted: trained < shape.parameters(),
        together: Together {
            ranks: ranks as f64,
            by_nccl: here > 1 && matches!(config.device, DeviceSpec::Cuda(_)),
            sharded: update.optimizer.sharded,
        },
        episodes: episodes as f64,
        learned: learned as f64 / ranks as f64,
        group: config.grpo.group_size as f64,
        rows: (engine.sequences as f64).min(cached),
        prompt: assumed.prompt_tokens * part,
        written: assumed.written() * part,
        read: assumed.read() * part,
        longest_turn: assumed.longest_turn * part,
        passes: f64::from(u8::from(trainers)) + penalty,
        critic: update.has_critic(),
        epochs: update.epochs as f64,
        updates: (update.minibatches * update.epochs) as f64,
        micro_batch_tokens: update.micro_batch_tokens as f64,
        servers: config
            .sampler
            .as_ref()
            .map(|sampler| sampler.url.len() as f64),
        ahead: config
            .sampler
            .as_ref()
            .map_or(0.0, |_| config.grpo.lookahead as f64),
        steps: config.grpo.steps as f64,
    }
}

#[cfg(test)]
mod tests;
