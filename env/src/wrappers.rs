//! Wrappers around any environment.

use std::sync::Arc;

use async_trait::async_trait;

use crate::environment::{Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Step, TurnKind, TurnTool};
use crate::seed::Seed;
use crate::task::Task;

/// Ends episodes after a number of steps, as truncated.
pub struct TimeLimit {
    inner: Box<dyn Environment>,
    spec: EnvSpec,
    steps: usize,
    over: bool,
}

impl TimeLimit {
    /// Limits `inner` to `max_steps` steps.
    pub fn new(inner: Box<dyn Environment>, max_steps: usize) -> Self {
        let spec = limited(inner.spec(), max_steps);
        Self { inner, spec, steps: 0, over: false }
    }

    /// Limits every environment that `inner` makes.
    pub fn factory(inner: Arc<dyn EnvFactory>, max_steps: usize) -> Arc<dyn EnvFactory> {
        let spec = limited(inner.spec(), max_steps);
        Arc::new(TimeLimitFactory { inner, spec })
    }
}

struct TimeLimitFactory {
    inner: Arc<dyn EnvFactory>,
    spec: EnvSpec,
}

impl EnvFactory for TimeLimitFactory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(TimeLimit::new(self.inner.make(), self.spec.max_turns))
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn tools(&self) -> Vec<TurnTool> {
        self.inner.tools()
    }
}

fn limited(spec: &EnvSpec, max_steps: usize) -> EnvSpec {
    EnvSpec { max_turns: spec.max_turns.min(max_steps), ..spec.clone() }
}

#[async_trait]
impl Environment for TimeLimit {
    async fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        self.steps = 0;
        self.over = false;
        self.inner.reset(task, seed).await
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        if self.over {
            return Err(EnvError::OutOfOrder("after the end"));
        }
        let mut step = self.inner.step(action).await?;
        self.steps += 1;
        if self.steps >= self.spec.max_turns && !step.terminated {
            step.truncated = true;
            step.forced_prefix = None;
            step.observation = Observation::default();
        }
        self.over = step.terminated || step.truncated;
        Ok(step)
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }
}

/// Refuses steps before a reset and after the end, so that what is inside need not.
pub struct OrderEnforcing {
    inner: Box<dyn Environment>,
    /// Why a step would be refused now.
    refusal: Option<&'static str>,
}

impl OrderEnforcing {
    /// Enforces order around `inner`.
    pub fn new(inner: Box<dyn Environment>) -> Self {
        Self { inner, refusal: Some("before reset") }
    }

    /// Enforces order around every environment that `inner` makes.
    pub fn factory(inner: Arc<dyn EnvFactory>) -> Arc<dyn EnvFactory> {
        Arc::new(OrderFactory(inner))
    }
}

struct OrderFactory(Arc<dyn EnvFactory>);

impl EnvFactory for OrderFactory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(OrderEnforcing::new(self.0.make()))
    }

    fn spec(&self) -> &EnvSpec {
        self.0.spec()
    }

    fn tools(&self) -> Vec<TurnTool> {
        self.0.tools()
    }
}

#[async_trait]
impl Environment for OrderEnforcing {
    async fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        // A reset that fails leaves no episode to step in.
        self.refusal = Some("before a reset that went through");
        let opening = self.inner.reset(task, seed).await?;
        self.refusal = None;
        Ok(opening)
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        if let Some(when) = self.refusal {
            return Err(EnvError::OutOfOrder(when));
        }
        let step = self.inner.step(action).await?;
        if step.terminated || step.truncated {
            self.refusal = Some("after the end");
        }
        Ok(step)
    }

    fn spec(&self) -> &EnvSpec {
        self.inner.spec()
    }
}

/// Counts of one episode.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct EpisodeStatistics {
    /// Steps taken.
    pub steps: usize,
    /// Searches among them.
    pub searches: usize,
    /// Invalid turns among them.
    pub invalid: usize,
    /// Characters the policy wrote.
    pub policy_chars: usize,
    /// Characters the environment wrote, the opening prompt not counted.
    pub observation_chars: usize,
    /// Sum of the steps' rewards.
    pub reward: f32,
    /// Whether the episode is over.
    pub over: bool,
}

/// Counts what happens in each episode; [`Statistics::episode`] holds the current one.
pub struct Statistics {
    inner: Box<dyn Environment>,
    episode: EpisodeStatistics,
}

impl Statistics {
    /// Counts around `inner`.
    pub fn new(inner: Box<dyn Environment>) -> Self {
        Self { inner, episode: EpisodeStatistics::default() }
    }

    /// Counts since the last reset.
    pub fn episode(&self) -> &EpisodeStatistics {
        &self.episode
    }
}

#[async_trait]
impl Environment for Statistics {
    async fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        self.episode = EpisodeStatistics::default();
        self.inner.reset(task, seed).await
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let step = self.inner.step(action).await?;
        let episode = &mut self.episode;
        episode.steps += 1;
        episode.searches += step.kind.queries().len();
        episode.invalid += usize::from(matches!(step.kind, TurnKind::Invalid { .. }));
        episode.policy_chars += action.text.chars().count();
        episode.observation_chars += step.observation.text.chars().count();
        episode.reward += step.reward;
        episode.over = step.terminated || step.truncated;
        Ok(step)
    }

    fn spec(&self) -> &EnvSpec {
        self.inner.spec()
    }
}
