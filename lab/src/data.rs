//! Questions and what they are searched in, as a config names them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use forage_contracts::seed::Seed;
use forage_contracts::{OpenWiki, Pages, RegistryError, Split, Task, nearest};
use forage_env::reward::{RewardSet, Weighting};
use forage_env::{
    Labels, QuestionCounts, Wiki, World, WorldSpec, digest_ids, pick_ids, read_tasks, registry,
};
use forage_retriever::{
    Bm25Retriever, BuildRequest, CorpusFormat, CorpusReader, Index, NoPassages, Retriever, Tape,
};
use serde_json::{Map, Value};

use crate::config::{DataConfig, Digests, FilesConfig, OwnQuestions, Resolved, RunConfig};
use crate::error::{Context, Result, RunError, bail};
use crate::evidence::name_pages;
use crate::layout::RunLayout;
use crate::policy::fetch_file;
use crate::retrieval::{RetrieverConfig, recorded};

/// Questions.
pub(crate) type Tasks = Arc<[Arc<Task>]>;

/// Passages that can be searched, and whole pages for environments that read them.
#[derive(Clone)]
pub struct Corpus {
    pub(crate) retriever: Arc<dyn Retriever>,
    pub(crate) wiki: Option<OpenWiki>,
    /// What is searched, where questions of files may name evidence that it does not have.
    pub(crate) index: Option<Arc<Index>>,
}

impl Corpus {
    /// Nothing to search, for environments that need nothing.
    pub(crate) fn none() -> Self {
        Self {
            retriever: Arc::new(NoPassages),
            wiki: None,
            index: None,
        }
    }

    /// The passages and pages of a generated world, searched in memory.
    pub(crate) fn generated(world: &Arc<World>, retrieval: &RetrieverConfig) -> Result<Self> {
        let pages = Arc::clone(world);
        let passages = Bm25Retriever::in_memory(world.passages().collect())?;
        Ok(Self {
            retriever: retrieval.over(passages.index())?,
            wiki: Some(lazily(move || Ok(Wiki::of_world(&pages)?))),
            index: None,
        })
    }

    /// An index folder, or a corpus that is indexed in `scratch` first, with its pages.
    pub(crate) fn searchable(
        index: Option<&Path>,
        corpus: Option<(&Path, CorpusFormat)>,
        retrieval: &RetrieverConfig,
        scratch: &Path,
    ) -> Result<Self> {
        let scratch = RunLayout::new(scratch);
        let fetch = |(corpus, format): (&Path, CorpusFormat)| {
            fetch_file(corpus).map(|corpus| (corpus, format))
        };
        let fetched = corpus.map(fetch).transpose()?;
        let corpus = fetched
            .as_ref()
            .map(|(corpus, format)| (std::slice::from_ref(corpus), *format));
        let found = match (index, corpus) {
            (Some(index), None) => Arc::new(Index::open(index)?),
            (None, Some((corpus, format))) => open_or_build(corpus, format, &scratch.index())?,
            _ => bail!("give exactly one of --index and --corpus"),
        };
        let retriever = retrieval.over(&found)?;
        let index = Some(Arc::clone(&found));
        let wiki = match corpus {
            Some((corpus, format)) => pages_of(corpus, format, Some(found), &scratch),
            None => pages_in(found),
        };
        Ok(Self {
            retriever,
            wiki: Some(wiki),
            index,
        })
    }

    /// The corpus with its retriever's answers recorded in the file `tape`, where one is named.
    pub(crate) fn recorded(self, tape: Option<&Path>) -> Result<Self> {
        Ok(Self {
            retriever: recorded(self.retriever, tape)?,
            ..self
        })
    }
}

/// A corpus and its questions by split.
#[derive(Clone)]
pub struct Data {
    /// The passages and pages.
    pub corpus: Corpus,
    /// Questions to learn from.
    pub train: Tasks,
    /// Questions for evaluations during training.
    pub dev: Tasks,
    /// Held-out questions.
    pub test: Tasks,
    /// Digests of the questions, with their own labels.
    pub(crate) digests: Digests,
}

