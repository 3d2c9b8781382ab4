//! `forage search`: one query from the terminal.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use forage_retriever::Bm25Retriever;

use super::out;

/// Searches an index.
#[derive(Args, Debug)]
pub(crate) struct Search {
    /// Index folder.
    index: PathBuf,
    /// What to look for: words, no syntax.
    query: String,
    /// Passages to show.
    #[arg(short, long, default_value_t = 5)]
    k: usize,
    /// Print hits as JSON lines.
    #[arg(long)]
    json: bool,
}

impl Search {
    pub(crate) fn run(self) -> Result<()> {
        let hits = Bm25Retriever::open(&self.index)?.search_one(&self.query, self.k)?;
        for (rank, hit) in hits.iter().enumerate() {
            if self.json {
                out(&serde_json::to_string(hit)?);
            } else {
                out(&format!("{:>2}  {:8.4}  {}  {}\n    {}", rank + 1, hit.score, hit.id, hit.title, hit.text));
            }
        }
        if hits.is_empty() && !self.json {
            out("no passage has any of these words");
        }
        Ok(())
    }
}
