//! The learner: weights, optimizer and engine, trained on scored token logs. It knows nothing of tasks.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{DType, Device};
use forage_contracts::SettingError;
use forage_contracts::policy::Policy;
use forage_contracts::seed::Seed;

use crate::critic::{Critic, CriticConfig};
use crate::device::{ComputeType, is_processor};
use crate::generate::{Engine, EngineConfig};
use crate::gradient_spectra::GradientSpectrum;
use crate::grads::NamedGrads;
use crate::logprobs::Scores;
use crate::memory::Workload;
use crate::model::Decoder;
use crate::objective::{RankMetrics, Recipe};
use crate::optim::AdamW;
use crate::push::{Pushed, Pusher};
use crate::ranks::{RankError, Ranks, sample};
use crate::remote::RemotePolicy;
use crate::scoring::sentence_ends;
use crate::sequence::{BatchSize, Sequence};
use crate::student::{LearnError, SftStats, Student};
use crate::update::{Scored, hold_entropy, loss, minibatches, restrain};
pub use crate::update_config::{OldLogprobs, UpdateConfig};
use crate::update_stats::{TokenSums, ValueStats};
use crate::weights::Checkpoint;
use crate::workers::Workers;

/// The weights being trained, with their optimizer and the engine or server that samples from them.
pub struct Learner {
    pub(crate) student: Student,
    /// The value model, kept only where the objective reads one.
    pub(crate) critic: Option<Box<Critic>>,
    /// The frozen initial policy, kept only when the objective reads a reference; beside an adapter the shared base.
    pub(crate) reference: Option<Decoder>,
    pub(crate) config: UpdateConfig,
    pub(crate) recipe: Recipe,
    /// Most tokens of a sequence.
    pub(crate) context: usize,
    /// Whether each token id ends a sentence; empty unless the loss reads it.
    pub(crate) sentence_ends: Vec<bool>,
    /// Entropy of the run's first batch with a gradient, nats, where the objective holds entropy there.
    anchor: Option<f32>,
    /// Moving averages of the metrics of hidden states, where the objective shapes advantages by them.
    averages: Option<RankMetrics>,
    /// Spectra of gradients of the newest batch, where they are measured.
    pub(crate) spectra: Vec<GradientSpectrum>,
    sampler: Sampler,
    /// The training work so far, without rollouts.
    work: Workload,
    /// The ranks that it learns with.
    pub(crate) ranks: Arc<Ranks>,
}

/// The sampler of rollouts.
enum Sampler {
    /// Engines in this process, one for each version of the weights that is in play. They share the copy that updates compute with where
    /// both compute in the same type.
    Own {
        engines: Vec<Arc<Engine>>,
        /// Index of the engine with the newest weights; the next index, modulo the number of engines, has the oldest.
        newest: usize,
        sizes: EngineConfig,
        shares_copy: bool,
    },
    /// Rollout servers.
    Remote(Pusher),
}

impl Learner {
    /// Makes a learner of a checkpoint on a device without autodiff, and starts an engine on it.
    pub fn new(
        mut checkpoint: Checkpoint,
        config: UpdateConfig,
        engine: EngineConfig,
        workers: Workers,
    ) -> Self {
        if checkpoint.lora.is_some() {
            // The base is frozen, so engine and learner can share one copy, arranged for the engine.
            checkpoint.decoder = checkpoint.decoder.arranged();
        }
        if config.dtype == Some(ComputeType::Bf16) {
            checkpoint.decoder = checkpoint.decoder.sharing_base(DType::BF16);
        }
        let sampler = Sampler::Own {
            engines: vec![Arc::new(Engine::start(
                &checkpoint,
                engine,
                workers.kernel_pool(),
            ))],
            newest: 0,
            sizes: engine,
            shares_copy: engine.bf16 && config.dtype == Some(ComputeType::Bf16),
        };
        Self::with_sampler(checkpoint, config, engine.context, workers, sampler)
    }

