//! Progress: bars on a terminal, plain lines elsewhere.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forage_lab::{Observer, RunError};
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressStyle};

use crate::signals::{ignore_hangup, is_hangup_ignored};
use crate::terminal::{is_quiet, is_stopped, note, notice, word};

/// Shows progress, and stops runs when the user asks for it.
pub(crate) struct Watch {
    bars: Option<MultiProgress>,
    started: Instant,
    tasks: Mutex<HashMap<String, Task>>,
    stop: Arc<AtomicBool>,
}

/// The display of a task.
enum Task {
    Bar(ProgressBar),
    /// A line now and then.
    Lines(Lines),
}

/// The plain lines of a task.
struct Lines {
    /// The time of the last one.
    last: Instant,
    /// The count that this process began with, and the time of it.
    first: u64,
    began: Instant,
}

impl Lines {
    fn beginning(done: u64) -> Self {
        let now = Instant::now();
        Self {
            last: now,
            first: done,
            began: now,
        }
    }

    /// The time left at the pace of what this process has done; `None` before it has done anything.
    fn left(&self, done: u64, total: u64) -> Option<Duration> {
        let here = done.checked_sub(self.first).filter(|here| *here > 0)?;
        let share = total.saturating_sub(done) as f64 / here as f64;
        Duration::try_from_secs_f64(self.began.elapsed().as_secs_f64() * share).ok()
    }
}

/// Signals within this time are one request to stop.
const ONE_REQUEST: Duration = Duration::from_secs(1);
/// Seconds between plain lines of one task.
const PLAIN_EVERY: Duration = Duration::from_secs(20);

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            bars: (!is_quiet() && std::io::stderr().is_terminal()).then(MultiProgress::new),
            started: Instant::now(),
            tasks: Mutex::default(),
            stop: Arc::default(),
        }
    }

    /// One that Ctrl-C, SIGTERM and SIGHUP stop, with a checkpoint.
    pub(crate) fn stoppable() -> anyhow::Result<Self> {
        Self::heeding(
            "stopping as soon as the work can be continued; press Ctrl-C again to stop at once (back to the last checkpoint, if any)",
        )
    }

    /// One that they stop where it is.
    pub(crate) fn interruptible() -> anyhow::Result<Self> {
        Self::heeding("stopping; press Ctrl-C again to stop at once")
    }

    /// One that signals stop, which is said in these words.
    fn heeding(told: &'static str) -> anyhow::Result<Self> {
        let watch = Self::new();
        let asked = Arc::clone(&watch.stop);
        let mut first: Option<Instant> = None;
        let outlives_its_terminal = is_hangup_ignored()?;
        ctrlc::set_handler(move || {
            if let Some(first) = first {
                // A shell and its terminal, or a scheduler and its shell, each tell of the same end.
                if first.elapsed() > ONE_REQUEST {
                    std::process::exit(130);
                }
                return;
            }
            first = Some(Instant::now());
            asked.store(true, Ordering::SeqCst);
            note(told);
        })?;
        if outlives_its_terminal {
            ignore_hangup()?;
        }
        Ok(watch)
    }

    fn begin(&self, name: &str, done: u64, total: u64) -> Option<Task> {
        let style =
            ProgressStyle::with_template("{prefix:>9} {bar:30} {pos:>5}/{len} {eta:>4} {msg}");
        let bar = self
            .bars
            .as_ref()?
            .add(ProgressBar::new(total).with_position(done));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(name.to_owned());
        // What was done before took none of the time that the estimate is made of.
        bar.tick();
        bar.reset_eta();
        Some(Task::Bar(bar))
    }

    fn tell(&self, line: &str) {
        let stamp = self.started.elapsed().as_secs();
        let line = format!("[{:>2}:{:02}] {line}", stamp / 60, stamp % 60);
        match &self.bars {
            Some(bars) => bars.suspend(|| note(&line)),
            None => note(&line),
        }
    }
}

impl Observer for Watch {
    fn say(&self, line: &str) {
        if !is_quiet() {
            self.tell(line);
        }
    }

    fn warn(&self, line: &str) {
        self.tell(line);
    }

