//! `forage eval`: any policy on held-out questions; `ranking` has an index on judged queries.

mod ranking;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use forage_contracts::Split;
use forage_env::Probe;
use forage_eval::{EvalSummary, Study};
use forage_lab::{
    EnvironmentConfig, EvaluateOptions, Evaluation, RunError, Sources, evaluate, study,
};
use forage_retriever::CorpusFormat;
use forage_trainer::device::DeviceSpec;

use self::ranking::{Retrieval, Robustness};
use crate::config::read;
use crate::environment::EnvironmentArgs;
use crate::figures::printable;
use crate::policy::ServerArgs;
use crate::progress::Watch;
use crate::retrieval::{RetrievalArgs, format_of};
use crate::terminal::{hint, out, word};

/// Evaluates a policy, or an index on judged queries.
///
/// Plays each question greedily and sampled and prints means with 95 % intervals: Wilson's where each question is right or wrong, by bootstrap otherwise. The questions come from a config (its held-out split) or from --questions with --index or --corpus.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Eval {
    #[command(subcommand)]
    what: Option<What>,
    /// Config whose environment, engine and held-out questions are used.
    #[arg(conflicts_with_all = ["env", "index", "corpus", "format"], conflicts_with_all = RetrievalArgs::IDS)]
    config: Option<PathBuf>,
    /// A Hugging Face folder, builtin:NAME, the address of a server (http://HOST:PORT, any of OpenAI's protocol), constant:ANSWER, or a
    /// script of the environment: oracle in all of them, random and search-title in search-r1, one-call and broken-code in code-search,
    /// keywords and broken-query in query-writer, random and first-stage in rerank, coder in math. The config's by default, on the server of
    /// its [sampler] where it has one.
    #[arg(long)]
    policy: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Environment, when there is no config.
    #[arg(long, default_value_t = EnvironmentConfig::default().id)]
    env: String,
    /// Index folder to search.
    #[arg(long)]
    index: Option<PathBuf>,
    #[command(flatten)]
    retrieval: RetrievalArgs,
    /// Corpus to index in a temporary folder, when there is no --index.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// The corpus format.
    #[arg(long, help = format!("Format of the corpus, read off its first record when absent: {}", CorpusFormat::help()))]
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
    /// Go on with an evaluation into --out, or of --controls, that was stopped before its end, under the same settings.
    #[arg(long)]
    resume: bool,
    /// Keep what the retriever answers in this file, for `forage replay --tools`.
    #[arg(long, value_name = "FILE")]
    record_tools: Option<PathBuf>,
    /// Ask the questions again, greedily, under a change, and compare: no-search, shuffled-passages, missing-passages,
    /// poisoned-passages, paraphrased-prompt or self-critique; may be repeated. With --out the episodes are kept beside the greedy ones.
    #[arg(long = "probe", value_name = "PROBE")]
    probes: Vec<Probe>,
    /// Have the policy grade its sampled episodes itself, without the accepted answers, and rank them: the accuracy of the best-graded
    /// of k stands beside pass@k and the majority's. Needs --samples of 2 or more. With --out the grades are kept, ending .grades.jsonl.
    #[arg(long)]
    self_grade: bool,
    /// Let a script write in the tokens of this policy, a folder or name: its episodes are then demonstrations for `forage sft`.
    #[arg(long, value_name = "POLICY", requires = "config")]
    tokens_of: Option<String>,
    /// Evaluate folders of `forage train`, one per seed, each beside its start and its --twins, on the run's held-out questions:
    /// what each gained, and in words whether the gain is real. --set changes the runs' configs: evaluation.baselines adds other ways
    /// to the same end, evaluation.samples=64 says whether training added capability or sharpened sampling.
    #[arg(long, value_name = "RUN", num_args = 1.., conflicts_with_all = RetrievalArgs::IDS,
        conflicts_with_all = ["config", "policy", "model", "token_file", "env", "index", "corpus", "format", "questions", "samples", "seed",
        "out", "record_tools", "probes", "self_grade", "device"])]
    controls: Vec<PathBuf>,
    /// Compute device instead of the config's: cpu, cuda:0, ...
    #[arg(long)]
    device: Option<DeviceSpec>,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    Retrieval(Retrieval),
    Robustness(Robustness),
}

/// Questions that an environment makes where nobody says how many.
const QUESTIONS: usize = 100;

impl Eval {
    pub(crate) fn run(mut self) -> Result<()> {
        match self.what {
            Some(What::Retrieval(retrieval)) => return retrieval.run(),
            Some(What::Robustness(robustness)) => return robustness.run(),
            None => {}
        }
        if self.questions.is_some() && self.config.is_some() {
            let what = "--questions is for evaluations without a config; where one has [data.files], \
                        --set data.files.test=FILE asks others";
            return Err(RunError::config(what).into());
        }
        if self.environment.any() && self.config.is_none() && self.controls.is_empty() {
            let what = "--env-command serves the environment of a config; name one";
            return Err(RunError::config(what).into());
        }
        let mut servers = self.environment.start(&mut self.overrides)?;
        servers.explain(self.evaluate())
    }

