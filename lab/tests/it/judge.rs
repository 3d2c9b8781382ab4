//! The audit of a judge, by the answers of the program too, and principles from feedback, where the judge refuses some of what it is shown;
//! an evaluation whose judge fails.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use forage_lab::{EvaluateOptions, Resolved, RunConfig, evaluate};
use serde_json::{Value, json};

const SMOKE: &str = include_str!("../../../configs/smoke.toml");

/// The answers that the program holds.
const LABELLED: &str = include_str!("../../src/audit/labelled.jsonl");
/// The number of its pairs.
const PAIRS: usize = 12;

/// Answers a request with the status and text that `reply` has for its body.
fn answer(stream: &TcpStream, reply: impl Fn(&str) -> (u16, String)) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            return;
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let (status, said) = reply(&String::from_utf8(body).unwrap());
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        said.len()
    );
    let mut stream = stream;
    stream.write_all((head + &said).as_bytes()).unwrap();
}

/// A completion with this text.
fn completion(text: &str) -> (u16, String) {
    let choice = json!({"message": {"content": text}, "finish_reason": "stop"});
    let said = json!({"choices": [choice], "usage": {"total_tokens": 100}});
    (200, said.to_string())
}

/// A verdict of the form that is asked for, in favour of every answer and of the first of two; 400 for what holds `poison`.
fn favourable(body: &str) -> (u16, String) {
    if body.contains("poison") {
        return (400, "content filter".to_owned());
    }
    completion(if body.contains("<<<FEEDBACK") {
        r#"{"principles": ["The answer names its source."]}"#
    } else if body.contains("<<<ANSWER A ") {
        r#"{"better": "A"}"#
    } else {
        r#"{"correct": true, "approach": 80}"#
    })
}

/// A config whose judge replies to each request by its number and body, until the process ends.
fn judged_by(
    reply: impl Fn(usize, &str) -> (u16, String) + Send + Sync + 'static,
    more: &[&str],
) -> Resolved {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reply = Arc::new(reply);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let reply = Arc::clone(&reply);
            std::thread::spawn(move || answer(&stream.unwrap(), |body| reply(number, body)));
        }
    });
    let judge =
        format!("reward.judge={{ weight = 1.0, url = \"http://{address}\", model = \"m\" }}");
    let mut set = vec![judge];
    set.extend(more.iter().map(|&item| item.to_owned()));
    let config = RunConfig::parse(SMOKE, &set);
    config.unwrap().resolve(None).unwrap()
}

/// A config whose judge answers, but for so many requests at first.
fn judged_after(failing: usize, more: &[&str]) -> Resolved {
    let reply = move |number: usize, body: &str| {
        if number < failing {
            (503, "busy".to_owned())
        } else {
            favourable(body)
        }
    };
    judged_by(reply, more)
}

fn judged() -> Resolved {
    judged_after(0, &[])
}

fn rows(rows: Vec<Value>) -> Vec<(String, Value)> {
    let places = (1..).map(|number| format!("line {number}"));
    places.zip(rows).collect()
}

#[test]
fn what_a_judge_refuses_is_left_out_of_its_audit() {
    let row = |answer: &str, label: bool| json!({"question": "who?", "gold": "Velm", "answer": answer, "label": label});
    let answers = vec![row("Velm", true), row("poison", false), row("Orlen", false)];
    let found = judged().audit_judge(Some(rows(answers)), 1).unwrap();
    assert_eq!(found.refused, ["line 2"]);
    let agreement = found.agreement.unwrap();
    assert_eq!((agreement.answers, agreement.false_positives), (2, 1));
    // One for each of the others; for the refused one two, and a harmless question.
    assert_eq!(found.calls, 5);
    assert!(found.kinds.is_empty());
}

/// The part of what a judge is asked that stands between the fences of this name.
fn part(body: &str, name: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).unwrap();
    let asked = body["messages"][1]["content"].as_str().unwrap();
    let (_, rest) = asked.split_once(&format!("<<<{name} "))?;
    let (mark, rest) = rest.split_once('\n')?;
    let (text, _) = rest.split_once(&format!("\n{mark} {name}>>>"))?;
    Some(text.to_owned())
}

fn is_close(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-9
}

