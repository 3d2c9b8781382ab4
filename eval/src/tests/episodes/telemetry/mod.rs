//! Every alarm is raised by episodes that earn it, and by no others.

mod alarms;
mod course;
mod odd;

use forage_contracts::environment::{Call, TurnKind};
use forage_contracts::policy::Finish;
use forage_contracts::{Episode, Turn};
use forage_eval::Telemetry;
use serde_json::{Value, json};

use super::fixtures::{SETTINGS, episode};

pub(crate) const COUNT: usize = 20;

pub(crate) fn turn(policy: &str, kind: TurnKind, observation: &str) -> Turn {
    Turn {
        policy: policy.into(),
        finish: Finish::Stop,
        kind,
        observation: observation.into(),
        reward: 0.0,
    }
}

pub(crate) fn played(index: usize, turns: Vec<Turn>) -> Episode {
    Episode {
        turns,
        ..episode(index, true)
    }
}

pub(crate) fn search(query: &str, passage: &str) -> Turn {
    let shown = if passage.is_empty() {
        Vec::new()
    } else {
        vec!["p1".to_owned()]
    };
    let observation = format!("\n\n<information>{passage}</information>\n\n");
    turn(
        &format!("<think>Look.</think><search>{query}</search>"),
        TurnKind::search(query, shown),
        &observation,
    )
}

pub(crate) fn answer(text: &str) -> Turn {
    turn(
        &format!("<answer>{text}</answer>"),
        TurnKind::answer(text),
        "",
    )
}

/// A turn that ran a program, as the environment records it.
pub(crate) fn recorded(payload: Value, gold_read: bool) -> TurnKind {
    let calls = payload["calls"].as_array().into_iter().flatten();
    let queries = calls.filter_map(|call| call["argument"].as_str());
    TurnKind::call(Call {
        queries: queries.map(str::to_owned).collect(),
        gold_read,
        payload,
        ..Call::new("python")
    })
}

pub(crate) fn program(code: &str, payload: Value, output: &str) -> Turn {
    let observation = format!("\n<python_output>\n{output}\n</python_output>\n");
    turn(
        &format!("<python>\n{code}\n</python>"),
        recorded(payload, false),
        &observation,
    )
}

/// The payload of a program that searched once.
pub(crate) fn ran(size: usize) -> Value {
    let found = vec!["works"; size];
    let call = json!({"tool": "search_pages", "argument": "works", "found": found, "size": size});
    json!({"status": "ok", "error": null, "printed": true, "calls": [call]})
}

/// A query that the episode is judged by, as its environment records it.
pub(crate) fn judged(query: &str, found: Vec<String>) -> TurnKind {
    TurnKind::call(Call {
        queries: vec![query.to_owned()],
        shown: found,
        payload: json!({"keywords_found": [], "reasoning_words": 0}),
        ..Call::new("submit_query")
    })
}

pub(crate) fn query(text: &str) -> Turn {
    turn(
        &format!("<reasoning>Names first.</reasoning><query>{text}</query>"),
        judged(text, vec!["p1".to_owned()]),
        "",
    )
}

pub(crate) const PASSAGE: &str =
    "Doc 1(Title: \"Works\") The works were founded by Ana Brel, who was born in Varnholt in 1807.";

pub(crate) fn searching(index: usize) -> Episode {
    played(
        index,
        vec![search("founder of works", PASSAGE), answer("Varnholt")],
    )
}

pub(crate) fn coding(index: usize) -> Episode {
    let read = "print(read_section(search_pages('works')[0]['page_id'] + ':full'))";
    played(
        index,
        vec![program(read, ran(2), PASSAGE), answer("Varnholt")],
    )
}

pub(crate) fn querying(index: usize) -> Episode {
    played(index, vec![query("\"Ana Brel\" AND born")])
}

pub(crate) fn set(make: impl Fn(usize) -> Episode) -> Vec<Episode> {
    (0..2 * COUNT).map(make).collect()
}

pub(crate) fn raised(episodes: &[Episode]) -> Vec<String> {
    Telemetry::from_episodes(episodes, SETTINGS)
        .unwrap()
        .alarms
        .into_iter()
        .map(|alarm| alarm.kind)
        .collect()
}
