//! Fits equal `SciPy`'s (`trainer/tests/fixtures/make_hints_fixture.py`), and rounds come nearer to where a policy is right half of the
//! time.

use std::collections::BTreeSet;
use std::sync::Mutex;

use async_trait::async_trait;
use forage_contracts::policy::{Completion, Finish, GenerateRequest, PolicyError, Sampling};
use forage_contracts::scripted::Scripted;
use forage_contracts::seed::Seed;
use forage_contracts::{Provenance, Task};
use serde_json::{Value, json};

use super::*;
use crate::run::{Problem, group_jobs};
use crate::sample::Sample;
use crate::tests::common::problem::{checkpoint, problem_of};
use crate::tests::common::{floats, json as fixture};

fn close(found: f64, expected: f64, what: &str) {
    assert!(
        (found - expected).abs() < 1e-6,
        "{what}: {found} is not {expected}"
    );
}

#[test]
fn response_models_equal_scipy() {
    let fixture = fixture("hints.json");
    let (targets, shares) = (floats(&fixture["targets"]), floats(&fixture["at"]));
    let cases = fixture["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let seen = |pair: &Value| Seen {
            share: pair[0].as_f64().unwrap(),
            accuracy: pair[1].as_f64().unwrap(),
        };
        let episodes = case["episodes"].as_array().unwrap();
        let episodes: Vec<Seen> = episodes.iter().map(seen).collect();
        let model = Response::fit(&episodes);
        for (share, expected) in shares.iter().zip(floats(&case["accuracies"])) {
            close(model.accuracy(*share), expected, name);
        }
        for (target, expected) in targets.iter().zip(floats(&case["shares"])) {
            close(model.share(*target), expected, name);
        }
    }
}

/// Answers at once, rightly where it has read `needs` findings.
fn novice(cast: Cast, needs: usize) -> Scripted {
    Scripted::knowing(cast, move |task, view, _, _| {
        let read = view.prompt.matches("<information>").count();
        let answer = if read >= needs {
            task.golds[0].as_str()
        } else {
            "nobody"
        };
        Ok(format!("<answer>{answer}</answer>"))
    })
}

/// Questions of three hops whose oracle has room for its turns.
fn three_hops() -> (Problem, Arc<dyn forage_contracts::Tokenizer>) {
    let start = checkpoint(1);
    let settings = json!({
        "prompt": "short",
        "top_k": 3,
        "max_generations": 6,
        "max_turn_tokens": 200,
        "max_episode_tokens": 4000,
    });
    let mut problem = problem_of(&start, &[("em", 1.0)], settings);
    let long = |task: &&Arc<Task>| task.hops == 3;
    problem.train = problem.train.iter().filter(long).take(4).cloned().collect();
    assert!(problem.train.len() > 1);
    (problem, Arc::new(start.tokenizer.clone()))
}

/// The groups of eight that a policy which needs so many findings plays in four rounds, the first of which begins with a share of the
/// oracle's turns.
async fn played(needs: usize, first: f64) -> Vec<Vec<Episode>> {
    let (problem, tokenizer) = three_hops();
    let cast = || Cast::new(Arc::clone(&tokenizer), problem.train.iter().cloned());
    let rollout = Rollout {
        policy: Arc::new(novice(cast(), needs)),
        tokenizer: Arc::clone(&tokenizer),
        factory: Arc::clone(&problem.factory),
        rewards: Arc::clone(&problem.rewards),
        sampling: Sampling::FULL,
        presentation: problem.presentation.clone(),
    };
    let entry = registry::find(&problem.factory.spec().id).unwrap();
    let hints = Hints {
        config: HintConfig {
            rounds: 4,
            first,
            target: 0.5,
            style: OracleStyle::Terse,
        },
        oracle: entry.script(ScriptEntry::ORACLE, cast()).unwrap(),
    };
    let jobs = group_jobs(&problem.train, 8, Seed::root(5));
    let order: Vec<(u64, u64)> = jobs.iter().map(|job| (job.group, job.member)).collect();
    let episodes = hints.play(&rollout, jobs).await;
    let found = episodes
        .iter()
        .map(|episode| (episode.group, episode.member));
    assert_eq!(found.collect::<Vec<_>>(), order);
    let groups: Vec<Vec<Episode>> = episodes.chunks(8).map(<[Episode]>::to_vec).collect();
    // Some of the oracle's episodes may fail; they give no hints.
    let shown = |group: &Vec<Episode>| group.iter().any(|episode| episode.hinted > 0);
    groups.into_iter().filter(shown).collect()
}

