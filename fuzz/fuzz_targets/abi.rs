//! Bytes are a program for an interpreter that is not to be trusted (`sandbox/tests/fixtures/guest.wat`): whatever it asks of
//! its host, the turn ends within its limits and the session goes on.

#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use forage_sandbox::{Limits, SandboxEngine, Status, ToolError, ToolSpec, Tools};
use libfuzzer_sys::fuzz_target;
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

static ENGINE: LazyLock<SandboxEngine> = LazyLock::new(|| {
    let limits = Limits {
        time: Duration::from_millis(500),
        memory_bytes: 64 << 20,
        output_bytes: 1000,
        calls: 5,
        ..Limits::default()
    };
    let guest =
        wat::parse_str(include_str!("../../sandbox/tests/fixtures/guest.wat")).expect("is valid");
    SandboxEngine::with_guest(&guest, limits).expect("compiles")
});

fuzz_target!(|bytes: &[u8]| {
    let code: String = bytes
        .iter()
        .take(16_000)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut session = ENGINE.session(Arc::new(Echo), 1);
    for _ in 0..2 {
        let output = session.run_blocking(&code).expect("no fault of ours");
        assert!(
            output.stdout.len() <= 3000 && output.stderr.len() <= 3000 && output.calls.len() <= 5
        );
    }
    assert_eq!(
        session.run_blocking("").expect("no fault of ours").status,
        Status::Ok
    );
});
