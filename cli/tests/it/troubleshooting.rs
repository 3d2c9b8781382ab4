//! `docs/troubleshooting.md` quotes errors, warnings and alarms: each quote stands in the source.

use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Tag, TagEnd};

use crate::guide::blocks::{events, read};
use crate::tidy::{ORDER, product, root, sources};

const PAGE: &str = "docs/troubleshooting.md";
const RULES: &str = "trainer/src/watch/rules.rs";

/// What each row of the tables of a text quotes in its first column.
fn quotes(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut column): (Vec<Vec<String>>, Option<usize>) = (Vec::new(), None);
    for (event, _) in events(text) {
        match event {
            Event::Start(Tag::TableRow) => {
                rows.push(Vec::new());
                column = Some(0);
            }
            Event::End(TagEnd::TableRow) => column = None,
            Event::End(TagEnd::TableCell) => column = column.map(|column| column + 1),
            Event::Code(code) if column == Some(0) => {
                rows.last_mut().unwrap().push(code.into_string());
            }
            _ => {}
        }
    }
    rows
}

/// Code as it would be with every string on one line and its quotation marks unescaped, without comments.
fn unbroken(code: &str) -> String {
    let kept: Vec<&str> = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let kept = kept.join("\n");
    let mut lines = kept.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let joined = lines.fold(first, |joined, line| joined + line.trim_start());
    joined.replace("\\\"", "\"")
}

/// The sources of the program, their tests left out.
fn program() -> Vec<String> {
    let mut files: Vec<PathBuf> = Vec::new();
    for member in ORDER {
        sources(&root().join(member).join("src"), &mut files);
    }
    let is_test =
        |file: &Path| file.ends_with("tests.rs") || file.iter().any(|part| part == "tests");
    files.retain(|file| !is_test(file.strip_prefix(root()).unwrap()));
    files
        .iter()
        .map(|file| unbroken(&product(&std::fs::read_to_string(file).unwrap())))
        .collect()
}

/// The kind of the alarms that a line of the table of rules is about.
fn kind(line: &str) -> Option<&str> {
    let (kind, _) = line
        .trim_start()
        .strip_prefix("(\"")?
        .split_once("\", |facts|")?;
    Some(kind)
}

#[test]
fn strings_over_several_lines_are_joined_and_comments_left_out() {
    let code = "// a note\nerror(\"one \\\n      \\\"two\\\"\");\n";
    assert_eq!(unbroken(code), "error(\"one \"two\"\");");
    let table = "`a`\n\n| x | y |\n|---|---|\n| `b`: `c` | `d` |\n";
    assert_eq!(quotes(table), [["b", "c"]]);
}

#[test]
fn every_quoted_message_is_one_of_the_program() {
    let (rows, program) = (quotes(&read(PAGE)), program());
    assert!(rows.len() >= 25, "{} rows", rows.len());
    for row in rows {
        assert!(!row.is_empty(), "{PAGE}: a row quotes nothing");
        for quote in row {
            assert!(
                program.iter().any(|code| code.contains(&quote)),
                "{PAGE}: nothing in the program says `{quote}`"
            );
        }
    }
}

#[test]
fn every_alarm_of_the_sentinel_is_explained() {
    let (rows, rules) = (quotes(&read(PAGE)), read(RULES));
    let kinds: Vec<&str> = rules.lines().filter_map(kind).collect();
    assert!(kinds.len() > 10, "{RULES}: {kinds:?}");
    for kind in kinds {
        let explained = rows
            .iter()
            .any(|row| row.first().is_some_and(|first| first == kind));
        assert!(explained, "{PAGE} lacks the alarm {kind}");
    }
}
