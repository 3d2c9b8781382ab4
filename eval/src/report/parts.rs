//! How a policy comes to be right and why its episodes fail, at the start and after training, each drawn above its table.

use maud::{Markup, html};

use super::html::legend;
use super::intervals::{Row, figure};
use super::tables;
use crate::decomposition::{Decomposition, PARTS};
use crate::mistakes::MistakeShare;
use crate::stats::Interval;
use crate::summary::number;

/// The policies with the classes of their colours.
const POLICIES: [(&str, &str); 2] = [("start", "c-start"), ("trained", "c-main")];

/// The parts of exact match with the gain that each explains, then the mistakes; nothing of what is not known.
pub(super) fn section(found: Option<&Decomposition>, mistakes: &[MistakeShare]) -> Markup {
    let rows = found.map(Decomposition::rows).unwrap_or_default();
    let chances = rows.iter().enumerate();
    let chances = chances.map(|(place, (name, chances, _))| {
        let is_first = place.is_multiple_of(PARTS.len());
        pair(name, *chances, is_first)
    });
    let chances: Vec<Row> = chances.collect();
    let explained = rows.iter().filter_map(|(name, _, share)| {
        let share = (*share)?;
        Some(Row::difference(name.clone(), "c-teal", share))
    });
    let explained: Vec<Row> = explained.collect();
    let failing = MistakeShare::made(mistakes).map(|share| {
        let shares = [share.start, share.trained].map(Some);
        pair(share.name(), shares, false)
    });
    let failing: Vec<Row> = failing.collect();
    html! {
        (pairs("How the policy comes to be right", &chances))
        (figure("Gain in exact match that each part explains", &explained, [-0.05, 0.05]))
        @if let Some(table) = tables::decomposition(found) { (table.html()) }
        (pairs("Why episodes fail, as shares of all episodes", &failing))
        @if let Some(table) = tables::mistakes(mistakes) { (table.html()) }
    }
}

/// A plot of both policies under its legend; nothing without rows.
fn pairs(title: &str, rows: &[Row]) -> Markup {
    html! {
        @if !rows.is_empty() {
            (legend(POLICIES))
            (figure(title, rows, [0.0, 1.0]))
        }
    }
}

/// Both policies on one line; one that had no occasion has no dot.
fn pair(label: &str, shares: [Option<f64>; 2], apart: bool) -> Row {
    let [start, trained] = shares.map(|share| share.map_or("–".to_owned(), number));
    let marks = POLICIES.into_iter().zip(shares);
    let marks = marks.filter_map(|((_, class), share)| Some((class, alone(share?))));
    Row {
        label: label.to_owned(),
        note: format!("{start} → {trained}"),
        marks: marks.collect(),
        apart,
    }
}

/// An estimate without an interval, whose whisker its dot hides.
fn alone(estimate: f64) -> Interval {
    Interval {
        estimate,
        low: estimate,
        high: estimate,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_and_mistakes_are_drawn_above_their_tables() -> Result<(), serde_json::Error> {
        let share = |estimate: f64| json!({"estimate": estimate, "low": estimate - 0.1, "high": estimate + 0.1});
        let chances = |search: f64, found: Option<f64>| {
            let parts = json!({"search": search, "found": found, "read": 0.8, "guess": 0.1});
            json!({"questions": 60, "parts": parts, "right": 0.5})
        };
        let policies = json!([chances(0.0, None), chances(0.9, Some(0.75))]);
        let shares = json!({
            "search": share(0.5), "found": share(0.25), "read": share(0.0), "guess": share(-0.25),
        });
        let found: Decomposition = serde_json::from_value(json!({
            "policies": policies, "by_hops": {"2": policies}, "shares": shares,
        }))?;
        let mistakes: Vec<MistakeShare> = serde_json::from_value(json!([
            {"mistake": "stopped_early", "start": 0.5, "trained": 0.0, "change": share(-0.5)},
            {"mistake": "copying", "start": 0.0, "trained": 0.0, "change": share(0.0)},
        ]))?;
        let drawn = section(Some(&found), &mistakes).0;
        for shown in [
            "aria-label=\"How the policy comes to be right\"",
            "</i>start</span>",
            "</i>trained</span>",
            ">P(search)</text>",
            ">P(right | not found), 2 hops</text>",
            ">0.000 → 0.900</text>",
            ">– → 0.750</text>",
            "aria-label=\"Gain in exact match that each part explains\"",
            ">+0.50 [+0.40, +0.60]</text>",
            ">−0.25 [−0.35, −0.15]</text>",
            ">stopped early</text>",
            ">0.500 → 0.000</text>",
        ] {
            assert!(drawn.contains(shown), "no `{shown}` in {drawn}");
        }
        let count = |part: &str| drawn.matches(part).count();
        assert_eq!([count("<svg"), count("<table>")], [3, 2]);
        // The start never searched, so it has no dot where the answer is found, neither in all nor of two hops.
        let dots = ["c-start", "c-main", "c-teal"].map(|class| count(&format!("dot {class}\"")));
        assert_eq!(dots, [7, 9, 4]);
        assert!(!drawn.contains("copying"), "no episode copies wrongly");
        assert!(section(None, &[]).0.is_empty(), "nothing is known");
        Ok(())
    }
}