    /// Makes a learner of a checkpoint on a device without autodiff, with servers as samplers, which read new weights from folders made
    /// in `folder`. `context`: most tokens of a sequence.
    pub fn remote(
        checkpoint: Checkpoint,
        config: UpdateConfig,
        context: usize,
        workers: Workers,
        policy: RemotePolicy,
        folder: PathBuf,
    ) -> Self {
        let policy = policy.of_vocabulary(checkpoint.config.vocab_size);
        let sampler = Sampler::Remote(Pusher::new(policy, folder, context));
        Self::with_sampler(checkpoint, config, context, workers, sampler)
    }

    fn with_sampler(
        mut checkpoint: Checkpoint,
        config: UpdateConfig,
        context: usize,
        workers: Workers,
        sampler: Sampler,
    ) -> Self {
        let recipe = config.objective.recipe(context);
        // No sequence is longer than the model reads, however long an episode may be by the config.
        let context = context.min(checkpoint.config.max_position_embeddings);
        let in_bf16 = config.dtype == Some(ComputeType::Bf16);
        if in_bf16 {
            // Before anything else holds it.
            checkpoint.decoder = checkpoint.decoder.sharing_base(DType::BF16);
        }
        let sentence_ends = if recipe.loss.reads_sentences() {
            sentence_ends(&checkpoint.tokenizer)
        } else {
            Vec::new()
        };
        let reference = recipe.needs_reference().then(|| {
            let base = checkpoint.decoder.clone().without_adapter();
            if in_bf16 {
                base.copy_to_train(DType::BF16)
            } else {
                base
            }
        });
        let (optimizer, budget) = (config.optimizer, config.micro_batch_tokens);
        let student = |model, optimizer, workers| {
            Student::new(model, optimizer, context, budget, workers).computing_in(in_bf16)
        };
        let critic = |settings: CriticConfig| {
            let (own, workers) = (settings.optimizer(optimizer), workers.clone());
            let critic = Critic::new(&checkpoint, settings, |model| student(model, own, workers));
            Box::new(critic)
        };
        Self {
            critic: config.critic().map(critic),
            student: student(checkpoint, optimizer, workers),
            reference,
            config,
            recipe,
            context,
            sentence_ends,
            anchor: None,
            averages: None,
            spectra: Vec::new(),
            sampler,
            work: Workload::default(),
            ranks: Arc::new(Ranks::alone()),
        }
    }

    /// Makes room for `versions` versions of the weights in play at a time: an episode is sampled to its end by the weights it began
    /// with, until that many newer versions were published.
    ///
    /// # Errors
    /// [`SettingError`] where a server has one set of whole weights.
    pub(crate) fn keep_versions(&mut self, versions: usize) -> Result<(), SettingError> {
        let Self {
            student, sampler, ..
        } = self;
        let start = student.checkpoint();
        match sampler {
            Sampler::Own { engines, sizes, .. } => {
                while engines.len() < versions {
                    let pool = student.workers.kernel_pool();
                    engines.push(Arc::new(Engine::start(start, *sizes, pool)));
                }
            }
            Sampler::Remote(_) if versions > 1 && start.lora.is_none() => {
                let fault = "has one set of whole weights, and episodes of several versions would be in play; train an adapter \
                             ([policy.lora]), or write 1";
                return Err(SettingError::new("a server", fault));
            }
            Sampler::Remote(pusher) => pusher.keep_versions(versions),
        }
        Ok(())
    }

    /// Joins learners of this process as ranks of one run, in their order: the next [`crate::run::run_grpo`] calls, each on a thread of
    /// its own, form that run. CUDA devices sum gradients among themselves, in NCCL's order of additions.
    ///
    /// # Errors
    /// When the system gives no connections within this machine.
    pub fn together(learners: &mut [Self]) -> io::Result<()> {
        let device = |learner: &Self| learner.student.checkpoint().decoder.device();
        let devices: Vec<Device> = learners.iter().map(device).collect();
        for (learner, ranks) in learners.iter_mut().zip(Ranks::here(&devices)?) {
            learner.join(Arc::new(ranks));
        }
        Ok(())
    }

