//! The learner: weights, optimizer and engine, improved by scored token logs. It does not know what the task was.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::DType;
use forage_contracts::SettingError;
use forage_contracts::policy::Policy;
use forage_contracts::seed::Seed;
use serde::{Deserialize, Serialize};

use crate::critic::{Critic, CriticConfig};
use crate::device::{ComputeType, is_processor};
use crate::generate::{Engine, EngineConfig};
use crate::grads::NamedGrads;
use crate::logprobs::Scores;
use crate::memory::Workload;
use crate::model::Decoder;
use crate::objective::{Credit, ObjectiveConfig, Recipe};
use crate::optim::{AdamW, AdamWConfig};
use crate::push::{Pushed, Pusher};
use crate::ranks::{Ranks, sample};
use crate::remote::RemotePolicy;
use crate::sample::Sample;
use crate::scoring::sentence_ends;
use crate::sequence::{BatchSize, Sequence};
use crate::student::{LearnError, SftStats, Student};
use crate::temperature;
use crate::update::{
    GroupCounts, Scored, TokenSums, ValueStats, hold_entropy, loss, minibatches, score,
};
use crate::weights::Checkpoint;
use crate::workers::Workers;

/// The log-probabilities that the ratio of an objective compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldLogprobs {
    /// Those that the sampler reported: exact where this program samples on the processor and nothing is dropped, since one path
    /// computes both there.
    Sampler,
    /// Those that the trainer computes at the start of the batch: one more forward pass. Needed where another engine samples or
    /// another device, whose sampler and trainer round differently, and by whatever weighs the mismatch between the two. Beside an
    /// adapter with dropout they are computed with the masks of the batch, so that the ratio of its first step is 1.
    Trainer,
}

/// The objective of an update and its optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateConfig {
    /// Softmax temperatures of sampling and of the loss, lowest and highest: a config writes a number, or a range of two of which each
    /// episode draws its own.
    #[serde(with = "temperature")]
    #[schemars(with = "temperature::Written")]
    pub temperature: [f32; 2],
    /// Optimizer steps that a batch of rollouts is cut into, whole groups each.
    pub minibatches: usize,
    /// Passes over a batch.
    pub epochs: usize,
    /// The log-probabilities that the ratio compares with; by default the exact ones: the
    /// sampler's on the processor, the trainer's elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_logprobs: Option<OldLogprobs>,
    /// Most tokens per forward and backward pass (a longer sequence is a pass of its own): memory, not meaning.
    pub micro_batch_tokens: usize,
    /// The numbers that products and activations of an update are computed in: bf16 by default on CUDA and `ROCm`, f32 elsewhere. Weights
    /// that learn, their gradients and their moments are f32 whatever this says: with bf16 there is a copy, cast after each update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ComputeType>,
    /// Sums that the gradient is added up from: runs of as many parts have the same bits, whatever the number of ranks that
    /// compute them. By default as many as there are ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<usize>,
    /// Text after which a policy writes its answer, for instance `<answer>`: what credit `information_gain` asks the gold answer
    /// behind. Any other credit has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_lead: Option<String>,
    /// Name of the tag, without its brackets, between whose pairs the policy's own text is read and not learned from: the mask of
    /// SSRL (arXiv 2508.10874) is `information`. The tags themselves are learned, which is assumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlearned_tag: Option<String>,
    /// The algorithm, with what replaces its parts.
    pub objective: ObjectiveConfig,
    /// The optimizer.
    pub optimizer: AdamWConfig,
    /// The critic of credit `gae`, by default that of the published systems; no other credit has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critic: Option<CriticConfig>,
}

impl Default for UpdateConfig {
    fn default() -> Self {
        Self {
            temperature: [1.0; 2],
            minibatches: 1,
            epochs: 1,
            old_logprobs: None,
            micro_batch_tokens: 2048,
            dtype: None,
            parts: None,
            answer_lead: None,
            unlearned_tag: None,
            objective: ObjectiveConfig::default(),
            optimizer: AdamWConfig::default(),
            critic: None,
        }
    }
}

