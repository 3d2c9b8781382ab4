//! `forage collect`: rejection sampling, demonstrations from the policy's own best episodes.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use forage_env::{Keep, RejectionCounts};
use forage_lab::{CollectOptions, collect};
use forage_trainer::device::DeviceSpec;
use serde_json::{Value, json};

use crate::config::read;
use crate::environment::EnvironmentArgs;
use crate::policy::ServerArgs;
use crate::progress::Watch;
use crate::terminal::{hint, out, word};

/// Keeps a policy's best episodes as demonstrations for `forage sft`.
///
/// Plays the training questions of a config several times each and keeps the episodes worth imitating. The file has a record of
/// an episode per line and appears when it is complete; Ctrl-C leaves what was kept so far, with the ending .partial, and --resume
/// goes on with it. Episodes that an infrastructure fault ended are counted and never kept; of episodes of the same question and the
/// same text, white space aside, one is kept.
#[derive(Args, Debug)]
pub(crate) struct Collect {
    /// Config file, or name of a recipe, whose policy, environment, rewards and training questions are used.
    config: PathBuf,
    /// A Hugging Face folder, builtin:NAME, or the address of a server (http://HOST:PORT, any of OpenAI's protocol); the config's
    /// policy by default, on the server of its [sampler] where it has one.
    #[arg(long)]
    policy: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Episodes per question.
    #[arg(long)]
    samples: usize,
    /// File to write.
    #[arg(long)]
    out: PathBuf,
    /// Go on with what was stopped on its way to --out, under the same settings.
    #[arg(long)]
    resume: bool,
    /// The episodes of a question to keep: the best one (among equals the shortest, then the first), or all that earned enough.
    #[arg(long, value_enum, default_value_t = Kept::Best)]
    keep: Kept,
    /// Least reward of an episode that is kept.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    min_reward: f32,
    /// Softmax temperature; the config's of training by default.
    #[arg(long)]
    temperature: Option<f32>,
    /// Most questions to play; all of the config's training questions by default.
    #[arg(long)]
    questions: Option<usize>,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Keep what the retriever answers in this file, for `forage replay --tools`.
    #[arg(long, value_name = "FILE")]
    record_tools: Option<PathBuf>,
    /// Compute device instead of the config's: cpu, cuda:0, ...
    #[arg(long)]
    device: Option<DeviceSpec>,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kept {
    Best,
    AllCorrect,
}

impl Collect {
    pub(crate) fn run(mut self) -> Result<()> {
        let mut servers = self.environment.start(&mut self.overrides)?;
        servers.explain(self.collect())
    }

    fn collect(self) -> Result<()> {
        let config = read(&self.config, &self.overrides, self.device)?;
        let options = CollectOptions {
            policy: self.policy,
            model: self.server.model,
            token_file: self.server.token_file,
            samples: self.samples,
            out: self.out,
            keep: match self.keep {
                Kept::Best => Keep::Best,
                Kept::AllCorrect => Keep::All,
            },
            min_reward: self.min_reward,
            temperature: self.temperature,
            questions: self.questions,
            record_tools: self.record_tools,
            resume: self.resume,
        };
        let counts = collect(&config, &options, &Watch::stoppable()?)?;
        if self.json {
            out(&as_json(&counts, &options.out).to_string());
        } else {
            out(&describe(&counts));
            out(&format!("demonstrations in {}", options.out.display()));
        }
        hint(&format!(
            "next: forage sft {} --policy {} --out FOLDER",
            word(&options.out),
            word(Path::new(&config.policy.checkpoint))
        ));
        Ok(())
    }
}

fn as_json(counts: &RejectionCounts, file: &Path) -> Value {
    json!({
        "file": file.to_string_lossy(),
        "questions": counts.questions,
        "episodes": counts.episodes,
        "kept": counts.kept,
        "answered": counts.answered,
        "duplicates": counts.duplicates,
        "faults": counts.faults,
    })
}

fn describe(counts: &RejectionCounts) -> String {
    let RejectionCounts {
        questions,
        episodes,
        kept,
        answered,
        duplicates,
        faults,
    } = counts;
    format!(
        "{questions} questions, {episodes} episodes: kept {kept} of them, of {answered} questions, dropped {duplicates} duplicates, \
         {faults} infrastructure faults"
    )
}
