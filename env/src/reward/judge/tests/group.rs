//! A judge of groups: whole rollouts whose members are compared with each other.

use std::collections::BTreeMap;

use forage_contracts::Episode;
use forage_contracts::environment::Outcome;

use super::*;
use crate::reward::Weighting;
use crate::reward::judge::verdict::read_verdicts;
use crate::rollout::stage::judge_groups;

/// The words between the fences of a part.
fn part<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<<<{name} "))?;
    rest.split("\\n").nth(1)
}

fn rewards(written: &serde_json::Value) -> Result<RewardSet, crate::reward::RewardSetError> {
    let rewards: BTreeMap<String, Weighting> =
        serde_json::from_value(written.clone()).expect("weights");
    RewardSet::configured(Outcome::Answer, &rewards, Seed::root(0))
}

fn members(answers: &[Option<&str>]) -> Vec<Episode> {
    let made = answers
        .iter()
        .map(|answer| episode(answer.unwrap_or("nothing"), *answer));
    (0..)
        .zip(made)
        .map(|(member, episode)| Episode { member, ..episode })
        .collect()
}

async fn parts(
    rewards: &RewardSet,
    episodes: &mut [Episode],
    name: &str,
) -> Result<Vec<f32>, RewardError> {
    for episode in episodes.iter_mut() {
        episode.score = Some(rewards.score(&episode.task, episode).await?);
    }
    let group: Vec<&Episode> = episodes.iter().collect();
    let scores = rewards.score_group(&group[0].task, &group).await?;
    Ok(scores.iter().map(|score| score.parts[name]).collect())
}

#[tokio::test]
async fn the_majority_is_of_normal_answers_and_the_first_among_equals() {
    let set = rewards(&serde_json::json!({"majority": 1.0, "em": 0.5})).expect("usable");
    for (answers, expected) in [
        (
            vec![Some("The Orlen"), Some("Velm"), Some("orlen."), None],
            vec![1.0, 0.0, 1.0, 0.0],
        ),
        (
            vec![None, Some("b"), Some("a"), Some("a"), Some("b")],
            vec![0.0, 1.0, 0.0, 0.0, 1.0],
        ),
        (vec![None, None], vec![0.0, 0.0]),
        (vec![Some("x")], vec![1.0]),
    ] {
        assert_eq!(
            parts(&set, &mut members(&answers), "majority")
                .await
                .expect("scored"),
            expected,
            "{answers:?}"
        );
    }
    let mut right = members(&[Some("Velm")]);
    parts(&set, &mut right, "majority").await.expect("scored");
    let group: Vec<&Episode> = right.iter().collect();
    let score = set
        .score_group(&group[0].task, &group)
        .await
        .expect("scored")
        .remove(0);
    assert!((score.total - 1.5).abs() < 1e-6, "{score:?}");
}

