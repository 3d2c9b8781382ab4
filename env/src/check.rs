//! A checker any environment can be put through.

use std::sync::Arc;

use crate::environment::{Action, EnvError, EnvFactory, Observation, Step, TurnKind};
use crate::episode::{Ending, Episode, Limit, Score, Turn};
use crate::policy::Finish;
use crate::registry::EnvEntry;
use crate::reward::RewardSet;
use crate::seed::Seed;
use crate::task::Task;
use crate::tokens::TokenLog;

/// A rule an environment broke.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckFailure {
    /// A call failed that should not.
    #[error("task {task}: {call} failed: {message}")]
    Failed {
        /// The task's id.
        task: String,
        /// Which call.
        call: &'static str,
        /// The error.
        message: String,
    },
    /// The same task, seed and turns gave something else the second time.
    #[error("task {task}: two runs with the same seed differ at {place}")]
    Nondeterministic {
        /// The task's id.
        task: String,
        /// Where.
        place: String,
    },
    /// A step before a reset or after the end was not refused.
    #[error("task {task}: a step {place} was not refused as out of order")]
    StepAccepted {
        /// The task's id.
        task: String,
        /// When.
        place: &'static str,
    },
    /// A step was terminated and truncated at once.
    #[error("task {task}: step {step} is both terminated and truncated")]
    BothEnds {
        /// The task's id.
        task: String,
        /// Number of the step, from 0.
        step: usize,
    },
    /// The episode went on beyond the spec's limit.
    #[error("task {task}: still running after {max_turns} turns")]
    NeverEnds {
        /// The task's id.
        task: String,
        /// The spec's limit.
        max_turns: usize,
    },
    /// The gold answer did not end the episode as terminated.
    #[error("task {task}: the gold answer did not terminate the episode")]
    GoldGoesOn {
        /// The task's id.
        task: String,
    },
    /// The gold answer does not score the maximum, or the empty answer not the minimum.
    #[error("task {task}: the gold answer scores {gold}, an empty one {empty}, a wrong one {wrong}")]
    Scores {
        /// The task's id.
        task: String,
        /// Total of the gold answer.
        gold: f32,
        /// Total of the empty answer.
        empty: f32,
        /// Total of a wrong answer.
        wrong: f32,
    },
}

/// The turns the checker writes, in the environment's own protocol.
#[derive(Clone, Debug)]
pub struct CheckPlan {
    /// A turn that is valid; where episodes have several turns it does not end the episode.
    pub probe: String,
    /// A turn that is not an action.
    pub invalid: String,
    /// Writes the turn that ends a task's episode with the highest score.
    pub gold: fn(&Task) -> String,
    /// A turn of the same form with nothing in it.
    pub empty: String,
    /// A turn of the same form that is wrong for any task.
    pub wrong: String,
}

impl Default for CheckPlan {
    /// The search and answer tags, with a thought before them.
    fn default() -> Self {
        Self {
            probe: "<think>look</think><search>first query</search>".to_owned(),
            invalid: "no tag at all".to_owned(),
            gold: gold_answer,
            empty: answer(""),
            wrong: answer(WRONG),
        }
    }
}

/// Neither the answer to a question nor a query that finds anything.
const WRONG: &str = "certainlynotthis";

impl CheckPlan {
    /// The plan for a registered environment.
    pub fn of(entry: &EnvEntry) -> Self {
        let (probe, invalid) = (entry.probe.to_owned(), "no tag at all".to_owned());
        Self { probe, invalid, gold: entry.gold, empty: (entry.last)(""), wrong: (entry.last)(WRONG) }
    }
}

/// The turn that answers with the first gold, after a thought.
pub fn gold_answer(task: &Task) -> String {
    answer(task.golds.first().map_or("", String::as_str))
}

/// The turn that answers, after a thought.
pub fn answer(answer: &str) -> String {
    format!("<think>known</think><answer>{answer}</answer>")
}

