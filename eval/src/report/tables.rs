//! The tables of numbers, alarms and configurations.

use std::collections::BTreeSet;

use forage_env::{Alarm, Severity};
use maud::{Markup, html};

use super::html::coded;
use super::{Paired, Recipe};
use crate::compare::{Comparison, Difference};
use crate::decomposition::{Decomposition, Row};
use crate::measures::{display_rank, headline};
use crate::mistakes::MistakeShare;
use crate::stats::Interval;
use crate::study::Cost;
use crate::summary::{EvalSummary, Metric, hops_label, number};
use crate::telemetry::Course;
use crate::text::p_figure;

/// A table whose rows begin with their name, as the page and Markdown show it.
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<(String, Vec<Cell>)>,
    /// Counts below the rows.
    pub(super) counts: Vec<(String, Vec<Cell>)>,
}

/// The content of a cell.
pub(super) enum Cell {
    Text(String),
    /// An estimate with the ends of its interval; `None` where it was not measured.
    Interval(Option<Interval>),
}

/// Most columns that stand side by side on a wide screen.
const COLUMNS: usize = 8;

impl Table {
    pub(super) fn html(&self) -> Markup {
        html! {
            // Where the screen is too narrow for its columns, each row is a list with the names of the columns.
            div.rows.many[self.head.len() > COLUMNS] {
                table {
                    thead { tr { @for name in &self.head { th scope="col" { (name) } } } }
                    tbody {
                        @for row in &self.rows { tr { (cells(row, &self.head)) } }
                        @for row in &self.counts { tr.count { (cells(row, &self.head)) } }
                    }
                }
            }
        }
    }
}

fn cells((name, cells): &(String, Vec<Cell>), head: &[String]) -> Markup {
    html! {
        th scope="row" { (name) }
        @for (place, cell) in cells.iter().enumerate() {
            td data-of=[head.get(place + 1)] {
                @match cell {
                    Cell::Text(text) => (text),
                    Cell::Interval(None) => "–",
                    Cell::Interval(Some(Interval { estimate, low, high })) => {
                        (number(*estimate)) " " small { (number(*low)) " to " (number(*high)) }
                    }
                }
            }
        }
    }
}

/// Every metric by evaluation, with intervals.
pub(super) fn metrics(evaluations: &[(String, EvalSummary)]) -> Table {
    let names = evaluations
        .iter()
        .flat_map(|(_, summary)| summary.metric_names());
    let names: BTreeSet<_> = names.map(display_rank).collect();
    let count = |name: &str, count: &dyn Fn(&EvalSummary) -> usize| {
        let cell = |(_, summary): &(String, EvalSummary)| Cell::Text(count(summary).to_string());
        (name.to_owned(), evaluations.iter().map(cell).collect())
    };
    Table {
        head: head("metric", evaluations),
        rows: names
            .into_iter()
            .map(|(_, name)| row(name, evaluations, |summary| summary.metrics.get(name)))
            .collect(),
        counts: vec![
            count("questions", &|summary| summary.questions),
            count("episodes", &|summary| summary.episodes),
            count("infrastructure faults (excluded)", &|summary| summary.infra),
        ],
    }
}

/// The main metric of each data set, their mean with each counted once, and the mean over all questions; `None` where no
/// evaluation has several data sets.
pub(super) fn by_source(evaluations: &[(String, EvalSummary)]) -> Option<Table> {
    let summaries = || evaluations.iter().map(|(_, summary)| summary);
    if !summaries().any(|summary| summary.by_source.len() > 1) {
        return None;
    }
    let measure = headline(&summaries().next()?.metrics);
    let sources: BTreeSet<&String> = summaries()
        .flat_map(|summary| summary.by_source.keys())
        .collect();
    let interval = |name: &str, of: &dyn Fn(&EvalSummary) -> Option<Interval>| {
        let cells = summaries().map(|summary| Cell::Interval(of(summary)));
        (name.to_owned(), cells.collect())
    };
    let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
    for source in sources {
        rows.push(interval(source, &|summary| {
            Some(
                summary
                    .by_source
                    .get(source)?
                    .metrics
                    .get(measure)?
                    .interval,
            )
        }));
    }
    rows.push(interval("macro average", &|summary| {
        summary.macro_average.get(measure).copied()
    }));
    rows.push(interval("all questions (micro average)", &|summary| {
        summary.metric(measure)
    }));
    Some(Table {
        head: head(&format!("{measure} by data set"), evaluations),
        rows,
        counts: Vec::new(),
    })
}

