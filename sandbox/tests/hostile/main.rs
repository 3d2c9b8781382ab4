//! Programs that try to run forever, take everything, break the session or get out. See `program.rs` for how they are written.
//!
//! Each runs in a session of its own that has some state. It must end in one of the ways it names, in its time; undone turns
//! must leave no trace; the session must go on, be as new after a reset, and no other session may notice anything. Nothing on
//! the machine may be read, changed or called.

mod program;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use forage_sandbox::{
    EngineOptions, Limits, SandboxEngine, Session, Status, ToolError, ToolSpec, Tools, TurnOutput,
};
use program::{Outcome, Program};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

const TIME: Duration = Duration::from_secs(1);
/// What a turn may take on top of a tenth of its limit: the clock of processor time ticks every hundredth of a second, and
/// undoing a turn takes some.
const SLACK: Duration = Duration::from_millis(50);
/// A turn's time on a machine that is busy otherwise; past it something hangs.
const HANG: Duration = Duration::from_secs(30);
const SECRET: &str = "the-secret-of-the-machine";

/// Three tools that answer at once.
struct Library;

impl Tools for Library {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![
            ToolSpec::new("search_pages", &["query"], "Finds pages.").with_default("n", json!(10)),
            ToolSpec::new(
                "view_sections",
                &["page_id"],
                "Lists the sections of a page.",
            ),
            ToolSpec::new("read_section", &["section_id"], "The text of a section."),
        ]
    }

    fn call(&self, name: &str, arguments: &Map<String, Value>) -> Result<Value, ToolError> {
        // Real tools rely on what the contract of `call` promises.
        let spec = self.specs().into_iter().find(|spec| spec.name == name);
        let spec =
            spec.ok_or_else(|| ToolError::Fault(format!("called `{name}`, which is not a tool")))?;
        let missing = spec
            .parameters
            .iter()
            .any(|parameter| !arguments.contains_key(&parameter.name));
        if missing || arguments.len() != spec.parameters.len() {
            return Err(ToolError::Fault(format!(
                "called `{name}` with {:?}",
                arguments.keys().collect::<Vec<_>>()
            )));
        }
        let first = arguments[&spec.parameters[0].name].as_str();
        let raise = |kind, message: &str| {
            Err(ToolError::Raise {
                kind,
                message: message.to_owned(),
            })
        };
        match (name, first) {
            (_, None) => raise("TypeError", "expected a str"),
            ("search_pages", Some(_)) => {
                Ok(json!([{"id": "page-1", "title": "Bridge"}, {"id": "page-2", "title": "River"}]))
            }
            ("view_sections", Some("page-1")) => {
                Ok(json!([{"id": "page-1#0", "title": "History"}]))
            }
            ("read_section", Some("page-1#0")) => Ok(json!("Built long ago.")),
            (_, Some(_)) => raise("KeyError", "no such page or section"),
        }
    }
}

/// What of the machine must stay out of reach.
struct Outside {
    folder: TempDir,
    listener: TcpListener,
    path: String,
}

impl Outside {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret.txt"), SECRET).unwrap();
        fs::write(
            folder.path().join("secret.py"),
            format!("print({SECRET:?})\n"),
        )
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "something of the environment that no program may see"
        )]
        let path = std::env::var("PATH").unwrap();
        Self {
            folder,
            listener,
            path,
        }
    }

    fn places(&self) -> [(&'static str, String); 3] {
        let folder = self.folder.path().display();
        let port = self.listener.local_addr().unwrap().port();
        [
            ("@FILE@", format!("{folder}/secret.txt")),
            ("@FOLDER@", folder.to_string()),
            ("@PORT@", port.to_string()),
        ]
    }

    fn files(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap());
        entries
            .map(|entry| {
                (
                    entry.file_name().into_string().unwrap(),
                    fs::read_to_string(entry.path()).unwrap(),
                )
            })
            .collect()
    }

    /// Whether a turn knows something of the machine.
    fn told(&self, turn: &TurnOutput) -> bool {
        let text = serde_json::to_string(turn).unwrap();
        text.contains(SECRET) || text.contains(&self.path)
    }
}