    /// Sets the ranks to learn with, and keeps the moments of its own shard where the config shards them.
    pub(crate) fn join(&mut self, ranks: Arc<Ranks>) {
        self.student.optimizer.deal(ranks.shard());
        if let Some(critic) = &mut self.critic {
            critic.deal(ranks.shard());
        }
        self.ranks = ranks;
    }

    /// Seeds everything that training draws.
    pub(crate) fn set_seed(&mut self, seed: Seed) {
        self.student.set_seed(seed);
        if let Some(critic) = &mut self.critic {
            critic.set_seed(seed);
        }
    }

    /// Draws the dropout masks, if any, for the steps on a batch: the same for all of them, so that ratios compare weights alone. Returns
    /// whether there are any.
    pub(crate) fn draw_masks(&mut self) -> bool {
        self.student.draw_masks();
        self.student.drops()
    }

    /// The ranks that it learns with.
    pub(crate) fn ranks(&self) -> &Arc<Ranks> {
        &self.ranks
    }

    /// Digest of a sample of the weights.
    pub(crate) fn weights_digest(&self) -> u64 {
        let own = sample(&self.student.checkpoint().decoder);
        let critic = self.critic_state().map(|(model, _)| sample(&model.decoder));
        critic.map_or(own, |critic| own ^ critic.rotate_left(1))
    }

    /// Weights and moments of the critic, if there is one, for checkpoints.
    pub(crate) fn critic_state(&self) -> Option<(&Checkpoint, &AdamW)> {
        self.critic.as_deref().map(Critic::state)
    }

    /// The policy to roll out, under the weights published last.
    pub fn policy(&self) -> Arc<dyn Policy> {
        match &self.sampler {
            Sampler::Own {
                engines, newest, ..
            } => Arc::clone(&engines[*newest]) as Arc<dyn Policy>,
            Sampler::Remote(pusher) => pusher.policy(),
        }
    }

    /// The current weights as a checkpoint that can be saved.
    pub fn checkpoint(&self) -> Checkpoint {
        self.student.checkpoint().clone()
    }

    /// The work so far, to compare an estimate of memory with the measured peak.
    pub fn work(&self) -> Workload {
        let played_tokens = match &self.sampler {
            Sampler::Own { engines, .. } => {
                let played = |engine: &Arc<Engine>| {
                    let stats = engine.stats();
                    stats
                        .prompt_tokens
                        .saturating_sub(stats.cached_prompt_tokens)
                        + stats.generated_tokens
                };
                engines.iter().map(played).sum()
            }
            Sampler::Remote(_) => 0,
        };
        Workload {
            played_tokens: usize::try_from(played_tokens).unwrap_or(usize::MAX),
            kept_bytes: self.student.workers.kept_bytes(),
            ..self.work
        }
    }

    /// The optimizer, for checkpoints.
    pub(crate) fn optimizer(&self) -> &AdamW {
        &self.student.optimizer
    }

