//! Training curves: one panel per metric, all arms in it.

use std::collections::BTreeSet;

use forage_contracts::Metric;
use forage_env::registry;
use maud::{Markup, html};

use super::arms::{Arm, Point, values};
use super::axis::Axis;
use super::html::{colour, colours, legend};
use super::px;
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

/// The metrics that are shown first.
const HEADLINE: [&str; 26] = [
    Metric::REWARD,
    Metric::VAL_EM,
    Metric::VAL_NDCG,
    Metric::VAL_REWARD,
    Metric::VAL_EM_MACRO,
    Metric::VAL_NDCG_MACRO,
    Metric::VAL_REWARD_MACRO,
    Metric::VAL_EM_OF,
    Metric::VAL_NDCG_OF,
    Metric::VAL_REWARD_OF,
    Metric::INFRA,
    "query/words_mean",
    "query/operator_frac",
    "query/valid_frac",
    Metric::REWARD_ZERO,
    Metric::SEARCHES,
    Metric::RESPONSE_TOKENS,
    Metric::ENTROPY,
    Metric::KL_REFERENCE,
    Metric::NO_VARIANCE,
    Metric::VALID,
    Metric::FINISHED,
    Metric::GRADIENT,
    Metric::CLIP,
    Metric::MISMATCH,
    Metric::SFT_LOSS,
];

/// A line of a panel.
struct Line<'a> {
    name: &'a str,
    class: &'static str,
    points: Vec<Point>,
}

/// All panels: the headline metrics, then the others folded away. Empty without numbers.
pub(super) fn panels(arms: &[Arm]) -> Markup {
    let names: BTreeSet<String> = arms.iter().flat_map(Arm::metrics).collect();
    let headline = headline(arms);
    let shown = |name: &str| headline.iter().any(|(shown, _)| shown == name);
    let first = html! {
        @for (name, title) in &headline { (metric_panel(title, Some(name.as_str()), name, arms)) }
    };
    let others = html! {
        @for name in names.iter().filter(|name| !shown(name)) { (metric_panel(name, None, name, arms)) }
    };
    html! {
        @if !(first.0.is_empty() && others.0.is_empty()) {
            (legend(arms.iter().map(|arm| &*arm.name).zip(classes(arms))))
            @if arms.iter().any(|arm| arm.runs.len() > 1) {
                p.caption {
                    "Bands: 95 % bootstrap intervals of the mean over the runs of an arm, which differ in their seed \
                     alone. Few runs make them too narrow."
                }
            }
            @if !first.0.is_empty() { div.panels { (first) } }
            @if !others.0.is_empty() {
                details { summary { "All other metrics" } div.panels { (others) } }
            }
        }
    }
}

/// The metrics of [`HEADLINE`] among those of the arms, with the titles of their panels. Lost episodes are one where any were lost.
pub(super) fn headline(arms: &[Arm]) -> Vec<(String, String)> {
    let mut names: BTreeSet<String> = arms.iter().flat_map(Arm::metrics).collect();
    let mut runs = arms.iter().flat_map(|arm| &arm.runs);
    if !runs.any(|rows| values(rows, Metric::INFRA).any(|(_, share)| share > 0.0)) {
        names.remove(Metric::INFRA);
    }
    let mut found = Vec::new();
    for metric in HEADLINE {
        for name in &names {
            match Metric::part(metric, name) {
                Some("") => found.push((name.clone(), title(metric))),
                Some(part) => found.push((name.clone(), format!("{}: {part}", title(metric)))),
                None => {}
            }
        }
    }
    found
}

/// A metric in words, with its unit where the words do not say it.
pub(super) fn title(name: &str) -> String {
    match registry::metric(name) {
        Some(metric) if metric.unit == "nats" => format!("{} (nats)", metric.about),
        Some(metric) => metric.about.to_owned(),
        None => name.to_owned(),
    }
}

/// The parts of the reward over the steps, a panel per arm. Empty where rewards have no parts.
pub(super) fn decomposition(arms: &[Arm]) -> Markup {
    let panels = html! {
        @for arm in arms { (parts(arm)) }
    };
    html! {
        @if !panels.0.is_empty() {
            div.panels { (panels) }
            p.caption {
                "Means over a step's episodes, each part before its weight; parts that are always 0 are left out. The \
                 total is the training reward."
            }
        }
    }
}

