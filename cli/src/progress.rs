//! Progress: bars on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forage_trainer::metrics::Row;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Where progress goes.
#[derive(Clone)]
pub(crate) struct Progress {
    bars: Option<MultiProgress>,
    started: Instant,
}

/// Seconds between plain lines of one bar.
const PLAIN_EVERY: Duration = Duration::from_secs(20);

impl Progress {
    pub(crate) fn new() -> Self {
        let bars = std::io::stderr().is_terminal().then(MultiProgress::new);
        Self { bars, started: Instant::now() }
    }

    /// Minutes since the start.
    pub(crate) fn minutes(&self) -> f64 {
        self.started.elapsed().as_secs_f64() / 60.0
    }

    /// One line that stays.
    pub(crate) fn say(&self, line: &str) {
        let stamp = self.started.elapsed().as_secs();
        let line = format!("[{:>2}:{:02}] {line}", stamp / 60, stamp % 60);
        match &self.bars {
            Some(bars) => bars.suspend(|| eprint_line(&line)),
            None => eprint_line(&line),
        }
    }

    /// A task of `total` steps.
    pub(crate) fn bar(&self, name: &str, total: u64) -> Bar {
        let bar = self.bars.as_ref().map(|bars| {
            let style = ProgressStyle::with_template("{prefix:>9} {bar:30} {pos:>5}/{len} {eta:>4} {msg}");
            let bar = bars.add(ProgressBar::new(total));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(name.to_owned());
            bar
        });
        Bar { line: bar, shown: self.clone(), name: name.to_owned(), total, last: None }
    }
}

/// Progress of one task.
pub(crate) struct Bar {
    line: Option<ProgressBar>,
    shown: Progress,
    name: String,
    total: u64,
    last: Option<Instant>,
}

impl Bar {
    /// `done` steps are done; `message` is what they showed.
    pub(crate) fn set(&mut self, done: u64, message: &str) {
        if let Some(bar) = &self.line {
            bar.set_position(done);
            bar.set_message(message.to_owned());
            if done >= self.total {
                bar.finish();
            }
            return;
        }
        if done == self.total || self.last.is_none_or(|last| last.elapsed() >= PLAIN_EVERY) {
            self.last = Some(Instant::now());
            self.shown.say(&format!("{} {done}/{} {message}", self.name, self.total));
        }
    }

    /// The last message, for a task that may end before its total.
    pub(crate) fn end(&mut self, done: u64, message: &str) {
        if let Some(bar) = &self.line {
            bar.finish_with_message(message.to_owned());
        } else {
            self.shown.say(&format!("{} {done}/{} {message}", self.name, self.total));
        }
    }
}

/// The numbers of a metrics row a person follows, in one line.
pub(crate) fn line(row: &Row) -> String {
    let shown = [
        ("reward", "reward/mean", 3),
        ("em", "reward/component/em", 3),
        ("val em", "val/em", 3),
        ("ndcg", "reward/component/ndcg", 3),
        ("val ndcg", "val/ndcg", 3),
        ("operators", "query/operator_frac", 2),
        ("loss", "sft/loss", 3),
        ("val loss", "sft/val_loss", 3),
        ("len", "response/tokens_mean", 1),
        ("searches", "search/calls_mean", 2),
        ("entropy", "policy/entropy", 3),
        ("zero-var", "group/zero_std_frac", 2),
        ("grad", "optim/grad_norm", 2),
    ];
    let parts = shown.iter().filter_map(|(label, name, digits)| Some(format!("{label} {:.*}", digits, row.get(name)?)));
    parts.collect::<Vec<_>>().join("  ")
}

/// Set once the user pressed Ctrl-C; a second press ends the process at once.
pub(crate) fn stop_on_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&asked);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprint_line("stopping after this step; press Ctrl-C again to stop at once (back to the last checkpoint)");
    })?;
    Ok(asked)
}

#[expect(clippy::print_stderr, reason = "the one place where progress reaches the terminal")]
fn eprint_line(line: &str) {
    eprintln!("{line}");
}
