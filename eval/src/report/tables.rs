//! The verdict's opening and the tables of numbers.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::html::{concat, escape};
use super::{Alarm, Recipe};
use crate::compare::signed;
use crate::measures::display_rank;
use crate::summary::{EvalSummary, Metric, hops_label, number};
use crate::telemetry::Course;
use crate::verdict::Verdict;

/// The verdict in a badge, a lead sentence, further sentences and tiles of figures.
pub(super) fn verdict(verdict: &Verdict) -> String {
    let (class, badge) = badge(verdict);
    let words = verdict.words();
    let lead = words.first().map(|sentence| escape(sentence)).unwrap_or_default();
    let rest = concat(words.iter().skip(1), |sentence| format!("<li>{}</li>", escape(sentence)));
    let tiles = concat(tiles(verdict), |(name, value, note)| {
        format!(
            "<div class=\"tile\"><span>{name}</span><b>{}</b><small>{}</small></div>",
            escape(&value),
            escape(&note)
        )
    });
    format!(
        "<p class=\"badge {class}\">{badge}</p><p class=\"lead\">{lead}</p><ul class=\"notes\">{rest}</ul>\
         <div class=\"tiles\">{tiles}</div>"
    )
}

fn badge(verdict: &Verdict) -> (&'static str, &'static str) {
    let direction = verdict.direction();
    if verdict.holds() {
        ("good", "Gain holds against the control")
    } else if direction == Ordering::Less {
        ("bad", "Training made it worse")
    } else if direction == Ordering::Equal {
        ("plain", "No gain shown")
    } else if verdict.control_gained() {
        ("bad", "Suspicious: the control gained as well")
    } else if verdict.control_interval.is_none() {
        ("plain", "Gain without a control")
    } else {
        ("plain", "Gain, but not clearly ahead of the control")
    }
}

fn tiles(verdict: &Verdict) -> Vec<(String, String, String)> {
    let ends = |[low, high]: [f64; 2]| format!("{} to {}", signed(low), signed(high));
    let [_, unit] = verdict.outcome.words();
    let mut tiles = vec![
        (format!("{unit} at the start"), format!("{:.3}", verdict.start), "greedy, held-out".to_owned()),
        (format!("{unit} after training"), format!("{:.3}", verdict.trained), "greedy, held-out".to_owned()),
        ("Gain".to_owned(), signed(verdict.gain), ends(verdict.gain_interval)),
    ];
    if let (Some(gain), Some(interval)) = (verdict.control_gain, verdict.control_interval) {
        tiles.push(("Control's gain".to_owned(), signed(gain), ends(interval)));
    }
    tiles.push(("Questions".to_owned(), verdict.n.to_string(), format!("seed {}", verdict.seed)));
    tiles.push(("Wall time".to_owned(), format!("{:.1} min", verdict.minutes), String::new()));
    tiles
}

/// Every metric by evaluation, with intervals.
pub(super) fn metrics(evaluations: &[(String, EvalSummary)]) -> String {
    let distinct: BTreeSet<&str> = evaluations.iter().flat_map(|(_, summary)| summary.metric_names()).collect();
    let mut names: Vec<&str> = distinct.into_iter().collect();
    names.sort_by_key(|name| display_rank(name));
    let mut rows = String::new();
    for name in names {
        let cells = concat(evaluations, |(_, summary)| cell(summary.metrics.get(name)));
        let _ = write!(rows, "<tr><th scope=\"row\">{}</th>{}</tr>", escape(name), cells);
    }
    rows.push_str(&count_row("questions", evaluations, |summary| summary.questions));
    rows.push_str(&count_row("episodes", evaluations, |summary| summary.episodes));
    rows.push_str(&count_row("infrastructure faults (excluded)", evaluations, |summary| summary.infra));
    let confidence = evaluations.first().map_or(0.95, |(_, summary)| summary.bootstrap.confidence);
    let caption = format!(
        "Means with {:.0} % intervals over questions. Shares lie between 0 and 1; response tokens include \
         observations, policy tokens do not.",
        100.0 * confidence
    );
    table("metric", evaluations, &rows, &caption)
}

