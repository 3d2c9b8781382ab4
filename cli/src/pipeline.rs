//! The stages commands are made of: warm start, training, evaluation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use anyhow::{Context, Result};
use forage_env::episode::Episode;
use forage_env::policy::{Policy, Sampling};
use forage_env::registry::{self, Pieces, Resources, Vocabulary};
use forage_env::reward::{RewardSet, Weighting};
use forage_env::rollout::{EpisodeWriter, InfraBudget, Presentation, Rollout};
use forage_env::seed::Seed;
use forage_env::task::{Split, Task};
use forage_env::tokenizer::{ByteTokenizer, Tokenizer};
use forage_env::wiki::Wiki;
use forage_env::world::{self, World};
use forage_retriever::{Bm25Retriever, Retriever};
use forage_trainer::bpe;
use forage_trainer::device::has_bf16;
use forage_trainer::generate::Engine;
use forage_trainer::learner::{Learner, UpdateConfig};
use forage_trainer::memory::Workload;
use forage_trainer::metrics::Row;
use forage_trainer::model::init_random;
use forage_trainer::remote::RemotePolicy;
use forage_trainer::run::{Control, Problem, RunPlace, Source, group_jobs, run_grpo};
use forage_trainer::sample::read_groups;
use forage_trainer::warm_start::{Demonstrator, warm_start};
use forage_trainer::watch::{Alarm, Aliases, EventWriter};
use forage_trainer::weights::Checkpoint;
use forage_trainer::workers::Workers;

use crate::config::{BadConfig, EnvironmentConfig, RunConfig, WarmStartSection};
use crate::progress::{Progress, line};
use crate::setup::{self, Data, Tasks};
use crate::telemetry;

/// Lines of a world's text for each episode in the text of a vocabulary.
const LINES_PER_EPISODE: u64 = 5;

/// The program's Tokio runtime. It lives as long as the process, so that connections to remote retrievers outlive the
/// call that opened them; a run's own episodes need no thread beside the calling one, the engine has its own.
pub(crate) fn runtime() -> Result<&'static tokio::runtime::Runtime> {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    Ok(RUNTIME.get_or_init(|| made))
}

/// One GRPO run: what distinguishes it from another of the same config.
pub(crate) struct Training<'a> {
    /// Shown with the progress.
    pub(crate) name: &'a str,
    pub(crate) folder: PathBuf,
    /// Weight of each reward part.
    pub(crate) reward: BTreeMap<String, Weighting>,
    pub(crate) threads: usize,
    pub(crate) resume: bool,
}

