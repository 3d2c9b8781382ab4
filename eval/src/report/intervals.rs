//! Interval plots: dots with their whiskers, row by row.

use maud::{Markup, html};

use super::axis::Axis;
use super::html::{colours, legend};
use super::px;
use crate::compare::Comparison;
use crate::stats::Interval;
use crate::study::{Arm, Study};
use crate::summary::EvalSummary;
use crate::text::signed;
use crate::verdict::{Detail, Verdict};

const WIDTH: f64 = 760.0;
/// The least room for labels; longer ones take more.
const LEFT: f64 = 230.0;
/// The space between a label and the axis.
const MARGIN: f64 = 14.0;
/// The width of a letter of a label, in wide fonts.
const LETTER: f64 = 7.0;
const RIGHT: f64 = 190.0;
const ROW: f64 = 24.0;
const GAP: f64 = 8.0;
/// Shares between 0 and 1 worth comparing at a glance.
const SCORES: [&str; 11] = [
    "em",
    "sub_em",
    "f1",
    "format",
    "retrieval",
    "ndcg",
    "mrr",
    "recall",
    "retrieved",
    "syntax",
    "answered",
];

/// One row of a plot.
pub(super) struct Row {
    pub(super) label: String,
    pub(super) note: String,
    /// Estimates with the classes of their colours, later ones drawn over earlier ones.
    pub(super) marks: Vec<(&'static str, Interval)>,
    /// True when a gap sets it off from the row above.
    pub(super) apart: bool,
}

impl Row {
    /// A difference, which the note tells in figures.
    pub(super) fn difference(label: String, class: &'static str, difference: Interval) -> Self {
        let [estimate, low, high] =
            [difference.estimate, difference.low, difference.high].map(signed);
        Self {
            label,
            note: format!("{estimate} [{low}, {high}]"),
            marks: vec![(class, difference)],
            apart: class == "c-main",
        }
    }
}

/// The gains of trained and control policy, with a line at zero.
pub(super) fn gains(verdict: &Verdict) -> Markup {
    let measure = verdict.outcome.measure();
    let mut rows = detail_rows(&verdict.greedy, measure, "");
    if let Some(sampled) = &verdict.sampled {
        rows.extend(detail_rows(sampled, measure, ", sampled"));
    }
    let [words, _] = verdict.outcome.words();
    let title = format!("Difference in {words}, paired by question");
    figure(&title, &rows, [-0.05, 0.05])
}

/// The gains of trained policy, twins and baselines of studies, each with what its labels end in, with a line at zero.
pub(super) fn arms<'a>(studies: impl Iterator<Item = (&'a Study, &'static str)>) -> Markup {
    let mut rows: Vec<Row> = Vec::new();
    let mut title = String::new();
    for (study, suffix) in studies {
        let [words, _] = study.outcome.words();
        title = format!("Gain in {words} over the start");
        let classes = std::iter::once("c-main").chain(std::iter::repeat("c-control"));
        let arms = study.arms.iter().zip(classes);
        let baselines = study.baselines.iter().map(|arm| (arm, "c-violet"));
        let all = arms.chain(baselines);
        rows.extend(all.map(|(arm, class)| arm_row(arm, suffix, class)));
    }
    figure(&title, &rows, [-0.05, 0.05])
}

/// Scores of every evaluation side by side on one axis from 0 to 1.
pub(super) fn scores(evaluations: &[(String, EvalSummary)]) -> Markup {
    let labels = || evaluations.iter().map(|(label, _)| label.as_str());
    let classes = colours(labels());
    let mut rows: Vec<Row> = Vec::new();
    for metric in SCORES {
        let mut label = metric;
        for ((_, summary), class) in evaluations.iter().zip(&classes) {
            let Some(interval) = summary.metric(metric) else {
                continue;
            };
            let Interval {
                estimate,
                low,
                high,
            } = interval;
            rows.push(Row {
                label: label.to_owned(),
                note: format!("{estimate:.3} [{low:.3}, {high:.3}]"),
                marks: vec![(*class, interval)],
                apart: !label.is_empty(),
            });
            label = "";
        }
    }
    html! {
        @if !rows.is_empty() {
            (legend(labels().zip(classes)))
            (figure("Scores on held-out questions", &rows, [0.0, 1.0]))
        }
    }
}