/// Puts an environment through its contract on `tasks`: determinism under a seed, no step out of order, at most one of
/// terminated and truncated, an end within the spec's limit, and scores that rank gold above wrong and empty answers.
///
/// # Errors
/// Every rule that was broken, in order.
pub async fn check_environment(
    factory: &dyn EnvFactory,
    tasks: &[Task],
    rewards: &RewardSet,
    plan: &CheckPlan,
    seed: Seed,
) -> Result<(), Vec<CheckFailure>> {
    let mut failures = Vec::new();
    for task in tasks {
        let check = Check { factory, task, rewards, plan, seed };
        for outcome in [check.determinism().await, check.order().await, check.scores().await] {
            failures.extend(outcome.err());
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

struct Check<'a> {
    factory: &'a dyn EnvFactory,
    task: &'a Task,
    rewards: &'a RewardSet,
    plan: &'a CheckPlan,
    seed: Seed,
}

/// What an episode showed.
#[derive(PartialEq)]
struct Trace {
    opening: Observation,
    steps: Vec<(String, Step)>,
}

impl Check<'_> {
    fn id(&self) -> String {
        self.task.id.clone()
    }

    fn failed(&self, call: &'static str, error: &dyn std::error::Error) -> CheckFailure {
        CheckFailure::Failed { task: self.id(), call, message: error.to_string() }
    }

    /// Plays `turns` over and over until the episode ends.
    async fn play(&self, turns: &[&str]) -> Result<Trace, CheckFailure> {
        let mut env = self.factory.make();
        let opening = env.reset(self.task, self.seed).await.map_err(|error| self.failed("reset", &error))?;
        let mut steps = Vec::new();
        let max_turns = self.factory.spec().max_turns;
        let mut prefix = String::new();
        for (number, turn) in turns.iter().cycle().take(max_turns).enumerate() {
            let text = [&prefix, *turn].concat();
            let step = env.step(&action(&text)).await.map_err(|error| self.failed("step", &error))?;
            if step.terminated && step.truncated {
                return Err(CheckFailure::BothEnds { task: self.id(), step: number });
            }
            step.forced_prefix.as_deref().unwrap_or_default().clone_into(&mut prefix);
            let over = step.terminated || step.truncated;
            steps.push((text, step));
            if over {
                return Ok(Trace { opening, steps });
            }
        }
        Err(CheckFailure::NeverEnds { task: self.id(), max_turns })
    }

    async fn determinism(&self) -> Result<(), CheckFailure> {
        let turns = [self.plan.probe.as_str(), self.plan.invalid.as_str()];
        let (first, second) = (self.play(&turns).await?, self.play(&turns).await?);
        if first == second {
            return Ok(());
        }
        let step = first.steps.iter().zip(&second.steps).position(|(left, right)| left != right);
        let place = match step {
            _ if first.opening != second.opening => "the opening prompt".to_owned(),
            Some(number) => format!("step {number}"),
            None => "the number of steps".to_owned(),
        };
        Err(CheckFailure::Nondeterministic { task: self.id(), place })
    }

    async fn order(&self) -> Result<(), CheckFailure> {
        let mut env = self.factory.make();
        let probe = action(&self.plan.probe);
        let refused = |result: Result<Step, EnvError>, place| match result {
            Err(EnvError::OutOfOrder(_)) => Ok(()),
            _ => Err(CheckFailure::StepAccepted { task: self.id(), place }),
        };
        refused(env.step(&probe).await, "before reset")?;
        env.reset(self.task, self.seed).await.map_err(|error| self.failed("reset", &error))?;
        let gold = action(&(self.plan.gold)(self.task));
        let step = env.step(&gold).await.map_err(|error| self.failed("step", &error))?;
        if !step.terminated {
            return Err(CheckFailure::GoldGoesOn { task: self.id() });
        }
        refused(env.step(&probe).await, "after the end")?;
        env.reset(self.task, self.seed).await.map_err(|error| self.failed("second reset", &error))?;
        env.step(&probe).await.map_err(|error| self.failed("step after a second reset", &error))?;
        Ok(())
    }

    async fn scores(&self) -> Result<(), CheckFailure> {
        let gold = self.score_of(&(self.plan.gold)(self.task)).await?.total;
        let empty = self.score_of(&self.plan.empty).await?.total;
        let wrong = self.score_of(&self.plan.wrong).await?.total;
        if gold > empty && gold >= wrong && wrong >= empty {
            return Ok(());
        }
        Err(CheckFailure::Scores { task: self.id(), gold, empty, wrong })
    }

    async fn score_of(&self, turn: &str) -> Result<Score, CheckFailure> {
        let trace = self.play(&[turn]).await?;
        let episode = self.episode(trace);
        self.rewards.score(self.task, &episode).await.map_err(|error| self.failed("a reward", &error))
    }

    fn episode(&self, trace: Trace) -> Episode {
        let done = |kind: &TurnKind| matches!(kind, TurnKind::Answer { .. } | TurnKind::Query(_));
        let answered = trace.steps.last().is_some_and(|(_, step)| done(&step.kind));
        let turns = trace.steps.into_iter().map(|(policy, step)| Turn {
            policy,
            finish: Finish::Stop,
            kind: step.kind,
            observation: step.observation.text,
            reward: step.reward,
        });
        Episode {
            task: self.task.clone(),
            group: 0,
            member: 0,
            branch: None,
            prompt: trace.opening.text,
            turns: turns.collect(),
            tokens: TokenLog::default(),
            ending: if answered { Ending::Answered } else { Ending::Truncated { limit: Limit::Turns } },
            score: None,
            seed: None,
        }
    }
}

fn action(text: &str) -> Action {
    Action { text: text.to_owned(), finish: Finish::Stop }
}

/// [`check_environment`] for a shared factory, with the default plan and exact match as the reward.
///
/// # Errors
/// As [`check_environment`].
pub async fn check_search_environment(factory: &Arc<dyn EnvFactory>, tasks: &[Task]) -> Result<(), Vec<CheckFailure>> {
    let rewards = RewardSet::exact_match();
    check_environment(factory.as_ref(), tasks, &rewards, &CheckPlan::default(), Seed::root(0)).await
}