/// What a run learns from.
#[derive(Clone, Copy)]
pub(crate) enum Experience<'a> {
    /// Questions that the policy plays.
    Data(&'a Data),
    /// A file of recorded rollouts.
    Recorded(&'a Path),
}

/// A run at its end.
pub(crate) struct Trained {
    pub(crate) policy: Checkpoint,
    /// What was worked on.
    pub(crate) work: Workload,
}

/// Trains `start`. Blocks.
pub(crate) fn train(
    training: &Training<'_>,
    config: &RunConfig,
    start: Checkpoint,
    experience: Experience<'_>,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<Trained> {
    let (problem, groups);
    let source = match experience {
        Experience::Data(data) => {
            problem = problem_of(training, config, &start, data)?;
            Source::Play(&problem)
        }
        Experience::Recorded(file) => {
            let window = setup::window(config, &start.config);
            groups = read_groups(file, start.config.vocab_size, window)
                .with_context(|| BadConfig(format!("--rollouts {}", file.display())))?;
            Source::Recorded(&groups)
        }
    };
    let place = RunPlace {
        folder: training.folder.clone(),
        seed: config.seed,
        config_digest: setup::digest(&RunConfig { reward: training.reward.clone(), ..config.clone() }, experience)?,
        resume: training.resume,
    };
    let mut learner = learner_of(training, config, start)?;
    let mut bar = progress.bar(training.name, config.grpo.steps);
    let rollouts = training.folder.join("rollouts");
    std::fs::create_dir_all(&rollouts).with_context(|| format!("cannot make {}", rollouts.display()))?;
    let mut events = Events { folder: &training.folder, names: config.tensorboard, writer: None };
    let mut conduct = telemetry::Log::of(&training.folder);
    let mut failed = None;
    let ran = runtime()?.block_on(run_grpo(&mut learner, source, &config.grpo, &place, |row, episodes, alarms| {
        bar.set(row.step() + 1, &line(row));
        for alarm in alarms {
            progress.say(&format!("{} step {}: {}", training.name, alarm.step, alarm.message));
        }
        let kept = keep_rollouts(&rollouts, row, episodes).and_then(|()| events.write(row));
        let kept = kept.and_then(|()| conduct.write(row.step(), episodes));
        failed = kept.and_then(|()| keep_alarms(&training.folder, alarms)).err();
        if failed.is_some() || stop.load(Ordering::SeqCst) { Control::Stop } else { Control::Continue }
    }));
    if let Some(error) = failed {
        return Err(error.context("the run's records cannot be kept"));
    }
    ran?;
    Ok(Trained { policy: learner.checkpoint(), work: learner.work() })
}

fn learner_of(training: &Training<'_>, config: &RunConfig, start: Checkpoint) -> Result<Learner> {
    let update = config.grpo.update.clone();
    let workers = Workers::for_model(training.threads, &start.config, &start.decoder.device());
    let Some(server) = &config.sampler else {
        let engine = setup::engine(config, &start.config);
        if engine.bf16 && !has_bf16(&start.decoder.device()) {
            let message = format!("engine.dtype is bf16, and {} does not compute in it", config.device);
            return Err(anyhow::anyhow!("set engine.dtype = \"f32\"").context(BadConfig(message)));
        }
        return Ok(Learner::new(start, update, engine, workers));
    };
    let policy = runtime()?.block_on(RemotePolicy::connect(server)).context("[sampler]")?;
    let pushed = std::path::absolute(training.folder.join("pushed")).context("the run's folder")?;
    std::fs::create_dir_all(&pushed).with_context(|| format!("cannot make {}", pushed.display()))?;
    let context = setup::window(config, &start.config);
    Ok(Learner::remote(start, update, context, workers, policy, pushed))
}

fn problem_of(training: &Training<'_>, config: &RunConfig, start: &Checkpoint, data: &Data) -> Result<Problem> {
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(start.tokenizer.clone());
    let window = Some(setup::window(config, &start.config));
    let factory = setup::environment(&config.environment, data.resources(tokenizer), window)?;
    let presentation = setup::presentation(&config.policy, start, factory.spec())?;
    Ok(Problem {
        factory,
        rewards: setup::rewards(&config.environment.id, &training.reward, config.seed)?,
        train: Arc::clone(&data.train),
        dev: Arc::clone(&data.dev),
        presentation,
    })
}

/// TensorBoard's event files, one for each session of a run.
struct Events<'a> {
    folder: &'a Path,
    names: Option<Aliases>,
    writer: Option<EventWriter>,
}

impl Events<'_> {
    fn write(&mut self, row: &Row) -> Result<()> {
        let Some(names) = self.names else { return Ok(()) };
        #[expect(
            clippy::disallowed_methods,
            reason = "dates for TensorBoard's eyes; nothing of the run depends on them"
        )]
        let now = SystemTime::now();
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(EventWriter::create(self.folder, row.step(), names, now)?),
        };
        Ok(writer.write(row, now)?)
    }
}

/// Adds alarms to the run's `alarms.jsonl`, in place of those that a resumed run raises again.
fn keep_alarms(folder: &Path, alarms: &[Alarm]) -> Result<()> {
    let Some(first) = alarms.first() else { return Ok(()) };
    let path = folder.join("alarms.jsonl");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let earlier = before.lines().filter(|line| {
        serde_json::from_str::<serde_json::Value>(line).is_ok_and(|alarm| alarm["step"].as_u64() < Some(first.step))
    });
    let lines: String = earlier
        .map(str::to_owned)
        .chain(alarms.iter().map(|alarm| serde_json::json!(alarm).to_string()))
        .map(|line| line + "\n")
        .collect();
    std::fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))
}

