//! Experience is written from contrasts and read by whose question is like another.

use std::fmt::Write as _;

use forage_contracts::environment::{Call, TurnKind};
use forage_contracts::policy::Finish;
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Score, Task, Turn};

use super::common::{factory, library, settings};
use forage_env::EpisodeRecord;
use forage_env::experience::{ExperienceSettings, Memory};
use forage_env::search_r1::SearchR1Settings;
use serde_json::json;

/// An attempt: whether it was right, none where it was lost, and its queries.
fn attempt(question: &str, right: Option<bool>, queries: &[&str]) -> EpisodeRecord {
    let turn = |query: &&str| Turn {
        policy: format!("<search>{query}</search>"),
        finish: Finish::Stop,
        kind: TurnKind::call(Call::search(vec![(*query).to_owned()], Vec::new())),
        observation: String::new(),
        reward: 0.0,
    };
    let score = |right| Score {
        total: if right { 1.0 } else { 0.0 },
        ..Score::default()
    };
    Episode {
        turns: queries.iter().map(turn).collect(),
        score: right.map(score),
        ..Episode::new(Task::new(question, question))
    }
    .into()
}

#[tokio::test]
async fn the_shortest_right_way_is_held_against_the_longest_wrong_one() {
    let records = [
        attempt("b?", Some(false), &["x"]),
        attempt("a?", Some(true), &["one", "two", "three"]),
        attempt("a?", Some(true), &["mayor  of\n Orlen", "Ada"]),
        attempt("a?", Some(false), &[]),
        attempt("a?", Some(false), &["far", "off"]),
        attempt("a?", None, &["lost", "lost", "lost"]),
        attempt("c?", Some(true), &["y"]),
        attempt("d?", Some(true), &[]),
        attempt("d?", Some(false), &["z"]),
    ];
    let found = EpisodeRecord::experiences(&records, None).await.unwrap();
    let expected = [
        json!({"question": "a?", "text": "On \"a?\" an attempt that searched for \"mayor of Orlen\", then \"Ada\" was right, \
                                          one that searched for \"far\", then \"off\" was wrong."}),
        json!({"question": "d?", "text": "On \"d?\" an attempt that searched for nothing was right, one that searched for \
                                          \"z\" was wrong."}),
    ];
    assert_eq!(found, expected);
}

fn file(lines: &str) -> (tempfile::TempDir, ExperienceSettings) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("experience.jsonl");
    std::fs::write(&path, lines).unwrap();
    (folder, ExperienceSettings { path, k: 2 })
}

const QUESTIONS: [&str; 4] = [
    "Where was the mayor of Velm born?",
    "Who is the mayor of Orlen?",
    "What crosses the river Tay?",
    "Where was the mayor of Orlen born?",
];

fn lines() -> String {
    let mut lines = String::new();
    for (place, question) in QUESTIONS.iter().enumerate() {
        let line = json!({"question": question, "text": format!("advice {place} {{question}}")});
        let _ = writeln!(lines, "{line}\n");
    }
    lines
}

async fn prompt(question: &str, experience: Option<ExperienceSettings>) -> String {
    let settings = SearchR1Settings {
        experience,
        ..settings()
    };
    let mut environment = factory(settings, library()).make();
    let task = Task::new("t", question);
    let reset = environment.reset(&task, Seed::root(1)).await;
    reset.unwrap().text
}

#[tokio::test]
async fn a_prompt_begins_with_experience_with_questions_like_its_own() {
    let (_folder, settings) = file(&lines());
    let plain = prompt("where was the mayor of  Orlen born", None).await;
    let shown = prompt("where was the mayor of  Orlen born", Some(settings.clone())).await;
    // Its own, which is the most like it, is left out, and what a text holds is not a place for the question.
    let before = shown.strip_suffix(&plain).expect("the prompt follows");
    assert_eq!(
        before,
        "Experience with other questions:\n- advice 0 {question}\n- advice 1 {question}\n\n"
    );
    let again = prompt("where was the mayor of  Orlen born", Some(settings.clone())).await;
    assert_eq!(shown, again);
    let unlike = "Ghjk?";
    assert_eq!(
        prompt(unlike, Some(settings)).await,
        prompt(unlike, None).await
    );
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_line() {
    let fault = |lines: &str| {
        let (_folder, settings) = file(lines);
        Memory::open(&settings).err().map(|error| error.to_string())
    };
    assert_eq!(fault(&lines()), None);
    let good = lines();
    for (written, words) in [
        (format!("{good}{{}}\n"), "line 9: missing field"),
        (
            format!("{{\"question\": \"a\", \"text\": \" \"}}\n{good}"),
            "line 1: its question or text",
        ),
        ("not json".to_owned(), "line 1: expected"),
        (String::new(), "experience.jsonl: "),
    ] {
        let fault = fault(&written).expect("a fault");
        assert!(
            fault.contains(words) && fault.contains("forage data experience"),
            "{fault}"
        );
    }
    let (_folder, settings) = file(&good);
    let none = ExperienceSettings {
        k: 0,
        ..settings.clone()
    };
    assert!(
        Memory::open(&none)
            .err()
            .unwrap()
            .to_string()
            .contains("experience.k")
    );
    let path = "/nowhere/experience.jsonl".into();
    let missing = Memory::open(&ExperienceSettings { path, ..settings });
    assert!(
        missing
            .err()
            .unwrap()
            .to_string()
            .contains("/nowhere/experience.jsonl: ")
    );
}
