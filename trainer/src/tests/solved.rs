//! Runs that search for answers by trees, and stop searching where they have one.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::reward::{Reward, RewardError};
use forage_contracts::{Episode, Metric, Task};
use forage_env::reward::RewardSet;
use forage_trainer::metrics::Row;
use forage_trainer::run::{Control, GrpoConfig, RunError, RunPlace, Source, run_grpo};
use forage_trainer::{AdamWConfig, UpdateConfig};

use crate::tests::common::problem::{checkpoint, learner, problem, weights};

const GROUP: usize = 4;

/// One episode in four is right: an untrained policy never is.
struct Coin;

#[async_trait]
impl Reward for Coin {
    fn name(&self) -> &'static str {
        Outcome::Answer.measure()
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let drawn = episode.seed.unwrap().child("coin", &[episode.member]);
        Ok(if drawn.0.is_multiple_of(4) { 1.0 } else { 0.0 })
    }
}

fn config() -> GrpoConfig {
    let optimizer = AdamWConfig {
        learning_rate: 1e-3,
        ..AdamWConfig::default()
    };
    GrpoConfig {
        steps: 8,
        prompts_per_step: 2,
        group_size: GROUP,
        trees: Some(1),
        branching: serde_json::from_value(serde_json::json!({"frontier": {}})).unwrap(),
        solved: 2,
        confident_wrong: true,
        lookahead: 1,
        update: UpdateConfig {
            optimizer,
            micro_batch_tokens: 300,
            ..UpdateConfig::default()
        },
        checkpoint_every: 1,
        ..GrpoConfig::default()
    }
}

/// A group: its question, whether members branch off one another, whether one was right, and how many carry loss though they were wrong.
type Played = (String, bool, bool, usize);

fn is_right(episode: &Episode) -> bool {
    episode.score.as_ref().unwrap().parts["em"] > 0.5
}

fn played(group: &[Episode]) -> Played {
    let learned = |episode: &&Episode| {
        let treated = episode
            .tokens
            .spans()
            .iter()
            .any(|span| span.treatment.is_some());
        !is_right(episode) && !treated
    };
    (
        group[0].task.id.clone(),
        group.iter().any(|episode| episode.branch.is_some()),
        group.iter().any(is_right),
        group.iter().filter(learned).count(),
    )
}

/// The groups of each step with the number of those that a kept episode joined.
type Steps = Vec<(Vec<Played>, f64)>;

async fn run(
    folder: &Path,
    resume: bool,
    stop_after: usize,
) -> (Result<(), RunError>, Vec<u8>, Steps) {
    let start = checkpoint(1);
    let mut problem = problem(&start, &[("random", 1.0)]);
    problem.train = problem.train.iter().take(2).cloned().collect();
    let rewards = RewardSet::measure(Outcome::Answer).with(Box::new(Coin), 1.0);
    problem.rewards = Arc::new(rewards);
    let config = config();
    let mut learner = Box::new(learner(start, config.update.clone()));
    let place = RunPlace {
        folder: folder.to_owned(),
        seed: 11,
        config_digest: "one".to_owned(),
        resume,
        ranks: None,
    };
    let mut steps = Steps::new();
    let source = Source::Play(&problem);
    let ran = run_grpo(&mut learner, source, &config, &place, |row, episodes, _| {
        let groups = episodes.chunks(GROUP).map(played).collect();
        steps.push((groups, row.get(Metric::REPLAY_SOLUTIONS).unwrap()));
        if steps.len() >= stop_after {
            Control::Stop
        } else {
            Control::Continue
        }
    });
    let result = Box::pin(ran).await;
    (result, weights(&learner), steps)
}

/// Metrics without what the clock says.
fn rows(folder: &Path) -> Vec<String> {
    let rows = Row::read_all(&folder.join("metrics.jsonl")).unwrap();
    rows.into_iter()
        .map(|mut row| {
            row.0.retain(|name, _| !name.starts_with("time/"));
            serde_json::Value::Object(row.0).to_string()
        })
        .collect()
}

#[tokio::test]
async fn what_was_solved_is_not_searched_again_and_a_resumed_run_knows_it() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (result, expected, steps) = run(whole.path(), false, usize::MAX).await;
    result.unwrap();
    let (mut solved, mut joined) = (BTreeSet::new(), 0.0);
    for (groups, found) in &steps {
        let none = |group: &&Played| solved.contains(&group.0) && !group.2;
        let expected = groups.iter().filter(none).count() as f64;
        assert!((found - expected).abs() < 0.5, "{groups:?}: {found}");
        joined += found;
        for (question, is_tree, _, learned) in groups {
            assert_eq!(*is_tree, !solved.contains(question), "{groups:?}");
            assert!(*learned <= 1, "{groups:?}");
        }
        let right = groups.iter().filter(|group| group.2);
        solved.extend(right.map(|group| group.0.clone()));
    }
    assert!(joined > 0.0 && solved.len() == 2, "{steps:?}");
    let (first, _, _) = run(broken.path(), false, 3).await;
    assert!(
        matches!(first, Err(RunError::Interrupted { step: 3, .. })),
        "{first:?}"
    );
    let (second, found, _) = run(broken.path(), true, usize::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
}

#[tokio::test]
async fn a_run_refuses_trees_that_cannot_grow() {
    let folder = tempfile::tempdir().unwrap();
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let mut learner = learner(start, config().update);
    let recorded = [Vec::new()];
    for (source, trees, expected) in [
        (Source::Play(&problem), Some(GROUP), "[grpo]: trees is 4"),
        (Source::Play(&problem), None, "[grpo]: branching is set"),
        (
            Source::Recorded(&recorded),
            Some(1),
            "[grpo]: branching is set, and recorded rollouts",
        ),
    ] {
        let config = GrpoConfig { trees, ..config() };
        let place = RunPlace {
            folder: folder.path().to_owned(),
            seed: 11,
            config_digest: "one".to_owned(),
            resume: false,
            ranks: None,
        };
        let ran = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
            Control::Stop
        });
        let error = Box::pin(ran).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