    /// Sends this rank's moments to rank 0, which is writing a checkpoint: the policy's, then the critic's.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    pub(crate) fn send_moments(&self) -> Result<(), RankError> {
        self.student.optimizer.send(&self.ranks)?;
        let critic = self.critic_state();
        critic.map_or(Ok(()), |(_, optimizer)| optimizer.send(&self.ranks))
    }

    /// Continues from saved weights and moments.
    ///
    /// # Errors
    /// As `Self::publish`.
    pub(crate) async fn restore(
        &mut self,
        decoder: Decoder,
        optimizer: AdamW,
        of_critic: Option<(Decoder, AdamW)>,
    ) -> Result<(), LearnError> {
        self.student.set_decoder(decoder);
        self.student.optimizer = optimizer;
        if let (Some(critic), Some(state)) = (&mut self.critic, of_critic) {
            critic.restore(state);
        }
        self.publish().await?;
        Ok(())
    }

    /// The entropy that the objective holds, once a batch has set it, nats.
    pub(crate) fn anchor(&self) -> Option<f32> {
        self.anchor
    }

    /// Goes on with the anchor of a saved run.
    pub(crate) fn set_anchor(&mut self, anchor: Option<f32>) {
        self.anchor = anchor;
    }

    /// The moving averages of the metrics of hidden states, once a batch has set them.
    pub(crate) fn averages(&self) -> Option<RankMetrics> {
        self.averages
    }

    /// Goes on with the averages of a saved run.
    pub(crate) fn set_averages(&mut self, averages: Option<RankMetrics>) {
        self.averages = averages;
    }

    /// Moves the averages on by the means of a step's batch.
    pub(crate) fn average(&mut self, means: Option<RankMetrics>) {
        if let (Some(shaping), Some(means)) = (self.recipe.rank_shaping, means) {
            self.averages = Some(shaping.averages(self.averages, means));
        }
    }

    /// Changes the learning rate of the next steps; the moments stay.
    pub(crate) fn set_learning_rate(&mut self, rate: f64) {
        self.student.optimizer.set_learning_rate(rate);
    }

    /// One step of supervised fine-tuning. The engine keeps the old weights until `Self::publish`.
    ///
    /// # Errors
    /// [`LearnError::NonFinite`] before anything was updated.
    pub fn imitate(&mut self, sequences: &[Sequence]) -> Result<SftStats, LearnError> {
        self.student.imitate(sequences)
    }

    /// Hands the current weights to the sampler; their version is the number of optimizer steps done. Returns the findings of a push
    /// where servers sample.
    ///
    /// # Errors
    /// [`LearnError`] when the sampler is gone, the weights cannot be saved for a server, or a server has others afterwards.
    pub(crate) async fn publish(&mut self) -> Result<Option<Pushed>, LearnError> {
        let version = self.student.optimizer.steps();
        let started = Instant::now();
        let pushed = match &mut self.sampler {
            Sampler::Own {
                engines,
                newest,
                shares_copy,
                ..
            } => {
                let decoder = if *shares_copy {
                    self.student.decoder()
                } else {
                    &self.student.checkpoint().decoder
                };
                let next = (*newest + 1) % engines.len();
                engines[next].swap(decoder.clone(), version).await?;
                *newest = next;
                None
            }
            Sampler::Remote(pusher) => Some(pusher.push(&self.student, version).await?),
        };
        let ms = started.elapsed().as_millis() as u64;
        tracing::debug!(version, ms, "weights synced");
        Ok(pushed)
    }

    /// Pushes the initial weights to servers; an engine of this process has them already.
    ///
    /// # Errors
    /// As `Self::publish`.
    pub(crate) async fn announce(&mut self) -> Result<(), LearnError> {
        if matches!(self.sampler, Sampler::Remote(_)) {
            self.publish().await?;
        }
        Ok(())
    }

    /// Returns whether only the critic learns for now.
    pub(crate) fn waits_for_critic(&self) -> bool {
        self.critic.as_deref().is_some_and(Critic::has_head_start)
    }

    /// The optimizer steps of the critic on a batch, where there is one.
    ///
    /// # Errors
    /// As `Critic::learn`.
    pub(crate) fn learn_values(
        &mut self,
        minibatches: &[Vec<Scored>],
    ) -> Result<Option<ValueStats>, LearnError> {
        let UpdateConfig { epochs, parts, .. } = self.config;
        let critic = self.critic.as_mut();
        let learned = critic.map(|critic| critic.learn(minibatches, epochs, &self.ranks, parts));
        learned.transpose()
    }

    /// Number of epochs per batch.
    pub(crate) fn epochs(&self) -> usize {
        self.config.epochs
    }

    /// Cuts a scored batch into minibatches, one optimizer step each, with their token weights.
    pub(crate) fn minibatches(&mut self, scored: Vec<Scored>) -> Vec<Vec<Scored>> {
        let mut steps = minibatches(scored, self.config.minibatches, &self.recipe);
        if let Some(anchored) = self.recipe.entropy.anchored {
            self.anchor = hold_entropy(&mut steps, &anchored, self.anchor);
        }
        steps
    }

    /// Sets the old log-probabilities, which are the sampler's or recomputed by the trainer, applies Clip-Cov and KL-Cov to them, and removes
    /// the policy loss of tokens outside the entropy mask.
    ///
    /// # Errors
    /// [`LearnError::Ranks`] when a rank is lost.
    pub(crate) fn set_old_logprobs(&self, scored: &mut [Scored]) -> Result<(), LearnError> {
        let exact = matches!(self.sampler, Sampler::Own { .. })
            && !self.student.drops()
            && is_processor(&self.student.checkpoint().decoder.device());
        let mut outside = Vec::new();
        if self.config.old_logprobs_where(exact) == OldLogprobs::Trainer {
            outside = self.recompute(scored)?;
        }
        restrain(scored, &self.recipe.entropy, self.student.draws());
        // Covariances are of the advantages of all tokens.
        for (row, token) in outside {
            scored[row].advantages[token] = 0.0;
        }
        Ok(())
    }

    /// One optimizer step; returns the norm of the gradient before clipping and the learning rate.
    ///
    /// # Errors
    /// [`LearnError::NonFinite`] before anything was updated; [`LearnError::Ranks`] when a rank is lost.
    pub(crate) fn optimize(&mut self, gradients: NamedGrads) -> Result<(f64, f64), LearnError> {
        let rate = self.config.optimizer.rate(self.student.optimizer.steps());
        Ok((self.student.apply(gradients, &self.ranks)?, rate))
    }

    /// Gradient of the loss of an optimizer step, summed over micro-batches, with the sums over its tokens. All ranks cut the step in the
    /// same way, and each runs the micro-batches of its own parts.
    ///
    /// # Errors
    /// [`LearnError::Ranks`] when a rank is lost.
    pub(crate) fn gradients(
        &mut self,
        scored: &[Scored],
    ) -> Result<(NamedGrads, TokenSums), LearnError> {
        let all: Vec<&Sequence> = sequences(scored).collect();
        let batches = self.student.cut(all.iter().copied());
        let ranks = &self.ranks;
        let (own, parts) = ranks.deal(batches.len(), self.config.parts);
        let batches = &batches[own];
        let of_batch =
            |rows: &Vec<usize>| -> Vec<&Sequence> { rows.iter().map(|&row| all[row]).collect() };
        self.work
            .grow(batches.iter().map(|rows| BatchSize::of(&of_batch(rows))));
        let (student, recipe) = (&self.student, &self.recipe);
        let reference = self.reference.as_ref();
        let reference = reference.filter(|_| recipe.loss_reads_reference());
        let is_over = || ranks.loss().is_some();
        let of_rows = |rows: &Vec<usize>| {
            let reference =
                reference.map(|reference| student.scores(reference, &of_batch(rows)).logprobs);
            let rows: Vec<&Scored> = rows.iter().map(|&row| &scored[row]).collect();
            move |scores: &Scores| loss(&rows, recipe, scores, reference.as_deref())
        };
        let (gradients, tokens) =
            student.gradients_of_parts(&all, batches, &parts, is_over, of_rows);
        let device = student.checkpoint().decoder.device();
        let (gradients, tokens) = ranks.sum(gradients, tokens, &device)?;
        let mut sums = TokenSums::default();
        for of_batch in tokens {
            sums += of_batch;
        }
        Ok((gradients, sums))
    }
}

fn sequences(scored: &[Scored]) -> impl Iterator<Item = &Sequence> {
    scored.iter().map(|scored| &scored.sequence)
}

#[cfg(test)]
mod tests;
