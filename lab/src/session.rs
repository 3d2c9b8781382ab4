//! Everything that episodes are played with except the policy, put together in one place.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_contracts::Resources;
use forage_contracts::environment::EnvFactory;
use forage_contracts::policy::{Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_env::registry::{self, make};
use forage_env::reward::{RewardSet, Weighting};
use forage_env::server::Served;
use forage_env::{Presentation, Rollout};
use forage_trainer::Checkpoint;
use forage_trainer::run::Problem;
use serde_json::{Map, Value};

use crate::config::{EnvironmentConfig, Resolved};
use crate::data::{Corpus, Tasks};
use crate::error::{Context, Result, RunError};
use crate::observer::Observer;
use crate::policy::PolicyFormat;

/// An environment over a corpus, with its rewards, for the tokens and the form of a policy.
#[derive(Clone)]
pub struct Session {
    pub(crate) environment: EnvironmentConfig,
    pub(crate) resources: Resources,
    pub(crate) format: PolicyFormat,
    /// Makes the environments.
    pub factory: Arc<dyn EnvFactory>,
    /// Scores finished episodes.
    pub rewards: Arc<RewardSet>,
}

impl Session {
    /// Puts a session together.
    ///
    /// # Errors
    /// When the environment cannot be made, or its episodes do not fit the policy's window.
    pub fn new(
        environment: &EnvironmentConfig,
        rewards: Arc<RewardSet>,
        corpus: &Corpus,
        format: PolicyFormat,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let mut resources =
            Resources::new(Arc::clone(&corpus.retriever), Arc::clone(&format.tokenizer));
        resources.wiki.clone_from(&corpus.wiki);
        resources.notice = observer.notice();
        let factory = factory(environment, resources.clone(), format.window)?;
        Ok(Self {
            environment: environment.clone(),
            resources,
            format,
            factory,
            rewards,
        })
    }

    /// The session of a config, for a checkpoint.
    pub(crate) fn of(
        config: &Resolved,
        corpus: &Corpus,
        checkpoint: &Checkpoint,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let chat = config.policy.chat.as_ref();
        let format = PolicyFormat {
            window: Some(config.window(&checkpoint.config)),
            ..PolicyFormat::of(checkpoint, chat, &config.generation())?
        };
        let rewards = config.rewards()?;
        Self::new(&config.environment, rewards, corpus, format, observer)
    }

    /// A copy of the session with other settings of its environment.
    pub(crate) fn with_settings(&self, settings: Map<String, Value>) -> Result<Self> {
        let environment = EnvironmentConfig {
            id: self.environment.id.clone(),
            settings,
        };
        let factory = factory(&environment, self.resources.clone(), self.format.window)?;
        Ok(Self {
            environment,
            factory,
            ..self.clone()
        })
    }

    /// A copy of the session with other environments.
    pub(crate) fn with_factory(&self, factory: Arc<dyn EnvFactory>) -> Self {
        Self {
            factory,
            ..self.clone()
        }
    }

    /// The form in which the policy reads the environment's text, its tools included where it has some.
    fn presentation(&self) -> Result<Presentation> {
        let presentation = self.format.presentation.clone();
        presentation
            .with_tools(&self.factory.spec().tools)
            .in_config("[environment.settings]: tool calls cannot be used")
    }

    /// The parts that the driver plays with.
    ///
    /// # Errors
    /// When the policy's form of text has no place for the environment's tools.
    pub(crate) fn rollout(&self, policy: Arc<dyn Policy>, sampling: Sampling) -> Result<Rollout> {
        Ok(Rollout {
            policy,
            tokenizer: Arc::clone(&self.format.tokenizer),
            factory: Arc::clone(&self.factory),
            rewards: Arc::clone(&self.rewards),
            sampling,
            presentation: self.presentation()?,
        })
    }

    /// The problem that a run learns.
    pub(crate) fn problem(self, train: Tasks, dev: Tasks) -> Result<Problem> {
        Ok(Problem {
            presentation: self.presentation()?,
            factory: self.factory,
            rewards: self.rewards,
            train,
            dev,
        })
    }

    /// The environment and tasks of a server.
    pub fn served(self, tasks: Tasks) -> Served {
        Served {
            factory: self.factory,
            tasks,
            rewards: self.rewards,
            tokenizer: self.format.tokenizer,
        }
    }
}

impl EnvironmentConfig {
    /// An environment without settings.
    ///
    /// # Errors
    /// When there is none of this id.
    pub fn plain(id: &str) -> Result<Self> {
        Ok(Self {
            id: registry::find(id)?.id.to_owned(),
            settings: Map::new(),
        })
    }

    /// The environment with limits for scripts, whose tokens are bytes.
    ///
    /// # Errors
    /// When there is none of this id.
    pub fn for_bytes(&self) -> Result<Self> {
        Ok(Self {
            id: self.id.clone(),
            settings: (registry::find(&self.id)?.for_bytes)(self.settings.clone()),
        })
    }

    /// The settings without the address of a server, which may differ between processes that work on the same run.
    pub(crate) fn without_address(&self) -> Map<String, Value> {
        let mut settings = self.settings.clone();
        settings.remove("url");
        settings
    }

    /// The rewards of an environment without a config.
    ///
    /// # Errors
    /// When there is no environment of this id.
    pub fn default_rewards(&self, seed: u64) -> Result<Arc<RewardSet>> {
        let outcome = registry::find(&self.id)?.outcome;
        let weights = RewardSet::default_weights(outcome)
            .into_iter()
            .map(|(name, weight)| (name, weight.into()))
            .collect();
        rewards(&self.id, &weights, seed)
    }
}

/// The environment factory a config names. `window` is the policy's: an episode must fit.
fn factory(
    environment: &EnvironmentConfig,
    resources: Resources,
    window: Option<usize>,
) -> Result<Arc<dyn EnvFactory>> {
    let settings = Value::Object(environment.settings.clone());
    let factory = make(&environment.id, settings, resources)
        .in_config(format!("environment {}", environment.id))?;
    if let Some(window) = window {
        check_window(factory.spec().max_episode_tokens, window, None)?;
    }
    Ok(factory)
}

/// Refuses episodes that do not fit the policy's window; a larger cache, in MiB, is named where it alone would do.
pub(crate) fn check_window(episode: usize, window: usize, cache: Option<usize>) -> Result<()> {
    if episode <= window {
        return Ok(());
    }
    if let Some(cache) = cache {
        return Err(RunError::config_because(
            format!(
                "environment.settings.max_episode_tokens is {episode}, the policy's window {window} tokens"
            ),
            format!(
                "the key-value cache holds no more: raise engine.cache_mib to {cache}, or lower max_episode_tokens"
            ),
        ));
    }
    Err(RunError::config_because(
        format!(
            "environment.settings.max_episode_tokens is {episode}, the policy's window {window} tokens"
        ),
        "lower the former (`forage config init` writes limits that fit the policies inside the program), or raise engine.context_tokens \
         where the model allows, engine.cache_mib where the cache holds no more, and sampler.context with a server",
    ))
}

impl Resolved {
    /// The rewards that a config weights.
    ///
    /// # Errors
    /// When a part cannot be made.
    pub fn rewards(&self) -> Result<Arc<RewardSet>> {
        rewards(&self.environment.id, &self.reward, self.seed)
    }
}

/// The weighted rewards of an environment, by the kind of outcome that it ends in.
///
/// # Errors
/// When a part cannot be made.
pub(crate) fn rewards(
    environment: &str,
    weights: &BTreeMap<String, Weighting>,
    seed: u64,
) -> Result<Arc<RewardSet>> {
    let outcome = registry::find(environment)?.outcome;
    let seed = Seed::root(seed).child("reward", &[]);
    Ok(Arc::new(RewardSet::configured(outcome, weights, seed)?))
}
