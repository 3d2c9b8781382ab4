//! `forage inspect`: a run on the terminal.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use forage_contracts::{Ending, Provenance};
use forage_eval::{Arm, Trajectory, Trend};
use forage_lab::{Records, RunFolder};
use serde_json::Value;

use crate::terminal::out;

/// Shows a run in the terminal.
///
/// Prints how far it is, its newest metrics with their trend, verdict, alarms and some trajectories.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// Run folder of `forage train`, `sft` or `quickstart`, or a file of episodes.
    run: PathBuf,
    /// Only trajectories of this training step.
    #[arg(long)]
    step: Option<u64>,
    /// Only trajectories of the question with this id.
    #[arg(long, value_name = "ID")]
    question: Option<String>,
    /// Only trajectories whose answer is not an exact match.
    #[arg(long)]
    wrong: bool,
    /// Only trajectories that ended so.
    #[arg(long, value_enum)]
    ending: Option<Kind>,
    /// Most trajectories: evaluations first, then those of the newest steps.
    #[arg(short, default_value_t = 2)]
    n: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Answered,
    Truncated,
    Malformed,
    Infra,
}

impl Kind {
    fn of(ending: &Ending) -> Self {
        match ending {
            Ending::Answered => Self::Answered,
            Ending::Truncated { .. } => Self::Truncated,
            Ending::Malformed { .. } => Self::Malformed,
            Ending::Infra { .. } => Self::Infra,
        }
    }
}

/// Characters a metric's course is drawn in.
const COURSE: usize = 32;

impl Inspect {
    pub(crate) fn run(self) -> Result<()> {
        let run = RunFolder::open(&self.run)?;
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        for records in &run.records {
            out(&records.status());
            let metrics = metrics(records);
            if !metrics.is_empty() {
                out(&format!("\n{metrics}"));
            }
        }
        for sentence in run.verdict.iter().flat_map(forage_eval::Verdict::words) {
            out(&sentence);
        }
        for records in &run.records {
            for alarm in &records.alarms {
                out(&format!(
                    "\n{} step {}: {}: {}\n  {}",
                    records.name,
                    alarm.step.unwrap_or_default(),
                    alarm.severity.name(),
                    printable(&alarm.kind),
                    printable(&alarm.message)
                ));
            }
            for alarm in records.course.iter().flat_map(|course| &course.alarms) {
                out(&format!(
                    "\n{}: {}",
                    records.name,
                    printable(alarm.to_text().trim_end())
                ));
            }
        }
        self.trajectories(&run, colours)
    }

    fn trajectories(&self, run: &RunFolder, colours: bool) -> Result<()> {
        let mut shown = 0;
        for source in run.sources() {
            if shown >= self.n {
                break;
            }
            if self
                .step
                .is_some_and(|step| source.origin.step != Some(step))
            {
                continue;
            }
            let reading = source.read()?;
            if let Some(note) = &reading.note {
                out(note);
            }
            let found = reading
                .episodes
                .iter()
                .map(|episode| run.trajectory(source.origin.clone(), episode));
            for trajectory in found.filter(|found| self.wants(found)).take(self.n - shown) {
                out(&format!("\n{}", describe(&trajectory, colours)));
                shown += 1;
            }
        }
        if shown == 0 && self.n > 0 {
            out("\nNo recorded trajectory is of this kind.");
        }
        Ok(())
    }

    fn wants(&self, trajectory: &Trajectory) -> bool {
        self.question
            .as_ref()
            .is_none_or(|id| *id == trajectory.key.id)
            && (!self.wrong || trajectory.is_correct() == Some(false))
            && self
                .ending
                .is_none_or(|kind| kind == Kind::of(&trajectory.ending))
    }
}

