//! The report on runs, from what they left in their folders.

use std::path::PathBuf;
use std::time::Duration;

use forage_contracts::Episode;
use forage_eval::{Arm, Bootstrap, Comparison, EvalSummary, Recipe, Report, Telemetry};
use serde_json::Value;

use crate::error::Result;
use crate::run_folder::{RunFolder, Source};

/// The report on run folders and files of episodes, with at most `most` trajectories.
///
/// # Errors
/// When a path is neither, or a record in it cannot be read.
pub fn page(paths: &[PathBuf], most: usize) -> Result<Report> {
    let mut runs: Vec<RunFolder> = paths
        .iter()
        .map(|path| RunFolder::open(path))
        .collect::<Result<_>>()?;
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
        if let Some(studied) = &run.studied {
            let (greedy, sampled) = (studied.greedy.clone(), studied.sampled.clone());
            report = report.study(&run.name, greedy, sampled);
        }
        if let Some(sentence) = run.waits() {
            report = report.note(sentence);
        }
        for records in &run.records {
            let label = label(&runs, run, &records.name);
            report = report.note(records.status_as(&label, Duration::ZERO));
            report = report.alarms(&label, records.alarms.iter().cloned());
            if let Some(course) = &records.course {
                report = report.course(label, course.clone());
            }
        }
        if let Some(config) = &run.config {
            let recipe = Recipe {
                run: run.name.clone(),
                config: config.clone(),
                digests: run.digests(),
            };
            report = report.recipe(recipe);
        }
    }
    report = other_texts(&runs).into_iter().fold(report, Report::note);
    report = arms(&runs).into_iter().fold(report, Report::arm);
    with_episodes(report, &runs, most)
}

/// Says of each two runs that follow each other which of the texts behind them differ.
fn other_texts(runs: &[RunFolder]) -> Vec<String> {
    let note = |pair: &[RunFolder]| {
        let [a, b] = pair else {
            return None;
        };
        let texts = a.stamp().differing(&b.stamp());
        (!texts.is_empty()).then(|| {
            let texts = texts.join(", the ");
            format!("{} and {} differ in the {texts}.", a.name, b.name)
        })
    };
    runs.windows(2).filter_map(note).collect()
}

/// The name of a part of a run where there are several runs.
fn label(runs: &[RunFolder], run: &RunFolder, part: &str) -> String {
    if runs.len() == 1 || part == run.name {
        part.to_owned()
    } else {
        format!("{}: {part}", run.name)
    }
}

/// Curves: records of the same name of runs with the same settings but for seeds are one.
fn arms(runs: &[RunFolder]) -> Vec<Arm> {
    let mut arms: Vec<(String, Vec<String>, Arm)> = Vec::new();
    for run in runs {
        for records in &run.records {
            let part = if records.name == run.name {
                ""
            } else {
                &records.name
            };
            let key = format!("{part} {}", run.arm());
            let taken_over = records.rows.len() - records.own_rows().len();
            let mut rows: Vec<Value> = records
                .rows
                .iter()
                .map(|row| Value::Object(row.0.clone()))
                .collect();
            for row in &mut rows[..taken_over] {
                row["taken_over"] = Value::Bool(true);
            }
            let label = label(runs, run, &records.name);
            match arms.iter_mut().find(|(known, ..)| *known == key) {
                Some((_, labels, arm)) => {
                    labels.push(label);
                    arm.runs.push(rows);
                }
                None => arms.push((
                    key,
                    vec![label.clone()],
                    Arm {
                        name: label,
                        runs: vec![rows],
                    },
                )),
            }
        }
    }
    let named = |(_, labels, arm): (String, Vec<String>, Arm)| match labels.len() {
        1 => arm,
        count => Arm {
            name: format!("{} ({count} runs)", labels.join(", ")),
            ..arm
        },
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
    let mut evaluated: Vec<(usize, String, Vec<Episode>)> = Vec::new();
    for (place, mut source) in sources {
        if kept >= most && source.origin.step.is_some() {
            left_out = true;
            break;
        }
        let run = &runs[place];
        source.origin.run = label(runs, run, &source.origin.run);
        let reading = source.read()?;
        if let Some(note) = reading.note {
            report = report.note(note);
        }
        if source.origin.step.is_none() {
            let summary = EvalSummary::from_episodes(&reading.episodes, run.bootstrap())?;
            report = report.evaluation(&source.origin.run, summary);
            if run.records.is_empty() {
                report = with_signs(
                    report,
                    &source.origin.run,
                    &reading.episodes,
                    run.bootstrap(),
                )?;
            }
        }
        left_out |= kept + reading.episodes.len() > most;
        for episode in reading.episodes.iter().take(most - kept) {
            report = report.trajectory(run.trajectory(source.origin.clone(), episode));
            kept += 1;
        }
        let alone = source.origin.step.is_none() && run.records.is_empty();
        // The third says already that there is no pair.
        if runs.len() > 1 && alone && evaluated.len() < 3 {
            evaluated.push((place, source.origin.run, reading.episodes));
        }
    }
    if left_out {
        let what = "evaluations first, then those of the newest steps";
        report = report.note(format!(
            "{most} trajectories are shown, {what}; --most shows more."
        ));
    }
    paired(report, &evaluated, runs)
}

/// Adds the differences of two paths that hold one evaluation each and no run, whatever runs stand beside them; where there are more
/// evaluations, `forage compare` tells.
fn paired(
    report: Report,
    evaluated: &[(usize, String, Vec<Episode>)],
    runs: &[RunFolder],
) -> Result<Report> {
    let [a, b] = evaluated else {
        return Ok(report);
    };
    if a.0 == b.0 {
        return Ok(report);
    }
    let [a, b] = if a.0 < b.0 { [a, b] } else { [b, a] };
    let bootstrap = runs[a.0].bootstrap();
    Ok(match Comparison::from_episodes(&a.2, &b.2, bootstrap) {
        Ok(comparison) => report
            .comparison([&a.1, &b.1], comparison)
            .failures([&a.2, &b.2], bootstrap)?,
        Err(error) => report.note(format!("No difference is shown: {error}.")),
    })
}

/// Adds the alarms that telemetry raises of an evaluation by itself; where there is a run, its steps say more.
fn with_signs(
    report: Report,
    name: &str,
    episodes: &[Episode],
    bootstrap: Bootstrap,
) -> Result<Report> {
    let found = Telemetry::from_episodes(episodes, bootstrap)?;
    Ok(report.alarms(name, found.alarms))
}
