//! Training curves: one panel per metric, all arms in it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::arms::{Arm, Point};
use super::axis::{Scale, Ticks};
use super::html::{colours, concat, escape, legend, part_colour};
use crate::stats::mean;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 32.0;
/// Longer lines are drawn faintly under their running mean.
const SMOOTHED_FROM: usize = 40;
/// Shorter lines have a mark at each point.
const MARKED_UP_TO: usize = 12;

/// The total of the reward, and how its parts are named.
const TOTAL: &str = "reward/mean";
const PART: &str = "reward/component/";

/// Metrics shown first, with the words above their panel.
pub const HEADLINE: [(&str, &str); 18] = [
    (TOTAL, "Training reward"),
    ("val/em", "Validation exact match"),
    ("val/ndcg", "Validation NDCG@10"),
    ("query/words_mean", "Words per query"),
    ("query/operator_frac", "Queries with an operator or phrase"),
    ("query/valid_frac", "Queries with valid syntax"),
    ("reward/zero_frac", "Episodes without reward"),
    ("search/calls_mean", "Searches per episode"),
    ("response/tokens_mean", "Response tokens"),
    ("policy/entropy", "Policy entropy (nats)"),
    ("policy/kl_ref", "KL to the reference (nats)"),
    ("group/zero_std_frac", "Groups without spread"),
    ("action/valid_frac", "Valid actions"),
    ("episode/finished_frac", "Episodes that ended by themselves"),
    ("optim/grad_norm", "Gradient norm"),
    ("policy/clip_frac", "Clipped tokens"),
    ("mismatch/logprob_abs_diff", "Sampler-trainer log-probability gap (nats)"),
    ("sft/loss", "Loss of demonstrations (nats)"),
];

/// A line of a panel.
struct Line<'a> {
    name: &'a str,
    class: &'static str,
    points: Vec<Point>,
}

/// All panels: the headline metrics, then the others folded away. Empty without numbers.
pub(super) fn panels(arms: &[Arm]) -> String {
    let names: BTreeSet<String> = arms.iter().flat_map(Arm::metrics).collect();
    let headline: Vec<(&str, &str)> = headline(&names);
    let shown: BTreeSet<&str> = headline.iter().map(|(name, _)| *name).collect();
    let rest: Vec<&str> = names.iter().map(String::as_str).filter(|name| !shown.contains(name)).collect();
    let first = concat(headline, |(name, title)| metric_panel(title, name, arms));
    let others = concat(rest, |name| metric_panel("", name, arms));
    if first.is_empty() && others.is_empty() {
        return String::new();
    }
    let mut html = legend(arms.iter().map(|arm| &*arm.name).zip(classes(arms)));
    if arms.iter().any(|arm| arm.runs.len() > 1) {
        html.push_str(
            "<p class=\"caption\">Bands: 95 % bootstrap intervals of the mean over the runs of an arm, which differ in \
             their seed alone. Few runs make them too narrow.</p>",
        );
    }
    if !first.is_empty() {
        let _ = write!(html, "<div class=\"panels\">{first}</div>");
    }
    if !others.is_empty() {
        let _ =
            write!(html, "<details><summary>All other metrics</summary><div class=\"panels\">{others}</div></details>");
    }
    html
}

/// The metrics of [`HEADLINE`] among these, with their words. `val/em` also stands for the exact match of a named data set,
/// `val/S/em`.
pub(super) fn headline(names: &BTreeSet<String>) -> Vec<(&str, &'static str)> {
    let fits = |name: &str, metric: &str| {
        name == metric || (metric == "val/em" && name.starts_with("val/") && name.ends_with("/em"))
    };
    let found = |(metric, title)| names.iter().filter(move |name| fits(name, metric)).map(move |name| (&**name, title));
    HEADLINE.into_iter().flat_map(found).collect()
}

