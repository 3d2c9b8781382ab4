//! A second attempt at a question, with the first in view.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Step, TurnTool,
};
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Task};

use super::Probe;

/// What the policy wrote in its first attempt, by data set and id.
type Attempts = HashMap<(String, String), String>;

impl Probe {
    /// The environments of `plain` whose opening prompts go on with the policy's first attempt, turn by turn, and ask for another
    /// way. Questions that `first` has no episode of are asked as they are.
    pub fn second_attempt(plain: Arc<dyn EnvFactory>, first: &[Episode]) -> Arc<dyn EnvFactory> {
        let attempt = |episode: &Episode| {
            let turns: Vec<&str> = episode
                .turns
                .iter()
                .map(|turn| turn.policy.trim())
                .collect();
            (episode.task.key(), turns.join("\n"))
        };
        Arc::new(Factory {
            plain,
            attempts: Arc::new(first.iter().map(attempt).collect()),
        })
    }
}

struct Factory {
    plain: Arc<dyn EnvFactory>,
    attempts: Arc<Attempts>,
}

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(Again {
            inner: self.plain.make(),
            attempts: Arc::clone(&self.attempts),
        })
    }

    fn spec(&self) -> &EnvSpec {
        self.plain.spec()
    }

    fn entry(&self) -> &str {
        self.plain.entry()
    }

    fn tools(&self) -> Vec<TurnTool> {
        self.plain.tools()
    }
}

struct Again {
    inner: Box<dyn Environment>,
    attempts: Arc<Attempts>,
}

#[async_trait]
impl Environment for Again {
    async fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        let mut opening = self.inner.reset(task, seed).await?;
        if let Some(attempt) = self.attempts.get(&task.key()) {
            opening.add(&format!(
                "\nAn attempt at this question went as follows:\n{attempt}\nLook at it critically, take another way that differs \
                 from it in its steps, and answer again.\n"
            ));
        }
        Ok(opening)
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        self.inner.step(action).await
    }

    fn spec(&self) -> &EnvSpec {
        self.inner.spec()
    }
}
