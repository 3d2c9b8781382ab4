//! Sessions: state, limits, tools, checkpoints, replay.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forage_sandbox::{
    EngineOptions, Limits, SandboxEngine, SandboxError, Session, Status, ToolError, ToolSpec,
    Tools, TurnOutput,
};
use serde_json::{Map, Value, json};

/// Two pages of a wiki, and a tool that is broken.
struct Wiki;

impl Tools for Wiki {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![
            ToolSpec::new("search_pages", &["query"], "Pages whose titles match.")
                .with_default("n", json!(5)),
            ToolSpec::new("read_section", &["section_id"], "The text of a section."),
            ToolSpec::new("broken", &[], "Fails."),
        ]
    }

    fn call(&self, name: &str, arguments: &Map<String, Value>) -> Result<Value, ToolError> {
        match name {
            "search_pages" => Ok(
                json!([{"page_id": "a", "title": arguments["query"]}, {"page_id": "b", "title": "é"}]),
            ),
            "read_section" => match arguments["section_id"].as_str() {
                Some("a:full") => Ok(json!("the text of a")),
                other => Err(ToolError::Raise {
                    kind: "ValueError",
                    message: format!("Section not found: {other:?}"),
                }),
            },
            _ => Err(ToolError::Fault("the index is gone".to_owned())),
        }
    }
}

fn engine(limits: Limits) -> SandboxEngine {
    SandboxEngine::open(&EngineOptions {
        limits,
        ..EngineOptions::default()
    })
    .unwrap()
}

fn session() -> Session {
    engine(Limits::default()).session(Arc::new(Wiki), 7)
}

fn run(session: &mut Session, code: &str) -> TurnOutput {
    session.run_blocking(code).unwrap()
}

fn stdout(session: &mut Session, code: &str) -> String {
    let output = run(session, code);
    assert_eq!(output.error, None, "{code}");
    output.stdout
}

fn error(output: &TurnOutput) -> (&str, &str) {
    output.error.as_ref().map_or(("", ""), |error| {
        (error.kind.as_str(), error.message.as_str())
    })
}

#[test]
fn variables_live_from_turn_to_turn_also_past_exceptions() {
    let mut session = session();
    run(
        &mut session,
        "import math\nx = [1]\ndef f(n):\n    return math.sqrt(n)",
    );
    let failed = run(&mut session, "x.append(2)\nprint('before')\nx.index(9)");
    assert_eq!(
        (failed.status, failed.stdout.as_str()),
        (Status::Exception, "before\n")
    );
    assert_eq!(error(&failed), ("ValueError", "9 is not in list"));
    assert_eq!(stdout(&mut session, "print(x, f(4))"), "[1, 2] 2.0\n");
    let left = run(&mut session, "import sys\nsys.exit(3)");
    assert_eq!(error(&left), ("SystemExit", "3"));
    assert_eq!(stdout(&mut session, "print(x)"), "[1, 2]\n");
}

#[test]
fn a_program_that_takes_all_memory_leaves_some_for_the_turns_after_it() {
    for size in [1 << 20, 1 << 17, 60_000] {
        let mut session = session();
        let fill = format!(
            "x = []\ntry:\n    while True: x.append(bytes({size}))\nexcept MemoryError:\n    full = len(x)"
        );
        assert_eq!(stdout(&mut session, &fill), "", "{size}");
        for _ in 0..3 {
            let kept = stdout(&mut session, "print(len(x) == full)");
            assert_eq!(kept, "True\n", "{size}");
        }
        let freed = "x.clear()\nprint(len(bytes(64 * 2**20)))";
        assert_eq!(stdout(&mut session, freed), "67108864\n", "{size}");
    }
}