/// The parts of the reward over the steps, a panel per arm. Empty where rewards have no parts.
pub(super) fn decomposition(arms: &[Arm]) -> String {
    let panels = concat(arms, |arm| {
        let names = arm.metrics();
        let parts: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix(PART)).collect();
        if parts.is_empty() {
            return String::new();
        }
        let total = Line { name: "total", class: "c-start", points: arm.points(TOTAL) };
        let lines: Vec<Line<'_>> = parts
            .iter()
            .enumerate()
            .map(|(index, name)| Line { name, class: part_colour(index), points: arm.points(&format!("{PART}{name}")) })
            .chain([total])
            .filter(|line| line.points.iter().any(|point| point.value != 0.0))
            .collect();
        let keys = legend(lines.iter().map(|line| (line.name, line.class)));
        let drawn = panel(&format!("Parts of the reward, {}", arm.name), "", &lines);
        if drawn.is_empty() { drawn } else { format!("<div>{drawn}{keys}</div>") }
    });
    if panels.is_empty() {
        return panels;
    }
    format!(
        "<div class=\"panels\">{panels}</div><p class=\"caption\">Means over a step's episodes, each part before its weight; \
         parts that are always 0 are left out. The total is the training reward.</p>"
    )
}

fn classes(arms: &[Arm]) -> Vec<&'static str> {
    colours(arms.iter().map(|arm| &*arm.name))
}

fn metric_panel(title: &str, metric: &str, arms: &[Arm]) -> String {
    let lines: Vec<Line<'_>> = arms
        .iter()
        .zip(classes(arms))
        .map(|(arm, class)| Line { name: &arm.name, class, points: arm.points(metric) })
        .collect();
    if title.is_empty() { panel(metric, "", &lines) } else { panel(title, metric, &lines) }
}

fn panel(title: &str, metric: &str, lines: &[Line<'_>]) -> String {
    let Some((x, x_ticks, y, y_ticks)) = scales(lines) else { return String::new() };
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} by step\">", escape(title));
    draw_axes(&mut svg, &x, &x_ticks, &y, &y_ticks);
    for line in lines.iter().filter(|line| !line.points.is_empty()) {
        draw_line(&mut svg, line, &x, &y);
    }
    svg.push_str("</svg>");
    let note = if metric.is_empty() { String::new() } else { format!(" <code>{}</code>", escape(metric)) };
    format!("<figure><figcaption>{}{note}</figcaption>{svg}</figure>", escape(title))
}

