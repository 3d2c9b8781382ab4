//! The host against an interpreter that is not to be trusted: any calls with any numbers, any reply, any memory.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use forage_sandbox::{Limits, SandboxEngine, Status, ToolError, ToolSpec, Tools};
use proptest::prelude::*;
use serde_json::{Map, Value};

struct Echo;

impl Tools for Echo {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("echo", &["text"], "Says it again.")]
    }

    fn call(&self, name: &str, arguments: &Map<String, Value>) -> Result<Value, ToolError> {
        let refused = || ToolError::Raise {
            kind: "KeyError",
            message: name.to_owned(),
        };
        arguments.get("text").cloned().ok_or_else(refused)
    }
}

fn limits() -> Limits {
    Limits {
        time: Duration::from_millis(200),
        memory_bytes: 64 << 20,
        output_bytes: 1000,
        calls: 5,
        ..Limits::default()
    }
}

static ENGINE: LazyLock<SandboxEngine> = LazyLock::new(|| {
    let guest = wat::parse_str(include_str!("fixtures/guest.wat")).unwrap();
    SandboxEngine::with_guest(&guest, limits()).unwrap()
});

/// A step of the program in `fixtures/guest.wat`.
fn step(what: u8, a: u32, b: u32) -> Vec<u8> {
    [&[what][..], &a.to_le_bytes(), &b.to_le_bytes()].concat()
}

fn code(steps: &[Vec<u8>]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap();
    steps
        .concat()
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0..200_u32,
        Just(131_072),
        Just(131_071),
        Just(u32::MAX),
        60_000..140_000_u32
    ]
}

fn program() -> impl Strategy<Value = String> {
    prop::collection::vec((0..12_u8, number(), number()), 0..20).prop_map(|steps| {
        code(
            &steps
                .into_iter()
                .map(|(what, a, b)| step(what, a, b))
                .collect::<Vec<_>>(),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_calls_end_in_an_output_within_the_limits(programs in prop::collection::vec(program(), 1..4)) {
        let mut session = ENGINE.session(Arc::new(Echo), 1);
        for program in programs {
            let output = session.run_blocking(&program).unwrap();
            prop_assert!(output.stdout.len() <= 3 * 1000 && output.stderr.len() <= 3 * 1000, "{:?}", output);
            prop_assert!(output.calls.len() <= 5);
        }
        let after = session.run_blocking("").unwrap();
        prop_assert_eq!(after.status, Status::Ok);
    }
}

#[test]
fn a_well_behaved_interpreter_is_understood() {
    let mut session = ENGINE.session(Arc::new(Echo), 1);
    let output = session
        .run_blocking(&code(&[step(3, 0, 0), step(4, 200, 0), step(0, 64, 14)]))
        .unwrap();
    assert_eq!(
        (output.status, output.stdout.as_str(), output.calls.len()),
        (Status::Ok, "{\"tool\":\"echo\"", 1)
    );
    assert_eq!(output.calls[0].arguments["text"], "a");
}

#[test]
fn pointers_beyond_memory_and_lies_about_replies_are_crashes_that_undo_the_turn() {
    for steps in [
        vec![step(0, u32::MAX, 10)],
        vec![step(0, 131_070, 3)],
        vec![step(2, 0, u32::MAX)],
        vec![step(2, 16, 29)],
        vec![step(3, 0, 0), step(4, 131_071, 0)],
        vec![step(6, 131_000, 100_000)],
        vec![step(7, u32::MAX, 65_535)],
        vec![step(8, 131_069, 0)],
        vec![step(10, 0, 131_073)],
        vec![step(10, 0, 10)],
        vec![step(10, 0, u32::MAX)],
        vec![step(11, 0, 1)],
    ] {
        let mut session = ENGINE.session(Arc::new(Echo), 1);
        session.run_blocking("").unwrap();
        let output = session.run_blocking(&code(&steps)).unwrap();
        assert_eq!(output.status, Status::Crash, "{steps:?}");
        assert_eq!(session.run_blocking("").unwrap().status, Status::Ok);
    }
}