#[test]
fn tools_bind_arguments_as_python_does() {
    let mut session = session();
    let output = run(
        &mut session,
        "for page in search_pages('Ada', n=2):\n    print(page['page_id'], page['title'])",
    );
    assert_eq!(output.stdout, "a Ada\nb é\n");
    let call = &output.calls[0];
    assert_eq!(
        (call.tool.as_str(), call.size, &call.error),
        ("search_pages", 2, &None)
    );
    assert_eq!(
        Value::Object(call.arguments.clone()),
        json!({"n": 2, "query": "Ada"})
    );
    for (code, message) in [
        (
            "search_pages()",
            "search_pages() missing 1 required positional argument: 'query'",
        ),
        (
            "search_pages(1, 2, 3)",
            "search_pages() takes from 1 to 2 positional arguments but 3 were given",
        ),
        (
            "read_section('a', 'b')",
            "read_section() takes 1 positional argument but 2 were given",
        ),
        (
            "search_pages('a', query='b')",
            "search_pages() got multiple values for argument 'query'",
        ),
        (
            "search_pages('a', k=1)",
            "search_pages() got an unexpected keyword argument 'k'",
        ),
        (
            "search_pages({1, 2})",
            "search_pages() argument 'query' must be plain data (str, int, float, bool, None, list or dict), not set",
        ),
        (
            "x = []\nx.append(x)\nsearch_pages(x)",
            "search_pages() argument 'query' is nested deeper than 32 levels",
        ),
    ] {
        let output = run(&mut session, code);
        assert_eq!(error(&output), ("TypeError", message), "{code}");
        assert!(output.calls.is_empty());
    }
    let refused = run(
        &mut session,
        "try:\n    read_section('x')\nexcept ValueError as error:\n    print(error)",
    );
    assert_eq!(refused.stdout, "Section not found: Some(\"x\")\n");
    assert_eq!(
        refused.calls[0].error.as_deref(),
        Some("ValueError: Section not found: Some(\"x\")")
    );
}

#[test]
fn long_arguments_are_recorded_by_their_beginning_length_and_digest() {
    let mut session = session();
    let output = run(
        &mut session,
        "q = 'é' * 100000\nsearch_pages(q)\nsearch_pages([q])\ntry:\n    read_section(q)\nexcept ValueError:\n    print('refused')",
    );
    assert_eq!(output.stdout, "refused\n");
    assert_eq!(output.calls.len(), 3);
    for call in &output.calls {
        let record = serde_json::to_string(call).unwrap();
        assert!(record.len() < 3000, "{} bytes", record.len());
        assert!(record.contains("bytes, blake3 "), "{record}");
    }
    let query = output.calls[0].arguments["query"].as_str().unwrap();
    assert!(
        query.starts_with("éé") && query.contains("... [200000 bytes, blake3 "),
        "{query}"
    );
    let short = run(&mut session, "search_pages('x' * 1024)");
    assert_eq!(short.calls[0].arguments["query"], "x".repeat(1024));
}

#[test]
fn arguments_that_are_too_long_are_an_error_of_the_program() {
    let mut session = session();
    let output = run(
        &mut session,
        "try:\n    search_pages([1] * 150000)\nexcept ValueError as error:\n    print(error)",
    );
    assert_eq!(output.stdout, "the arguments of the call are too long\n");
    assert!(output.calls.is_empty(), "{} calls", output.calls.len());
}

#[test]
fn a_tool_that_fails_is_a_fault_of_ours_and_undoes_the_turn() {
    let mut session = session();
    run(&mut session, "x = 1");
    let fault = session
        .run_blocking("x = 2\ntry:\n    broken()\nexcept BaseException:\n    pass")
        .unwrap_err();
    assert!(
        matches!(&fault, SandboxError::Tool { tool, reason } if tool == "broken" && reason == "the index is gone"),
        "{fault}"
    );
    assert_eq!(stdout(&mut session, "print(x)"), "1\n");
}

