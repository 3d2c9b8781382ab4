//! Times turns of Python over a set of pages: `sandbox_bench PAGES CACHE`.
//!
//! Opens the engine, with its compiled interpreter kept in the folder CACHE, and prints one JSON line; then one for every line
//! read: `session N` (fresh sessions), `first N` (the first turn of fresh sessions), `later N` (turns of sessions that have ten), `live N`
//! (memory of sessions alive together), `hold N` (memory of sessions that each ask for 200 MiB), `throughput SECONDS` (turns on two
//! threads), `crowd N` (turns of sessions alive together, on two threads), `checkpoint N`, `restore N`, `fork N`. So a driver can
//! interleave rounds with other systems. Times are microseconds.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fs;
use std::io::BufRead;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forage_sandbox::{EngineOptions, SandboxEngine, Session, Status, ToolError, ToolSpec, Tools};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Takes memory until there is none, or 200 MiB.
const HOLD: &str = "x = []\ntry:\n    while len(x) < 25:\n        x.append(bytes([len(x)]) * (8 << 20))\nexcept MemoryError:\n    pass";

/// Turns of a session: those of a long episode.
const TURNS: usize = 10;
/// Turns of a crowd; each of its sessions takes at least two.
const CROWD_TURNS: usize = 2000;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pages, cache] = arguments.as_slice() else {
        return Err("usage: sandbox_bench PAGES CACHE".into());
    };
    let document: Document = serde_json::from_str(&fs::read_to_string(pages)?)?;
    let begun = Instant::now();
    let engine = SandboxEngine::open(&EngineOptions {
        cache: Some(cache.into()),
        ..EngineOptions::default()
    })?;
    let open = begun.elapsed();
    let bench = Bench {
        engine,
        tools: Arc::new(Pages::new(document.pages)),
        setup: document.setup,
        turn: document.turn,
    };
    run(&mut bench.session()?, "ready = True")?;
    print(&json!({"open_us": micros(open), "ready_us": micros(begun.elapsed())}));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (command, amount) = line
            .split_once(' ')
            .ok_or("expected a command and a number")?;
        let amount: usize = amount.parse()?;
        let report = match command {
            "session" => bench.fresh_sessions(amount)?,
            "first" => bench.first_turns(amount)?,
            "later" => bench.later_turns(amount)?,
            "live" => bench.live(amount)?,
            "hold" => bench.hold(amount)?,
            "throughput" => bench.throughput(Duration::from_secs(amount as u64))?,
            "crowd" => bench.crowd(amount)?,
            "checkpoint" => bench.checkpoints(amount)?,
            "restore" => bench.restores(amount)?,
            "fork" => bench.forks(amount)?,
            other => return Err(format!("unknown command `{other}`").into()),
        };
        print(&report);
    }
    Ok(())
}

/// The file PAGES.
#[derive(Deserialize)]
struct Document {
    pages: Vec<Page>,
    setup: String,
    turn: String,
}

#[derive(Deserialize)]
struct Page {
    id: String,
    title: String,
    text: String,
}

/// The pages by the words of their titles and texts.
struct Pages {
    pages: Vec<Page>,
    postings: HashMap<String, Vec<usize>>,
}

impl Pages {
    fn new(pages: Vec<Page>) -> Self {
        let mut postings: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, page) in pages.iter().enumerate() {
            let text = format!("{} {}", page.title, page.text).to_lowercase();
            for word in text.split_whitespace().collect::<BTreeSet<_>>() {
                postings.entry(word.to_owned()).or_default().push(at);
            }
        }
        Self { pages, postings }
    }

    fn search(&self, query: &str, count: usize) -> Value {
        let mut counts = vec![0_usize; self.pages.len()];
        for word in query.to_lowercase().split_whitespace() {
            for &at in self.postings.get(word).map_or(&[][..], Vec::as_slice) {
                counts[at] += 1;
            }
        }
        let mut best: Vec<usize> = (0..counts.len()).filter(|&at| counts[at] > 0).collect();
        best.sort_by_key(|&at| (std::cmp::Reverse(counts[at]), at));
        let hits = best.into_iter().take(count).map(|at| &self.pages[at]);
        hits.map(|page| json!({"id": page.id, "title": page.title, "snippet": &page.text[..page.text.len().min(120)]}))
            .collect()
    }
}

