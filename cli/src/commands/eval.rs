//! `forage eval`: any policy on held-out questions, or an index on judged queries.

mod probes;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use forage_env::dataset::read_tasks;
use forage_env::plugins::environments;
use forage_env::policy::{Policy, Sampling};
use forage_env::probe::Probe;
use forage_env::registry::{self, EnvEntry, OpenWiki};
use forage_env::reward::Weighting;
use forage_env::rollout::{Presentation, Rollout};
use forage_env::scripted::{Cast, Constant};
use forage_env::seed::Seed;
use forage_env::task::Split;
use forage_env::tokenizer::{ByteTokenizer, Tokenizer};
use forage_eval::answers::Answers;
use forage_eval::retrieval::evaluate_retrieval;
use forage_eval::stats::Bootstrap;
use forage_eval::summary::EvalSummary;
use forage_eval::telemetry::Telemetry;
use forage_retriever::{CorpusFormat, NoPassages, Query, Retriever, read_qrels, read_queries, write_run};
use forage_trainer::device::DeviceSpec;
use forage_trainer::weights::Checkpoint;
use serde_json::{Map, Value};

use super::{controls, out};
use crate::config::{EnvironmentConfig, RunConfig};
use crate::lint;
use crate::pipeline::{Evaluated, engine, play, runtime, write_episodes};
use crate::retrieval::{RetrieverConfig, recorded};
use crate::setup::{self, Tasks};
use probes::{Plain, Probed};

/// Evaluates a policy on questions, greedy and sampled, with 95 % bootstrap intervals.
///
/// The questions come from a config (its held-out split) or from --questions with --index or --corpus.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Eval {
    #[command(subcommand)]
    what: Option<What>,
    /// Config whose environment, engine and held-out questions are used.
    config: Option<PathBuf>,
    /// A Hugging Face folder, constant:ANSWER, or a script of the environment: oracle in all of them, random and search-title in
    /// search-r1, one-call and broken-code in code-search, keywords and broken-query in query-writer. The config's by default.
    #[arg(long)]
    policy: Option<String>,
    /// Environment, when there is no config.
    #[arg(long, default_value = "search-r1")]
    env: String,
    /// Index folder to search.
    #[arg(long)]
    index: Option<PathBuf>,
    #[command(flatten)]
    retrieval: RetrieverConfig,
    /// Corpus to index in a temporary folder, when there is no --index.
    #[arg(long, requires = "format")]
    corpus: Option<PathBuf>,
    /// Format of the corpus: beir, search-r1, pages or whole-pages.
    #[arg(long)]
    format: Option<CorpusFormat>,
    /// Questions as JSON lines.
    #[arg(long)]
    questions: Option<PathBuf>,
    /// Most questions to ask.
    #[arg(long)]
    limit: Option<usize>,
    /// Sampled episodes per question, beside one greedy episode; the config's by default, else 1.
    #[arg(long)]
    samples: Option<usize>,
    /// Seed of the rollouts and the bootstrap.
    #[arg(long)]
    seed: Option<u64>,
    /// Write the greedy episodes to this file and the sampled ones beside it, with the ending .sampled.jsonl.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Keep what the retriever answers in this file, for `forage replay --tools`.
    #[arg(long, value_name = "FILE")]
    record_tools: Option<PathBuf>,
    /// Ask the questions again, greedily, under a change, and compare: no-search, shuffled-passages, missing-passages,
    /// poisoned-passages, paraphrased-prompt or self-critique; may be repeated. With --out the episodes are kept beside the greedy ones.
    #[arg(long = "probe", value_name = "PROBE")]
    probes: Vec<Probe>,
    /// Let a script write in the tokens of this policy, a folder or name: its episodes are then demonstrations for `forage sft`.
    #[arg(long, value_name = "POLICY", requires = "config")]
    tokens_of: Option<String>,
    /// Evaluate folders of `forage train`, one per seed, each beside its start and its --twins, on the run's held-out questions:
    /// what each gained, and in words whether the gain is real.
    #[arg(long, value_name = "RUN", num_args = 1.., conflicts_with_all = ["config", "policy", "index", "corpus",
        "questions", "samples", "seed", "out", "record_tools", "probes", "device"])]
    controls: Vec<PathBuf>,
    /// Compute device instead of the config's: cpu, cuda:0, ...
    #[arg(long)]
    device: Option<DeviceSpec>,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    overrides: Vec<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    Retrieval(Retrieval),
}

