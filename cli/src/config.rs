//! The config file of a run: as written, then checked and resolved.

mod data;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use forage_env::dataset::Labels;
use forage_env::registry;
use forage_env::reward::{RewardSet, Weighting};
use forage_env::rollout::ChatSettings;
use forage_env::seed::Seed;
use forage_env::world::WorldSpec;
use forage_trainer::device::DeviceSpec;
use forage_trainer::learner::OldLogprobs;
use forage_trainer::lora::{LoraConfig, Targets};
use forage_trainer::model::{Architecture, ModelConfig};
use forage_trainer::remote::RemoteConfig;
use forage_trainer::run::GrpoConfig;
use forage_trainer::warm_start::WarmStartConfig;
use forage_trainer::watch::Aliases;
use forage_trainer::weights::Precision;
use serde::{Deserialize, Serialize};

use crate::retrieval::RetrieverConfig;

pub(crate) use data::{DataConfig, Digests, FilesConfig, OwnQuestions};

/// Everything that shapes a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunConfig {
    /// Seed of every random stream.
    pub(crate) seed: u64,
    /// Compute device.
    #[serde(default)]
    pub(crate) device: DeviceSpec,
    /// Processor threads; 0 takes all.
    #[serde(default)]
    pub(crate) threads: usize,
    pub(crate) policy: PolicyConfig,
    pub(crate) data: DataConfig,
    /// How the environment finds passages.
    #[serde(default)]
    pub(crate) retriever: RetrieverConfig,
    pub(crate) environment: EnvironmentConfig,
    /// Weight of each reward part, with its settings where it has some.
    pub(crate) reward: BTreeMap<String, Weighting>,
    #[serde(default)]
    pub(crate) engine: EngineSection,
    #[serde(default)]
    pub(crate) grpo: GrpoConfig,
    /// A vLLM or SGLang server that samples rollouts in place of the engine in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sampler: Option<RemoteConfig>,
    /// Writes TensorBoard event files into the run's folder, metrics by the names of this trainer (`canonical` for ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tensorboard: Option<Aliases>,
    #[serde(default)]
    pub(crate) evaluation: EvaluationConfig,
    /// How `--from-scratch` makes a policy; not needed otherwise.
    pub(crate) warm_start: Option<WarmStartSection>,
}

/// Where the policy starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyConfig {
    /// A checkpoint folder, a name on the hub, or `builtin:quickstart` for the warm-started policy inside the binary.
    pub(crate) checkpoint: String,
    /// Plays episodes as chats, by the checkpoint's template: the opening prompt is the user's message, an observation the
    /// next one. Without it an environment's text stands as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chat: Option<ChatSettings>,
    /// Trains a fresh low-rank adapter in place of the weights. A checkpoint that is an adapter already is continued without
    /// this table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lora: Option<LoraSection>,
    /// How the weights beside an adapter are kept.
    #[serde(default, skip_serializing_if = "Base::is_full")]
    pub(crate) base: Base,
}

/// How frozen weights are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Base {
    /// As they are trained.
    #[default]
    F32,
    /// Half the memory; files of half precision stay mapped.
    Bf16,
    /// The matrices of the layers as 8-bit integers, 32 of which share a scale: a bit more than a quarter of the memory.
    Int8,
}

impl Base {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
    fn is_full(&self) -> bool {
        *self == Self::F32
    }

    pub(crate) fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::Full,
            Self::Bf16 => Precision::Half,
            Self::Int8 => Precision::Int8,
        }
    }
}

/// A fresh low-rank adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoraSection {
    /// Inner width.
    pub(crate) rank: usize,
    /// The change is scaled by `alpha / rank`, or by `alpha / sqrt(rank)` where it is rank-stabilised.
    pub(crate) alpha: f64,
    /// Divides by the root of the rank (`use_rslora`).
    #[serde(default)]
    pub(crate) rank_stabilised: bool,
    /// Names of the maps that are adapted, `q_proj` or longer; all of every layer by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) targets: Option<Vec<String>>,
}

impl LoraSection {
    pub(crate) fn check(&self) -> Result<()> {
        if self.rank == 0 || !(self.alpha > 0.0 && self.alpha.is_finite()) {
            bail!("rank must be at least 1 and alpha above 0, not {} and {}", self.rank, self.alpha);
        }
        Ok(())
    }

