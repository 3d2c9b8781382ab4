//! Questions and what they are searched in, as a config names them.

mod corpus;
mod files;

pub use corpus::Corpus;
pub(crate) use files::file_splits;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use forage_contracts::seed::Seed;
use forage_contracts::{RegistryError, Split, Task, suggestion};
use forage_env::reward::{RewardSet, Weighting};
use forage_env::{Labels, QuestionCounts, World, WorldSpec, digest_ids, registry};
use forage_retriever::{CorpusFormat, Retriever, Tape};
use serde_json::{Map, Value};

use crate::config::{DataConfig, Digests, OwnQuestions, Resolved, RunConfig};
use crate::error::{Context, Result, RunError, bail};
use crate::layout::RunLayout;
use crate::retrieval::RetrieverConfig;
use corpus::{open_or_build, pages_of};
use files::{files_wiki, load_files};

/// Questions.
pub(crate) type Tasks = Arc<[Arc<Task>]>;

/// What to do about a config without held-out questions.
pub(crate) const HOLD_OUT: &str = "name some to hold out: data.files.test or data.files.train_share, or data.test_questions of a world \
     or of [data.own], where the environment's own `questions` must give some for `test`";

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
                let parts = (&config.environment, &config.retriever, needed);
                load_files(files, parts, &layout)?
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

    /// The held-out questions, without which there is no verdict.
    pub(crate) fn held_out(&self) -> Result<&Tasks> {
        if self.test.is_empty() {
            return Err(RunError::config_because(
                "there are no held-out questions",
                HOLD_OUT,
            ));
        }
        Ok(&self.test)
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
            return Err(RunError::config_because(
                format!("reward.relevance.open has the data set `{name}`, which no question is of"),
                suggestion(name, known),
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

#[cfg(test)]
mod tests;
