//! Policies that can play: checkpoints, servers and scripts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_contracts::policy::Policy;
use forage_contracts::scripted::{Cast, Scripted};
use forage_contracts::{EnvEntry, nearest};
use forage_env::registry::environments;
use forage_env::{ChatSettings, registry};
use forage_trainer::{Checkpoint, Patience, Precision, RemoteConfig, RemotePolicy};
use serde_json::{Value, json};

use crate::config::{EnvironmentConfig, Generation, Resolved};
use crate::data::Tasks;
use crate::error::{Context, Result, RunError};
use crate::grpo::first_of_kind;
use crate::policy::{PolicyFormat, is_server, open_policy, weights_digest};
use crate::runtime::runtime;

/// Prefix of the name of a policy that always gives one answer.
const CONSTANT: &str = "constant:";

/// Tells whether a policy of this name is a script, whose tokens are bytes.
pub(crate) fn is_script(name: &str) -> bool {
    let known = |entry: &EnvEntry| entry.scripts.iter().any(|script| script.name == name);
    name.starts_with(CONSTANT) || environments().any(known)
}

/// A policy with its format, and its weights where it has some.
pub(crate) struct Player {
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) format: PolicyFormat,
    pub(crate) weights: Option<Checkpoint>,
    /// Most episodes at a time: an engine queues requests by itself, while a server is not to be flooded.
    pub(crate) in_flight: usize,
}

impl Player {
    /// A checkpoint, sampled in this process.
    pub(crate) fn here(
        checkpoint: &Checkpoint,
        chat: Option<&ChatSettings>,
        generation: &Generation,
    ) -> Result<Self> {
        Ok(Self {
            policy: generation.start(checkpoint),
            format: PolicyFormat::of(checkpoint, chat, generation)?
                .within_cache(checkpoint, generation),
            weights: None,
            in_flight: usize::MAX,
        })
    }
}

/// A policy to be opened for an environment.
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a str,
    /// The server that samples the policy, where it is not the policy's name.
    pub(crate) sampler: Option<&'a RemoteConfig>,
    /// The model to ask for, where the name is a server.
    pub(crate) model: Option<&'a str>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) patience: &'a Patience,
    pub(crate) tokens_of: Option<&'a str>,
    pub(crate) environment: &'a str,
    pub(crate) chat: Option<&'a ChatSettings>,
    pub(crate) generation: &'a Generation,
    /// Whether to keep the weights for a probe that reads them; otherwise only the engine has them.
    pub(crate) keep_weights: bool,
}

impl<'a> Opening<'a> {
    /// The policy of this name under a config, or by default the config's own, sampled by its `[sampler]` if it has one.
    pub(crate) fn of(
        config: &'a Resolved,
        name: Option<&'a str>,
        generation: &'a Generation,
    ) -> Self {
        Self {
            name: name.unwrap_or(&config.policy.checkpoint),
            sampler: config.sampler.as_ref().filter(|_| name.is_none()),
            model: None,
            token_file: None,
            patience: &config.policy.server,
            tokens_of: None,
            environment: &config.environment.id,
            chat: config.policy.chat.as_ref(),
            generation,
            keep_weights: false,
        }
    }

    /// The identity of the policy: its name, and the settings that it plays with.
    pub(crate) fn identity(&self) -> Result<Value> {
        let sampler = self.sampler.map(|sampler| {
            json!({
                "kind": sampler.kind,
                "url": sampler.url,
                "model": sampler.model,
                "context": sampler.context,
            })
        });
        let here = sampler.is_none() && !is_server(self.name) && !is_script(self.name);
        let weights = here.then(|| weights_digest(self.name)).transpose()?;
        Ok(json!({
            "name": self.name,
            "weights": weights,
            "sampler": sampler,
            "model": self.model,
            "tokens_of": self.tokens_of,
            "chat": self.chat,
            "device": first_of_kind(self.generation.device),
            "bf16": self.generation.bf16,
            "context_tokens": self.generation.sizes.context_tokens,
        }))
    }

    /// The environment, with limits in the tokens that the policy counts.
    pub(crate) fn limits(&self, environment: &EnvironmentConfig) -> Result<EnvironmentConfig> {
        if is_script(self.name) && self.tokens_of.is_none() {
            environment.for_bytes()
        } else {
            Ok(environment.clone())
        }
    }

