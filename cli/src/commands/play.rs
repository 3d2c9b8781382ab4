//! `forage play`: you are the policy.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Scripted, View};
use forage_contracts::seed::Seed;
use forage_contracts::{Boundary, ByteTokenizer, Ending, Episode, Split, Tokenizer};
use forage_env::registry::environments;
use forage_env::{Job, Presentation, Rollout};
use forage_lab::{EnvironmentConfig, PolicyFormat, RetrieverConfig, Session, Sources, runtime};

use crate::progress::Watch;
use crate::terminal::{note, out};

/// Pages of the generated world.
const PAGES: u64 = 1000;

/// Lets you play an environment in the terminal.
///
/// Write turns as a model would; an empty line ends a turn, and ctrl-d leaves.
#[derive(Args, Debug)]
pub(crate) struct Play {
    /// Environment; `forage envs` lists them.
    env: String,
    /// Index to search; a generated world of 1000 pages by default.
    #[arg(long, requires = "questions")]
    index: Option<PathBuf>,
    /// Questions as JSON lines.
    #[arg(long, requires = "index")]
    questions: Option<PathBuf>,
    /// Index of the question.
    #[arg(long, default_value_t = 0)]
    question: usize,
    /// Seed of the generated world.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Play {
    pub(crate) fn run(self) -> Result<()> {
        let sources = Sources {
            environment: &self.env,
            questions: self.questions.as_deref(),
            index: self.index.as_deref(),
            corpus: None,
            retrieval: &RetrieverConfig::default(),
            split: Split::Test,
            limit: Some(self.question + 1),
            usual: 0,
            pages: Some(PAGES),
            seed: self.seed,
        };
        let (corpus, tasks) = sources.open(Path::new(""))?;
        let task = tasks
            .get(self.question)
            .with_context(|| format!("--question must be below {}", tasks.len()))?;
        let environment = EnvironmentConfig::plain(&self.env)?.for_bytes()?;
        let rewards = environment.default_rewards(self.seed)?;
        let watch = Watch::new();
        let session = Session::new(
            &environment,
            rewards,
            &corpus,
            PolicyFormat::bytes(),
            &watch,
        )?;
        let stops = session.factory.spec().stop.clone();
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(ByteTokenizer);
        let human = Scripted::human(Arc::clone(&tokenizer), move |view| ask(view, &stops));
        let rollout = Rollout {
            policy: Arc::new(human),
            tokenizer,
            factory: session.factory,
            rewards: session.rewards,
            sampling: Sampling::GREEDY,
            presentation: Presentation::RAW,
        };
        let job = Job::alone(Arc::clone(task), Seed::root(self.seed));
        let episodes = runtime()?.block_on(rollout.run(vec![job]));
        let episode = episodes.first().context("no episode")?;
        out(&format!("\n{}", ending(episode)));
        match &episode.score {
            Some(score) => {
                out(&format!("reward {:.3}", score.total));
                out(&format!("gold answers: {}", task.golds.join(" | ")));
                for (name, value) in &score.parts {
                    out(&format!("  {name:16} {value:.3}"));
                }
            }
            None => out("no score: the episode came to no end"),
        }
        Ok(())
    }
}

/// The ending in words; a player who left is not a fault.
fn ending(episode: &Episode) -> String {
    match &episode.ending {
        Ending::Infra {
            boundary: Boundary::Policy,
            ..
        } => "left".to_owned(),
        ending => ending.to_string(),
    }
}

/// Shows what is new and reads a turn: lines up to an empty one outside of an action, or to one that closes an action.
fn ask(view: &View<'_>, stops: &[String]) -> Option<String> {
    out(view.shown.last().map_or(view.prompt, String::as_str));
    note(&format!("turn {}, ctrl-d leaves", view.shown.len() + 1));
    let mut turn = String::new();
    let mut lines = std::io::stdin().lock().lines();
    loop {
        let mut stdout = std::io::stdout();
        let _ = write!(stdout, "> ").and_then(|()| stdout.flush());
        let Some(Ok(line)) = lines.next() else { break };
        if line.is_empty() && turn.is_empty() {
            continue;
        }
        if line.is_empty() && !is_within_action(&turn) {
            break;
        }
        if !turn.is_empty() {
            turn.push('\n');
        }
        turn.push_str(&line);
        if stops
            .iter()
            .any(|stop| line.trim_end().ends_with(stop.as_str()))
        {
            break;
        }
    }
    (!turn.is_empty()).then_some(turn)
}

/// Returns true when a turn ends inside a query or a program.
fn is_within_action(turn: &str) -> bool {
    let mut actions = environments().flat_map(|entry| entry.telemetry.actions);
    actions.any(|[open, close]| turn.rfind(open) > turn.rfind(close))
}
