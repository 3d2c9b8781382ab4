//! Self-grading: a policy that grades its own episodes.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnKind,
};
use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Tag, Task};

use super::driver::{Job, Rollout};
use crate::protocol::last_closed;
use crate::reward::RewardSet;
use crate::reward::judge::self_grading;

/// Most tokens of a grade and of the reasoning before it.
const TOKENS: usize = 512;

/// Tokens that a chat template may add to a prompt.
const TEMPLATE: usize = 128;

/// The highest grade.
const TOP: f64 = 10.0;

/// Most characters of an attempt to show; smaller limits are tried in turn until the prompt fits.
const SHOWN: [usize; 7] = [12_000, 8_000, 4_000, 2_000, 1_000, 500, 100];

impl Rollout {
    /// Has the policy grade `attempts` of answers greedily, without the accepted answers, each in an episode of its own of one turn:
    /// a policy as its own process reward model, Self-PRM (Is PRM Necessary? Problem-Solving RL Implicitly Induces PRM Capability in
    /// LLMs, Feng et al. 2025). The episodes come in the order of the attempts; [`Self::grade`] reads them. Must be called within a
    /// Tokio runtime.
    pub async fn grading(
        &self,
        attempts: &[&Episode],
        seed: Seed,
        in_flight: usize,
    ) -> Vec<Episode> {
        let budget = self.factory.spec().max_episode_tokens;
        let spec = EnvSpec {
            id: "forage/self-grade-v0".to_owned(),
            outcome: Outcome::Answer,
            max_turns: 1,
            max_turn_tokens: TOKENS.min(budget.div_ceil(4)),
            max_episode_tokens: budget,
            stop: vec![Tag::Answer.closing().to_owned()],
            append_eos_after_stop: false,
            tools: Vec::new(),
        };
        let room = budget.saturating_sub(spec.max_turn_tokens + TEMPLATE);
        let (mut prompts, mut jobs) = (HashMap::new(), Vec::with_capacity(attempts.len()));
        for (group, attempt) in (0..).zip(attempts) {
            let id = format!("{}#{group}", attempt.task.id);
            prompts.insert(id.clone(), self.prompt(attempt, room));
            let task = Arc::new(Task {
                id,
                ..attempt.task.clone()
            });
            jobs.push(Job {
                group,
                ..Job::alone(task, seed.child("self-grade", &[group]))
            });
        }
        let grading = Self {
            factory: Arc::new(Factory(Arc::new(Shared { spec, prompts }))),
            rewards: Arc::new(RewardSet::nothing()),
            sampling: Sampling::GREEDY,
            ..self.clone()
        };
        grading.run_bounded(jobs, in_flight, &|_| {}).await
    }

    /// The grade that an episode of [`Self::grading`] gave, 0 to 1; none where the policy wrote none.
    pub fn grade(episode: &Episode) -> Option<f64> {
        let grade: f64 = episode.answer()?.trim().parse().ok()?;
        (0.0..=TOP).contains(&grade).then_some(grade / TOP)
    }

    /// The prompt about an attempt, with as much of the attempt as fits.
    fn prompt(&self, attempt: &Episode, room: usize) -> String {
        let mut prompt = String::new();
        for chars in SHOWN {
            prompt = self_grading(attempt, chars);
            if self.tokenizer.encode(&prompt).len() <= room {
                break;
            }
        }
        prompt
    }
}

struct Shared {
    spec: EnvSpec,
    /// Prompts by the id of the task.
    prompts: HashMap<String, String>,
}

struct Factory(Arc<Shared>);

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(Grading(Arc::clone(&self.0)))
    }

    fn spec(&self) -> &EnvSpec {
        &self.0.spec
    }
}

struct Grading(Arc<Shared>);

#[async_trait]
impl Environment for Grading {
    async fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        let prompt = self.0.prompts.get(&task.id).ok_or(EnvError::NotReset)?;
        Ok(Observation::new(prompt.as_str()))
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let [open, close] = Tag::Answer.both();
        Ok(Step::end(match last_closed(&action.text, open, close) {
            Some(grade) => TurnKind::answer(grade.trim()),
            None => TurnKind::invalid("no grade between answer tags"),
        }))
    }

    fn spec(&self) -> &EnvSpec {
        &self.0.spec
    }
}
