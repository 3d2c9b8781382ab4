//! Texts on which a judge gives no verdict while it gives one without them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use forage_contracts::Score;

use super::*;
use crate::reward::Weighting;
use crate::rollout::EpisodeRecord;

/// A judge that does this with what holds `poison`, and grades everything else.
fn filtered(act: impl Fn() -> Act + Send + Sync + 'static) -> Server {
    Server::reading(move |_, body| {
        if body.contains("poison") {
            return act();
        }
        let together =
            (1..9_usize).find(|count| body.contains(&format!("of these {count} agents")));
        let turns = (1..9_usize).find(|count| body.contains(&format!("agent's {count} turns")));
        let reply = match (together, turns) {
            (Some(count), _) => format!("{{\"verdicts\": [{}]}}", vec![VERDICT; count].join(",")),
            (None, Some(count)) => json!({"turns": vec![80; count]}).to_string(),
            _ if body.contains("what A did") => r#"{"advice": "Search first."}"#.to_owned(),
            _ if body.contains("two answers is better") => r#"{"better": "tie"}"#.to_owned(),
            _ => VERDICT.to_owned(),
        };
        Act::Say(200, completion(&reply))
    })
}

/// A verdict that `max_tokens` has cut off.
fn cut() -> Act {
    Act::Say(200, completion(VERDICT).replace("stop", "length"))
}

/// Thoughts alone, of a parser for reasoning.
fn thoughts() -> Act {
    let thought = r#"{"choices": [{"message": {"content": "", "reasoning_content": "hm"}}]}"#;
    Act::Say(200, thought.to_owned())
}

/// A server that says that it failed.
fn boom() -> Act {
    Act::Say(500, "boom".to_owned())
}

#[tokio::test]
async fn a_text_without_a_verdict_is_wrong_where_the_judge_gives_one_without_it() {
    let acts: [(fn() -> Act, usize); 6] = [
        (|| Act::Say(400, "content filter".to_owned()), 1),
        (|| Act::Say(422, "content filter".to_owned()), 1),
        (|| Act::Say(200, completion("I cannot grade this.")), 2),
        (cut, 2),
        (thoughts, 2),
        (boom, 2),
    ];
    for (act, tries) in acts {
        let server = filtered(act);
        let judged = judged(settings(&server));
        let refused = (0.0, vec![("refused".to_owned(), 1.0)]);
        assert_eq!(score(&judged, "poison").await.expect("graded"), refused);
        let bodies = server.bodies();
        assert_eq!(
            bodies.len(),
            tries + 1 + tries,
            "one harmless question, and the text's again"
        );
        let harmless = &bodies[tries];
        assert!(harmless.contains("[left out]") && harmless.contains("ACCEPTED ANSWERS"));
        assert_eq!(bodies[tries + 1], bodies[0]);
        let (fine, _) = score(&judged, "Velm").await.expect("graded");
        assert!((fine - 0.95).abs() < 1e-6, "{fine}");
    }
    let server = filtered(|| Act::Say(400, "content filter".to_owned()));
    let rewards = RewardSet::exact_match().with(Box::new(judged(settings(&server))), 1.0);
    let poison = episode("<answer>poison</answer>", Some("poison"));
    let score = rewards.score(&poison.task, &poison).await.expect("graded");
    assert_eq!(
        (score.parts["judge"], score.parts["judge_refused"]),
        (0.0, 1.0)
    );
}

