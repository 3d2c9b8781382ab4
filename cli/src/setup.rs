//! From a config to the things a run is made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use forage_env::dataset::{Labels, digest_ids, pick_ids, read_tasks, relabel, split_by_index};
use forage_env::environment::{EnvFactory, EnvSpec, Outcome};
use forage_env::registry::{self, MakeQuestions, OpenWiki, Resources, make};
use forage_env::reward::judge::{self, JudgeSettings};
use forage_env::reward::{RewardSet, Weighting, default_weights};
use forage_env::rollout::Presentation;
use forage_env::seed::Seed;
use forage_env::task::{Split, Task};
use forage_env::tokenizer::Tokenizer;
use forage_env::wiki::Wiki;
use forage_env::world::export::{self, QuestionCounts};
use forage_env::world::{World, WorldSpec};
use forage_retriever::{Bm25Retriever, BuildRequest, CorpusFormat, Index, NoPassages, Retriever, Tape, corpus_digest};
use forage_trainer::device::DeviceSpec;
use forage_trainer::generate::EngineConfig;
use forage_trainer::model::{KvCache, ModelConfig};
use forage_trainer::weights::{Checkpoint, Hub, Precision, tokenizer_of};

use crate::commands::note;
use crate::config::{
    BadConfig, Base, DataConfig, Digests, EngineSection, EnvironmentConfig, FilesConfig, OwnQuestions, PolicyConfig,
    RunConfig,
};
use crate::pipeline::Experience;
use crate::retrieval::RetrieverConfig;

/// Questions by split.
pub(crate) type Tasks = Arc<[Arc<Task>]>;

/// A corpus that can be searched and its questions.
#[derive(Clone)]
pub(crate) struct Data {
    pub(crate) retriever: Arc<dyn Retriever>,
    /// Whole pages, for environments that read them.
    pub(crate) wiki: Option<OpenWiki>,
    pub(crate) train: Tasks,
    pub(crate) dev: Tasks,
    pub(crate) test: Tasks,
    /// Of the questions, with their own labels.
    pub(crate) digests: Digests,
}

impl Data {
    /// What an environment may stand on.
    pub(crate) fn resources(&self, tokenizer: Arc<dyn Tokenizer>) -> Resources {
        resources(&self.retriever, self.wiki.as_ref(), tokenizer)
    }
}

/// What an environment may stand on.
pub(crate) fn resources(
    retriever: &Arc<dyn Retriever>,
    wiki: Option<&OpenWiki>,
    tokenizer: Arc<dyn Tokenizer>,
) -> Resources {
    let resources = Resources::new(Arc::clone(retriever), tokenizer);
    match wiki {
        Some(wiki) => resources.with_wiki(Arc::clone(wiki)),
        None => resources,
    }
}

/// Pages that are opened, or indexed first, when an environment asks for them; once for all that ask.
pub(crate) fn lazily(open: impl Fn() -> Result<Wiki> + Send + Sync + 'static) -> OpenWiki {
    let opened: Mutex<Option<Arc<Wiki>>> = Mutex::default();
    Arc::new(move || {
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wiki) = opened.as_ref() {
            return Ok(Arc::clone(wiki));
        }
        let wiki = Arc::new(open()?);
        Ok(Arc::clone(opened.insert(wiki)))
    })
}

/// The pages of a corpus; a format of passages has a page in each, and `passages`, its index, serves for both.
pub(crate) fn pages_of(corpus: &Path, format: CorpusFormat, passages: Option<Arc<Index>>, folder: &Path) -> OpenWiki {
    let (corpus, place) = (corpus.to_owned(), folder.join("pages"));
    lazily(move || {
        let index = match &passages {
            Some(index) if format.whole() == format => Arc::clone(index),
            _ => open_or_build(&corpus, format.whole(), &place)?,
        };
        Ok(Wiki::of_index(index))
    })
}

