//! Interval plots: a dot with its whiskers per row.

use std::fmt::Write as _;

use super::axis::{Scale, Ticks};
use super::html::{colours, escape, legend};
use crate::compare::{Comparison, signed};
use crate::stats::Interval;
use crate::summary::EvalSummary;
use crate::verdict::{Detail, Verdict};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 190.0;
const ROW: f64 = 24.0;
const GAP: f64 = 8.0;
/// Shares between 0 and 1 worth comparing at a glance.
const SCORES: [&str; 11] =
    ["em", "sub_em", "f1", "format", "retrieval", "ndcg", "mrr", "recall", "retrieved", "syntax", "answered"];

/// One row of a plot.
struct Row {
    label: String,
    note: String,
    class: &'static str,
    interval: Interval,
    /// Whether a gap sets it off from the row above.
    apart: bool,
}

/// The gains of trained and control policy, with a line at zero.
pub(super) fn gains(verdict: &Verdict) -> String {
    let measure = verdict.outcome.measure();
    let mut rows = detail_rows(&verdict.greedy, measure, "");
    if let Some(sampled) = &verdict.sampled {
        rows.extend(detail_rows(sampled, measure, ", sampled"));
    }
    let [words, _] = verdict.outcome.words();
    figure(&format!("Difference in {words}, paired by question"), &rows, None)
}

/// Scores of every evaluation side by side on one axis from 0 to 1.
pub(super) fn scores(evaluations: &[(String, EvalSummary)]) -> String {
    let classes = colours(evaluations.iter().map(|(label, _)| label.as_str()));
    let mut rows: Vec<Row> = Vec::new();
    for metric in SCORES {
        let found = evaluations.iter().zip(&classes).filter_map(|((_, summary), class)| {
            let interval = summary.metric(metric)?;
            Some((interval, *class))
        });
        for (index, (interval, class)) in found.enumerate() {
            let label = if index == 0 { metric.to_owned() } else { String::new() };
            let note = format!("{:.3} [{:.3}, {:.3}]", interval.estimate, interval.low, interval.high);
            rows.push(Row { label, note, class, interval, apart: index == 0 });
        }
    }
    let keys = legend(evaluations.iter().map(|(label, _)| label.as_str()).zip(classes));
    let plot = figure("Scores on held-out questions", &rows, Some((0.0, 1.0)));
    if plot.is_empty() { plot } else { format!("{keys}{plot}") }
}

fn detail_rows(detail: &Detail, measure: &str, suffix: &str) -> Vec<Row> {
    let row = |label: &str, class, comparison: Option<&Comparison>| {
        let interval = comparison?.difference(measure)?.difference;
        let Interval { estimate, low, high } = interval;
        let note = format!("{} [{}, {}]", signed(estimate), signed(low), signed(high));
        Some(Row { label: format!("{label}{suffix}"), note, class, interval, apart: class == "c-main" })
    };
    let rows = [
        row("trained − start", "c-main", Some(&detail.gain)),
        row("control − start", "c-control", detail.control_gain.as_ref()),
        row("trained − control", "c-green", detail.over_control.as_ref()),
    ];
    rows.into_iter().flatten().collect()
}

fn figure(title: &str, rows: &[Row], range: Option<(f64, f64)>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let ends = rows.iter().flat_map(|row| row.interval.ends()).chain([0.0]);
    let (low, high) = ends.fold((0.0_f64, 0.0_f64), |(low, high), end| (low.min(end), high.max(end)));
    let (low, high) = range.map_or((low.min(-0.05), high.max(0.05)), |(from, to)| (low.min(from), high.max(to)));
    let ticks = Ticks::around(low, high, 5);
    let (low, high) = ticks.range();
    let scale = Scale { low, high, from: LEFT, to: WIDTH - RIGHT };
    let gaps = rows.iter().skip(1).filter(|row| row.apart).count() as f64;
    let base = 8.0 + rows.len() as f64 * ROW + gaps * GAP;
    let mut svg = format!(
        "<svg class=\"wide\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">",
        base + 24.0,
        escape(title)
    );
    draw_grid(&mut svg, &scale, &ticks, base);
    let mut y = 8.0 + ROW / 2.0;
    for (index, row) in rows.iter().enumerate() {
        y += if row.apart && index > 0 { GAP } else { 0.0 };
        draw_row(&mut svg, row, &scale, y);
        y += ROW;
    }
    format!("<figure><figcaption>{}</figcaption>{svg}</svg></figure>", escape(title))
}

fn draw_grid(svg: &mut String, scale: &Scale, ticks: &Ticks, base: f64) {
    for &value in &ticks.values {
        let at = scale.pixel(value);
        let class = if value == 0.0 { "zero" } else { "grid" };
        let _ = write!(svg, "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"4\" y2=\"{base:.1}\"/>");
        let label = ticks.label(value);
        let _ = write!(svg, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", base + 16.0);
    }
}

fn draw_row(svg: &mut String, row: &Row, scale: &Scale, y: f64) {
    let Interval { estimate, low, high } = row.interval;
    let (left, right, centre) = (scale.pixel(low), scale.pixel(high), scale.pixel(estimate));
    let (text_y, cap_top, cap_bottom) = (y + 4.0, y - 4.0, y + 4.0);
    let _ = write!(
        svg,
        "<text class=\"label\" x=\"{:.1}\" y=\"{text_y:.1}\" text-anchor=\"end\">{}</text>",
        LEFT - 14.0,
        escape(&row.label)
    );
    let class = row.class;
    let _ = write!(
        svg,
        "<path class=\"whisker {class}\" d=\"M{left:.1} {y:.1}H{right:.1}M{left:.1} {cap_top:.1}V{cap_bottom:.1}M{right:.1} {cap_top:.1}V{cap_bottom:.1}\"/>"
    );
    let _ = write!(svg, "<circle class=\"dot {class}\" cx=\"{centre:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>");
    let _ = write!(
        svg,
        "<text class=\"note\" x=\"{:.1}\" y=\"{text_y:.1}\">{}</text>",
        WIDTH - RIGHT + 14.0,
        escape(&row.note)
    );
}
