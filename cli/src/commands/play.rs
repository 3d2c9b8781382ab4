//! `forage play`: you are the policy, or watch one.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_contracts::environment::Outcome;
use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Scripted, View};
use forage_contracts::seed::Seed;
use forage_contracts::{Boundary, ByteTokenizer, Ending, Episode, Split, Task, Tokenizer};
use forage_env::registry::{environments, find, rewards};
use forage_env::reward::RewardSet;
use forage_env::{Job, Presentation, Rollout};
use forage_lab::{
    Corpus, Data, EnvironmentConfig, EvaluateOptions, PolicyFormat, Resolved, RetrieverConfig,
    RunError, Session, Sources, runtime,
};
use forage_trainer::device::DeviceSpec;

use super::recipes;
use crate::config::read;
use crate::environment::EnvironmentArgs;
use crate::policy::ServerArgs;
use crate::progress::Watch;
use crate::terminal::{note, out, prose};

/// Pages of the generated world.
const PAGES: u64 = 1000;
/// Questions that are made where one of them is named by its id.
const QUESTIONS: usize = 100;

/// Lets you play an environment in the terminal.
///
/// Write turns as a model would; an empty line ends a turn, and ctrl-d leaves. With --policy you watch a policy play. With a config in
/// the place of an environment its settings, rewards and held-out questions are played.
#[derive(Args, Debug)]
pub(crate) struct Play {
    /// Environment (`forage envs` lists them), a config file or the name of a recipe.
    #[arg(value_name = "ENV|CONFIG")]
    env: String,
    /// Index to search; a generated world of 1000 pages by default.
    #[arg(long, requires = "questions")]
    index: Option<PathBuf>,
    /// Questions as JSON lines.
    #[arg(long)]
    questions: Option<PathBuf>,
    /// The question: its number, counted from 1, or its id, as `forage runs show` prints both.
    #[arg(long, value_name = "NUMBER|ID", default_value = "1")]
    question: String,
    /// Seed of the episode, and of the generated world; the config's by default, else 1.
    #[arg(long)]
    seed: Option<u64>,
    /// The policy to watch: a Hugging Face folder, builtin:NAME, the address of a server (http://HOST:PORT, any of OpenAI's protocol),
    /// constant:ANSWER, or a script of the environment.
    #[arg(long)]
    policy: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Change a value of the config: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    environment: EnvironmentArgs,
}

impl Play {
    pub(crate) fn run(mut self) -> Result<()> {
        if self.environment.any() && !self.names_config() {
            let what = "--env-command serves the environment of a config; name one";
            return Err(RunError::config(what).into());
        }
        let mut servers = self.environment.start(&mut self.overrides)?;
        servers.explain(self.play())
    }

    fn play(&self) -> Result<()> {
        let config = self.config()?;
        let seed = config.as_ref().map_or(1, |config| config.seed);
        let seed = self.seed.unwrap_or(seed);
        let retrieval = RetrieverConfig::default();
        let number: Option<usize> = self.question.parse().ok();
        let sources = Sources {
            environment: &self.env,
            questions: self.questions.as_deref(),
            index: self.index.as_deref(),
            corpus: None,
            retrieval: &retrieval,
            split: Split::Test,
            // A file is read whole: what looks like a number may be an id in it.
            limit: number
                .filter(|_| self.questions.is_none())
                .map(|number| number.max(1)),
            usual: QUESTIONS,
            pages: Some(PAGES),
            seed,
        };
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (corpus, tasks) = match &config {
            Some(config) => {
                let data = Data::load(config, scratch.path())?;
                (data.corpus, data.test)
            }
            None => sources.open(scratch.path())?,
        };
        let place = place(&tasks, &self.question).with_context(|| {
            format!(
                "there is no question {}; give --question a number from 1 to {}, or the id of one",
                self.question,
                tasks.len()
            )
        })?;
        let task = &tasks[place];
        note(&format!("question {}, {}", place + 1, task.name()));
        let rollout = match &self.policy {
            Some(policy) => {
                let (options, watch) = (self.options(policy), Watch::new());
                if let Some(config) = &config {
                    config.rollout(&options, &corpus, &tasks, &watch)?
                } else {
                    let device = DeviceSpec::default();
                    sources.rollout(device, &options, &corpus, &tasks, &watch)?
                }
            }
            None => self.person(config.as_ref(), seed, &corpus)?,
        };
        let outcome = rollout.factory.spec().outcome;
        if self.policy.is_some() {
            Session::check_room(&rollout, std::slice::from_ref(task), seed)?;
        }
        let job = Job::alone(Arc::clone(task), Seed::root(seed));
        let episodes = runtime()?.block_on(rollout.run(vec![job]));
        if self.policy.is_some() {
            Session::check_begun(&rollout, &episodes)?;
        }
        let episode = episodes.first().context("no episode")?;
        if self.policy.is_some() {
            prose(&episode.prompt);
            for turn in &episode.turns {
                prose(&format!("> {}", turn.policy.replace('\n', "\n> ")));
                if !turn.observation.is_empty() {
                    prose(&turn.observation);
                }
            }
        }
        prose(&format!("\n{}", ending(episode, self.policy.is_none())));
        match &episode.score {
            Some(score) => {
                let [low, high] = range(&match &config {
                    Some(config) => weights(config),
                    None => RewardSet::default_weights(outcome),
                });
                let bounds = if low.is_finite() && high.is_finite() {
                    format!(" ({low:.1} to {high:.1})")
                } else {
                    String::new()
                };
                out(&format!("reward {:.3}{bounds}", score.total));
                prose(&labels(task, outcome));
                for (name, value) in &score.parts {
                    out(&format!("  {name:16} {value:.3}"));
                }
            }
            None => out("no score: the episode came to no end"),
        }
        if let Some(caveat) = rollout.policy.caveat() {
            out(&caveat);
        }
        Ok(())
    }