#[tokio::test]
async fn a_judge_that_stumbles_is_asked_once_more_before_a_text_is_to_blame() {
    type Fault = (fn() -> Act, fn() -> Act, &'static str);
    let stumbling = |first: fn() -> Act, then: fn() -> Act| {
        Server::start(move |number| match number {
            0 | 1 => first(),
            // The harmless question.
            2 => Act::Say(200, completion(VERDICT)),
            _ => then(),
        })
    };
    let muttering: fn() -> Act = || Act::Say(200, completion("hm"));
    for first in [muttering, cut, boom] {
        let server = stumbling(first, || Act::Say(200, completion(VERDICT)));
        let (found, _) = score(&judged(settings(&server)), "Velm")
            .await
            .expect("graded");
        assert!((found - 0.95).abs() < 1e-6, "{found}");
        assert_eq!(server.bodies().len(), 4);
    }
    // What a server that fails by itself does is not the text's doing.
    let down: fn() -> Act = || Act::Say(503, "down".to_owned());
    let failing: [Fault; 3] = [
        (muttering, boom, "HTTP status 500"),
        (cut, boom, "HTTP status 500"),
        (boom, down, "HTTP status 503"),
    ];
    for (first, then, part) in failing {
        let server = stumbling(first, then);
        let error = score(&judged(settings(&server)), "Velm").await;
        let error = error.expect_err("a fault of ours").to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(server.bodies().len(), 5);
    }
}

#[tokio::test]
async fn a_judge_that_fails_is_a_fault_whatever_it_was_asked() {
    // A proxy's error page does not count as a reply, and a server that is down is not asked the control question.
    type Fault = (fn() -> Act, &'static str);
    let failing: [Fault; 4] = [
        (|| Act::Say(200, "<html>".to_owned()), "fit the protocol"),
        (
            || Act::Say(200, r#"{"error": {"message": "slow down"}}"#.to_owned()),
            "slow down",
        ),
        (|| Act::Say(503, "down".to_owned()), "HTTP status 503"),
        (|| Act::Close, "cannot connect"),
    ];
    for (act, part) in failing {
        let server = filtered(act);
        let error = score(&judged(settings(&server)), "poison").await;
        let error = error.expect_err("a fault of ours").to_string();
        assert!(error.contains(part), "{part}: {error}");
        assert_eq!(server.bodies().len(), 2, "{part}");
    }
    // One that cuts off the reply to any question, or thinks through it, has too few tokens, and says so.
    let short: [Fault; 2] = [(cut, "raise max_tokens"), (thoughts, "switch thinking off")];
    for (act, part) in short {
        let server = Server::start(move |_| act());
        let judged = judged(settings(&server));
        // The harmless question is not asked again for a while.
        for (answer, asked) in [("poison", 4), ("Velm", 6)] {
            let error = score(&judged, answer).await.expect_err("a fault of ours");
            assert!(error.to_string().contains(part), "{part}: {error}");
            assert_eq!(server.bodies().len(), asked, "{part}");
        }
    }
    // A spent budget leaves no harmless question.
    let server = filtered(|| Act::Say(400, "content filter".to_owned()));
    let spent = JudgeSettings {
        max_calls: Some(1),
        ..settings(&server)
    };
    assert!(score(&judged(spent), "poison").await.is_err());
    assert_eq!(server.bodies().len(), 1);
    // One that refuses everything from some moment on; a harmless question that it has refused waits a while.
    let broken = Arc::new(AtomicBool::new(false));
    let breaks = Arc::clone(&broken);
    let server = Server::reading(move |_, body| {
        if breaks.load(Ordering::SeqCst) || body.contains("poison") {
            return Act::Say(400, "no such model".to_owned());
        }
        Act::Say(200, completion(VERDICT))
    });
    let judged = judged(settings(&server));
    assert!(score(&judged, "poison").await.is_ok());
    broken.store(true, Ordering::SeqCst);
    for (answer, asked) in [("poison", 5), ("poison", 6), ("other", 7)] {
        let error = score(&judged, answer).await.expect_err("a fault of ours");
        assert!(error.to_string().contains("no such model"), "{error}");
        assert_eq!(server.bodies().len(), asked, "{answer}");
    }
}

async fn parts(written: serde_json::Value, members: &[&str], name: &str) -> Vec<f32> {
    let weights: BTreeMap<String, Weighting> = serde_json::from_value(written).expect("weights");
    let rewards = RewardSet::configured(Outcome::Answer, &weights, Seed::root(0));
    let rewards = rewards.expect("usable");
    let mut episodes = Vec::new();
    for (member, &answer) in (0..).zip(members) {
        let mut episode = Episode {
            member,
            ..episode(answer, Some(answer))
        };
        let score = rewards.score(&episode.task, &episode).await;
        episode.score = Some(score.expect("scored"));
        episodes.push(episode);
    }
    let group: Vec<&Episode> = episodes.iter().collect();
    let scores = rewards.score_group(&group[0].task, &group).await;
    let scores = scores.expect("scored");
    let part = |score: &Score| score.parts.get(name).copied().unwrap_or(0.0);
    scores.iter().map(part).collect()
}

#[tokio::test]
async fn a_member_without_a_verdict_costs_the_others_of_its_group_nothing() {
    let acts: [fn() -> Act; 3] = [|| Act::Say(400, "content filter".to_owned()), cut, boom];
    for act in acts {
        others_are_graded(&filtered(act)).await;
    }
}

async fn others_are_graded(server: &Server) {
    let of = |name: &str| {
        let settings = json!({"weight": 1.0, "url": server.url(), "model": "m", "attempts": 1});
        json!({name: settings})
    };
    let members = ["Velm", "poison", "Orlen"];
    let near = |found: Vec<f32>, expected: [f32; 3]| {
        assert!(
            found
                .iter()
                .zip(expected)
                .all(|(found, expected)| (found - expected).abs() < 1e-6),
            "{found:?}"
        );
    };
    near(
        parts(of("judge_batch"), &members, "judge_batch").await,
        [0.95, 0.0, 0.95],
    );
    near(
        parts(of("judge_turns"), &members, "judge_turns").await,
        [0.8, 0.0, 0.8],
    );
    // Ties between the others, and a loss to each of them.
    near(
        parts(of("tournament"), &members, "tournament").await,
        [0.75, 0.0, 0.75],
    );
    for name in ["judge_batch", "judge_turns", "tournament"] {
        let counted = format!("{name}_refused");
        near(parts(of(name), &members, &counted).await, [0.0, 1.0, 0.0]);
    }
    near(
        parts(
            of("tournament"),
            &["poison a", "poison b", "Velm"],
            "tournament",
        )
        .await,
        [0.25, 0.25, 1.0],
    );
}

#[tokio::test]
async fn experience_leaves_out_a_pair_that_the_judge_refuses() {
    let attempt = |question: &str, answer: &str, total: f32| -> EpisodeRecord {
        let score = Score {
            total,
            ..Score::default()
        };
        let task = Task {
            question: question.to_owned(),
            ..task(question, &["Velm"])
        };
        Episode {
            task,
            score: Some(score),
            ..episode(answer, Some(answer))
        }
        .into()
    };
    let records = [
        attempt("a?", "Velm", 1.0),
        attempt("a?", "poison", 0.0),
        attempt("b?", "Velm", 1.0),
        attempt("b?", "Orlen", 0.0),
    ];
    let server = filtered(|| Act::Say(400, "content filter".to_owned()));
    let judge = Judge::new(settings(&server)).expect("settings");
    let found = EpisodeRecord::experiences(&records, Some(&judge)).await;
    let expected = [json!({"question": "b?", "text": "Search first."})];
    assert_eq!(found.expect("no fault of ours"), expected);
    let down = Server::start(|_| Act::Say(500, "boom".to_owned()));
    let judge = Judge::new(settings(&down)).expect("settings");
    let found = EpisodeRecord::experiences(&records, Some(&judge)).await;
    assert!(found.is_err());
}