fn scales(lines: &[Line<'_>]) -> Option<(Scale, Ticks, Scale, Ticks)> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let heights = all().flat_map(|point| point.band.into_iter().flatten().chain([point.value]));
    let ((first, last), (least, most)) = (extent(all().map(|point| point.step))?, extent(heights)?);
    let x_ticks = Ticks::inside(first, last, 5, 1.0);
    let y_ticks = Ticks::around(least, most, 4);
    let (low, high) = y_ticks.range();
    let x = Scale { low: first, high: last, from: LEFT, to: WIDTH - RIGHT };
    let y = Scale { low, high, from: HEIGHT - BOTTOM, to: TOP };
    Some((x, x_ticks, y, y_ticks))
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |found, value| match found {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

fn draw_axes(svg: &mut String, x: &Scale, x_ticks: &Ticks, y: &Scale, y_ticks: &Ticks) {
    for &value in &y_ticks.values {
        let (at, label) = (y.pixel(value), y_ticks.label(value));
        let _ = write!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>", x.to);
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 6.0, at + 3.5);
    }
    let base = y.from;
    let _ = write!(svg, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{base}\" y2=\"{base}\"/>", x.to);
    for &value in &x_ticks.values {
        let (at, label) = (x.pixel(value), x_ticks.label(value));
        let _ =
            write!(svg, "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{base}\" y2=\"{:.1}\"/>", base + 4.0);
        let _ = write!(svg, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", base + 15.0);
    }
    let middle = f64::midpoint(x.from, x.to);
    let _ = write!(svg, "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">step</text>", HEIGHT - 4.0);
}

fn draw_line(svg: &mut String, line: &Line<'_>, x: &Scale, y: &Scale) {
    let class = line.class;
    let noisy = line.points.len() >= SMOOTHED_FROM;
    let smoothed = if noisy { smooth(&line.points) } else { line.points.clone() };
    let banded: Vec<(f64, [f64; 2])> = smoothed.iter().filter_map(|point| Some((point.step, point.band?))).collect();
    if !banded.is_empty() {
        let upper = banded.iter().map(|(step, [_, high])| (*step, *high));
        let lower = banded.iter().rev().map(|(step, [low, _])| (*step, *low));
        let corners = coordinates(upper.chain(lower), x, y);
        let _ = write!(svg, "<polygon class=\"band {class}\" points=\"{corners}\"/>");
    } else if noisy {
        let raw = coordinates(line.points.iter().map(|point| (point.step, point.value)), x, y);
        let _ = write!(svg, "<polyline class=\"raw {class}\" points=\"{raw}\"/>");
    }
    let _ = write!(
        svg,
        "<polyline class=\"line {class}\" points=\"{}\"><title>{}</title></polyline>",
        coordinates(smoothed.iter().map(|point| (point.step, point.value)), x, y),
        escape(line.name)
    );
    if line.points.len() <= MARKED_UP_TO {
        for point in &line.points {
            draw_mark(svg, line, point, x, y);
        }
    }
}

fn draw_mark(svg: &mut String, line: &Line<'_>, point: &Point, x: &Scale, y: &Scale) {
    let (cx, cy) = (x.pixel(point.step), y.pixel(point.value));
    let ends = point.band.map_or(String::new(), |[low, high]| format!(" [{low:.4}, {high:.4}]"));
    let tip = format!("{} · step {}: {:.4}{ends}", escape(line.name), point.step, point.value);
    let _ = write!(
        svg,
        "<circle class=\"dot {}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"><title>{tip}</title></circle>",
        line.class
    );
}

/// Running mean over a centred window of about a tenth of the line, of the band's ends as well.
fn smooth(points: &[Point]) -> Vec<Point> {
    let reach = (points.len() / 20).max(1);
    let window = |index: usize| &points[index.saturating_sub(reach)..(index + reach + 1).min(points.len())];
    let average = |index: usize, of: &dyn Fn(&Point) -> Option<f64>| {
        mean(&window(index).iter().filter_map(of).collect::<Vec<f64>>())
    };
    let smoothed = |(index, point): (usize, &Point)| Point {
        step: point.step,
        value: average(index, &|point| Some(point.value)),
        band: point.band.map(|_| [0, 1].map(|end: usize| average(index, &|point| point.band.map(|band| band[end])))),
    };
    points.iter().enumerate().map(smoothed).collect()
}

fn coordinates(points: impl Iterator<Item = (f64, f64)>, x: &Scale, y: &Scale) -> String {
    let pairs = points.map(|point| format!("{:.1},{:.1}", x.pixel(point.0), y.pixel(point.1)));
    pairs.collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn headline_metrics_come_first_and_the_rest_is_folded() {
        let rows = vec![json!({"step": 1, "val/world/em": 0.1, "optim/lr": 1e-5, "reward/mean": 0.2, "note": "x"})];
        let arm = |name: &str, runs| Arm { name: name.into(), runs };
        let html = panels(&[arm("run", vec![rows]), arm("control", vec![])]);
        let position = |needle: &str| html.find(needle).unwrap_or(usize::MAX);
        assert!(position("reward/mean") < position("val/world/em"));
        assert!(position("val/world/em") < position("<details>") && position("<details>") < position("optim/lr"));
        assert!(!html.contains("class=\"band"));
        assert!(panels(&[arm("run", vec![])]).is_empty());
    }

    #[test]
    fn seeds_are_drawn_with_a_band_and_parts_with_their_total() {
        let rows = |seed: u32| -> Vec<_> {
            let value = |step: u32| f64::from(step + seed) / 100.0;
            let row = |step| {
                json!({"step": step, "reward/mean": value(step), "reward/component/em": value(step),
                                    "reward/component/format": 0.0})
            };
            (0..60).map(row).collect()
        };
        let arms = [Arm { name: "arm".into(), runs: vec![rows(0), rows(7), rows(9)] }];
        assert!(panels(&arms).contains("<polygon class=\"band c-main\""));
        let parts = decomposition(&arms);
        assert!(parts.contains("total") && parts.contains(">em<") && !parts.contains("format"), "{parts}");
        assert!(decomposition(&[Arm::default()]).is_empty());
    }
}
