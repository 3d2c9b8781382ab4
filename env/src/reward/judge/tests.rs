//! The judge against servers that fail and replies that are not verdicts.

mod fences;
mod group;
mod refused;
mod server;
mod shared;
mod turns;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forage_contracts::policy::Sampling;
use forage_contracts::scripted::Scripted;
use forage_contracts::seed::Seed;
use forage_contracts::{Boundary, ByteTokenizer, Ending, Passage};
use forage_retriever::Bm25Retriever;
use proptest::prelude::*;

use super::verdict::read_verdict;
use super::*;
use crate::reward::RewardSet;
use crate::reward::judge::verdict::read_preference;
use crate::reward::tests::{episode, task};
use crate::rollout::{Job, Presentation, Rollout};
use crate::search_r1::{SearchR1, SearchR1Settings};
use server::{Act, Server, VERDICT, completion};

fn settings(server: &Server) -> JudgeSettings {
    JudgeSettings {
        timeout_s: 0.5,
        attempts: 2,
        ..JudgeSettings::new(server.url(), "judge")
    }
}

fn judged(settings: JudgeSettings) -> Judged {
    Judged {
        judge: Judge::new(settings).expect("settings"),
    }
}

async fn score(judged: &Judged, answer: &str) -> Result<(f32, Pieces), RewardError> {
    let episode = episode(&format!("<answer>{answer}</answer>"), Some(answer));
    judged.score_in_pieces(&episode.task, &episode).await
}

