//! A run in miniature: the same config with a tiny random model of its family and tiny generated data of its shape, for a few steps
//! on the processor. It shows in seconds that a config can be run as it is.

use std::path::{Path, PathBuf};

use forage_contracts::seed::Seed;
use forage_contracts::{Split, Task};
use forage_env::reward::judge::JudgeSettings;
use forage_env::{QuestionCounts, World, WorldSpec, registry};
use forage_retriever::{CorpusFormat, CorpusReader, Mode};
use forage_trainer::device::DeviceSpec;
use forage_trainer::{Checkpoint, Decoder, FileType, ModelConfig, train_tokenizer};
use serde_json::{Value, json};

use crate::config::{
    Base, DataConfig, EngineSection, EnvironmentConfig, EvaluationConfig, FilesConfig, RunConfig,
};
use crate::data::{MakeQuestions, own_questions};
use crate::error::{Context, Result, RunError};

/// Steps of a miniature.
const STEPS: u64 = 3;
/// Episodes of a group, at most.
const GROUP: usize = 4;
/// Questions of a step, at most.
const PROMPTS: usize = 2;
/// Tokens of a turn.
const TURN: u64 = 16;
/// Tokens of an episode: prompts of every environment in the tokens of [`VOCABULARY`].
const EPISODE: usize = 4096;
/// Size of the vocabulary.
const VOCABULARY: usize = 1024;
/// Lines of the world's text that the vocabulary is trained on.
const LINES: u64 = 300;
/// Seed of the world and of the weights.
const SEED: u64 = 1;
/// Pages of the world.
const PAGES: u64 = 100;
/// Questions of the world.
const QUESTIONS: QuestionCounts = QuestionCounts {
    train: 12,
    dev: 2,
    test: 4,
};
/// A chat template with all that recipes ask of one: roles, tools, and an end of each message that is a token.
const TEMPLATE: &str = "\
{%- if tools %}<|tools|>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|endoftext|>{% endif %}
{%- for message in messages %}<|{{ message.role }}|>
{{ message.content }}<|endoftext|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|>
{% endif %}";

impl RunConfig {
    /// The same run in miniature. Its model and data are written into `folder`, which must not exist or be empty.
    ///
    /// # Errors
    /// When the family of the model is not known, or the folder cannot be written.
    pub fn miniature(&self, folder: &Path) -> Result<Self> {
        let world = World::new(WorldSpec::new(PAGES, SEED))?;
        let mut small = self.clone();
        small.shrink()?;
        small.data = data(&self.data, &small.environment, &world, folder)?;
        small.policy.checkpoint = small.model(&world, folder)?;
        small.check()?;
        Ok(small)
    }

    /// Makes everything small that is a number, and takes away what needs a server, an encoder or a card.
    fn shrink(&mut self) -> Result<()> {
        self.device = DeviceSpec::default();
        self.sampler = None;
        self.warm_start = None;
        let retriever = &mut self.retriever;
        if retriever.mode.needs_encoder || retriever.remote.is_some() {
            retriever.mode = Mode::BM25;
        }
        (retriever.encoder, retriever.reranker, retriever.remote) = (None, None, None);
        retriever.device = DeviceSpec::default();

        let settings = &mut self.environment.settings;
        settings.insert("max_turn_tokens".to_owned(), TURN.into());
        settings.insert("max_episode_tokens".to_owned(), EPISODE.into());
        self.reward
            .retain(|name, _| !JudgeSettings::REWARDS.contains(&name.as_str()));
        if self.reward.is_empty() {
            let outcome = registry::find(&self.environment.id)?.outcome;
            self.reward.insert(outcome.measure().to_owned(), 1.0.into());
        }
        // A policy that knows nothing earns nothing: without it no group would have a direction.
        self.reward.insert("random".to_owned(), 1.0.into());

        self.engine = EngineSection {
            sequences: self.engine.sequences.min(PROMPTS * GROUP),
            context_tokens: EPISODE,
            cache_mib: self.engine.cache_mib.min(64),
            step_tokens: self.engine.step_tokens.min(EPISODE),
            dtype: None,
        };
        let grpo = &mut self.grpo;
        grpo.steps = STEPS;
        grpo.prompts_per_step = grpo.prompts_per_step.min(PROMPTS);
        grpo.group_size = grpo.group_size.min(GROUP);
        grpo.trees = grpo.trees.map(|trees| trees.min(grpo.group_size - 1));
        grpo.checkpoint_every = grpo.checkpoint_every.min(STEPS);
        grpo.evaluate_every = grpo.evaluate_every.min(STEPS);
        let update = &mut grpo.update;
        update.dtype = None;
        update.minibatches = update.minibatches.min(grpo.prompts_per_step);
        update.micro_batch_tokens = update.micro_batch_tokens.min(EPISODE);
        update.optimizer.warmup_steps = update.optimizer.warmup_steps.min(1);
        if let Some(decay) = &mut update.optimizer.decay {
            decay.steps = STEPS;
        }
        self.evaluation = EvaluationConfig {
            samples: self.evaluation.samples.min(1),
            resamples: self.evaluation.resamples.min(100),
            baselines: Vec::new(),
        };
        Ok(())
    }

