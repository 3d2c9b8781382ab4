//! BEIR folders as tasks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forage_contracts::{Split, Task};
use forage_retriever::{CorpusReader, QueryRecord, RowReader, read_qrels};

use super::error::DatasetError;

const SPLITS: [(Split, &str); 3] = [
    (Split::Train, "train"),
    (Split::Dev, "dev"),
    (Split::Test, "test"),
];
/// Tells whether a path is a BEIR folder: one with queries in it.
pub(super) fn is_folder(path: &Path) -> bool {
    path.is_dir() && queries_of(path).is_some()
}

/// The queries as JSON lines (`queries.jsonl`, `.gz` too), or as parquet (`queries.parquet`, or shards in `queries/`).
fn queries_of(folder: &Path) -> Option<PathBuf> {
    let names = [
        "queries.jsonl",
        "queries.jsonl.gz",
        "queries.parquet",
        "queries",
    ];
    names
        .into_iter()
        .map(|name| folder.join(name))
        .find(|path| path.exists())
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
        let file = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        file.starts_with(&format!("{name}-")) && file.ends_with(".parquet")
    };
    for place in ["qrels", "default", "data"] {
        let files = RowReader::files(&folder.join(place)).unwrap_or_default();
        let shards: Vec<PathBuf> = files.into_iter().filter(shard).collect();
        if !shards.is_empty() {
            return shards;
        }
    }
    // So that the error names the form most sets have.
    vec![folder.join(format!("qrels/{name}.tsv"))]
}

/// Tells whether a folder has judgments of a split.
fn is_judged(folder: &Path, name: &str) -> bool {
    judgments_of(folder, name).iter().all(|file| file.exists())
}

/// The judged queries of a split, in the order of the queries. Queries without judgments in this split belong to others.
pub(super) fn read(folder: &Path, split: Split) -> Result<Vec<Task>, DatasetError> {
    let fail = |source| DatasetError::Beir {
        path: folder.to_owned(),
        source,
    };
    let name = SPLITS
        .iter()
        .find(|(known, _)| *known == split)
        .map_or("test", |(_, name)| *name);
    let mut others = SPLITS.iter().map(|(_, other)| *other).rev();
    if !is_judged(folder, name)
        && let Some(found) = others.find(|other| is_judged(folder, other))
    {
        return Err(DatasetError::Unjudged {
            path: folder.to_owned(),
            asked: name,
            found,
        });
    }
    let mut qrels: BTreeMap<String, BTreeMap<String, i32>> = BTreeMap::new();
    for file in judgments_of(folder, name) {
        for (query, grades) in read_qrels(&file).map_err(fail)? {
            qrels.entry(query).or_default().extend(grades);
        }
    }
    let queries = queries_of(folder).unwrap_or_else(|| folder.join("queries.jsonl"));
    let queries = QueryRecord::read_all(&queries).map_err(fail)?;
    let data_source = CorpusReader::source_name(folder);
    let mut tasks = Vec::with_capacity(qrels.len());
    for query in queries {
        let Some(qrels) = qrels.remove(&query.id) else {
            continue;
        };
        tasks.push(Task {
            qrels,
            data_source: data_source.clone(),
            split,
            ..Task::new(query.id, query.text)
        });
    }
    match qrels.into_keys().next() {
        Some(id) => Err(DatasetError::Unasked {
            path: folder.to_owned(),
            id,
        }),
        None => Ok(tasks),
    }
}

/// The judged queries of every split there is.
pub(super) fn read_all(folder: &Path) -> Result<Vec<Task>, DatasetError> {
    let there = SPLITS.iter().filter(|(_, name)| is_judged(folder, name));
    let mut tasks = Vec::new();
    for (split, _) in there {
        tasks.extend(read(folder, *split)?);
    }
    if tasks.is_empty() {
        return read(folder, Split::Test);
    }
    Ok(tasks)
}