/// Ranks judged queries with an index: nDCG, MRR, recall, MAP as `trec_eval` computes them.
#[derive(Args, Debug)]
struct Retrieval {
    /// Index folder.
    #[arg(long)]
    index: Option<PathBuf>,
    #[command(flatten)]
    how: RetrieverConfig,
    /// TOML file that names a remote retriever, instead of --index.
    #[arg(long, conflicts_with = "index")]
    remote: Option<PathBuf>,
    /// Queries: JSON lines with `_id` and `text`.
    #[arg(long)]
    queries: PathBuf,
    /// Judgements: TREC qrels or BEIR tsv.
    #[arg(long)]
    qrels: PathBuf,
    /// Documents per query.
    #[arg(short, long, default_value_t = 1000)]
    k: usize,
    /// Write the ranking as a TREC run.
    #[arg(long)]
    run: Option<PathBuf>,
    /// Print as JSON: metric name to mean.
    #[arg(long)]
    json: bool,
}

/// Ranks at which the questions themselves are scored as queries.
const CUTOFFS: [usize; 3] = [1, 5, 10];

/// Queries handed to the retriever at once: enough to fill its batches.
const QUERIES_PER_CALL: usize = 64;

/// Everything an evaluation needs.
struct Material {
    tasks: Tasks,
    retriever: Arc<dyn Retriever>,
    wiki: Option<OpenWiki>,
    policy: Arc<dyn Policy>,
    tokenizer: Arc<dyn Tokenizer>,
    environment: EnvironmentConfig,
    /// The policy's window in tokens; `None` for scripts.
    window: Option<usize>,
    presentation: Presentation,
    rewards: BTreeMap<String, Weighting>,
    samples: usize,
    seed: u64,
    /// The policy's, where a probe reads them.
    weights: Option<Checkpoint>,
    threads: usize,
}

impl Eval {
    pub(crate) fn run(self) -> Result<()> {
        if let Some(What::Retrieval(retrieval)) = self.what {
            return retrieval.run();
        }
        if !self.controls.is_empty() {
            return controls::verdict(&self.controls, self.limit, self.json);
        }
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let material = match &self.config {
            Some(path) => self.of_config(&RunConfig::read(path, &self.overrides)?, scratch.path())?,
            None => self.of_flags(scratch.path())?,
        };
        if material.tasks.is_empty() {
            bail!("there are no questions to ask");
        }
        let tokenizer = Arc::clone(&material.tokenizer);
        let searched = recorded(Arc::clone(&material.retriever), self.record_tools.as_deref())?;
        let resources = setup::resources(&searched, material.wiki.as_ref(), tokenizer);
        let factory = setup::environment(&material.environment, resources.clone(), material.window)?;
        let rewards = setup::rewards(&material.environment.id, &material.rewards, material.seed)?;
        let (policy, tokenizer) = (Arc::clone(&material.policy), Arc::clone(&material.tokenizer));
        let presentation = setup::with_tools(material.presentation.clone(), factory.spec())?;
        let rollout = Rollout { policy, tokenizer, factory, rewards, sampling: Sampling::GREEDY, presentation };
        let evaluated = play(&rollout, &material.tasks, material.seed, material.samples)?;
        if let Some(path) = &self.out {
            write_episodes(path, evaluated.greedy.iter().cloned())?;
            if material.samples > 0 {
                write_episodes(&path.with_extension("sampled.jsonl"), evaluated.sampled.iter().cloned())?;
            }
        }
        let (episodes, out) = (evaluated.greedy.as_slice(), self.out.as_deref());
        let plain = Plain { material: &material, resources, rollout: &rollout, episodes, out };
        let probed = self.probes.iter().map(|probe| plain.under(*probe)).collect::<Result<Vec<_>>>()?;
        self.print(&material, &evaluated, &probed)
    }

