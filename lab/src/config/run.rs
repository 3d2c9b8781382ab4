//! The config file of a run, as it is written.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use forage_contracts::{EnvEntry, RegistryError};
use forage_env::registry;
use forage_env::reward::{RewardSet, Weighting};
use forage_trainer::device::DeviceSpec;
use forage_trainer::run::GrpoConfig;
use forage_trainer::{Aliases, RemoteConfig};
use serde::{Deserialize, Serialize};

use super::{Baseline, DataConfig, EngineSection, PolicyConfig, Stamp, WarmStartSection};
use crate::error::{Context, Result, RunError, refuse};
use crate::layout::{START, TRAINED};
use crate::retrieval::RetrieverConfig;

/// Tokens of the longest episode where the environment sets no limit.
const LONGEST_EPISODE: usize = 4096;

/// Everything that shapes a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The seed that every random stream of the run follows from.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// The device that computes: `cpu`, `cuda:0`, `rocm:0`, `wgpu:0`, `vulkan:0` or `metal:0`.
    #[serde(default)]
    pub device: DeviceSpec,
    /// Processor threads; 0 takes all.
    #[serde(default)]
    pub threads: usize,
    /// The start of the policy.
    pub policy: PolicyConfig,
    /// Questions and passages.
    pub data: DataConfig,
    /// The search for passages.
    #[serde(default)]
    pub retriever: RetrieverConfig,
    /// The environment.
    #[serde(default)]
    pub environment: EnvironmentConfig,
    /// Weight of each reward part, with its settings where it has some; by default `em` 1.0, or where episodes are for a ranking `ndcg`
    /// 0.5, `gain` 0.2, and `mrr`, `syntax` and `retrieved` 0.1 each.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, f32>")]
    pub reward: BTreeMap<String, Weighting>,
    /// The generation engine.
    #[serde(default)]
    pub engine: EngineSection,
    /// The algorithm and its schedule.
    #[serde(default)]
    pub grpo: GrpoConfig,
    /// A vLLM or SGLang server that samples rollouts in place of the engine in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<RemoteConfig>,
    /// Writes TensorBoard event files into the run's folder, metrics by the names of this trainer (`canonical` for ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensorboard: Option<Aliases>,
    /// The final evaluation.
    #[serde(default)]
    pub evaluation: EvaluationConfig,
    /// The recipe of `--from-scratch`; not needed otherwise.
    pub(crate) warm_start: Option<WarmStartSection>,
    /// Digests of the texts behind it, as recipes and runs write them.
    #[serde(default, skip_serializing_if = "Stamp::is_empty")]
    pub(crate) stamp: Stamp,
}

/// An environment with its own settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentConfig {
    /// The name of the environment; `forage envs` lists them.
    #[serde(default = "default_environment")]
    pub id: String,
    /// The environment's own settings.
    #[serde(default)]
    pub settings: serde_json::Map<String, serde_json::Value>,
}

impl Default for EnvironmentConfig {
    fn default() -> Self {
        Self {
            id: default_environment(),
            settings: serde_json::Map::new(),
        }
    }
}

fn first_seed() -> u64 {
    1
}

/// The environment of a config that names none: the first of the list.
fn default_environment() -> String {
    let first = registry::environments().next();
    let [_, _, short] = first.map(EnvEntry::names).unwrap_or_default();
    short.to_owned()
}

impl EnvironmentConfig {
    /// All settings, defaults and profile included, and what follows from them.
    pub(crate) fn resolved(&self) -> Result<forage_contracts::Resolved> {
        let entry = registry::find(&self.id).in_config("environment.id")?;
        let written = serde_json::Value::Object(self.settings.clone());
        (entry.resolve)(written).map_err(|fault| {
            let place = match self.faulty(entry, &fault) {
                Some(key) => format!("environment.settings.{key}"),
                None => format!("environment {}", self.id),
            };
            RunError::config_because(place, fault)
        })
    }

