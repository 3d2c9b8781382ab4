//! Queries as BEIR publishes them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::ReadError;
use crate::rows::RowReader;

const FIX: &str = "query rows are {\"_id\", \"text\"}";

/// A query with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRecord {
    /// Unique within its file.
    pub id: String,
    /// The query itself.
    pub text: String,
}

impl QueryRecord {
    /// Reads queries: rows with `_id` (or `id`) and `text`, other fields passed over, of a file (`queries.jsonl`, plain or gzip;
    /// parquet) or of a folder of shards.
    ///
    /// # Errors
    /// A missing or unreadable file, a row that does not fit, a repeated id, or no query at all.
    pub fn read_all(path: &Path) -> Result<Vec<Self>, ReadError> {
        let mut seen: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        let mut queries = Vec::new();
        let files = RowReader::files(path)?;
        for (place, file) in files.iter().enumerate() {
            let mut rows = RowReader::open(file)?;
            while let Some(mut row) = rows.next_row()? {
                let key = if row.has("_id") || !row.has("id") {
                    "_id"
                } else {
                    "id"
                };
                let parsed = row
                    .id(key, FIX)
                    .and_then(|id| Ok((id, row.text("text", FIX)?.into_owned())));
                let (id, text) = parsed.map_err(|fault| rows.fault(fault))?;
                let second = rows.number();
                if let Some((earlier, first)) = seen.insert(id.clone(), (place, second)) {
                    return Err(ReadError::DuplicateId {
                        path: file.clone(),
                        earlier: (earlier != place).then(|| files[earlier].clone()),
                        id,
                        first,
                        second,
                    });
                }
                queries.push(Self { id, text });
            }
        }
        if queries.is_empty() {
            return Err(ReadError::Empty {
                path: path.to_owned(),
                what: "queries",
            });
        }
        Ok(queries)
    }
}
