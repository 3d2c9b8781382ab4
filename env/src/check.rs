//! A checker any environment can be put through.

use forage_contracts::environment::{Action, EnvFactory};
use forage_contracts::policy::Finish;
use forage_contracts::seed::Seed;
use forage_contracts::{EnvEntry, Episode, Score, Task};

use crate::reward::RewardSet;
use crate::rollout::stage::Stage;

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
    /// The same task, seed and turns gave another result the second time.
    #[error("task {task}: two runs with the same seed differ at {place}")]
    Nondeterministic {
        /// The task's id.
        task: String,
        /// Where.
        place: String,
    },
    /// A second reset of the same environment began with something of the episode before it.
    #[error("task {task}: after a second reset the same turn gives something else")]
    ResetKeeps {
        /// The task's id.
        task: String,
    },
    /// The gold answer did not end the episode as terminated.
    #[error("task {task}: the gold answer did not terminate the episode")]
    GoldGoesOn {
        /// The task's id.
        task: String,
    },
    /// The gold answer does not score the maximum, or the empty answer not the minimum.
    #[error(
        "task {task}: the gold answer scores {gold}, an empty one {empty}, a wrong one {wrong}"
    )]
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

/// Neither the answer to a question nor a query that finds anything.
const WRONG: &str = "certainlynotthis";

impl CheckPlan {
    /// The plan for a registered environment.
    pub fn of(entry: &EnvEntry) -> Self {
        let (probe, invalid) = (entry.probe.to_owned(), "no tag at all".to_owned());
        Self {
            probe,
            invalid,
            gold: entry.gold,
            empty: (entry.last)(""),
            wrong: (entry.last)(WRONG),
        }
    }
}

impl CheckPlan {
    /// Puts an environment through its contract on `tasks`: determinism under a seed, a clean start after each reset, an end with
    /// the gold answer, and scores that rank gold above wrong and empty answers.
    ///
    /// # Errors
    /// Every rule that was broken, in order.
    pub async fn check(
        &self,
        factory: &dyn EnvFactory,
        tasks: &[Task],
        rewards: &RewardSet,
        seed: Seed,
    ) -> Result<(), Vec<CheckFailure>> {
        let mut failures = Vec::new();
        for task in tasks {
            let check = Check {
                factory,
                task,
                rewards,
                plan: self,
                seed,
            };
            for outcome in [
                check.determinism().await,
                check.resets().await,
                check.scores().await,
            ] {
                failures.extend(outcome.err());
            }
        }
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures)
        }
    }
}

struct Check<'a> {
    factory: &'a dyn EnvFactory,
    task: &'a Task,
    rewards: &'a RewardSet,
    plan: &'a CheckPlan,
    seed: Seed,
}

impl Check<'_> {
    fn id(&self) -> String {
        self.task.id.clone()
    }

    fn failed(&self, call: &'static str, message: String) -> CheckFailure {
        CheckFailure::Failed {
            task: self.id(),
            call,
            message,
        }
    }

    /// Plays `turns` over and over until the episode ends, as the driver does.
    async fn play(&self, turns: &[&str]) -> Result<Episode, CheckFailure> {
        let opened = Stage::open(self.factory, self.rewards, self.task, self.seed).await;
        let mut stage = opened.map_err(|fault| self.failed("reset", fault.message))?;
        let mut prefix = String::new();
        let mut turns = turns.iter().cycle();
        let ending = loop {
            let text = [&prefix, *turns.next().unwrap_or(&"")].concat();
            let reaction = stage.react(text, Finish::Stop).await;
            let reaction = reaction.map_err(|fault| self.failed("step", fault.message))?;
            prefix = reaction.step.forced_prefix.clone().unwrap_or_default();
            if let Some(ending) = stage.keep(reaction) {
                break ending;
            }
        };
        let (prompt, turns) = stage.into_record();
        Ok(Episode {
            prompt,
            turns,
            ending,
            ..Episode::new(self.task.clone())
        })
    }

    async fn determinism(&self) -> Result<(), CheckFailure> {
        let turns = [self.plan.probe.as_str(), self.plan.invalid.as_str()];
        let (first, second) = (self.play(&turns).await?, self.play(&turns).await?);
        if first == second {
            return Ok(());
        }
        let pairs = first.turns.iter().zip(&second.turns);
        let turn = pairs.into_iter().position(|(left, right)| left != right);
        let place = match turn {
            _ if first.prompt != second.prompt => "the opening prompt".to_owned(),
            Some(number) => format!("step {number}"),
            None => "the number of steps".to_owned(),
        };
        Err(CheckFailure::Nondeterministic {
            task: self.id(),
            place,
        })
    }

    async fn resets(&self) -> Result<(), CheckFailure> {
        let mut env = self.factory.make();
        let mut firsts = Vec::new();
        for last in [(self.plan.gold)(self.task), self.plan.probe.clone()] {
            let opening = env.reset(self.task, self.seed).await;
            let opening = opening.map_err(|error| self.failed("reset", error.to_string()))?;
            let probed = env.step(&Action::new(self.plan.probe.clone())).await;
            let probed = probed.map_err(|error| self.failed("step", error.to_string()))?;
            firsts.push((opening, probed));
            if firsts[0].1.terminated {
                continue;
            }
            let step = env.step(&Action::new(last)).await;
            let step = step.map_err(|error| self.failed("step", error.to_string()))?;
            if firsts.len() == 1 && !step.terminated {
                return Err(CheckFailure::GoldGoesOn { task: self.id() });
            }
        }
        if firsts[0] == firsts[1] {
            Ok(())
        } else {
            Err(CheckFailure::ResetKeeps { task: self.id() })
        }
    }

    async fn scores(&self) -> Result<(), CheckFailure> {
        let gold = self.score_of(&(self.plan.gold)(self.task)).await?.total;
        let empty = self.score_of(&self.plan.empty).await?.total;
        let wrong = self.score_of(&self.plan.wrong).await?.total;
        if gold > empty && gold >= wrong && wrong >= empty {
            return Ok(());
        }
        Err(CheckFailure::Scores {
            task: self.id(),
            gold,
            empty,
            wrong,
        })
    }

    async fn score_of(&self, turn: &str) -> Result<Score, CheckFailure> {
        let episode = self.play(&[turn]).await?;
        let score = self.rewards.score(self.task, &episode).await;
        score.map_err(|error| self.failed("a reward", error.to_string()))
    }
}
