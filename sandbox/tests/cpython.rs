//! Programs of `cpython/` print what CPython 3.11 prints: `python3.11 -W ignore NAME.py > NAME.txt`, but for the differences that remain.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use forage_sandbox::{EngineOptions, SandboxEngine};

fn prints_what_cpython_prints(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpython");
    let program = fs::read_to_string(folder.join(format!("{name}.py"))).unwrap();
    let expected = fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
    let engine = SandboxEngine::open(&EngineOptions::default()).unwrap();
    let output = engine
        .session(Arc::new(()), 0)
        .run_blocking(&program)
        .unwrap();
    assert_eq!(output.error, None, "{}", output.stdout);
    let pairs = expected.lines().zip(output.stdout.lines());
    let other: Vec<_> = pairs.filter(|(wanted, got)| wanted != got).collect();
    assert!(other.is_empty(), "{} lines differ: {other:#?}", other.len());
    assert_eq!(output.stdout.lines().count(), expected.lines().count());
}

#[test]
fn errors_that_programs_catch() {
    prints_what_cpython_prints("errors");
}

#[test]
fn values_that_other_versions_print_otherwise() {
    prints_what_cpython_prints("values");
}

#[test]
fn programs_that_are_not_valid() {
    prints_what_cpython_prints("syntax");
}

#[test]
fn tasks_and_executors() {
    prints_what_cpython_prints("loops");
}

/// What `docs/sandbox.md` lists as different from CPython: a difference that is gone is to go there too.
#[test]
fn differences_that_remain() {
    let engine = SandboxEngine::open(&EngineOptions::default()).unwrap();
    for (program, printed, kind) in [
        ("print({3, 1, 2})", "{3, 1, 2}\n", ""),
        (
            "from datetime import datetime\nprint(datetime(2024, 2, 9, 5).strftime('%x %r'))",
            "2024 M02 9 5:00:00 AM\n",
            "",
        ),
        (
            "from typing import Optional\nprint(Optional[int])",
            "int | None\n",
            "",
        ),
        ("help", "", "NameError"),
        ("'é'.encode('cp1252')", "", "LookupError"),
    ] {
        let output = engine
            .session(Arc::new(()), 0)
            .run_blocking(program)
            .unwrap();
        let raised = output.error.map_or_else(String::new, |error| error.kind);
        assert_eq!(
            (output.stdout.as_str(), raised.as_str()),
            (printed, kind),
            "{program}"
        );
    }
}