/// Makes or opens what `[data]` names; what is made goes into the run's folder.
pub(crate) fn load_data(config: &RunConfig, folder: &Path) -> Result<Data> {
    let RunConfig { data, retriever, .. } = config;
    let environment = &config.environment.id;
    let own = registry::find(environment)?.questions;
    let (wiki, retriever, [train, dev, test]) = match (&data.world, &data.files, data.own) {
        (Some(world), None, None) => load_world(world, data, retriever, folder),
        (None, Some(files), None) => load_files(files, data, (retriever, own.is_none()), folder),
        (None, None, Some(OwnQuestions { seed })) => {
            let own = own.with_context(|| format!("{environment} has no questions of its own"))?;
            Ok((None, Arc::new(NoPassages) as Arc<dyn Retriever>, own_splits(own, data, seed)))
        }
        _ => bail!("data needs exactly one of [data.world], [data.files] and [data.own]"),
    }?;
    finished(config, retriever, wiki, [train, dev, test])
}

/// As [`load_data`], with the answers of a tape for a retriever: no index is opened and no server asked.
pub(crate) fn load_taped(config: &RunConfig, tape: &Path, folder: &Path) -> Result<Data> {
    let retriever: Arc<dyn Retriever> = Arc::new(Tape::open(tape)?);
    if let Some(files) = &config.data.files {
        let wiki = files_wiki(files, None, folder);
        let none = || -> Tasks { Arc::from([]) };
        // Recorded episodes hold their questions.
        let digests = Digests::default();
        return Ok(Data { retriever, wiki, train: none(), dev: none(), test: none(), digests });
    }
    let plain = RunConfig { retriever: RetrieverConfig::default(), ..config.clone() };
    Ok(Data { retriever, ..load_data(&plain, folder)? })
}

/// Questions with the digests that a config asks for and the labels it gives.
fn finished(
    config: &RunConfig,
    retriever: Arc<dyn Retriever>,
    wiki: Option<OpenWiki>,
    [train, dev, test]: [Tasks; 3],
) -> Result<Data> {
    let data = &config.data;
    let of = |tasks: &Tasks| {
        let tasks: Vec<Task> = tasks.iter().map(|task| Task::clone(task)).collect();
        (!tasks.is_empty()).then(|| digest_ids(&tasks))
    };
    let digests = Digests { train: of(&train), dev: of(&dev), test: of(&test) };
    if let Some(asked) = &data.digests {
        for ((key, asked), (_, found)) in asked.by_key().into_iter().zip(digests.by_key()) {
            if asked.is_some() && asked != found {
                let found = found.map_or("none", String::as_str);
                let fix =
                    format!("the questions here have {found}; use the files of that run, or remove [data.digests]");
                return Err(
                    anyhow::anyhow!(fix).context(BadConfig(format!("data.digests.{key} is of other questions")))
                );
            }
        }
    }
    let train = relabelled(&train, &data.labels, config.seed)?;
    Ok(Data { retriever, wiki, train, dev, test, digests })
}

/// Training questions with the labels that a config gives them.
pub(crate) fn relabelled(train: &Tasks, labels: &Labels, seed: u64) -> Result<Tasks> {
    if labels.are_true() {
        return Ok(Arc::clone(train));
    }
    let tasks = train.iter().map(|task| Task::clone(task)).collect();
    let tasks = relabel(tasks, labels, Seed::root(seed)).with_context(|| BadConfig("data.labels".to_owned()))?;
    Ok(tasks.into_iter().map(Arc::new).collect())
}

/// What a run stands on: pages, passages, and the questions to learn from, to watch and to hold out.
type Loaded = (Option<OpenWiki>, Arc<dyn Retriever>, [Tasks; 3]);

/// Questions that an environment brings along.
fn own_splits(own: MakeQuestions, data: &DataConfig, seed: u64) -> [Tasks; 3] {
    let tasks = |split, count| own_questions(own, split, count, seed);
    [
        tasks(Split::Train, data.train_questions),
        tasks(Split::Dev, data.dev_questions),
        tasks(Split::Test, data.test_questions),
    ]
}

/// The first questions of a split that an environment brings along.
pub(crate) fn own_questions(own: MakeQuestions, split: Split, count: usize, seed: u64) -> Tasks {
    own(split, count, Seed::root(seed)).into_iter().map(Arc::new).collect()
}

