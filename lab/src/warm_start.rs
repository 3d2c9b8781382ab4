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

use crate::config::{Resolved, WarmStartSection};
use crate::data::Corpus;
use crate::error::{Result, bail};
use crate::grpo::control;
use crate::memory;
use crate::observer::{Observer, line};
use crate::policy::{PolicyFormat, open_policy};
use crate::runtime::runtime;
use crate::session::Session;

/// Lines of a world's text for each episode in the text of a vocabulary.
const LINES_PER_EPISODE: u64 = 5;

/// Text to train a vocabulary on: the world's, and what episodes with programs or queries look like where there are any.
fn vocabulary_text(
    world: &World,
    section: &WarmStartSection,
    config: &Resolved,
    corpus: &Corpus,
    observer: &dyn Observer,
) -> Result<(Vec<String>, Vocabulary)> {
    let mut lines: Vec<String> = world.text(section.vocab_lines).collect();
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
    let tasks: Vec<Arc<Task>> = (0..section.vocab_lines / LINES_PER_EPISODE)
        .map(|index| Arc::new(world.question(Split::Train, index)))
        .collect();
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
    let world = Arc::new(World::new(section.world.clone())?);
    let corpus = Corpus::generated(&world)?;
    let start = if let Some(name) = &section.from {
        let start = open_policy(name, Precision::Full, &config.device)?;
        if start.lora.is_some() {
            bail!(
                "warm_start.from: {name} is an adapter; name a whole policy, as `forage export --merged` writes it"
            );
        }
        start
    } else {
        let text = vocabulary_text(&world, section, config, &corpus, observer)?;
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
    let problem = session.problem(
        Arc::from([]),
        world
            .questions(Split::Dev, section.dev_questions as u64)?
            .map(Arc::new)
            .collect(),
    )?;
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
    let tasks = (0..).map(|index| -> Task { world.question(Split::Train, index) });
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
        tasks,
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
        bail!("interrupted during the warm start, which is not resumable; start again");
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
}
