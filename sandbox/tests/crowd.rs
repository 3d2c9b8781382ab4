//! Two hundred sessions that misbehave at once hold the others up no longer than their share of the processors allows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forage_sandbox::{EngineOptions, Limits, SandboxEngine, Session, Status};

const CROWD: usize = 200;
const TURNS: usize = 21;

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
    let start = Instant::now();
    let among = std::thread::scope(|scope| {
        let crowd: Vec<_> = (0..CROWD)
            .map(|number| {
                let engine = engine.clone();
                scope.spawn(move || {
                    let mut session = engine.session(Arc::new(()), 0);
                    session
                        .run_blocking(programs[number % programs.len()])
                        .unwrap()
                        .status
                })
            })
            .collect();
        let among = median(&mut session);
        for (number, turn) in crowd.into_iter().enumerate() {
            assert!(
                matches!(turn.join().unwrap(), Status::Timeout | Status::Memory),
                "{}",
                programs[number % programs.len()]
            );
        }
        among
    });
    let processors = std::thread::available_parallelism().unwrap().get();
    let share = alone * (CROWD + 1) as f64 / processors as f64;
    eprintln!(
        "a turn takes {:.2} ms alone, {:.2} ms among {CROWD}; its share would be {:.2} ms",
        alone * 1e3,
        among * 1e3,
        share * 1e3
    );
    // A turn that waited for the crowd to end would take as long as all of it.
    let whole = start.elapsed().as_secs_f64();
    assert!(
        among < whole / 10.0,
        "{among} s among a crowd of {whole} s, {alone} s alone"
    );
}