/// Keeps the first group of every tenth step, one file per step, so that a resumed run replaces what it plays again.
fn keep_rollouts(folder: &Path, row: &Row, episodes: &[Episode]) -> Result<()> {
    if !row.step().is_multiple_of(10) || episodes.is_empty() {
        return Ok(());
    }
    let group: Vec<Episode> = episodes.iter().take_while(|episode| episode.group == 0).cloned().collect();
    write_episodes(&folder.join(format!("step-{:06}.jsonl", row.step())), group)
}

/// Writes a file of episodes, which appears when it is complete.
pub(crate) fn write_episodes(path: &Path, episodes: impl IntoIterator<Item = Episode>) -> Result<()> {
    let mut writer = EpisodeWriter::create(path)?;
    for episode in episodes {
        writer.write(episode)?;
    }
    Ok(writer.finish()?)
}

/// Episodes of one policy on the same questions.
pub(crate) struct Evaluated {
    pub(crate) greedy: Vec<Episode>,
    pub(crate) sampled: Vec<Episode>,
}

/// Plays the held-out questions: once greedily and `samples` times at temperature 1. Blocks.
pub(crate) fn evaluate(
    checkpoint: &Checkpoint,
    config: &RunConfig,
    data: &Data,
    tasks: &Tasks,
    threads: usize,
) -> Result<Evaluated> {
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(checkpoint.tokenizer.clone());
    let window = setup::window(config, &checkpoint.config);
    let resources = data.resources(Arc::clone(&tokenizer));
    let factory = setup::environment(&config.environment, resources, Some(window))?;
    let rewards = setup::rewards(&config.environment.id, &config.reward, config.seed)?;
    let policy = engine(checkpoint, config, threads);
    let presentation = setup::presentation(&config.policy, checkpoint, factory.spec())?;
    let rollout = Rollout { policy, tokenizer, factory, rewards, sampling: Sampling::GREEDY, presentation };
    play(&rollout, tasks, config.seed, config.evaluation.samples)
}

/// An engine on a checkpoint's weights.
pub(crate) fn engine(checkpoint: &Checkpoint, config: &RunConfig, threads: usize) -> Arc<dyn Policy> {
    let pool = Workers::new(threads).kernel_pool();
    Arc::new(Engine::start(checkpoint, setup::engine(config, &checkpoint.config), pool))
}

/// Plays `tasks` once greedily and `samples` times sampled. Seeds depend on the task's place and sample alone, so two
/// policies meet the same randomness.
pub(crate) fn play(rollout: &Rollout, tasks: &Tasks, seed: u64, samples: usize) -> Result<Evaluated> {
    let seed = Seed::root(seed).child("evaluation", &[]);
    let with = |sampling| Rollout { sampling, ..rollout.clone() };
    runtime()?.block_on(async {
        let greedy = with(Sampling::GREEDY).run(group_jobs(tasks, 1, seed)).await;
        let sampled = with(Sampling::FULL).run(group_jobs(tasks, samples, seed)).await;
        for episodes in [&greedy, &sampled] {
            InfraBudget::default().check(episodes).context("the evaluation says nothing")?;
        }
        Ok(Evaluated { greedy, sampled })
    })
}

