//! Every alarm is raised by episodes that earn it, and by no others.

mod alarms;
mod course;
mod odd;

use forage_contracts::environment::TurnKind;
use forage_contracts::policy::Finish;
use forage_contracts::{Episode, Turn};
use forage_env::QueryTurn;
use forage_env::{CodeTurn, FunctionCall, Status};
use forage_eval::Telemetry;

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

pub(crate) fn program(code: &str, record: CodeTurn, output: &str) -> Turn {
    let observation = format!("\n<python_output>\n{output}\n</python_output>\n");
    turn(
        &format!("<python>\n{code}\n</python>"),
        record.record(false),
        &observation,
    )
}

pub(crate) fn ran(size: usize) -> CodeTurn {
    let (tool, argument) = ("search_pages".to_owned(), "works".to_owned());
    let call = FunctionCall {
        tool,
        argument,
        found: vec!["works".to_owned(); size],
        size,
        error: None,
    };
    CodeTurn {
        status: Some(Status::Ok),
        printed: true,
        calls: vec![call],
        ..CodeTurn::default()
    }
}

pub(crate) fn query(text: &str) -> Turn {
    let found = vec!["p1".to_owned()];
    let kind = QueryTurn {
        query: text.into(),
        found,
        ..QueryTurn::default()
    }
    .record();
    turn(
        &format!("<reasoning>Names first.</reasoning><query>{text}</query>"),
        kind,
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
