//! The audit of a judge, and principles from feedback, where the judge refuses some of what it is shown; an evaluation whose judge fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use forage_lab::{EvaluateOptions, Resolved, RunConfig, evaluate};
use serde_json::{Value, json};

const SMOKE: &str = include_str!("../../../configs/smoke.toml");

/// Answers a request: 503 where it is down, 400 for what holds `poison`, else a verdict of the form that is asked for.
fn answer(stream: &TcpStream, is_down: bool) {
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
    let body = String::from_utf8(body).unwrap();
    let reply = if body.contains("<<<FEEDBACK") {
        r#"{"principles": ["The answer names its source."]}"#
    } else {
        r#"{"correct": true, "approach": 80}"#
    };
    let choice = json!({"message": {"content": reply}, "finish_reason": "stop"});
    let said = json!({"choices": [choice], "usage": {"total_tokens": 100}}).to_string();
    let (status, said) = if is_down {
        (503, "busy".to_owned())
    } else if body.contains("poison") {
        (400, "content filter".to_owned())
    } else {
        (200, said)
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        said.len()
    );
    let mut stream = stream;
    stream.write_all((head + &said).as_bytes()).unwrap();
}

/// A config whose judge answers until the process ends, but for so many requests at first.
fn judged_after(failing: usize, more: &[&str]) -> Resolved {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            std::thread::spawn(move || answer(&stream.unwrap(), number < failing));
        }
    });
    let judge =
        format!("reward.judge={{ weight = 1.0, url = \"http://{address}\", model = \"m\" }}");
    let mut set = vec![judge];
    set.extend(more.iter().map(|&item| item.to_owned()));
    let config = RunConfig::parse(SMOKE, &set);
    config.unwrap().resolve(None).unwrap()
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
    let found = judged().audit_judge(rows(answers), 1).unwrap();
    assert_eq!(found.refused, ["line 2"]);
    let agreement = found.agreement.unwrap();
    assert_eq!((agreement.answers, agreement.false_positives), (2, 1));
    // One for each of the others; for the refused one two, and a harmless question.
    assert_eq!(found.calls, 5);
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