impl UpdateConfig {
    /// Checks the ranges and what cannot go together.
    ///
    /// # Errors
    /// [`SettingError`], which names the key at fault and the fix.
    pub fn check(&self) -> Result<(), SettingError> {
        temperature::check(self.temperature)?;
        for (key, value) in [
            ("minibatches", self.minibatches),
            ("epochs", self.epochs),
            ("micro_batch_tokens", self.micro_batch_tokens),
            ("parts", self.parts.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(SettingError::new(key, "must be at least 1"));
            }
        }
        self.objective
            .check()
            .map_err(|error| error.of("objective"))?;
        if let (Some(OldLogprobs::Sampler), Some((key, why))) =
            (self.old_logprobs, self.needs_trainers_logprobs())
        {
            let fault = format!("{why}; set old_logprobs = \"trainer\", or remove it");
            return Err(SettingError::new(key, fault));
        }
        let gains = matches!(
            self.objective.recipe(1).credit,
            Credit::InformationGain { .. }
        );
        match &self.answer_lead {
            None if gains => {
                let fault = "information_gain asks for the gold answer; set answer_lead to the text that comes before an answer, \
                             \"<answer>\" say";
                return Err(SettingError::new("objective.credit", fault));
            }
            Some(_) if !gains => {
                let fault = "is read by credit.information_gain alone; leave it out";
                return Err(SettingError::new("answer_lead", fault));
            }
            _ => {}
        }
        if self
            .unlearned_tag
            .as_ref()
            .is_some_and(|tag| tag.trim().is_empty() || tag.contains(['<', '>']))
        {
            let fault = "must be a tag's name without brackets, \"information\" say";
            return Err(SettingError::new("unlearned_tag", fault));
        }
        self.optimizer
            .check()
            .map_err(|error| error.of("optimizer"))?;
        self.check_critic()
    }

    /// The same with what names and defaults stand for. `max_tokens`: see [`ObjectiveConfig::recipe`].
    #[must_use]
    pub fn spelled_out(&self, max_tokens: usize) -> Self {
        Self {
            objective: self.objective.spelled_out(max_tokens),
            critic: self.critic(),
            ..self.clone()
        }
    }

    /// Returns whether episodes are compared with others of their question.
    pub fn compares_members(&self) -> bool {
        self.objective.recipe(1).advantage.name() != "reinforce_pp"
    }

    /// The key of the objective that needs the trainer's own log-probabilities, if any does, and why.
    fn needs_trainers_logprobs(&self) -> Option<(&'static str, &'static str)> {
        let recipe = self.objective.recipe(1);
        if recipe.correction.is_some() {
            let why = "compares the trainer's log-probabilities with the sampler's";
            return Some(("objective.correction", why));
        }
        let why = "needs entropies before the step";
        if recipe.entropy.anchored.is_some() {
            return Some(("objective.entropy.anchored", why));
        }
        let masks = recipe.entropy.top_share < 1.0;
        masks.then_some(("objective.entropy.top_share", why))
    }

    /// The log-probabilities that the ratio compares with where the config does not say: the sampler's log-probabilities where they are `exact`, those
    /// that the trainer would compute to the last bits, and nothing needs the trainer's.
    pub fn old_logprobs_where(&self, exact: bool) -> OldLogprobs {
        let sampler = exact && self.needs_trainers_logprobs().is_none();
        self.old_logprobs.unwrap_or(if sampler {
            OldLogprobs::Sampler
        } else {
            OldLogprobs::Trainer
        })
    }
}

/// Weights that learn, with the engine that samples from them.
pub struct Learner {
    pub(crate) student: Student,
    /// The value model, kept only where the objective reads one.
    pub(crate) critic: Option<Box<Critic>>,
    /// The frozen start, kept only when the objective refers to it; of an adapted start its base, which is shared.
    pub(crate) reference: Option<Decoder>,
    pub(crate) config: UpdateConfig,
    pub(crate) recipe: Recipe,
    /// Most tokens of a sequence.
    pub(crate) context: usize,
    /// Whether each token id ends a sentence; empty unless the loss reads it.
    sentence_ends: Vec<bool>,
    /// Entropy of the run's first batch that learned something, nats, where the objective holds entropy there.
    anchor: Option<f32>,
    sampler: Sampler,
    /// Of the steps so far, without what was played.
    work: Workload,
    /// The processes that it learns with.
    pub(crate) ranks: Arc<Ranks>,
}