#[test]
fn a_judge_without_fault_is_right_about_every_answer_of_the_program() {
    let rows = LABELLED.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        let [question, answer] = ["question", "answer"].map(|key| row[key].as_str().unwrap());
        let asked = (question.to_owned(), answer.to_owned());
        (asked, row["label"].as_bool().unwrap())
    });
    let labels: HashMap<(String, String), bool> = rows.collect();
    let answers = labels.len();
    assert_eq!(
        answers,
        LABELLED.lines().count(),
        "an answer is there twice"
    );
    let reply = move |_: usize, body: &str| {
        // Whatever it prefers, it does so by the texts alone, not by their places.
        if let [Some(a), Some(b)] = ["ANSWER A", "ANSWER B"].map(|name| part(body, name)) {
            let better = if a < b { "A" } else { "B" };
            return completion(&json!({ "better": better }).to_string());
        }
        let [question, answer] = ["QUESTION", "ANSWER"].map(|name| part(body, name).unwrap());
        let verdict = json!({"correct": labels[&(question, answer)], "approach": 80});
        completion(&verdict.to_string())
    };
    let found = judged_by(reply, &[]).audit_judge(None, 1).unwrap();
    let agreement = found.agreement.unwrap();
    assert_eq!((agreement.answers, agreement.right), (answers, answers / 2));
    assert!(is_close(agreement.accuracy.estimate, 1.0));
    let errors = [agreement.false_positives, agreement.false_negatives];
    assert_eq!(errors, [0, 0]);
    for (kind, found) in &found.kinds {
        assert!(is_close(found.accuracy.estimate, 1.0), "{kind}");
    }
    let position = found.position.unwrap();
    assert_eq!(position.pairs, PAIRS);
    assert!(is_close(position.consistent.estimate, 1.0));
    assert!(is_close(position.first_place.estimate, 0.0));
    // Each answer is asked about once, and each pair in both orders.
    assert_eq!(found.calls, (answers + 2 * PAIRS) as u64);
}

#[test]
fn a_judge_that_likes_everything_is_right_about_half_of_each_kind() {
    let found = judged().audit_judge(None, 1).unwrap();
    let agreement = found.agreement.unwrap();
    let errors = [agreement.false_positives, agreement.false_negatives];
    assert_eq!(errors, [agreement.answers / 2, 0]);
    assert!(is_close(agreement.accuracy.estimate, 0.5));
    assert!(is_close(agreement.kappa.unwrap().estimate, 0.0));
    let kinds: Vec<&str> = found.kinds.keys().map(String::as_str).collect();
    let expected = ["form", "mention", "name", "plain", "reasoned", "tone"];
    assert_eq!(kinds, expected);
    for (kind, found) in &found.kinds {
        assert_eq!(2 * found.right, found.answers, "{kind}");
        assert!(is_close(found.accuracy.estimate, 0.5), "{kind}");
    }
    let of_kinds: usize = found.kinds.values().map(|found| found.answers).sum();
    assert_eq!(of_kinds, agreement.answers);
    let position = found.position.unwrap();
    assert!(is_close(position.consistent.estimate, 0.0));
    assert!(is_close(position.first_place.estimate, 1.0));
}

#[test]
fn what_a_judge_refuses_is_left_out_of_its_principles() {
    let feedback = vec![
        json!({"feedback": "poison"}),
        json!({"feedback": "Where is that from?"}),
    ];
    let (principles, refused, [calls, _]) = judged().principles(rows(feedback)).unwrap();
    assert_eq!(principles, [("The answer names its source.".to_owned(), 1)]);
    assert_eq!((refused, calls), (vec!["line 1".to_owned()], 4));
    let empty = vec![json!({"feedback": "Too long."}), json!({"feedback": " "})];
    let error = judged().principles(rows(empty)).unwrap_err().to_string();
    assert!(error.contains("line 2: `feedback` is empty"), "{error}");
}

#[test]
fn an_evaluation_bears_the_faults_that_the_config_lets_a_step_have() {
    let options = EvaluateOptions {
        policy: Some("constant:Velm".to_owned()),
        limit: Some(12),
        ..EvaluateOptions::default()
    };
    let once = "reward.judge.attempts=1";
    let error = evaluate(&judged_after(4, &[once]), &options, &()).unwrap_err();
    assert!(error.to_string().contains("shows nothing"), "{error}");
    let patient = judged_after(4, &[once, "grpo.fault_share=0.5"]);
    evaluate(&patient, &options, &()).unwrap();
}
