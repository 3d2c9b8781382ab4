//! A policy that grades its own episodes.

use std::sync::Arc;

use forage_contracts::environment::TurnKind;
use forage_contracts::policy::{Finish, Policy};
use forage_contracts::scripted::Scripted;
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Ending, Episode, Task, Turn};
use forage_env::rollout::Rollout;

use super::common::{Down, factory, rollout, settings};

/// An attempt that gave this answer after writing so much.
fn attempt(answer: &str, written: usize) -> Episode {
    let task = Task {
        golds: vec!["Orlen".to_owned()],
        ..Task::new("t", "Where was the mayor born?")
    };
    let turn = Turn {
        policy: format!("{}<answer>{answer}</answer>", "word ".repeat(written)),
        finish: Finish::Stop,
        kind: TurnKind::answer(answer),
        observation: String::new(),
        reward: 0.0,
    };
    Episode {
        turns: vec![turn],
        ..Episode::new(task)
    }
}

/// A policy that grades by the answer it sees.
fn grader() -> Arc<dyn Policy> {
    Arc::new(Scripted::human(Arc::new(ByteTokenizer), |view| {
        let replies = [
            ("Velm", Some("<answer>9</answer>")),
            ("Sarn", Some("<think>hm</think><answer> 2.5 </answer>")),
            ("Tol", Some("quite sure")),
            ("Mar", Some("<answer>11</answer>")),
            ("Gone", None),
        ];
        let shown = |name: &str| view.prompt.contains(&format!("< answer>{name}< /answer>"));
        let reply = replies.into_iter().find(|(name, _)| shown(name));
        reply.and_then(|(_, reply)| reply).map(str::to_owned)
    }))
}

#[tokio::test]
async fn a_policy_grades_its_episodes_without_the_accepted_answers() {
    let names = ["Velm", "Sarn", "Tol", "Mar"];
    let mut attempts: Vec<Episode> = names.map(|name| attempt(name, 3)).into();
    // The middle of a long one is left out.
    attempts.push(attempt("Velm", 20_000));
    let attempts: Vec<&Episode> = attempts.iter().collect();
    let plain = rollout(grader(), factory(settings(), Arc::new(Down)));
    let budget = plain.factory.spec().max_episode_tokens;
    let graded = plain.grading(&attempts, Seed::root(1), 2).await;
    let grades: Vec<Option<f64>> = graded.iter().map(Rollout::grade).collect();
    assert_eq!(grades, [Some(0.9), Some(0.25), None, None, Some(0.9)]);
    for episode in &graded {
        assert!(!episode.ending.is_infra(), "{}", episode.ending);
        assert!(!episode.prompt.contains("Orlen") && episode.prompt.len() < budget);
        assert!(episode.prompt.contains("Where was the mayor born?"));
    }
}

#[tokio::test]
async fn a_policy_that_is_gone_gives_no_bad_grade() {
    let attempt = attempt("Gone", 1);
    let plain = rollout(grader(), factory(settings(), Arc::new(Down)));
    let graded = plain.grading(&[&attempt], Seed::root(1), 1).await;
    assert!(matches!(graded[0].ending, Ending::Infra { .. }));
}