#[test]
fn tools_that_are_redefined_are_named() {
    let mut session = session();
    assert!(run(&mut session, "x = search_pages").redefined.is_empty());
    let output = run(&mut session, "def search_pages(query):\n    return []");
    assert_eq!(output.redefined, ["search_pages"]);
    assert!(run(&mut session, "del search_pages").redefined.is_empty());
    let replaced = run(
        &mut session,
        "import builtins\nbuiltins.read_section = None",
    );
    assert_eq!(replaced.redefined, ["read_section"]);
}

#[test]
fn every_limit_has_its_status_and_leaves_the_session_usable() {
    let limits = Limits {
        time: Duration::from_millis(500),
        calls: 3,
        output_bytes: 1000,
        code_bytes: 500,
        memory_bytes: 256 << 20,
        ..Limits::default()
    };
    let mut session = engine(limits).session(Arc::new(Wiki), 1);
    run(&mut session, "x = ['kept']");
    let cases = [
        (
            "x.append(1)\nprint('seen')\nwhile True:\n    pass",
            Status::Timeout,
            "TimeLimit",
            "seen\n",
        ),
        (
            "x.append(1)\ny = []\nwhile True:\n    y.append(bytearray(30_000_000))",
            Status::Memory,
            "MemoryError",
            "",
        ),
        (
            "for i in range(9):\n    search_pages('a')",
            Status::Calls,
            "ToolCallLimit",
            "",
        ),
        (
            "while True:\n    try:\n        search_pages('a')\n    except BaseException:\n        pass",
            Status::Calls,
            "ToolCallLimit",
            "",
        ),
    ];
    for (code, status, kind, printed) in cases {
        let output = run(&mut session, code);
        assert_eq!(
            (output.status, error(&output).0, output.stdout.as_str()),
            (status, kind, printed),
            "{code}: {output:?}"
        );
        assert_eq!(stdout(&mut session, "print(x)"), "['kept']\n");
    }
    let flood = run(&mut session, "for i in range(1000):\n    print(i)");
    assert_eq!((flood.status, flood.stdout.len()), (Status::Output, 1000));
    let long = run(&mut session, &"x = 1\n".repeat(100));
    assert_eq!(
        (long.status, error(&long)),
        (
            Status::CodeSize,
            ("CodeTooLong", "the code has 600 bytes; at most 500 are run")
        )
    );
    assert_eq!(stdout(&mut session, "print(x)"), "['kept']\n");
}

#[test]
fn a_program_that_goes_on_calling_is_undone_and_one_that_stops_is_not() {
    let limits = Limits {
        calls: 3,
        ..Limits::default()
    };
    let mut session = engine(limits).session(Arc::new(Wiki), 1);
    for (code, undone) in [
        ("x = 1\nfor i in range(9):\n    search_pages('a')", false),
        (
            "y = 1\nwhile True:\n    try:\n        search_pages('a')\n    except BaseException:\n        pass",
            true,
        ),
    ] {
        let output = run(&mut session, code);
        assert_eq!(
            (output.status, output.undone),
            (Status::Calls, undone),
            "{code}"
        );
    }
    let kept = stdout(&mut session, "print(x, 'y' in globals())");
    assert_eq!(kept, "1 False\n");
}

#[test]
fn a_first_turn_that_is_stopped_leaves_a_fresh_session() {
    let limits = Limits {
        time: Duration::from_millis(200),
        ..Limits::default()
    };
    let mut session = engine(limits).session(Arc::new(Wiki), 1);
    assert_eq!(
        run(&mut session, "x = 1\nwhile True: pass").status,
        Status::Timeout
    );
    assert_eq!(
        error(&run(&mut session, "x")),
        ("NameError", "name 'x' is not defined")
    );
    assert_eq!(stdout(&mut session, "print(len(search_pages('a')))"), "2\n");
}