fn parts(arm: &Arm) -> Markup {
    let metrics = arm.metrics();
    let parts: Vec<(&str, &str)> = metrics
        .iter()
        .filter_map(|metric| Some((&**metric, Metric::part(Metric::REWARD_PART, metric)?)))
        .collect();
    let total = (Metric::REWARD, "total", "c-start");
    let named = parts.iter().enumerate();
    let lines: Vec<Line<'_>> = named
        .map(|(index, (metric, name))| (*metric, *name, colour(index)))
        .chain((!parts.is_empty()).then_some(total))
        .map(|(metric, name, class)| Line {
            name,
            class,
            points: arm.points(metric),
        })
        .filter(|line| line.points.iter().any(|point| point.value != 0.0))
        .collect();
    let title = format!("Parts of the reward, {}", arm.name);
    html! {
        @if !lines.is_empty() {
            div {
                (panel(&title, None, &lines))
                (legend(lines.iter().map(|line| (line.name, line.class))))
            }
        }
    }
}

fn classes(arms: &[Arm]) -> Vec<&'static str> {
    colours(arms.iter().map(|arm| &*arm.name))
}

/// The lines of one metric, with its name beside the title where that is in words.
fn metric_panel(title: &str, note: Option<&str>, metric: &str, arms: &[Arm]) -> Markup {
    let lines: Vec<Line<'_>> = arms
        .iter()
        .zip(classes(arms))
        .map(|(arm, class)| Line {
            name: &arm.name,
            class,
            points: arm.points(metric),
        })
        .collect();
    panel(title, note, &lines)
}