/// The sampler of rollouts.
enum Sampler {
    /// An engine in this process. It takes the copy that updates compute with where it computes in the same type.
    Own {
        engine: Arc<Engine>,
        shares_copy: bool,
    },
    /// A server.
    Remote(Pusher),
}

impl Learner {
    /// Takes a checkpoint loaded on a plain device and starts an engine on it.
    pub fn new(
        mut checkpoint: Checkpoint,
        config: UpdateConfig,
        engine: EngineConfig,
        workers: Workers,
    ) -> Self {
        if checkpoint.lora.is_some() {
            // The base stays as it is: arranged for the engine now, it is held once.
            checkpoint.decoder = checkpoint.decoder.arranged();
        }
        let sampler = Sampler::Own {
            shares_copy: engine.bf16 && config.dtype == Some(ComputeType::Bf16),
            engine: Arc::new(Engine::start(&checkpoint, engine, workers.kernel_pool())),
        };
        Self::with_sampler(checkpoint, config, engine.context, workers, sampler)
    }

    /// Takes a checkpoint loaded on a plain device; a server samples, and reads new weights from folders made in `folder`.
    /// `context`: most tokens of a sequence.
    pub fn remote(
        checkpoint: Checkpoint,
        config: UpdateConfig,
        context: usize,
        workers: Workers,
        policy: RemotePolicy,
        folder: PathBuf,
    ) -> Self {
        let sampler = Sampler::Remote(Pusher::new(policy, folder, context));
        Self::with_sampler(checkpoint, config, context, workers, sampler)
    }

