//! Reading a file row by row.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use forage_contracts::question::{QuestionEntry, QuestionRow};
use forage_contracts::{RowFault, Split, Task};
use forage_retriever::{CorpusReader, ReadError, RowReader};
use serde_json::Value;

use super::beir;
use super::error::DatasetError;
use super::format::{detect, read_lists};

/// Reads the tasks of a file (JSON lines, plain or gzip; one JSON list; parquet), of a folder of such files in the order of
/// their names, or of a BEIR folder (queries and judgments as JSON lines, tsv or parquet): its judged queries of `split` in
/// the order of the file, without answers but with their judgments.
///
/// The fields of the first row decide the format. Only rows that forage wrote say which split they are in (a `split` field
/// elsewhere is the publisher's and is not used), and files of a folder that are named after several splits; only those of
/// `split` are returned. All other rows become `split`. A `filename` in a folder is the evidence `./guide/index`, as only the pages tell
/// whether that one is called `guide/index` or `index`. A table of text (`.csv`, `.tsv`) has several answers as a JSON list in their cell.
///
/// # Errors
/// [`DatasetError::Rows`] for a file that cannot be read, the first malformed row or an id that stands twice in one data set,
/// [`DatasetError::Empty`], [`DatasetError::NoSuchSplit`], or [`DatasetError::Beir`] and [`DatasetError::Unasked`] for a folder.
pub fn read_tasks(path: &Path, split: Split) -> Result<Vec<Task>, DatasetError> {
    if beir::is_folder(path) {
        return beir::read(path, split);
    }
    let all = read_rows(path, split, true)?;
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

/// As [`read_tasks`], with the tasks of every split: native rows and files named after several splits keep theirs, a BEIR folder
/// gives all that it judges, and of everything else all rows become [`Split::Train`]. A split of which no question has an answer, as
/// published test sets are, is read without; to train or to be evaluated on, [`read_tasks`] refuses it.
///
/// # Errors
/// As [`read_tasks`].
pub fn read_all(path: &Path) -> Result<Vec<Task>, DatasetError> {
    if beir::is_folder(path) {
        return beir::read_all(path);
    }
    read_rows(path, Split::Train, false)
}

/// Reads the rows of all files; with `only`, where some are named after `split`, not those of files named after others.
fn read_rows(path: &Path, split: Split, only: bool) -> Result<Vec<Task>, DatasetError> {
    let only = only.then_some(split);
    let (mut format, mut passed) = (None, 0);
    let mut seen: HashMap<(Split, (String, String)), (usize, u64)> = HashMap::new();
    let mut tasks = Vec::new();
    let (mut answered, mut lacking) = (BTreeSet::new(), BTreeMap::new());
    let source = CorpusReader::source_name(path);
    let files = RowReader::files(path)?;
    let named: BTreeSet<Split> = files.iter().filter_map(|file| split_named(file)).collect();
    for (place, file) in files.iter().enumerate() {
        let split = match split_named(file) {
            Some(own) if named.len() > 1 => own,
            _ => split,
        };
        let is_table = is_table(file);
        let mut rows = RowReader::open(file)?;
        if only.is_some_and(|only| named.contains(&only) && split != only) {
            // Published test sets may lack the answers. Their lines are counted all the same.
            while rows.next_row()?.is_some() {
                passed += 1;
            }
            continue;
        }
        while let Some(row) = rows.next_row()? {
            let mut fields = row.into_json();
            if is_table {
                read_lists(&mut fields);
            }
            // Lines are counted on from file to file of a folder.
            let line = if files.len() > 1 {
                passed + tasks.len() + 1
            } else {
                rows.number() as usize
            };
            let row = QuestionRow {
                fields,
                line,
                source: &source,
                split,
            };
            let task = match read_row(&row, format) {
                Ok((entry, task)) => {
                    format = Some(entry);
                    answered.insert(split);
                    task
                }
                Err(fault) => {
                    let fault = rows.fault(fault);
                    let unanswered = only.is_none().then(|| without_answer(row, format));
                    let Some(task) = unanswered.flatten() else {
                        return Err(fault.into());
                    };
                    lacking.entry(split).or_insert(fault);
                    task
                }
            };
            let second = rows.number();
            if let Some((earlier, first)) = seen.insert((split, task.key()), (place, second)) {
                let named = task.data_source != source;
                return Err(DatasetError::Rows(ReadError::DuplicateId {
                    path: file.clone(),
                    earlier: (earlier != place).then(|| files[earlier].clone()),
                    id: if named { task.name() } else { task.id },
                    first,
                    second,
                }));
            }
            tasks.push(task);
        }
    }
    // Where others have one, the answer is missing.
    let fault = lacking
        .into_iter()
        .find(|(split, _)| answered.contains(split));
    if let Some((_, fault)) = fault {
        return Err(fault.into());
    }
    if tasks.is_empty() {
        return Err(DatasetError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(tasks)
}

/// The task of a row and its format, which the row decides where none is known.
fn read_row(
    row: &QuestionRow<'_>,
    format: Option<&'static QuestionEntry>,
) -> Result<(&'static QuestionEntry, Task), RowFault> {
    let Some(first) = format else {
        let entry = detect(&row.fields)?;
        return Ok((entry, (entry.read)(row)?));
    };
    let task = (first.read)(row).map_err(|fault| of_another(fault, row, first))?;
    Ok((first, task))
}

/// The fault of a row; of one that has another format than the first row, it names both.
fn of_another(fault: RowFault, row: &QuestionRow<'_>, first: &QuestionEntry) -> RowFault {
    match detect(&row.fields) {
        Ok(own) if own.name != first.name => RowFault::new(
            fault.what,
            format!(
                "{}; the first row made this a file of the format `{}`, and this row is of `{}`",
                fault.fix, first.name, own.name
            ),
        ),
        _ => fault,
    }
}

/// Reads a question whose answer is left out, null or empty, as a task without golds.
fn without_answer(
    mut row: QuestionRow<'_>,
    format: Option<&'static QuestionEntry>,
) -> Option<Task> {
    let is_empty = |field: &str| match row.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.trim().is_empty(),
        Some(Value::Array(answers)) => answers.is_empty(),
        Some(_) => false,
    };
    if !(row.has("question") && is_empty("answer") && is_empty("answers")) {
        return None;
    }
    row.fields.remove("answers");
    // Formats ask for an answer; this one is taken away again.
    row.fields.insert("answer".to_owned(), "none".into());
    let (_, mut task) = read_row(&row, format).ok()?;
    task.golds.clear();
    Some(task)
}

/// Tells whether a file is a table of text by its name, as [`RowReader`] does.
fn is_table(file: &Path) -> bool {
    let name = file.to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    [".csv", ".tsv"].iter().any(|end| name.ends_with(end))
}

/// The split that a file of a published folder is named after, as in `test-00000-of-00001.parquet` and `musique_ans_v1.0_dev.jsonl`; none
/// where the words of its name are of several.
fn split_named(file: &Path) -> Option<Split> {
    let name = file.file_name()?.to_str()?;
    let mut named = name.split(['-', '.', '_']).filter_map(|word| match word {
        "train" => Some(Split::Train),
        "dev" | "validation" | "valid" | "val" => Some(Split::Dev),
        "test" => Some(Split::Test),
        _ => None,
    });
    let first = named.next()?;
    named.all(|other| other == first).then_some(first)
}