fn load_world(spec: &WorldSpec, data: &DataConfig, retriever: &RetrieverConfig, folder: &Path) -> Result<Loaded> {
    let world = World::new(spec.clone())?;
    let place = folder.join("world");
    let counts = QuestionCounts {
        train: data.train_questions as u64,
        dev: data.dev_questions as u64,
        test: data.test_questions as u64,
    };
    if place.join("world.json").exists() {
        check_world(&place, &world, counts)?;
    } else {
        export::write(&world, &place, counts, |_| {})?;
    }
    let found = match retriever.connect()? {
        Some(remote) => remote,
        None => retriever.over(&open_or_build(&place.join("beir"), CorpusFormat::Beir, &folder.join("index"))?)?,
    };
    let tasks =
        |split, count: usize| -> Result<Tasks> { Ok(world.questions(split, count as u64)?.map(Arc::new).collect()) };
    let wiki = pages_of(&place.join("pages/pages.jsonl"), CorpusFormat::Pages, None, folder);
    let splits = [
        tasks(Split::Train, data.train_questions)?,
        tasks(Split::Dev, data.dev_questions)?,
        tasks(Split::Test, data.test_questions)?,
    ];
    Ok((Some(wiki), found, splits))
}

/// A world that is already in the run's folder must be the one the config asks for.
fn check_world(place: &Path, world: &World, questions: QuestionCounts) -> Result<()> {
    let path = place.join("world.json");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let found: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{} is damaged; remove its folder", path.display()))?;
    let same = found.get("fingerprint").and_then(|value| value.as_str()) == Some(world.fingerprint().as_str())
        && found.get("questions") == Some(&serde_json::to_value(questions)?);
    if !same {
        bail!("{} holds another world than the config asks for; give another --out", place.display());
    }
    Ok(())
}

/// `retriever`: how passages are found, and whether the environment needs any.
fn load_files(
    files: &FilesConfig,
    data: &DataConfig,
    (retriever, needed): (&RetrieverConfig, bool),
    folder: &Path,
) -> Result<Loaded> {
    let index = match (&files.corpus, files.format, &files.index) {
        (Some(corpus), Some(format), Some(index)) => Some(open_checked(index, corpus, format)?),
        (Some(corpus), Some(format), None) => Some(open_or_build(corpus, format, &folder.join("index"))?),
        _ => None,
    };
    let wiki = files_wiki(files, index.clone(), folder);
    let retriever = match (retriever.connect()?, index) {
        (Some(remote), None) if files.corpus.is_none() && files.format.is_none() => remote,
        (None, Some(index)) => retriever.over(&index)?,
        (None, None) if !needed && files.corpus.is_none() && files.format.is_none() => Arc::new(NoPassages),
        _ => bail!("data.files needs corpus and format, or else a remote retriever in [retriever.remote] and neither"),
    };
    Ok((wiki, retriever, file_splits(files, data)?))
}

/// A file by its path, or by its address on the hub (`hf://datasets/ORG/NAME/PATH`), which is fetched.
pub(crate) fn here(path: &Path) -> Result<PathBuf> {
    let Some(address) = path.to_str().filter(|path| path.starts_with("hf://")) else { return Ok(path.to_owned()) };
    hub().fetch_data(address).with_context(|| BadConfig(format!("the data set {address} cannot be had")))
}

/// The questions of files, by their splits.
fn file_splits(files: &FilesConfig, data: &DataConfig) -> Result<[Tasks; 3]> {
    let ids = files.ids.clone().unwrap_or_default();
    let tasks = |path: Option<&Path>, ids: Option<&Path>, split| -> Result<Vec<Task>> {
        let Some(path) = path else { return Ok(Vec::new()) };
        let read = read_tasks(&here(path)?, None, split)?;
        Ok(match ids {
            Some(ids) => pick_ids(read, ids)?,
            None => read,
        })
    };
    let first = |tasks: Vec<Task>, count: usize| -> Tasks { tasks.into_iter().take(count).map(Arc::new).collect() };
    let mut train = tasks(Some(&files.train), ids.train.as_deref(), Split::Train)?;
    let dev = tasks(files.dev.as_deref(), ids.dev.as_deref(), Split::Dev)?;
    let mut test = tasks(files.test.as_deref(), ids.test.as_deref(), Split::Test)?;
    if let Some(share) = files.train_share {
        (train, test) = split_by_index(train, share);
    }
    Ok([first(train, data.train_questions), first(dev, data.dev_questions), first(test, data.test_questions)])
}

/// Whole pages of files: their own, or those of the corpus, whose index serves where it is of pages.
fn files_wiki(files: &FilesConfig, index: Option<Arc<Index>>, folder: &Path) -> Option<OpenWiki> {
    match (&files.pages, &files.corpus, files.format) {
        (Some(pages), _, _) => Some(pages_of(pages, CorpusFormat::WholePages, None, folder)),
        (None, Some(corpus), Some(format)) => Some(pages_of(corpus, format, index, folder)),
        _ => None,
    }
}