    pub(crate) fn open(&self, tasks: &Tasks) -> Result<Player> {
        let served = is_server(self.name);
        if !served && (self.model.is_some() || self.token_file.is_some()) {
            return Err(RunError::config_because(
                format!(
                    "--model and --token-file are for servers, and policy {} is none",
                    self.name
                ),
                "name a server, http(s)://HOST[:PORT], or leave them out",
            ));
        }
        if self.tokens_of.is_some() && !is_script(self.name) {
            return Err(RunError::config_because(
                format!(
                    "--tokens-of is for scripts, and policy {} writes in tokens of its own",
                    self.name
                ),
                "leave it out",
            ));
        }
        match self.sampler {
            Some(sampler) => self.sampled(sampler),
            None if served => self.served(),
            None if is_script(self.name) => self.script(tasks),
            None => {
                let opened = open_policy(self.name, Precision::Full, &self.generation.device);
                let checkpoint = match self.other_scripts()? {
                    Some(scripts) => {
                        opened.with_context(|| format!("no policy `{}`; {scripts}", self.name))?
                    }
                    None => opened?,
                };
                let player = Player::here(&checkpoint, self.chat, self.generation)?;
                Ok(Player {
                    weights: self.keep_weights.then_some(checkpoint),
                    ..player
                })
            }
        }
    }

    /// The script of the environment, or all of them, which a name that is neither a path nor a repository of the hub may be meant for.
    fn other_scripts(&self) -> Result<Option<String>> {
        if self.name.contains(['/', ':']) || Path::new(self.name).exists() {
            return Ok(None);
        }
        let scripts = registry::find(self.environment)?.scripts.iter();
        let names: Vec<&str> = scripts.map(|script| script.name).collect();
        if let Some(near) = nearest(self.name, names.iter().copied()) {
            return Ok(Some(format!("did you mean the script `{near}`?")));
        }
        Ok((!names.is_empty()).then(|| {
            format!(
                "the scripts of {} are `{}` and `{CONSTANT}ANSWER`",
                self.environment,
                names.join("`, `")
            )
        }))
    }

    /// A policy with a tokenizer of its own that a server samples.
    fn sampled(&self, sampler: &RemoteConfig) -> Result<Player> {
        let policy = runtime()?.block_on(RemotePolicy::connect(sampler));
        Ok(Player {
            policy: Arc::new(policy.context("[sampler]")?),
            format: PolicyFormat::without_weights(self.name, self.chat, sampler.context)?,
            weights: None,
            in_flight: self.generation.sizes.sequences,
        })
    }

    /// A server that exchanges text only.
    fn served(&self) -> Result<Player> {
        let token_file = self.token_file.clone();
        let policy = RemotePolicy::text(self.name, self.model, token_file, self.patience);
        let policy = runtime()?.block_on(policy);
        Ok(Player {
            policy: policy.with_context(|| format!("policy {} cannot be used", self.name))?,
            format: PolicyFormat::text(self.chat),
            weights: None,
            in_flight: self.generation.sizes.sequences,
        })
    }

    fn script(&self, tasks: &Tasks) -> Result<Player> {
        let format = match self.tokens_of {
            None => PolicyFormat::bytes(),
            Some(name) => {
                let checkpoint = open_policy(name, Precision::Full, &self.generation.device)?;
                PolicyFormat::of(&checkpoint, None, self.generation)?
            }
        };
        let tokenizer = Arc::clone(&format.tokenizer);
        let entry = registry::find(self.environment)?;
        let policy: Arc<dyn Policy> = if let Some(answer) = self.name.strip_prefix(CONSTANT) {
            Arc::new(Scripted::constant(tokenizer, (entry.last)(answer)))
        } else {
            let cast = Cast::new(tokenizer, tasks.iter().cloned());
            entry.script(self.name, cast).map_err(|error| {
                let has = |other: &&EnvEntry| {
                    let mut scripts = other.scripts.iter();
                    scripts.any(|script| script.name == self.name)
                };
                let others: Vec<&str> = environments().filter(has).map(|other| other.id).collect();
                RunError::config_because(
                    error.to_string(),
                    format!(
                        "name one of these, or a model, as --policy; {} is a script of {}",
                        self.name,
                        others.join(", ")
                    ),
                )
            })?
        };
        Ok(Player {
            policy,
            format,
            weights: None,
            in_flight: usize::MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use forage_trainer::device::DeviceSpec;

    use super::*;
    use crate::error::causes;

    #[test]
    fn a_script_of_another_environment_is_told_with_the_one_that_has_it() {
        let (generation, patience) = (Generation::on(DeviceSpec::Cpu), Patience::default());
        let opening = Opening {
            name: "one-call",
            sampler: None,
            model: None,
            token_file: None,
            patience: &patience,
            tokens_of: None,
            environment: "search-r1",
            chat: None,
            generation: &generation,
            keep_weights: false,
        };
        let error = causes(&opening.open(&Arc::from([])).err().unwrap());
        assert!(
            error.contains("name one of these, or a model, as --policy; one-call is a script of forage/code-search-v0"),
            "{error}"
        );
    }
}
