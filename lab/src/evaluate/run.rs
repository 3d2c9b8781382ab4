//! The evaluation of any policy on questions, from greedy and sampled episodes.

use std::sync::Arc;

use forage_contracts::policy::Sampling;
use forage_env::{ChatSettings, InfraBudget, Rollout, registry};
use forage_trainer::Patience;
use forage_trainer::device::DeviceSpec;
use serde_json::Value;

use super::exam::{EvaluateOptions, Evaluation, Exam};
use super::play::fault_budget;
use super::player::{Opening, Player, is_script};
use crate::config::{EnvironmentConfig, Generation, Resolved};
use crate::data::{Corpus, Data, Tasks, first};
use crate::error::{Context, Result, RunError};
use crate::observer::Observer;
use crate::policy::{is_server, taught_another};
use crate::session::Session;
use crate::sources::Sources;

/// Evaluates a policy on the held-out questions of a config. Blocks, so async code must not call it.
///
/// # Errors
/// When the policy or the data cannot be had, another process writes the same files, there are no questions, too many episodes
/// are lost to infrastructure faults, or an evaluation into the same file was stopped before, and is not to be resumed or has other
/// settings.
pub fn evaluate(
    config: &Resolved,
    options: &EvaluateOptions,
    observer: &dyn Observer,
) -> Result<Evaluation> {
    let _locks = options.claim()?;
    let missing = config.missing_files();
    if !missing.is_empty() {
        return Err(RunError::config(missing.join("; ")));
    }
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = Data::load(config, scratch.path())?;
    let tasks = first(&data.test, options.limit);
    let generation = config.generation();
    let opening = opening_of(config, options, &generation, observer);
    let player = opening.open(&tasks)?;
    let identity = options.identity(&opening)?;
    let usual = if is_script(opening.name) {
        0
    } else {
        config.evaluation.samples
    };
    Exam {
        environment: opening.limits(&config.environment)?,
        rewards: config.rewards()?,
        corpus: data.corpus,
        tasks,
        trained: data.train,
        config: Some(config),
        player,
        identity,
        samples: options.samples.unwrap_or(usual),
        budget: fault_budget(config),
        seed: config.seed,
        threads: config.threads(),
        options,
        observer,
    }
    .run()
}

/// The policy that the options name, else the config's own.
fn opening_of<'a>(
    config: &'a Resolved,
    options: &'a EvaluateOptions,
    generation: &'a Generation,
    observer: &dyn Observer,
) -> Opening<'a> {
    if options.policy.is_some() && config.sampler.is_some() {
        observer.warn("[sampler] is not asked: --policy names who plays");
    }
    let opening = Opening {
        model: options.model.as_deref(),
        token_file: options.token_file.clone(),
        tokens_of: options.tokens_of.as_deref(),
        keep_weights: options.reads_weights(),
        ..Opening::of(config, options.policy.as_deref(), generation)
    };
    if let Some(other) = taught_another(opening.name, opening.environment) {
        observer.warn(&format!("warning: {other}"));
    }
    opening
}

impl Resolved {
    /// Everything that a policy plays questions of this config with. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When the policy or the environment cannot be had.
    pub fn rollout(
        &self,
        options: &EvaluateOptions,
        corpus: &Corpus,
        tasks: &Tasks,
        observer: &dyn Observer,
    ) -> Result<Rollout> {
        let generation = self.generation();
        let opening = opening_of(self, options, &generation, observer);
        let player = opening.open(tasks)?;
        let environment = opening.limits(&self.environment)?;
        let rewards = self.rewards()?;
        let session = Session::new(&environment, rewards, corpus, player.format, observer)?;
        session.rollout(player.policy, Sampling::GREEDY)
    }
}

/// Most tokens of an episode where no config says.
const LONGEST: usize = 4096;

impl Sources<'_> {
    /// Evaluates a policy on questions without a config, on this device. Blocks, so async code must not call it.
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
        let generation = Generation::on(device);
        let (environment, player, identity) =
            self.opened(&generation, options, &tasks, observer)?;
        // A script does not know temperatures: its samples would repeat the greedy episodes.
        let scripted = options.policy.as_deref().is_some_and(is_script);
        let usual = usize::from(!scripted);
        Exam {
            rewards: environment.default_rewards(self.seed)?,
            environment,
            corpus,
            tasks,
            trained: Arc::from([]),
            config: None,
            player,
            identity,
            samples: options.samples.unwrap_or(usual),
            budget: InfraBudget::default(),
            seed: self.seed,
            threads: generation.threads,
            options,
            observer,
        }
        .run()
    }

    /// Everything that a policy plays these questions with, on this device. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When the policy or the environment cannot be had.
    pub fn rollout(
        &self,
        device: DeviceSpec,
        options: &EvaluateOptions,
        corpus: &Corpus,
        tasks: &Tasks,
        observer: &dyn Observer,
    ) -> Result<Rollout> {
        let generation = Generation::on(device);
        let (environment, player, _) = self.opened(&generation, options, tasks, observer)?;
        let rewards = environment.default_rewards(self.seed)?;
        let session = Session::new(&environment, rewards, corpus, player.format, observer)?;
        session.rollout(player.policy, Sampling::GREEDY)
    }

    /// The environment, and the policy that plays in it, a server in chats, with what tells it apart from others.
    fn opened(
        &self,
        generation: &Generation,
        options: &EvaluateOptions,
        tasks: &Tasks,
        observer: &dyn Observer,
    ) -> Result<(EnvironmentConfig, Player, Value)> {
        let entry = registry::find(self.environment)?;
        let name = options.policy.as_deref().with_context(|| {
            let known: Vec<_> = entry.scripts.iter().map(|script| script.name).collect();
            format!(
                "give --policy: a folder, builtin:NAME, a server (http://HOST:PORT), {}, constant:X",
                known.join(", ")
            )
        })?;
        let (chat, patience) = (ChatSettings::default(), Patience::default());
        let opening = Opening {
            name,
            sampler: None,
            model: options.model.as_deref(),
            token_file: options.token_file.clone(),
            patience: &patience,
            tokens_of: None,
            environment: self.environment,
            chat: is_server(name).then_some(&chat),
            generation,
            keep_weights: options.reads_weights(),
        };
        if let Some(other) = taught_another(name, self.environment) {
            observer.warn(&format!("warning: {other}"));
        }
        let player = opening.open(tasks)?;
        let identity = options.identity(&opening)?;
        let plain = EnvironmentConfig::plain(self.environment)?;
        let mut environment = opening.limits(&plain)?;
        if !is_script(name) {
            let window = player.format.window.unwrap_or(usize::MAX);
            if window < plain.longest()?.unwrap_or(LONGEST).min(LONGEST) {
                observer.warn(&format!(
                    "warning: policy {name} reads {window} tokens: an episode ends there, and the prompt and the turns are as long as \
                     {} has them without a config, while scripts hardly meet an end; forage eval CONFIG --policy {name} plays as in \
                     training",
                    plain.id
                ));
            }
            let limit = ("max_episode_tokens".to_owned(), window.min(LONGEST).into());
            environment.settings.extend([limit]);
        }
        Ok((environment, player, identity))
    }
}