    fn print(&self, material: &Material, evaluated: &Evaluated, probed: &[Probed]) -> Result<()> {
        let bootstrap = Bootstrap::new(material.seed);
        let alarms = Telemetry::from_episodes(&evaluated.greedy, bootstrap)?.alarms;
        let greedy = EvalSummary::from_episodes(&evaluated.greedy, bootstrap)?;
        let sampled = EvalSummary::from_episodes(&evaluated.sampled, bootstrap)?;
        let answers = Answers::of(&evaluated.greedy, &evaluated.sampled, bootstrap)?;
        let recall = question_recall(material.retriever.as_ref(), &material.tasks, bootstrap)?;
        if self.json {
            let retrieval = recall.as_ref().map(|recall| &recall.metrics);
            let summary = serde_json::json!({
                "greedy": greedy,
                "sampled": sampled,
                "answers": answers,
                "question_retrieval": retrieval,
                "alarms": alarms,
                "probes": probed,
            });
            out(&summary.to_string());
            return Ok(());
        }
        out(&format!("greedy\n{}", greedy.to_text()));
        if material.samples > 0 {
            out(&format!("sampled\n{}", sampled.to_text()));
        }
        if let Some(answers) = answers {
            out(&answers.to_text());
        }
        if let Some(recall) = recall {
            out(&format!("the questions themselves as queries\n{}", recall.to_text()));
        }
        for probe in probed {
            out(&probe.to_text());
        }
        for alarm in &alarms {
            out(&alarm.to_text());
        }
        Ok(())
    }

    /// The weights where a probe reads them; else they are the engine's alone.
    fn wanted(&self, weights: Option<Checkpoint>) -> Option<Checkpoint> {
        weights.filter(|_| self.probes.contains(&Probe::SelfCritique))
    }

    fn of_config(&self, config: &RunConfig, scratch: &Path) -> Result<Material> {
        if self.questions.is_some() || self.index.is_some() || self.corpus.is_some() {
            bail!("give either a config or --questions with --index or --corpus, not both");
        }
        let mut config = config.clone();
        let threads = config.threads();
        config.seed = self.seed.unwrap_or(config.seed);
        config.use_device(self.device)?;
        lint::warn(&config);
        let data = setup::load_data(&config, scratch)?;
        let tasks: Tasks = data.test.iter().take(self.limit.unwrap_or(usize::MAX)).cloned().collect();
        let name = self.policy.clone().unwrap_or_else(|| config.policy.checkpoint.clone());
        let opened = open_policy(&name, self.tokens_of.as_deref(), &config, &tasks)?;
        let Opened { policy, tokenizer, window, presentation, weights } = opened;
        if window.is_none() {
            config.environment.settings = byte_limits(&config.environment.id, config.environment.settings)?;
        }
        Ok(Material {
            tasks,
            retriever: data.retriever,
            wiki: data.wiki,
            policy,
            tokenizer,
            environment: config.environment,
            window,
            presentation,
            rewards: config.reward,
            samples: self.samples.unwrap_or(if is_script(&name) { 0 } else { config.evaluation.samples }),
            seed: config.seed,
            weights: self.wanted(weights),
            threads,
        })
    }

