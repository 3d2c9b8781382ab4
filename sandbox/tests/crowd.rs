//! Two hundred sessions that misbehave at once hold the others up no longer than their share of the processors allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forage_sandbox::{EngineOptions, Limits, SandboxEngine, Session, Status};

const CROWD: usize = 200;
/// Together they need a tenth of the processor time that one of the crowd may take.
const TURNS: usize = 11;

/// The median of some turns, in seconds.
fn median(session: &mut Session) -> f64 {
    let mut times: Vec<f64> = (0..TURNS)
        .map(|_| {
            let begun = Instant::now();
            assert_eq!(
                session
                    .run_blocking("print(sum(n * n for n in range(300)))")
                    .unwrap()
                    .stdout,
                "8955050\n"
            );
            begun.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[TURNS / 2]
}

#[test]
#[expect(
    clippy::print_stderr,
    reason = "the figures that docs/results.md names"
)]
fn a_crowd_that_misbehaves_takes_its_share_and_no_more() {
    let limits = Limits {
        time: Duration::from_millis(150),
        ..Limits::default()
    };
    let engine = SandboxEngine::open(&EngineOptions {
        limits,
        ..EngineOptions::default()
    })
    .unwrap();
    let mut session = engine.session(Arc::new(()), 0);
    let alone = median(&mut session);
    let programs = [
        "while True: pass",
        "x = 10 ** 10 ** 8",
        "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
        "x = []\nwhile True: x.append(x[:])",
    ];
    let ended = AtomicUsize::new(0);
    let (among, before) = std::thread::scope(|scope| {
        let crowd: Vec<_> = (0..CROWD)
            .map(|number| {
                let (engine, ended) = (engine.clone(), &ended);
                scope.spawn(move || {
                    let mut session = engine.session(Arc::new(()), 0);
                    let turn = session.run_blocking(programs[number % programs.len()]);
                    ended.fetch_add(1, Ordering::SeqCst);
                    turn.unwrap().status
                })
            })
            .collect();
        let among = median(&mut session);
        let before = ended.load(Ordering::SeqCst);
        for (number, turn) in crowd.into_iter().enumerate() {
            assert!(
                matches!(turn.join().unwrap(), Status::Timeout | Status::Memory),
                "{}",
                programs[number % programs.len()]
            );
        }
        (among, before)
    });
    let processors = std::thread::available_parallelism().unwrap().get();
    let share = alone * (CROWD + 1) as f64 / processors as f64;
    eprintln!(
        "a turn takes {:.2} ms alone, {:.2} ms among {CROWD}; its share would be {:.2} ms",
        alone * 1e3,
        among * 1e3,
        share * 1e3
    );
    // With an equal share its turns are over before those of the crowd.
    assert!(before < CROWD, "the crowd was first");
}