#[test]
fn checkpoints_go_back_and_fork() {
    let engine = engine(Limits::default());
    let mut session = engine.session(Arc::new(Wiki), 3);
    let fresh = session.checkpoint().unwrap();
    run(
        &mut session,
        "import random\nx = {'a': [1, 2]}\ng = (n * n for n in range(9))\nnext(g)\nblob = 'é' * 3000000",
    );
    let before = session.checkpoint().unwrap();
    let mut twin = engine.fork(&before, Arc::new(Wiki));
    let code = "x['b'] = next(g)\nprint(x, len(blob), random.random(), hash('a'), id(x))";
    let first = stdout(&mut session, code);
    assert_eq!(stdout(&mut twin, code), first);
    session.restore(&before);
    assert_eq!(stdout(&mut session, code), first);
    session.restore(&fresh);
    assert_eq!(error(&run(&mut session, "x")).0, "NameError");
    run(&mut session, "x = 1");
    session.reset();
    assert_eq!(error(&run(&mut session, "x")).0, "NameError");
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
    let engine = engine(Limits::default());
    let code = "import random, time, datetime, os\nprint(random.random(), random.sample(range(100), 5), os.urandom(4))\n\
                print({'b', 'a', 'c', 'x'}, hash('text'), object(), time.time(), datetime.datetime.now())\n\
                time.sleep(3600)\nprint(time.time())";
    let output = |seed| run(&mut engine.session(Arc::new(Wiki), seed), code).stdout;
    assert_eq!(output(1), output(1));
    assert_ne!(output(1), output(2));
    assert!(output(1).contains("2025-01-01"), "{}", output(1));
}

#[test]
fn what_is_not_there_says_so() {
    let mut session = session();
    let numpy = run(&mut session, "import numpy as np");
    let (kind, message) = error(&numpy);
    assert_eq!(kind, "ModuleNotFoundError");
    assert!(
        message.starts_with("No module named 'numpy' (the sandbox has: abc, ")
            && message.contains("statistics"),
        "{message}"
    );
    assert!(!message.contains('\n'));
    for (code, kind) in [
        ("open('/etc/passwd').read()", "FileNotFoundError"),
        ("open('x', 'w')", "PermissionError"),
        ("import os\nos.system('ls')", "PermissionError"),
        ("import os\nos.listdir('.')", "PermissionError"),
        ("import socket", "ModuleNotFoundError"),
        ("import subprocess", "ModuleNotFoundError"),
        ("import ctypes", "ModuleNotFoundError"),
        ("input()", "EOFError"),
    ] {
        assert_eq!(error(&run(&mut session, code)).0, kind, "{code}");
    }
    assert_eq!(
        stdout(
            &mut session,
            "import os\nprint(dict(os.environ), os.getcwd(), os.path.join('a', 'b'))"
        ),
        "{} / a/b\n"
    );
}

