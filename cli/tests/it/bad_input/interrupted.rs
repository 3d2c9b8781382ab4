//! Runs that are interrupted: they save, and go on as if nothing had been; a full disk and a damaged file take no good checkpoint.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{fails, smoke};
use crate::support::{done, forage, text};

/// Changes a bit in the middle of a file.
fn flip_a_bit(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 64;
    std::fs::write(path, bytes).unwrap();
}

/// Metrics rows of a run.
fn rows(run: &Path) -> usize {
    std::fs::read_to_string(run.join("metrics.jsonl")).map_or(0, |text| text.lines().count())
}

/// A training run that has taken some steps of many.
fn training(run: &Path) -> Child {
    training_under(&[], run)
}

/// The same, started by another program.
fn training_under(before: &[&str], run: &Path) -> Child {
    let config = smoke();
    let arguments = [
        env!("CARGO_BIN_EXE_forage"),
        "train",
        &config,
        "--out",
        text(run),
        "--set",
        "grpo.steps=500",
    ];
    let words = [before, &arguments].concat();
    let child = Command::new(words[0])
        .args(&words[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while rows(run) < 3 {
        assert!(started.elapsed() < Duration::from_mins(2), "no steps");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// The exit code of a process that ends by itself, and its stderr.
fn end(child: &mut Child) -> (Option<i32>, String) {
    let mut stderr = String::new();
    if let Some(pipe) = child.stderr.as_mut() {
        std::io::Read::read_to_string(pipe, &mut stderr).unwrap();
    }
    (child.wait().unwrap().code(), stderr)
}

fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(run.join("checkpoints")).into_iter();
    let mut found: Vec<_> = entries
        .flatten()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}

#[test]
fn a_terminated_run_saves_and_its_folder_takes_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut child = training(&run);
    let config = smoke();
    for more in [&["--resume"] as &[&str], &[]] {
        let arguments = [&["train", &config, "--out", text(&run)], more].concat();
        let (code, error) = fails(&arguments);
        assert_eq!(code, 1);
        let holder = format!("in use by process {}", child.id());
        assert!(error.contains(&holder), "{error}");
    }
    let (_, error) = fails(&["eval", "--controls", text(&run)]);
    assert!(error.contains("has not come to its end"), "{error}");
    // A scheduler and the shell that it started may both pass the signal on: that is one request to stop.
    signal(&child, "-TERM");
    signal(&child, "-TERM");
    let (code, stderr) = end(&mut child);
    assert!(
        code == Some(130) && stderr.contains("stopped: ") && stderr.contains("--resume"),
        "{code:?} {stderr}"
    );
    assert_eq!(checkpoints(&run).len(), 1);
    assert_eq!(
        checkpoints(&run)[0].file_name().unwrap().to_string_lossy(),
        format!("step-{:06}", rows(&run)),
        "the rows of every step are in the file"
    );
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn a_run_whose_terminal_is_closed_saves() {
    let hangs_up = Command::new("sh")
        .args(["-c", "kill -HUP $$; echo lives"])
        .output();
    if !hangs_up.unwrap().stdout.is_empty() {
        eprintln!("skipped: these tests are to outlive their terminal, and so is what they start");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut child = training(&run);
    drop(child.stderr.take());
    signal(&child, "-HUP");
    let (code, _) = end(&mut child);
    assert_eq!(code, Some(130));
    assert_eq!(checkpoints(&run).len(), 1);
}

#[test]
fn a_run_that_is_to_outlive_its_terminal_goes_on_when_that_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut child = training_under(&["nohup"], &run);
    signal(&child, "-HUP");
    let (started, before) = (Instant::now(), rows(&run));
    while rows(&run) < before + 3 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        assert!(started.elapsed() < Duration::from_mins(2), "no steps");
        std::thread::sleep(Duration::from_millis(50));
    }
    signal(&child, "-TERM");
    let (code, _) = end(&mut child);
    assert_eq!(code, Some(130));
    assert_eq!(checkpoints(&run).len(), 1);
}

#[test]
fn interrupted_training_saves_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let config = smoke();
    let mut child = training(&run);
    signal(&child, "-INT");
    let (code, stderr) = end(&mut child);
    assert_eq!(code, Some(130));
    assert!(
        stderr.contains("stopped: interrupted after step ")
            && stderr.contains("continue with --resume: forage train ")
            && stderr.contains(" --set grpo.steps=500 --resume")
            && !stderr.contains("error"),
        "{stderr}"
    );
    let before = rows(&run);
    let resume = ["train", &config, "--out", text(&run), "--resume"];
    let (code, error) = fails(&[&resume[..], &["--set", "grpo.group_size=3"]].concat());
    assert!(
        code == 2
            && error.contains("config.toml has other settings: grpo.group_size was ")
            && !error.contains("resuming from"),
        "{error}"
    );
    let steps = format!("grpo.steps={}", before + 2);
    let resumed = forage(&[
        "train",
        &config,
        "--out",
        text(&run),
        "--resume",
        "--set",
        &steps,
        "--set",
        "grpo.keep_checkpoints=2",
    ]);
    let told = String::from_utf8_lossy(&resumed.stderr);
    let changed = format!("grpo.steps was 500 and is {}", before + 2);
    assert!(
        resumed.status.success() && told.contains(&changed),
        "{told}"
    );
    assert_eq!(rows(&run), before + 2);
    assert!(run.join("policy/model.safetensors").exists());
    // Without a config the run's own counts, with the steps that it was resumed with.
    done(&["train", "--resume", "--out", text(&run)]);
    assert_eq!(rows(&run), before + 2);
    let nowhere = text(folder.path());
    let (_, error) = fails(&["train", "--resume", "--out", nowhere]);
    assert!(error.contains("name the config of the run"), "{error}");
    for part in ["--resume", "--json"] {
        let (code, error) = fails(&["train", part]);
        assert!(code == 2 && error.contains("CONFIG"), "{error}");
    }
    let (_, error) = fails(&["train", &config, "--out", text(&run)]);
    assert!(error.contains("--resume"), "{error}");
    // What the run exports is its newest checkpoint.
    let exported = folder.path().join("exported");
    done(&["export", text(&run), "--merged", text(&exported)]);
    let weights = |folder: PathBuf| std::fs::read(folder.join("model.safetensors")).unwrap();
    let newest = checkpoints(&run).pop().unwrap();
    assert!(weights(exported) == weights(newest.join("model")));
    let damaged = newest.join("model/model.safetensors");
    flip_a_bit(&damaged);
    let again = folder.path().join("again");
    for arguments in [
        ["export", text(&run), "--merged", text(&again)].as_slice(),
        &["train", &config, "--out", text(&run), "--resume"],
        &[
            "train",
            &config,
            "--from",
            text(&run),
            "--out",
            text(&again),
            "--set",
            "grpo.steps=1000",
        ],
    ] {
        let (_, error) = fails(arguments);
        let named = format!("{}: is damaged", damaged.display());
        assert!(
            error.contains(&named) && error.contains("--from"),
            "{error}"
        );
    }
    assert_eq!(rows(&run), before + 2);
}

#[test]
fn a_fork_that_was_stopped_is_not_gone_on_with_from_the_untrained_policy() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let config = smoke();
    done(&[
        "train",
        &config,
        "--out",
        text(&first),
        "--set",
        "grpo.steps=1",
    ]);
    let begin = ["train", &config, "--out", text(&second)];
    // A fork that would take no step is refused, and leaves no folder that keeps the corrected command from beginning.
    for more in [&[] as &[&str], &["--dry-run"]] {
        let none = ["--from", text(&first), "--set", "grpo.steps=1"];
        let (code, error) = fails(&[&begin[..], &none, more].concat());
        assert!(
            code == 2 && error.contains("give more than 1"),
            "{code} {error}"
        );
        assert!(!second.exists());
    }
    // Its checkpoint is copied and its rows cannot be.
    std::fs::remove_file(first.join("metrics.jsonl")).unwrap();
    let (_, error) = fails(&[&begin[..], &["--from", text(&first)]].concat());
    assert!(error.contains("metrics.jsonl"), "{error}");
    for more in [&["--resume"] as &[&str], &["--from", text(&first)]] {
        let (_, error) = fails(&[&begin[..], more].concat());
        assert!(error.contains("holds the beginning of a run"), "{error}");
    }
    assert!(!second.join("config.toml").exists());
}

