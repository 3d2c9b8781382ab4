//! The records that a run writes step by step, read as far as they have come.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forage_contracts::Metric;
use forage_env::Alarm;
use forage_eval::{Bootstrap, Course};
use forage_trainer::metrics::Row;

use super::files;
use crate::conduct::{course_of, steps};
use crate::error::{Context, Result};
use crate::forked::Forked;
use crate::layout::RunLayout;

/// The parts of a step, and the metrics with the seconds of each.
pub(crate) const TIMES: [(&str, &str); 3] = [
    ("rollouts", Metric::TIME_ROLLOUT),
    ("update", Metric::TIME_UPDATE),
    ("wait", Metric::TIME_WAIT),
];

/// Steps whose time says how long the next ones take.
const PACE: usize = 20;

/// The records that a run writes step by step.
pub struct Records {
    /// `trained` or `control` of a quickstart, a twin's, else the run's.
    pub name: String,
    /// The metrics, a row per step.
    pub rows: Vec<Row>,
    /// The sentinel's alarms.
    pub alarms: Vec<Alarm>,
    /// The conduct of its policy; none of a run whose policy does not play.
    pub course: Option<Course>,
    /// Steps the config asks for, where it says.
    pub steps: Option<u64>,
    /// A process works on it.
    is_held: bool,
    /// Time since the last row was written.
    age: Duration,
    /// The last row has no end yet.
    half_written: bool,
    /// The checkpoint of another run that it began with, if it did.
    pub(crate) forked: Option<Forked>,
    pub(super) rollouts: Vec<(u64, PathBuf)>,
    /// Scored episodes of its own steps, those of a run that it was forked from aside; none of a run whose policy does not play.
    pub(crate) episodes: Option<u64>,
    pub(crate) layout: RunLayout,
}

impl Records {
    pub(super) fn read(
        name: &str,
        layout: &RunLayout,
        steps: Option<u64>,
        is_held: bool,
        bootstrap: Bootstrap,
    ) -> Result<Self> {
        let path = layout.metrics();
        let written =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let modified = std::fs::metadata(&path).and_then(|found| found.modified());
        let played = self::steps(layout)?;
        let forked = Forked::read(layout);
        let first = forked.as_ref().map_or(0, |forked| forked.steps);
        let own = played.iter().filter(|step| step.step >= first);
        let episodes = own.map(|step| step.episodes() as u64).sum();
        Ok(Self {
            name: name.to_owned(),
            rows: Row::read_all(&path)?,
            alarms: alarms(&layout.alarms())?,
            course: course_of(layout, &played, bootstrap)?,
            steps,
            is_held,
            age: modified
                .ok()
                .and_then(|time| time.elapsed().ok())
                .unwrap_or_default(),
            half_written: written.last().is_some_and(|&last| last != b'\n'),
            forked,
            rollouts: rollouts(&layout.rollouts()),
            episodes: (!played.is_empty()).then_some(episodes),
            layout: layout.clone(),
        })
    }

    /// The alarms of a step, by kind; sentinel and telemetry have names in common.
    pub(super) fn raised_at(&self, step: u64) -> Vec<String> {
        let sentinel = self
            .alarms
            .iter()
            .filter(|alarm| alarm.step == Some(step))
            .map(|alarm| alarm.kind.clone());
        let signs = self.course.iter().flat_map(|course| &course.alarms);
        let signs = signs
            .filter(|alarm| alarm.step == Some(step))
            .map(|alarm| alarm.kind.clone());
        sentinel
            .chain(signs)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// The rows of its own steps: those of a run that it was forked from come before them.
    pub(crate) fn own_rows(&self) -> &[Row] {
        let first = self.forked.as_ref().map_or(0, |forked| forked.steps);
        &self.rows[self.rows.partition_point(|row| row.step() < first)..]
    }

    /// Steps that are done.
    pub fn done(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.step() + 1)
    }