    /// The adapter of `base`, a folder or name.
    pub(crate) fn adapter(&self, base: &str) -> LoraConfig {
        LoraConfig {
            rank: self.rank,
            alpha: self.alpha,
            rank_stabilised: self.rank_stabilised,
            targets: self.targets.clone().map_or(Targets::AllLinear, Targets::Names),
            base: base.to_owned(),
        }
    }
}

/// Which environment, with its own settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnvironmentConfig {
    /// `forage envs` lists them.
    pub(crate) id: String,
    /// The environment's settings.
    #[serde(default)]
    pub(crate) settings: serde_json::Map<String, serde_json::Value>,
}

/// Sizes of the generation engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EngineSection {
    /// Episodes in one pass of the model; more wait their turn.
    pub(crate) sequences: usize,
    /// Tokens per episode.
    pub(crate) context_tokens: usize,
    /// Memory of the key-value cache, MiB: what does not fit waits, or is run again later.
    pub(crate) cache_mib: usize,
    /// Tokens in one pass: longer prompts go through the model in chunks, beside episodes that decode.
    pub(crate) step_tokens: usize,
    /// What generation computes in; bf16 by default on CUDA and `ROCm`, f32 elsewhere. Weights that learn are f32 whatever this
    /// says: with bf16 the engine has a copy, cast after each update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dtype: Option<EngineType>,
}

/// A type of numbers to generate in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EngineType {
    F32,
    Bf16,
}

impl Default for EngineSection {
    fn default() -> Self {
        Self { sequences: 128, context_tokens: 1024, cache_mib: 1024, step_tokens: 2048, dtype: None }
    }
}

/// The final evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EvaluationConfig {
    /// Sampled episodes per question at temperature 1, beside one greedy episode.
    pub(crate) samples: usize,
    /// Resamples of each bootstrap interval.
    pub(crate) resamples: usize,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self { samples: 1, resamples: 10_000 }
    }
}

/// The way from nothing to a policy that knows the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WarmStartSection {
    /// Seed of weights and demonstrations.
    pub(crate) seed: u64,
    /// World of the demonstrations; its seed must differ from the world learned in later.
    pub(crate) world: WorldSpec,
    /// Development questions that decide when to stop.
    pub(crate) dev_questions: usize,
    /// Tokens of the vocabulary trained on the world's text.
    pub(crate) vocab_size: usize,
    /// Lines of text the vocabulary is trained on.
    pub(crate) vocab_lines: u64,
    pub(crate) model: SmallModel,
    pub(crate) learning: WarmStartConfig,
    /// Padded tokens per forward and backward pass.
    pub(crate) micro_batch_tokens: usize,
}

/// Shape of a decoder made from scratch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SmallModel {
    architecture: Architecture,
    hidden_size: usize,
    intermediate_size: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    max_tokens: usize,
    rope_theta: f64,
}

impl WarmStartSection {
    fn check(&self) -> Result<()> {
        self.world.check()?;
        self.model.config(self.vocab_size).validate().map_err(anyhow::Error::msg).context("model")?;
        self.learning.optimizer.check().map_err(anyhow::Error::msg).context("learning.optimizer")?;
        if self.dev_questions == 0 || self.learning.demonstrations_per_step == 0 || self.micro_batch_tokens == 0 {
            bail!("dev_questions, learning.demonstrations_per_step and micro_batch_tokens must be at least 1");
        }
        Ok(())
    }
}

impl SmallModel {
    /// The full shape, with tied embeddings.
    pub(crate) fn config(&self, vocab_size: usize) -> ModelConfig {
        ModelConfig {
            architecture: self.architecture,
            vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            num_key_value_heads: self.kv_heads,
            head_dim: self.head_dim,
            max_position_embeddings: self.max_tokens,
            rope_theta: self.rope_theta,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
        }
    }
}

/// Marks an error as the user's config: exit code 2.
#[derive(Debug)]
pub(crate) struct BadConfig(pub(crate) String);

