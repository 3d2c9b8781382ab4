//! Warm start: a small decoder learns the protocol from oracle demonstrations, and is stopped before it has learned all.

use std::sync::Arc;

use forage_contracts::environment::EnvFactory;
use forage_contracts::scripted::{Haste, OracleStyle};
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Task, Tokenizer};
use forage_env::reward::RewardSet;
use forage_env::{InfraBudget, demonstrate};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::learner::Learner;
use crate::metrics::Row;
use crate::optim::AdamWConfig;
use crate::records::{Control, RunError};
use crate::run::{Problem, evaluate, style};
use crate::sequence::Sequence;

/// Questions passed over for each that is asked in a step, at most.
const MOST_PASSED: usize = 100;

/// The tokens of a demonstration that a stage learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Learned {
    /// The tokens that the oracle did not write: the question and the passages. Every passage opens with a name from the question,
    /// so predicting it teaches copying, which the few tokens of queries and answers teach only much later.
    Context,
    /// The tokens that the oracle wrote: supervised fine-tuning.
    Oracle,
    /// Both.
    All,
}

/// One stage of a warm start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Most optimizer steps.
    pub steps: u64,
    /// The tokens that are learned.
    pub(crate) learned: Learned,
    /// Learning rate.
    pub learning_rate: f64,
    /// Least share of the questions in a step that are answered by a number; others are passed over where there are too few. Numbers are
    /// rare in text, and beside many names a small policy does not come to copy them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<f64>,
    /// The shares of haste: what a hasty demonstrator shows is not how to be right, which is left for later to find out.
    #[serde(default)]
    #[schemars(schema_with = "haste")]
    pub haste: Haste,
}

/// The schema of [`Haste`], whose crate knows no schemas.
fn haste(_: &mut SchemaGenerator) -> Schema {
    let share = |of: &str| json!({"type": "number", "default": 0.0, "description": format!("Share of questions {of}.")});
    json_schema!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "guess": share("answered without a search, with a name from the question"),
            "skim": share("answered after the first search, with the first name or number that is read"),
            "early": share("answered with what the first hop finds, though more hops are asked; nothing where an episode is one turn"),
            "silent": share("whose program forgets to print, or whose turn holds no query; nothing with search tags"),
            "broken": share("whose program does not run, or whose query has to be repaired; nothing with search tags"),
            "direct": share("answered at once, and right, without the steps of a solution; nothing where something is searched"),
            "code": share("whose steps are written as code that nothing runs, in place of words; nothing where something is searched"),
        },
    })
}

/// Shape of a warm start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmStartConfig {
    /// Stages in order.
    pub stages: Vec<Stage>,
    /// Demonstrations per step, each of a question not seen before.
    pub demonstrations_per_step: usize,
    /// The optimizer; the stages set its learning rate.
    pub optimizer: AdamWConfig,
    /// The text that the oracle writes around its actions.
    #[schemars(schema_with = "style")]
    pub style: OracleStyle,
    /// Steps of the last stage between greedy evaluations on the development questions.
    pub evaluate_every: u64,
    /// Ends the last stage as soon as the environment's measure reaches this in an evaluation: early on purpose, so that
    /// something is left to learn.
    #[serde(alias = "stop_at_em")]
    pub stop_at: f64,
}

/// Makes demonstrations: oracle episodes in a problem's environment, written with the learner's tokenizer.
#[derive(Clone)]
pub struct Demonstrator {
    /// Makes environments.
    pub factory: Arc<dyn EnvFactory>,
    /// The learner's tokenizer.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// The text that the oracle writes around its actions.
    pub style: OracleStyle,
    /// Seed of the demonstrations.
    pub seed: Seed,
}

impl Demonstrator {
    /// Demonstrations of `tasks` that teach ([`Outcome::teaches`](forage_contracts::environment::Outcome::teaches)).
    ///
    /// # Errors
    /// [`RunError`] when too many were lost to infrastructure faults, or none reached the answer.
    pub async fn episodes(
        &self,
        tasks: &[Arc<Task>],
        haste: Haste,
        step: u64,
    ) -> Result<Vec<Episode>, RunError> {
        let outcome = self.factory.spec().outcome;
        let rewards = Arc::new(RewardSet::measure(outcome));
        let seed = self.seed.child("step", &[step]);
        let (factory, tokenizer) = (Arc::clone(&self.factory), Arc::clone(&self.tokenizer));
        let mut episodes =
            demonstrate(tasks, self.style, haste, factory, tokenizer, rewards, seed).await?;
        InfraBudget::default()
            .check(&episodes)
            .map_err(|source| RunError::Infra { step, source })?;
        episodes.retain(|episode| outcome.teaches(episode, haste == Haste::NONE));
        if episodes.is_empty() {
            Err(RunError::NoDemonstrations {
                step,
                tried: tasks.len(),
            })
        } else {
            Ok(episodes)
        }
    }
}

