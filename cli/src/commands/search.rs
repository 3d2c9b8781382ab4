//! `forage search`: one query from the terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use forage_contracts::suggestion;
use forage_retriever::{Bm25Retriever, Filter, Hit, Index, Mode, Query, RemoteSpec, Snippet};

use crate::retrieval::RetrievalArgs;
use crate::terminal::{hint, note, out, prose, word};
use forage_lab::{RetrieverConfig, runtime};

/// Searches an index or a server.
#[derive(Args, Debug)]
pub(crate) struct Search {
    /// Index folder, or the address of a retriever server, http(s)://HOST:PORT; with --remote, the query.
    index: String,
    /// Words to look for, without syntax unless --mode boolean.
    query: Option<String>,
    /// Passages to show.
    #[arg(short, long, default_value = "5")]
    k: NonZeroUsize,
    /// Only passages whose field has this value: page=p1; may be repeated.
    #[arg(long = "filter", value_name = "FIELD=VALUE")]
    filters: Vec<String>,
    /// TOML file that names a remote retriever, instead of an index folder.
    #[arg(long)]
    remote: Option<PathBuf>,
    #[command(flatten)]
    retrieval: RetrievalArgs,
    /// Characters of each passage to show, around the words found; 0 shows all, as --json does.
    #[arg(long, default_value_t = 400)]
    snippet: usize,
    /// Print hits as JSON lines.
    #[arg(long)]
    json: bool,
}

impl Search {
    pub(crate) fn run(self) -> Result<()> {
        let (folder, text) = match (&self.remote, &self.query) {
            (None, Some(query)) if is_address(&self.index) => (None, query.clone()),
            (None, Some(query)) => (Some(PathBuf::from(&self.index)), query.clone()),
            (Some(_), None) => (None, self.index.clone()),
            (None, None) => bail!("give an index folder or the address of a server, and a query"),
            (Some(_), Some(_)) => bail!("with --remote give the query alone"),
        };
        if text.trim().is_empty() {
            bail!("the query is empty; give the words to look for");
        }
        let is_local = folder.is_some();
        let retrieval = if is_local {
            self.retrieval.one_mode()?
        } else {
            RetrieverConfig {
                remote: self.server()?,
                ..self.retrieval.config()
            }
        };
        if is_local
            && self.retrieval.mode != Mode::BOOLEAN
            && let Some(operator) = operator(&text)
        {
            note(&format!(
                "note: {operator} was read as a word; --mode boolean reads it as an operator"
            ));
        }
        let query = Query::new(text).filtered(filter(&self.filters)?);
        let repaired = match &folder {
            Some(folder) if self.retrieval.mode == Mode::BOOLEAN => {
                let index = Arc::new(Index::open(folder)?);
                let answer = Bm25Retriever::new(index).search_boolean(&query, self.k.get())?;
                for issue in &answer.issues {
                    note(&format!("note: {}", issue.message));
                }
                Some(answer.hits)
            }
            _ => None,
        };
        // A cross-encoder reads more hits than are shown, and its retriever reports no repairs.
        let reranked = self.retrieval.reranker.is_some();
        let hits = if let Some(hits) = repaired.filter(|_| !reranked) {
            hits
        } else {
            let retriever = retrieval.open(folder.as_deref(), self.remote.as_deref())?;
            let found = runtime()?
                .block_on(retriever.search(std::slice::from_ref(&query), self.k.get()))?;
            found.into_iter().flatten().collect()
        };
        if let Some(folder) = folder.filter(|_| hits.is_empty() && !self.filters.is_empty()) {
            check_fields(&query.filter, &Index::open(folder)?.fields()?)?;
        }
        self.print(&query, &hits)?;
        if is_local && !self.json {
            let index = word(Path::new(&self.index));
            hint(&format!(
                "next: forage serve retriever {index}; forage play ENV --index {index} --questions FILE (forage envs says what each searches)"
            ));
        }
        Ok(())
    }

    /// The retriever server that is named by its address in place of an index.
    fn server(&self) -> Result<Option<RemoteSpec>> {
        let address = Some(self.index.as_str());
        let address = address.filter(|index| self.remote.is_none() && is_address(index));
        Ok(address.map(RemoteSpec::at).transpose()?)
    }

    fn print(&self, query: &Query, hits: &[Hit]) -> Result<()> {
        for (rank, hit) in hits.iter().enumerate() {
            if self.json {
                out(&serde_json::to_string(hit)?);
                continue;
            }
            let text = if self.snippet == 0 {
                hit.text.clone()
            } else {
                Snippet::new(&hit.text, &query.text, self.snippet).text
            };
            prose(&format!(
                "{:>2}  {:8.4}  {}  {}\n    {}",
                rank + 1,
                hit.score,
                hit.id,
                hit.title,
                text.trim_end().replace('\n', "\n    ")
            ));
        }
        if hits.is_empty() && !self.json {
            out("no passage matches");
        }
        Ok(())
    }
}

/// Tells whether the place to search is a server's address.
fn is_address(place: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| place.starts_with(scheme))
}

/// The first word of a query that boolean mode reads as an operator.
fn operator(query: &str) -> Option<&str> {
    let mut words = query
        .split_whitespace()
        .map(|word| word.trim_matches(['(', ')']));
    words.find(|word| matches!(*word, "AND" | "OR" | "NOT"))
}

/// `page=p1`, repeated: values of one field are alternatives, fields must all hold.
fn filter(items: &[String]) -> Result<Filter> {
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for item in items {
        let Some((field, value)) = item.split_once('=') else {
            bail!("--filter {item}: write field=value, for instance page=p1");
        };
        fields
            .entry(field.to_owned())
            .or_default()
            .push(value.to_owned());
    }
    Ok(Filter(fields))
}

/// Refuses a filter by a field that no passage has.
fn check_fields(filter: &Filter, known: &BTreeSet<String>) -> Result<()> {
    let Some(name) = filter.0.keys().find(|name| !known.contains(*name)) else {
        return Ok(());
    };
    let suggestion = suggestion(name, known.iter().map(String::as_str));
    bail!("--filter: no passage has a field `{name}`; {suggestion}")
}
