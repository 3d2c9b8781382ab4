//! The report as Markdown.

use std::fmt::Write as _;

use super::{Arm, Report, Trend, headline_metrics};
use crate::measures::display_rank;
use crate::stats::Interval;
use crate::summary::{EvalSummary, Metric, number};

pub(super) fn render(report: &Report) -> String {
    let mut text = format!("# {}\n", cell(&report.title));
    for note in &report.notes {
        let _ = write!(text, "\n{}\n", cell(note));
    }
    for (run, verdict) in &report.verdicts {
        let _ = write!(text, "\n**{}**: {}\n", cell(run), verdict.words().join(" "));
    }
    text.push_str(&results(&report.evaluations));
    text.push_str(&training(report));
    for (run, course) in &report.courses {
        let (head, rows) = course.table();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|value| cell(value)).collect()).collect();
        let _ = write!(text, "\n## Conduct of {}\n\nIn {}.\n\n{}", cell(run), course.span(), table(&head, &rows));
    }
    if !report.alarms.is_empty() {
        text.push_str("\n## Alarms\n\n");
        let rows = report.alarms.iter().map(|alarm| {
            vec![
                cell(&alarm.run),
                alarm.step.map_or_else(String::new, |step| step.to_string()),
                alarm.severity.clone(),
                alarm.kind.clone(),
                cell(&alarm.message),
            ]
        });
        text.push_str(&table(
            &["run", "step", "severity", "alarm", "what it says"].map(str::to_owned),
            &rows.collect::<Vec<_>>(),
        ));
    }
    for recipe in &report.recipes {
        let _ = write!(text, "\n## Configuration of {}\n\n", cell(&recipe.run));
        let rows = recipe.digests.iter().map(|(name, digest)| vec![cell(name), format!("`{digest}`")]);
        text.push_str(&table(&["of", "digest"].map(str::to_owned), &rows.collect::<Vec<_>>()));
        let _ = write!(text, "\n````toml\n{}\n````\n", recipe.config.trim_end());
    }
    text
}

/// Every metric by evaluation, with intervals.
fn results(evaluations: &[(String, EvalSummary)]) -> String {
    let Some((_, first)) = evaluations.first() else { return String::new() };
    let mut names: Vec<&str> = evaluations.iter().flat_map(|(_, summary)| summary.metric_names()).collect();
    names.sort_by_key(|name| display_rank(name));
    names.dedup();
    let head: Vec<String> =
        std::iter::once("metric".to_owned()).chain(evaluations.iter().map(|(label, _)| cell(label))).collect();
    let of_metric = |metric: Option<&Metric>| metric.map_or("–".to_owned(), |metric| interval(metric.interval));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for name in names {
        let cells = evaluations.iter().map(|(_, summary)| of_metric(summary.metrics.get(name)));
        rows.push(std::iter::once(cell(name)).chain(cells).collect());
    }
    for (name, count) in [("questions", questions as fn(&EvalSummary) -> usize), ("infrastructure faults", faults)] {
        let cells = evaluations.iter().map(|(_, summary)| count(summary).to_string());
        rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
    }
    let confidence = 100.0 * first.bootstrap.confidence;
    format!("\n## Results\n\nMeans with {confidence:.0} % intervals over questions.\n\n{}", table(&head, &rows))
}

fn questions(summary: &EvalSummary) -> usize {
    summary.questions
}

fn faults(summary: &EvalSummary) -> usize {
    summary.infra
}

/// The headline metrics of each arm, from the first tenth of the steps to the last.
fn training(report: &Report) -> String {
    let metrics = headline_metrics(&report.arms);
    if metrics.is_empty() {
        return String::new();
    }
    let mut rows = Vec::new();
    for arm in &report.arms {
        for (metric, words) in &metrics {
            let Some(trend) = arm.trend(metric) else { continue };
            rows.push(training_row(arm, words, &trend));
        }
    }
    let head = ["arm", "metric", "first tenth of the steps", "last tenth", "runs"].map(str::to_owned);
    format!(
        "\n## Training\n\nMeans; of several runs with 95 % bootstrap intervals over the runs.\n\n{}",
        table(&head, &rows)
    )
}

fn training_row(arm: &Arm, words: &str, trend: &Trend) -> Vec<String> {
    let end = |end: Interval| if trend.runs > 1 { interval(end) } else { number(end.estimate) };
    let metric = format!("{words} (`{}`)", cell(&trend.metric));
    vec![cell(&arm.name), metric, end(trend.first), end(trend.last), trend.runs.to_string()]
}

fn interval(interval: Interval) -> String {
    format!("{} [{}, {}]", number(interval.estimate), number(interval.low), number(interval.high))
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = vec!["---".to_owned(); head.len()];
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{}{rows}", line(head), line(&rule))
}

/// Text in one cell or line.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").split_whitespace().collect::<Vec<_>>().join(" ")
}