impl Data {
    /// Makes or opens what `[data]` names; what is made goes into the run's folder.
    ///
    /// # Errors
    /// When files cannot be read, are of another corpus or hold other questions than the config's digests say.
    pub fn load(config: &Resolved, folder: &Path) -> Result<Self> {
        let layout = RunLayout::new(folder);
        let data = &config.data;
        let environment = &config.environment.id;
        let own = registry::find(environment)?.questions;
        let (corpus, splits) = match (&data.world, &data.files, data.own) {
            (Some(world), ..) => load_world(world, data, &config.retriever, &layout)?,
            (_, Some(files), _) => {
                let needed = own.is_none();
                load_files(files, (&config.retriever, needed), &layout)?
            }
            (.., Some(OwnQuestions { seed })) => {
                let own =
                    own.with_context(|| format!("{environment} has no questions of its own"))?;
                let settings = config.environment.settings.clone();
                (Corpus::none(), own_splits(own, &settings, data, seed)?)
            }
            _ => bail!("data needs one of [data.world], [data.files] and [data.own]"),
        };
        Self::finished(config, corpus, splits)
    }

    /// Loads questions as [`Data::load`] does, with the answers of a tape for a retriever: no index is opened and no server asked.
    ///
    /// # Errors
    /// As [`Data::load`], and when the file is not a tape.
    pub fn taped(config: &Resolved, tape: &Path, folder: &Path) -> Result<Self> {
        let retriever: Arc<dyn Retriever> = Arc::new(Tape::open(tape)?);
        if let Some(files) = &config.data.files {
            // Recorded episodes hold their questions.
            let none = || -> Tasks { Arc::from([]) };
            return Ok(Self {
                corpus: Corpus {
                    retriever,
                    wiki: files_wiki(files, files.format, None, &RunLayout::new(folder)),
                    index: None,
                },
                train: none(),
                dev: none(),
                test: none(),
                digests: Digests::default(),
            });
        }
        let plain = config.vary(|config| config.retriever = RetrieverConfig::default())?;
        let mut data = Self::load(&plain, folder)?;
        data.corpus.retriever = retriever;
        Ok(data)
    }

    /// The questions of a split.
    pub fn split(&self, split: Split) -> &Tasks {
        match split {
            Split::Train => &self.train,
            Split::Dev => &self.dev,
            Split::Test => &self.test,
        }
    }

    /// The data with a config's labels for the training questions.
    pub(crate) fn relabelled(&self, config: &Resolved) -> Result<Self> {
        Ok(Self {
            train: relabelled(&self.train, &config.data.labels, config.seed)?,
            ..self.clone()
        })
    }

    /// As many of the questions as a config takes, with the digests that it asks for and the labels it gives.
    fn finished(config: &Resolved, corpus: Corpus, splits: [Tasks; 3]) -> Result<Self> {
        check_open(config, &splits)?;
        let mut counts = config.data.counts().into_iter();
        let splits = splits.map(|tasks| first(&tasks, counts.next()));
        let digest = |tasks: &Tasks| {
            let tasks: Vec<Task> = tasks.iter().map(|task| Task::clone(task)).collect();
            (!tasks.is_empty()).then(|| digest_ids(&tasks))
        };
        let [train, dev, test] = splits.each_ref().map(digest);
        let digests = Digests { train, dev, test };
        let asked = config.data.digests.iter().flat_map(Digests::by_key);
        for ((key, asked), (_, found)) in asked.zip(digests.by_key()) {
            if asked.is_some() && asked != found {
                let found = found.map_or("none", String::as_str);
                return Err(RunError::config_because(
                    format!("data.digests.{key} is of other questions"),
                    format!(
                        "the questions here have {found}; use the files of that run, or remove [data.digests]"
                    ),
                ));
            }
        }
        let [train, dev, test] = splits;
        let data = Self {
            corpus,
            train,
            dev,
            test,
            digests,
        };
        let data = data.relabelled(config)?;
        let rewards = config.rewards()?;
        for tasks in [&data.train, &data.dev, &data.test] {
            check_golds(&rewards, tasks)?;
        }
        Ok(data)
    }
}

/// Refuses a question without an accepted answer where a reward needs one, before anything is played.
pub(crate) fn check_golds(rewards: &RewardSet, tasks: &Tasks) -> Result<()> {
    let mut without = tasks.iter().filter(|task| task.golds.is_empty());
    without.try_for_each(|task| rewards.check(task).in_config("[reward]"))
}

