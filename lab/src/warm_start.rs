//! A policy from nothing, or from another: vocabulary, random weights, imitation of the oracle.

use std::sync::Arc;

use forage_contracts::seed::Seed;
use forage_contracts::{Metric, Pieces, Split, Task, Vocabulary};
use forage_env::reward::RewardSet;
use forage_env::{World, registry};
use forage_trainer::metrics::Row;
use forage_trainer::{
    Checkpoint, Decoder, Demonstrator, Learner, Precision, UpdateConfig, Workers, train_tokenizer,
    warm_start,
};
use serde_json::{Map, Value};

use crate::config::{Resolved, WarmStartSection};
use crate::data::{Corpus, MakeQuestions, Tasks};
use crate::error::{Context, Result, RunError, bail};
use crate::grpo::control;
use crate::memory;
use crate::observer::{Observer, line};
use crate::policy::{PolicyFormat, open_policy};
use crate::retrieval::RetrieverConfig;
use crate::runtime::runtime;
use crate::session::Session;

/// Lines of a world's text for each episode in the text of a vocabulary.
const LINES_PER_EPISODE: u64 = 5;

/// Questions that an environment is asked for at once; those of two blocks may be the same.
const BLOCK: usize = 1000;

/// The questions of demonstrations.
enum Questions {
    /// A generated world's.
    World(Arc<World>),
    /// Those that the environment makes itself.
    Own {
        make: MakeQuestions,
        settings: Map<String, Value>,
        seed: Seed,
    },
}

impl Questions {
    fn of(section: &WarmStartSection, config: &Resolved) -> Result<Self> {
        if let Some(world) = &section.world {
            return Ok(Self::World(Arc::new(World::new(world.clone())?)));
        }
        let environment = &config.environment;
        let make = registry::find(&environment.id)?.questions;
        let id = &environment.id;
        Ok(Self::Own {
            make: make.with_context(|| format!("{id} has no questions of its own"))?,
            settings: environment.settings.clone(),
            // No run on the environment's questions has this seed.
            seed: Seed::root(section.seed).child("questions", &[]),
        })
    }

    fn corpus(&self) -> Result<Corpus> {
        match self {
            Self::World(world) => Corpus::generated(world, &RetrieverConfig::default()),
            Self::Own { .. } => Ok(Corpus::none()),
        }
    }

    /// Lines of text beside questions and episodes.
    fn text(&self, lines: u64) -> Vec<String> {
        match self {
            Self::World(world) => world.text(lines).collect(),
            Self::Own { .. } => Vec::new(),
        }
    }

    /// Questions to learn from; there is no last one.
    fn train(&self) -> Box<dyn Iterator<Item = Task> + '_> {
        match self {
            Self::World(world) => {
                Box::new((0..).map(move |index| world.question(Split::Train, index)))
            }
            Self::Own {
                make,
                settings,
                seed,
            } => {
                // Without questions a warm start ends with an error of its own.
                let blocks = (0..).map_while(move |block| {
                    let seed = seed.child("block", &[block]);
                    make(settings.clone().into(), Split::Train, BLOCK, seed).ok()
                });
                Box::new(blocks.flatten())
            }
        }
    }

    fn dev(&self, count: usize) -> Result<Tasks> {
        match self {
            Self::World(world) => {
                let asked = world.questions(Split::Dev, count as u64)?;
                Ok(asked.map(Arc::new).collect())
            }
            Self::Own {
                make,
                settings,
                seed,
            } => {
                let asked = make(settings.clone().into(), Split::Dev, count, *seed);
                let asked = asked.in_config("[warm_start]")?;
                Ok(asked.into_iter().map(Arc::new).collect())
            }
        }
    }
}