#[test]
fn modules_that_are_named_are_there() {
    let mut session = session();
    let refused = run(&mut session, "import numpy");
    let (_, message) = error(&refused);
    let named = message
        .split_once("the sandbox has: ")
        .unwrap()
        .1
        .trim_end_matches(')');
    for module in named.split(", ") {
        let output = run(&mut session, &format!("import {module}"));
        assert_eq!(output.error, None, "{module}");
    }
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sandbox.md");
    let document = fs::read_to_string(document).unwrap();
    let (_, listed) = document.split_once("These modules are there: ").unwrap();
    let (listed, _) = listed.split_once(". Importing").unwrap();
    let listed: Vec<&str> = listed
        .split(',')
        .map(|name| name.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(listed.join(", "), named);
}

#[test]
fn errors_are_in_the_words_of_cpython_whether_caught_or_not() {
    let mut session = session();
    for (code, kind, message) in [
        ("max([])", "ValueError", "max() arg is an empty sequence"),
        (
            "[1] + 1",
            "TypeError",
            "can only concatenate list (not \"int\") to list",
        ),
        (
            "def f():\n    x += 1\nf()",
            "UnboundLocalError",
            "cannot access local variable 'x' where it is not associated with a value",
        ),
        (
            "import math\nmath.sqrt(-1)",
            "ValueError",
            "math domain error",
        ),
    ] {
        assert_eq!(error(&run(&mut session, code)), (kind, message), "{code}");
        let indented = code.replace('\n', "\n    ");
        let caught = format!("try:\n    {indented}\nexcept Exception as e:\n    print(e)");
        assert_eq!(stdout(&mut session, &caught), format!("{message}\n"));
    }
    let output = run(&mut session, "y = 1\nx = 23\nx+2 = 25");
    let expected = "  File \"<python>\", line 3\n    x+2 = 25\n    ^^^\nSyntaxError: cannot assign to expression here. \
                    Maybe you meant '==' instead of '='?\n";
    assert_eq!(output.error.unwrap().traceback, expected);
    let output = run(&mut session, " print(5000))");
    let expected =
        "  File \"<python>\", line 1\n    print(5000))\nIndentationError: unexpected indent\n";
    assert_eq!(output.error.unwrap().traceback, expected);
}

#[test]
fn tracebacks_read_as_cpythons() {
    let mut session = session();
    run(&mut session, "def half(n):\n    return 1 / n");
    let output = run(
        &mut session,
        "total = 0\nfor n in [1, 0]:\n    total += half(n)",
    );
    let expected = "Traceback (most recent call last):\n  File \"<python>\", line 3, in <module>\n    total += half(n)\n             ~~~~^^^\n  \
                    File \"<python>\", line 2, in half\n    return 1 / n\n           ~~^~~\nZeroDivisionError: division by zero\n";
    assert_eq!(output.error.unwrap().traceback, expected);
    let output = run(&mut session, "x = (1,\nprint(x)");
    let expected =
        "  File \"<python>\", line 1\n    x = (1,\n        ^\nSyntaxError: '(' was never closed\n";
    assert_eq!(output.error.unwrap().traceback, expected);
    let output = run(&mut session, "read_section('x')");
    let traceback = output.error.unwrap().traceback;
    assert!(
        !traceback.contains("_forage") && traceback.contains("line 1, in <module>"),
        "{traceback}"
    );
}

#[test]
fn streams_are_whole_again_at_the_next_turn() {
    let mut session = session();
    let output = run(
        &mut session,
        "import sys, io\nprint('to stderr', file=sys.stderr)\nsys.stdout = io.StringIO()\nprint('lost')",
    );
    assert_eq!(
        (output.stdout.as_str(), output.stderr.as_str()),
        ("", "to stderr\n")
    );
    assert_eq!(
        stdout(
            &mut session,
            "print('back')\nsys.stdout.close()\nprint('still')"
        ),
        "back\nstill\n"
    );
    assert_eq!(
        stdout(
            &mut session,
            "import contextlib\nbuffer = io.StringIO()\nwith contextlib.redirect_stdout(buffer):\n    print('in')\nprint(repr(buffer.getvalue()))"
        ),
        "'in\\n'\n"
    );
    assert_eq!(
        error(&run(&mut session, "print('\\ud800')")).0,
        "UnicodeEncodeError"
    );
}

#[test]
fn a_prompt_prints_values() {
    let mut session = session();
    session.echo(true);
    assert_eq!(stdout(&mut session, "x = 3\n"), "");
    assert_eq!(stdout(&mut session, "x * 2\n"), "6\n");
    assert_eq!(
        stdout(&mut session, "for i in range(2):\n    i\n\n"),
        "0\n1\n"
    );
}

#[test]
fn an_abandoned_turn_loses_the_session_and_nothing_else() {
    let engine = engine(Limits {
        time: Duration::from_millis(300),
        ..Limits::default()
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut session = engine.session(Arc::new(()), 0);
        let turn = session.run("while True: pass");
        assert!(
            tokio::time::timeout(Duration::from_millis(20), turn)
                .await
                .is_err()
        );
        assert!(matches!(
            session.run("1").await,
            Err(SandboxError::Abandoned)
        ));
        let mut other = engine.session(Arc::new(()), 0);
        assert_eq!(other.run("print(1)").await.unwrap().stdout, "1\n");
    });
}