/// A generated world whose passages are searched in memory, with its pages.
pub(crate) fn generated(spec: WorldSpec) -> Result<(Arc<World>, Arc<dyn Retriever>, OpenWiki)> {
    let world = Arc::new(World::new(spec)?);
    let retriever: Arc<dyn Retriever> = Arc::new(Bm25Retriever::in_memory(world.passages().collect())?);
    let pages = Arc::clone(&world);
    Ok((world, retriever, lazily(move || Ok(Wiki::of_world(&pages)?))))
}

/// What searches an index folder, or a corpus that is indexed in `scratch` first, with its pages.
pub(crate) fn searchable(
    index: Option<&Path>,
    corpus: Option<(&Path, CorpusFormat)>,
    retrieval: &RetrieverConfig,
    scratch: &Path,
) -> Result<(Arc<dyn Retriever>, OpenWiki)> {
    let found = match (index, corpus) {
        (Some(index), None) => Arc::new(Index::open(index)?),
        (None, Some((corpus, format))) => open_or_build(corpus, format, &scratch.join("index"))?,
        _ => bail!("give exactly one of --index and --corpus"),
    };
    let retriever = retrieval.over(&found)?;
    let wiki = match corpus {
        Some((corpus, format)) => pages_of(corpus, format, Some(found), scratch),
        // What the index holds are the pages.
        None => lazily(move || Ok(Wiki::of_index(Arc::clone(&found)))),
    };
    Ok((retriever, wiki))
}

/// Opens an index after checking that it was built from `corpus`.
pub(crate) fn open_checked(place: &Path, corpus: &Path, format: CorpusFormat) -> Result<Arc<Index>> {
    let index = Index::open(place)?;
    index.verify_corpus(&corpus_digest(corpus, format)?)?;
    Ok(Arc::new(index))
}

/// Opens the index of `corpus` at `place`, building it first when there is none.
pub(crate) fn open_or_build(corpus: &Path, format: CorpusFormat, place: &Path) -> Result<Arc<Index>> {
    if place.exists() {
        return open_checked(place, corpus, format);
    }
    Index::build(&BuildRequest::new(corpus, format, place), &mut |_| {})?;
    Ok(Arc::new(Index::open(place)?))
}

/// The environment factory a config names. `context` is the policy's window: an episode must fit.
pub(crate) fn environment(
    environment: &EnvironmentConfig,
    resources: Resources,
    context: Option<usize>,
) -> Result<Arc<dyn EnvFactory>> {
    let settings = serde_json::Value::Object(environment.settings.clone());
    let resources = Resources { notice: note, ..resources };
    let factory = make(&environment.id, settings, resources)
        .with_context(|| BadConfig(format!("environment {}", environment.id)))?;
    let episode = factory.spec().max_episode_tokens;
    if let Some(context) = context.filter(|&context| context < episode) {
        let message =
            format!("environment.settings.max_episode_tokens is {episode}, the policy's window {context} tokens");
        return Err(anyhow::anyhow!("lower the former, or raise engine.context_tokens where the model allows")
            .context(BadConfig(message)));
    }
    Ok(factory)
}

/// Tokens an engine of this config can hold for a model.
pub(crate) fn window(config: &RunConfig, model: &ModelConfig) -> usize {
    config.engine.context_tokens.min(model.max_position_embeddings)
}

/// The rewards a config weights, for episodes of its environment.
pub(crate) fn rewards(environment: &str, weights: &BTreeMap<String, Weighting>, seed: u64) -> Result<Arc<RewardSet>> {
    let outcome = registry::find(environment)?.outcome;
    Ok(Arc::new(RewardSet::configured(outcome, weights, Seed::root(seed).child("reward", &[]))?))
}

/// What is weighted where nobody says.
pub(crate) fn default_rewards(outcome: Outcome) -> BTreeMap<String, Weighting> {
    default_weights(outcome).into_iter().map(|(name, weight)| (name, weight.into())).collect()
}

