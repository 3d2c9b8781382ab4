//! Runs the shell blocks of each document in order, in a folder of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::blocks::{Block, blocks, documents, read, root};
use super::published;

/// Tags of blocks that are only read, by the unit test of `forage`'s arguments; the last by the tests of `examples/`.
const READ_ONLY: [&str; 5] = [
    "needs-gpu",
    "needs-network",
    "needs-data",
    "needs-minutes",
    "examples",
];
/// Tag of a block that is one server: it runs until the next one or the end of the document.
const SERVER: &str = "server";
/// Begins the tag that names the file a block is the content of.
const FILE: &str = "file=";
/// What a block may take, and a server before it listens.
const PATIENCE: Duration = Duration::from_mins(5);
/// What a search says that found nothing: no example for a reader.
const NOTHING: &str = "no passage matches";
/// The document whose commands name what is published; its hub is a cache of miniatures.
const FIRST_DAY: &str = "docs/first-day.md";
/// The port that documents name; each has a free one here, so that they may run side by side.
const PORT: &str = ":8000";

/// How many blocks of a document were run, and how many only read, by the reason.
#[derive(Default)]
struct Tally {
    run: usize,
    read: BTreeMap<String, usize>,
}

/// A server, until it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folder in which the blocks of a document run. It is empty, like that of a reader who has only the program.
struct Place {
    folder: tempfile::TempDir,
    port: u16,
    server: Option<Server>,
}

impl Place {
    fn new(document: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if document == FIRST_DAY {
            published::cache(&folder.path().join("hub"));
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        Self {
            folder,
            port,
            server: None,
        }
    }

    fn local(&self, text: &str) -> String {
        text.replace(PORT, &format!(":{}", self.port))
    }

    fn start(&self, script: &str) -> Child {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_forage")).parent().unwrap();
        let path = std::env::join_paths(std::iter::once(programs.to_owned()).chain(
            std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()),
        ));
        Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(self.folder.path())
            .env("PATH", path.unwrap())
            // As if the package were installed.
            .env("PYTHONPATH", root().join("clients/python/src"))
            .env("HF_HUB_OFFLINE", "1")
            .env("HF_HUB_CACHE", self.folder.path().join("hub"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn log(&self) -> std::path::PathBuf {
        self.folder.path().join("log")
    }

    /// The end of what the block said.
    fn said(&self) -> String {
        let text = std::fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(4000)..]).into_owned()
    }

    fn run(&self, block: &Block) -> Result<(), String> {
        let _ = std::fs::remove_file(self.log());
        let mut child = self.start(&self.local(&block.text));
        let begun = Instant::now();
        loop {
            match child.try_wait().unwrap() {
                Some(status) if status.success() && !self.said().contains(NOTHING) => return Ok(()),
                Some(status) => return Err(format!("{status}\n{}", self.said())),
                None if begun.elapsed() > PATIENCE => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("took over {PATIENCE:?}\n{}", self.said()));
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn serve(&mut self, block: &Block) -> Result<(), String> {
        self.server = None;
        let _ = std::fs::remove_file(self.log());
        let mut server = Server(self.start(&format!("exec {}", self.local(&block.text))));
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = server.0.try_wait().unwrap() {
                return Err(format!("{status}\n{}", self.said()));
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("does not listen\n{}", self.said()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.server = Some(server);
        Ok(())
    }
}

/// Runs what can be run of a document.
fn follow(document: &str) -> Result<Tally, String> {
    let mut place = Place::new(document);
    let mut tally = Tally::default();
    for block in blocks(&read(document)) {
        if let Some(name) = block.tags.iter().find_map(|tag| tag.strip_prefix(FILE)) {
            let path = place.folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, place.local(&block.text)).unwrap();
        }
        if !block.is_shell() {
            continue;
        }
        if let Some(reason) = block
            .tags
            .iter()
            .find(|tag| READ_ONLY.contains(&tag.as_str()))
        {
            *tally.read.entry(reason.clone()).or_default() += 1;
            continue;
        }
        let ran = if block.has(SERVER) {
            place.serve(&block)
        } else {
            place.run(&block)
        };
        ran.map_err(|error| {
            format!(
                "{document}:{}: {error}\nthe block:\n{}",
                block.line, block.text
            )
        })?;
        tally.run += 1;
    }
    Ok(tally)
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "how many blocks were run and only read, and how long it took"
)]
fn the_commands_of_every_document_run_in_its_order() {
    let waiting = Mutex::new(documents().into_iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(document) = waiting.lock().unwrap().next() else {
                        break;
                    };
                    let begun = Instant::now();
                    let followed = follow(&document);
                    done.lock()
                        .unwrap()
                        .push((document, begun.elapsed(), followed));
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    let failed: Vec<&String> = done
        .iter()
        .filter_map(|(_, _, followed)| followed.as_ref().err())
        .collect();
    assert!(
        failed.is_empty(),
        "{}",
        failed
            .iter()
            .map(|error| error.as_str())
            .collect::<Vec<_>>()
            .join("\n\n")
    );
    let (mut run, mut only_read) = (0, 0);
    for (document, seconds, tally) in done
        .iter()
        .filter_map(|(name, time, tally)| Some((name, time, tally.as_ref().ok()?)))
    {
        println!(
            "{document}: {} blocks run in {:.1} s, only read {:?}",
            tally.run,
            seconds.as_secs_f64(),
            tally.read
        );
        run += tally.run;
        only_read += tally.read.values().sum::<usize>();
    }
    println!("{run} blocks run, {only_read} only read");
    assert!(
        run > only_read,
        "{run} blocks were run and {only_read} only read: most of the guide must be run"
    );
}

#[test]
fn commands_stand_in_shell_blocks_with_known_tags() {
    for document in documents() {
        for block in blocks(&read(&document)) {
            let place = format!("{document}:{}", block.line);
            let command = |line: &&str| {
                ["forage ", "forage-examples ", "curl ", "cargo "]
                    .iter()
                    .any(|name| line.starts_with(name))
            };
            // `forage = ...` is a dependency in a manifest.
            if let Some(line) = block
                .text
                .lines()
                .find(command)
                .filter(|_| block.language != "toml")
            {
                assert!(
                    block.is_shell(),
                    "{place}: `{line}` is a command: write ```sh (docs/introduction.md has the tags)"
                );
            }
            for tag in &block.tags {
                let known = if block.is_shell() {
                    tag == SERVER || READ_ONLY.contains(&tag.as_str())
                } else {
                    tag.starts_with(FILE)
                };
                assert!(
                    known,
                    "{place}: `{tag}` is not a tag of docs/introduction.md"
                );
            }
            let servers = block
                .lines()
                .iter()
                .filter(|line| !line.trim().is_empty())
                .count();
            assert!(
                !block.has(SERVER) || servers == 1,
                "{place}: a block of a server is one command"
            );
        }
    }
}