impl Tools for Pages {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("search_pages", &["query"], "Finds pages.").with_default("n", json!(10))]
    }

    fn call(&self, _: &str, arguments: &Map<String, Value>) -> Result<Value, ToolError> {
        let (Some(query), Some(count)) = (arguments["query"].as_str(), arguments["n"].as_u64())
        else {
            return Err(ToolError::Raise {
                kind: "TypeError",
                message: "expected a str and an int".to_owned(),
            });
        };
        Ok(self.search(query, count as usize))
    }
}

struct Bench {
    engine: SandboxEngine,
    tools: Arc<Pages>,
    setup: String,
    turn: String,
}

impl Bench {
    #[expect(clippy::unnecessary_wraps, reason = "timed like what can fail")]
    fn session(&self) -> Outcome<Session> {
        Ok(self.engine.session(self.tools.clone(), 0))
    }

    /// A session in the middle of an episode.
    fn used_session(&self) -> Outcome<Session> {
        let mut session = self.session()?;
        run(&mut session, &self.setup)?;
        run(&mut session, &self.turn)?;
        Ok(session)
    }

    fn fresh_sessions(&self, count: usize) -> Outcome<Value> {
        times(count, || timed(|| self.session()))
    }

    fn first_turns(&self, count: usize) -> Outcome<Value> {
        times(count, || {
            let mut session = self.session()?;
            timed(|| run(&mut session, &self.turn))
        })
    }

    /// `count` times of an act on sessions in the middle of an episode, another one after so many turns as an episode has.
    fn in_episodes(
        &self,
        count: usize,
        act: impl Fn(&mut Session) -> Outcome<Duration>,
    ) -> Outcome<Value> {
        let mut session = self.used_session()?;
        let mut turns = 0;
        times(count, || {
            turns += 1;
            if turns % TURNS == 0 {
                session = self.used_session()?;
            }
            Ok((act(&mut session)?, ()))
        })
    }

    fn later_turns(&self, count: usize) -> Outcome<Value> {
        let turn = |session: &mut Session| Ok(timed(|| run(session, &self.turn))?.0);
        let mut report = self.in_episodes(count, turn)?;
        report["stdout"] = run(&mut self.used_session()?, &self.turn)?.into();
        Ok(report)
    }

    fn checkpoints(&self, count: usize) -> Outcome<Value> {
        self.in_episodes(count, |session| {
            // Every checkpoint follows a turn, as it would in an episode.
            run(session, &self.turn)?;
            Ok(timed(|| Ok(session.checkpoint()?))?.0)
        })
    }

    fn restores(&self, count: usize) -> Outcome<Value> {
        let mut session = self.used_session()?;
        let checkpoint = session.checkpoint()?;
        times(count, || {
            run(&mut session, "seen = None")?;
            let restored = timed(|| {
                session.restore(&checkpoint);
                Ok(())
            })?;
            run(&mut session, "assert len(seen) > 0")?;
            Ok(restored)
        })
    }

    /// A second session that goes on where the first one is.
    fn forks(&self, count: usize) -> Outcome<Value> {
        self.in_episodes(count, |session| {
            run(session, &self.turn)?;
            let (time, mut forked) = timed(|| {
                let mut forked = self.session()?;
                forked.restore(&session.checkpoint()?);
                Ok(forked)
            })?;
            run(&mut forked, "assert len(seen) > 0")?;
            Ok(time)
        })
    }

    fn live(&self, count: usize) -> Outcome<Value> {
        let before = pss_kib()?;
        let alive = (0..count)
            .map(|_| self.used_session())
            .collect::<Outcome<Vec<_>>>()?;
        let each = (pss_kib()? - before) / count as f64;
        Ok(json!({"sessions": alive.len(), "kib_each": each}))
    }