/// The checkpoint a config names, with its adapter where one is to be trained.
pub(crate) fn checkpoint(config: &RunConfig) -> Result<Checkpoint> {
    let name = &config.policy.checkpoint;
    let mut checkpoint = load_policy_as(name, config, config.policy.base.precision())?;
    match (&config.policy.lora, &checkpoint.lora) {
        (Some(_), Some(_)) => {
            let message = format!("policy.checkpoint {name} is an adapter already");
            return Err(anyhow::anyhow!("remove [policy.lora] to continue it").context(BadConfig(message)));
        }
        (Some(lora), None) => {
            let seed = Seed::root(config.seed).child("adapter", &[]);
            checkpoint.adapt(lora.adapter(name), seed).with_context(|| BadConfig("[policy.lora]".to_owned()))?;
        }
        (None, None) if config.policy.base != Base::F32 => {
            let message =
                "policy.base: weights that learn are kept as f32; others can only stand beside an adapter".to_owned();
            return Err(anyhow::anyhow!("add [policy.lora], or remove the key").context(BadConfig(message)));
        }
        (None, _) => {}
    }
    Ok(checkpoint)
}

/// The tokenizer of a checkpoint folder, or of a policy inside the binary.
pub(crate) fn tokenizer(name: &str) -> Result<Arc<dyn Tokenizer>> {
    if let Some(builtin) = name.strip_prefix("builtin:") {
        return Ok(Arc::new(crate::builtin::load(builtin, &DeviceSpec::default())?.tokenizer));
    }
    let folder = Path::new(name);
    if !folder.is_dir() {
        bail!("`{name}` is not a folder; name the policy's with --tokenizer: only its tokenizer is read");
    }
    Ok(Arc::new(tokenizer_of(folder)?))
}

/// A checkpoint by its folder or name on the hub, or one inside the binary.
pub(crate) fn load_policy(name: &str, config: &RunConfig) -> Result<Checkpoint> {
    load_policy_as(name, config, Precision::Full)
}

fn load_policy_as(name: &str, config: &RunConfig, precision: Precision) -> Result<Checkpoint> {
    if precision != Precision::Full && name.starts_with("builtin:") {
        let message = format!("policy.base: {name} is kept whole");
        return Err(anyhow::anyhow!("remove the key, or name a folder").context(BadConfig(message)));
    }
    open(name, precision, &config.device)
}

/// A checkpoint by its folder or name on the hub, or one inside the binary: by itself, which is kept whole, or under an adapter.
pub(crate) fn open(name: &str, precision: Precision, device: &DeviceSpec) -> Result<Checkpoint> {
    let unusable = || format!("policy {name} cannot be used");
    if let Some(builtin) = name.strip_prefix("builtin:") {
        return crate::builtin::load(builtin, device);
    }
    let folder = hub().fetch(name).with_context(unusable)?;
    let base = Checkpoint::adapter_base(&folder).with_context(unusable)?;
    let Some(builtin) = base.as_deref().and_then(|base| base.strip_prefix("builtin:")) else {
        return Checkpoint::open(name, &hub(), precision, &device.open()?).with_context(unusable);
    };
    if matches!(precision, Precision::Half | Precision::Int8) {
        bail!("policy {name}: its base builtin:{builtin} is kept whole, as f32");
    }
    let mut checkpoint = crate::builtin::load(builtin, device)?;
    checkpoint.load_adapter(&folder).with_context(unusable)?;
    Ok(checkpoint)
}

/// The hub as the environment of this process describes it.
pub(crate) fn hub() -> Hub {
    #[expect(clippy::disallowed_methods, reason = "the command line is what reads the environment")]
    Hub::from_variables(|name| std::env::var(name).ok())
}

/// How a policy reads an environment's text, its tools included where it has some.
pub(crate) fn presentation(policy: &PolicyConfig, checkpoint: &Checkpoint, spec: &EnvSpec) -> Result<Presentation> {
    with_tools(plain_presentation(policy, checkpoint)?, spec)
}

/// A presentation that shows an environment's tools.
pub(crate) fn with_tools(presentation: Presentation, spec: &EnvSpec) -> Result<Presentation> {
    presentation
        .with_tools(&spec.tools)
        .with_context(|| BadConfig("[environment.settings]: tool calls cannot be used".to_owned()))
}

