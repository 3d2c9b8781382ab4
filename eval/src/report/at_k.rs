//! pass@k of start and trained policy, drawn over the doublings of k.

use maud::{Markup, html};

use super::axis::Axis;
use super::html::legend;
use super::px;
use crate::at_k::{CurveComparison, CurvePoint};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 32.0;

/// Both curves with their intervals over questions, under the sentence that they support; nothing with one sample of a question.
pub(super) fn picture(found: Option<&CurveComparison>) -> Markup {
    let Some(found) = found else {
        return Markup::default();
    };
    let curves = [
        ("start", "c-start", found.a.as_slice()),
        ("trained", "c-main", found.b.as_slice()),
    ];
    let largest = found.b.last().map_or(1, |point| point.k);
    let y = Axis::around([0.0, 1.0], [HEIGHT - BOTTOM, TOP], 4);
    let [base, _] = y.ends();
    let (left, right) = (px(LEFT), px(WIDTH - RIGHT));
    html! {
        (legend(curves.iter().map(|(name, class, _)| (*name, *class))))
        div.panels {
            figure {
                figcaption { "pass@k: a right answer among k samples" }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label="pass@k by k" {
                    @for &tick in &y.ticks {
                        @let at = y.pixel(tick);
                        line.grid x1=(left) x2=(right) y1=(px(at)) y2=(px(at)) {}
                        text x=(px(LEFT - 6.0)) y=(px(at + 3.5)) text-anchor="end" { (y.label(tick)) }
                    }
                    line.axis x1=(left) x2=(right) y1=(px(base)) y2=(px(base)) {}
                    @for point in &found.b {
                        text x=(px(across(point.k, largest))) y=(px(base + 15.0)) text-anchor="middle" { (point.k) }
                    }
                    text x=(px(f64::midpoint(LEFT, WIDTH - RIGHT))) y=(px(HEIGHT - 4.0)) text-anchor="middle" { "k" }
                    @for (name, class, points) in curves { (draw(name, class, points, largest, &y)) }
                }
            }
        }
        p.caption { (found.words("the start", "the trained policy")) }
    }
}

/// The place of `k` on an axis of doublings.
fn across(k: usize, largest: usize) -> f64 {
    let doublings = |k: usize| (k.max(1) as f64).log2();
    LEFT + (WIDTH - RIGHT - LEFT) * doublings(k) / doublings(largest).max(1.0)
}

fn draw(name: &str, class: &str, points: &[CurvePoint], largest: usize, y: &Axis) -> Markup {
    let path = |values: Vec<(usize, f64)>| {
        let pairs = values
            .into_iter()
            .map(|(k, value)| format!("{:.1},{:.1}", across(k, largest), y.pixel(value)));
        pairs.collect::<Vec<String>>().join(" ")
    };
    let ends = points.iter().map(|point| (point.k, point.value.high));
    let back = points.iter().rev().map(|point| (point.k, point.value.low));
    let band = path(ends.chain(back).collect());
    let line = path(
        points
            .iter()
            .map(|point| (point.k, point.value.estimate))
            .collect(),
    );
    html! {
        polygon class={ "band " (class) } points=(band) {}
        polyline class={ "line " (class) } points=(line) { title { (name) } }
        @for point in points {
            circle class={ "dot " (class) } cx=(px(across(point.k, largest))) cy=(px(y.pixel(point.value.estimate))) r="3" {
                title {
                    (name) ", pass@" (point.k) ": "
                    (format!("{:.3} [{:.3}, {:.3}]", point.value.estimate, point.value.low, point.value.high))
                }
            }
        }
    }
}
