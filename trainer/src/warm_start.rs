//! Warm start: a small decoder learns the protocol from oracle demonstrations, and is stopped before it has learned all.

use std::sync::Arc;

use forage_env::environment::EnvFactory;
use forage_env::reward::RewardSet;
use forage_env::scripted::{OracleStyle, demonstrate};
use forage_env::seed::Seed;
use forage_env::task::Task;
use forage_env::tokenizer::{HfTokenizer, Tokenizer};
use serde::{Deserialize, Serialize};

use crate::learner::Learner;
use crate::metrics::Row;
use crate::optim::AdamWConfig;
use crate::run::{Control, Problem, RunError, evaluate};
use crate::sequence::Sequence;
use forage_env::policy::Sampling;

/// Shape of a warm start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WarmStartConfig {
    /// Most optimizer steps.
    pub steps: u64,
    /// Demonstrations per step, each of a question not seen before.
    pub demonstrations_per_step: usize,
    /// First steps, whose loss covers every token and not only the oracle's: passages repeat names, and predicting them
    /// teaches copying long before the few tokens of queries and answers do.
    pub pretrain_steps: u64,
    /// The optimizer.
    pub optimizer: AdamWConfig,
    /// What the oracle writes around its actions.
    pub style: OracleStyle,
    /// Steps between greedy evaluations on the development questions.
    pub evaluate_every: u64,
    /// Stop as soon as an evaluation's exact match reaches this: early on purpose, so that something is left to learn.
    pub stop_at_em: f64,
}

impl Default for WarmStartConfig {
    fn default() -> Self {
        Self {
            steps: 6000,
            demonstrations_per_step: 32,
            pretrain_steps: 1000,
            optimizer: AdamWConfig { learning_rate: 1.5e-3, warmup_steps: 100, beta2: 0.98, ..AdamWConfig::default() },
            style: OracleStyle::Terse,
            evaluate_every: 100,
            stop_at_em: 0.25,
        }
    }
}

/// Makes demonstrations: oracle episodes in a problem's environment, written with the learner's tokenizer.
#[derive(Clone)]
pub struct Demonstrator {
    /// Makes environments.
    pub factory: Arc<dyn EnvFactory>,
    /// The learner's tokenizer.
    pub tokenizer: Arc<HfTokenizer>,
    /// What the oracle writes around its actions.
    pub style: OracleStyle,
    /// Seed of the demonstrations.
    pub seed: Seed,
}

impl Demonstrator {
    /// Demonstrations of `tasks` that reached the gold answer; what failed teaches nothing.
    pub async fn sequences(&self, tasks: &[Arc<Task>], step: u64) -> Vec<Sequence> {
        let rewards = Arc::new(RewardSet::exact_match());
        let tokenizer: Arc<dyn Tokenizer> = Arc::clone(&self.tokenizer) as Arc<dyn Tokenizer>;
        let seed = self.seed.child("step", &[step]);
        let episodes = demonstrate(tasks, self.style, Arc::clone(&self.factory), tokenizer, rewards, seed).await;
        let good = episodes.iter().filter(|episode| episode.reward().is_some_and(|reward| reward >= 1.0));
        good.map(|episode| Sequence::from_log(&episode.tokens)).collect()
    }
}

/// Imitates demonstrations of `tasks`, in order and each once, until the exact match on `problem.dev` is reached or the
/// steps or tasks are used up. The engine holds the final weights. Returns the last exact match.
///
/// # Errors
/// [`RunError`] when the engine is gone or the caller stops the run.
pub async fn warm_start(
    learner: &mut Learner,
    problem: &Problem,
    mut tasks: impl Iterator<Item = Task>,
    demonstrator: &Demonstrator,
    config: &WarmStartConfig,
    mut watch: impl FnMut(&Row) -> Control,
) -> Result<f64, RunError> {
    let mut em = 0.0;
    for step in 0..config.steps {
        let batch: Vec<Arc<Task>> = tasks.by_ref().take(config.demonstrations_per_step).map(Arc::new).collect();
        let mut sequences = demonstrator.sequences(&batch, step).await;
        if step < config.pretrain_steps {
            for sequence in &mut sequences {
                sequence.targets = (1..sequence.ids.len()).collect();
            }
        }
        if sequences.is_empty() {
            break;
        }
        let stats = learner.imitate(&sequences);
        let mut row = Row::new(step);
        row.set("sft/loss", stats.loss);
        row.set("optim/grad_norm", stats.grad_norm);
        row.set("optim/tokens", stats.tokens as f64);
        let done = step + 1;
        if done.is_multiple_of(config.evaluate_every.max(1)) || done == config.steps {
            learner.publish().await.map_err(|error| RunError::Learn { step, source: error.into() })?;
            em = evaluate(learner, problem, Sampling::GREEDY, Seed::root(0)).await;
            row.set("val/em", em);
        }
        if watch(&row) == Control::Stop || em >= config.stop_at_em {
            break;
        }
    }
    learner.publish().await.map_err(|error| RunError::Learn { step: config.steps, source: error.into() })?;
    Ok(em)
}
