//! The evaluation of any policy on questions, from greedy and sampled episodes.

use forage_env::{Probe, registry};
use forage_trainer::device::DeviceSpec;

use super::exam::{EvaluateOptions, Evaluation, Exam};
use super::player::{Opening, is_script};
use crate::config::{EnvironmentConfig, Generation, Resolved};
use crate::data::{Data, first};
use crate::error::{Context, Result};
use crate::observer::Observer;
use crate::sources::Sources;

/// Evaluates a policy on the held-out questions of a config. Blocks; not to be called from async code.
///
/// # Errors
/// When the policy or the data cannot be had, another process writes the same files, there are no questions, or too many episodes
/// are lost to infrastructure faults.
pub fn evaluate(
    config: &Resolved,
    options: &EvaluateOptions,
    observer: &dyn Observer,
) -> Result<Evaluation> {
    let _locks = options.claim()?;
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = Data::load(config, scratch.path())?;
    let tasks = first(&data.test, options.limit);
    let name = options
        .policy
        .as_deref()
        .unwrap_or(&config.policy.checkpoint);
    let generation = config.generation();
    let opening = Opening {
        name,
        tokens_of: options.tokens_of.as_deref(),
        environment: &config.environment.id,
        chat: config.policy.chat.as_ref(),
        generation: &generation,
        keep_weights: options.probes.contains(&Probe::SelfCritique),
    };
    let player = opening.open(&tasks)?;
    let environment = match player.format.window {
        None => config.environment.for_bytes()?,
        Some(_) => config.environment.clone(),
    };
    let usual = if is_script(name) {
        0
    } else {
        config.evaluation.samples
    };
    Exam {
        environment,
        rewards: config.rewards()?,
        corpus: data.corpus,
        tasks,
        player,
        samples: options.samples.unwrap_or(usual),
        seed: config.seed,
        threads: config.threads(),
        options,
        observer,
    }
    .run()
}

impl Sources<'_> {
    /// Evaluates a policy on questions without a config, on this device. Blocks; not to be called from async code.
    ///
    /// # Errors
    /// As [`evaluate`].
    pub fn evaluate(
        &self,
        device: DeviceSpec,
        options: &EvaluateOptions,
        observer: &dyn Observer,
    ) -> Result<Evaluation> {
        let _locks = options.claim()?;
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (corpus, tasks) = self.open(scratch.path())?;
        let entry = registry::find(self.environment)?;
        let name = options.policy.as_deref().with_context(|| {
            let known: Vec<_> = entry.scripts.iter().map(|script| script.name).collect();
            format!("give --policy: a folder, {}, constant:X", known.join(", "))
        })?;
        let generation = Generation::on(device);
        let opening = Opening {
            name,
            tokens_of: None,
            environment: self.environment,
            chat: None,
            generation: &generation,
            keep_weights: options.probes.contains(&Probe::SelfCritique),
        };
        let player = opening.open(&tasks)?;
        let mut environment = EnvironmentConfig::plain(self.environment)?;
        match player.format.window {
            None => environment = environment.for_bytes()?,
            Some(window) => {
                let limit = ("max_episode_tokens".to_owned(), window.min(4096).into());
                environment.settings.extend([limit]);
            }
        }
        // A script does not know temperatures: its samples would repeat the greedy episodes.
        let usual = usize::from(player.format.window.is_some());
        Exam {
            rewards: environment.default_rewards(self.seed)?,
            environment,
            corpus,
            tasks,
            player,
            samples: options.samples.unwrap_or(usual),
            seed: self.seed,
            threads: generation.threads,
            options,
            observer,
        }
        .run()
    }
}