/// Refuses a name among the open data sets of the reward `relevance` that is not of any question's.
fn check_open(config: &RunConfig, splits: &[Tasks; 3]) -> Result<()> {
    let settings = config.reward.get("relevance").map(Weighting::settings);
    let open = settings.as_ref().and_then(|settings| settings.get("open"));
    let open = open.and_then(Value::as_array).into_iter().flatten();
    let tasks = splits.iter().flat_map(|tasks| tasks.iter());
    let known: BTreeSet<&str> = tasks.map(|task| task.data_source.as_str()).collect();
    for name in open.filter_map(Value::as_str) {
        if !known.contains(name) {
            let near = nearest(name, known.iter().copied());
            let known: Vec<&str> = known.into_iter().collect();
            return Err(RunError::config_because(
                format!("reward.relevance.open has `{name}`, which no question is of"),
                format!(
                    "did you mean `{near}`? There are questions of {}",
                    known.join(", ")
                ),
            ));
        }
    }
    Ok(())
}

/// Training questions with the labels that a config gives them.
fn relabelled(train: &Tasks, labels: &Labels, seed: u64) -> Result<Tasks> {
    if labels.are_true() {
        return Ok(Arc::clone(train));
    }
    let tasks = train.iter().map(|task| Task::clone(task)).collect();
    let tasks = labels
        .relabel(tasks, Seed::root(seed))
        .in_config("data.labels")?;
    Ok(tasks.into_iter().map(Arc::new).collect())
}

/// The first `limit` questions, or all of them.
pub(crate) fn first(tasks: &Tasks, limit: Option<usize>) -> Tasks {
    tasks
        .iter()
        .take(limit.unwrap_or(usize::MAX))
        .cloned()
        .collect()
}

/// Pages that are opened, or indexed first, when an environment asks for them; once for all that ask.
pub(crate) fn lazily(open: impl Fn() -> Result<Wiki> + Send + Sync + 'static) -> OpenWiki {
    let opened: Mutex<Option<Arc<dyn Pages>>> = Mutex::default();
    Arc::new(move || {
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wiki) = opened.as_ref() {
            return Ok(Arc::clone(wiki));
        }
        let wiki: Arc<dyn Pages> = Arc::new(open()?);
        Ok(Arc::clone(opened.insert(wiki)))
    })
}

/// The pages of corpora; a format of passages has a page in each, and `passages`, their index, serves for both.
fn pages_of(
    corpora: &[PathBuf],
    format: CorpusFormat,
    passages: Option<Arc<Index>>,
    layout: &RunLayout,
) -> OpenWiki {
    let (corpora, place) = (corpora.to_vec(), layout.pages());
    lazily(move || {
        let index = match &passages {
            Some(index) if format.whole() == format => Arc::clone(index),
            _ => open_or_build(&fetch_all(&corpora)?, format.whole(), &place)?,
        };
        index.verify_whole_pages()?;
        Ok(Wiki::of_index(index))
    })
}

/// The documents of an index as pages.
fn pages_in(index: Arc<Index>) -> OpenWiki {
    lazily(move || {
        index.verify_whole_pages()?;
        Ok(Wiki::of_index(Arc::clone(&index)))
    })
}

/// As [`forage_contracts::EnvEntry::questions`].
pub(crate) type MakeQuestions = fn(Value, Split, usize, Seed) -> Result<Vec<Task>, RegistryError>;

/// Questions that an environment brings along.
fn own_splits(
    own: MakeQuestions,
    settings: &Map<String, Value>,
    data: &DataConfig,
    seed: u64,
) -> Result<[Tasks; 3]> {
    let tasks = |split, count| own_questions(own, settings.clone(), split, count, seed);
    let [train, dev, test] = data.counts();
    Ok([
        tasks(Split::Train, train)?,
        tasks(Split::Dev, dev)?,
        tasks(Split::Test, test)?,
    ])
}

/// The first questions of a split that an environment brings along.
pub(crate) fn own_questions(
    own: MakeQuestions,
    settings: Map<String, Value>,
    split: Split,
    count: usize,
    seed: u64,
) -> Result<Tasks> {
    let made = own(settings.into(), split, count, Seed::root(seed));
    let made = made.in_config("[data.own]")?;
    let mut places = HashMap::new();
    for (place, task) in (1..).zip(&made) {
        if let Some(first) = places.insert(task.key(), place) {
            let of = format!("{split:?}").to_lowercase();
            return Err(RunError::config_because(
                format!(
                    "[data.own]: questions {first} and {place} of {of} are both {}",
                    task.name()
                ),
                "give each question of a split an id of its own",
            ));
        }
    }
    Ok(made.into_iter().map(Arc::new).collect())
}