/// Text to train a vocabulary on: the world's, and what episodes with programs or queries look like where there are any.
fn vocabulary_text(
    world: &World,
    section: &WarmStartSection,
    config: &RunConfig,
    resources: Resources,
) -> Result<(Vec<String>, Vocabulary)> {
    let mut lines: Vec<String> = world::text(world, section.vocab_lines).collect();
    let entry = registry::find(&config.environment.id)?;
    if entry.vocabulary.pieces == Pieces::Words {
        return Ok((lines, entry.vocabulary));
    }
    let settings = (entry.for_bytes)(config.environment.settings.clone());
    let bytes = EnvironmentConfig { id: config.environment.id.clone(), settings };
    let factory = setup::environment(&bytes, resources, None)?;
    let demonstrator = Demonstrator {
        factory,
        tokenizer: Arc::new(ByteTokenizer),
        style: section.learning.style,
        seed: Seed::root(section.seed).child("vocabulary", &[]),
    };
    let haste = section.learning.stages.last().map(|stage| stage.haste).unwrap_or_default();
    let count = section.vocab_lines / LINES_PER_EPISODE;
    let tasks: Vec<Arc<Task>> = (0..count).map(|index| Arc::new(world.question(Split::Train, index))).collect();
    let episodes = runtime()?.block_on(demonstrator.episodes(&tasks, haste, 0))?;
    for episode in episodes {
        lines.push(episode.prompt);
        lines.extend(episode.turns.into_iter().flat_map(|turn| [turn.policy, turn.observation]));
    }
    Ok((lines, entry.vocabulary))
}

/// Makes a policy from nothing: vocabulary, random weights, imitation of the oracle. Blocks.
pub(crate) fn from_scratch(
    section: &WarmStartSection,
    config: &RunConfig,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<Checkpoint> {
    let world = World::new(section.world.clone())?;
    let retriever: Arc<dyn Retriever> = Arc::new(Bm25Retriever::in_memory(world.passages().collect())?);
    let spec = section.world.clone();
    let wiki = setup::lazily(move || Ok(Wiki::of_world(&World::new(spec.clone())?)?));
    let resources = |tokenizer| setup::resources(&retriever, Some(&wiki), tokenizer);
    let (lines, vocabulary) = vocabulary_text(&world, section, config, resources(Arc::new(ByteTokenizer)))?;
    let (tokenizer, tokenizer_json) = bpe::train(lines.into_iter(), section.vocab_size, vocabulary)?;
    let shape = section.model.config(section.vocab_size);
    let decoder = init_random(&shape, Seed::root(section.seed), &config.device.open()?);
    let eos = bpe::EOS.to_owned();
    let start = Checkpoint::new(shape, decoder, tokenizer.clone(), tokenizer_json, eos);
    let window = Some(setup::window(config, &start.config));
    let factory = setup::environment(&config.environment, resources(Arc::new(tokenizer.clone())), window)?;
    let dev = world.questions(Split::Dev, section.dev_questions as u64)?.map(Arc::new).collect();
    let outcome = factory.spec().outcome;
    let rewards = Arc::new(RewardSet::measure(outcome));
    let presentation = setup::with_tools(Presentation::Raw, factory.spec())?;
    let problem = Problem { factory: Arc::clone(&factory), rewards, train: Arc::from([]), dev, presentation };
    let learning = &section.learning;
    let update = UpdateConfig {
        optimizer: learning.optimizer,
        micro_batch_tokens: section.micro_batch_tokens,
        ..UpdateConfig::default()
    };
    let seed = Seed::root(section.seed);
    let demonstrator = Demonstrator { factory, tokenizer: Arc::new(tokenizer), style: learning.style, seed };
    let sizes = setup::engine(config, &start.config);
    let mut learner = Learner::new(start, update, sizes, Workers::new(config.threads()));
    let tasks = (0..).map(|index| -> Task { world.question(Split::Train, index) });
    let mut bar = progress.bar("warm-up", learning.stages.iter().map(|stage| stage.steps).sum());
    let (mut done, mut em) = (0, String::new());
    let reached = runtime()?.block_on(warm_start(&mut learner, &problem, tasks, &demonstrator, learning, |row| {
        done = row.step() + 1;
        if let Some(value) = row.get(&format!("val/{}", outcome.measure())) {
            em = format!("  val {} {value:.3}", outcome.measure());
        }
        bar.set(done, &format!("{}{em}", line(row)));
        if stop.load(Ordering::SeqCst) { Control::Stop } else { Control::Continue }
    }))?;
    bar.end(done, &format!("greedy {} {reached:.3} on its development questions", outcome.words()[0]));
    if stop.load(Ordering::SeqCst) {
        anyhow::bail!("interrupted during the warm start, which is not resumable; start again");
    }
    Ok(learner.checkpoint())
}