impl std::fmt::Display for BadConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl RunConfig {
    /// Reads a config file and applies `--set` overrides.
    pub(crate) fn read(path: &Path, overrides: &[String]) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| BadConfig(format!("cannot read config {}", path.display())))?;
        Self::parse(&text, overrides).with_context(|| BadConfig(format!("config {} is not usable", path.display())))
    }

    /// Parses the text of a config; overrides are `key.path=value` with TOML values.
    pub(crate) fn parse(text: &str, overrides: &[String]) -> Result<Self> {
        let config: Self = if overrides.is_empty() {
            // As written, so that errors name the file's own lines.
            toml::from_str(text)?
        } else {
            let mut table: toml::Table = text.parse()?;
            for item in overrides {
                set(&mut table, item)?;
            }
            // From the table and not from text: nobody has the file whose lines an error would name.
            table.try_into().with_context(|| format!("with --set {}", overrides.join(" --set ")))?
        };
        config.check()?;
        Ok(config)
    }

    /// Takes another device than the config's, where one is given, and writes down what follows from it.
    pub(crate) fn use_device(&mut self, device: Option<DeviceSpec>) -> Result<()> {
        self.device = device.unwrap_or(self.device);
        if self.device.is_cpu() && self.engine.dtype == Some(EngineType::Bf16) {
            return Err(anyhow::anyhow!("remove the key, or name another device")
                .context(BadConfig("engine.dtype is bf16, and the processor computes in f32".to_owned())));
        }
        if self.generates_in_bf16() {
            self.engine.dtype = Some(EngineType::Bf16);
        }
        let exact = self.sampler.is_none() && self.device.is_cpu();
        self.grpo.update.old_logprobs = Some(self.grpo.update.old_logprobs_where(exact));
        let replay = self.grpo.check_replay().map_err(anyhow::Error::msg);
        replay.with_context(|| BadConfig(format!("[grpo.replay] on {}", self.device)))
    }

    /// Whether the engine computes in bf16.
    pub(crate) fn generates_in_bf16(&self) -> bool {
        let device = self.device;
        let default = || self.policy.base != Base::F32 || device.prefers_bf16();
        !device.is_cpu() && self.engine.dtype.map_or_else(default, |dtype| dtype == EngineType::Bf16)
    }

    fn check(&self) -> Result<()> {
        let entry = registry::find(&self.environment.id).context("environment.id")?;
        match (&self.data.world, &self.data.files, self.data.own) {
            (Some(world), None, None) => world.check().context("data.world")?,
            (None, Some(files), None) => files.check().context("data.files")?,
            (None, None, Some(_)) if entry.questions.is_some() => {}
            (None, None, Some(_)) => {
                bail!("{} has no questions of its own; write [data.world] or [data.files], not [data.own]", entry.id)
            }
            _ => bail!("data needs exactly one of [data.world], [data.files] and [data.own]"),
        }
        if let Some(lora) = &self.policy.lora {
            lora.check().context("[policy.lora]")?;
        }
        self.retriever.check().context("[retriever]")?;
        if self.grpo.group_size < 2 {
            bail!("grpo.group_size is {}: a group needs at least 2 episodes to compare", self.grpo.group_size);
        }
        if self.grpo.prompts_per_step == 0 {
            bail!("grpo.prompts_per_step must be at least 1");
        }
        self.grpo.update.check().map_err(anyhow::Error::msg).context("[grpo.update]")?;
        if let Some(sampler) = &self.sampler {
            sampler.check().context("[sampler]")?;
            if self.grpo.update.old_logprobs == Some(OldLogprobs::Sampler) {
                bail!(
                    "[sampler]: another engine's log-probabilities differ from the trainer's; remove grpo.update.old_logprobs"
                );
            }
        }
        self.grpo.check_trees().map_err(anyhow::Error::msg).context("[grpo]")?;
        self.grpo.check_replay().map_err(anyhow::Error::msg).context("[grpo.replay]")?;
        self.grpo.sentinel.check().map_err(anyhow::Error::msg).context("[grpo.sentinel]")?;
        if self.grpo.evaluate_every > 0 && self.data.dev_questions == 0 {
            bail!("grpo.evaluate_every is set but data.dev_questions is 0");
        }
        if self.reward.values().all(|weighting| weighting.weight() == 0.0) {
            bail!(
                "[reward] gives nothing a weight: no group would have a direction; write for instance em = 1.0 or ndcg = 1.0"
            );
        }
        RewardSet::configured(entry.outcome, &self.reward, Seed::root(self.seed)).context("[reward]")?;
        if self.evaluation.resamples == 0 {
            bail!("evaluation.resamples must be at least 1");
        }
        if let Some(section) = &self.warm_start {
            section.check().context("[warm_start]")?;
        }
        let EngineSection { sequences, context_tokens, cache_mib, step_tokens, dtype: _ } = self.engine;
        if sequences == 0 || context_tokens < 2 || cache_mib == 0 || step_tokens == 0 {
            bail!("engine.sequences, context_tokens, cache_mib and step_tokens must be positive");
        }
        let same =
            |warm: &WarmStartSection| self.data.world.as_ref().is_some_and(|world| world.seed == warm.world.seed);
        if self.warm_start.as_ref().is_some_and(same) {
            bail!("warm_start.world.seed equals data.world.seed: demonstrations would come from the world learned in");
        }
        Ok(())
    }

    /// Defaults for evaluating a policy without a config.
    pub(crate) fn for_evaluation(environment: &str) -> Self {
        Self {
            seed: 1,
            device: DeviceSpec::default(),
            threads: 0,
            policy: PolicyConfig { checkpoint: String::new(), chat: None, lora: None, base: Base::default() },
            data: DataConfig {
                train_questions: 0,
                dev_questions: 0,
                test_questions: 0,
                labels: Labels::True,
                world: None,
                files: None,
                digests: None,
                own: None,
            },
            retriever: RetrieverConfig::default(),
            environment: EnvironmentConfig { id: environment.to_owned(), settings: serde_json::Map::new() },
            reward: BTreeMap::new(),
            engine: EngineSection {
                context_tokens: 8192,
                sequences: 16,
                step_tokens: 4096,
                ..EngineSection::default()
            },
            grpo: GrpoConfig::default(),
            sampler: None,
            tensorboard: None,
            evaluation: EvaluationConfig::default(),
            warm_start: None,
        }
    }

    /// Threads to use.
    pub(crate) fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        }
    }

    /// The resolved config as TOML: what an algorithm's name stands for is spelled out.
    pub(crate) fn to_toml(&self) -> Result<String> {
        let mut resolved = self.clone();
        let update = &mut resolved.grpo.update;
        update.objective = update.objective.spelled_out(self.engine.context_tokens);
        Ok(toml::to_string_pretty(&resolved)?)
    }
}

