//! The checks of a config as a whole.

use forage_contracts::seed::Seed;
use forage_env::registry;
use forage_env::reward::RewardSet;
use forage_trainer::OldLogprobs;

use super::{Baseline, EngineSection, RunConfig, WarmStartSection};
use crate::error::{Context, Result, refuse};
use crate::retrieval::RetrieverConfig;

impl RunConfig {
    /// Refuses what no run can be made of, whatever the device.
    ///
    /// # Errors
    /// A sentence that names the key at fault and the fix.
    pub fn check(&self) -> Result<()> {
        let entry = registry::find(&self.environment.id).in_config("environment.id")?;
        self.environment.resolved()?;
        match (&self.data.world, &self.data.files, self.data.own) {
            (Some(world), None, None) => world.check().in_config("data.world")?,
            (None, Some(files), None) => files.check().in_config("data.files")?,
            (None, None, Some(_)) if entry.questions.is_none() => {
                refuse!(
                    "{} has no questions of its own; write [data.world] or [data.files], not [data.own]",
                    entry.id
                )
            }
            (None, None, Some(_)) => self.check_unsearched()?,
            _ => refuse!("data needs exactly one of [data.world], [data.files] and [data.own]"),
        }
        if let Some(lora) = &self.policy.lora {
            lora.check().in_config("[policy.lora]")?;
            let heads = |targets: &Vec<String>| targets.iter().all(|name| name == "lm_head");
            if self.grpo.update.has_critic() && lora.targets.as_ref().is_some_and(heads) {
                refuse!(
                    "policy.lora.targets names the head alone, and a critic has another one: name maps of the layers too, q_proj say"
                );
            }
        }
        self.retriever.check().in_config("[retriever]")?;
        if self.grpo.group_size < 2 && self.grpo.update.compares_members() {
            refuse!(
                "grpo.group_size is {}: a group needs at least 2 episodes to compare",
                self.grpo.group_size
            );
        }
        if self.grpo.group_size == 0 {
            refuse!("grpo.group_size must be at least 1");
        }
        if self.grpo.prompts_per_step == 0 {
            refuse!("grpo.prompts_per_step must be at least 1");
        }
        self.grpo.update.check().in_config("[grpo.update]")?;
        if let Some(sampler) = &self.sampler {
            sampler.check().in_config("[sampler]")?;
            let update = &self.grpo.update;
            // That loss is about what the sampler said, whichever engine it is.
            let is_free = update.objective.recipe(1).loss.name() != "a_lol";
            if is_free && update.old_logprobs == Some(OldLogprobs::Sampler) {
                refuse!(
                    "[sampler]: another engine's log-probabilities differ from the trainer's; remove grpo.update.old_logprobs"
                );
            }
        }
        self.grpo.check_trees().in_config("[grpo]")?;
        self.grpo.check_questions().in_config("[grpo]")?;
        self.grpo.check_replay().in_config("[grpo.replay]")?;
        let ahead = self.grpo.check_lookahead(1, false);
        ahead.in_config("grpo.lookahead above 1")?;
        self.grpo.check_hints().in_config("[grpo.hints]")?;
        let recomposed = self.grpo.check_recomposition();
        recomposed.in_config("[grpo.recomposition]")?;
        self.grpo.check_faults().in_config("[grpo]")?;
        self.grpo.check_endings().in_config("[grpo.endings]")?;
        self.grpo.sentinel.check().in_config("[grpo.sentinel]")?;
        if self.grpo.evaluate_every > 0 && self.data.counts()[1] == 0 {
            refuse!("grpo.evaluate_every is set but data.dev_questions is 0");
        }
        if self
            .reward
            .values()
            .all(|weighting| weighting.weight() == 0.0)
        {
            refuse!(
                "[reward] gives nothing a weight: no group would have a direction; write for instance em = 1.0 or ndcg = 1.0"
            );
        }
        RewardSet::configured(entry.outcome, &self.reward, Seed::root(self.seed))
            .in_config("[reward]")?;
        let settings = self.environment.resolved()?.settings;
        for name in self.reward.keys() {
            if let Some(why) = (entry.refuses)(name, &settings) {
                refuse!("reward.{name}: {why}");
            }
        }
        if self.evaluation.resamples == 0 {
            refuse!("evaluation.resamples must be at least 1");
        }
        Baseline::asked(self, entry)?;
        if let Some(section) = &self.warm_start {
            section.check().in_config("[warm_start]")?;
            if section.world.is_none() && entry.questions.is_none() {
                refuse!(
                    "[warm_start] has no world, and {} has no questions of its own; write [warm_start.world]",
                    entry.id
                );
            }
        }
        let EngineSection {
            sequences,
            context_tokens,
            cache_mib,
            step_tokens,
            dtype: _,
        } = self.engine;
        if sequences == 0 || context_tokens < 2 || cache_mib == 0 || step_tokens == 0 {
            refuse!("engine.sequences, context_tokens, cache_mib and step_tokens must be positive");
        }
        let same = |warm: &WarmStartSection| {
            let learned_in = self.data.world.as_ref();
            let shown = warm.world.as_ref();
            learned_in
                .zip(shown)
                .is_some_and(|(learned_in, shown)| learned_in.seed == shown.seed)
        };
        if self.warm_start.as_ref().is_some_and(same) {
            refuse!(
                "warm_start.world.seed equals data.world.seed: demonstrations would come from the world learned in"
            );
        }
        Ok(())
    }

    /// Refuses a retriever beside questions that bring nothing to search: it would not be asked.
    fn check_unsearched(&self) -> Result<()> {
        let plain = RetrieverConfig {
            device: self.retriever.device,
            ..RetrieverConfig::default()
        };
        if self.retriever != plain {
            refuse!(
                "[retriever] would not be asked: [data.own] brings its questions and no passages; remove [retriever], or write \
                 [data.files] with the questions and what is searched"
            );
        }
        Ok(())
    }
}
