//! Reading a file row by row.

use std::collections::HashMap;
use std::path::Path;

use forage_retriever::{JsonRows, ReadError};

use super::beir;
use super::error::DatasetError;
use super::row::{Fault, TaskFormat, task_from};
use crate::task::{Split, Task};

/// Reads the tasks of a file (JSON lines, plain or gzip; one JSON list; parquet), of a folder of such files in the order of
/// their names, or of a BEIR folder (queries and judgments as JSON lines, tsv or parquet): its judged queries of `split` in
/// the order of the file, without answers but with their judgments.
///
/// Without `format` the fields of the first row decide. Rows of other formats than [`TaskFormat::Native`] do not say
/// which split they are in (a `split` field there is the publisher's and is not used), so all become `split`; native rows
/// carry their split and only those of `split` are returned.
///
/// # Errors
/// [`DatasetError::Io`], [`DatasetError::Empty`], [`DatasetError::NoSuchSplit`], [`DatasetError::Line`] at the first
/// malformed row, [`DatasetError::DuplicateId`], or [`DatasetError::Beir`] and [`DatasetError::Unasked`] for a folder.
pub fn read_tasks(path: &Path, format: Option<TaskFormat>, split: Split) -> Result<Vec<Task>, DatasetError> {
    if beir::is_folder(path) {
        return beir::read(path, split);
    }
    let all = read_rows(path, format, split)?;
    let rows = all.len();
    let tasks: Vec<Task> = all.into_iter().filter(|task| task.split == split).collect();
    if tasks.is_empty() {
        return Err(DatasetError::NoSuchSplit { path: path.to_owned(), split, rows });
    }
    Ok(tasks)
}

/// As [`read_tasks`], with the tasks of every split: native rows keep theirs, a BEIR folder gives all that it judges, and of
/// everything else all rows become [`Split::Train`].
///
/// # Errors
/// As [`read_tasks`].
pub fn read_all(path: &Path, format: Option<TaskFormat>) -> Result<Vec<Task>, DatasetError> {
    if beir::is_folder(path) {
        return beir::read_all(path);
    }
    read_rows(path, format, Split::Train)
}

fn read_rows(path: &Path, format: Option<TaskFormat>, split: Split) -> Result<Vec<Task>, DatasetError> {
    let mut format = format;
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut tasks = Vec::new();
    let source = source_name(path);
    let files = JsonRows::files(path)?;
    for file in &files {
        for row in JsonRows::open(file).map_err(|error| read_error(file, error))? {
            let row = row.map_err(|error| read_error(file, error))?;
            let number = row.number as usize;
            // Lines are counted on from file to file of a folder.
            let line = if files.len() > 1 { tasks.len() + 1 } else { number };
            let at = |fault| line_error(file, number, fault);
            let chosen = match format {
                Some(known) => known,
                None => TaskFormat::detect(&row.fields).map_err(at)?,
            };
            format = Some(chosen);
            let task = task_from(chosen, row.fields, line, &source, split).map_err(at)?;
            if let Some(first) = seen.insert(task.id.clone(), line) {
                return Err(DatasetError::DuplicateId { path: path.to_owned(), id: task.id, first, second: line });
            }
            tasks.push(task);
        }
    }
    if tasks.is_empty() {
        return Err(DatasetError::Empty { path: path.to_owned() });
    }
    Ok(tasks)
}

fn line_error(path: &Path, line: usize, fault: Fault) -> DatasetError {
    let text = path.extension().is_none_or(|end| end != "parquet" && end != "json");
    let unit = if text { "line" } else { "row" };
    DatasetError::Line { path: path.to_owned(), unit, line, fault: fault.what, fix: fault.fix }
}

/// The reader's errors in this module's words where they name a line.
fn read_error(file: &Path, error: ReadError) -> DatasetError {
    match error {
        ReadError::Io { source, .. } => DatasetError::Io { path: file.to_owned(), source },
        ReadError::Missing { path } => {
            DatasetError::Io { path, source: std::io::Error::from(std::io::ErrorKind::NotFound) }
        }
        ReadError::Malformed { line, what, fix, .. } => line_error(file, line as usize, Fault::new(what, fix)),
        other => DatasetError::Rows(other),
    }
}

/// Name for tasks whose rows have none: the file's name, or its folder's where the file's says nothing.
fn source_name(path: &Path) -> String {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|p| p.to_string_lossy().into_owned());
    let name = text(path.file_name()).unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default().to_owned();
    let generic = ["questions", "queries", "train", "dev", "test", "data"].contains(&stem.as_str());
    match text(path.parent().and_then(Path::file_name)) {
        Some(folder) if generic => folder,
        _ if path.is_dir() => name,
        _ => stem,
    }
}
