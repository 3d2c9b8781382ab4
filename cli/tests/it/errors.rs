//! `docs/errors.md` names every exit code, every cause of a refused request and every way in which an episode ends, and no other.

use std::collections::BTreeSet;
use std::process::Command;

use forage_net::Refusal;

use crate::guide::blocks::read;
use crate::tidy::product;

const PAGE: &str = "docs/errors.md";
/// Begins the function of a server that names causes.
const CAUSE: &str = "fn cause(&self) -> &'static str {";
const ENVIRONMENT: &str = "env/src/server/fault.rs";

type Names = BTreeSet<String>;

/// The part of a text between `head` and `end`.
fn part<'a>(text: &'a str, head: &str, end: &str) -> &'a str {
    let (_, rest) = text
        .split_once(head)
        .unwrap_or_else(|| panic!("nothing begins with `{head}`"));
    rest.split(end).next().unwrap_or_default()
}

/// The cells of the rows below a heading of the page.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let page = read(PAGE);
    let section = part(&page, &format!("\n## {heading}\n"), "\n## ");
    let lines = section.lines().filter(|line| line.starts_with("| "));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    // The first has the names of the columns.
    lines.skip(1).map(cells).collect()
}

/// The parts of a text that stand between two marks of this kind.
fn between(text: &str, mark: char) -> Names {
    let pieces = text.split(mark).skip(1).step_by(2);
    pieces.map(str::to_owned).collect()
}

/// The names in the first column of the table below a heading of the page.
fn named(heading: &str) -> Names {
    let rows = rows(heading);
    rows.iter().flat_map(|row| between(&row[0], '`')).collect()
}

/// The strings in a function.
fn strings(path: &str, head: &str) -> Names {
    between(part(&product(&read(path)), head, "\n    }\n"), '"')
}

/// The variants of an enum, as records write them.
fn variants(path: &str, head: &str) -> Names {
    let source = read(path);
    let names = part(&source, head, "\n}\n").lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?;
        let is_one = name.starts_with(|first: char| first.is_ascii_uppercase());
        is_one.then(|| name.trim_end_matches([',', ' ', '{']).to_lowercase())
    });
    names.collect()
}

#[test]
fn every_cause_of_a_refusal_is_explained_and_no_other() {
    let mut parts = strings(
        ENVIRONMENT,
        "fn boundary_name(boundary: Boundary) -> &'static str {",
    );
    // The policy of an environment server is its client.
    assert!(parts.remove("policy"));
    for (heading, path, more) in [
        ("Every server", "net/src/server/refusal.rs", Names::new()),
        ("Environment server", ENVIRONMENT, parts),
        ("Retriever", "retriever/src/server/fault.rs", Names::new()),
        ("Policy server", "trainer/src/server/fault.rs", Names::new()),
        (
            "Page of a run",
            "cli/src/commands/serve/run.rs",
            Names::new(),
        ),
    ] {
        let causes = &strings(path, CAUSE) | &more;
        assert!(!causes.is_empty(), "{path}");
        assert_eq!(named(heading), causes, "{PAGE}, {heading}, and {path}");
    }
}

#[test]
fn refusals_have_the_status_that_the_page_gives() {
    let refusals = [
        Refusal::BrokenBody,
        Refusal::Unauthorized,
        Refusal::ForeignHost,
        Refusal::ForeignOrigin,
        Refusal::NoRoute(String::new()),
        Refusal::Method,
        Refusal::SlowBody,
        Refusal::TooLarge { limit: 1 },
        Refusal::AnswerTooLarge { limit: 1 },
        Refusal::NotJson,
        Refusal::Panicked,
        Refusal::Overloaded,
        Refusal::Stopped,
    ];
    let causes: Names = refusals
        .iter()
        .map(|refusal| refusal.cause().to_owned())
        .collect();
    assert_eq!(causes, named("Every server"));
    let rows = rows("Every server");
    for refusal in refusals {
        let status = refusal.status().as_u16().to_string();
        let row = rows
            .iter()
            .find(|row| between(&row[0], '`').contains(refusal.cause()))
            .unwrap();
        assert!(row[1].starts_with(&status), "{row:?} and {status}");
    }
}

#[test]
fn every_way_in_which_an_episode_ends_is_explained() {
    let episode = "contracts/src/episode.rs";
    let mut all = variants(episode, "pub enum Ending {");
    all.extend(variants(episode, "pub enum Limit {"));
    all.extend(variants(
        "contracts/src/environment.rs",
        "pub enum Boundary {",
    ));
    assert!(all.len() >= 13, "{all:?}");
    assert_eq!(named("Episodes"), all);
}

#[test]
fn commands_end_with_the_codes_of_the_page() {
    for (words, code) in [
        ("--version", "0"),
        ("runs report nowhere", "1"),
        ("--nonsense", "2"),
        ("config check nowhere.toml", "2"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forage"));
        let output = command.args(words.split(' ')).output().unwrap();
        let found = output.status.code().map(|code| code.to_string());
        assert_eq!(found.as_deref(), Some(code), "{words}");
    }
    // The last takes a signal, which the tests of interrupted runs send.
    let all = Names::from(["0", "1", "2", "130"].map(str::to_owned));
    assert_eq!(named("Exit codes"), all);
}