fn detail_rows(detail: &Detail, measure: &str, suffix: &str) -> Vec<Row> {
    let row = |label: &str, class, comparison: Option<&Comparison>| {
        let found = comparison?.difference(measure)?.difference;
        Some(Row::difference(format!("{label}{suffix}"), class, found))
    };
    let rows = [
        row("trained − start", "c-main", Some(&detail.gain)),
        row("control − start", "c-control", detail.control_gain.as_ref()),
        row("trained − control", "c-green", detail.over_control.as_ref()),
    ];
    let baselines = detail.baselines.iter();
    let baselines = baselines.map(|arm| arm_row(arm, suffix, "c-violet"));
    rows.into_iter().flatten().chain(baselines).collect()
}

/// The gain of an arm or a baseline.
fn arm_row(arm: &Arm, suffix: &str, class: &'static str) -> Row {
    let label = format!("{} − start{suffix}", arm.name.replace('_', " "));
    Row::difference(label, class, arm.gain)
}

/// A plot over `least` at the least; nothing without rows.
pub(super) fn figure(title: &str, rows: &[Row], least: [f64; 2]) -> Markup {
    let marks = rows.iter().flat_map(|row| &row.marks);
    let ends = marks.flat_map(|(_, interval)| interval.ends());
    let range = ends.fold(least, |[low, high], end| [low.min(end), high.max(end)]);
    let lengths = rows.iter().map(|row| row.label.chars().count());
    let longest = lengths.max().unwrap_or_default() as f64;
    let left = (MARGIN + LETTER * longest).clamp(LEFT, WIDTH / 2.0);
    let axis = Axis::around(range, [left, WIDTH - RIGHT], 5);
    let mut base = 8.0;
    let mut drawn = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        base += if row.apart && index > 0 { GAP } else { 0.0 };
        drawn.push(draw_row(row, &axis, base + ROW / 2.0));
        base += ROW;
    }
    html! {
        @if !rows.is_empty() {
            // It scrolls where the screen is narrow, by keys too.
            figure tabindex="0" {
                figcaption { (title) }
                svg.wide viewBox={ "0 0 " (WIDTH) " " (base + 24.0) } role="img" aria-label=(title) {
                    @for &tick in &axis.ticks {
                        @let at = px(axis.pixel(tick));
                        @let class = if tick == 0.0 { "zero" } else { "grid" };
                        line class=(class) x1=(at) x2=(at) y1="4" y2=(px(base)) {}
                        text x=(at) y=(px(base + 16.0)) text-anchor="middle" { (axis.label(tick)) }
                    }
                    @for row in drawn { (row) }
                }
            }
        }
    }
}

fn draw_row(row: &Row, axis: &Axis, y: f64) -> Markup {
    let [top, middle, bottom] = [y - 4.0, y, y + 4.0].map(px);
    let mark = |(class, interval): &(&'static str, Interval)| {
        let [low, high, centre] =
            [interval.low, interval.high, interval.estimate].map(|value| px(axis.pixel(value)));
        let whisker = format!("M{low} {middle}H{high}M{low} {top}V{bottom}M{high} {top}V{bottom}");
        html! {
            path class={ "whisker " (class) } d=(whisker) {}
            circle class={ "dot " (class) } cx=(centre) cy=(middle) r="4.5" {}
        }
    };
    let [start, end] = axis.ends();
    html! {
        text.label x=(px(start - MARGIN)) y=(bottom) text-anchor="end" { (row.label) }
        @for found in &row.marks { (mark(found)) }
        text.note x=(px(end + MARGIN)) y=(bottom) { (row.note) }
    }
}
