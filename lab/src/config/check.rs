//! The checks of a config as a whole.

use forage_contracts::EnvEntry;
use forage_contracts::environment::Outcome;
use forage_contracts::seed::Seed;
use forage_env::registry;
use forage_env::reward::RewardSet;
use forage_trainer::OldLogprobs;

use super::{Baseline, EngineSection, EvaluationConfig, RunConfig};
use crate::error::{Context, Result, RunError, causes, refuse};
use crate::retrieval::RetrieverConfig;

impl RunConfig {
    /// Refuses a config that cannot be run on any device.
    ///
    /// # Errors
    /// For every part at fault a sentence that names the key and the fix.
    pub fn check(&self) -> Result<()> {
        let entry = registry::find(&self.environment.id).in_config("environment.id")?;
        let grpo = &self.grpo;
        let faults = grpo.check().into_iter();
        all([
            self.environment.resolved().map(drop),
            self.check_data(entry),
            self.check_policy(),
            self.retriever.check().in_config("[retriever]"),
            self.check_groups(),
            grpo.update.check().in_config("[grpo.update]"),
            self.check_sampler(),
            all(faults.map(|fault| Err(RunError::config(fault.to_string())))),
            self.check_rewards(entry),
            self.check_evaluation(entry),
            self.check_warm_start(entry),
            self.check_engine(),
            self.check_sizes(),
        ])
    }

    fn check_data(&self, entry: &EnvEntry) -> Result<()> {
        if entry.outcome == Outcome::Ranking && !self.data.labels.are_true() {
            refuse!(
                "data.labels changes answers (as the twins shuffled and wrong do), and the rankings of {} are graded by passages: as a \
                 control use the reward, or the twin, random",
                entry.id
            );
        }
        match (&self.data.world, &self.data.files, self.data.own) {
            (Some(world), None, None) => world.check().in_config("data.world"),
            (None, Some(files), None) => files.check().in_config("data.files"),
            (None, None, Some(_)) if entry.questions.is_none() => {
                refuse!(
                    "{} has no questions of its own; write [data.world] or [data.files], not [data.own]",
                    entry.id
                )
            }
            (None, None, Some(_)) => self.check_unsearched(),
            _ => refuse!("data needs exactly one of [data.world], [data.files] and [data.own]"),
        }
    }

    fn check_policy(&self) -> Result<()> {
        self.policy.server.check().in_config("[policy.server]")?;
        let Some(lora) = &self.policy.lora else {
            return Ok(());
        };
        lora.check().in_config("[policy.lora]")?;
        let heads = |targets: &Vec<String>| targets.iter().all(|name| name == "lm_head");
        if self.grpo.update.has_critic() && lora.targets.as_ref().is_some_and(heads) {
            refuse!(
                "policy.lora.targets names the head alone, and a critic has another one: name maps of the layers too, q_proj say"
            );
        }
        Ok(())
    }

    fn check_groups(&self) -> Result<()> {
        let size = self.grpo.group_size;
        if size == 0 {
            refuse!("grpo.group_size must be at least 1");
        }
        if let (1, Some(part)) = (size, self.grpo.update.compares_members()) {
            refuse!(
                "grpo.group_size is 1, and grpo.update.objective.{part} compares the episodes of a group: set at least 2"
            );
        }
        if self.grpo.prompts_per_step == 0 {
            refuse!("grpo.prompts_per_step must be at least 1");
        }
        Ok(())
    }

    fn check_sampler(&self) -> Result<()> {
        let Some(sampler) = &self.sampler else {
            return Ok(());
        };
        sampler.check().in_config("[sampler]")?;
        let update = &self.grpo.update;
        // That loss reads the sampler's log-probabilities, whichever engine it is.
        let is_free = update.objective.recipe(1).loss.name() != "a_lol";
        if is_free && update.old_logprobs == Some(OldLogprobs::Sampler) {
            refuse!(
                "[sampler]: another engine's log-probabilities differ from the trainer's; remove grpo.update.old_logprobs"
            );
        }
        Ok(())
    }

    fn check_rewards(&self, entry: &EnvEntry) -> Result<()> {
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
        // Another check reports settings that cannot be read.
        let Ok(resolved) = self.environment.resolved() else {
            return Ok(());
        };
        for name in self.reward.keys() {
            if let Some(why) = (entry.refuses)(name, &resolved.settings) {
                refuse!("reward.{name}: {why}");
            }
        }
        Ok(())
    }

