//! The learner: weights, optimizer and engine, improved by scored token logs. It does not know what the task was.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;
use forage_env::episode::Episode;
use forage_env::policy::PolicyError;
use serde::{Deserialize, Serialize};

use crate::generate::{Engine, EngineConfig};
use crate::grads::{NamedGrads, track};
use crate::grpo::{
    Advantage, GroupOutcome, KlPenalty, LossConfig, LossParts, LossStats, group_advantages, policy_loss,
};
use crate::logprobs::token_logprobs;
use crate::model::{Decoder, RopeTables};
use crate::optim::{AdamW, AdamWConfig};
use crate::sequence::{Sequence, cut};
use crate::sft::{SftStats, sft_step};
use crate::weights::Checkpoint;
use crate::workers::Workers;

/// What an update minimises and how.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateConfig {
    /// How rewards become advantages.
    pub advantage: Advantage,
    /// The token loss.
    pub loss: LossConfig,
    /// The optimizer.
    pub optimizer: AdamWConfig,
    /// Softmax temperature of sampling and of the loss.
    pub temperature: f32,
    /// Most padded tokens per forward and backward pass: memory, not meaning.
    pub micro_batch_tokens: usize,
}

impl Default for UpdateConfig {
    fn default() -> Self {
        Self {
            advantage: Advantage::default(),
            loss: LossConfig::default(),
            optimizer: AdamWConfig::default(),
            temperature: 1.0,
            micro_batch_tokens: 2048,
        }
    }
}

/// An update that must not be applied.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// The gradient is not finite; the weights are as before.
    #[error(
        "the gradient norm is {0}; nothing was updated; lower the learning rate or resume from an earlier checkpoint"
    )]
    NonFinite(f64),
    /// The engine is gone.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// What one update did; sums are already divided by the step's policy tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpdateStats {
    /// Groups seen.
    pub groups: usize,
    /// Groups whose members all earned the same: dropped.
    pub zero_variance_groups: usize,
    /// Policy tokens that carried loss.
    pub tokens: usize,
    /// Token means; `ratio_deviation_max` is a maximum.
    pub loss: LossStats,
    /// Mean entropy of the policy at its own tokens, nats.
    pub entropy: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate used.
    pub learning_rate: f64,
    /// Whether weights changed: false when no group had a direction.
    pub updated: bool,
}

/// A trained sequence with its advantage and what the sampler said.
struct Scored {
    sequence: Sequence,
    old_logprobs: Vec<f32>,
    advantage: f32,
}

/// Weights that learn, with the engine that samples from them.
pub struct Learner {
    checkpoint: Checkpoint,
    /// On the autodiff device.
    decoder: Decoder,
    /// The frozen start, kept only when a penalty refers to it.
    reference: Option<Decoder>,
    rope: RopeTables,
    optimizer: AdamW,
    config: UpdateConfig,
    workers: Workers,
    engine: Arc<Engine>,
    version: u64,
}

impl Learner {
    /// Takes a checkpoint loaded on a plain device and starts an engine on it.
    pub fn new(checkpoint: Checkpoint, config: UpdateConfig, engine: EngineConfig, workers: Workers) -> Self {
        let device = checkpoint.decoder.device();
        let decoder = track(&checkpoint.decoder);
        let rope = RopeTables::new(&checkpoint.config, engine.context, &device);
        let reference = (config.loss.kl != KlPenalty::None).then(|| checkpoint.decoder.clone());
        let engine = Engine::start(&checkpoint, engine, workers.kernel_pool());
        let optimizer = AdamW::new(config.optimizer);
        Self { checkpoint, decoder, reference, rope, optimizer, config, workers, engine: Arc::new(engine), version: 0 }
    }

