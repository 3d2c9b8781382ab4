//! The config of an update: `[grpo.update]`.

use forage_contracts::SettingError;
use serde::{Deserialize, Serialize};

use crate::critic::CriticConfig;
use crate::device::ComputeType;
use crate::objective::{GroupFilter, ObjectiveConfig};
use crate::optim::AdamWConfig;
use crate::temperature;

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
    /// sampler's on the processor and for the loss `a_lol`, the trainer's elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_logprobs: Option<OldLogprobs>,
    /// Most tokens per forward and backward pass (a longer sequence is a pass of its own): memory, not meaning.
    pub micro_batch_tokens: usize,
    /// The numbers that products and activations of an update are computed in: bf16 by default on `ROCm` and on CUDA from `sm_80` on, f32
    /// elsewhere. Weights that learn, their gradients and their moments are f32 whatever this says: with bf16 there is a copy, cast after
    /// each update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ComputeType>,
    /// Sums that the gradient is added up from: runs of as many parts have the same bits, whatever the number of ranks that
    /// compute them. By default as many as there are ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<usize>,
    /// Text after which a policy writes its answer, for instance `<answer>`: what credits `information_gain` and `step_potential` ask the
    /// gold answer behind. Space at its end goes to the answer's first token, as where the policy writes it. Any other credit has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_lead: Option<String>,
    /// Name of the tag, without its brackets, between whose pairs the policy's own text is read and not learned from: the mask of
    /// SSRL (arXiv 2508.10874) is `information`. The tags themselves are learned, which is assumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlearned_tag: Option<String>,
    /// Optimizer steps between rows with the nuclear norm and effective rank of the gradient of each projection of attention, layer by
    /// layer; 0 for none.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schemars(extend("default" = 0))]
    pub gradient_spectra_every: u64,
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
            gradient_spectra_every: 0,
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
        self.check_recorder()?;
        self.check_lipo()?;
        let asks = self.objective.recipe(1).credit.asks_for_gold();
        match &self.answer_lead {
            None if asks => {
                let fault = "asks for the gold answer; set answer_lead to the text that comes before an answer, \"<answer>\" say";
                return Err(SettingError::new("objective.credit", fault));
            }
            Some(_) if !asks => {
                let fault = "is read by credit.information_gain and credit.step_potential alone; leave it out";
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

    /// The config with names and defaults spelled out. `max_tokens`: see [`ObjectiveConfig::recipe`].
    #[must_use]
    pub fn spelled_out(&self, max_tokens: usize) -> Self {
        Self {
            objective: self.objective.spelled_out(max_tokens),
            critic: self.critic(),
            ..self.clone()
        }
    }

    /// The part of the objective that compares episodes with others of their question, if any does.
    pub fn compares_members(&self) -> Option<&'static str> {
        let recipe = self.objective.recipe(1);
        if recipe.advantage.name() != "reinforce_pp" {
            return Some("advantage");
        }
        recipe.filter.and_then(GroupFilter::compares_members)
    }

    /// Returns whether the loss compares with who recorded the rollouts, whatever the trainer would compute in that place.
    fn compares_with_recorder(&self) -> bool {
        self.objective.recipe(1).loss.name() == "a_lol"
    }

    /// Refuses the trainer's log-probabilities where they would be compared with themselves.
    fn check_recorder(&self) -> Result<(), SettingError> {
        if !self.compares_with_recorder() {
            return Ok(());
        }
        if let Some((key, _)) = self.needs_trainers_logprobs() {
            let fault = "has the trainer compute old log-probabilities, and a_lol compares with those of who recorded the rollouts; remove it";
            return Err(SettingError::new(key, fault));
        }
        if self.old_logprobs == Some(OldLogprobs::Trainer) {
            let fault = "= \"trainer\" stands in the place of who recorded the rollouts, whom a_lol compares with; set \"sampler\", or remove it";
            return Err(SettingError::new("old_logprobs", fault));
        }
        Ok(())
    }

    /// Refuses recorded rollouts of which nothing weighs who recorded them: a ratio to the trainer's own log-probabilities is 1 whoever
    /// that was. Losses without a ratio ask for no weights, and two compare with the sampler's in any case.
    ///
    /// # Errors
    /// [`SettingError`], which names the key at fault and the fix.
    pub fn check_recorded(&self) -> Result<(), SettingError> {
        let recipe = self.objective.recipe(1);
        let weighs = !recipe.loss.has_ratio()
            || recipe.correction.is_some()
            || recipe.loss.compares_with_sampler();
        if self.old_logprobs == Some(OldLogprobs::Trainer) && !weighs {
            let fix = self.needs_trainers_logprobs().map_or_else(
                || "set grpo.update.old_logprobs = \"sampler\", or grpo.update.objective.correction".to_owned(),
                |(key, _)| format!("set grpo.update.objective.correction, or remove grpo.update.{key}, which needs the trainer's"),
            );
            let fault = format!(
                "is \"trainer\", by default on this device or beside these settings: {} would weigh every recorded token by 1, whoever \
                 wrote it; {fix}",
                recipe.loss.name()
            );
            return Err(SettingError::new("grpo.update.old_logprobs", fault));
        }
        Ok(())
    }

    /// Refuses further updates on a batch by a derivative that is that of its beginning.
    fn check_lipo(&self) -> Result<(), SettingError> {
        let counts = [("minibatches", self.minibatches), ("epochs", self.epochs)];
        let is_lipo = self.objective.recipe(1).advantage.name() == "lipo";
        match counts.into_iter().find(|(_, count)| *count > 1) {
            Some((key, count)) if is_lipo => {
                let fault = format!(
                    "is {count}: the advantage lipo is the derivative of its loss where a batch begins, so there is one update a batch; set 1"
                );
                Err(SettingError::new(key, fault))
            }
            _ => Ok(()),
        }
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
    /// that the trainer would compute to the last bits, or the loss is about them, and nothing needs the trainer's.
    pub fn old_logprobs_where(&self, exact: bool) -> OldLogprobs {
        let wanted = exact || self.compares_with_recorder();
        let sampler = wanted && self.needs_trainers_logprobs().is_none();
        self.old_logprobs.unwrap_or(if sampler {
            OldLogprobs::Sampler
        } else {
            OldLogprobs::Trainer
        })
    }
}