    /// Tells whether a config was given in place of an environment's name.
    fn names_config(&self) -> bool {
        find(&self.env).is_err() && recipes::names_config(Path::new(&self.env))
    }

    /// The config, where one was given.
    fn config(&self) -> Result<Option<Resolved>> {
        if self.names_config() {
            if self.questions.is_some() {
                bail!("give either a config or --questions with --index, not both");
            }
            return read(Path::new(&self.env), &self.overrides, None).map(Some);
        }
        find(&self.env).context("give an environment, a config file or the name of a recipe")?;
        if !self.overrides.is_empty() {
            let what = format!(
                "--set changes a config; name one (`forage config init FILE --env {}` writes it)",
                self.env
            );
            return Err(RunError::config(what).into());
        }
        Ok(None)
    }

    fn options(&self, policy: &str) -> EvaluateOptions {
        EvaluateOptions {
            policy: Some(policy.to_owned()),
            model: self.server.model.clone(),
            token_file: self.server.token_file.clone(),
            ..EvaluateOptions::default()
        }
    }

    /// The person at the terminal, as the policy.
    fn person(&self, config: Option<&Resolved>, seed: u64, corpus: &Corpus) -> Result<Rollout> {
        if self.server.model.is_some() || self.server.token_file.is_some() {
            bail!("--model and --token-file go with a server as --policy");
        }
        let (environment, rewards) = if let Some(config) = config {
            (config.environment.for_bytes()?, config.rewards()?)
        } else {
            let environment = EnvironmentConfig::plain(&self.env)?.for_bytes()?;
            let rewards = environment.default_rewards(seed)?;
            (environment, rewards)
        };
        let format = PolicyFormat::bytes();
        let session = Session::new(&environment, rewards, corpus, format, &Watch::new())?;
        let stops = session.factory.spec().stop.clone();
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(ByteTokenizer);
        let human = Scripted::human(Arc::clone(&tokenizer), move |view| ask(view, &stops));
        Ok(Rollout {
            policy: Arc::new(human),
            tokenizer,
            factory: session.factory,
            rewards: session.rewards,
            sampling: Sampling::GREEDY,
            presentation: Presentation::RAW,
        })
    }
}

/// The place of the question with this id or number.
fn place(tasks: &[Arc<Task>], question: &str) -> Option<usize> {
    let named = |task: &Arc<Task>| task.id == question || task.name() == question;
    let number = || question.parse::<usize>().ok()?.checked_sub(1);
    let place = tasks.iter().position(named).or_else(number)?;
    (place < tasks.len()).then_some(place)
}

/// The weights of a config's rewards.
fn weights(config: &Resolved) -> BTreeMap<String, f32> {
    let weighed = config.reward.iter();
    let weighed = weighed.map(|(name, weighting)| (name.clone(), weighting.weight()));
    weighed.collect()
}

/// Lowest and highest reward under these weights.
fn range(weights: &BTreeMap<String, f32>) -> [f32; 2] {
    let weighted = rewards().filter_map(|entry| {
        let weight = weights.get(entry.name)?;
        let [a, b] = entry.range.map(|end| end * weight);
        Some([a.min(b), a.max(b)])
    });
    weighted.fold([0.0; 2], |[low, high], [a, b]| [low + a, high + b])
}

/// The labels of a task that its episodes are judged by.
fn labels(task: &Task, outcome: Outcome) -> String {
    match outcome {
        Outcome::Answer => format!("gold answers: {}", task.golds.join(" | ")),
        Outcome::Ranking => {
            let judgments = task.judgments();
            let relevant = judgments.iter().filter(|(_, grade)| **grade > 0);
            let ids: Vec<&str> = relevant.map(|(id, _)| id.as_str()).collect();
            format!("relevant passages: {}", ids.join(" | "))
        }
    }
}

/// The ending in words; a person who left is not a fault.
fn ending(episode: &Episode, person: bool) -> String {
    match &episode.ending {
        Ending::Infra {
            boundary: Boundary::Policy,
            ..
        } if person => "left".to_owned(),
        ending => ending.to_string(),
    }
}

/// Shows what is new and reads a turn: lines up to an empty one outside of an action, or to one that closes an action.
fn ask(view: &View<'_>, stops: &[String]) -> Option<String> {
    prose(view.shown.last().map_or(view.prompt, String::as_str));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_found_by_its_id_before_its_number() {
        let tasks = ["a", "1", "b"].map(|id| Arc::new(Task::new(id, "q")));
        let found = ["a", "1", "3", "b", "0", "4", "c"].map(|question| place(&tasks, question));
        let expected = [Some(0), Some(1), Some(2), Some(2), None, None, None];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_ranking_is_told_with_what_it_is_judged_by() {
        let task = Task {
            golds: vec!["Paris".to_owned()],
            qrels: [("a".to_owned(), 0), ("b".to_owned(), 2)].into(),
            ..Task::new("1", "q")
        };
        assert_eq!(labels(&task, Outcome::Ranking), "relevant passages: b");
        assert_eq!(labels(&task, Outcome::Answer), "gold answers: Paris");
        for outcome in [Outcome::Answer, Outcome::Ranking] {
            let [low, high] = range(&RewardSet::default_weights(outcome));
            assert_eq!(format!("{low:.1} to {high:.1}"), "0.0 to 1.0");
        }
    }
}