    /// The setting that is refused in the same words without the others: the words have its value, and seldom its key.
    fn faulty(&self, entry: &EnvEntry, fault: &RegistryError) -> Option<&String> {
        let words = fault.source()?.to_string();
        let mut settings = self.settings.iter();
        let found = settings.find(|(key, value)| {
            let alone = serde_json::json!({ (key.as_str()): value });
            let refused = (entry.resolve)(alone).err();
            let cause = refused.as_ref().and_then(Error::source);
            cause.is_some_and(|cause| cause.to_string() == words)
        });
        found.map(|(key, _)| key)
    }

    /// Tokens of the longest episode; `None` where the settings have no limit.
    pub(crate) fn longest(&self) -> Result<Option<usize>> {
        let settings = self.resolved()?.settings;
        let longest = settings
            .get("max_episode_tokens")
            .and_then(serde_json::Value::as_u64);
        Ok(longest.and_then(|longest| usize::try_from(longest).ok()))
    }
}

/// The final evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationConfig {
    /// Sampled episodes per question at temperature 1, beside one greedy episode. With two or more a verdict has pass@k of start and
    /// trained policy. Controls, twins and baselines, whose pass@k is not compared, are sampled 8 times at most.
    pub samples: usize,
    /// Resamples of each bootstrap interval.
    pub resamples: usize,
    /// Baselines that the trained policy is compared with, in a study and in the verdict of a quickstart: `forced_search`, `best_of_8`,
    /// `majority_of_8`, `rejection_sampling` and `demonstrations` (as many episodes as the run), `rejection_sampling_timed` and
    /// `demonstrations_timed` (as many seconds), and scripts of the environment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("default" = []))]
    pub baselines: Vec<String>,
}

impl EvaluationConfig {
    /// Most samples of a question.
    pub(crate) const MOST_SAMPLES: usize = 100_000;

    /// Refuses an option `--samples` that asks for more than a config may.
    pub(crate) fn check_asked(samples: usize) -> Result<()> {
        if samples > Self::MOST_SAMPLES {
            refuse!(
                "--samples is {samples}: give {} or less",
                Self::MOST_SAMPLES
            );
        }
        Ok(())
    }

    /// Samples of the policy of this name.
    pub(crate) fn samples_of(&self, name: &str) -> usize {
        match name {
            START | TRAINED => self.samples,
            _ => self.samples_beside(),
        }
    }

    /// Samples of a policy that stands beside start and trained policy: its mean is compared, and no pass@k.
    pub(crate) fn samples_beside(&self) -> usize {
        self.samples.min(Baseline::SAMPLES)
    }
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self {
            samples: 1,
            resamples: 10_000,
            baselines: Vec::new(),
        }
    }
}