fn load_world(
    spec: &WorldSpec,
    data: &DataConfig,
    retriever: &RetrieverConfig,
    layout: &RunLayout,
) -> Result<(Corpus, [Tasks; 3])> {
    let world = World::new(spec.clone())?;
    let place = layout.world();
    let [train, dev, test] = data.counts();
    let counts = QuestionCounts {
        train: train as u64,
        dev: dev as u64,
        test: test as u64,
    };
    if place.join("world.json").exists() {
        check_world(&place, &world, counts)?;
    } else {
        world.export(&place, counts, |_, _| {})?;
    }
    let found = match retriever.connect()? {
        Some(remote) => remote,
        None => retriever.over(&open_or_build(
            &[place.join("beir")],
            CorpusFormat::BEIR,
            &layout.index(),
        )?)?,
    };
    let tasks = |split, count: usize| -> Result<Tasks> {
        Ok(world
            .questions(split, count as u64)?
            .map(Arc::new)
            .collect())
    };
    let wiki = pages_of(
        &[place.join("pages/pages.jsonl")],
        CorpusFormat::PAGES,
        None,
        layout,
    );
    let splits = [
        tasks(Split::Train, train)?,
        tasks(Split::Dev, dev)?,
        tasks(Split::Test, test)?,
    ];
    let corpus = Corpus {
        retriever: found,
        wiki: Some(wiki),
        index: None,
    };
    Ok((corpus, splits))
}

/// A world that is already in the run's folder must be the one the config asks for.
fn check_world(place: &Path, world: &World, questions: QuestionCounts) -> Result<()> {
    let path = place.join("world.json");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let found: serde_json::Value = serde_json::from_str(&text)
        .with_context(|| format!("{} is damaged; remove its folder", path.display()))?;
    let same = found.get("fingerprint").and_then(|value| value.as_str())
        == Some(world.fingerprint().as_str())
        && found.get("questions") == Some(&serde_json::to_value(questions)?);
    if !same {
        bail!(
            "{} holds another world than the config asks for; give another --out",
            place.display()
        );
    }
    Ok(())
}

/// `retriever`: how passages are found, and whether the environment needs any.
fn load_files(
    files: &FilesConfig,
    (retriever, needed): (&RetrieverConfig, bool),
    layout: &RunLayout,
) -> Result<(Corpus, [Tasks; 3])> {
    let remote = retriever.connect()?;
    if remote.is_some() && (!files.corpus.is_empty() || files.index.is_some()) {
        return Err(RunError::config_because(
            "[data.files] names what is searched, and [retriever.remote] a server that searches",
            "remove data.files.corpus and data.files.index, or [retriever.remote]",
        ));
    }
    let corpora = fetch_all(&files.corpus)?;
    let format = match (corpora.first(), files.format) {
        (Some(corpus), None) => Some(CorpusFormat::detect(corpus).in_config("data.files.corpus")?),
        (_, format) => format,
    };
    let index = match (format.filter(|_| !corpora.is_empty()), &files.index) {
        (Some(format), Some(index)) => Some(open_checked(index, &corpora, format)?),
        (Some(format), None) => Some(open_or_build(&corpora, format, &layout.index())?),
        (None, Some(index)) => Some(Arc::new(Index::open(index)?)),
        (None, None) => None,
    };
    let wiki = files_wiki(files, format, index.clone(), layout);
    let retriever = match (remote, &index) {
        (Some(remote), _) => remote,
        (None, Some(index)) => retriever.over(index)?,
        (None, None) if !needed => Arc::new(NoPassages),
        (None, None) => {
            return Err(RunError::config_because(
                "[data.files] names nothing to search",
                "write data.files.index or data.files.corpus, or a server in [retriever.remote]",
            ));
        }
    };
    let splits = file_splits(files, index.as_deref())?;
    if let Some(index) = index.as_ref().filter(|_| corpora.is_empty()) {
        refuse_other_names(index, &splits)?;
    }
    let corpus = Corpus {
        retriever,
        wiki,
        index,
    };
    Ok((corpus, splits))
}

