//! BEIR folders as tasks.

use std::path::Path;

use forage_retriever::{read_qrels, read_queries};

use super::error::DatasetError;
use crate::task::{Split, Task};

/// The judged queries of a split, in the order of `queries.jsonl`. Queries without judgments in this split belong to others.
pub(super) fn read(folder: &Path, split: Split) -> Result<Vec<Task>, DatasetError> {
    let fail = |source| DatasetError::Beir { path: folder.to_owned(), source };
    let name = match split {
        Split::Train => "train",
        Split::Dev => "dev",
        Split::Test => "test",
    };
    let mut qrels = read_qrels(&folder.join(format!("qrels/{name}.tsv"))).map_err(fail)?;
    let queries = read_queries(&folder.join("queries.jsonl")).map_err(fail)?;
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