#[test]
fn only_the_exact_form_is_a_verdict() {
    let good = [
        r#"{"correct": true, "approach": 80}"#,
        " \n{\"approach\":80.0,\"correct\":true}\n",
        "```json\n{\"correct\": true, \"approach\": 80}\n```",
        "```\n{\"correct\": true, \"approach\": 80}```",
        "<think>{\"correct\": false, \"approach\": 0}</think>\n{\"correct\": true, \"approach\": 80}",
        "{\"correct\": false, \"approach\": 0}\n</think>\n\n{\"correct\": true, \"approach\": 80}",
    ];
    for reply in good {
        let expected = Verdict::Answer {
            correct: true,
            approach: 80.0,
        };
        assert_eq!(read_verdict(reply, 0), Ok(expected), "{reply}");
    }
    let bad = [
        "",
        "yes",
        "true",
        "Yesterday it was right.",
        "not yes",
        "yes and no",
        "The final word is correct",
        "null",
        "[true, 80]",
        r#"{"correct": "true", "approach": 80}"#,
        r#"{"correct": 1, "approach": 80}"#,
        r#"{"correct": true}"#,
        r#"{"correct": true, "approach": "80"}"#,
        r#"{"correct": true, "approach": -1}"#,
        r#"{"correct": true, "approach": 100.5}"#,
        r#"{"correct": true, "approach": 1e999}"#,
        r#"{"correct": true, "approach": NaN}"#,
        r#"{"correct": true, "approach": 80, "reason": "x"}"#,
        r#"{"correct": false, "correct": true, "approach": 80}"#,
        r#"{"correct": true, "approach": 80} {"correct": false, "approach": 0}"#,
        r#"Here it is: {"correct": true, "approach": 80}"#,
        r#"{"correct": true, "approach": 80} I hope this helps"#,
        r#"{"correct": true, "approach": 80"#,
        r#"<think>{"correct": true, "approach": 80}"#,
        "x<think></think>{\"correct\": true, \"approach\": 80}",
        "<think>a</think>b</think>{\"correct\": true, \"approach\": 80}",
        "a</think>b</think>{\"correct\": true, \"approach\": 80}",
        "```json\n{\"correct\": true, \"approach\": 80}\n```\n```json\n{}\n```",
    ];
    for reply in bad {
        assert!(read_verdict(reply, 0).is_err(), "{reply}");
    }
    let holds = Verdict::Rubric {
        holds: vec![true, false],
    };
    assert_eq!(read_verdict(r#"{"holds": [true, false]}"#, 2), Ok(holds));
    for reply in [
        r#"{"holds": [true]}"#,
        r#"{"holds": [true, 0]}"#,
        r#"{"holds": [true, false, true]}"#,
        "[true, false]",
    ] {
        assert!(read_verdict(reply, 2).is_err(), "{reply}");
    }
    assert_eq!(read_preference(r#"{"better": "tie"}"#), Ok(Preference::Tie));
    for reply in [
        r#"{"better": "a"}"#,
        r#"{"better": "AB"}"#,
        "A",
        "Answer A is better",
    ] {
        assert!(read_preference(reply).is_err(), "{reply}");
    }
}

#[tokio::test]
async fn a_thinking_model_and_a_server_that_holds_to_schemas_are_asked_as_they_need_it() {
    let server = Server::reading(|_, body| {
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["chat_template_kwargs"]["enable_thinking"], false);
        let form = &body["response_format"]["json_schema"]["schema"];
        assert_eq!(form["required"], serde_json::json!(["correct", "approach"]));
        Act::Say(200, completion(VERDICT))
    });
    let extra = serde_json::json!({"chat_template_kwargs": {"enable_thinking": false}});
    let asked = JudgeSettings {
        structured: true,
        extra_body: extra.as_object().expect("a table").clone(),
        ..settings(&server)
    };
    let (found, _) = score(&judged(asked), "Velm").await.expect("a score");
    assert!((found - 0.95).abs() < 1e-6, "{found}");
    // What was asked for and what is read are one form.
    for (form, reply) in [
        (super::verdict::Form::of(0), VERDICT.to_owned()),
        (
            super::verdict::Form::of(2),
            r#"{"holds": [true, false]}"#.to_owned(),
        ),
        (
            super::verdict::Form::Answers(1),
            format!("{{\"verdicts\": [{VERDICT}]}}"),
        ),
        (
            super::verdict::Form::Pair,
            r#"{"better": "tie"}"#.to_owned(),
        ),
        (
            super::verdict::Form::Principles,
            r#"{"principles": ["It is short."]}"#.to_owned(),
        ),
        (
            super::verdict::Form::Turns(2),
            r#"{"turns": [80, 25]}"#.to_owned(),
        ),
    ] {
        let reply: serde_json::Value = serde_json::from_str(&reply).expect("JSON");
        let named: Vec<&String> = reply.as_object().expect("an object").keys().collect();
        assert_eq!(form.schema()["required"], serde_json::json!(named));
    }
    // A parser of reasoning that found nothing else.
    let thinking = r#"{"choices": [{"message": {"content": null, "reasoning": "hm"}, "finish_reason": "stop"}]}"#;
    let server = Server::start(move |_| Act::Say(200, thinking.to_owned()));
    let error = score(&judged(settings(&server)), "Velm")
        .await
        .expect_err("a fault of ours");
    assert!(
        error
            .to_string()
            .contains("switch thinking off by extra_body"),
        "{error}"
    );
    let taken = JudgeSettings {
        extra_body: serde_json::json!({"model": "x"})
            .as_object()
            .expect("a table")
            .clone(),
        ..settings(&server)
    };
    let error = Judge::new(taken).expect_err("refused").to_string();
    assert!(error.contains("`extra_body.model` is a field"), "{error}");
}

proptest! {
    #[test]
    fn no_reply_panics_and_only_objects_are_read(reply in prop_oneof![
        any::<String>(),
        r#"(<think>|</think>|```|json|\{|\}|\[|"correct"|"approach"|"holds"|:|,|true|false|80|yes| |\n|é){0,12}"#,
    ], principles in 0_usize..3) {
        if read_verdict(&reply, principles).is_ok() {
            let object = reply.contains('{') && reply.contains('}');
            prop_assert!(object);
        }
        let _ = read_preference(&reply);
    }
}

#[tokio::test]
async fn verdicts_become_scores_with_their_pieces() {
    let server = Server::start(|_| Act::Say(200, completion(VERDICT)));
    let judged = judged(settings(&server));
    let (total, pieces) = score(&judged, "Velm").await.expect("judged");
    assert!((total - (0.75 + 0.25 * 0.8)).abs() < 1e-6);
    assert_eq!(
        pieces,
        [("correct".to_owned(), 1.0), ("approach".to_owned(), 0.8)]
    );
    // A judge that calls a missing answer right is not believed.
    let silent = episode("nothing", None);
    let (total, _) = judged
        .score_in_pieces(&silent.task, &silent)
        .await
        .expect("judged");
    assert!((total - 0.2).abs() < 1e-6, "{total}");
    let body: serde_json::Value = serde_json::from_str(&server.bodies()[0]).expect("JSON");
    assert_eq!(
        (&body["model"], &body["temperature"], &body["max_tokens"]),
        (&"judge".into(), &0.into(), &512.into())
    );
    assert_eq!(
        judged.judge.spent(),
        Spent {
            calls: 2,
            tokens: 200,
            shortened: 0
        }
    );
    let without = forage_contracts::Task {
        golds: vec![],
        ..task("t", &[])
    };
    assert!(
        judged
            .score(&without, &silent)
            .await
            .expect_err("no gold")
            .message
            .contains("no accepted answer")
    );

    let server =
        Server::start(|_| Act::Say(200, completion(r#"{"holds": [true, false, true, true]}"#)));
    let rubric = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    let judged = self::judged(JudgeSettings {
        rubric,
        ..settings(&server)
    });
    let (total, pieces) = score(&judged, "Velm").await.expect("judged");
    assert!((total - 0.75).abs() < 1e-6 && pieces.len() == 4);
}

/// An act of the server, a part of the error, and the number of requests: where a text may be the cause, the harmless question is among
/// them.
type Row = (fn(usize) -> Act, &'static str, u64);

#[tokio::test]
async fn every_failing_server_is_a_typed_fault_in_time() {
    let rows: [Row; 11] = [
        (|_| Act::Stall, "no answer within 500 ms", 2),
        (
            |_| Act::Say(500, "boom".to_owned()),
            "HTTP status 500: boom",
            4,
        ),
        (
            |_| Act::Say(401, "who are you".to_owned()),
            "HTTP status 401",
            1,
        ),
        (
            |_| Act::Say(200, "<html>welcome</html>".to_owned()),
            "does not fit the protocol",
            2,
        ),
        (|_| Act::Flood, "longer than", 1),
        (|_| Act::Truncate, "breaks off", 2),
        (|_| Act::Close, "cannot connect", 2),
        (
            |_| Act::Say(200, r#"{"choices": []}"#.to_owned()),
            "0 choices",
            1,
        ),
        (
            |_| {
                Act::Say(
                    200,
                    r#"{"choices": [{"message": {"content": null}}]}"#.to_owned(),
                )
            },
            "no content",
            4,
        ),
        (
            |_| Act::Say(200, completion("Yes, that is right.")),
            "not one JSON object",
            4,
        ),
        (
            |_| Act::Say(200, completion(VERDICT).replace("stop", "length")),
            "cut off",
            4,
        ),
    ];
    for (act, part, tries) in rows {
        let server = Server::start(act);
        let judged = judged(settings(&server));
        let started = Instant::now();
        let error = score(&judged, "Velm").await.expect_err(part).to_string();
        assert!(error.contains(part), "{part}: {error}");
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{part}: {:?}",
            started.elapsed()
        );
        assert_eq!(judged.judge.spent().calls, tries, "{part}: {error}");
    }
    let gone = JudgeSettings {
        attempts: 1,
        ..JudgeSettings::new("http://127.0.0.1:9", "judge")
    };
    assert!(
        score(&judged(gone), "Velm")
            .await
            .expect_err("nobody there")
            .message
            .contains("cannot connect")
    );
    // What fails once and then works is not a failure.
    let server = Server::start(|call| match call {
        0 => Act::Say(200, completion("hm")),
        _ => Act::Say(200, completion(VERDICT)),
    });
    assert!(score(&judged(settings(&server)), "Velm").await.is_ok());
}

#[tokio::test]
async fn a_judge_that_refuses_a_length_is_shown_less() {
    for status in [400, 413, 422] {
        let server = Server::reading(move |_, body| {
            if body.len() > 7_500 {
                Act::Say(status, "maximum context length exceeded".to_owned())
            } else {
                Act::Say(200, completion(VERDICT))
            }
        });
        let judged = judged(settings(&server));
        let (score, _) = score(&judged, &"x".repeat(50_000)).await.expect("a score");
        assert!((score - 0.95).abs() < 1e-6, "{score}");
        let spent = judged.judge.spent();
        assert_eq!((spent.shortened, spent.calls), (3, 4), "{status}");
        let last = server.bodies().pop().expect("a request");
        assert!(last.contains("[48000 characters left out]"), "{last}");
        let long = ["y".repeat(9_000), "z".repeat(9_000)];
        let pair = judged.judge.prefer("q", &[], [&long[0], &long[1]]).await;
        assert!(
            matches!(pair, Err(JudgeError::Unread(_))),
            "this judge never says A or B: {pair:?}"
        );
    }
    // One that refuses everything, a harmless question too, says nothing of the episode, and is not asked the same again.
    let server = Server::start(|_| Act::Say(400, "no such model".to_owned()));
    let judged = judged(settings(&server));
    let error = score(&judged, "Velm").await.expect_err("a fault of ours");
    assert!(error.to_string().contains("no such model"), "{error}");
    assert_eq!(server.bodies().len(), 2);
}

#[tokio::test]
async fn an_episode_without_a_verdict_has_no_score() {
    let server = Server::start(|_| Act::Say(200, completion("yes")));
    let rewards = RewardSet::exact_match().with(Box::new(judged(settings(&server))), 1.0);
    let page = Passage {
        id: "a".to_owned(),
        title: "Orlen".to_owned(),
        text: "The mayor.".to_owned(),
        fields: std::collections::BTreeMap::new(),
    };
    let retriever = Arc::new(Bm25Retriever::in_memory(vec![page]).expect("an index"));
    let limits = SearchR1Settings {
        max_turn_tokens: 200,
        max_episode_tokens: 4000,
        ..SearchR1Settings::default()
    };
    let rollout = Rollout {
        policy: Arc::new(Scripted::constant(
            Arc::new(ByteTokenizer),
            "<answer>Velm</answer>",
        )),
        tokenizer: Arc::new(ByteTokenizer),
        factory: SearchR1::factory(limits, retriever, Arc::new(ByteTokenizer)).expect("settings"),
        rewards: Arc::new(rewards),
        sampling: Sampling::GREEDY,
        presentation: Presentation::RAW,
    };
    let job = Job::alone(Arc::new(task("t", &["Velm"])), Seed::root(1));
    let episode = rollout.run(vec![job]).await.remove(0);
    assert_eq!(episode.score, None);
    let Ending::Infra {
        boundary: Boundary::Reward,
        message,
    } = &episode.ending
    else {
        panic!("{:?}", episode.ending)
    };
    assert!(
        message.contains("reward `judge` failed: task `test/t`"),
        "{message}"
    );
}

fn with_cache(server: &Server, path: &Path) -> JudgeSettings {
    JudgeSettings {
        cache: Some(path.to_owned()),
        ..settings(server)
    }
}

#[tokio::test]
async fn a_verdict_is_asked_for_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("judges/own/verdicts.jsonl");
    let server = Server::start(|_| Act::Say(200, completion(VERDICT)));
    let first = judged(with_cache(&server, &path));
    // Members of a group that answer alike at once.
    let (left, right) = tokio::join!(score(&first, "Velm"), score(&first, "Velm"));
    assert_eq!(
        (left.expect("judged").0, server.bodies().len()),
        (right.expect("judged").0, 1)
    );
    score(&first, "Orlen").await.expect("judged");
    drop(first);
    // A process that was killed while writing.
    let mut text = std::fs::read_to_string(&path).expect("a cache");
    assert_eq!(text.lines().count(), 2);
    text.push_str("{\"key\":\"12");
    std::fs::write(&path, &text).expect("written");
    let second = judged(with_cache(&server, &path));
    score(&second, "Velm").await.expect("cached");
    score(&second, "Orlen").await.expect("cached");
    assert_eq!((second.judge.spent().calls, server.bodies().len()), (0, 2));
    // Another model, prompt or setting is another question.
    let other = judged(JudgeSettings {
        model: "other".to_owned(),
        ..with_cache(&server, &path)
    });
    score(&other, "Velm").await.expect("judged");
    assert_eq!(
        (
            other.judge.spent().calls,
            std::fs::read_to_string(&path)
                .expect("a cache")
                .lines()
                .count()
        ),
        (1, 3)
    );
    std::fs::write(&path, "not a line\n").expect("written");
    let error = score(&judged(with_cache(&server, &path)), "Velm")
        .await
        .expect_err("damaged")
        .to_string();
    assert!(error.contains("line 1 is not a cached reply"), "{error}");
    std::fs::write(&path, text.replace("approach", "approval")).expect("written");
    let edited = score(&judged(with_cache(&server, &path)), "Velm").await;
    assert!(edited.is_err(), "{edited:?}");
}

#[tokio::test]
async fn the_budget_counts_every_try_and_says_when_it_is_spent() {
    let server = Server::start(|_| Act::Say(500, String::new()));
    let judge = judged(JudgeSettings {
        max_calls: Some(3),
        ..settings(&server)
    });
    for (answer, part) in [
        ("a", "HTTP status 500"),
        ("b", "max_calls is 3"),
        ("c", "budget is spent: 3 sent"),
    ] {
        let error = score(&judge, answer).await.expect_err(part).to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(server.bodies().len(), 3);

    let server = Server::start(|_| Act::Say(200, completion(VERDICT)));
    let judge = judged(JudgeSettings {
        max_total_tokens: Some(150),
        ..settings(&server)
    });
    for answer in ["a", "b", "a"] {
        score(&judge, answer)
            .await
            .expect("within the budget, or asked before");
    }
    let error = score(&judge, "c").await.expect_err("spent").to_string();
    assert!(
        error.contains("200 sent, max_total_tokens is 150"),
        "{error}"
    );

    let server = Server::start(|_| Act::Say(200, completion(VERDICT).replace("usage", "use")));
    let judge = judged(JudgeSettings {
        max_total_tokens: Some(150),
        ..settings(&server)
    });
    assert!(
        score(&judge, "a")
            .await
            .expect_err("not counted")
            .message
            .contains("set max_calls instead")
    );
}