    /// Sessions that each ask for 200 MiB and stay alive, from two threads.
    fn hold(&self, count: usize) -> Outcome<Value> {
        let (next, alive) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || -> Result<(), String> {
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let mut session = self.session().map_err(|error| error.to_string())?;
                for code in [HOLD, "print(len(x))"] {
                    let turn = session.run_blocking(code);
                    turn.map_err(|error| error.to_string())?;
                }
                alive.lock().expect("no thread panics").push(session);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads = [scope.spawn(work), scope.spawn(work)];
            let mut ends = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            ends.try_for_each(|end| end.expect("no thread panics"))
        })?;
        let mib = |name| Ok::<_, Box<dyn Error>>(kib("/proc/self/status", name)? / 1024.0);
        let sessions = alive.into_inner().expect("no thread panics");
        Ok(
            json!({"sessions": sessions.len(), "peak_mib": mib("VmHWM:")?, "held_mib": mib("VmRSS:")?}),
        )
    }

    fn throughput(&self, time: Duration) -> Outcome<Value> {
        let begun = Instant::now();
        let work = || -> Result<usize, String> {
            let fresh = || self.used_session().map_err(|error| error.to_string());
            let mut session = fresh()?;
            let mut turns = 0;
            while begun.elapsed() < time {
                if turns % TURNS == TURNS - 1 {
                    session = fresh()?;
                }
                run(&mut session, &self.turn).map_err(|error| error.to_string())?;
                turns += 1;
            }
            Ok(turns)
        };
        let turns = std::thread::scope(|scope| {
            let threads = [scope.spawn(work), scope.spawn(work)];
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no thread panics"))
                .sum::<Result<usize, _>>()
        })?;
        Ok(json!({"turns_per_s": turns as f64 / begun.elapsed().as_secs_f64()}))
    }

    /// Turns of sessions that are alive together, one session after the other.
    fn crowd(&self, count: usize) -> Outcome<Value> {
        let before = pss_kib()?;
        let mut alive = (0..count)
            .map(|_| self.used_session())
            .collect::<Outcome<Vec<_>>>()?;
        let each = (pss_kib()? - before) / count as f64;
        let rounds = (CROWD_TURNS / count.max(1)).max(2);
        let work = |sessions: &mut [Session]| -> Result<Vec<f64>, String> {
            let mut times = Vec::with_capacity(rounds * sessions.len());
            for _ in 0..rounds {
                for session in &mut *sessions {
                    let turn = Instant::now();
                    run(session, &self.turn).map_err(|error| error.to_string())?;
                    times.push(micros(turn.elapsed()));
                }
            }
            Ok(times)
        };
        let work = &work;
        let (first, second) = alive.split_at_mut(count / 2);
        let begun = Instant::now();
        let times = std::thread::scope(|scope| {
            let threads = [first, second].map(|sessions| scope.spawn(move || work(sessions)));
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no thread panics"))
                .collect::<Result<Vec<_>, String>>()
        })?
        .concat();
        let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
        Ok(json!({"sessions": count, "kib_each": each, "turns_per_s": rate, "us": times}))
    }
}

/// Runs code that must succeed; what it printed.
fn run(session: &mut Session, code: &str) -> Outcome<String> {
    let turn = session.run_blocking(code)?;
    if turn.status != Status::Ok {
        return Err(format!("a turn ended with {:?}: {:?}", turn.status, turn.error).into());
    }
    Ok(turn.stdout)
}

fn timed<T>(act: impl FnOnce() -> Outcome<T>) -> Outcome<(Duration, T)> {
    let begun = Instant::now();
    let made = act()?;
    Ok((begun.elapsed(), made))
}

/// `count` times of an act; what it made lives until its time is taken.
fn times<T>(count: usize, mut act: impl FnMut() -> Outcome<(Duration, T)>) -> Outcome<Value> {
    let times = (0..count)
        .map(|_| act().map(|(time, _)| micros(time)))
        .collect::<Outcome<Vec<f64>>>()?;
    Ok(json!({"us": times}))
}

/// This process's share of the memory it uses.
fn pss_kib() -> Outcome<f64> {
    kib("/proc/self/smaps_rollup", "Pss:")
}

/// A number of KiB that the system tells.
fn kib(file: &str, name: &str) -> Outcome<f64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.ok_or_else(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[expect(clippy::print_stdout, reason = "the report is this program's output")]
fn print(report: &Value) {
    println!("{report}");
}
