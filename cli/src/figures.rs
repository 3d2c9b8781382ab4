//! Figures of a run on a terminal.

use forage_eval::Arm;
use forage_lab::Records;
use serde_json::Value;

/// A metric of a run.
pub(crate) struct Figure {
    /// Its name in `metrics.jsonl`.
    pub(crate) metric: String,
    /// The same for people.
    pub(crate) words: String,
    /// `[step]`: the values of the steps that have it, at least one.
    pub(crate) values: Vec<f64>,
    /// The newest of these steps.
    pub(crate) step: u64,
    /// True where the run has newer steps.
    is_old: bool,
    /// Means over the first and the last tenth of those steps.
    pub(crate) ends: [f64; 2],
}

impl Figure {
    /// The metrics that people look at first, in that order.
    pub(crate) fn of(records: &Records) -> Vec<Self> {
        let rows: Vec<Value> = records
            .rows
            .iter()
            .map(|row| Value::Object(row.0.clone()))
            .collect();
        let arm = Arm {
            name: records.name.clone(),
            runs: vec![rows],
        };
        let figure = |(metric, words): (String, String)| {
            let rows = records.rows.iter();
            let having = rows.filter_map(|row| Some((row.step(), row.get(&metric)?)));
            let (steps, values): (Vec<u64>, Vec<f64>) = having.unzip();
            let (step, newest) = (*steps.last()?, records.rows.last()?.step());
            let trend = arm.trend(&metric)?;
            Some(Self {
                words,
                values,
                step,
                is_old: step < newest,
                ends: [trend.first.estimate, trend.last.estimate],
                metric,
            })
        };
        arm.headline_metrics()
            .into_iter()
            .filter_map(figure)
            .collect()
    }

    /// The value of the newest step that has it.
    pub(crate) fn newest(&self) -> f64 {
        self.values.last().copied().unwrap_or(f64::NAN)
    }

    /// `0.100 to 0.412`, and the step of the newest value where that is not the run's newest.
    pub(crate) fn trend(&self) -> String {
        let [first, last] = self.ends.map(number);
        format!("{first} to {last}{}", self.age())
    }

    /// `, newest at step 4` where the run has newer steps, else nothing.
    pub(crate) fn age(&self) -> String {
        if self.is_old {
            format!(", newest at step {}", self.step)
        } else {
            String::new()
        }
    }
}

/// A value in five characters or so.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 || (size > 0.0 && size < 1e-3) => format!("{value:.1e}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Rows as columns, each but the last padded to its widest cell.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, wide)| format!("{cell:wide$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Values as blocks between the least and the largest of them, averaged down to so many characters.
pub(crate) fn sparkline(values: &[f64], width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
    let means: Vec<f64> = values
        .chunks(values.len().div_ceil(width.max(1)).max(1))
        .map(mean)
        .collect();
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    let most = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let level = |value: &f64| {
        if most > least {
            ((value - least) / (most - least) * 7.0).round() as usize
        } else {
            3
        }
    };
    means
        .iter()
        .map(|value| BLOCKS[level(value).min(7)])
        .collect()
}

/// Text without what would steer the terminal.
pub(crate) fn printable(text: &str) -> String {
    let safe = |letter: char| {
        if letter.is_control() && !matches!(letter, '\n' | '\t') {
            '\u{fffd}'
        } else {
            letter
        }
    };
    text.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn courses_rise_from_the_least_to_the_most() {
        assert_eq!(sparkline(&[0.0, 0.5, 1.0], 32), "▁▅█");
        assert_eq!(sparkline(&[2.0, 2.0], 32), "▄▄");
        let long: Vec<f64> = (0..1000).map(f64::from).collect();
        let drawn = sparkline(&long, 32);
        assert!(drawn.chars().count() <= 32 && drawn.ends_with('█'));
        assert!(sparkline(&[], 32).is_empty());
    }

    #[test]
    fn text_of_models_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2J\r\nb\tc"), "a\u{fffd}[2J\u{fffd}\nb\tc");
    }
}
