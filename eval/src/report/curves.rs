//! Training curves: one panel per metric, all runs in it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::axis::{Scale, Ticks};
use super::html::{colours, escape, legend};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 32.0;
/// Longer lines are drawn faintly under their running mean.
const SMOOTHED_FROM: usize = 40;
/// Longer lines are averaged down to about this many points.
const MOST_POINTS: usize = 400;

/// Metrics shown first, with the words above their panel.
const HEADLINE: [(&str, &str); 17] = [
    ("reward/mean", "Training reward"),
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
];

type Point = (f64, f64);

/// All panels: the headline metrics, then the others folded away. Empty without numbers.
pub(super) fn panels(runs: &[(&str, &[Value])]) -> String {
    let names = metric_names(runs);
    let (mut headline, mut others) = (String::new(), String::new());
    let mut shown = BTreeSet::new();
    for (metric, title) in HEADLINE {
        for name in names.iter().filter(|name| matches_headline(name, metric)) {
            shown.insert(name);
            headline.push_str(&panel(title, name, runs));
        }
    }
    for name in names.iter().filter(|name| !shown.contains(name)) {
        others.push_str(&panel(name, "", runs));
    }
    if headline.is_empty() && others.is_empty() {
        return String::new();
    }
    let classes = colours(runs.iter().map(|run| run.0));
    let mut html = legend(runs.iter().map(|run| run.0).zip(classes));
    if !headline.is_empty() {
        let _ = write!(html, "<div class=\"panels\">{headline}</div>");
    }
    if !others.is_empty() {
        let _ =
            write!(html, "<details><summary>All other metrics</summary><div class=\"panels\">{others}</div></details>");
    }
    html
}

/// `val/em` also stands for the exact match of a named data set, `val/S/em`.
fn matches_headline(name: &str, metric: &str) -> bool {
    name == metric || (metric == "val/em" && name.starts_with("val/") && name.ends_with("/em"))
}

fn metric_names(runs: &[(&str, &[Value])]) -> BTreeSet<String> {
    let rows = runs.iter().flat_map(|run| run.1).filter_map(Value::as_object);
    let numbers = rows.flatten().filter(|(name, value)| *name != "step" && value.is_number());
    numbers.map(|(name, _)| name.clone()).collect()
}

fn points(rows: &[Value], metric: &str) -> Vec<Point> {
    let point = |row: &Value| Some((row.get("step")?.as_f64()?, row.get(metric)?.as_f64()?));
    let all: Vec<Point> = rows.iter().filter_map(point).filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    thin(&all)
}

/// Averages neighbours so that at most about [`MOST_POINTS`] remain.
fn thin(points: &[Point]) -> Vec<Point> {
    let bucket = points.len().div_ceil(MOST_POINTS).max(1);
    points.chunks(bucket).map(centre).collect()
}

/// Running mean over a centred window of about a tenth of the line.
fn smooth(points: &[Point]) -> Vec<Point> {
    let reach = (points.len() / 20).max(1);
    let window = |index: usize| &points[index.saturating_sub(reach)..(index + reach + 1).min(points.len())];
    points.iter().enumerate().map(|(index, point)| (point.0, centre(window(index)).1)).collect()
}

fn centre(points: &[Point]) -> Point {
    let count = points.len().max(1) as f64;
    (points.iter().map(|point| point.0).sum::<f64>() / count, points.iter().map(|point| point.1).sum::<f64>() / count)
}

fn panel(title: &str, metric: &str, runs: &[(&str, &[Value])]) -> String {
    let source = if metric.is_empty() { title } else { metric };
    let classes = colours(runs.iter().map(|run| run.0));
    let lines: Vec<(&str, &str, Vec<Point>)> = runs
        .iter()
        .zip(classes)
        .map(|((name, rows), class)| (*name, class, points(rows, source)))
        .filter(|line| !line.2.is_empty())
        .collect();
    let Some((x, x_ticks, y, y_ticks)) = scales(&lines) else { return String::new() };
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} by step\">", escape(title));
    draw_axes(&mut svg, &x, &x_ticks, &y, &y_ticks);
    for (name, class, line) in &lines {
        draw_line(&mut svg, name, class, line, &x, &y);
    }
    svg.push_str("</svg>");
    let note = if metric.is_empty() { String::new() } else { format!(" <code>{}</code>", escape(metric)) };
    format!("<figure><figcaption>{}{note}</figcaption>{svg}</figure>", escape(title))
}

fn scales(lines: &[(&str, &str, Vec<Point>)]) -> Option<(Scale, Ticks, Scale, Ticks)> {
    let all = || lines.iter().flat_map(|line| &line.2);
    let ((first, last), (least, most)) = (extent(all().map(|point| point.0))?, extent(all().map(|point| point.1))?);
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

fn draw_line(svg: &mut String, name: &str, class: &str, line: &[Point], x: &Scale, y: &Scale) {
    let noisy = line.len() >= SMOOTHED_FROM;
    if noisy {
        let _ = write!(svg, "<polyline class=\"raw {class}\" points=\"{}\"/>", coordinates(line, x, y));
    }
    let smoothed = if noisy { smooth(line) } else { line.to_vec() };
    let _ = write!(
        svg,
        "<polyline class=\"line {class}\" points=\"{}\"><title>{}</title></polyline>",
        coordinates(&smoothed, x, y),
        escape(name)
    );
    if line.len() <= 12 {
        for (step, value) in line {
            let (cx, cy) = (x.pixel(*step), y.pixel(*value));
            let tip = format!("{} · step {step}: {value:.4}", escape(name));
            let _ = write!(
                svg,
                "<circle class=\"dot {class}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"><title>{tip}</title></circle>"
            );
        }
    }
}

fn coordinates(line: &[Point], x: &Scale, y: &Scale) -> String {
    let pairs = line.iter().map(|point| format!("{:.1},{:.1}", x.pixel(point.0), y.pixel(point.1)));
    pairs.collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_lines_are_thinned_and_gaps_skipped() {
        let rows: Vec<Value> = (0..5000).map(|step| json!({"step": step, "reward/mean": 0.5})).collect();
        let line = points(&rows, "reward/mean");
        assert!(line.len() <= MOST_POINTS && line.iter().all(|point| (point.1 - 0.5).abs() < 1e-12));
        let holes = [json!({"step": 1, "a": null}), json!({"a": 1.0}), json!({"step": 3, "a": 2.0}), json!(7)];
        assert_eq!(points(&holes, "a"), [(3.0, 2.0)]);
    }

    #[test]
    fn headline_metrics_come_first_and_the_rest_is_folded() {
        let rows = [json!({"step": 1, "val/world/em": 0.1, "optim/lr": 1e-5, "reward/mean": 0.2, "note": "x"})];
        let html = panels(&[("run", &rows), ("control", &[])]);
        let position = |needle: &str| html.find(needle).unwrap_or(usize::MAX);
        assert!(position("reward/mean") < position("val/world/em"));
        assert!(position("val/world/em") < position("<details>") && position("<details>") < position("optim/lr"));
        assert!(panels(&[("run", &[])]).is_empty());
    }
}