/// One plot; nothing without points.
fn panel(title: &str, note: Option<&str>, lines: &[Line<'_>]) -> Markup {
    let points = || lines.iter().flat_map(|line| &line.points);
    let heights = points().flat_map(|point| point.band.into_iter().flatten().chain([point.value]));
    let (Some(steps), Some(heights)) = (extent(points().map(|point| point.step)), extent(heights))
    else {
        return Markup::default();
    };
    let x = Axis::of_steps(steps, [LEFT, WIDTH - RIGHT]);
    let y = Axis::around(heights, [HEIGHT - BOTTOM, TOP], 4);
    html! {
        figure {
            figcaption { (title) @if let Some(note) = note { " " code { (note) } } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (title) " by step" } {
                (draw_axes(&x, &y))
                @for line in lines.iter().filter(|line| !line.points.is_empty()) { (draw_line(line, &x, &y)) }
            }
        }
    }
}

fn extent(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    values
        .map(|value| [value, value])
        .reduce(|[low, high], [value, _]| [low.min(value), high.max(value)])
}

fn draw_axes(x: &Axis, y: &Axis) -> Markup {
    let ([left, right], [base, _]) = (x.ends(), y.ends());
    let (start, end, baseline) = (px(left), px(right), px(base));
    html! {
        @for &tick in &y.ticks {
            @let at = y.pixel(tick);
            line.grid x1=(start) x2=(end) y1=(px(at)) y2=(px(at)) {}
            text x=(px(left - 6.0)) y=(px(at + 3.5)) text-anchor="end" { (y.label(tick)) }
        }
        line.axis x1=(start) x2=(end) y1=(baseline) y2=(baseline) {}
        @for &tick in &x.ticks {
            @let at = px(x.pixel(tick));
            line.axis x1=(at) x2=(at) y1=(baseline) y2=(px(base + 4.0)) {}
            text x=(at) y=(px(base + 15.0)) text-anchor="middle" { (x.label(tick)) }
        }
        text x=(px(f64::midpoint(left, right))) y=(px(HEIGHT - 4.0)) text-anchor="middle" { "step" }
    }
}

fn draw_line(line: &Line<'_>, x: &Axis, y: &Axis) -> Markup {
    let Line {
        name,
        class,
        points,
    } = line;
    let noisy = points.len() >= SMOOTHED_FROM;
    let smoothed = if noisy {
        smooth(points)
    } else {
        points.clone()
    };
    let ends = |end: usize| {
        smoothed
            .iter()
            .filter_map(move |point| Some((point.step, point.band?[end])))
    };
    let band: Vec<_> = ends(1)
        .chain(ends(0).collect::<Vec<_>>().into_iter().rev())
        .collect();
    let path = |points: Vec<(f64, f64)>| {
        let pairs = points
            .into_iter()
            .map(|(step, value)| format!("{:.1},{:.1}", x.pixel(step), y.pixel(value)));
        pairs.collect::<Vec<String>>().join(" ")
    };
    let values = |points: &[Point]| {
        path(
            points
                .iter()
                .map(|point| (point.step, point.value))
                .collect(),
        )
    };
    let marked = if points.len() <= MARKED_UP_TO {
        points.as_slice()
    } else {
        &[]
    };
    html! {
        @if !band.is_empty() {
            polygon class={ "band " (class) } points=(path(band)) {}
        } @else if noisy {
            polyline class={ "raw " (class) } points=(values(points)) {}
        }
        polyline class={ "line " (class) } points=(values(&smoothed)) { title { (name) } }
        @for Point { step, value, band } in marked {
            circle class={ "dot " (class) } cx=(px(x.pixel(*step))) cy=(px(y.pixel(*value))) r="3" {
                title {
                    (name) " · step " (step) ": " (digits(*value))
                    @if let Some([low, high]) = band { " [" (digits(*low)) ", " (digits(*high)) "]" }
                }
            }
        }
    }
}

/// A value with four digits or more of its own, however small it is.
fn digits(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 {
        format!("{value:.3e}")
    } else {
        format!("{value:.4}")
    }
}

/// Running mean over a centred window of about a tenth of the line, of the band's ends as well.
fn smooth(points: &[Point]) -> Vec<Point> {
    let reach = (points.len() / 20).max(1);
    let window =
        |index: usize| &points[index.saturating_sub(reach)..(index + reach + 1).min(points.len())];
    let average = |index: usize, of: &dyn Fn(&Point) -> Option<f64>| {
        mean(&window(index).iter().filter_map(of).collect::<Vec<f64>>())
    };
    let smoothed = |(index, point): (usize, &Point)| Point {
        step: point.step,
        value: average(index, &|point| Some(point.value)),
        band: point.band.map(|_| {
            [0, 1].map(|end: usize| average(index, &|point| point.band.map(|band| band[end])))
        }),
    };
    points.iter().enumerate().map(smoothed).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_panel_shows_a_metric_of_the_table() {
        for name in HEADLINE {
            assert!(
                registry::metrics().any(|metric| metric.name == name),
                "{name}"
            );
        }
        assert_eq!(title(Metric::KL_REFERENCE), "KL to the reference (nats)");
    }

    #[test]
    fn headline_metrics_come_first_and_the_rest_is_folded() {
        let rows = vec![
            json!({"step": 1, "val/world/em": 0.1, "optim/lr": 1e-5, "reward/mean": 0.2, "note": "x"}),
        ];
        let arm = |name: &str, runs| Arm {
            name: name.into(),
            runs,
        };
        let html = panels(&[arm("run", vec![rows]), arm("control", vec![])]).0;
        let position = |needle: &str| html.find(needle).unwrap_or(usize::MAX);
        assert!(position("reward/mean") < position("val/world/em"));
        assert!(
            position("val/world/em") < position("<details>")
                && position("<details>") < position("optim/lr")
        );
        assert!(html.contains("run · step 1: 1.000e-5") && html.contains("run · step 1: 0.2000"));
        assert!(!html.contains("class=\"band"));
        assert!(panels(&[arm("run", vec![])]).0.is_empty());
    }

    #[test]
    fn lost_episodes_are_a_headline_where_any_were_lost() {
        let of = |share: f64| {
            let rows = vec![
                json!({"step": 0, "reward/mean": 0.2, "episode/infra_frac": share}),
                json!({"step": 1, "reward/mean": 0.2, "episode/infra_frac": 0.0}),
            ];
            let arm = Arm {
                name: "run".into(),
                runs: vec![rows],
            };
            let names = headline(&[arm]).into_iter().map(|(name, _)| name);
            names.collect::<Vec<String>>()
        };
        assert_eq!(of(0.0), ["reward/mean"]);
        assert_eq!(of(0.0625), ["reward/mean", "episode/infra_frac"]);
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
        let arms = [Arm {
            name: "arm".into(),
            runs: vec![rows(0), rows(7), rows(9)],
        }];
        assert!(panels(&arms).0.contains("<polygon class=\"band c-main\""));
        let parts = decomposition(&arms).0;
        assert!(
            parts.contains("total") && parts.contains(">em<") && !parts.contains("format"),
            "{parts}"
        );
        assert!(decomposition(&[Arm::default()]).0.is_empty());
    }
}
