//! `forage report`: run folders as one HTML page, Markdown or JSON.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use forage_env::episode::Episode;
use forage_eval::report::{Alarm, Arm, Recipe, Report};
use forage_eval::stats::Bootstrap;
use forage_eval::summary::EvalSummary;
use forage_eval::telemetry::Telemetry;
use serde_json::Value;

use super::out;
use crate::run_folder::{RunFolder, Source, word};

/// Trajectories that a page answers quickly with (`bench/report/run.sh`).
pub(super) const TRAJECTORIES: usize = 10_000;

/// Writes a self-contained HTML page about runs: verdict, results with intervals, curves, alarms, trajectories, configuration.
///
/// Runs whose configs differ in their seeds alone are one arm: its curves are their mean with an interval. A run that is still
/// being written is shown as far as it has come. docs/reports.md tells how to read the page.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Run folders of `forage train`, `sft` or `quickstart`; files of episodes, from `forage eval --out`.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Page to write.
    #[arg(long, default_value = "report.html")]
    out: PathBuf,
    /// Most trajectories on the page: evaluations first, then those of the newest steps.
    #[arg(long, default_value_t = TRAJECTORIES)]
    most: usize,
    /// Print the results as Markdown instead of writing the page.
    #[arg(long)]
    markdown: bool,
    /// Print the results as JSON instead of writing the page.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
}

impl ReportArgs {
    pub(crate) fn run(self) -> Result<()> {
        let report = of_runs(&self.runs, self.most)?;
        if self.markdown {
            out(report.to_markdown().trim_end());
        } else if self.json {
            out(&report.to_json().to_string());
        } else {
            report.write(&self.out)?;
            out(&self.out.display().to_string());
        }
        Ok(())
    }
}

/// The report on run folders and files of episodes, with at most `most` trajectories.
pub(super) fn of_runs(paths: &[PathBuf], most: usize) -> Result<Report> {
    let mut runs: Vec<RunFolder> = paths.iter().map(|path| RunFolder::open(path)).collect::<Result<_>>()?;
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for ((run, path), name) in runs.iter_mut().zip(paths).zip(&names) {
        if names.iter().filter(|other| *other == name).count() > 1 {
            run.rename(&path.display().to_string());
        }
    }
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let mut report = Report::new(format!("forage: {}", names.join(", ")));
    for run in &runs {
        if let Some(verdict) = &run.verdict {
            report = report.verdict(&run.name, verdict.clone());
        }
        for records in &run.records {
            let label = label(&runs, run, &records.name);
            report = report.note(records.status());
            for alarm in &records.alarms {
                let (severity, kind) = (word(&alarm.severity), word(&alarm.kind));
                let (step, message) = (Some(alarm.step), alarm.message.clone());
                report =
                    report.alarm(Alarm { run: label.clone(), step, severity, kind, message, examples: Vec::new() });
            }
            if let Some(course) = &records.course {
                report = report.course(label, course.clone());
            }
        }
        if let Some(config) = &run.config {
            let recipe = Recipe { run: run.name.clone(), config: config.clone(), digests: run.digests() };
            report = report.recipe(recipe);
        }
    }
    report = arms(&runs).into_iter().fold(report, Report::arm);
    with_episodes(report, &runs, most)
}

/// What a part of a run is called where there are several runs.
fn label(runs: &[RunFolder], run: &RunFolder, part: &str) -> String {
    if runs.len() == 1 || part == run.name { part.to_owned() } else { format!("{}: {part}", run.name) }
}

/// Curves: records of the same name of runs with the same settings but for seeds are one.
fn arms(runs: &[RunFolder]) -> Vec<Arm> {
    let mut arms: Vec<(String, Vec<String>, Arm)> = Vec::new();
    for run in runs {
        for records in &run.records {
            let part = if records.name == run.name { "" } else { &records.name };
            let key = format!("{part} {}", run.arm());
            let rows: Vec<Value> = records.rows.iter().map(|row| Value::Object(row.0.clone())).collect();
            let label = label(runs, run, &records.name);
            match arms.iter_mut().find(|(known, ..)| *known == key) {
                Some((_, labels, arm)) => {
                    labels.push(label);
                    arm.runs.push(rows);
                }
                None => arms.push((key, vec![label.clone()], Arm { name: label, runs: vec![rows] })),
            }
        }
    }
    let named = |(_, labels, arm): (String, Vec<String>, Arm)| match labels.len() {
        1 => arm,
        count => Arm { name: format!("{} ({count} runs)", labels.join(", ")), ..arm },
    };
    arms.into_iter().map(named).collect()
}

/// Adds the results of evaluations, and trajectories as far as they are wanted.
fn with_episodes(mut report: Report, runs: &[RunFolder], most: usize) -> Result<Report> {
    let mut sources: Vec<(usize, Source)> = Vec::new();
    for (place, run) in runs.iter().enumerate() {
        sources.extend(run.sources().into_iter().map(|source| (place, source)));
    }
    sources.sort_by_key(|(_, source)| source.age());
    let (mut kept, mut left_out) = (0, false);
    for (place, mut source) in sources {
        if kept >= most && source.origin.step.is_some() {
            left_out = true;
            break;
        }
        let run = &runs[place];
        source.origin.run = label(runs, run, &source.origin.run);
        let reading = source.read()?;
        if reading.half_written {
            report = report.note(half_written(&source.path));
        }
        if source.origin.step.is_none() {
            let summary = EvalSummary::from_episodes(&reading.episodes, run.bootstrap())?;
            report = report.evaluation(&source.origin.run, summary);
            if run.records.is_empty() {
                report = with_signs(report, &source.origin.run, &reading.episodes, run.bootstrap())?;
            }
        }
        left_out |= kept + reading.episodes.len() > most;
        for episode in reading.episodes.iter().take(most - kept) {
            report = report.trajectory(run.trajectory(source.origin.clone(), episode));
            kept += 1;
        }
    }
    if left_out {
        let what = "evaluations first, then those of the newest steps";
        report = report.note(format!("{most} trajectories are shown, {what}; --most shows more."));
    }
    Ok(report)
}

/// What telemetry raises of an evaluation by itself; where there is a run, its steps tell more.
fn with_signs(report: Report, name: &str, episodes: &[Episode], bootstrap: Bootstrap) -> Result<Report> {
    let found = Telemetry::from_episodes(episodes, bootstrap)?;
    Ok(found.alarms.into_iter().fold(report, |report, alarm| report.alarm(Alarm::of_telemetry(name, alarm))))
}

/// What is said of a file whose writer has not ended its last line.
pub(super) fn half_written(path: &Path) -> String {
    format!("{}: its last line is half written and left out.", path.display())
}
