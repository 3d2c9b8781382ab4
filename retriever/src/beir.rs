//! Queries and relevance judgements as BEIR publishes them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::ReadError;
use crate::lines::LineReader;

/// A query with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRecord {
    /// Unique within its file.
    pub id: String,
    /// The query itself.
    pub text: String,
}

/// Reads `queries.jsonl`: `{"_id", "text"}` per line, other fields passed over; plain or gzip.
///
/// # Errors
/// A missing or unreadable file, a line that does not fit, a repeated id, or no query at all.
pub fn read_queries(path: &Path) -> Result<Vec<QueryRecord>, ReadError> {
    let fix = "query rows are {\"_id\", \"text\"}";
    let mut reader = LineReader::open(path)?;
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut queries = Vec::new();
    while reader.advance()? {
        let line = reader.line();
        let mut record = reader.record()?;
        let parsed = record.id("_id", fix).and_then(|id| Ok((id, record.text("text", fix)?.into_owned())));
        let (id, text) = parsed.map_err(|fault| reader.fault(fault))?;
        if let Some(first) = seen.insert(id.clone(), line) {
            return Err(ReadError::DuplicateId { path: path.to_owned(), id, first, second: line });
        }
        queries.push(QueryRecord { id, text });
    }
    if queries.is_empty() {
        return Err(ReadError::Empty { path: path.to_owned(), what: "queries" });
    }
    Ok(queries)
}
