//! `forage play`: you are the policy.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use forage_env::code_search::PYTHON_OPEN;
use forage_env::dataset::read_tasks;
use forage_env::episode::{Boundary, Ending, Episode};
use forage_env::policy::Sampling;
use forage_env::registry::{self, OpenWiki};
use forage_env::rollout::{Job, Presentation, Rollout};
use forage_env::scripted::{Human, View};
use forage_env::seed::Seed;
use forage_env::task::{Split, Task};
use forage_env::tokenizer::{ByteTokenizer, Tokenizer};
use forage_env::world::WorldSpec;
use forage_eval::trajectory::ending_words;
use forage_retriever::{NoPassages, Retriever};

use super::out;
use crate::config::EnvironmentConfig;
use crate::pipeline::runtime;
use crate::retrieval::RetrieverConfig;
use crate::setup;

/// Plays an environment in the terminal: write turns as a model would, an empty line ends a turn.
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
    /// Which question.
    #[arg(long, default_value_t = 0)]
    question: usize,
    /// Seed of the generated world.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Play {
    pub(crate) fn run(self) -> Result<()> {
        let (retriever, wiki, task) = self.material()?;
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(ByteTokenizer);
        let settings = (registry::find(&self.env)?.for_bytes)(serde_json::Map::new());
        let environment = EnvironmentConfig { id: self.env.clone(), settings };
        let resources = setup::resources(&retriever, wiki.as_ref(), Arc::clone(&tokenizer));
        let factory = setup::environment(&environment, resources, None)?;
        let rewards = setup::rewards(&self.env, &setup::default_rewards(factory.spec().outcome), self.seed)?;
        let stops = factory.spec().stop.clone();
        let policy = Arc::new(Human::new(Arc::clone(&tokenizer), move |view| ask(view, &stops)));
        let rollout = Rollout {
            policy,
            tokenizer,
            factory,
            rewards,
            sampling: Sampling::GREEDY,
            presentation: Presentation::Raw,
        };
        let job = Job::alone(Arc::new(task.clone()), Seed::root(self.seed));
        let episodes = runtime()?.block_on(rollout.run(vec![job]));
        let episode = episodes.first().context("no episode")?;
        out(&format!("\n{}", ending(episode)));
        match &episode.score {
            Some(score) => {
                out(&format!("gold answers: {}", task.golds.join(" | ")));
                for (name, value) in &score.parts {
                    out(&format!("  {name:12} {value:.3}"));
                }
            }
            None => out("no score: the episode came to no end"),
        }
        Ok(())
    }

    fn material(&self) -> Result<(Arc<dyn Retriever>, Option<OpenWiki>, Task)> {
        let (Some(index), Some(questions)) = (&self.index, &self.questions) else {
            if let Some(own) = registry::find(&self.env)?.questions {
                let tasks = setup::own_questions(own, Split::Test, self.question + 1, self.seed);
                let task = tasks.last().with_context(|| format!("{} has no questions", self.env))?;
                return Ok((Arc::new(NoPassages), None, Task::clone(task)));
            }
            let (world, retriever, wiki) = setup::generated(WorldSpec::new(1000, self.seed))?;
            return Ok((retriever, Some(wiki), world.question(Split::Test, self.question as u64)));
        };
        let tasks = read_tasks(questions, None, Split::Test)?;
        let count = tasks.len();
        let task = tasks.into_iter().nth(self.question);
        let task = task.with_context(|| format!("--question must be below {count}"))?;
        let retrieval = RetrieverConfig::default();
        let (retriever, wiki) = setup::searchable(Some(index), None, &retrieval, Path::new(""))?;
        Ok((retriever, Some(wiki), task))
    }
}

/// How it ended; a player who left is not a fault.
fn ending(episode: &Episode) -> String {
    match &episode.ending {
        Ending::Infra { boundary: Boundary::Policy, .. } => "left".to_owned(),
        ending => ending_words(ending),
    }
}

/// Shows what is new and reads a turn: lines up to an empty one outside of a program, or to one that closes an action.
fn ask(view: &View<'_>, stops: &[String]) -> Option<String> {
    out(view.shown.last().map_or(view.prompt, String::as_str));
    let mut turn = String::new();
    let mut lines = std::io::stdin().lock().lines();
    loop {
        let mut stdout = std::io::stdout();
        let _ = write!(stdout, "> ").and_then(|()| stdout.flush());
        let Some(Ok(line)) = lines.next() else { break };
        if line.is_empty() && !turn.contains(PYTHON_OPEN) {
            break;
        }
        if !turn.is_empty() {
            turn.push('\n');
        }
        turn.push_str(&line);
        if stops.iter().any(|stop| line.trim_end().ends_with(stop.as_str())) {
            break;
        }
    }
    (!turn.is_empty()).then_some(turn)
}