/// Text to train a vocabulary on: the world's, and what episodes with programs or queries look like where there are any.
fn vocabulary_text(
    questions: &Questions,
    section: &WarmStartSection,
    config: &Resolved,
    corpus: &Corpus,
    observer: &dyn Observer,
) -> Result<(Vec<String>, Vocabulary)> {
    let mut lines = questions.text(section.vocab_lines);
    let entry = registry::find(&config.environment.id)?;
    if entry.vocabulary.pieces == Pieces::Words {
        return Ok((lines, entry.vocabulary));
    }
    let bytes = Session::new(
        &config.environment.for_bytes()?,
        Arc::new(RewardSet::measure(entry.outcome)),
        corpus,
        PolicyFormat::bytes(),
        observer,
    )?;
    let demonstrator = Demonstrator {
        factory: bytes.factory,
        tokenizer: bytes.format.tokenizer,
        style: section.learning.style,
        seed: Seed::root(section.seed).child("vocabulary", &[]),
    };
    let haste = section
        .learning
        .stages
        .last()
        .map(|stage| stage.haste)
        .unwrap_or_default();
    let count = usize::try_from(section.vocab_lines / LINES_PER_EPISODE).unwrap_or(usize::MAX);
    let tasks: Vec<Arc<Task>> = questions.train().take(count).map(Arc::new).collect();
    let episodes = runtime()?.block_on(demonstrator.episodes(&tasks, haste, 0))?;
    for episode in episodes {
        lines.push(episode.prompt);
        lines.extend(
            episode
                .turns
                .into_iter()
                .flat_map(|turn| [turn.policy, turn.observation]),
        );
    }
    Ok((lines, entry.vocabulary))
}

/// A checkpoint of random weights with a vocabulary of its own.
fn untrained(
    section: &WarmStartSection,
    config: &Resolved,
    (lines, vocabulary): (Vec<String>, Vocabulary),
) -> Result<Checkpoint> {
    let (tokenizer, tokenizer_json) =
        train_tokenizer(lines.into_iter(), section.vocab_size, vocabulary)?;
    let shape = section.model.config(section.vocab_size);
    let decoder = Decoder::random(&shape, Seed::root(section.seed), &config.device.open()?);
    Ok(Checkpoint::new(shape, decoder, tokenizer, tokenizer_json))
}