    fn of_flags(&self, scratch: &Path) -> Result<Material> {
        let seed = self.seed.unwrap_or(1);
        let own = registry::find(&self.env)?.questions;
        let (tasks, retriever, wiki) = match (&self.questions, own) {
            (None, Some(own)) if self.index.is_none() && self.corpus.is_none() => {
                let tasks = setup::own_questions(own, Split::Test, self.limit.unwrap_or(OWN_QUESTIONS), seed);
                (tasks, Arc::new(NoPassages) as Arc<dyn Retriever>, None)
            }
            _ => self.passages(scratch)?,
        };
        let known = registry::find(&self.env)?.scripts.iter().map(|script| script.name).collect::<Vec<_>>().join(", ");
        let name = self.policy.clone().with_context(|| format!("give --policy: a folder, {known}, constant:X"))?;
        let mut defaults = RunConfig::for_evaluation(&self.env);
        defaults.device = self.device.unwrap_or(defaults.device);
        let Opened { policy, tokenizer, window, presentation, weights } = open_policy(&name, None, &defaults, &tasks)?;
        let scripted = window.is_none();
        let settings = match window {
            None => byte_limits(&self.env, Map::new())?,
            Some(window) => [("max_episode_tokens".to_owned(), window.min(4096).into())].into_iter().collect(),
        };
        Ok(Material {
            tasks,
            retriever,
            wiki,
            policy,
            tokenizer,
            environment: EnvironmentConfig { id: self.env.clone(), settings },
            window,
            presentation,
            rewards: setup::default_rewards(registry::find(&self.env)?.outcome),
            // A script does not know temperatures: its samples would repeat the greedy episodes.
            samples: self.samples.unwrap_or(usize::from(!scripted)),
            seed,
            weights: self.wanted(weights),
            threads: defaults.threads(),
        })
    }

    /// Questions and what they are asked about.
    fn passages(&self, scratch: &Path) -> Result<(Tasks, Arc<dyn Retriever>, Option<OpenWiki>)> {
        let questions = self.questions.as_ref().context("give a config, or --questions with --index or --corpus")?;
        let read = read_tasks(&setup::here(questions)?, None, Split::Test)?;
        let tasks: Tasks = read.into_iter().take(self.limit.unwrap_or(usize::MAX)).map(Arc::new).collect();
        let corpus = self.corpus.as_deref().zip(self.format);
        let (retriever, wiki) = setup::searchable(self.index.as_deref(), corpus, &self.retrieval, scratch)?;
        Ok((tasks, retriever, Some(wiki)))
    }
}

/// What `--env` asks of an environment with questions of its own, where nobody says.
const OWN_QUESTIONS: usize = 100;

/// How the name of the policy begins that always gives one answer.
const CONSTANT: &str = "constant:";

/// Whether a policy of this name is a script, whose tokens are bytes.
pub(super) fn is_script(name: &str) -> bool {
    let known = |entry: &EnvEntry| entry.scripts.iter().any(|script| script.name == name);
    name.starts_with(CONSTANT) || environments().any(known)
}

/// `tokens_of`: whose tokens a script writes; bytes by default.
fn open_policy(name: &str, tokens_of: Option<&str>, config: &RunConfig, tasks: &Tasks) -> Result<Opened> {
    if !is_script(name) {
        let checkpoint = setup::load_policy(name, config)?;
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(checkpoint.tokenizer.clone());
        let window = Some(setup::window(config, &checkpoint.config));
        let presentation = setup::plain_presentation(&config.policy, &checkpoint)?;
        let policy = engine(&checkpoint, config, config.threads());
        return Ok(Opened { policy, tokenizer, window, presentation, weights: Some(checkpoint) });
    }
    let bytes: Arc<dyn Tokenizer> = Arc::new(ByteTokenizer);
    let (tokenizer, window) = match tokens_of {
        None => (bytes, None),
        Some(name) => {
            let checkpoint = setup::load_policy(name, config)?;
            let window = setup::window(config, &checkpoint.config);
            (Arc::new(checkpoint.tokenizer) as Arc<dyn Tokenizer>, Some(window))
        }
    };
    let shared = Arc::clone(&tokenizer);
    let policy: Arc<dyn Policy> = match name.strip_prefix(CONSTANT) {
        Some(answer) => Arc::new(Constant::new(shared, answer)),
        None => registry::find(&config.environment.id)?.script(name, Cast::new(shared, tasks.iter().cloned()))?,
    };
    Ok(Opened { policy, tokenizer, window, presentation: Presentation::Raw, weights: None })
}

