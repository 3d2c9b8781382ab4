//! Runs as they go on: `forage runs watch` as text and on a pseudo-terminal, `forage serve run` over HTTP.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{SMOKE, done, fails, text};

/// What something that comes soon may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// A run of 60 steps, of which three are done.
fn run(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    std::fs::write(folder.join("config.toml"), "seed = 1\n[grpo]\nsteps = 60\n").unwrap();
    for step in 0..3 {
        append(folder, step);
    }
}

fn append(folder: &Path, step: u64) {
    let mut row = String::new();
    let _ = writeln!(
        row,
        r#"{{"step":{step},"reward/mean":0.{step},"policy/entropy":0.7,"time/rollout_s":2.0}}"#
    );
    write(&folder.join("metrics.jsonl"), row.as_bytes());
}

fn write(file: &Path, bytes: &[u8]) {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.append(true).create(true).open(file).unwrap();
    file.write_all(bytes).unwrap();
}

/// Tries until it comes.
fn soon<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn without_a_terminal_a_run_is_watched_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("run");
    done(&[
        "train",
        SMOKE,
        "--out",
        text(&place),
        "--set",
        "grpo.steps=2",
    ]);
    let once = done(&["runs", "watch", text(&place), "--once"]);
    for part in [
        "run: all 2 steps are done.",
        "no alarms",
        "Training reward",
        "Reward, mean with 95 % interval over steps",
        "Searches per episode",
        "Tokens that the policy",
        "Policy entropy (nats)",
        "Time of a step",
        "Newest trajectories",
    ] {
        // The smoke run may raise signs of its own.
        let raised = part == "no alarms" && once.contains("alarms: ");
        assert!(raised || once.contains(part), "no `{part}` in\n{once}");
    }
    assert!(!once.contains('\x1b'), "{once}");
    assert_eq!(once, done(&["runs", "watch", text(&place)]));
    // What a writer that was stopped within a row leaves.
    write(&place.join("metrics.jsonl"), b"{\"step\":2,\"name\":\"\xc3");
    let config = std::fs::read_to_string(place.join("config.toml")).unwrap();
    let longer = config.replacen("steps = 2\n", "steps = 9\n", 1);
    std::fs::write(place.join("config.toml"), longer).unwrap();
    let torn = done(&["runs", "watch", text(&place)]);
    let torn = torn.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "run: 2 of 9 steps are done",
        "; the next row is half written; it is stopped,",
    ] {
        assert!(torn.contains(part), "no `{part}` in\n{torn}");
    }
    let (code, refused) = fails(&["serve", "run", text(folder.path()), "--addr", "0"]);
    assert!(
        code == 1 && refused.contains("is not a run folder"),
        "{refused}"
    );
}