/// Applies one `key.path=value`. A value that is no TOML is taken as text.
fn set(table: &mut toml::Table, item: &str) -> Result<()> {
    let Some((path, value)) = item.split_once('=') else {
        bail!("--set {item}: write key=value, for instance grpo.steps=50");
    };
    let parsed: toml::Table = format!("v = {value}")
        .parse()
        .unwrap_or_else(|_| toml::Table::from_iter([("v".to_owned(), toml::Value::String(value.to_owned()))]));
    let keys: Vec<&str> = path.trim().split('.').collect();
    let (last, parents) = keys.split_last().context("empty key")?;
    let mut place = table;
    for key in parents {
        let entry = place.entry((*key).to_owned()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        place = entry.as_table_mut().with_context(|| format!("--set {item}: `{key}` is a value, not a table"))?;
    }
    place.insert((*last).to_owned(), parsed["v"].clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICKSTART: &str = include_str!("../../configs/quickstart.toml");

    #[test]
    fn every_config_of_the_repository_loads() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                RunConfig::read(&path, &[]).unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
                seen += 1;
            }
        }
        assert!(seen >= 2);
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        for key in ["grpo.stepz=1", "speed=2", "grpo.update.objective.los=1", "data.world.size=3", "policy.path=1"] {
            let error = format!("{:#}", RunConfig::parse(QUICKSTART, &[key.to_owned()]).unwrap_err());
            let name = key.split('=').next().unwrap().rsplit('.').next().unwrap();
            assert!(error.contains(name), "{key}: {error}");
        }
    }

    #[test]
    fn errors_of_overrides_name_the_key_and_no_line() {
        let error = format!("{:#}", RunConfig::parse(QUICKSTART, &["grpo.steps=many".to_owned()]).unwrap_err());
        assert!(error.contains("--set grpo.steps=many") && error.contains("in `grpo.steps`"), "{error}");
        assert!(!error.contains("line"), "{error}");
    }

    #[test]
    fn overrides_reach_nested_keys_and_nonsense_is_refused() {
        let config = RunConfig::parse(QUICKSTART, &["grpo.steps=7".into(), "policy.checkpoint=some/folder".into()]);
        let config = config.unwrap();
        assert_eq!((config.grpo.steps, config.policy.checkpoint.as_str()), (7, "some/folder"));
        for bad in [
            "grpo.steps",
            "grpo.group_size=1",
            "grpo.steps=\"many\"",
            "seed.x=1",
            "reward.em=0",
            "reward.emm=1",
            "environment.id=serch-r1",
        ] {
            assert!(RunConfig::parse(QUICKSTART, &[bad.to_owned()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn questions_have_one_source_and_one_rule_of_splitting() {
        let files = |rest: &str| {
            let mut table: toml::Table = QUICKSTART.parse().unwrap();
            let data = table["data"].as_table_mut().unwrap();
            data.remove("world");
            let files = format!("train = \"q.jsonl\"\n{rest}").parse::<toml::Table>().unwrap();
            data.insert("files".to_owned(), files.into());
            RunConfig::parse(&toml::to_string(&table).unwrap(), &[])
        };
        let config = files("train_share = 0.8").unwrap();
        assert_eq!(config.data.files.as_ref().unwrap().train_share, Some(0.8));
        assert_eq!(RunConfig::parse(&config.to_toml().unwrap(), &[]).unwrap().data, config.data);
        let config = files("ids = { train = \"train.ids\" }").unwrap();
        assert_eq!(RunConfig::parse(&config.to_toml().unwrap(), &[]).unwrap().data, config.data);
        for (bad, part) in [
            ("train_share = 1.0", "write a share between 0 and 1"),
            ("train_share = 0.8\ntest = \"t.jsonl\"", "remove it, or `test` and `ids`"),
            ("ids = { trian = \"x\" }", "trian"),
        ] {
            let error = format!("{:#}", files(bad).unwrap_err());
            assert!(error.contains(part), "{bad}: {error}");
        }
        let own = format!("{:#}", RunConfig::parse(QUICKSTART, &["data.own={ seed = 1 }".to_owned()]).unwrap_err());
        assert!(own.contains("exactly one of [data.world], [data.files] and [data.own]"), "{own}");
    }

    #[test]
    fn rewards_are_weights_or_tables_with_settings() {
        let labels = "data.labels=\"wrong\"".to_owned();
        let contains = "reward.contains={ weight = 1, token = \"sieve\" }".to_owned();
        let judge = "reward.judge={ weight = 0.5, url = \"http://localhost:1\", model = \"m\" }".to_owned();
        let config = RunConfig::parse(QUICKSTART, &[labels, contains, judge]).unwrap();
        assert_eq!((config.reward["contains"].weight(), config.data.labels.clone()), (1.0, Labels::Wrong));
        assert_eq!(config.reward["contains"].settings()["token"], "sieve");
        let again = RunConfig::parse(&config.to_toml().unwrap(), &[]).unwrap();
        assert_eq!((&again.reward, &again.data), (&config.reward, &config.data));
        for (bad, part) in [
            ("reward.contains={ weight = 1, word = \"x\" }", "word"),
            ("reward.contains={ token = \"x\" }", "a weight, or a table with `weight`"),
            ("reward.em={ weight = 1, k = 1 }", "[reward.em]: `k` is not a setting"),
            ("reward.judge={ weight = 1, url = \"http://x\" }", "model"),
            ("data.labels=\"random\"", "labels `random` are not known"),
        ] {
            let error = format!("{:#}", RunConfig::parse(QUICKSTART, &[bad.to_owned()]).unwrap_err());
            assert!(error.contains(part), "{bad}: {error}");
        }
    }

    #[test]
    fn the_resolved_config_reads_back_as_itself() {
        let config = RunConfig::parse(QUICKSTART, &[]).unwrap();
        let written = config.to_toml().unwrap();
        let again = RunConfig::parse(&written, &[]).unwrap();
        assert_eq!(again.to_toml().unwrap(), written);
        // Only the objective is spelled out; it means the same, and everything else is equal.
        let tokens = config.engine.context_tokens;
        let objective = config.grpo.update.objective.clone();
        assert_eq!(again.grpo.update.objective.recipe(tokens), objective.recipe(tokens));
        let mut again = again;
        again.grpo.update.objective = objective;
        assert_eq!(again, config);
    }
}