fn engine() -> &'static SandboxEngine {
    static ENGINE: OnceLock<SandboxEngine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let limits = Limits {
            time: TIME,
            memory_bytes: 256 << 20,
            calls: 64,
            ..Limits::default()
        };
        SandboxEngine::open(&EngineOptions {
            limits,
            ..EngineOptions::default()
        })
        .unwrap()
    })
}

fn session() -> Session {
    engine().session(Arc::new(Library), 7)
}

/// How a program ends with ten times the time: where it ran out of time unexpectedly, the machine may be slow.
fn with_patience(program: &Program) -> TurnOutput {
    let limits = Limits {
        time: TIME * 10,
        memory_bytes: 256 << 20,
        calls: 64,
        ..Limits::default()
    };
    let engine = SandboxEngine::open(&EngineOptions {
        limits,
        ..EngineOptions::default()
    })
    .unwrap();
    let mut session = engine.session(Arc::new(Library), 7);
    for code in ["kept = ['kept', 1]"]
        .into_iter()
        .chain(program.before.as_deref())
    {
        session.run_blocking(code).unwrap();
    }
    session.run_blocking(&program.code).unwrap()
}

/// Processor time of this process.
fn processor_time() -> Duration {
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else {
        return Duration::ZERO;
    };
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Runs a turn; the complaints about what holds for every turn whatever its code.
fn turn(session: &mut Session, code: &str) -> (TurnOutput, Vec<String>) {
    let (wall, processor) = (Instant::now(), processor_time());
    let result = session.run_blocking(code);
    let (wall, processor) = (wall.elapsed(), processor_time().saturating_sub(processor));
    let limits = Limits::default();
    let turn = match result {
        Ok(turn) => turn,
        Err(fault) => return (nothing(), vec![format!("a failure of ours: {fault}")]),
    };
    let mut wrong = Vec::new();
    // The process also parks sessions whose turns have ended: a turn on one thread takes no more of the processor than passes in all.
    if processor.min(wall) > TIME.mul_f64(1.1) + SLACK || wall > HANG {
        wrong.push(format!(
            "took {processor:?} of the processor, {wall:?} in all"
        ));
    }
    if turn.stdout.len() > limits.output_bytes || turn.calls.len() > limits.calls {
        wrong.push(format!(
            "{} bytes printed, {} calls",
            turn.stdout.len(),
            turn.calls.len()
        ));
    }
    if (turn.status == Status::Ok) != turn.error.is_none() {
        wrong.push(format!("ended with {:?} and {:?}", turn.status, turn.error));
    }
    (turn, wrong)
}

/// A turn that fits no expectation.
fn nothing() -> TurnOutput {
    serde_json::from_value(
        json!({"stdout": "", "stderr": "", "error": null, "status": "crash", "undone": false, "calls": [], "wall_us": 0,
        "redefined": []}),
    )
    .unwrap()
}

fn ended(turn: &TurnOutput) -> String {
    let error = turn
        .error
        .as_ref()
        .map(|error| format!("{}: {}", error.kind, error.message));
    let text: String = format!(
        "{:?} {} stdout {:?}",
        turn.status,
        error.unwrap_or_default(),
        turn.stdout
    )
    .chars()
    .take(300)
    .collect();
    text
}

fn expect(what: &str, outcomes: &[Outcome], turn: &TurnOutput, wrong: &mut Vec<String>) {
    if !outcomes.iter().any(|outcome| outcome.fits(turn)) {
        wrong.push(format!("{what} ended otherwise: {}", ended(turn)));
    }
}

/// Code that prints everything a session holds by name.
const NAMES: &str = "print(kept, sorted(name for name in globals() if name != '__builtins__'))";

/// A session with some state.
fn prepared(program: &Program) -> Session {
    let mut session = session();
    for code in ["kept = ['kept', 1]"]
        .into_iter()
        .chain(program.before.as_deref())
    {
        let (state, _) = turn(&mut session, code);
        assert_eq!(state.status, Status::Ok, "{}: {state:?}", program.name);
    }
    session
}

fn check(program: &Program, outside: &Outside, witness: &mut Session) -> Vec<String> {
    let mut session = prepared(program);
    // In a session of its own, so that nothing comes between the state and the program.
    let (names, _) = turn(&mut prepared(program), NAMES);
    let (hostile, mut wrong) = turn(&mut session, &program.code);
    let unexpected = !program
        .outcomes
        .iter()
        .any(|outcome| outcome.fits(&hostile));
    if unexpected && hostile.status == Status::Timeout {
        expect(
            "the program",
            &program.outcomes,
            &with_patience(program),
            &mut wrong,
        );
        return wrong;
    }
    expect("the program", &program.outcomes, &hostile, &mut wrong);
    if matches!(
        hostile.status,
        Status::Timeout | Status::Memory | Status::Stack | Status::Crash
    ) {
        let (left, _) = turn(&mut session, NAMES);
        if left.stdout != names.stdout {
            wrong.push(format!(
                "left behind by an undone turn: {}; before: {:?}",
                ended(&left),
                names.stdout
            ));
        }
    }
    if let Some(out) = &program.out {
        let right = if out.is_empty() {
            hostile.stdout.is_empty()
        } else {
            hostile.stdout.starts_with(&format!("{out}\n"))
        };
        if !right {
            wrong.push(format!("printed {:?}", hostile.stdout));
        }
    }
    if program
        .redefined
        .as_ref()
        .is_some_and(|tool| !hostile.redefined.contains(tool))
    {
        wrong.push(format!("redefined {:?}", hostile.redefined));
    }
    if program.same {
        let (again, _) = turn(&mut prepared(program), &program.code);
        if again.stdout != hostile.stdout {
            wrong.push(format!(
                "printed {:?}, then {:?}",
                hostile.stdout, again.stdout
            ));
        }
    }
    let (then, more) = turn(&mut session, &program.then);
    wrong.extend(more);
    expect("the turn after it", &program.ends, &then, &mut wrong);
    if program
        .prints
        .as_ref()
        .is_some_and(|prints| then.stdout.trim_end_matches('\n') != prints)
    {
        wrong.push(format!("after it: {}", ended(&then)));
    }
    session.reset();
    for (what, session, code, prints) in [
        (
            "after a reset",
            &mut session,
            "print('kept' in globals(), search_pages('x')[0]['id'])",
            "False page-1\n",
        ),
        ("another session", witness, "print(witness)", "1\n"),
    ] {
        let (found, _) = turn(session, code);
        if found.stdout != prints {
            wrong.push(format!("{what}: {}", ended(&found)));
        }
    }
    if [&hostile, &then].into_iter().any(|turn| outside.told(turn)) {
        wrong.push(format!("reached the machine: {}", ended(&hostile)));
    }
    wrong
}

fn category(name: &str) {
    // One at a time, because the processor time taken is that of the process.
    static TURNS: Mutex<()> = Mutex::new(());
    let _turn = TURNS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let outside = Outside::new();
    let files = outside.files();
    let mut witness = session();
    assert_eq!(turn(&mut witness, "witness = 1").0.status, Status::Ok);
    let mut wrong = Vec::new();
    for program in program::read(name, &outside.places()) {
        wrong.extend(
            check(&program, &outside, &mut witness)
                .into_iter()
                .map(|what| format!("{name}/{}: {what}", program.name)),
        );
        assert_eq!(
            outside.files(),
            files,
            "{name}/{} changed files",
            program.name
        );
        assert!(
            outside.listener.accept().is_err(),
            "{name}/{} made a connection",
            program.name
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! categories {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            category(stringify!($name));
        })*

        #[test]
        fn every_file_is_run() {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
            let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut found: Vec<String> = names.filter_map(|name| name.strip_suffix(".py").map(str::to_owned)).collect();
            let mut run = vec![$(stringify!($name).to_owned()),*];
            found.sort();
            run.sort();
            assert_eq!(run, found);
        }
    };
}

categories!(
    archives, bridge, calls, classes, compiling, formats, generators, hooks, imports, lifetimes,
    limits, loops, memory, numbers, output, outside, pickles, recursion, reflection, regexes,
    source, threads, tools
);