#[tokio::test]
async fn a_tournament_ranks_and_forgives_no_love_of_a_place() {
    // Prefers the longer answer, but calls every pair with an x for the place shown first.
    let server = Server::reading(|_, body| {
        let [a, b] = ["ANSWER A", "ANSWER B"].map(|name| part(body, name).unwrap_or_default());
        let better = if a.contains('x') || b.contains('x') || a.len() > b.len() {
            "A"
        } else {
            "B"
        };
        Act::Say(200, completion(&format!(r#"{{"better": "{better}"}}"#)))
    });
    let written = serde_json::json!({"tournament": {"weight": 1.0, "url": server.url(), "model": "m", "rounds": 8}});
    let set = rewards(&written).expect("usable");
    let mut group = members(&[Some("aaa"), Some("bb"), Some("c"), None]);
    assert_eq!(
        parts(&set, &mut group, "tournament").await.expect("scored"),
        [1.0, 2.0 / 3.0, 1.0 / 3.0, 0.0]
    );
    // Three pairs in both orders; nobody was asked about the member without an answer.
    assert_eq!(server.bodies().len(), 6);
    let mut fond = members(&[Some("xxx"), Some("y"), Some("Y.")]);
    assert_eq!(
        parts(&set, &mut fond, "tournament").await.expect("scored"),
        [0.5, 0.5, 0.5]
    );
    assert_eq!(
        parts(&set, &mut members(&[Some("alone")]), "tournament")
            .await
            .expect("scored"),
        [0.5]
    );
}

#[tokio::test]
async fn a_knockout_compares_the_work_by_the_rubric() {
    // The longer way is better, whatever the answers.
    let server = Server::reading(|_, body| {
        assert!(
            body.contains("by these principles") && body.contains("1. It searched."),
            "{body}"
        );
        let [a, b] = ["EPISODE A", "EPISODE B"].map(|name| part(body, name).expect("an episode"));
        let better = if a.len() > b.len() { "A" } else { "B" };
        Act::Say(200, completion(&format!(r#"{{"better": "{better}"}}"#)))
    });
    let written = serde_json::json!({"tournament": {
        "weight": 1.0, "url": server.url(), "model": "m", "scheme": "single_elimination", "compares": "episodes",
        "rubric": ["It searched."],
    }});
    let set = rewards(&written).expect("usable");
    let mut group: Vec<Episode> = (0..)
        .zip(["aa", "aaaa", "a", "aaa"])
        .map(|(member, way)| Episode {
            member,
            ..episode(way, Some("Velm"))
        })
        .collect();
    for task in group.iter_mut().map(|episode| &mut episode.task) {
        task.golds.clear();
    }
    let found = parts(&set, &mut group, "tournament").await.expect("scored");
    let expected = [1.0 / 3.0, 1.0, 0.0, 2.0 / 3.0];
    assert!(
        found
            .iter()
            .zip(expected)
            .all(|(found, expected)| (found - expected).abs() < 1e-6),
        "{found:?}"
    );
    // Three games against the first member and three of the knockout, each in both orders; one pair meets twice, and is asked
    // about once.
    let bodies = server.bodies();
    assert_eq!(bodies.len(), 10);
    // Nothing is said of answers that nobody knows.
    assert!(bodies.iter().all(|body| !body.contains("ACCEPTED ANSWERS")));
}

#[tokio::test]
async fn a_batch_is_judged_in_one_request_and_every_verdict_finds_its_answer() {
    let server = Server::reading(|_, body| {
        let answers = (1..).map_while(|number| {
            part(body, &format!("ANSWER {number}"))
                .or_else(|| part(body, &format!("NO ANSWER WAS GIVEN {number}")))
        });
        let verdicts: Vec<_> = answers
            .map(|answer| serde_json::json!({"correct": answer != "b", "approach": 10 * answer.len()}))
            .collect();
        Act::Say(
            200,
            completion(&serde_json::json!({"verdicts": verdicts}).to_string()),
        )
    });
    let written = serde_json::json!({"judge_batch": {"weight": 1.0, "url": server.url(), "model": "m", "together": 3}});
    let set = rewards(&written).expect("usable");
    let mut group = members(&[Some("ccc"), Some("b"), None, Some("aa")]);
    let found = parts(&set, &mut group, "judge_batch")
        .await
        .expect("scored");
    let expected = [0.75 + 0.25 * 0.3, 0.25 * 0.1, 0.0, 0.75 + 0.25 * 0.2];
    assert!(
        found
            .iter()
            .zip(expected)
            .all(|(found, expected)| (found - expected).abs() < 1e-6),
        "{found:?}"
    );
    assert_eq!(server.bodies().len(), 2);
    for reply in [
        r#"{"verdicts": []}"#,
        r#"{"verdicts": [{"correct": true}]}"#,
        "[]",
        VERDICT,
    ] {
        assert!(read_verdicts(reply, 1).is_err(), "{reply}");
    }
}

#[tokio::test]
async fn a_group_without_verdicts_has_no_scores_and_others_keep_theirs() {
    let server = Server::reading(|_, body| {
        let lost = body.contains("lost");
        Act::Say(
            200,
            completion(if lost { "yes" } else { r#"{"better": "tie"}"# }),
        )
    });
    let written = serde_json::json!({
        "em": 1.0, "tournament": {"weight": 1.0, "url": server.url(), "model": "m", "attempts": 1, "timeout_s": 0.5},
    });
    let rewards = rewards(&written).expect("usable");
    let mut episodes = Vec::new();
    for (group, question) in [(0, "lost?"), (1, "kept?"), (0, "lost?"), (1, "kept?")] {
        let answer = format!("answer {}", episodes.len());
        let task = Task {
            question: question.to_owned(),
            ..task(question, &["Velm"])
        };
        let mut episode = Episode {
            task,
            group,
            ..episode(&answer, Some(&answer))
        };
        episode.score = Some(
            rewards
                .score(&episode.task, &episode)
                .await
                .expect("scored"),
        );
        episodes.push(episode);
    }
    let fault = Ending::Infra {
        boundary: Boundary::Policy,
        message: "gone".to_owned(),
    };
    episodes.push(Episode {
        ending: fault.clone(),
        score: None,
        ..episodes[1].clone()
    });
    judge_groups(&rewards, &mut episodes).await;
    let tied = |episode: &Episode| {
        episode
            .score
            .as_ref()
            .map(|score| (score.parts["tournament"], score.total))
    };
    assert_eq!(
        episodes.iter().map(tied).collect::<Vec<_>>(),
        [None, Some((0.5, 0.5)), None, Some((0.5, 0.5)), None]
    );
    for lost in [&episodes[0], &episodes[2]] {
        let Ending::Infra {
            boundary: Boundary::Reward,
            message,
        } = &lost.ending
        else {
            panic!("{:?}", lost.ending)
        };
        assert!(
            message.contains("reward `tournament` failed: task `test/lost?`"),
            "{message}"
        );
    }
    assert_eq!(episodes[4].ending, fault);
}

#[test]
fn settings_of_group_parts_are_checked() {
    for (written, part) in [
        (
            serde_json::json!({"majority": {"weight": 1.0, "of": "em"}}),
            "`of` is not a setting",
        ),
        (
            serde_json::json!({"inverse": {"weight": 1.0, "of": "majority"}}),
            "compares the episodes of a group",
        ),
        (serde_json::json!({"tournament": 1.0}), "url"),
        (
            serde_json::json!({"tournament": {"weight": 1.0, "url": "http://x", "model": "m", "rounds": 0}}),
            "rounds is 0",
        ),
        (
            serde_json::json!({"judge_batch": {"weight": 1.0, "url": "http://x", "model": "m", "rubric": ["a"]}}),
            "a rubric is for [reward.judge]",
        ),
        (
            serde_json::json!({"tournament": {"weight": 1.0, "url": "http://x", "model": "m", "rubric": ["a"]}}),
            "set compares",
        ),
        (
            serde_json::json!({"tournament": {
                "weight": 1.0, "url": "http://x", "model": "m", "rounds": 2, "scheme": "anchor",
            }}),
            "rounds follow from the size",
        ),
        (
            serde_json::json!({"tournament": {"weight": 1.0, "url": "http://x", "model": "m", "scheme": "knockout"}}),
            "single_elimination",
        ),
    ] {
        let error = rewards(&written).expect_err("refused").to_string();
        assert!(error.contains(part), "{written}: {error}");
    }
}

#[tokio::test]
async fn advice_is_asked_of_two_attempts_and_read_strictly() {
    let server = Server::start(|number| {
        let reply = match number {
            0 => r#"{"advice": " "}"#,
            1 => r#"{"advice": "Stop.", "better": "A"}"#,
            _ => "<think>hm</think>{\"advice\": \"Look for the\\n person  first.\"}",
        };
        Act::Say(200, completion(reply))
    });
    let judge = Judge::new(JudgeSettings {
        attempts: 3,
        ..settings(&server)
    });
    let judge = judge.expect("settings");
    let pair = members(&[Some("Velm"), None]);
    let advice = judge.advise([&pair[0], &pair[1]]).await;
    assert_eq!(
        advice.expect("the third reply"),
        "Look for the person first."
    );
    let bodies = server.bodies();
    assert!(bodies.len() == 3 && bodies[0] == bodies[2], "{bodies:?}");
    assert_eq!(part(&bodies[0], "ANSWER A"), Some("Velm"));
    assert!(part(&bodies[0], "NO ANSWER WAS GIVEN B").is_some());
    let silent = Server::start(|_| Act::Say(200, completion("{\"advice\": 1}")));
    let judge = Judge::new(settings(&silent)).expect("settings");
    assert!(judge.advise([&pair[0], &pair[1]]).await.is_err());
}
