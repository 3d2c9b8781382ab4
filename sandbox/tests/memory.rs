//! The memory that sessions share, and turns whose callers give up. All of this process's sandboxes have 192 MiB: two turns at
//! a time with the limit of 64 MiB used here, and 48 MiB for sessions between their turns.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forage_sandbox::{
    EngineOptions, Limits, SandboxEngine, SandboxError, Session, Status, ToolError, ToolSpec,
    Tools, Wait,
};
use serde_json::{Map, Value};

const SHARED_MIB: usize = 192;

#[expect(
    clippy::needless_pass_by_value,
    reason = "limits are written out where they are passed"
)]
fn open(limits: Limits) -> SandboxEngine {
    SandboxEngine::open(&EngineOptions {
        limits: Limits {
            memory_bytes: 64 << 20,
            ..limits
        },
        memory_bytes: Some(SHARED_MIB << 20),
        ..EngineOptions::default()
    })
    .unwrap()
}

fn stdout(session: &mut Session, code: &str) -> String {
    let output = session.run_blocking(code).unwrap();
    assert_eq!(output.status, Status::Ok, "{output:?}");
    output.stdout
}

/// Memory that this process holds and no file backs, in MiB.
fn held_mib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib >> 10
}

/// The most memory held while something is done, over that before it, in MiB.
fn most_held(act: impl FnOnce()) -> usize {
    let (before, done) = (held_mib(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(held_mib());
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        act();
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap().saturating_sub(before)
    })
}

/// One test, because memory is measured.
#[cfg(target_os = "linux")]
#[test]
fn sessions_stay_inside_their_share_and_keep_their_state() {
    let engine = open(Limits::default());
    let session = |seed| engine.session(Arc::new(()), seed);
    stdout(&mut session(0), "print(1)");
    let base = held_mib();

    // More than its limit is a MemoryError for the program, and the session goes on.
    let mut greedy: Vec<Session> = (0..10).map(session).collect();
    let most = most_held(|| {
        for session in &mut greedy {
            session.run_blocking("kept = 1").unwrap();
            let output = session
                .run_blocking("x = bytearray(200 * 2**20)\nprint(len(x))")
                .unwrap();
            assert_eq!(output.error.unwrap().kind, "MemoryError");
            assert_eq!(stdout(session, "print(kept)"), "1\n");
        }
    });
    assert!(most < SHARED_MIB, "{most} MiB");
    drop(greedy);

    // What does not compress and exceeds the share goes to a file and comes back. The turns come from many threads, and so wait
    // for one another.
    let make = "import os\nx = os.urandom(5 * 2**20)\nprint(hash(x))";
    let again = "x = x[1:] + x[:1]\nprint(hash(x), os.urandom(2))";
    let play = |seed| {
        let mut session = session(seed);
        let made = stdout(&mut session, make);
        (session, made)
    };
    let mut played = Vec::new();
    let most = most_held(|| {
        let threads = |numbers: std::ops::Range<u64>| {
            std::thread::scope(|scope| {
                let threads: Vec<_> = numbers
                    .map(|seed| scope.spawn(move || play(seed)))
                    .collect();
                let ends = threads.into_iter().map(|thread| thread.join().unwrap());
                ends.collect::<Vec<_>>()
            })
        };
        played = [0..10, 10..20, 20..30]
            .into_iter()
            .flat_map(threads)
            .collect();
    });
    assert!(most < SHARED_MIB, "{most} MiB");
    // 150 MiB are kept in a share of 48; the rest is what the allocator has not given back.
    std::thread::sleep(Duration::from_millis(1500));
    let resting = held_mib().saturating_sub(base);
    assert!(resting < 140, "{resting} MiB");
    let later: Vec<String> = played
        .iter_mut()
        .map(|(session, _)| stdout(session, again))
        .collect();
    drop(played);

    // The same turns alone, where nothing had to be put away, print the same.
    for (seed, later) in (0..30).zip(later).step_by(7) {
        let (mut session, _) = play(seed);
        assert_eq!(stdout(&mut session, again), later, "{seed}");
    }

    // A checkpoint of a session that was put away is one like any other.
    let sessions: Vec<_> = (0..80).map(play).collect();
    let (mut last, _) = sessions.into_iter().next_back().unwrap();
    let checkpoint = last.checkpoint().unwrap();
    let expected = stdout(&mut last, again);
    let mut fork = engine.fork(&checkpoint, Arc::new(()));
    assert_eq!(stdout(&mut fork, again), expected);
}

#[test]
fn engines_that_disagree_about_the_share_are_refused() {
    open(Limits::default());
    for (memory_bytes, limit, expected) in [
        (Some(100 << 20), 64 << 20, "total_mib"),
        (Some(SHARED_MIB << 20), 150 << 20, "lower `memory_mib`"),
    ] {
        let options = EngineOptions {
            limits: Limits {
                memory_bytes: limit,
                ..Limits::default()
            },
            memory_bytes,
            ..EngineOptions::default()
        };
        let error = SandboxEngine::open(&options).unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains("share 192 MiB"),
            "{error}"
        );
    }
}

/// A tool that takes a while.
struct Slow(AtomicUsize);