/// Makes a policy from nothing, or from the checkpoint that the section names. Blocks.
pub(crate) fn from_scratch(
    section: &WarmStartSection,
    config: &Resolved,
    observer: &dyn Observer,
) -> Result<Checkpoint> {
    let questions = Questions::of(section, config)?;
    let corpus = questions.corpus()?;
    let start = if let Some(name) = &section.from {
        let start = open_policy(name, Precision::Full, &config.device)?;
        if start.lora.is_some() {
            bail!(
                "warm_start.from: {name} is an adapter; name a whole policy, as `forage export --merged` writes it"
            );
        }
        start
    } else {
        let text = vocabulary_text(&questions, section, config, &corpus, observer)?;
        untrained(section, config, text)?
    };
    let generation = config.generation();
    let outcome = registry::find(&config.environment.id)?.outcome;
    let session = Session::new(
        &config.environment,
        Arc::new(RewardSet::measure(outcome)),
        &corpus,
        PolicyFormat::of(&start, None, &generation)?,
        observer,
    )?;
    let learning = &section.learning;
    let demonstrator = Demonstrator {
        factory: Arc::clone(&session.factory),
        tokenizer: Arc::clone(&session.format.tokenizer),
        style: learning.style,
        seed: Seed::root(section.seed),
    };
    let problem = session.problem(Arc::from([]), questions.dev(section.dev_questions)?)?;
    let update = UpdateConfig {
        optimizer: learning.optimizer,
        micro_batch_tokens: section.micro_batch_tokens,
        ..UpdateConfig::default()
    };
    let sizes = generation.engine(&start.config);
    let (kept, _) = memory::kept_bytes(config, &start, None, [1, 1])?;
    let workers =
        Workers::for_model(config.threads(), &start.config, &start.decoder.device()).keeping(kept);
    let mut learner = Learner::new(start, update, sizes, workers);
    let total = learning.stages.iter().map(|stage| stage.steps).sum();
    let (mut done, mut score) = (0, String::new());
    let watch = |row: &Row| {
        done = row.step() + 1;
        if let Some(value) = row.get(&Metric::VAL.replace('*', outcome.measure())) {
            score = format!("  val {} {value:.3}", outcome.measure());
        }
        observer.progress("warm-up", done, total, &format!("{}{score}", line(row)));
        control(observer.is_stopped())
    };
    let reached = runtime()?.block_on(warm_start(
        &mut learner,
        &problem,
        questions.train(),
        &demonstrator,
        learning,
        watch,
    ))?;
    let shown = format!(
        "greedy {} {reached:.3} on its development questions",
        outcome.words()[0]
    );
    observer.progress("warm-up", done, done, &shown);
    if observer.is_stopped() {
        return Err(RunError::stopped(
            "interrupted during the warm start; --resume begins it again",
        ));
    }
    Ok(learner.checkpoint())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::config::RunConfig;

    #[test]
    fn a_warm_start_can_begin_with_a_checkpoint() {
        let small = [
            "warm_start.from=\"builtin:quickstart-code\"",
            "warm_start.vocab_size=600",
            "warm_start.world.pages=200",
            "warm_start.dev_questions=1",
            "warm_start.learning.stages=[]",
        ];
        let small: Vec<String> = small.iter().map(|&item| item.to_owned()).collect();
        let text = include_str!("../../configs/quickstart.toml");
        let config = RunConfig::parse(text, &small).unwrap();
        let config = config.resolve(None).unwrap();
        let section = config.warm_start.as_ref().unwrap();
        let made = from_scratch(section, &config, &()).unwrap();
        let known = builtin::load("quickstart-code", &config.device).unwrap();
        assert_eq!(made.tokenizer_json, known.tokenizer_json);
        assert_eq!(made.config.vocab_size, 1024);

        let plain = RunConfig::parse(text, &[]).unwrap().to_toml().unwrap();
        assert!(!plain.contains("\nfrom = "), "as earlier versions wrote it");
    }

    #[test]
    fn a_family_can_begin_with_the_environments_own_questions() {
        for family in ["qwen3", "llama", "olmo2"] {
            let small = [
                "warm_start.vocab_size=300".to_owned(),
                "warm_start.vocab_lines=100".to_owned(),
                "warm_start.dev_questions=1".to_owned(),
                format!(
                    "warm_start.model={{ architecture=\"{family}\", hidden_size=16, intermediate_size=16, layers=1, heads=2, kv_heads=1, \
                     head_dim=8, max_tokens=512, rope_theta=1e4 }}"
                ),
                "warm_start.learning.demonstrations_per_step=4".to_owned(),
                "warm_start.learning.stages=[{ steps=1, learned=\"oracle\", learning_rate=1e-3, haste={ direct=0.5, code=0.5 } }]"
                    .to_owned(),
                "environment.settings.max_turn_tokens=150".to_owned(),
                "environment.settings.max_episode_tokens=400".to_owned(),
                "engine.context_tokens=400".to_owned(),
            ];
            let text = include_str!("../../bench/spurious/config.toml");
            let config = RunConfig::parse(text, &small).unwrap();
            let config = config.resolve(None).unwrap();
            let section = config.warm_start.as_ref().unwrap();
            let made = from_scratch(section, &config, &()).unwrap();
            assert_eq!(made.config.architecture.name(), family);
            assert_eq!(made.config.vocab_size, 300);
        }
        let none = RunConfig::parse(include_str!("../../configs/quickstart.toml"), &[]);
        let mut none = none.unwrap();
        none.warm_start.as_mut().unwrap().world = None;
        let error = none.resolve(None).unwrap_err().to_string();
        assert!(error.contains("no questions of its own"), "{error}");
    }
}