/// A server of runs, until it is dropped.
struct Server {
    child: Child,
    port: u16,
    /// Kept open: the server goes on to write there.
    _said: BufReader<std::process::ChildStderr>,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        Self::under(&[], arguments)
    }

    /// The same, started by another program.
    fn under(before: &[&str], arguments: &[&str]) -> Self {
        let own = [
            env!("CARGO_BIN_EXE_forage"),
            "serve",
            "run",
            "--addr",
            "127.0.0.1:0",
        ];
        let words = [before, &own, arguments].concat();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on http://127.0.0.1:") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
        }
        let port = line.split("127.0.0.1:").nth(1).unwrap();
        let port = port.split(',').next().unwrap().parse().unwrap();
        Self {
            child,
            port,
            _said: said,
        }
    }

    /// The answer to a request, head and body.
    fn get(&self, path: &str, header: &str) -> (String, String) {
        let port = self.port;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let end = if header.is_empty() { "" } else { "\r\n" };
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{header}{end}\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The tag of an answer.
fn tag(head: &str) -> &str {
    let lines = head.lines();
    let mut found = lines.filter_map(|line| line.strip_prefix("etag: "));
    found.next().unwrap()
}

#[test]
fn a_served_page_follows_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("run");
    run(&place);
    let server = Server::start(&[text(&place)]);
    let (head, frame) = server.get("/", "");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("frame-src blob:"),
        "{head}"
    );
    assert!(
        frame.contains("/page") && !frame.contains("of 60 steps"),
        "{frame}"
    );

    let (first, page) = server.get("/page", "");
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
    assert!(page.contains("run: 3 of 60 steps are done") && page.contains("Training reward"));
    let known = format!("If-None-Match: {}", tag(&first));
    // Weak behind a proxy that compresses.
    let weak = format!("If-None-Match: \"other\", W/{}", tag(&first));
    for known in [&known, &weak] {
        let (again, nothing) = server.get("/page", known);
        assert!(
            again.starts_with("HTTP/1.1 304 ") && nothing.is_empty(),
            "{again}"
        );
    }

    let (head, results) = server.get("/run.json", "");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("content-type: application/json"),
        "{head}"
    );
    let printed = done(&["runs", "report", text(&place), "--json"]);
    let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
    assert_eq!(read(&results)["training"], read(&printed)["training"]);
    assert_ne!(tag(&head), tag(&first));
    let known_results = format!("If-None-Match: {}", tag(&head));
    let (again, nothing) = server.get("/run.json", &known_results);
    assert!(
        again.starts_with("HTTP/1.1 304 ") && nothing.is_empty(),
        "{again}"
    );

    append(&place, 3);
    let newer = soon("the fourth step is not shown", || {
        let (head, page) = server.get("/page", &known);
        page.contains("run: 4 of 60 steps are done").then_some(head)
    });
    assert_ne!(tag(&newer), tag(&first));
    write(&place.join("metrics.jsonl"), b"{\"step\":4,\"na");
    soon("the torn row is not told of", || {
        let (_, page) = server.get("/page", "");
        page.contains("the next row is half written").then_some(())
    });
    // A file that cannot be read leaves what was read before.
    write(&place.join("metrics.jsonl"), b"\n");
    std::thread::sleep(Duration::from_millis(200));
    let (head, page) = server.get("/page", "");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && page.contains("4 of 60 steps"),
        "{head}"
    );

    let (foreign, _) = server.get("/page", "Origin: http://example.org");
    assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
    let (missing, _) = server.get("/other", "");
    assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
}

#[test]
fn a_token_guards_the_runs_and_not_the_frame_that_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("run");
    run(&place);
    let secret = folder.path().join("token");
    std::fs::write(&secret, "sesame\n").unwrap();
    let server = Server::start(&[text(&place), "--token-file", text(&secret)]);
    let status = |path: &str, header: &str| server.get(path, header).0[9..12].to_owned();
    assert_eq!(status("/", ""), "200");
    for path in ["/page", "/run.json", "/openapi.json"] {
        assert_eq!(status(path, ""), "401");
        assert_eq!(status(path, "Authorization: Bearer sesame"), "200");
    }
}