impl Tools for Slow {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("wait", &[], "Takes a while.")]
    }

    fn call(&self, _: &str, _: &Map<String, Value>) -> Result<Value, ToolError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(30));
        Ok(Value::Null)
    }
}

#[test]
fn an_abandoned_turn_is_stopped_and_gives_its_memory_back() {
    let engine = open(Limits {
        time: Duration::from_mins(10),
        ..Limits::default()
    });
    let tools = Arc::new(Slow(AtomicUsize::new(0)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let programs = [
            "while True: pass",
            "while True:\n    try:\n        wait()\n    except BaseException:\n        pass",
        ];
        for code in programs.repeat(3) {
            let mut session = engine.session(tools.clone(), 0);
            let turn = session.run(code);
            let waited = tokio::time::timeout(Duration::from_secs(1), turn).await;
            assert!(waited.is_err(), "{waited:?}");
        }
        // Two at a time: another turn waits until one of them has really ended.
        let begun = Instant::now();
        let mut session = engine.session(tools.clone(), 0);
        assert_eq!(session.run("print(1)").await.unwrap().stdout, "1\n");
        assert!(begun.elapsed() < Duration::from_mins(1));
        let calls = tools.0.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(tools.0.load(Ordering::Relaxed) <= calls + 1, "it goes on");
    });
}

#[test]
fn tools_that_take_too_long_together_are_an_error_of_the_program() {
    let engine = open(Limits {
        calls: 200,
        tool_time: Duration::from_secs(2),
        ..Limits::default()
    });
    let tools = Arc::new(Slow(AtomicUsize::new(0)));
    let mut session = engine.session(tools.clone(), 0);
    let code = "late = 0\nfor _ in range(120):\n    try:\n        wait()\n    except TimeoutError:\n        late += 1\n\
                print(late > 20)";
    assert_eq!(stdout(&mut session, code), "True\n");
    assert!(tools.0.load(Ordering::Relaxed) < 80);
    let output = session
        .run_blocking("x = 2\nfor _ in range(120): wait()")
        .unwrap();
    let error = output.error.expect("uncaught");
    assert_eq!(
        (output.status, error.kind.as_str()),
        (Status::Exception, "TimeoutError")
    );
    assert!(error.message.contains("2 s together"), "{error:?}");
    // Each turn has its own time, and what this one did is kept.
    assert_eq!(stdout(&mut session, "wait()\nprint(x)"), "2\n");
}

#[test]
fn one_call_that_takes_too_long_is_a_fault_of_ours() {
    let engine = open(Limits {
        tool_time: Duration::from_millis(20),
        ..Limits::default()
    });
    let tools = Arc::new(Slow(AtomicUsize::new(0)));
    let mut session = engine.session(tools.clone(), 0);
    stdout(&mut session, "x = 1");
    let code = "x = 2\ntry:\n    wait()\nexcept BaseException:\n    pass";
    let fault = session.run_blocking(code).unwrap_err();
    assert!(
        matches!(&fault, SandboxError::Slow { tool, .. } if tool == "wait"),
        "{fault}"
    );
    assert_eq!(tools.0.load(Ordering::Relaxed), 1);
    assert_eq!(stdout(&mut session, "print(x)"), "1\n");
}

/// A tool that takes as long as somebody waits for it.
#[derive(Default)]
struct Patient {
    begun: AtomicUsize,
    given_up: AtomicUsize,
}

impl Tools for Patient {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("wait", &[], "Takes as long as it may.")]
    }

    fn call(&self, _: &str, _: &Map<String, Value>) -> Result<Value, ToolError> {
        Ok(Value::Null)
    }

    fn call_within(
        &self,
        _: &str,
        _: &Map<String, Value>,
        wait: &Wait,
    ) -> Result<Value, ToolError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        while !wait.is_over() {
            if begun.elapsed() > Duration::from_mins(1) {
                return Ok(Value::Null);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.given_up.fetch_add(1, Ordering::SeqCst);
        Err(ToolError::Fault("nobody waits".to_owned()))
    }
}

#[test]
fn a_call_ends_when_its_turn_is_abandoned() {
    let engine = open(Limits::default());
    let tools = Arc::new(Patient::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let tick = Duration::from_millis(5);
        let mut session = engine.session(tools.clone(), 0);
        let mut turn = Box::pin(session.run("wait()"));
        while tools.begun.load(Ordering::SeqCst) == 0 {
            let waited = tokio::time::timeout(tick, turn.as_mut()).await;
            assert!(waited.is_err(), "{waited:?}");
        }
        assert_eq!(tools.given_up.load(Ordering::SeqCst), 0);
        drop(turn);
        let begun = Instant::now();
        while tools.given_up.load(Ordering::SeqCst) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(30), "it goes on");
            tokio::time::sleep(tick).await;
        }
    });
}

#[test]
fn a_call_that_ends_because_its_time_is_up_is_slow() {
    let engine = open(Limits {
        tool_time: Duration::from_millis(20),
        ..Limits::default()
    });
    let tools = Arc::new(Patient::default());
    let mut session = engine.session(tools.clone(), 0);
    let fault = session.run_blocking("wait()").unwrap_err();
    assert!(
        matches!(&fault, SandboxError::Slow { tool, .. } if tool == "wait"),
        "{fault}"
    );
    assert_eq!(tools.given_up.load(Ordering::SeqCst), 1);
}
