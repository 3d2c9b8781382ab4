//! Grades of turns, and principles behind feedback.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::reward::Weighting;
use crate::reward::judge::verdict::{read_grades, read_principles};

fn set(server: &Server) -> RewardSet {
    let written = json!({
        "em": 1.0,
        "judge_turns": {"weight": 0.5, "url": server.url(), "model": "m", "attempts": 1},
    });
    let weights: BTreeMap<String, Weighting> = serde_json::from_value(written).expect("weights");
    RewardSet::configured(Outcome::Answer, &weights, Seed::root(0)).expect("usable")
}

/// A search, then the right answer.
fn played() -> Episode {
    let mut played = episode("<search>mayor</search>", None);
    let last = episode("<answer>Velm</answer>", Some("Velm"));
    played.turns.extend(last.turns);
    played
}

#[tokio::test]
async fn turns_are_paid_what_the_judge_grades_them() {
    let server = Server::start(|_| Act::Say(200, completion(r#"{"turns": [80, 25]}"#)));
    let mut played = played();
    played.turns[0].reward = 1.0;
    let score = set(&server).score(&played.task, &played).await;
    let score = score.expect("a score");
    let near = |left: f32, right: f32| (left - right).abs() < 1e-6;
    assert!(set(&server).turn_parts().eq(["judge_turns"]));
    // The total is that of the answer.
    assert!(near(score.total, 1.0), "{}", score.total);
    assert!(near(score.parts["judge_turns"], 0.525));
    assert!(near(score.parts["judge_turns_1"], 0.8));
    played.score = Some(score);
    let earned: Vec<f32> = played.turn_rewards().collect();
    assert!(
        near(earned[0], 1.4) && near(earned[1], 0.125) && earned.len() == 2,
        "{earned:?}"
    );
    let bodies = server.bodies();
    assert_eq!(bodies.len(), 1);
    for shown in ["TURN 1", "TURN 2", "< search>mayor< /search>", "ANSWERS"] {
        assert!(bodies[0].contains(shown), "{shown}");
    }
    // An episode without a turn has nothing to grade.
    played.turns.clear();
    let score = set(&server).score(&played.task, &played).await;
    assert!(score.expect("a score").turns.is_empty());
    assert_eq!(server.bodies().len(), 1);
}

#[tokio::test]
async fn replies_that_are_no_grades_are_faults_of_ours() {
    for reply in [
        r#"{"turns": [80]}"#,
        r#"{"turns": [80, 101]}"#,
        r#"{"turns": [80, -1]}"#,
        r#"{"turns": [80, "25"]}"#,
        r#"{"turns": [80, 25], "why": ""}"#,
        "[80, 25]",
    ] {
        assert!(read_grades(reply, 2).is_err(), "{reply}");
    }
    let server = Server::start(|_| Act::Say(200, completion(r#"{"turns": []}"#)));
    let played = played();
    let error = set(&server).score(&played.task, &played).await;
    let error = error.expect_err("a fault of ours").to_string();
    assert!(error.contains("0 grades of 2 turns"), "{error}");
    assert_eq!(server.bodies().len(), 2);
}

#[tokio::test]
async fn more_turns_than_a_judge_can_grade_are_the_policys_doing() {
    // One that gives a grade however many turns there are, and one that takes a single turn.
    let acts: [fn(&str) -> Act; 2] = [
        |_| Act::Say(200, completion(r#"{"turns": [80]}"#)),
        |body| {
            if body.contains("agent's 1 turns") {
                Act::Say(200, completion(r#"{"turns": [80]}"#))
            } else {
                Act::Say(400, "too many".to_owned())
            }
        },
    ];
    for act in acts {
        let server = Server::reading(move |_, body| act(body));
        let mut long = played();
        // More than the least number of characters that are shown.
        long.turns = vec![long.turns[0].clone(); 600];
        let score = set(&server).score(&long.task, &long).await;
        let score = score.expect("graded");
        assert!(score.parts["judge_turns"].abs() < 1e-6, "{score:?}");
        // It is counted, and the count is not a turn's pay.
        let counted = score.parts["judge_turns_refused"];
        assert_eq!((counted, score.turns), (1.0, vec![0.0; 600]));
        let bodies = server.bodies();
        let harmless = &bodies[bodies.len() - 2];
        assert!(harmless.contains("agent's 1 turns") && harmless.contains("[left out]"));
        assert_eq!(bodies[bodies.len() - 1], bodies[bodies.len() - 3]);
    }
}

#[tokio::test]
async fn principles_are_drawn_from_feedback() {
    let reply = r#"{"principles": ["The answer names its source."]}"#;
    let server = Server::start(move |_| Act::Say(200, completion(reply)));
    let judge = Judge::new(settings(&server)).expect("settings");
    let found = judge.principles("Where is that from?", "", "Velm").await;
    assert_eq!(found.expect("read"), ["The answer names its source."]);
    let body = &server.bodies()[0];
    assert!(body.contains("FEEDBACK") && body.contains("Where is that from?"));
    assert!(!body.contains("<<<QUESTION"), "nothing is known of it");
    for reply in [
        r#"{"principles": [" "]}"#,
        r#"{"principles": "one"}"#,
        r#"["one"]"#,
    ] {
        assert!(read_principles(reply).is_err(), "{reply}");
    }
    assert_eq!(read_principles(r#"{"principles": []}"#), Ok(Vec::new()));
}