#[test]
fn a_server_that_is_to_outlive_its_terminal_goes_on_when_that_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("run");
    run(&place);
    let server = Server::under(&["nohup"], &[text(&place)]);
    let mut kill = Command::new("kill");
    let sent = kill.args(["-HUP", &server.child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    std::thread::sleep(Duration::from_secs(1));
    let (head, _) = server.get("/page", "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

/// A pseudo-terminal with the program on it. The child is given a session of its own, whose terminal it is.
#[cfg(target_os = "linux")]
mod terminal {
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::sync::{Arc, Mutex};

    use nix::pty::{Winsize, openpty};
    use nix::sys::signal::{Signal, kill};
    use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
    use nix::unistd::Pid;

    use super::*;

    /// The program's screen on this terminal.
    fn watch(run: &Path, slave: &OwnedFd) -> Child {
        let end = || Stdio::from(slave.try_clone().unwrap());
        Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_forage")])
            .args(["runs", "watch", text(run)])
            .env("TERM", "xterm-256color")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap()
    }

    struct Terminal {
        child: Child,
        keys: File,
        screen: OwnedFd,
        seen: Arc<Mutex<Vec<u8>>>,
        before: LocalFlags,
    }

    impl Terminal {
        fn start(run: &Path) -> Self {
            let size = Winsize {
                ws_row: 40,
                ws_col: 100,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            let pty = openpty(Some(&size), None::<&Termios>).unwrap();
            let before = tcgetattr(&pty.slave).unwrap().local_flags;
            let child = watch(run, &pty.slave);
            let seen = Arc::new(Mutex::new(Vec::new()));
            let mut shown = File::from(pty.master.try_clone().unwrap());
            let kept = Arc::clone(&seen);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = shown.read(&mut buffer) {
                    kept.lock().unwrap().extend_from_slice(&buffer[..count]);
                }
            });
            Self {
                child,
                keys: File::from(pty.master),
                screen: pty.slave,
                seen,
                before,
            }
        }

        fn length(&self) -> usize {
            self.seen.lock().unwrap().len()
        }

        /// Whether it was written from there on.
        fn holds(&self, from: usize, needle: &str) -> bool {
            let seen = self.seen.lock().unwrap();
            let mut places = seen[from..].windows(needle.len());
            places.any(|place| place == needle.as_bytes())
        }

        fn resize(&self, rows: usize, columns: usize) {
            let [rows, columns] = [rows, columns].map(|count| count.to_string());
            let status = Command::new("stty")
                .args(["rows", &rows, "cols", &columns])
                .stdin(Stdio::from(self.screen.try_clone().unwrap()))
                .status();
            assert!(status.unwrap().success());
        }

        /// Resizes until a whole new screen shows it: other drawings write only what has changed.
        fn shows(&self, needle: &str, columns: usize) {
            let mut turn = 0;
            soon(needle, || {
                let from = self.length();
                turn += 1;
                self.resize(40 + turn % 2, columns);
                std::thread::sleep(Duration::from_millis(400));
                self.holds(from, needle).then_some(())
            });
        }

        fn flags(&self) -> LocalFlags {
            tcgetattr(&self.screen).unwrap().local_flags
        }

        /// The program has ended well and left the terminal as it was.
        fn ended(mut self) {
            let status = soon("it goes on", || self.child.try_wait().unwrap());
            assert!(status.success(), "{status}");
            soon("the screen was not left", || {
                self.holds(0, "\x1b[?1049l").then_some(())
            });
            assert!(self.holds(0, "\x1b[?25h"), "the cursor is hidden");
            assert_eq!(self.flags(), self.before);
        }
    }

    impl Drop for Terminal {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn a_terminal_shows_the_run_and_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("run");
        run(&place);
        let mut terminal = Terminal::start(&place);
        terminal.shows("Training", 100);
        assert!(terminal.holds(0, "\x1b[?1049h"));
        assert!(
            !terminal.flags().contains(LocalFlags::ICANON),
            "keys come one by one"
        );
        // It follows, and it resizes.
        let alarm = r#"{"kind":"zyxwvuts","severity":"stop","step":3,"message":"Entropy fell."}"#;
        append(&place, 3);
        write(&place.join("alarms.jsonl"), format!("{alarm}\n").as_bytes());
        terminal.shows("zyxwvuts", 90);
        terminal.shows("Training", 40);
        terminal.keys.write_all(b"q").unwrap();
        terminal.ended();
    }

    #[test]
    fn ctrl_c_and_a_signal_give_the_terminal_back() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("run");
        run(&place);
        let mut terminal = Terminal::start(&place);
        terminal.shows("Training", 100);
        terminal.keys.write_all(b"\x03").unwrap();
        terminal.ended();
        let terminal = Terminal::start(&place);
        terminal.shows("Training", 100);
        let id = i32::try_from(terminal.child.id()).unwrap();
        kill(Pid::from_raw(id), Signal::SIGTERM).unwrap();
        terminal.ended();
    }

    #[test]
    fn it_ends_when_the_terminal_hangs_up() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("run");
        run(&place);
        let pty = openpty(None::<&Winsize>, None::<&Termios>).unwrap();
        // The clone is closed in processes that are begun: a terminal that the program held itself would not hang up.
        let mut shown = File::from(pty.master).try_clone().unwrap();
        let mut child = watch(&place, &pty.slave);
        assert!(shown.read(&mut [0; 4096]).unwrap() > 0);
        drop((shown, pty.slave));
        soon("it goes on", || child.try_wait().unwrap());
    }
}
