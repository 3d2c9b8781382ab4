//! Several processes, or devices of one, train one policy: the bits of one process, whoever is killed on the way.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The time limit of all ranks together.
const PATIENCE: Duration = Duration::from_mins(3);

/// A rank, until it is dropped.
struct Rank(Option<Child>);

impl Rank {
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_forage"))
            .args(arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self(Some(child.unwrap()))
    }

    fn kill(&mut self) {
        self.0.as_mut().unwrap().kill().unwrap();
    }

    /// Waits for its end, which must come in time.
    fn end(mut self) -> Output {
        let begun = Instant::now();
        let child = self.0.as_mut().unwrap();
        while child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "a rank does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Six short steps in four parts.
fn train<'a>(out: &'a Path, rest: &[&'a str]) -> Vec<&'a str> {
    const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/smoke.toml");
    let words = [
        "train",
        CONFIG,
        "--set",
        "grpo.steps=6",
        "--set",
        "grpo.update.parts=4",
        "--set",
        "grpo.update.micro_batch_tokens=600",
        "--set",
        "threads=1",
        "--out",
        out.to_str().unwrap(),
    ];
    [&words[..], rest].concat()
}

/// Starts so many ranks, which share the moments where they are to.
fn start(out: &Path, size: usize, resume: bool, sharded: bool) -> Vec<Rank> {
    const SHARDED: [&str; 2] = ["--set", "grpo.update.optimizer.sharded=true"];
    let (address, size_word) = (free_address(), size.to_string());
    let rank = |rank: usize| {
        let number = rank.to_string();
        let mut words = vec!["--ranks", &size_word, "--rank", &number];
        words.extend(["--rendezvous", &address, "--rank-silence", "10"]);
        // Who resumes says rank 0; it costs the others nothing to be told so too.
        words.extend(resume.then_some("--resume"));
        words.extend(sharded.then_some(SHARDED).into_iter().flatten());
        Rank::start(&train(out, &words), &[])
    };
    (0..size).map(rank).collect()
}

fn done(ranks: Vec<Rank>) {
    for (number, rank) in ranks.into_iter().enumerate() {
        let ended = rank.end();
        assert!(ended.status.success(), "{}", text(&ended.stderr));
        assert!(number == 0 || ended.stdout.is_empty());
    }
}

fn alone(out: &Path) {
    done(vec![Rank::start(&train(out, &[]), &[])]);
}

/// The policy and the last checkpoint are those of another run, byte by byte.
fn assert_same(found: &Path, expected: &Path) {
    let files = [
        "policy/model.safetensors",
        "checkpoints/step-000006/optimizer.safetensors",
        "checkpoints/step-000006/state.json",
        "checkpoints/step-000006/BLAKE3SUMS",
    ];
    for file in files {
        let read = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
        assert!(read(found) == read(expected), "{file} differs");
    }
}

#[test]
fn two_to_four_processes_train_the_policy_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| -> PathBuf { folder.path().join(name) };
    alone(&place("one"));
    for (name, size, sharded) in [("two", 2, false), ("four", 4, false), ("three", 3, true)] {
        done(start(&place(name), size, false, sharded));
        assert_same(&place(name), &place("one"));
    }
}

#[test]
fn several_devices_of_one_process_train_the_policy_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let (one, three) = (folder.path().join("one"), folder.path().join("three"));
    alone(&one);
    let ended = Rank::start(&train(&three, &["--device", "cpu,cpu,cpu"]), &[]).end();
    let words = text(&ended.stderr);
    assert!(ended.status.success(), "{words}");
    assert_same(&three, &one);
    // The first alone keeps records and shows its progress.
    let lines = |folder: &Path, file: &str| {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        text.lines().count()
    };
    assert_eq!(lines(&three, "metrics.jsonl"), lines(&one, "metrics.jsonl"));
    assert_eq!(words.matches("train 6/6").count(), 1, "{words}");
    // Others go on with what two have done.
    let two = folder.path().join("two");
    let some = ["--device", "cpu,cpu", "--set", "grpo.steps=4"];
    done(vec![Rank::start(&train(&two, &some), &[])]);
    let rest = ["--device", "cpu,cpu,cpu", "--resume"];
    done(vec![Rank::start(&train(&two, &rest), &[])]);
    assert_same(&two, &one);
}

#[test]
fn devices_that_do_not_fit_are_refused_before_anything_begins() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let ranks = ["--ranks", "1", "--rank", "0", "--device", "cpu,cpu"];
    let sampler = "sampler={ kind = \"sglang\", url = \"http://127.0.0.1:9\", context = 320 }";
    let ahead = ["--set", "grpo.lookahead=1", "--device", "cuda:0,cuda:1"];
    let further = ["--set", "grpo.lookahead=2", "--device", "cpu,cpu"];
    let cases: [(&[&str], &str); 6] = [
        (&ranks, "a process with --ranks has one device"),
        (&ahead, "GPUs of one process cannot play ahead"),
        (&further, "ranks play one step ahead at most"),
        (
            &["--device", "cpu,cuda:0"],
            "cpu,cuda:0 cannot train together",
        ),
        (&["--device", "cuda:1,cuda:1"], "cuda:1 is named twice"),
        (
            &["--device", "cpu,cpu", "--set", sampler],
            "[sampler] is for a run without ranks",
        ),
    ];
    for (words, expected) in cases {
        for words in [words.to_vec(), [words, &["--dry-run"]].concat()] {
            let ended = Rank::start(&train(&out, &words), &[]).end();
            let said = text(&ended.stderr);
            assert_eq!(ended.status.code(), Some(2), "{said}");
            assert!(said.contains(expected), "{said}");
            assert!(!out.exists(), "{words:?}");
        }
    }
}