    /// Seconds of a part of the step, by the part: the mean over the last steps that have it.
    pub fn phases(&self) -> Vec<(&'static str, f64)> {
        let last = &self.rows[self.rows.len().saturating_sub(PACE)..];
        let mean = |name: &str| {
            let values: Vec<f64> = last.iter().filter_map(|row| row.get(name)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        TIMES
            .into_iter()
            .filter_map(|(part, name)| Some((part, mean(name)?)))
            .collect()
    }

    /// Time that the steps that are left take at the pace of the last ones, validations and checkpoints aside; `None` where nothing
    /// is left, nobody says how many steps there are, or no process takes them.
    pub fn time_left(&self) -> Option<Duration> {
        if !self.is_held {
            return None;
        }
        let left = self.steps?.checked_sub(self.done())?;
        let of_step: f64 = self.phases().iter().map(|(_, seconds)| seconds).sum();
        let seconds = left as f64 * of_step;
        if seconds > 0.0 {
            Duration::try_from_secs_f64(seconds).ok()
        } else {
            None
        }
    }

    /// The progress of the run, in a sentence.
    pub fn status(&self) -> String {
        self.status_after(Duration::ZERO)
    }

    /// The same said some time after it was read.
    pub fn status_after(&self, since: Duration) -> String {
        self.status_as(&self.name, since)
    }

    /// The same under the name that a page with several runs has for it.
    pub(crate) fn status_as(&self, name: &str, since: Duration) -> String {
        let done = self.done();
        let of = self
            .steps
            .map_or_else(String::new, |steps| format!(" of {steps}"));
        let at_end = self.steps.is_some_and(|steps| done >= steps);
        let idle = unchanged(&self.rows).filter(|_| at_end || !self.is_held);
        let idle = idle.map_or_else(String::new, |told| format!("; {told}"));
        let forked = self.forked.as_ref();
        let forked = forked.map_or_else(String::new, |forked| format!("; {}", forked.words()));
        if at_end {
            return format!("{name}: all {done} steps are done{idle}{forked}.");
        }
        let last = if done == 0 {
            String::new()
        } else {
            format!(", the last one {} ago", words(self.age + since))
        };
        let left = self.time_left().map_or_else(String::new, |left| {
            format!(", {} left at its pace", words(left))
        });
        let half = if self.half_written {
            "; the next row is half written"
        } else {
            ""
        };
        let stopped = if self.is_held || self.steps.is_none() {
            ""
        } else {
            "; it is stopped, and the command that began it goes on with --resume"
        };
        format!("{name}: {done}{of} steps are done{last}{left}{half}{stopped}{idle}{forked}.")
    }
}

/// Says so where none of these steps made an update.
pub(crate) fn unchanged(rows: &[Row]) -> Option<&'static str> {
    let still = |row: &Row| {
        row.get(Metric::UPDATES)
            .is_some_and(|updates| updates <= 0.0)
    };
    (!rows.is_empty() && rows.iter().all(still)).then_some(
        "no step changed the policy, as no group was learned from: the rewards in each were alike, or a filter left it out",
    )
}

/// `12 s`, `5 min`, `3 h`, `2 d`.
pub(crate) fn words(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// The alarms of a run; a last line without its end is left out.
fn alarms(path: &Path) -> Result<Vec<Alarm>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let parse = |(number, line): (usize, &[u8])| {
        serde_json::from_slice(line)
            .with_context(|| format!("{}, line {}: not an alarm", path.display(), number + 1))
    };
    let complete = bytes
        .split_inclusive(|&byte| byte == b'\n')
        .filter(|line| line.ends_with(b"\n"));
    complete.enumerate().map(parse).collect()
}

/// Files of rollouts with their steps; of a file that was begun and of one that is complete the complete one.
fn rollouts(folder: &Path) -> Vec<(u64, PathBuf)> {
    let mut found: Vec<(u64, PathBuf)> = files(folder)
        .into_iter()
        .filter_map(|path| Some((RunLayout::step_of(&path)?, path)))
        .collect();
    found.sort();
    found.dedup_by_key(|(step, _)| *step);
    found
}