#[tokio::test]
async fn rounds_come_to_where_the_policy_is_right_half_of_the_time() {
    // One that needs two findings of three, and begins without any: hints grow until it is right.
    let groups = played(2, 0.0).await;
    assert!(!groups.is_empty());
    for group in &groups {
        let hinted: Vec<usize> = group.iter().map(|episode| episode.hinted).collect();
        assert_eq!(hinted[..2], [0, 0], "the first round");
        for round in hinted.chunks(2) {
            assert_eq!(round[0], round[1], "a round has one length");
        }
        let right: BTreeSet<bool> = group
            .iter()
            .map(|episode| episode.reward() == Some(1.0))
            .collect();
        assert_eq!(right.len(), 2, "both outcomes in {hinted:?}");
        for episode in group {
            assert_eq!(episode.reward() == Some(1.0), episode.hinted >= 2);
            // What was given is read, and not learned.
            let sample = Sample::of(episode).unwrap();
            assert_eq!((sample.turns.len(), sample.turn_rewards.len()), (1, 1));
            let written = episode.tokens.count(Provenance::Policy);
            assert_eq!(sample.sequence.targets.len(), written);
        }
    }
    // One that needs none, and begins with all but the answer: hints are taken away.
    for group in played(0, 1.0).await {
        let (first, last) = (group[0].hinted, group[7].hinted);
        assert!(first == 3 && last < first, "{first}, {last}");
    }
}

/// A policy that samples nothing in the first turn of an episode.
struct LateStarter {
    policy: Arc<dyn Policy>,
    begun: Mutex<BTreeSet<u64>>,
}

#[async_trait]
impl Policy for LateStarter {
    fn version(&self) -> u64 {
        self.policy.version()
    }

    async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
        if !self.begun.lock().unwrap().insert(request.episode) {
            return self.policy.generate(request).await;
        }
        Ok(Completion {
            tokens: Vec::new(),
            logprobs: Vec::new(),
            finish: Finish::Eos,
            version: self.version(),
        })
    }
}

#[tokio::test]
async fn a_turn_without_tokens_gives_no_hint_and_loses_no_episode() {
    let (problem, tokenizer) = three_hops();
    let cast = || Cast::new(Arc::clone(&tokenizer), problem.train.iter().cloned());
    let entry = registry::find(&problem.factory.spec().id).unwrap();
    let oracle: Arc<dyn Policy> = Arc::new(LateStarter {
        policy: entry.script(ScriptEntry::ORACLE, cast()).unwrap(),
        begun: Mutex::default(),
    });
    let rollout = Rollout {
        policy: Arc::clone(&oracle),
        tokenizer: Arc::clone(&tokenizer),
        factory: Arc::clone(&problem.factory),
        rewards: Arc::clone(&problem.rewards),
        sampling: Sampling::FULL,
        presentation: problem.presentation.clone(),
    };
    let jobs = || group_jobs(&problem.train, 2, Seed::root(5));
    let alone = rollout.run(jobs()).await;
    let right =
        |episode: &Episode| episode.reward() == Some(1.0) && episode.turns[0].policy.is_empty();
    assert!(alone.iter().any(right), "it is right");
    let hints = Hints {
        config: HintConfig {
            rounds: 1,
            first: 1.0,
            target: 0.5,
            style: OracleStyle::Terse,
        },
        oracle,
    };
    let novice = Rollout {
        policy: Arc::new(novice(cast(), 0)),
        ..rollout
    };
    for episode in hints.play(&novice, jobs()).await {
        assert!(!episode.ending.is_infra(), "{:?}", episode.ending);
        assert_eq!((episode.hinted, episode.reward()), (0, Some(1.0)));
    }
}

#[test]
fn hints_that_cannot_be_given_are_refused() {
    let grpo = |written: Value, trees: Option<usize>| GrpoConfig {
        group_size: 4,
        trees,
        hints: Some(serde_json::from_value(written).unwrap()),
        ..GrpoConfig::default()
    };
    let good = json!({"rounds": 2, "first": 0.5});
    assert_eq!(grpo(good.clone(), None).check_hints(), Ok(()));
    let recomposition = json!({"share": 0.5, "compensation": 0.0, "capacity": 1});
    let shortened = GrpoConfig {
        recomposition: Some(serde_json::from_value(recomposition).unwrap()),
        ..grpo(good.clone(), None)
    };
    let error = shortened.check_hints().unwrap_err().to_string();
    assert!(error.contains("remove grpo.recomposition"), "{error}");
    for (written, trees, expected) in [
        (json!({"rounds": 0, "first": 0.5}), None, "rounds is 0"),
        (json!({"rounds": 5, "first": 0.5}), None, "1 to 4"),
        (json!({"rounds": 2, "first": 1.5}), None, "first is 1.5"),
        (
            json!({"rounds": 2, "first": 0.5, "target": 1.0}),
            None,
            "target is 1",
        ),
        (good, Some(2), "remove grpo.trees"),
    ] {
        let error = grpo(written, trees).check_hints().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
