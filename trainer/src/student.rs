//! Weights, optimizer and worker threads of a training step, shared by GRPO, fine-tuning and the critic.

use std::borrow::Cow;
use std::sync::OnceLock;

use burn::tensor::DType;
use forage_contracts::Metric;
use forage_contracts::policy::PolicyError;
use forage_contracts::seed::Seed;

use crate::backward;
use crate::device::is_processor;
use crate::grads::NamedGrads;
use crate::logprobs::{ScoreGrads, Scores, token_logprobs};
use crate::metrics::Row;
use crate::model::{Batch, Decoder, Dropout, RopeTables};
use crate::optim::{AdamW, AdamWConfig};
use crate::ranks::{RankError, Ranks};
use crate::remote::RemoteError;
use crate::sequence::{MicroBatch, Sequence, cut, ids};
use crate::watch::{NonFinite, first_non_finite};
use crate::weights::{Checkpoint, WeightsError};
use crate::workers::{Parts, Workers};

/// A refused update, or weights that cannot be handed to the sampler.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// The gradient is not finite; the weights are as before.
    #[error(
        "the gradient norm is {norm}; nothing was updated; lower the learning rate or begin again from an earlier checkpoint \
         (--from RUN/checkpoints/step-N)"
    )]
    NonFinite {
        /// Global gradient norm.
        norm: f64,
        /// Its origin; `None` when only the sum of finite numbers is not finite.
        source: Option<NonFinite>,
    },
    /// The gradient of the critic is not finite; its weights are as before.
    #[error(
        "the gradient norm of the critic is {norm}; its step was not taken; lower grpo.update.critic.learning_rate or begin again from an \
         earlier checkpoint (--from RUN/checkpoints/step-N)"
    )]
    Critic {
        /// Global gradient norm.
        norm: f64,
        /// Its origin; `None` when only the sum of finite numbers is not finite.
        source: Option<NonFinite>,
    },
    /// The engine is gone.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A server does not take the new weights.
    #[error("the rollout server does not take the new weights")]
    Push(#[from] RemoteError),
    /// The new weights cannot be saved for a server.
    #[error("the new weights cannot be saved for the rollout server")]
    Save(#[from] WeightsError),
    /// Another rank is lost, or stopped.
    #[error(transparent)]
    Ranks(#[from] RankError),
}

impl LearnError {
    /// The same error as that of a critic's step.
    pub(crate) fn of_critic(self) -> Self {
        match self {
            Self::NonFinite { norm, source } => Self::Critic { norm, source },
            other => other,
        }
    }
}

/// Numbers of one optimizer step, of supervised fine-tuning or measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SftStats {
    /// The loss before the update; of fine-tuning the mean cross-entropy of the trained tokens, nats.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
    /// Tokens trained on.
    pub tokens: usize,
}

impl SftStats {
    /// The metrics row of the step.
    pub(crate) fn row(&self, step: u64) -> Row {
        let mut row = Row::new(step);
        row.set(Metric::SFT_LOSS, self.loss);
        row.set(Metric::GRADIENT, self.grad_norm);
        row.set(Metric::OPTIM_TOKENS, self.tokens as f64);
        row
    }
}

/// Weights that learn; nothing here samples from them.
pub(crate) struct Student {
    /// Holds the current weights.
    checkpoint: Checkpoint,
    /// Their copy in bf16, where steps compute in that; made when it is needed first.
    copy: OnceLock<Decoder>,
    in_bf16: bool,
    /// The device was told to give memory back.
    is_tidy: bool,
    /// Start of the masks of dropout.
    seed: Seed,
    /// Dropout of the current update, where the adapter learns with it.
    dropout: Option<Dropout>,
    pub(crate) optimizer: AdamW,
    pub(crate) rope: RopeTables,
    micro_batch_tokens: usize,
    pub(crate) workers: Workers,
}

impl Student {
    /// `context`: most tokens of a sequence.
    pub(crate) fn new(
        checkpoint: Checkpoint,
        optimizer: AdamWConfig,
        context: usize,
        micro_batch_tokens: usize,
        workers: Workers,
    ) -> Self {
        Self {
            rope: RopeTables::new(&checkpoint.config, context, &checkpoint.decoder.device()),
            checkpoint,
            copy: OnceLock::new(),
            in_bf16: false,
            is_tidy: false,
            seed: Seed::root(0),
            dropout: None,
            optimizer: AdamW::new(optimizer),
            micro_batch_tokens,
            workers,
        }
    }

    /// Makes steps compute in bf16, beside weights in f32, if `in_bf16`: products and activations are in bf16; sums within norms, softmax
    /// and loss, gradients of parameters and moments are in f32 (Micikevicius et al. 2018, without scaling of the loss, which the range
    /// of bf16 makes unnecessary).
    #[must_use]
    pub(crate) fn computing_in(mut self, in_bf16: bool) -> Self {
        self.in_bf16 = in_bf16;
        if in_bf16 {
            self.checkpoint.decoder = self.checkpoint.decoder.sharing_base(DType::BF16);
        }
        self
    }

    /// Returns true where steps compute in bf16.
    pub(crate) fn computes_in_bf16(&self) -> bool {
        self.in_bf16
    }

    /// Begins the masks of dropout at the run's seed.
    pub(crate) fn set_seed(&mut self, seed: Seed) {
        self.seed = seed;
    }

    /// Draws the masks of the coming updates: a function of the run's seed and the optimizer steps done. They stay until they are
    /// drawn again.
    pub(crate) fn draw_masks(&mut self) {
        let lora = self.checkpoint.lora.as_ref();
        let rate = lora.map_or(0.0, |lora| lora.dropout);
        let seed = self.seed.child("dropout", &[self.optimizer.steps()]);
        self.dropout = (rate > 0.0).then_some(Dropout { rate, seed });
    }

    /// Start of what the objective draws of a batch: a function of the run's seed and the optimizer steps done.
    pub(crate) fn draws(&self) -> Seed {
        self.seed.child("objective", &[self.optimizer.steps()])
    }

    /// Tells whether numbers are dropped in the update under way.
    pub(crate) fn drops(&self) -> bool {
        self.dropout.is_some()
    }

    /// The current weights, and the rest of their folder.
    pub(crate) fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The weights as they are at last.
    pub(crate) fn into_checkpoint(self) -> Checkpoint {
        self.checkpoint
    }

    /// Goes on from other weights of the same shape.
    pub(crate) fn set_decoder(&mut self, decoder: Decoder) {
        self.checkpoint.decoder = if self.in_bf16 {
            decoder.sharing_base(DType::BF16)
        } else {
            decoder
        };
        self.copy = OnceLock::new();
    }

    /// The current weights as steps compute with them.
    pub(crate) fn decoder(&self) -> &Decoder {
        let weights = &self.checkpoint.decoder;
        if self.in_bf16 {
            self.copy.get_or_init(|| weights.copy_to_train(DType::BF16))
        } else {
            weights
        }
    }

    /// The current weights as an update computes with them on these sequences: with the masks that were drawn, if any.
    pub(crate) fn decoder_of(&self, sequences: &[&Sequence]) -> Cow<'_, Decoder> {
        let decoder = self.decoder();
        let Some(dropout) = self.dropout else {
            return Cow::Borrowed(decoder);
        };
        let ids = ids(sequences.iter().copied());
        let keys = Batch::new(&ids).keys(&ids);
        Cow::Owned(decoder.dropping(dropout, keys))
    }

    /// The cut of an optimizer step into micro-batches.
    pub(crate) fn cut<'a>(
        &self,
        sequences: impl IntoIterator<Item = &'a Sequence>,
    ) -> Vec<MicroBatch> {
        cut(&ids(sequences), self.micro_batch_tokens)
    }

    /// Log-probabilities and entropies of all targets under the weights of `decoder`.
    pub(crate) fn scores(&self, decoder: &Decoder, sequences: &[&Sequence]) -> Scores {
        let config = &self.checkpoint.config;
        let found = token_logprobs(decoder, config, &self.rope, sequences);
        found.map(|found| found.scores()).unwrap_or_default()
    }

    /// The result of `job` for each micro-batch.
    pub(crate) fn map<T: Send>(
        &self,
        batches: &[MicroBatch],
        job: impl Fn(&MicroBatch) -> T + Sync,
    ) -> Vec<T> {
        self.workers
            .map(batches.len(), |index| job(&batches[index]))
    }

    /// Gradients of a loss, micro-batch by micro-batch, with what else `loss` returned. `loss` is made for each micro-batch
    /// before its forward pass. Those of joined matrices stay joined until [`Self::separate`].
    pub(crate) fn gradients<T: Send, L: FnOnce(&Scores) -> (ScoreGrads, T)>(
        &self,
        sequences: &[&Sequence],
        batches: &[MicroBatch],
        loss: impl Fn(&MicroBatch) -> L + Sync,
    ) -> (NamedGrads, Vec<T>) {
        let parts = Parts::one(batches.len());
        let (mut sums, rests) = self.gradients_of_parts(sequences, batches, &parts, || false, loss);
        (sums.pop().unwrap_or_default(), rests)
    }

    /// As [`Self::gradients`], the sum of each of the `parts` that the micro-batches are cut into. Once it `is_over`, those that
    /// are left are not run.
    pub(crate) fn gradients_of_parts<T: Send, L: FnOnce(&Scores) -> (ScoreGrads, T)>(
        &self,
        sequences: &[&Sequence],
        batches: &[MicroBatch],
        parts: &Parts,
        is_over: impl Fn() -> bool + Sync,
        loss: impl Fn(&MicroBatch) -> L + Sync,
    ) -> (Vec<NamedGrads>, Vec<T>) {
        // Made before several workers need it.
        self.decoder();
        let config = &self.checkpoint.config;
        self.workers.gradients_of_parts(parts, |index, sum| {
            if is_over() {
                return None;
            }
            let batch = &batches[index];
            let rows: Vec<&Sequence> = batch.iter().map(|&row| sequences[row]).collect();
            let loss = loss(batch);
            let (decoder, kept) = (self.decoder_of(&rows), self.workers.kept_bytes());
            backward::add_gradients(sum, &decoder, config, &self.rope, &rows, kept, loss)
        })
    }

    /// Turns gradients of joined matrices into one of each parameter.
    pub(crate) fn separate(&self, gradients: &mut NamedGrads) {
        self.decoder()
            .separate(&mut gradients.0, &self.checkpoint.config);
    }

    /// One optimizer step on the gradient of all ranks, of all ranks together where the optimizer is sharded; returns the gradient's norm
    /// before clipping.
    ///
    /// # Errors
    /// [`LearnError::NonFinite`] before anything was updated; [`LearnError::Ranks`] when a rank is lost, perhaps in the middle of an update.
    pub(crate) fn apply(
        &mut self,
        mut gradients: NamedGrads,
        ranks: &Ranks,
    ) -> Result<f64, LearnError> {
        self.separate(&mut gradients);
        let device = self.checkpoint.decoder.device();
        let norm = ranks.norm(gradients.global_norm(), &device)?;
        if !norm.is_finite() {
            let source = first_non_finite(&gradients);
            return Err(LearnError::NonFinite { norm, source });
        }
        let Checkpoint {
            decoder, config, ..
        } = &mut self.checkpoint;
        self.copy = OnceLock::new();
        if !self.is_tidy && !is_processor(&device) {
            // The first gradient was made on pages of growing sizes. Those that a larger size replaced stay with the allocator until
            // it is told, and moments are yet to come.
            device.memory_cleanup();
            self.is_tidy = true;
        }
        self.optimizer
            .apply(decoder, config, gradients, norm, ranks)?;
        Ok(norm)
    }

    /// One optimizer step of token-mean cross-entropy.
    ///
    /// # Errors
    /// [`LearnError::NonFinite`] before anything was updated.
    pub(crate) fn imitate(&mut self, sequences: &[Sequence]) -> Result<SftStats, LearnError> {
        self.imitate_seen(sequences, |_, _| ())
    }

    /// As [`Self::imitate`]; calls `see` with the gradient before it is applied.
    ///
    /// # Errors
    /// As [`Self::imitate`].
    pub(crate) fn imitate_seen(
        &mut self,
        sequences: &[Sequence],
        see: impl FnOnce(&Self, &NamedGrads),
    ) -> Result<SftStats, LearnError> {
        self.draw_masks();
        let tokens = targets(sequences);
        let weight = -1.0 / tokens as f64;
        let cross_entropy = |scores: &Scores| {
            let losses = scores
                .logprobs
                .iter()
                .map(|&logprob| f64::from(logprob) * weight);
            let grads = ScoreGrads {
                logprobs: vec![weight as f32; scores.logprobs.len()],
                entropies: Vec::new(),
            };
            (grads, losses.sum::<f64>())
        };
        let rows: Vec<&Sequence> = sequences.iter().collect();
        let batches = self.cut(sequences);
        let (gradients, losses) = self.gradients(&rows, &batches, |_| cross_entropy);
        see(self, &gradients);
        Ok(SftStats {
            loss: losses.iter().sum(),
            grad_norm: self.apply(gradients, &Ranks::alone())?,
            tokens,
        })
    }

    /// Mean cross-entropy of the targets, nats.
    pub(crate) fn cross_entropy(&self, sequences: &[Sequence]) -> f64 {
        let sums = self.map(&self.cut(sequences), |batch| {
            let rows: Vec<&Sequence> = batch.iter().map(|&row| &sequences[row]).collect();
            let scores = self.scores(self.decoder(), &rows);
            scores.logprobs.into_iter().map(f64::from).sum::<f64>()
        });
        -sums.iter().sum::<f64>() / targets(sequences).max(1) as f64
    }
}

/// Tokens to learn.
fn targets(sequences: &[Sequence]) -> usize {
    let counts = sequences.iter().map(|sequence| sequence.targets.len());
    counts.sum()
}