#[test]
fn a_launcher_tells_processes_who_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    alone(&one);
    let address = free_address();
    let (host, port) = address.rsplit_once(':').unwrap();
    let ranks = ["0", "1"].map(|rank| {
        let variables = [
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", host),
            ("MASTER_PORT", port),
        ];
        Rank::start(&train(&two, &["--ranks", "auto"]), &variables)
    });
    done(ranks.into());
    assert_same(&two, &one);
}

#[test]
fn a_killed_rank_is_named_and_the_run_goes_on_with_any_number() {
    let folder = tempfile::tempdir().unwrap();
    let one = folder.path().join("one");
    alone(&one);
    for (killed, then, sharded) in [(1, 4, false), (2, 2, false), (0, 3, false), (1, 2, true)] {
        let out = folder.path().join(format!("killed-{killed}-{sharded}"));
        let mut ranks = start(&out, 3, false, sharded);
        let begun = Instant::now();
        // As soon as two steps are done.
        let rows = || std::fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
        while rows().lines().count() < 2 {
            assert!(begun.elapsed() < PATIENCE, "no steps are done");
            std::thread::sleep(Duration::from_millis(5));
        }
        ranks[killed].kill();
        let begun = Instant::now();
        for (rank, ended) in ranks.into_iter().map(Rank::end).enumerate() {
            let words = text(&ended.stderr);
            // All may have been done before the kill.
            if rank == killed || ended.status.success() {
                continue;
            }
            assert_eq!(ended.status.code(), Some(1), "{words}");
            let named = format!("rank {killed} has closed its connection");
            assert!(
                words.contains(&named) && words.contains("--resume"),
                "{words}"
            );
            assert_eq!(
                words.contains("moments of that rank are gone"),
                sharded,
                "{words}"
            );
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "long after the kill"
        );
        done(start(&out, then, true, sharded));
        assert_same(&out, &one);
    }
}

#[test]
fn ranks_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let address = free_address();
    let place = ["--ranks", "2", "--rendezvous", &address];
    let first = Rank::start(&train(&out, &[&place[..], &["--rank", "0"]].concat()), &[]);
    let other = [&place[..], &["--rank", "1", "--set", "seed=2"]].concat();
    let second = Rank::start(&train(&out, &other), &[]);
    for rank in [first, second] {
        let ended = rank.end();
        let words = text(&ended.stderr);
        assert!(!ended.status.success(), "{words}");
        assert!(words.contains("rank 1 has another config"), "{words}");
    }
    let twins = [&place[..], &["--rank", "0", "--twins", "random"]].concat();
    let ended = Rank::start(&train(&out, &twins), &[]).end();
    let words = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{words}");
    assert!(words.contains("--twins are for one process"), "{words}");
}