impl RunConfig {
    /// Reads a config file and applies `--set` overrides.
    ///
    /// # Errors
    /// When there is no such file, and as [`RunConfig::parse`].
    pub fn read(path: &Path, overrides: &[String]) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .in_config(format!("cannot read config {}", path.display()))?;
        Self::parse(&text, overrides).in_config(unusable(path))
    }

    /// Parses the text of a config; overrides are `key.path=value` with TOML values.
    ///
    /// # Errors
    /// When the text is not TOML, or a key is unknown or of another type. The environment's settings are left to [`RunConfig::check`].
    pub fn parse(text: &str, overrides: &[String]) -> Result<Self> {
        let mut config = Self::written(text, overrides)?;
        config.complete()?;
        Ok(config)
    }

    fn written(text: &str, overrides: &[String]) -> Result<Self> {
        if overrides.is_empty() {
            // As written, so that errors name the file's own lines.
            return Ok(toml::from_str(text)?);
        }
        // From the table and not from text: nobody has the file whose lines an error would name.
        let made = |items: &[&String]| -> Result<std::result::Result<Self, toml::de::Error>> {
            let mut table: toml::Table = text.parse()?;
            for item in items {
                set(&mut table, item)?;
            }
            Ok(table.try_into())
        };
        let all: Vec<&String> = overrides.iter().collect();
        let fault = match made(&all)? {
            Ok(config) => return Ok(config),
            Err(fault) => fault,
        };
        match toml::from_str::<Self>(text) {
            // The file has the fault by itself, whatever the overrides are.
            Err(own) if own.message() == fault.message() => Err(own.into()),
            _ => {
                // Those without which the fault is gone: a command may have added others to them.
                let is_cause = |place: &usize| {
                    let mut others = all.clone();
                    others.remove(*place);
                    !matches!(made(&others), Ok(Err(other)) if other.message() == fault.message())
                };
                let causes = (0..all.len()).filter(is_cause);
                let mut named: Vec<&str> = causes.map(|place| all[place].as_str()).collect();
                if named.is_empty() {
                    named = overrides.iter().map(String::as_str).collect();
                }
                let what = format!("with --set {}", named.join(" --set "));
                Err(fault).in_config(what)
            }
        }
    }

    /// Fills in what follows from the environment where nothing else is written.
    fn complete(&mut self) -> Result<()> {
        if self.reward.is_empty() {
            let entry = registry::find(&self.environment.id).in_config("environment.id")?;
            self.reward = RewardSet::default_weights(entry.outcome)
                .into_iter()
                .map(|(name, weight)| (name, weight.into()))
                .collect();
        }
        if self.engine.context_tokens == 0 {
            // Settings that cannot be read are told by the check, beside whatever else is wrong.
            let longest = self.environment.longest().ok().flatten();
            self.engine.context_tokens = longest.unwrap_or(LONGEST_EPISODE);
        }
        Ok(())
    }

    /// The config as TOML: what an algorithm's name stands for is spelled out.
    ///
    /// # Errors
    /// When a value cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String> {
        let mut config = self.clone();
        let update = &mut config.grpo.update;
        *update = update.spelled_out(self.engine.context_tokens);
        Ok(toml::to_string_pretty(&config)?)
    }
}

/// The message about a config file that cannot be used.
pub(super) fn unusable(path: &Path) -> String {
    format!("config {} is not usable", path.display())
}

/// Applies one `key.path=value`. A value that is not TOML is taken as text.
fn set(table: &mut toml::Table, item: &str) -> Result<()> {
    let Some((path, value)) = item.split_once('=') else {
        refuse!("--set {item}: write key=value, for instance grpo.steps=50");
    };
    let parsed: toml::Table = format!("v = {value}").parse().unwrap_or_else(|_| {
        toml::Table::from_iter([("v".to_owned(), toml::Value::String(value.to_owned()))])
    });
    let keys: Vec<&str> = path.trim().split('.').collect();
    let (last, parents) = keys.split_last().in_config("empty key")?;
    let mut place = table;
    for key in parents {
        let entry = place
            .entry((*key).to_owned())
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        place = entry
            .as_table_mut()
            .in_config(format!("--set {item}: `{key}` is a value, not a table"))?;
    }
    place.insert((*last).to_owned(), parsed["v"].clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::RunConfig;
    use crate::error::causes;

    #[test]
    fn a_fault_of_the_file_is_told_by_its_lines_beside_overrides_too() {
        let told = |text: &str, set: &str| {
            let error = RunConfig::parse(text, &[set.to_owned()]).unwrap_err();
            causes(&error)
        };
        let file = "seed = 1\n[policy]\ncheckpoint = \"builtin:quickstart\"\n[environment]\nid = \"math\"\n";
        let misspelt = format!("{file}[grpo]\nstep = 4\n");
        let own = told(&misspelt, "seed=2");
        assert!(
            own.contains("line 7") && own.contains("`step`") && !own.contains("--set"),
            "{own}"
        );
        let set = told(file, "grpo.step=4");
        assert!(set.contains("with --set grpo.step=4"), "{set}");
        let more = ["seed=2", "grpo.step=4", "device=\"cpu\""].map(str::to_owned);
        let set = causes(&RunConfig::parse(file, &more).unwrap_err());
        assert!(set.starts_with("with --set grpo.step=4: "), "{set}");
        let both = told(&misspelt, "grpo.stepp=4");
        assert!(both.contains("`step"), "{both}");
    }
}