/// The paired difference of the main metric on each data set, their mean, and that over all questions; `None` of one data set.
pub(super) fn differences_by_source(paired: &Paired) -> Option<Table> {
    let measure = headline(&paired.comparison.metrics);
    let difference = format!("{} - {}", paired.b, paired.a);
    sources(
        &paired.comparison,
        measure,
        [&paired.a, &paired.b, &difference],
    )
}

/// The difference of a measure on each data set, their mean with each counted once, and that over all questions; `None` of one data set.
pub(super) fn sources(
    gain: &Comparison,
    measure: &str,
    [a, b, difference]: [&str; 3],
) -> Option<Table> {
    let average = gain.macro_average.get(measure)?;
    let row = |name: &str, [a, b]: [f64; 2], difference: Interval| {
        let cells = vec![
            Cell::Text(number(a)),
            Cell::Text(number(b)),
            Cell::Interval(Some(difference)),
        ];
        (name.to_owned(), cells)
    };
    let of = |name: &str, found: &Difference| row(name, [found.a, found.b], found.difference);
    let mut rows: Vec<(String, Vec<Cell>)> = gain
        .by_source
        .iter()
        .filter_map(|(source, metrics)| Some(of(source, metrics.get(measure)?)))
        .collect();
    rows.push(row(
        "macro average",
        [average.a, average.b],
        average.difference,
    ));
    let all = gain.difference(measure);
    rows.extend(all.map(|found| of("all questions (micro average)", found)));
    let corner = format!("{measure} by data set");
    Some(Table {
        head: [&*corner, a, b, difference].map(str::to_owned).into(),
        rows,
        counts: Vec::new(),
    })
}

/// How start and trained policy come to be right, and what each part explains of the gain; then the same by hops.
pub(super) fn decomposition(found: Option<&Decomposition>) -> Option<Table> {
    let chance = |chance: Option<f64>| Cell::Text(chance.map_or("–".to_owned(), number));
    let row = |(name, chances, share): Row| {
        let share = share.map_or(Cell::Text(String::new()), |share| {
            Cell::Interval(Some(share))
        });
        let cells = chances.map(chance).into_iter().chain([share]);
        (name, cells.collect::<Vec<Cell>>())
    };
    let rows = found?.rows().into_iter().map(row).collect();
    Some(Table {
        head: [
            "how it comes to be right",
            "start",
            "trained",
            "share of the gain",
        ]
        .map(str::to_owned)
        .into(),
        rows,
        counts: Vec::new(),
    })
}

/// The mistakes of start and trained policy, as shares of all episodes; `None` where there is none.
pub(super) fn mistakes(found: &[MistakeShare]) -> Option<Table> {
    let row = |share: &MistakeShare| {
        let policies = [share.start, share.trained].map(|share| Cell::Text(number(share)));
        let change = Cell::Interval(Some(share.change));
        let cells = policies.into_iter().chain([change]);
        (share.name().to_owned(), cells.collect::<Vec<Cell>>())
    };
    let rows: Vec<_> = MistakeShare::made(found).map(row).collect();
    (!rows.is_empty()).then(|| Table {
        head: ["why episodes fail", "start", "trained", "change"]
            .map(str::to_owned)
            .into(),
        rows,
        counts: Vec::new(),
    })
}

/// A policy beside others: its score, its gain over the start, the lead of the trained policy over it, and, in tables that have it,
/// what its training has taken.
pub(super) fn beside(
    name: String,
    score: f64,
    intervals: [Option<Interval>; 2],
    cost: Option<[String; 2]>,
) -> (String, Vec<Cell>) {
    let intervals = intervals.map(Cell::Interval);
    let cost = cost.into_iter().flatten().map(Cell::Text);
    let cells = std::iter::once(Cell::Text(number(score))).chain(intervals);
    (name, cells.chain(cost).collect())
}

/// The head of a table of such rows.
pub(super) fn beside_head(what: &str, unit: &str, has_costs: bool) -> Vec<String> {
    let heads = [what, unit, "gain over the start", "trained ahead by"];
    let mut heads: Vec<String> = heads.map(str::to_owned).into();
    if has_costs {
        heads.extend(Cost::HEADS.map(str::to_owned));
    }
    heads
}