    fn evaluate(mut self) -> Result<()> {
        if !self.controls.is_empty() {
            return self.study();
        }
        if !self.overrides.is_empty() && self.config.is_none() {
            let what = format!(
                "--set changes a config; name one (`forage config init FILE --env {}` writes it), or folders of runs with --controls",
                self.env
            );
            return Err(RunError::config(what).into());
        }
        let options = EvaluateOptions {
            policy: self.policy.take(),
            model: self.server.model.take(),
            token_file: self.server.token_file.take(),
            tokens_of: self.tokens_of.take(),
            limit: self.limit,
            samples: self.samples,
            out: self.out.take(),
            record_tools: self.record_tools.take(),
            probes: std::mem::take(&mut self.probes),
            self_grade: self.self_grade,
            resume: self.resume,
        };
        let named = options.policy.as_deref();
        let (title, found) = if let Some(path) = &self.config {
            let mut config = read(path, &self.overrides, self.device)?;
            if let Some(seed) = self.seed {
                config = config.vary(|config| config.seed = seed)?;
            }
            let policy = named.unwrap_or(&config.policy.checkpoint);
            let title = title(&config.environment.id, policy);
            (
                title,
                evaluate(&config, &options, &Watch::interruptible()?)?,
            )
        } else {
            let retrieval = self.retrieval.one_mode()?;
            let format_of_corpus = format_of(&self.env, self.corpus.as_deref(), self.format)?;
            let sources = Sources {
                environment: &self.env,
                questions: self.questions.as_deref(),
                index: self.index.as_deref(),
                corpus: self.corpus.as_deref().zip(format_of_corpus),
                retrieval: &retrieval,
                split: Split::Test,
                limit: self.limit,
                usual: QUESTIONS,
                pages: None,
                seed: self.seed.unwrap_or(1),
            };
            let device = self.device.unwrap_or_default();
            let title = title(&self.env, named.unwrap_or_default());
            (
                title,
                sources.evaluate(device, &options, &Watch::interruptible()?)?,
            )
        };
        self.print(&title, &found);
        let exact = found.greedy.metric("em");
        let is_wrong = exact.is_some_and(|share| share.estimate < 1.0);
        match &options.out {
            Some(file) => {
                let [asked, sampled] =
                    [&found.greedy, &found.sampled].map(|summary| summary.episodes + summary.infra);
                let sampled = (sampled > asked)
                    .then(|| word(&file.with_extension("sampled.jsonl")))
                    .map_or(String::new(), |samples| {
                        format!("; forage compare OTHER {samples} for pass@k")
                    });
                let file = word(file);
                let wrong = if is_wrong {
                    format!("; forage runs show {file} --wrong")
                } else {
                    String::new()
                };
                hint(&format!(
                    "next: forage runs report {file}{wrong}; forage compare OTHER {file}{sampled}"
                ));
            }
            None if is_wrong => hint(
                "next: --out FILE keeps the episodes, and forage runs show FILE --wrong shows those that failed",
            ),
            None => {}
        }
        Ok(())
    }

    fn study(&self) -> Result<()> {
        let found = study(
            &self.controls,
            self.limit,
            &self.overrides,
            self.resume,
            &Watch::interruptible()?,
        )?;
        let (greedy, sampled) = (&found.greedy, &found.sampled);
        let mut words = greedy.words();
        words.extend(sampled.iter().flat_map(Study::sampled_words));
        if self.json {
            let all = serde_json::json!({
                "greedy": greedy,
                "sampled": sampled,
                "holds": greedy.holds(),
                "words": words,
            });
            out(&all.to_string());
            return Ok(());
        }
        out(&format!("greedy\n{}", greedy.to_text()));
        if let Some(sampled) = sampled {
            out(&format!("sampled\n{}", sampled.to_text()));
        }
        for sentence in &words {
            out(sentence);
        }
        let runs = self.controls.iter().map(|run| word(run));
        let runs: Vec<String> = runs.collect();
        hint(&format!("next: forage runs report {}", runs.join(" ")));
        Ok(())
    }

    fn print(&self, title: &str, found: &Evaluation) {
        let Evaluation {
            greedy,
            sampled,
            answers,
            question_retrieval,
            alarms,
            probes,
            caveat,
        } = found;
        if self.json {
            let retrieval = question_retrieval.as_ref().map(|found| &found.metrics);
            let summary = serde_json::json!({
                "greedy": greedy,
                "sampled": sampled,
                "answers": answers,
                "question_retrieval": retrieval,
                "alarms": alarms,
                "probes": probes,
                "caveat": caveat,
            });
            out(&summary.to_string());
            return;
        }
        out(title);
        let mut named = vec![("greedy", greedy)];
        if sampled.episodes + sampled.infra > 0 {
            named.push(("sampled", sampled));
        }
        out(&EvalSummary::beside(&named));
        if let Some(answers) = answers {
            out(&answers.to_text());
        }
        if let Some(found) = question_retrieval {
            out(&format!(
                "how well the retriever finds the evidence when the question itself is the query\n{}",
                found.to_text()
            ));
        }
        for probe in probes {
            out(&printable(&probe.to_text()));
        }
        for alarm in alarms {
            out(&printable(&alarm.to_text()));
        }
        if let Some(caveat) = caveat {
            out(caveat);
        }
    }
}

/// The first line of an evaluation: what was played by whom.
fn title(environment: &str, policy: &str) -> String {
    format!("environment {environment}, policy {policy}")
}