    fn check_evaluation(&self, entry: &EnvEntry) -> Result<()> {
        if self.grpo.evaluate_every > 0 && self.data.counts()[1] == 0 {
            refuse!("grpo.evaluate_every is set but data.dev_questions is 0");
        }
        if self.evaluation.resamples == 0 {
            refuse!("evaluation.resamples must be at least 1");
        }
        Baseline::asked(self, entry).map(drop)
    }

    fn check_warm_start(&self, entry: &EnvEntry) -> Result<()> {
        let Some(section) = &self.warm_start else {
            return Ok(());
        };
        section.check().in_config("[warm_start]")?;
        if section.world.is_none() && entry.questions.is_none() {
            refuse!(
                "[warm_start] has no world, and {} has no questions of its own; write [warm_start.world]",
                entry.id
            );
        }
        let worlds = self.data.world.as_ref().zip(section.world.as_ref());
        if worlds.is_some_and(|(learned_in, shown)| learned_in.seed == shown.seed) {
            refuse!(
                "warm_start.world.seed equals data.world.seed: demonstrations would come from the world learned in"
            );
        }
        Ok(())
    }

    fn check_engine(&self) -> Result<()> {
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
        Ok(())
    }

    /// Refuses sizes that no machine has room for, which would end the program where it asks for the memory or the threads.
    fn check_sizes(&self) -> Result<()> {
        let Self {
            grpo,
            engine,
            evaluation,
            ..
        } = self;
        let rank = self.policy.lora.as_ref().map_or(1, |lora| lora.rank);
        let parts = grpo.update.parts.unwrap_or(1);
        all([
            ("threads", self.threads, 4096),
            ("policy.lora.rank", rank, 65_536),
            ("engine.cache_mib", engine.cache_mib, 1 << 20),
            ("grpo.prompts_per_step", grpo.prompts_per_step, 100_000),
            ("grpo.group_size", grpo.group_size, 10_000),
            ("grpo.update.parts", parts, 100_000),
            (
                "evaluation.samples",
                evaluation.samples,
                EvaluationConfig::MOST_SAMPLES,
            ),
            ("evaluation.resamples", evaluation.resamples, 10_000_000),
        ]
        .map(|(key, size, most)| {
            if size > most {
                refuse!("{key} is {size}: write {most} or less");
            }
            Ok(())
        }))
    }

    /// Refuses a retriever beside questions that have no corpus to search: it would never be used.
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

/// Joins the faults that checks found into one error. A single fault is returned as it is.
fn all(checks: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut faults: Vec<RunError> = checks.into_iter().filter_map(Result::err).collect();
    match faults.len() {
        0 => Ok(()),
        1 => Err(faults.remove(0)),
        _ => {
            let mut texts: Vec<String> = faults.iter().map(causes).collect();
            texts.dedup();
            Err(RunError::config(texts.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_machine_has_room_for_are_refused_by_their_keys() {
        let text = include_str!("../../../configs/smoke.toml");
        for key in [
            "threads",
            "policy.lora.rank",
            "engine.cache_mib",
            "grpo.prompts_per_step",
            "grpo.group_size",
            "grpo.update.parts",
            "evaluation.samples",
            "evaluation.resamples",
        ] {
            let with = |size: u64| {
                let mut overrides = vec![format!("{key}={size}")];
                if key == "policy.lora.rank" {
                    overrides.push("policy.lora.alpha=1.0".to_owned());
                }
                RunConfig::parse(text, &overrides).unwrap().check()
            };
            with(64).unwrap();
            let error = with(1 << 62).unwrap_err().to_string();
            assert!(error.contains(&format!("{key} is ")), "{error}");
        }
    }

    #[test]
    fn a_baseline_that_is_named_twice_is_refused() {
        let text = include_str!("../../../configs/smoke.toml");
        let with = |names: &str| {
            let baselines = format!("evaluation.baselines={names}");
            RunConfig::parse(text, &[baselines]).unwrap().check()
        };
        with("['random', 'oracle']").unwrap();
        let error = with("['random', 'oracle', 'random']").unwrap_err();
        let error = error.to_string();
        assert!(error.contains("baselines names random twice"), "{error}");
    }
}