    fn with_sampler(
        checkpoint: Checkpoint,
        config: UpdateConfig,
        context: usize,
        workers: Workers,
        sampler: Sampler,
    ) -> Self {
        let recipe = config.objective.recipe(context);
        let in_bf16 = config.dtype == Some(ComputeType::Bf16);
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
            sampler,
            work: Workload::default(),
            ranks: Arc::new(Ranks::alone()),
        }
    }

    /// Learns with these processes from now on.
    pub(crate) fn join(&mut self, ranks: Arc<Ranks>) {
        self.ranks = ranks;
    }

    /// Begins what learning draws at the run's seed.
    pub(crate) fn set_seed(&mut self, seed: Seed) {
        self.student.set_seed(seed);
        if let Some(critic) = &mut self.critic {
            critic.set_seed(seed);
        }
    }

    /// Draws the masks of dropout, if there are any, for the steps on a batch: the same for all of them, so that ratios between them
    /// are of the weights alone. Returns whether there are any.
    pub(crate) fn draw_masks(&mut self) -> bool {
        self.student.draw_masks();
        self.student.drops()
    }

    /// The processes that it learns with.
    pub(crate) fn ranks(&self) -> &Arc<Ranks> {
        &self.ranks
    }

    /// Digest of a sample of the weights.
    pub(crate) fn sample(&self) -> u64 {
        let own = sample(&self.student.checkpoint().decoder);
        let critic = self.critic_state().map(|(model, _)| sample(&model.decoder));
        critic.map_or(own, |critic| own ^ critic.rotate_left(1))
    }

    /// Weights and moments of the critic, for checkpoints, where there is one.
    pub(crate) fn critic_state(&self) -> Option<(&Checkpoint, &AdamW)> {
        self.critic.as_deref().map(Critic::state)
    }

    /// The policy to roll out: the weights that were published last.
    pub fn policy(&self) -> Arc<dyn Policy> {
        match &self.sampler {
            Sampler::Own { engine, .. } => Arc::clone(engine) as Arc<dyn Policy>,
            Sampler::Remote(pusher) => Arc::clone(pusher.policy()) as Arc<dyn Policy>,
        }
    }

    /// The current weights as a checkpoint that can be saved.
    pub fn checkpoint(&self) -> Checkpoint {
        self.student.checkpoint().clone()
    }

    /// The work so far, for comparison of an estimate of memory with the truth.
    pub fn work(&self) -> Workload {
        let played_tokens = match &self.sampler {
            Sampler::Own { engine, .. } => {
                let stats = engine.stats();
                stats
                    .prompt_tokens
                    .saturating_sub(stats.cached_prompt_tokens)
                    + stats.generated_tokens
            }
            Sampler::Remote(_) => 0,
        };
        Workload {
            played_tokens: usize::try_from(played_tokens).unwrap_or(usize::MAX),
            ..self.work
        }
    }

    /// The optimizer, for checkpoints.
    pub(crate) fn optimizer(&self) -> &AdamW {
        &self.student.optimizer
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

    /// Hands the current weights to whoever samples; their version is the number of optimizer steps done. Returns what was seen of
    /// a push, where a server samples.
    ///
    /// # Errors
    /// [`LearnError`] when the sampler is gone, the weights cannot be saved for a server, or a server has others afterwards.
    pub(crate) async fn publish(&mut self) -> Result<Option<Pushed>, LearnError> {
        let version = self.student.optimizer.steps();
        let started = Instant::now();
        let pushed = match &mut self.sampler {
            Sampler::Own {
                engine,
                shares_copy,
            } => {
                let decoder = if *shares_copy {
                    self.student.decoder()
                } else {
                    &self.student.checkpoint().decoder
                };
                engine.swap(decoder.clone(), version).await?;
                None
            }
            Sampler::Remote(pusher) => Some(pusher.push(&self.student, version).await?),
        };
        let ms = started.elapsed().as_millis() as u64;
        tracing::debug!(version, ms, "weights synced");
        Ok(pushed)
    }

    /// Tells a server the weights the run begins with; an engine of this process has them.
    ///
    /// # Errors
    /// As `Self::publish`.
    pub(crate) async fn announce(&mut self) -> Result<(), LearnError> {
        if matches!(self.sampler, Sampler::Remote(_)) {
            self.publish().await?;
        }
        Ok(())
    }

    /// Advantages of groups, one per token, and what became of the groups.
    ///
    /// # Errors
    /// [`LearnError::Ranks`] when a rank is lost.
    pub(crate) fn advantages(
        &self,
        mut groups: Vec<Vec<Sample>>,
    ) -> Result<(Vec<Scored>, GroupCounts), LearnError> {
        // What does not say how it was drawn was drawn at the run's one temperature.
        let temperature = self.config.one_temperature().unwrap_or(1.0);
        let anchored = self.recipe.entropy.anchored;
        for Sample { sequence, .. } in groups.iter_mut().flatten() {
            if sequence.temperatures.is_empty() {
                sequence.temperatures = vec![temperature; sequence.targets.len()];
            }
            sequence.nucleus = anchored.map_or(0.0, |anchored| anchored.top_p);
        }
        let readings = self.readings(&groups)?;
        Ok(score(groups, &self.recipe, &readings, &self.sentence_ends))
    }

    /// Returns whether the critic is to learn without the policy.
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

    /// Passes over a batch.
    pub(crate) fn epochs(&self) -> usize {
        self.config.epochs
    }

    /// The sequences of each optimizer step of a batch, weighted.
    pub(crate) fn minibatches(&mut self, scored: Vec<Scored>) -> Vec<Vec<Scored>> {
        let mut steps = minibatches(scored, self.config.minibatches, &self.recipe);
        if let Some(anchored) = self.recipe.entropy.anchored {
            self.anchor = hold_entropy(&mut steps, &anchored, self.anchor);
        }
        steps
    }

    /// Puts the log-probabilities in place that ratios compare with, where they are not the sampler's.
    ///
    /// # Errors
    /// [`LearnError::Ranks`] when a rank is lost.
    pub(crate) fn set_old_logprobs(&self, scored: &mut [Scored]) -> Result<(), LearnError> {
        let exact = matches!(self.sampler, Sampler::Own { .. })
            && !self.student.drops()
            && is_processor(&self.student.checkpoint().decoder.device());
        if self.config.old_logprobs_where(exact) == OldLogprobs::Trainer {
            self.recompute(scored)?;
        }
        Ok(())
    }

    /// One optimizer step; returns the norm of the gradient before clipping and the learning rate.
    ///
    /// # Errors
    /// [`LearnError::NonFinite`] before anything was updated.
    pub(crate) fn optimize(&mut self, gradients: NamedGrads) -> Result<(f64, f64), LearnError> {
        let rate = self.config.optimizer.rate(self.student.optimizer.steps());
        Ok((self.student.apply(gradients)?, rate))
    }

    /// Gradients of the loss of an optimizer step, micro-batch by micro-batch, with its sums over tokens. The cut is that of the
    /// whole step on every rank, which runs the micro-batches of its parts.
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