#[test]
fn a_resumed_run_names_the_steps_whose_rows_were_lost() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let config = smoke();
    let train = |more: &[&str]| {
        let arguments = ["train", &config, "--out", text(&run), "--set"];
        let trained = forage(&[&arguments[..], more].concat());
        let said = String::from_utf8(trained.stderr).unwrap();
        assert!(trained.status.success(), "{said}");
        said
    };
    train(&["grpo.steps=2"]);
    let metrics = run.join("metrics.jsonl");
    let whole = std::fs::read_to_string(&metrics).unwrap();
    std::fs::write(&metrics, whole.split_inclusive('\n').next().unwrap()).unwrap();
    let said = train(&["grpo.steps=3", "--resume"]);
    let lost = format!(
        "warning: {} lacks rows of steps that are done (1)",
        metrics.display()
    );
    assert!(said.contains(&lost), "{said}");
}

/// A small file system of its own; `None` where mounting is not allowed.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        let option = format!("size={size}");
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &option, "tmpfs", text(folder.path())])
            .stderr(Stdio::null());
        command.status().ok()?.success().then(|| Self(folder))
    }

    fn grow(&self, size: &str) {
        let option = format!("remount,size={size}");
        assert!(
            Command::new("mount")
                .args(["-o", &option, text(self.0.path())])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn a_full_disk_leaves_a_run_that_can_be_resumed() {
    let Some(disk) = SmallDisk::mount("16m") else {
        eprintln!("skipped: this user may not mount a small file system");
        return;
    };
    let run = disk.0.path().join("run");
    let config = smoke();
    done(&[
        "train",
        &config,
        "--out",
        text(&run),
        "--set",
        "grpo.steps=2",
    ]);
    std::fs::remove_dir_all(run.join("policy")).unwrap();
    let used = Command::new("du")
        .args(["-sk", text(&run)])
        .output()
        .unwrap()
        .stdout;
    let used: u64 = String::from_utf8_lossy(&used)
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    disk.grow(&format!("{}k", used + 1500));
    let (_, error) = fails(&["train", &config, "--out", text(&run), "--resume"]);
    assert!(
        error.contains("checkpoints") && error.contains("cannot be written"),
        "{error}"
    );
    let left: Vec<String> = std::fs::read_dir(run.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        left,
        ["step-000002"],
        "the good checkpoint stays and nothing partial does"
    );
    disk.grow("64m");
    done(&["train", &config, "--out", text(&run), "--resume"]);
    assert_eq!(rows(&run), 4);
}
