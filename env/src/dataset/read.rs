//! Reading a file line by line.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::beir;
use super::error::DatasetError;
use super::row::{Fault, TaskFormat, task_from};
use crate::task::{Split, Task};

/// Reads the tasks of a JSON-lines file, or of a BEIR folder (`queries.jsonl` and `qrels/{train,dev,test}.tsv`): its judged
/// queries of `split` in the order of the file, without answers but with their judgments.
///
/// Without `format` the fields of the first line decide. Rows of other formats than [`TaskFormat::Native`] do not say
/// which split they are in (a `split` field there is the publisher's and is not used), so all become `split`; native rows
/// carry their split and only those of `split` are returned.
///
/// # Errors
/// [`DatasetError::Io`], [`DatasetError::Empty`], [`DatasetError::NoSuchSplit`], [`DatasetError::Line`] at the first
/// malformed line, [`DatasetError::DuplicateId`], or [`DatasetError::Beir`] and [`DatasetError::Unasked`] for a folder.
pub fn read_tasks(path: &Path, format: Option<TaskFormat>, split: Split) -> Result<Vec<Task>, DatasetError> {
    if path.is_dir() {
        return beir::read(path, split);
    }
    let bytes = fs::read(path).map_err(|source| DatasetError::Io { path: path.to_owned(), source })?;
    let at = |line: usize| move |fault: Fault| line_error(path, line, fault);
    let mut format = format;
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut tasks = Vec::new();
    let source = source_name(path);
    for (line, text) in (1..).zip(lines(&bytes)) {
        let row = parse(text).map_err(at(line))?;
        let chosen = match format {
            Some(known) => known,
            None => TaskFormat::detect(&row).map_err(at(line))?,
        };
        format = Some(chosen);
        let task = task_from(chosen, row, line, &source, split).map_err(at(line))?;
        if let Some(first) = seen.insert(task.id.clone(), line) {
            return Err(DatasetError::DuplicateId { path: path.to_owned(), id: task.id, first, second: line });
        }
        if task.split == split {
            tasks.push(task);
        }
    }
    if seen.is_empty() {
        return Err(DatasetError::Empty { path: path.to_owned() });
    }
    if tasks.is_empty() {
        return Err(DatasetError::NoSuchSplit { path: path.to_owned(), split, rows: seen.len() });
    }
    Ok(tasks)
}

fn line_error(path: &Path, line: usize, fault: Fault) -> DatasetError {
    DatasetError::Line { path: path.to_owned(), line, fault: fault.what, mend: fault.mend }
}

/// Lines of a file; white space after the last line is no line.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let body = bytes.trim_ascii_end();
    let count = if body.is_empty() { 0 } else { usize::MAX };
    body.split(|byte| *byte == b'\n').take(count)
}

fn parse(line: &[u8]) -> Result<Map<String, Value>, Fault> {
    if line.trim_ascii().is_empty() {
        return Err(Fault::new("the line is blank", "remove it"));
    }
    let mend = "write one JSON object per line, in UTF-8";
    match serde_json::from_slice(line) {
        Ok(Value::Object(row)) => Ok(row),
        Ok(_) => Err(Fault::new("the line is not a JSON object", mend)),
        Err(error) => Err(Fault::new(format!("the line is not JSON ({error})"), mend)),
    }
}

/// Name for tasks whose rows have none: the file's name, or its folder's where the file's says nothing.
fn source_name(path: &Path) -> String {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|p| p.to_string_lossy().into_owned());
    let stem = text(path.file_stem()).unwrap_or_default();
    let generic = ["questions", "queries", "train", "dev", "test", "data"].contains(&stem.as_str());
    match text(path.parent().and_then(Path::file_name)) {
        Some(folder) if generic => folder,
        _ => stem,
    }
}