    /// Writes the tiny model of the family that the config names; returns its folder.
    fn model(&self, world: &World, folder: &Path) -> Result<String> {
        let name = &self.policy.checkpoint;
        let family = family(name).ok_or_else(|| {
            RunError::config_because(
                format!("policy.checkpoint {name} has no miniature"),
                "name a published model whose shape is known (docs/models.md), or another size of it",
            )
        })?;
        let entry = registry::find(&self.environment.id)?;
        let settings = Value::Object(self.environment.settings.clone());
        let prompt = (entry.resolve)(settings)
            .in_config("[environment.settings]")?
            .prompt;
        let prompt = prompt.unwrap_or_default();
        // Twice: what stands once is not a piece of a vocabulary.
        let words = prompt.lines().chain(prompt.lines()).map(str::to_owned);
        let lines: Vec<String> = world.text(LINES).chain(words).collect();
        let (tokenizer, tokenizer_json) =
            train_tokenizer(lines.into_iter(), VOCABULARY, entry.vocabulary)?;
        let shape = ModelConfig {
            vocab_size: VOCABULARY,
            hidden_size: 32,
            intermediate_size: 64,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 8,
            max_position_embeddings: EPISODE,
            rope_scaling: None,
            ..family
        };
        let decoder = Decoder::random(&shape, Seed::root(SEED), &self.device.open()?);
        let mut checkpoint = Checkpoint::new(shape, decoder, tokenizer, tokenizer_json);
        checkpoint.chat_template = Some(TEMPLATE.to_owned());
        let place = folder.join("model");
        let types = if self.policy.base == Base::F32 {
            FileType::F32
        } else {
            FileType::Bf16
        };
        checkpoint.save_as(&place, types)?;
        Ok(place.display().to_string())
    }
}

/// The shape of the published model whose variant this is.
pub(crate) fn family(name: &str) -> Option<ModelConfig> {
    let plain = name.rsplit('/').next().unwrap_or(name);
    let size = ["-Instruct", "-2507", "-Math", "-Coder", "-Base"]
        .iter()
        .fold(plain.to_owned(), |name, part| name.replace(part, ""));
    ModelConfig::published(&size).ok()
}

/// `[data]` with tiny generated files in place of its own, in their formats: with the questions of an environment that makes its own
/// where nothing is searched, else with those of a world.
fn data(
    of: &DataConfig,
    environment: &EnvironmentConfig,
    world: &World,
    folder: &Path,
) -> Result<DataConfig> {
    let counts = |count: Option<usize>, most: u64| {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Some(count.unwrap_or(most).min(most))
    };
    let mut small = DataConfig {
        train_questions: counts(of.train_questions, QUESTIONS.train),
        dev_questions: counts(of.dev_questions, QUESTIONS.dev),
        test_questions: counts(of.test_questions, QUESTIONS.test),
        digests: None,
        ..of.clone()
    };
    if let Some(world) = &mut small.world {
        world.pages = world.pages.min(PAGES);
    }
    if let Some(files) = &of.files {
        let place = folder.join("data");
        let unsearched = files.corpus.is_empty() && files.index.is_none();
        let own = registry::find(&environment.id)?.questions;
        small.files = Some(match own.filter(|_| unsearched) {
            Some(own) => write_own(files, own, environment, &place)?,
            None => write_files(files, world, &place)?,
        });
    }
    Ok(small)
}

/// Files with questions that an environment makes, and nothing to search.
fn write_own(
    of: &FilesConfig,
    own: MakeQuestions,
    environment: &EnvironmentConfig,
    place: &Path,
) -> Result<FilesConfig> {
    std::fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    let write = |named: &[PathBuf], split: Split, count: u64| -> Result<Vec<PathBuf>> {
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let tasks = own_questions(own, environment.settings.clone(), split, count, SEED)?;
        let file = place.join(format!("{split:?}.jsonl").to_lowercase());
        write_rows(&file, tasks.iter().map(|task| json!(**task)))?;
        Ok(vec![file])
    };
    Ok(FilesConfig {
        train: write(&of.train, Split::Train, QUESTIONS.train)?,
        dev: write(&of.dev, Split::Dev, QUESTIONS.dev)?,
        test: write(&of.test, Split::Test, QUESTIONS.test)?,
        ids: None,
        ..of.clone()
    })
}

