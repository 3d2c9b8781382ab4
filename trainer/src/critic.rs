//! The critic of PPO: a separate model that estimates, before each token, the reward still to come.
//!
//! It begins as a copy of the initial policy with a linear map to one number in place of the output head, as in Search-R1 and verl, and
//! learns from the policy's batches with its own optimizer. Beside an adapter it shares the policy's base and has an adapter of its own.

use std::path::Path;

use forage_contracts::SettingError;
use forage_contracts::seed::Seed;
use serde::{Deserialize, Serialize};

use crate::backward::{add_value_gradients, values};
use crate::grads::NamedGrads;
use crate::learner::UpdateConfig;
use crate::logprobs::Targets;
use crate::model::{Batch, Decoder, Linear};
use crate::objective::{ValueTerms, value_loss};
use crate::optim::{AdamW, AdamWConfig};
use crate::ranks::{RankError, Ranks, Shard};
use crate::sequence::{Sequence, ids};
use crate::student::{LearnError, Student};
use crate::update::Scored;
use crate::update_stats::{ValueStats, ValueSums};
use crate::weights::{Checkpoint, SaveOptions, WeightsError, adapter, save_decoder_as, value_head};

/// The training of the critic of credit `gae`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CriticConfig {
    /// Its learning rate after warm-up. Its other `AdamW` settings are the policy's (`grpo.update.optimizer`).
    pub learning_rate: f64,
    /// Optimizer steps of linear warm-up of its rate from zero.
    pub warmup_steps: u64,
    /// Distance from the old value beyond which a value is not moved further: verl's `cliprange_value`.
    pub clip: f64,
    /// Optimizer steps of the critic before the policy's first: until a batch begins with that many done, only the critic learns. verl's
    /// `critic_warmup` counts batches.
    pub head_start: u64,
}

impl Default for CriticConfig {
    fn default() -> Self {
        Self {
            learning_rate: 1e-5,
            warmup_steps: 10,
            clip: 0.5,
            head_start: 0,
        }
    }
}

impl CriticConfig {
    /// Settings of its optimizer, from those of the policy's.
    pub(crate) fn optimizer(&self, policy: AdamWConfig) -> AdamWConfig {
        AdamWConfig {
            learning_rate: self.learning_rate,
            warmup_steps: self.warmup_steps,
            ..policy
        }
    }

    fn check(&self, policy: AdamWConfig) -> Result<(), SettingError> {
        if self.clip.is_nan() || self.clip <= 0.0 {
            return Err(SettingError::range("clip", self.clip, "above 0"));
        }
        self.optimizer(policy).check()
    }
}

impl UpdateConfig {
    /// Returns whether a critic learns beside the policy.
    pub fn has_critic(&self) -> bool {
        self.objective.recipe(1).credit.reads_values()
    }

    /// How the critic learns, where there is one.
    pub(crate) fn critic(&self) -> Option<CriticConfig> {
        let critic = self.critic.unwrap_or_default();
        self.has_critic().then_some(critic)
    }

    /// Checks the critic's settings, and that there is one to read them.
    pub(crate) fn check_critic(&self) -> Result<(), SettingError> {
        match (self.critic, self.critic()) {
            (Some(_), None) => {
                let fault = "is read by credit.gae alone; set algorithm = \"ppo\", or leave it out";
                Err(SettingError::new("critic", fault))
            }
            (_, Some(critic)) => critic
                .check(self.optimizer)
                .map_err(|error| error.of("critic")),
            (None, None) => Ok(()),
        }
    }
}

/// A value model that learns.
pub(crate) struct Critic {
    student: Student,
    config: CriticConfig,
}

impl Critic {
    /// Makes a critic from `start`, the initial policy; `student` makes the trainable form of a model and an optimizer.
    pub(crate) fn new(
        start: &Checkpoint,
        config: CriticConfig,
        student: impl FnOnce(Checkpoint) -> Student,
    ) -> Self {
        let mut model = start.clone();
        // Its files hold no output head.
        model.config.tie_word_embeddings = true;
        model.decoder = model.decoder.with_fresh_value_head(Seed::root(0));
        if let Some(lora) = &mut model.lora {
            lora.dropout = 0.0;
        }
        Self {
            student: student(model),
            config,
        }
    }

    /// Draws its head at the run's seed.
    pub(crate) fn set_seed(&mut self, seed: Seed) {
        let decoder = self.student.checkpoint().decoder.clone();
        let seed = seed.child("critic", &[]);
        self.student
            .set_decoder(decoder.with_fresh_value_head(seed));
    }

    /// Keeps the moments of this shard alone from now on, where the config says so.
    pub(crate) fn deal(&mut self, shard: Shard) {
        self.student.optimizer.deal(shard);
    }

    /// Its weights and moments.
    pub(crate) fn state(&self) -> (&Checkpoint, &AdamW) {
        (self.student.checkpoint(), &self.student.optimizer)
    }

    /// Continues from saved weights and moments.
    pub(crate) fn restore(&mut self, (decoder, optimizer): (Decoder, AdamW)) {
        self.student.set_decoder(decoder);
        self.student.optimizer = optimizer;
    }

    /// Returns whether it still has its head start on the policy.
    pub(crate) fn has_head_start(&self) -> bool {
        self.student.optimizer.steps() < self.config.head_start
    }

    /// The value before each target of some sequences, in order.
    pub(crate) fn values(&self, sequences: &[&Sequence]) -> Vec<f32> {
        let student = &self.student;
        let (decoder, config) = (student.decoder(), &student.checkpoint().config);
        let batch = Batch::new(&ids(sequences.iter().copied()));
        let Some(targets) = Targets::of(sequences, &batch, decoder) else {
            return Vec::new();
        };
        let hidden = decoder.hidden(config, &student.rope, &batch);
        let rows = targets.rows(&decoder.device());
        values(self.head(), hidden.select(0, rows))
    }