/// Refuses judgments of passages that the index has under the ids of several corpora.
fn refuse_other_names(index: &Index, splits: &[Tasks; 3]) -> Result<()> {
    for task in splits.iter().flat_map(|tasks| tasks.iter()) {
        let Some(id) = task.qrels.keys().next() else {
            continue;
        };
        let among = CorpusReader::id_among(&task.data_source, id);
        if index.ordinal_of(id)?.is_none() && index.ordinal_of(&among)?.is_some() {
            return Err(RunError::config_because(
                format!(
                    "data.files.index has the passage `{id}`, which {} judges, as `{among}`",
                    task.name()
                ),
                "the index is of several corpora: list them in data.files.corpus too, and judgments are renamed",
            ));
        }
    }
    Ok(())
}

/// All questions of files, by their splits, with their pages named as in the index.
pub(crate) fn file_splits(files: &FilesConfig, index: Option<&Index>) -> Result<[Tasks; 3]> {
    let ids = files.ids.clone().unwrap_or_default();
    let mut corpora = BTreeSet::new();
    if files.corpus.len() > 1 {
        let fetched = fetch_all(&files.corpus)?;
        corpora.extend(fetched.iter().map(|path| CorpusReader::source_name(path)));
    }
    let tasks = |paths: &[PathBuf], ids: Option<&Path>, split| -> Result<Vec<Task>> {
        let mut read = Vec::new();
        for path in paths {
            let path = fetch_file(path)?;
            let mut own = read_tasks(&path, split)?;
            let name = CorpusReader::source_name(&path);
            if path.is_dir() && corpora.contains(&name) {
                // Judged are the passages of one corpus, which the index has among those of several.
                for task in &mut own {
                    let judged = std::mem::take(&mut task.qrels).into_iter();
                    let among =
                        |(id, grade): (String, i32)| (CorpusReader::id_among(&name, &id), grade);
                    task.qrels = judged.map(among).collect();
                }
            }
            read.extend(own);
        }
        name_pages(&mut read, index)?;
        let mut seen = HashSet::new();
        if let Some(twice) = read.iter().find(|task| !seen.insert(task.key())) {
            return Err(RunError::config_because(
                format!("data.files: two files have the question {}", twice.name()),
                "give rows a data_source, or name the files after their data sets; of parts of one data set name the folder, whose rows are \
                 counted on",
            ));
        }
        Ok(match ids {
            Some(ids) if !paths.is_empty() => pick_ids(&read, ids)?,
            _ => read,
        })
    };
    let mut train = tasks(&files.train, ids.train.as_deref(), Split::Train)?;
    let dev = tasks(&files.dev, ids.dev.as_deref(), Split::Dev)?;
    let mut test = tasks(&files.test, ids.test.as_deref(), Split::Test)?;
    if let Some(share) = files.train_share {
        (train, test) = Split::cut(train, share);
    }
    let shared = |tasks: Vec<Task>| -> Tasks { tasks.into_iter().map(Arc::new).collect() };
    Ok([train, dev, test].map(shared))
}

/// Whole pages of files: their own, or those of the corpus, whose index serves where it is of pages.
fn files_wiki(
    files: &FilesConfig,
    format: Option<CorpusFormat>,
    index: Option<Arc<Index>>,
    layout: &RunLayout,
) -> Option<OpenWiki> {
    let corpora = &files.corpus;
    match (&files.pages, format) {
        (Some(pages), _) => {
            let pages = std::slice::from_ref(pages);
            Some(pages_of(pages, CorpusFormat::WHOLE_PAGES, None, layout))
        }
        (None, _) if corpora.is_empty() => index.map(pages_in),
        (None, Some(format)) => Some(pages_of(corpora, format, index, layout)),
        (None, None) => None,
    }
}

/// Finds each path as [`fetch_file`] does.
fn fetch_all(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    paths.iter().map(|path| fetch_file(path)).collect()
}

/// Opens an index after checking that it was built from these corpora.
fn open_checked(place: &Path, corpora: &[PathBuf], format: CorpusFormat) -> Result<Arc<Index>> {
    let index = Index::open(place)?;
    index.verify_corpus(&format.digest_of(corpora)?)?;
    Ok(Arc::new(index))
}

/// Opens the index of corpora at `place`, building it first when there is none.
fn open_or_build(corpora: &[PathBuf], format: CorpusFormat, place: &Path) -> Result<Arc<Index>> {
    if place.exists() {
        return open_checked(place, corpora, format);
    }
    let request = BuildRequest {
        sources: corpora.to_vec(),
        ..BuildRequest::new(PathBuf::new(), format, place)
    };
    Index::build(&request, &mut |_, _| {})?;
    Ok(Arc::new(Index::open(place)?))
}

#[cfg(test)]
mod tests;