/// Files with the questions and passages of a world, in the formats that `of` names.
fn write_files(of: &FilesConfig, world: &World, place: &Path) -> Result<FilesConfig> {
    world.export(place, QUESTIONS, |_, _| {})?;
    let has = |named: &[PathBuf], file: PathBuf| {
        if named.is_empty() {
            Vec::new()
        } else {
            vec![file]
        }
    };
    let files = |corpus: &str, format: CorpusFormat, questions: &str| {
        let split = |name: &str| place.join(questions.replace('*', name));
        FilesConfig {
            corpus: vec![place.join(corpus)],
            format: Some(format),
            pages: of.pages.as_ref().map(|_| place.join("pages/pages.jsonl")),
            index: None,
            train: vec![split("train")],
            train_share: of.train_share,
            dev: has(&of.dev, split("dev")),
            test: has(&of.test, split("test")),
            ids: None,
        }
    };
    let format = of.format.unwrap_or(CorpusFormat::SEARCH_R1);
    if format.whole() == CorpusFormat::WHOLE_PAGES {
        write_pages_questions(world, place)?;
        return Ok(files("pages/pages.jsonl", format, "trivia-*.jsonl"));
    }
    if format == CorpusFormat::BEIR && of.corpus.len() > 1 {
        return collections(of, place);
    }
    if format == CorpusFormat::BEIR {
        write_collection(world, place)?;
        return Ok(files("beir", format, "judged-*.jsonl"));
    }
    Ok(files(
        "search-r1/wiki.jsonl",
        CorpusFormat::SEARCH_R1,
        "search-r1/*.jsonl",
    ))
}

/// The splits of a world by their names, with their questions; what a share is cut from has those of the test behind it.
fn splits(world: &World) -> Result<[(&'static str, Vec<Task>); 3]> {
    let of = |split, count| -> Result<Vec<Task>> { Ok(world.questions(split, count)?.collect()) };
    Ok([
        ("train", of(Split::Train, QUESTIONS.train)?),
        ("dev", of(Split::Dev, QUESTIONS.dev)?),
        ("test", of(Split::Test, QUESTIONS.test)?),
    ])
}

/// Questions about pages as willcb/wiki-trivia-questions-v4 has them.
fn write_pages_questions(world: &World, place: &Path) -> Result<()> {
    for (name, tasks) in splits(world)? {
        let rows = tasks.iter().map(|task| {
            let page = task.evidence.first().map_or(task.id.as_str(), String::as_str);
            json!({"question": task.question, "answer": task.golds.first(), "filename": format!("{page}.md")})
        });
        write_rows(&place.join(format!("trivia-{name}.jsonl")), rows)?;
    }
    Ok(())
}

/// Files of several collections by the names that `of` gives them, each with the passages and questions of the exported world.
fn collections(of: &FilesConfig, place: &Path) -> Result<FilesConfig> {
    let exported = place.join("beir");
    let own = |path: &PathBuf| place.join(CorpusReader::source_name(path));
    let all = |paths: &[PathBuf]| -> Vec<PathBuf> { paths.iter().map(own).collect() };
    let corpus = all(&of.corpus);
    for folder in &corpus {
        let judged = folder.join("qrels");
        std::fs::create_dir_all(&judged)
            .with_context(|| format!("cannot make {}", judged.display()))?;
        let splits = ["train", "dev", "test"].map(|split| format!("qrels/{split}.tsv"));
        let texts = ["corpus.jsonl", "queries.jsonl"].map(str::to_owned);
        for file in texts.into_iter().chain(splits) {
            let copy = folder.join(&file);
            std::fs::copy(exported.join(&file), &copy)
                .with_context(|| format!("cannot write {}", copy.display()))?;
        }
    }
    Ok(FilesConfig {
        corpus,
        format: Some(CorpusFormat::BEIR),
        pages: of.pages.as_ref().map(|_| place.join("pages/pages.jsonl")),
        index: None,
        train: all(&of.train),
        train_share: of.train_share,
        dev: all(&of.dev),
        test: all(&of.test),
        ids: None,
    })
}

/// A collection whose passages name their data set, and questions with judgments.
fn write_collection(world: &World, place: &Path) -> Result<()> {
    let mut source = String::new();
    for (name, tasks) in splits(world)? {
        if let Some(task) = tasks.first() {
            source.clone_from(&task.data_source);
        }
        let rows = tasks.iter().map(|task| json!(task));
        write_rows(&place.join(format!("judged-{name}.jsonl")), rows)?;
    }
    let passages = world.passages().map(|passage| {
        json!({"_id": passage.id, "title": passage.title, "text": passage.text, "dataset": source})
    });
    write_rows(&place.join("beir/corpus.jsonl"), passages)
}

fn write_rows(path: &Path, rows: impl Iterator<Item = Value>) -> Result<()> {
    let mut lines = String::new();
    for row in rows {
        lines.push_str(&row.to_string());
        lines.push('\n');
    }
    std::fs::write(path, lines).with_context(|| format!("cannot write {}", path.display()))
}