/// How a policy reads text, without an environment's tools.
pub(crate) fn plain_presentation(policy: &PolicyConfig, checkpoint: &Checkpoint) -> Result<Presentation> {
    let Some(settings) = &policy.chat else { return Ok(Presentation::Raw) };
    let Some(template) = &checkpoint.chat else {
        let message = "policy.chat is set, but the checkpoint has no chat template".to_owned();
        return Err(anyhow::anyhow!("remove the table, or use an Instruct checkpoint").context(BadConfig(message)));
    };
    Presentation::chat(template.clone(), settings.clone())
        .with_context(|| BadConfig("policy.chat cannot be used".to_owned()))
}

/// Sizes of the engine for a model, as the trainer wants them.
pub(crate) fn engine(config: &RunConfig, model: &ModelConfig) -> EngineConfig {
    let EngineSection { sequences, context_tokens, cache_mib, step_tokens, dtype: _ } = config.engine;
    let bf16 = config.generates_in_bf16();
    let cache_tokens = KvCache::positions_in(model, cache_mib * 1024 * 1024, bf16);
    EngineConfig { context: context_tokens, cache_tokens, step_tokens, sequences, bf16 }
}

/// Digest of what shapes a run: its settings, and the ranking and training questions or the recorded rollouts. What may
/// change between its sessions (length, threads, evaluation, how often it saves, where a judge is and what it may cost) is
/// left out.
pub(crate) fn digest(config: &RunConfig, experience: Experience<'_>) -> Result<String> {
    let mut shape = config.clone();
    shape.threads = 0;
    shape.grpo.steps = 0;
    shape.grpo.checkpoint_every = 0;
    shape.grpo.keep_checkpoints = 0;
    shape.grpo.evaluate_every = 0;
    shape.grpo.sentinel = forage_trainer::watch::SentinelConfig::default();
    shape.tensorboard = None;
    shape.data.digests = None;
    for judge in [judge::ENTRY, judge::BATCH, judge::TOURNAMENT] {
        if let Some(part) = shape.reward.get_mut(judge.name) {
            part.without(&JudgeSettings::CONDUCT);
        }
    }
    shape.evaluation = crate::config::EvaluationConfig::default();
    let text = shape.to_toml()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(text.as_bytes());
    match experience {
        Experience::Data(data) => {
            hasher.update(data.retriever.fingerprint().0.as_bytes());
            for task in data.train.iter() {
                hasher.update(serde_json::to_string(task.as_ref())?.as_bytes());
            }
        }
        Experience::Recorded(file) => {
            let file = std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            hasher.update_reader(file)?;
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_may_move_and_cost_more_between_sessions() {
        let quickstart = include_str!("../../configs/quickstart.toml");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rollouts.jsonl");
        std::fs::write(&file, "").unwrap();
        let of = |rest: &str| {
            let judge = format!("reward.judge={{ weight = 1.0, model = \"m\", {rest} }}");
            let config = RunConfig::parse(quickstart, &[judge]).unwrap();
            digest(&config, Experience::Recorded(&file)).unwrap()
        };
        let first = of("url = \"http://a\"");
        assert_eq!(first, of("url = \"http://b:1\", max_calls = 9, cache = \"c\", attempts = 1"));
        assert_ne!(first, of("url = \"http://a\", rubric = [\"It is short.\"]"));
    }

    #[test]
    fn a_resolved_config_is_of_its_questions() {
        let smoke = include_str!("../../configs/smoke.toml");
        let small = [
            "data.world.pages=100",
            "data.train_questions=20",
            "data.dev_questions=0",
            "data.test_questions=5",
            "grpo.evaluate_every=0",
        ];
        let small: Vec<String> = small.map(str::to_owned).into();
        let mut config = RunConfig::parse(smoke, &small).unwrap();
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let digests = load_data(&config, first.path()).unwrap().digests;
        assert!(digests.train.is_some() && digests.test.is_some() && digests.dev.is_none());
        config.data.digests = Some(digests.clone());
        let again = RunConfig::parse(&config.to_toml().unwrap(), &[]).unwrap();
        assert_eq!(load_data(&again, first.path()).unwrap().digests, digests);
        let other = RunConfig::parse(&config.to_toml().unwrap(), &["data.train_questions=19".to_owned()]).unwrap();
        let error = load_data(&other, second.path()).err().unwrap();
        assert!(error.downcast_ref::<BadConfig>().is_some());
        assert!(format!("{error:#}").contains("data.digests.train is of other questions"), "{error:#}");
    }
}