fn count_row(name: &str, evaluations: &[(String, EvalSummary)], count: impl Fn(&EvalSummary) -> usize) -> String {
    let cells = concat(evaluations, |(_, summary)| format!("<td>{}</td>", count(summary)));
    format!("<tr class=\"count\"><th scope=\"row\">{name}</th>{cells}</tr>")
}

/// What the sentinel and telemetry raised, in the order they did.
pub(super) fn alarms(alarms: &[Alarm]) -> String {
    let items = concat(alarms, |alarm| {
        let examples = concat(&alarm.examples, |example| format!("<li>{}</li>", escape(&example.to_text())));
        let examples = if examples.is_empty() { examples } else { format!("<ul>{examples}</ul>") };
        format!(
            "<li class=\"alarm\"><b class=\"badge {}\">{}</b> <b>{}</b> <span class=\"outcome\">{}{}</span><p>{}</p>{examples}</li>",
            if alarm.severity == "stop" { "bad" } else { "plain" },
            escape(&alarm.severity),
            escape(&alarm.kind.replace('_', " ")),
            escape(&alarm.run),
            alarm.step.map_or_else(String::new, |step| format!(", step {step}")),
            escape(&alarm.message)
        )
    });
    if items.is_empty() { items } else { format!("<ul class=\"alarms\">{items}</ul>") }
}

/// The items of a run's telemetry over its steps, folded.
pub(super) fn course((run, course): &(String, Course)) -> String {
    let (head, rows) = course.table();
    let head = concat(head, |name| format!("<th scope=\"col\">{}</th>", escape(&name)));
    let rows = concat(rows, |row| {
        let name = format!("<th scope=\"row\">{}</th>", escape(&row[0]));
        format!("<tr>{name}{}</tr>", concat(&row[1..], |value| format!("<td>{}</td>", escape(value))))
    });
    format!(
        "<details><summary>{}, {}</summary><div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>",
        escape(run),
        escape(&course.span())
    )
}

/// A run's configuration with its digests, folded.
pub(super) fn recipe(recipe: &Recipe) -> String {
    let digests = concat(&recipe.digests, |(name, digest)| {
        format!("<dt>{}</dt><dd><code>{}</code></dd>", escape(name), escape(digest))
    });
    format!(
        "<details><summary>{}</summary><dl>{digests}</dl><pre class=\"config\">{}</pre></details>",
        escape(&recipe.run),
        escape(&recipe.config)
    )
}

/// Exact match by number of hops; empty unless there are at least two kinds.
pub(super) fn hops(evaluations: &[(String, EvalSummary)]) -> String {
    let kinds: BTreeSet<u8> = evaluations.iter().flat_map(|(_, summary)| summary.by_hops.keys().copied()).collect();
    if kinds.len() < 2 {
        return String::new();
    }
    let mut rows = String::new();
    for hops in kinds {
        let cells = concat(evaluations, |(_, summary)| {
            cell(summary.by_hops.get(&hops).and_then(|group| group.metrics.get("em")))
        });
        let _ = write!(rows, "<tr><th scope=\"row\">{}</th>{}</tr>", hops_label(hops), cells);
    }
    table("exact match by hops", evaluations, &rows, "")
}

fn cell(metric: Option<&Metric>) -> String {
    metric.map_or_else(
        || "<td>–</td>".to_owned(),
        |metric| {
            let interval = metric.interval;
            let ends = format!("{} to {}", number(interval.low), number(interval.high));
            format!("<td>{} <small>{ends}</small></td>", number(interval.estimate))
        },
    )
}

fn table(corner: &str, evaluations: &[(String, EvalSummary)], rows: &str, caption: &str) -> String {
    let head = concat(evaluations, |(label, _)| format!("<th scope=\"col\">{}</th>", escape(label)));
    let caption = if caption.is_empty() { String::new() } else { format!("<p class=\"caption\">{caption}</p>") };
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>{corner}</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>{caption}"
    )
}
