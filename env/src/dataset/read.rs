//! Reading a file row by row.

use std::collections::HashMap;
use std::path::Path;

use forage_contracts::question::QuestionRow;
use forage_contracts::{Split, Task};
use forage_retriever::{ReadError, RowReader};

use super::beir;
use super::error::DatasetError;
use super::format::detect;

/// Reads the tasks of a file (JSON lines, plain or gzip; one JSON list; parquet), of a folder of such files in the order of
/// their names, or of a BEIR folder (queries and judgments as JSON lines, tsv or parquet): its judged queries of `split` in
/// the order of the file, without answers but with their judgments.
///
/// The fields of the first row decide the format. Only rows that forage wrote say which split they are in (a `split` field
/// elsewhere is the publisher's and is not used) and only those of `split` are returned; all other rows become `split`.
///
/// # Errors
/// [`DatasetError::Rows`] for a file that cannot be read, the first malformed row or a repeated id, [`DatasetError::Empty`],
/// [`DatasetError::NoSuchSplit`], or [`DatasetError::Beir`] and [`DatasetError::Unasked`] for a folder.
pub fn read_tasks(path: &Path, split: Split) -> Result<Vec<Task>, DatasetError> {
    if beir::is_folder(path) {
        return beir::read(path, split);
    }
    let all = read_rows(path, split)?;
    let rows = all.len();
    let tasks: Vec<Task> = all.into_iter().filter(|task| task.split == split).collect();
    if tasks.is_empty() {
        return Err(DatasetError::NoSuchSplit {
            path: path.to_owned(),
            split,
            rows,
        });
    }
    Ok(tasks)
}

/// As [`read_tasks`], with the tasks of every split: native rows keep theirs, a BEIR folder gives all that it judges, and of
/// everything else all rows become [`Split::Train`].
///
/// # Errors
/// As [`read_tasks`].
pub fn read_all(path: &Path) -> Result<Vec<Task>, DatasetError> {
    if beir::is_folder(path) {
        return beir::read_all(path);
    }
    read_rows(path, Split::Train)
}

fn read_rows(path: &Path, split: Split) -> Result<Vec<Task>, DatasetError> {
    let mut format = None;
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut tasks = Vec::new();
    let source = source_name(path);
    let files = RowReader::files(path)?;
    for file in &files {
        let mut rows = RowReader::open(file)?;
        while let Some(row) = rows.next_row()? {
            let fields = row.into_json();
            // Lines are counted on from file to file of a folder.
            let line = if files.len() > 1 {
                tasks.len() + 1
            } else {
                rows.number() as usize
            };
            let known = format.map_or_else(|| detect(&fields), Ok);
            let read = known.and_then(|entry| {
                format = Some(entry);
                (entry.read)(&QuestionRow {
                    fields,
                    line,
                    source: &source,
                    split,
                })
            });
            let task: Task = read.map_err(|fault| rows.fault(fault))?;
            if let Some(first) = seen.insert(task.id.clone(), line) {
                return Err(DatasetError::Rows(ReadError::DuplicateId {
                    path: path.to_owned(),
                    id: task.id,
                    first: first as u64,
                    second: line as u64,
                }));
            }
            tasks.push(task);
        }
    }
    if tasks.is_empty() {
        return Err(DatasetError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(tasks)
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
