//! `metrics.jsonl`: one object per optimizer step under canonical names.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::file_error::FileError;

/// The file of metrics in the folder of a run.
pub const FILE: &str = "metrics.jsonl";

/// One row: `step` first, then names in the order they were set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row(pub Map<String, Value>);

impl Row {
    /// A row of `step`.
    pub fn new(step: u64) -> Self {
        Self(Map::from_iter([("step".to_owned(), step.into())]))
    }

    /// Sets `name`; a value that is not finite is written as null.
    pub fn set(&mut self, name: &str, value: f64) {
        self.0.insert(
            name.to_owned(),
            serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number),
        );
    }

    /// The value of `name`, when it is set and finite.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Value::as_f64)
    }

    /// The step.
    pub fn step(&self) -> u64 {
        self.0.get("step").and_then(Value::as_u64).unwrap_or(0)
    }
}

/// Appends rows, each flushed as it is written.
#[derive(Debug)]
pub struct MetricsWriter {
    path: PathBuf,
    file: File,
}

impl MetricsWriter {
    /// Opens `path` for a run that continues at `step`: rows from that step on are cut off, so that a resumed run's
    /// file equals an uninterrupted one's. The file is cut where it is, never replaced: readers and writers that have it open
    /// keep it.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be read or written.
    pub fn open(path: &Path, step: u64) -> Result<Self, FileError> {
        let fail = |error: std::io::Error| FileError {
            path: path.to_owned(),
            message: error.to_string(),
        };
        let before = if path.exists() {
            read_lines(path)?
        } else {
            Vec::new()
        };
        let kept = before.iter().take_while(|(row, _)| row.step() < step);
        let length: usize = kept.map(|(_, bytes)| bytes).sum();
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).open(path).map_err(fail)?;
        file.set_len(length as u64).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Appends one row.
    ///
    /// # Errors
    /// [`FileError`] when the disk refuses it.
    pub fn write(&mut self, row: &Row) -> Result<(), FileError> {
        let line = format!("{}\n", Value::Object(row.0.clone()));
        self.file
            .write_all(line.as_bytes())
            .map_err(|error| FileError {
                path: self.path.clone(),
                message: format!("cannot be written: {error}; check the free space of the disk"),
            })
    }

    /// Waits until the rows are on the disk.
    ///
    /// # Errors
    /// [`FileError`] when the disk refuses them.
    pub(crate) fn sync(&self) -> Result<(), FileError> {
        self.file.sync_all().map_err(|error| FileError {
            path: self.path.clone(),
            message: format!("cannot be written: {error}; check the free space of the disk"),
        })
    }
}

impl Row {
    /// Reads all rows. A last line without its end, as a killed run leaves it, is not a row.
    ///
    /// # Errors
    /// [`FileError`] that names the line.
    pub fn read_all(path: &Path) -> Result<Vec<Self>, FileError> {
        Ok(read_lines(path)?.into_iter().map(|(row, _)| row).collect())
    }
}

/// Rows with the bytes that they take, line ends included.
fn read_lines(path: &Path) -> Result<Vec<(Row, usize)>, FileError> {
    let fail = |message: String| FileError {
        path: path.to_owned(),
        message,
    };
    let file = File::open(path).map_err(|error| fail(error.to_string()))?;
    let mut reader = BufReader::new(file);
    let mut rows = Vec::new();
    // Bytes: a torn line may end within a character.
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let count = reader
            .read_until(b'\n', &mut line)
            .map_err(|error| fail(error.to_string()))?;
        if count == 0 || !line.ends_with(b"\n") {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(Value::Object(row)) => rows.push((Row(row), line.len())),
            _ => {
                return Err(fail(format!(
                    "line {number} is not a JSON object; delete it"
                )));
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reopening_cuts_later_rows_and_torn_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut writer = MetricsWriter::open(&path, 0).unwrap();
        for step in 0..4 {
            let mut row = Row::new(step);
            row.set("reward/mean", step as f64);
            row.set("policy/loss", f64::NAN);
            writer.write(&row).unwrap();
        }
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"step\":4,\"name\":\"\xc3")
            .unwrap();
        MetricsWriter::open(&path, 2).unwrap();
        let rows = Row::read_all(&path).unwrap();
        assert_eq!(rows.iter().map(Row::step).collect::<Vec<_>>(), [0, 1]);
        // The file is the one that was open, so what another process writes is not lost.
        writer.write(&Row::new(2)).unwrap();
        let steps: Vec<u64> = Row::read_all(&path)
            .unwrap()
            .iter()
            .map(Row::step)
            .collect();
        assert_eq!(steps, [0, 1, 2]);
        assert_eq!(
            (rows[1].get("reward/mean"), rows[1].get("policy/loss")),
            (Some(1.0), None)
        );
    }
}