/// The headline metrics of a run: the newest value, the course, and the means of the first and the last tenth of the steps.
fn metrics(records: &Records) -> String {
    let rows: Vec<Value> = records
        .rows
        .iter()
        .map(|row| Value::Object(row.0.clone()))
        .collect();
    let arm = Arm {
        name: records.name.clone(),
        runs: vec![rows],
    };
    let mut lines = String::new();
    for (metric, words) in arm.headline_metrics() {
        let values: Vec<f64> = records
            .rows
            .iter()
            .filter_map(|row| row.get(&metric))
            .collect();
        let Some((Trend { first, last, .. }, newest)) = arm.trend(&metric).zip(values.last())
        else {
            continue;
        };
        let course = sparkline(&values);
        let (first, last) = (number(first.estimate), number(last.estimate));
        let newest = number(*newest);
        let _ = writeln!(
            lines,
            "  {words:<43} {newest:>8}  {course:<COURSE$}  {first} to {last}"
        );
    }
    lines
}

/// A value in five characters or so.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 || (size > 0.0 && size < 1e-3) => format!("{value:.1e}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Values as blocks between the least and the largest of them, averaged down to [`COURSE`] characters.
fn sparkline(values: &[f64]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
    let means: Vec<f64> = values
        .chunks(values.len().div_ceil(COURSE).max(1))
        .map(mean)
        .collect();
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    let most = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let level = |value: &f64| {
        if most > least {
            ((value - least) / (most - least) * 7.0).round() as usize
        } else {
            3
        }
    };
    means
        .iter()
        .map(|value| BLOCKS[level(value).min(7)])
        .collect()
}

/// A trajectory in full, its authors in colours or named.
fn describe(trajectory: &Trajectory, colours: bool) -> String {
    let reward = trajectory.reward.map_or_else(
        || "no reward".to_owned(),
        |reward| format!("reward {reward:.2}"),
    );
    let parts: Vec<String> = trajectory
        .parts
        .iter()
        .map(|(name, value)| format!("{name} {value:.2}"))
        .collect();
    let title = format!("{} · {reward} · {}", trajectory.label(), trajectory.ending);
    let facts = format!(
        "{} ({}, {})\ngold: {}\nscore: {}",
        trajectory.key.question,
        trajectory.key.data_source,
        trajectory.key.id,
        trajectory.golds.join(" | "),
        if parts.is_empty() {
            "none".to_owned()
        } else {
            parts.join(" · ")
        }
    );
    let title = printable(&title);
    let mut lines = vec![
        if colours {
            format!("\x1b[1m{title}\x1b[0m")
        } else {
            title
        },
        printable(&facts),
    ];
    for segment in &trajectory.segments {
        let text = printable(segment.text.trim_end());
        lines.push(if colours {
            paint(&text, segment.author)
        } else {
            format!("[{}] {text}", segment.author.name())
        });
    }
    lines.join("\n")
}

/// Prompts dim, the policy blue, the environment green, what was forced red.
fn paint(text: &str, author: Provenance) -> String {
    let code = match author {
        Provenance::Prompt => 2,
        Provenance::Policy => 34,
        Provenance::Environment => 32,
        Provenance::Forced => 31,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Text without what would steer the terminal.
fn printable(text: &str) -> String {
    let safe = |letter: char| {
        if letter.is_control() && !matches!(letter, '\n' | '\t') {
            '\u{fffd}'
        } else {
            letter
        }
    };
    text.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn courses_rise_from_the_least_to_the_most() {
        assert_eq!(sparkline(&[0.0, 0.5, 1.0]), "▁▅█");
        assert_eq!(sparkline(&[2.0, 2.0]), "▄▄");
        let long: Vec<f64> = (0..1000).map(f64::from).collect();
        assert!(sparkline(&long).chars().count() <= COURSE && sparkline(&long).ends_with('█'));
        assert!(sparkline(&[]).is_empty());
    }

    #[test]
    fn text_of_models_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2J\r\nb\tc"), "a\u{fffd}[2J\u{fffd}\nb\tc");
    }
}
