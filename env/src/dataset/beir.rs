//! BEIR folders as tasks.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use forage_retriever::{JsonRows, Qrels, QueryRecord, ReadError, read_qrels, read_queries};
use serde_json::{Map, Value};

use super::error::DatasetError;
use crate::task::{Split, Task};

const SPLITS: [(Split, &str); 3] = [(Split::Train, "train"), (Split::Dev, "dev"), (Split::Test, "test")];
const PARQUET_MEND: &str = "queries have `_id` and `text`, judgments `query-id`, `corpus-id` and `score`";

/// Whether a path is a BEIR folder: one with queries in it.
pub(super) fn is_folder(path: &Path) -> bool {
    path.is_dir() && queries_of(path).is_some()
}

/// The queries as JSON lines (`queries.jsonl`, `.gz` too), or as parquet (`queries.parquet`, or shards in `queries/`).
fn queries_of(folder: &Path) -> Option<PathBuf> {
    let names = ["queries.jsonl", "queries.jsonl.gz", "queries.parquet", "queries"];
    names.into_iter().map(|name| folder.join(name)).find(|path| path.exists())
}

/// The judgments of a split: `qrels/NAME.tsv`, or parquet as `qrels/NAME.parquet` or shards `NAME-*.parquet` in `qrels/`,
/// `default/` or `data/`.
fn judgments_of(folder: &Path, name: &str) -> Vec<PathBuf> {
    for file in [format!("qrels/{name}.tsv"), format!("qrels/{name}.parquet")] {
        let path = folder.join(file);
        if path.exists() {
            return vec![path];
        }
    }
    let shard = |path: &PathBuf| {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        file.starts_with(&format!("{name}-")) && file.ends_with(".parquet")
    };
    for place in ["qrels", "default", "data"] {
        let files = JsonRows::files(&folder.join(place)).unwrap_or_default();
        let shards: Vec<PathBuf> = files.into_iter().filter(shard).collect();
        if !shards.is_empty() {
            return shards;
        }
    }
    // So that the error names the form most sets have.
    vec![folder.join(format!("qrels/{name}.tsv"))]
}

/// The judged queries of a split, in the order of the queries. Queries without judgments in this split belong to others.
pub(super) fn read(folder: &Path, split: Split) -> Result<Vec<Task>, DatasetError> {
    let fail = |source| DatasetError::Beir { path: folder.to_owned(), source };
    let name = SPLITS.iter().find(|(known, _)| *known == split).map_or("test", |(_, name)| name);
    let mut qrels = Qrels::new();
    for file in judgments_of(folder, name) {
        let is_tsv = file.extension().is_some_and(|end| end == "tsv");
        let found = if is_tsv { read_qrels(&file) } else { parquet_qrels(&file) }.map_err(fail)?;
        for (query, grades) in found {
            qrels.entry(query).or_default().extend(grades);
        }
    }
    let queries = queries_of(folder).unwrap_or_else(|| folder.join("queries.jsonl"));
    let is_lines = queries.is_file() && queries.extension().is_none_or(|end| end != "parquet");
    let queries = if is_lines { read_queries(&queries) } else { parquet_queries(&queries) }.map_err(fail)?;
    let data_source = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut tasks = Vec::with_capacity(qrels.len());
    for query in queries {
        let Some(qrels) = qrels.remove(&query.id) else { continue };
        tasks.push(Task {
            id: query.id,
            question: query.text,
            golds: Vec::new(),
            evidence: Vec::new(),
            qrels,
            hops: 0,
            oracle: Vec::new(),
            data_source: data_source.clone(),
            split,
        });
    }
    match qrels.into_keys().next() {
        Some(id) => Err(DatasetError::Unasked { path: folder.to_owned(), id }),
        None => Ok(tasks),
    }
}

/// The judged queries of every split there is.
pub(super) fn read_all(folder: &Path) -> Result<Vec<Task>, DatasetError> {
    let there = SPLITS.iter().filter(|(_, name)| judgments_of(folder, name).iter().all(|file| file.exists()));
    let mut tasks = Vec::new();
    for (split, _) in there {
        tasks.extend(read(folder, *split)?);
    }
    if tasks.is_empty() {
        return read(folder, Split::Test);
    }
    Ok(tasks)
}

/// The text or whole number of a field.
fn field(path: &Path, number: u64, row: &Map<String, Value>, names: &[&str]) -> Result<String, ReadError> {
    let value = names.iter().find_map(|name| row.get(*name));
    let text = match value {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    text.ok_or_else(|| ReadError::MalformedRow {
        path: path.to_owned(),
        row: number,
        what: format!("field `{}` is missing or no text", names[0]),
        fix: PARQUET_MEND,
    })
}

fn parquet_queries(path: &Path) -> Result<Vec<QueryRecord>, ReadError> {
    let mut seen: HashMap<String, u64> = HashMap::new();
    let mut queries = Vec::new();
    for file in JsonRows::files(path)? {
        for row in JsonRows::open(&file)? {
            let row = row?;
            let id = field(&file, row.number, &row.fields, &["_id", "id"])?;
            let text = field(&file, row.number, &row.fields, &["text"])?;
            if let Some(first) = seen.insert(id.clone(), row.number) {
                return Err(ReadError::DuplicateId { path: file, id, first, second: row.number });
            }
            queries.push(QueryRecord { id, text });
        }
    }
    Ok(queries)
}

fn parquet_qrels(path: &Path) -> Result<Qrels, ReadError> {
    let mut qrels: Qrels = BTreeMap::new();
    for row in JsonRows::open(path)? {
        let row = row?;
        let get = |names: &[&str]| field(path, row.number, &row.fields, names);
        let (query, passage) = (get(&["query-id", "query_id"])?, get(&["corpus-id", "corpus_id"])?);
        let grade = get(&["score"])?;
        let whole = grade.parse::<f64>().ok().filter(|grade| grade.fract() == 0.0);
        let Some(grade) = whole else {
            let what = format!("grade `{grade}` is not a whole number");
            return Err(ReadError::MalformedRow { path: path.to_owned(), row: row.number, what, fix: PARQUET_MEND });
        };
        qrels.entry(query).or_default().insert(passage, grade as i32);
    }
    Ok(qrels)
}