/// A policy with its tokenizer and, for models, its window.
struct Opened {
    policy: Arc<dyn Policy>,
    tokenizer: Arc<dyn Tokenizer>,
    window: Option<usize>,
    presentation: Presentation,
    weights: Option<Checkpoint>,
}

/// Settings of an environment for scripts, whose tokens are bytes.
pub(super) fn byte_limits(id: &str, settings: Map<String, Value>) -> Result<Map<String, Value>> {
    Ok((registry::find(id)?.for_bytes)(settings))
}

/// How well the questions, sent as they are, find their evidence; `None` when no task says what is relevant.
fn question_recall(
    retriever: &dyn Retriever,
    tasks: &Tasks,
    bootstrap: Bootstrap,
) -> Result<Option<forage_eval::RetrievalReport>> {
    let mut rankings = BTreeMap::new();
    let mut qrels = BTreeMap::new();
    let depth = CUTOFFS[CUTOFFS.len() - 1];
    let asked: Vec<_> = tasks.iter().filter(|task| !task.judgments().is_empty()).collect();
    let queries: Vec<Query> = asked.iter().map(|task| Query::new(task.question.as_str())).collect();
    let found = runtime()?.block_on(retriever.search(&queries, depth))?;
    for (task, hits) in asked.into_iter().zip(found) {
        rankings.insert(task.id.clone(), hits.into_iter().map(|hit| hit.id).collect());
        qrels.insert(task.id.clone(), task.judgments().into_owned());
    }
    if qrels.is_empty() {
        return Ok(None);
    }
    Ok(Some(evaluate_retrieval(&rankings, &qrels, &CUTOFFS, bootstrap)?))
}

impl Retrieval {
    fn run(self) -> Result<()> {
        let retriever = self.how.open(self.index.as_deref(), self.remote.as_deref())?;
        let queries = read_queries(&self.queries)?;
        let qrels = read_qrels(&self.qrels)?;
        let mut rankings = BTreeMap::new();
        let mut run =
            self.run.as_ref().map(File::create).transpose().context("cannot write the run")?.map(BufWriter::new);
        let asked: Vec<Query> = queries.iter().map(|query| Query::new(query.text.as_str())).collect();
        let runtime = runtime()?;
        let tag = format!("forage-{}", self.how.mode);
        let mut found = Vec::with_capacity(queries.len());
        for chunk in asked.chunks(QUERIES_PER_CALL) {
            found.extend(runtime.block_on(retriever.search(chunk, self.k))?);
        }
        for (query, hits) in queries.iter().zip(found) {
            if let Some(file) = &mut run {
                write_run(file, &query.id, hits.iter().map(|hit| (hit.id.as_str(), hit.score)), &tag)?;
            }
            rankings.insert(query.id.clone(), hits.into_iter().map(|hit| hit.id).collect());
        }
        if let Some(mut file) = run {
            file.flush().context("cannot write the run")?;
        }
        let cutoffs: Vec<usize> = [1, 3, 5, 10, 100, 1000].into_iter().filter(|&cutoff| cutoff <= self.k).collect();
        let report = evaluate_retrieval(&rankings, &qrels, &cutoffs, Bootstrap::new(Seed::root(1).0))?;
        if self.json {
            let means: Map<String, Value> =
                report.metrics.iter().map(|(name, metric)| (name.clone(), metric.mean.estimate.into())).collect();
            out(&Value::Object(means).to_string());
        } else {
            out(&report.to_text());
        }
        Ok(())
    }
}
