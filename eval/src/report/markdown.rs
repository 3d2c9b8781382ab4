//! The report as Markdown.

use std::fmt::Write as _;

use super::curves::headline;
use super::failures;
use super::opening;
use super::tables::{self, Cell};
use super::verdict;
use super::{Report, Trend};
use crate::stats::Interval;
use crate::summary::number;
use crate::text;

pub(super) fn render(report: &Report) -> String {
    let mut text = format!("# {}\n", cell(&report.title));
    for note in &report.said() {
        let _ = write!(text, "\n{}\n", cell(note));
    }
    for arm in report.arms.iter().filter(|_| report.is_of_runs_alone()) {
        let _ = write!(
            text,
            "\n**{}**: {}\n",
            cell(&arm.name),
            cell(&opening::lead(arm))
        );
    }
    for (run, verdict) in &report.verdicts {
        let _ = write!(
            text,
            "\n**{}**: {}\n",
            cell(run),
            cell(&verdict.words().join(" "))
        );
        for table in verdict::tables(verdict) {
            let _ = write!(text, "\n{}", shown(&table));
        }
    }
    for (run, study) in &report.studies {
        let words = study.words().join(" ");
        let _ = write!(text, "\n**{}**: {}\n", cell(run), cell(&words));
        for table in study.tables() {
            let _ = write!(text, "\n{}", shown(&table));
        }
    }
    if let Some(paired) = &report.paired {
        let differences = shown(&tables::differences(paired));
        let _ = write!(text, "\n{}\n\n{differences}", cell(&paired.words));
        if let Some(table) = tables::differences_by_source(paired) {
            let _ = write!(text, "\n{}", shown(&table));
        }
        if !paired.failures.is_empty() {
            let table = shown(&failures::table(paired));
            let _ = write!(text, "\n## Failures\n\n{table}");
        }
    }
    if let Some((_, first)) = report.evaluations.first() {
        let _ = write!(
            text,
            "\n## Results\n\nMeans with {:.0} % intervals over questions.\n\n{}",
            100.0 * first.bootstrap.confidence,
            shown(&tables::metrics(&report.evaluations))
        );
        let all = &report.evaluations;
        let parts = [tables::by_source(all), tables::by_hops(all)];
        for table in parts.iter().flatten() {
            let _ = write!(text, "\n{}", shown(table));
        }
    }
    text.push_str(&training(report));
    for (run, course) in &report.courses {
        let (span, items) = (course.span(), shown(&tables::items(course)));
        let _ = write!(
            text,
            "\n## Conduct of {}\n\nIn {span}.\n\n{items}",
            cell(run)
        );
    }
    if !report.alarms.is_empty() {
        let rows = report.alarms.iter().map(|(run, alarm)| {
            let step = alarm.step.map_or_else(String::new, |step| step.to_string());
            [
                run,
                &step,
                alarm.severity.name(),
                &alarm.kind,
                &alarm.message,
            ]
            .map(cell)
        });
        let head = ["run", "step", "severity", "alarm", "what it says"];
        let _ = write!(text, "\n## Alarms\n\n{}", table(head, rows));
    }
    for recipe in &report.recipes {
        let rows = recipe
            .digests
            .iter()
            .map(|(name, digest)| [cell(name), code(digest)]);
        let digests = table(["of", "digest"], rows);
        let (run, config) = (cell(&recipe.run), recipe.config.trim_end());
        let ticks = config.split(|c| c != '`').map(str::len).max();
        let fence = "`".repeat(ticks.unwrap_or(0).max(3) + 1);
        let _ = write!(
            text,
            "\n## Configuration of {run}\n\n{digests}\n{fence}toml\n{config}\n{fence}\n"
        );
    }
    text
}

/// The headline metrics of each arm, from the first tenth of the steps to the last.
fn training(report: &Report) -> String {
    let metrics = headline(&report.arms);
    if metrics.is_empty() {
        return String::new();
    }
    let rows = report.arms.iter().flat_map(|arm| {
        metrics.iter().filter_map(|(metric, words)| {
            let Trend {
                metric,
                first,
                last,
                runs,
                newest,
            } = arm.trend(metric)?;
            let end = |end: Interval| {
                if runs > 1 {
                    text::interval(end)
                } else {
                    number(end.estimate)
                }
            };
            let metric = format!("{words} ({})", code(&metric));
            let age = newest.map_or_else(String::new, |step| format!(", newest at step {step}"));
            Some([
                cell(&arm.name),
                metric,
                end(first),
                end(last) + &age,
                runs.to_string(),
            ])
        })
    });
    let head = [
        "arm",
        "metric",
        "first tenth of the steps",
        "last tenth",
        "runs",
    ];
    format!(
        "\n## Training\n\nMeans; of several runs with 95 % bootstrap intervals over the runs.\n\n{}",
        table(head, rows)
    )
}

fn shown(table: &tables::Table) -> String {
    let cells = |cells: &[Cell]| {
        let text = cells.iter().map(|shown| match shown {
            Cell::Text(text) => cell(text),
            Cell::Interval(None) => "–".to_owned(),
            Cell::Interval(Some(interval)) => text::interval(*interval),
        });
        text.collect::<Vec<String>>()
    };
    let rows = table.rows.iter().chain(&table.counts);
    let rows = rows.map(|(name, values)| [vec![cell(name)], cells(values)].concat());
    self::table(table.head.iter().map(|name| cell(name)), rows)
}

fn table<S: AsRef<str>, R: IntoIterator<Item: AsRef<str>>>(
    head: impl IntoIterator<Item = S>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    let mut text = String::new();
    let mut width = 0;
    for name in head {
        let _ = write!(text, "| {} ", name.as_ref());
        width += 1;
    }
    let _ = writeln!(text, "|\n|{}", " --- |".repeat(width));
    for row in rows {
        for cell in row {
            let _ = write!(text, "| {} ", cell.as_ref());
        }
        text.push_str("|\n");
    }
    text
}

/// Text in one cell or line. Nothing in it is markup: text of models and names of strangers make no links, images or code.
fn cell(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '\\' | '|' | '`' | '[' | '!' => escaped.extend(['\\', character]),
            _ => escaped.push(character),
        }
    }
    escaped.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Code within a cell.
fn code(text: &str) -> String {
    let plain = text.replace('`', "'").replace('|', "\\|");
    let words: Vec<_> = plain.split_whitespace().collect();
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_no_markup() {
        let shown = cell("![x](http://a/b)\n[y]: `z` <img> | \\[w](u)");
        assert_eq!(
            shown,
            r"\!\[x](http://a/b) \[y]: \`z\` &lt;img> \| \\\[w](u)"
        );
        assert_eq!(code("a`b|c\nd"), r"`a'b\|c d`");
    }
}