    /// The head in f32, whatever the rest computes in.
    fn head(&self) -> &Linear {
        let head = self.student.checkpoint().decoder.lm_head();
        head.expect("a critic has a value head")
    }

    /// One optimizer step on each minibatch in each of the `epochs`, on all ranks together; `parts`: as for the policy.
    ///
    /// # Errors
    /// [`LearnError::Critic`] before the step at fault; [`LearnError::Ranks`] when a rank is lost.
    pub(crate) fn learn(
        &mut self,
        minibatches: &[Vec<Scored>],
        epochs: usize,
        ranks: &Ranks,
        parts: Option<usize>,
    ) -> Result<ValueStats, LearnError> {
        let mut stats = ValueStats::of(minibatches.iter().flatten());
        for minibatch in (0..epochs).flat_map(|_| minibatches) {
            let (gradients, sums) = self.gradients(minibatch, ranks, parts)?;
            let norm = self.student.apply(gradients, ranks);
            stats.add(&sums, norm.map_err(LearnError::of_critic)?);
        }
        Ok(stats)
    }

    /// Gradients of the loss of an optimizer step, with its sums over tokens.
    fn gradients(
        &self,
        scored: &[Scored],
        ranks: &Ranks,
        parts: Option<usize>,
    ) -> Result<(NamedGrads, ValueSums), RankError> {
        let (student, head) = (&self.student, self.head());
        let (config, decoder) = (&student.checkpoint().config, student.decoder());
        let batches = student.cut(scored.iter().map(|row| &row.sequence));
        let (own, parts) = ranks.deal(batches.len(), parts);
        let batches = &batches[own];
        let (gradients, sums) = student.workers.gradients_of_parts(&parts, |index, sum| {
            if ranks.loss().is_some() {
                return None;
            }
            let rows: Vec<&Scored> = batches[index].iter().map(|&row| &scored[row]).collect();
            let sequences: Vec<&Sequence> = rows.iter().map(|row| &row.sequence).collect();
            let loss = |values: &[f32]| loss(&rows, values, self.config.clip);
            let (rope, kept) = (&student.rope, student.workers.kept_bytes());
            let decoder = (decoder, head);
            add_value_gradients(sum, decoder, config, rope, &sequences, kept, loss)
        });
        let (gradients, sums) = ranks.sum(gradients, sums, &decoder.device())?;
        let mut total = ValueSums::default();
        for of_batch in sums {
            total += of_batch;
        }
        Ok((gradients, total))
    }

    /// Reads what [`save`] wrote after so many `updates`; keeps the moments of this shard alone where the config shards them.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file.
    pub(crate) fn load(
        &self,
        folder: &Path,
        updates: u64,
        policy: AdamWConfig,
        shard: Shard,
    ) -> Result<(Decoder, AdamW), WeightsError> {
        let Checkpoint {
            decoder, config, ..
        } = self.student.checkpoint();
        let (model, device) = (folder.join(MODEL), decoder.device());
        let decoder = if decoder.is_adapted() {
            let mut decoder = decoder.clone().without_head().without_adapter();
            adapter::load(&mut decoder, &model)?;
            decoder
        } else {
            Decoder::load(&model, config, &device)?
        };
        let decoder = value_head::load(decoder, &folder.join(HEAD))?;
        let optimizer = self.config.optimizer(policy);
        let moments = folder.join(OPTIMIZER);
        let optimizer = AdamW::load(optimizer, shard, updates, &moments, &device)?;
        optimizer.check_fit(&decoder, &moments)?;
        Ok((decoder, optimizer))
    }
}

/// Folder of the weights: a model without its head, or a PEFT folder.
const MODEL: &str = "model";
const HEAD: &str = "head.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";

/// Writes weights and moments of a critic into a folder; `ranks` keep those that are not here.
///
/// # Errors
/// [`WeightsError`] that names the file.
pub(crate) fn save(
    (model, optimizer): (&Checkpoint, &AdamW),
    folder: &Path,
    ranks: &Ranks,
) -> Result<(), WeightsError> {
    let (place, decoder) = (folder.join(MODEL), model.decoder.clone().without_head());
    std::fs::create_dir_all(&place).map_err(|source| WeightsError::Io {
        path: place.clone(),
        source,
    })?;
    match model.lora.as_ref().filter(|_| decoder.is_adapted()) {
        Some(lora) => adapter::save(&decoder, lora, &place)?,
        None => save_decoder_as(&place, &decoder, SaveOptions::default())?,
    }
    if let Some(head) = model.decoder.lm_head() {
        value_head::save(head, &folder.join(HEAD))?;
    }
    Ok(optimizer.save(&folder.join(OPTIMIZER), ranks)?)
}

/// Loss and derivative of the values of the targets of `rows`, in order.
fn loss(rows: &[&Scored], values: &[f32], clip: f64) -> (Vec<f32>, ValueSums) {
    let (mut gradients, mut sums) = (Vec::with_capacity(values.len()), ValueSums::default());
    for row in rows {
        let start = gradients.len();
        let lesson = &row.lesson;
        let values = &values[start..start + lesson.returns.len()];
        let ValueTerms {
            loss,
            gradients: of_row,
            clipped,
        } = value_loss(values, &lesson.values, &lesson.returns, clip, row.weight);
        gradients.extend(of_row);
        sums += ValueSums {
            tokens: values.len(),
            loss,
            clipped,
        };
    }
    (gradients, sums)
}