/// Learns from demonstrations of `tasks`, in order and each once, until the environment's measure on `problem.dev` is reached or
/// the stages are done. Returns the last one.
///
/// # Errors
/// [`RunError`] when the engine is gone, demonstrations fail or an update is not finite. A caller that stops it gets what
/// was reached.
pub async fn warm_start(
    learner: &mut Learner,
    problem: &Problem,
    mut tasks: impl Iterator<Item = Task>,
    demonstrator: &Demonstrator,
    config: &WarmStartConfig,
    mut watch: impl FnMut(&Row) -> Control,
) -> Result<f64, RunError> {
    let mut reached = 0.0;
    let mut step = 0;
    for (index, stage) in config.stages.iter().enumerate() {
        learner.set_learning_rate(stage.learning_rate);
        let last = index + 1 == config.stages.len();
        for done in 1..=stage.steps {
            let failed = |source| RunError::Learn { step, source };
            let batch = batch(&mut tasks, config.demonstrations_per_step, stage.numbers);
            let episodes = demonstrator.episodes(&batch, stage.haste, step).await?;
            let mut sequences: Vec<_> = episodes
                .iter()
                .map(|episode| Sequence::from_log(&episode.tokens))
                .collect();
            choose_targets(&mut sequences, stage.learned);
            let mut row = learner.imitate(&sequences).map_err(failed)?.row(step);
            if last && (done.is_multiple_of(config.evaluate_every.max(1)) || done == stage.steps) {
                learner.publish().await.map_err(failed)?;
                let (budget, seed) = (InfraBudget::default(), Seed::root(0));
                if let Some(found) =
                    evaluate(learner, problem, budget, seed, step, &mut row).await?
                {
                    reached = found;
                }
            }
            step += 1;
            if watch(&row) == Control::Stop || (last && reached >= config.stop_at) {
                return Ok(reached);
            }
        }
    }
    Ok(reached)
}

/// The next `count` of `tasks`, of which at least a share is answered by a number: others are passed over once the rest is full. What
/// has been passed over for long is taken all the same, since there may be no numbers.
fn batch(
    tasks: &mut impl Iterator<Item = Task>,
    count: usize,
    numbers: Option<f64>,
) -> Vec<Arc<Task>> {
    let wanted = numbers.map_or(0, |share| (share * count as f64).ceil() as usize);
    let mut others = count.saturating_sub(wanted);
    let mut passed = 0;
    let is_number = |task: &Task| {
        let gold = task.golds.first();
        gold.is_some_and(|gold| gold.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let fits = |task: &Task| {
        if is_number(task) || passed >= MOST_PASSED * count {
            return true;
        }
        let fits = others > 0;
        others -= usize::from(fits);
        passed += usize::from(!fits);
        fits
    };
    tasks.filter(fits).take(count).map(Arc::new).collect()
}

/// Sequences come with the oracle's tokens as targets.
fn choose_targets(sequences: &mut [Sequence], learned: Learned) {
    for sequence in sequences {
        let all = 1..sequence.ids.len();
        match learned {
            Learned::Oracle => {}
            Learned::All => sequence.targets = all.collect(),
            Learned::Context => {
                let written = std::mem::take(&mut sequence.targets);
                sequence.targets = all
                    .filter(|position| written.binary_search(position).is_err())
                    .collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Questions of which every fifth is answered by a number, by index.
    fn questions() -> impl Iterator<Item = Task> {
        (0..).map(|index| {
            let gold = if index % 5 == 0 { "1856" } else { "Bapo Kelto" };
            Task {
                golds: vec![gold.to_owned()],
                ..Task::new(index.to_string(), "?")
            }
        })
    }

    #[test]
    fn a_stage_asks_for_numbers_until_their_share_is_there() {
        let mut tasks = questions();
        let ids = |batch: Vec<Arc<Task>>| -> Vec<String> {
            batch.iter().map(|task| task.id.clone()).collect()
        };
        assert_eq!(ids(batch(&mut tasks, 4, None)), ["0", "1", "2", "3"]);
        assert_eq!(ids(batch(&mut tasks, 4, Some(0.5))), ["4", "5", "6", "10"]);
        // The next step goes on behind the last question, and numbers that come of themselves are kept.
        let all = ids(batch(&mut tasks, 3, Some(1.0)));
        assert_eq!(all, ["15", "20", "25"]);
        assert_eq!(ids(batch(&mut tasks, 6, Some(0.1))).len(), 6);
    }

    #[test]
    fn a_stage_without_numbers_ends() {
        let mut tasks = questions().filter(|task| task.golds[0] != "1856");
        assert_eq!(batch(&mut tasks, 3, Some(0.5)).len(), 3);
    }
}
