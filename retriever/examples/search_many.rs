//! Answers a file of queries, through a remote retriever or over a BEIR corpus in memory, one JSON line per query.
//!
//! ```text
//! search_many remote SPEC.json QUERIES.jsonl K [VECTORS.jsonl]
//! search_many corpus FOLDER QUERIES.jsonl K
//! ```
//!
//! Queries are `{"_id", "text"}` with an optional `"filter"`; `VECTORS.jsonl` holds `{"text", "vector"}` for every query text and
//! stands in for an encoder; the output is `{"_id", "hits": [[id, score], ..]}`. `bench/remote/run.sh` uses it to
//! compare real servers with exact answers.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use forage_retriever::{
    Bm25Retriever, CorpusFormat, CorpusReader, Encoder, Filter, Passage, Query, RemoteSpec,
    Retriever, RetrieverError, TextKind,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Deserialize)]
struct QueryLine {
    #[serde(rename = "_id")]
    id: String,
    text: String,
    #[serde(default)]
    filter: Filter,
}

#[derive(Deserialize)]
struct VectorLine {
    text: String,
    vector: Vec<f32>,
}

/// Vectors made elsewhere, by text.
struct Table {
    dimension: usize,
    vectors: HashMap<String, Vec<f32>>,
}

impl Encoder for Table {
    fn identity(&self) -> String {
        "vectors from a file".to_owned()
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn encode(&self, _: TextKind, texts: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        let mut all = Vec::with_capacity(texts.len() * self.dimension);
        for &text in texts {
            let missing = || RetrieverError::Model {
                model: self.identity(),
                what: format!("no vector for `{text}`"),
            };
            all.extend_from_slice(self.vectors.get(text).ok_or_else(missing)?);
        }
        Ok(all)
    }
}

fn lines<T: DeserializeOwned>(path: &str) -> Outcome<Vec<T>> {
    let text = std::fs::read_to_string(path)?;
    Ok(text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

fn table(path: &str) -> Outcome<Arc<dyn Encoder>> {
    let lines: Vec<VectorLine> = lines(path)?;
    let dimension = lines.first().ok_or("no vectors")?.vector.len();
    if lines.iter().any(|line| line.vector.len() != dimension) {
        return Err("vectors of different lengths".into());
    }
    let vectors = lines
        .into_iter()
        .map(|line| (line.text, line.vector))
        .collect();
    Ok(Arc::new(Table { dimension, vectors }))
}

fn corpus(folder: &str) -> Outcome<Arc<dyn Retriever>> {
    let passages: Vec<Passage> =
        CorpusReader::open(Path::new(folder), CorpusFormat::BEIR)?.collect::<Result<_, _>>()?;
    Ok(Arc::new(Bm25Retriever::in_memory(passages)?))
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (retriever, queries, k) = match arguments.as_slice() {
        ["corpus", folder, queries, k] => (corpus(folder)?, queries, k),
        ["remote", spec, queries, k, rest @ ..] if rest.len() < 2 => {
            let spec: RemoteSpec = serde_json::from_str(&std::fs::read_to_string(spec)?)?;
            let encoder = rest.first().map(|path| table(path)).transpose()?;
            (spec.open(encoder).await?, queries, k)
        }
        _ => {
            return Err(
                "usage: search_many remote SPEC QUERIES K [VECTORS] | corpus FOLDER QUERIES K"
                    .into(),
            );
        }
    };
    let lines: Vec<QueryLine> = lines(queries)?;
    let queries: Vec<Query> = lines
        .iter()
        .map(|line| Query::new(line.text.as_str()).filtered(line.filter.clone()))
        .collect();
    let found = retriever.search(&queries, k.parse()?).await?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for (line, hits) in lines.iter().zip(found) {
        let hits: Vec<_> = hits.iter().map(|hit| (&hit.id, hit.score)).collect();
        writeln!(
            out,
            "{}",
            serde_json::json!({ "_id": line.id, "hits": hits })
        )?;
    }
    Ok(out.flush()?)
}