    fn progress(&self, name: &str, done: u64, total: u64, shown: &str) {
        if is_quiet() {
            return;
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if !tasks.contains_key(name) {
            let task = self.begin(name, done, total);
            tasks.extend(task.map(|task| (name.to_owned(), task)));
        }
        match tasks.get_mut(name) {
            Some(Task::Bar(bar)) => {
                if bar.is_finished() && done < total {
                    // The same work on something else.
                    bar.reset();
                    bar.set_length(total);
                }
                bar.set_position(done);
                bar.set_message(shown.to_owned());
                if done >= total {
                    bar.finish();
                }
            }
            Some(Task::Lines(lines)) => {
                let last = lines.last;
                if done <= lines.first {
                    // The same work on something else.
                    *lines = Lines::beginning(done);
                }
                if done < total && last.elapsed() < PLAIN_EVERY {
                    lines.last = last;
                    return;
                }
                lines.last = Instant::now();
                let left = lines.left(done, total).filter(|_| done < total);
                let left = left.map_or_else(String::new, |left| {
                    format!(" ({:#} left)", HumanDuration(left))
                });
                self.say(format!("{name} {done}/{total}{left} {shown}").trim_end());
            }
            None => {
                tasks.insert(name.to_owned(), Task::Lines(Lines::beginning(done)));
                self.say(format!("{name} {done}/{total} {shown}").trim_end());
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn notice(&self) -> fn(&str) {
        notice
    }
}

/// The error of work that --resume continues: one of a signal ends with the whole command that does.
pub(crate) fn continued(error: RunError) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    if !is_stopped(&error) {
        return error;
    }
    let told = format!("{error:#}");
    let way = if told.contains("--resume") {
        ""
    } else {
        "; continue with --resume"
    };
    let command = resuming(std::env::args_os());
    let what = format!("{told}{way}: {command}");
    RunError::Stopped { what }.into()
}

/// The command line of this process as it goes on with its run: with --resume, and without --from, whose checkpoint the run has by then.
fn resuming(mut arguments: impl Iterator<Item = OsString>) -> String {
    let program = PathBuf::from(arguments.next().unwrap_or_default());
    let program = program.file_name().unwrap_or_default();
    let mut words = vec![word(Path::new(program))];
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == "--from" {
            arguments.next();
        } else if text != "--resume" && !text.starts_with("--from=") {
            words.push(word(Path::new(&argument)));
        }
    }
    words.push("--resume".to_owned());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use indicatif::ProgressDrawTarget;

    use super::*;

    #[test]
    fn stopped_work_ends_with_the_command_that_continues_it() {
        let stopped = |what: &str| RunError::Stopped {
            what: what.to_owned(),
        };
        for (what, words) in [
            (
                "sampled: interrupted after 0 of 500 episodes",
                "of 500 episodes; continue with --resume: ",
            ),
            (
                "interrupted after step 2 of 9; continue with --resume",
                "step 2 of 9; continue with --resume: ",
            ),
        ] {
            let below = RunError::Stage {
                what: "the control run".to_owned(),
                source: Some(Box::new(stopped(what))),
            };
            for (error, begin) in [(stopped(what), what), (below, "the control run: ")] {
                let error = continued(error);
                let told = error.to_string();
                assert!(
                    told.starts_with(begin) && told.contains(words) && told.ends_with(" --resume"),
                    "{told}"
                );
                assert!(matches!(
                    error.downcast_ref(),
                    Some(RunError::Stopped { .. })
                ));
            }
        }
        let other = continued(RunError::config("x"));
        assert_eq!(other.to_string(), "x");
    }

    #[test]
    fn a_stopped_run_goes_on_with_the_command_that_began_it() {
        let of = |words: &[&str]| resuming(words.iter().map(OsString::from));
        let begun = [
            "/bin/forage",
            "train",
            "my run.toml",
            "--set",
            "grpo.steps=9",
        ];
        let words = "forage train 'my run.toml' --set grpo.steps=9";
        assert_eq!(of(&begun), format!("{words} --resume"));
        for rest in [&["--resume"][..], &["--from", "runs/a"], &["--from=runs/a"]] {
            let all = [&begun[..], rest, &["--quiet"]].concat();
            assert_eq!(of(&all), format!("{words} --quiet --resume"));
        }
    }

    #[test]
    fn the_time_left_is_at_the_pace_of_what_this_process_has_done() {
        let hidden = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let watch = Watch {
            bars: Some(hidden),
            ..Watch::new()
        };
        watch.progress("train", 900, 1000, "");
        std::thread::sleep(Duration::from_millis(50));
        watch.progress("train", 901, 1000, "");
        let tasks = watch.tasks.lock().unwrap();
        let Some(Task::Bar(bar)) = tasks.get("train") else {
            panic!("no bar");
        };
        assert!(bar.eta() > Duration::from_secs(3), "{:?}", bar.eta());
    }

    #[test]
    fn plain_lines_tell_the_time_left_too() {
        let mut lines = Lines::beginning(900);
        assert_eq!(lines.left(900, 1000), None);
        lines.began = lines.began.checked_sub(Duration::from_secs(10)).unwrap();
        let left = lines.left(910, 1000).unwrap();
        assert!(left >= Duration::from_secs(90) && left < Duration::from_secs(100));
    }
}
