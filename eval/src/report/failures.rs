//! How two policies fail, side by side.

use forage_env::Example;
use maud::{Markup, html};

use super::Paired;
use super::tables::{Cell, Table};
use crate::compare::Difference;
use crate::stats::Interval;
use crate::summary::number;
use crate::text::p_figure;

/// The ways to fail with their shares on both sides, by data set where there are several.
pub(super) fn table(paired: &Paired) -> Table {
    let row = |name: String, [a, b]: [f64; 2], difference: Interval, p: String| {
        let cells = vec![
            Cell::Text(number(a)),
            Cell::Text(number(b)),
            Cell::Interval(Some(difference)),
            Cell::Text(p),
        ];
        (name, cells)
    };
    let of = |name: String, found: &Difference| {
        let p = p_figure(found.p_adjusted);
        row(name, [found.a, found.b], found.difference, p)
    };
    let mut rows = Vec::new();
    for failure in &paired.failures {
        let words = failure.words;
        rows.push(of(words.to_owned(), &failure.difference));
        for (source, found) in &failure.by_source {
            rows.push(of(format!("{words}, {source}"), found));
        }
        if let Some(found) = &failure.macro_average {
            let name = format!("{words}, macro average");
            rows.push(row(
                name,
                [found.a, found.b],
                found.difference,
                String::new(),
            ));
        }
    }
    let difference = format!("{} - {}", paired.b, paired.a);
    let head = [
        "share of the episodes",
        &paired.a,
        &paired.b,
        &difference,
        "p (Holm)",
    ];
    Table {
        head: head.map(str::to_owned).into(),
        rows,
        counts: Vec::new(),
    }
}

/// The table, and episodes of each side that fail in each way.
pub(super) fn section(paired: &Paired) -> Markup {
    let sides = |examples: &[Vec<Example>; 2]| -> Vec<(String, Vec<Example>)> {
        let names = [paired.a.clone(), paired.b.clone()];
        names.into_iter().zip(examples.iter().cloned()).collect()
    };
    html! {
        @if !paired.failures.is_empty() {
            (table(paired).html())
            @for failure in &paired.failures {
                @if failure.examples.iter().any(|examples| !examples.is_empty()) {
                    details {
                        summary { (failure.words) }
                        @for (side, examples) in sides(&failure.examples) {
                            @if !examples.is_empty() {
                                h3 { (side) }
                                ul { @for example in &examples { li { (example.to_text()) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}