    /// The policy to roll out: always the current weights.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// The current weights as a checkpoint that can be saved.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { decoder: self.decoder.valid(), ..self.checkpoint.clone() }
    }

    /// The optimizer, for checkpoints.
    pub fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }

    /// Continues from saved weights and moments; `version` is the number of updates done.
    ///
    /// # Errors
    /// [`PolicyError`] when the engine is gone.
    pub async fn restore(&mut self, decoder: Decoder, optimizer: AdamW, version: u64) -> Result<(), PolicyError> {
        self.decoder = track(&decoder);
        self.optimizer = optimizer;
        self.version = version;
        self.engine.swap(decoder, version).await
    }

    /// Changes the learning rate of the next steps; the moments stay.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.optimizer.set_learning_rate(rate);
    }

    /// One step of supervised fine-tuning. The engine keeps the old weights until [`Self::publish`].
    ///
    /// # Errors
    /// [`LearnError::NonFinite`] before anything was updated.
    pub fn imitate(&mut self, sequences: &[Sequence]) -> Result<SftStats, LearnError> {
        let shape = &self.checkpoint.config;
        let budget = self.config.micro_batch_tokens;
        let (decoder, stats) =
            sft_step(self.decoder.clone(), shape, &self.rope, sequences, &mut self.optimizer, budget, &self.workers)?;
        self.decoder = decoder;
        Ok(stats)
    }

    /// Hands the current weights to the engine as the next version.
    ///
    /// # Errors
    /// [`PolicyError`] when the engine is gone.
    pub async fn publish(&mut self) -> Result<(), PolicyError> {
        self.version += 1;
        self.engine.swap(self.decoder.valid(), self.version).await
    }

    /// One GRPO step on groups of scored episodes. Infrastructure faults are outside every statistic; groups without a
    /// direction are dropped and counted; when none is left nothing changes.
    ///
    /// # Errors
    /// [`LearnError::NonFinite`] before anything was updated.
    pub async fn improve(&mut self, groups: &[&[Episode]]) -> Result<UpdateStats, LearnError> {
        let mut stats = UpdateStats { groups: groups.len(), ..UpdateStats::default() };
        stats.learning_rate = self.config.optimizer.rate(self.optimizer.steps());
        let scored = self.score(groups, &mut stats);
        stats.tokens = scored.iter().map(|scored| scored.sequence.targets.len()).sum();
        if stats.tokens == 0 {
            return Ok(stats);
        }
        let (gradients, parts) = self.gradients(&scored, stats.tokens);
        let norm = gradients.global_norm();
        if !norm.is_finite() {
            return Err(LearnError::NonFinite(norm));
        }
        (stats.loss, stats.entropy) = token_means(&parts, stats.tokens);
        self.decoder = self.optimizer.update(self.decoder.clone(), gradients, norm);
        stats.grad_norm = norm;
        stats.updated = true;
        self.publish().await?;
        Ok(stats)
    }

    fn score(&self, groups: &[&[Episode]], stats: &mut UpdateStats) -> Vec<Scored> {
        let mut scored = Vec::new();
        for group in groups {
            let members: Vec<(&Episode, f32)> =
                group.iter().filter_map(|episode| Some((episode, episode.reward()?))).collect();
            let rewards: Vec<f32> = members.iter().map(|&(_, reward)| reward).collect();
            match group_advantages(&rewards, self.config.advantage) {
                GroupOutcome::Learn(advantages) => {
                    for ((episode, _), advantage) in members.iter().zip(advantages) {
                        let sequence = Sequence::from_log(&episode.tokens);
                        let sampled = episode.tokens.logprobs();
                        let old_logprobs = sequence.targets.iter().map(|&position| sampled[position]).collect();
                        scored.push(Scored { sequence, old_logprobs, advantage });
                    }
                }
                GroupOutcome::ZeroVariance => stats.zero_variance_groups += 1,
                GroupOutcome::TooSmall => {}
            }
        }
        scored
    }

    fn gradients(&self, scored: &[Scored], step_tokens: usize) -> (NamedGrads, Vec<(LossStats, f64)>) {
        let lengths: Vec<usize> = scored.iter().map(|scored| scored.sequence.ids.len()).collect();
        let batches = cut(&lengths, self.config.micro_batch_tokens);
        let (shape, temperature) = (&self.checkpoint.config, self.config.temperature);
        let plain = self.decoder.device().without_autodiff();
        let flat = |values: Vec<f32>| Tensor::<1>::from_floats(values.as_slice(), &plain);
        self.workers.gradients(&self.decoder, batches.len(), |decoder, index| {
            let rows: Vec<&Scored> = batches[index].iter().map(|&row| &scored[row]).collect();
            let sequences: Vec<&Sequence> = rows.iter().map(|row| &row.sequence).collect();
            let reference = self.reference.as_ref().and_then(|reference| {
                Some(token_logprobs(reference, shape, &self.rope, &sequences, temperature)?.logprobs)
            });
            let current = token_logprobs(decoder, shape, &self.rope, &sequences, temperature)?;
            let parts = LossParts {
                old_logprobs: flat(rows.iter().flat_map(|row| row.old_logprobs.iter().copied()).collect()),
                advantages: flat(rows.iter().flat_map(|row| vec![row.advantage; row.old_logprobs.len()]).collect()),
                reference_logprobs: reference,
            };
            let entropy = f64::from(current.entropy.sum().into_scalar::<f32>());
            let (loss, stats) = policy_loss(&current.logprobs, &parts, &self.config.loss, step_tokens);
            Some((loss, (stats, entropy)))
        })
    }
}

fn token_means(parts: &[(LossStats, f64)], tokens: usize) -> (LossStats, f64) {
    let mean = |pick: fn(&LossStats) -> f64| parts.iter().map(|(stats, _)| pick(stats)).sum::<f64>() / tokens as f64;
    let stats = LossStats {
        policy_loss: mean(|stats| stats.policy_loss),
        clipped: mean(|stats| stats.clipped),
        approx_kl_old: mean(|stats| stats.approx_kl_old),
        kl_reference: mean(|stats| stats.kl_reference),
        logprob_abs_diff: mean(|stats| stats.logprob_abs_diff),
        ratio_deviation_max: parts.iter().map(|(stats, _)| stats.ratio_deviation_max).fold(0.0, f64::max),
    };
    (stats, parts.iter().map(|(_, entropy)| entropy).sum::<f64>() / tokens as f64)
}