/// Every metric of two evaluations on the same questions, with the paired difference.
pub(super) fn differences(paired: &Paired) -> Table {
    let mut found: Vec<(&String, &Difference)> = paired.comparison.metrics.iter().collect();
    found.sort_by_key(|(name, _)| display_rank(name));
    let row = |(name, found): (&String, &Difference)| {
        let cells = vec![
            Cell::Text(number(found.a)),
            Cell::Text(number(found.b)),
            Cell::Interval(Some(found.difference)),
            Cell::Text(p_figure(found.p_adjusted)),
        ];
        (name.clone(), cells)
    };
    let difference = format!("{} - {}", paired.b, paired.a);
    Table {
        head: [
            "question by question",
            &paired.a,
            &paired.b,
            &difference,
            "p (Holm)",
        ]
        .map(str::to_owned)
        .into(),
        rows: found.into_iter().map(row).collect(),
        counts: Vec::new(),
    }
}

/// Exact match by number of hops; `None` where there are fewer than two kinds.
pub(super) fn by_hops(evaluations: &[(String, EvalSummary)]) -> Option<Table> {
    let hops: BTreeSet<u8> = evaluations
        .iter()
        .flat_map(|(_, summary)| summary.by_hops.keys().copied())
        .collect();
    (hops.len() > 1).then(|| Table {
        head: head("exact match by hops", evaluations),
        rows: hops
            .iter()
            .map(|hops| {
                row(&hops_label(*hops), evaluations, |summary| {
                    summary.by_hops.get(hops)?.metrics.get("em")
                })
            })
            .collect(),
        counts: Vec::new(),
    })
}

/// The results as the page shows them: every metric, the main one by data set, and exact match by hops.
pub(super) fn results(evaluations: &[(String, EvalSummary)]) -> Markup {
    let parts = [by_source(evaluations), by_hops(evaluations)];
    html! {
        @if let Some((_, first)) = evaluations.first() {
            (metrics(evaluations).html())
            p.caption {
                "Means with " (format!("{:.0}", 100.0 * first.bootstrap.confidence))
                " % intervals over questions. Shares lie between 0 and 1; response tokens include observations, \
                 policy tokens do not."
            }
            @for table in parts.iter().flatten() { (table.html()) }
        }
    }
}

fn head(corner: &str, evaluations: &[(String, EvalSummary)]) -> Vec<String> {
    let labels = evaluations.iter().map(|(label, _)| label.clone());
    std::iter::once(corner.to_owned()).chain(labels).collect()
}

fn row<'a>(
    name: &str,
    evaluations: &'a [(String, EvalSummary)],
    metric: impl Fn(&'a EvalSummary) -> Option<&'a Metric>,
) -> (String, Vec<Cell>) {
    let cells = evaluations
        .iter()
        .map(|(_, summary)| Cell::Interval(metric(summary).map(|metric| metric.interval)));
    (name.to_owned(), cells.collect())
}

/// The alarms of sentinel and telemetry with their runs, in the order they were raised.
pub(super) fn alarms(alarms: &[(String, Alarm)]) -> Markup {
    html! {
        @if !alarms.is_empty() {
            ul.alarms {
                @for (run, alarm) in alarms {
                    @let class = if alarm.severity == Severity::Stop { "bad" } else { "plain" };
                    li.alarm {
                        b class={ "badge " (class) } { (alarm.severity.name()) } " "
                        b { (alarm.kind.replace('_', " ")) } " "
                        span.outcome { (run) @if let Some(step) = alarm.step { ", step " (step) } }
                        p { (coded(&alarm.message)) }
                        @if !alarm.examples.is_empty() {
                            ul { @for example in &alarm.examples { li { (example.to_text()) } } }
                        }
                    }
                }
            }
        }
    }
}

/// The items of a run's telemetry over its steps.
pub(super) fn items(course: &Course) -> Table {
    let (head, rows) = course.table();
    let row = |row: Vec<String>| {
        let mut cells = row.into_iter();
        let name = cells.next().unwrap_or_default();
        (name, cells.map(Cell::Text).collect())
    };
    Table {
        head: head.to_vec(),
        rows: rows.into_iter().map(row).collect(),
        counts: Vec::new(),
    }
}

/// The items of a run's telemetry, folded.
pub(super) fn course((run, course): &(String, Course)) -> Markup {
    html! {
        details { summary { (run) ", " (course.span()) } (items(course).html()) }
    }
}

/// A run's configuration with its digests, folded.
pub(super) fn recipe(recipe: &Recipe) -> Markup {
    html! {
        details {
            summary { (recipe.run) }
            dl { @for (name, digest) in &recipe.digests { dt { (name) } dd { code { (digest) } } } }
            pre.config { (recipe.config) }
        }
    }
}
