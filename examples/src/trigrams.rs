//! A retriever from outside: passages that share runs of three letters with the query, so that misspelt names are found.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::Passage;
use forage_contracts::retriever::{
    Encoder, Fingerprint, Hit, Query, Retriever, RetrieverEntry, RetrieverError, RetrieverSettings,
};
use forage_retriever::{CorpusFormat, CorpusHasher, CorpusReader, IndexError, ModeEntry};
use serde::Deserialize;

/// The registry's entry: `[retriever.remote]` with `kind = "trigrams"` and the settings below.
pub(crate) const ENTRY: RetrieverEntry =
    RetrieverEntry::new::<Settings>("trigrams", "shared runs of three letters");

/// The same over the passages of an index: `[retriever]` with `mode = "trigrams"`.
pub(crate) const MODE: ModeEntry = ModeEntry {
    name: "trigrams",
    about: "shared runs of three letters",
    needs_encoder: false,
    open: |searched| {
        let ordinals = 0..searched.index.len() as u32;
        let passages = ordinals.map(|at| Ok(searched.index.document(at)?.to_passage()));
        Ok(Arc::new(Trigrams::over(
            passages.collect::<Result<_, IndexError>>()?,
        )))
    },
};

/// Settings of the retriever.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The passages.
    corpus: PathBuf,
    /// Their format, `notes` among others.
    format: CorpusFormat,
}

#[async_trait]
impl RetrieverSettings for Settings {
    async fn open(
        self: Box<Self>,
        _encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Arc<dyn Retriever>, RetrieverError> {
        let passages = CorpusReader::open(&self.corpus, self.format)
            .and_then(Iterator::collect)
            .map_err(IndexError::from)?;
        Ok(Arc::new(Trigrams::over(passages)))
    }
}

/// Passages with their runs of three letters.
struct Trigrams {
    passages: Vec<(Passage, BTreeSet<[char; 3]>)>,
    fingerprint: Fingerprint,
}

impl Trigrams {
    fn over(passages: Vec<Passage>) -> Self {
        let mut hasher = CorpusHasher::new();
        for passage in &passages {
            hasher.update(&passage.id, &passage.title, &passage.text, &passage.fields);
        }
        let with_runs = |passage: Passage| {
            let runs = runs(&format!("{} {}", passage.title, passage.text));
            (passage, runs)
        };
        Self {
            passages: passages.into_iter().map(with_runs).collect(),
            fingerprint: Fingerprint(format!("trigrams {}", hasher.finish())),
        }
    }

    fn best(&self, query: &Query, k: usize) -> Vec<Hit> {
        let asked = runs(&query.text);
        let mut hits: Vec<(usize, &Passage)> = self
            .passages
            .iter()
            .map(|(passage, runs)| (asked.intersection(runs).count(), passage))
            .filter(|(shared, _)| *shared > 0)
            .collect();
        // Score descending, then id ascending: the order of every retriever.
        hits.sort_by_key(|(shared, passage)| (Reverse(*shared), &passage.id));
        let hit = |(shared, passage): (usize, &Passage)| Hit {
            id: passage.id.clone(),
            score: shared as f32 / asked.len() as f32,
            title: passage.title.clone(),
            text: passage.text.clone(),
        };
        hits.into_iter().take(k).map(hit).collect()
    }
}

/// Every three letters or digits in a row, spaces between words included.
fn runs(text: &str) -> BTreeSet<[char; 3]> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let letters: Vec<char> = format!(" {} ", words.join(" ").to_lowercase())
        .chars()
        .collect();
    letters.array_windows().copied().collect()
}

#[async_trait]
impl Retriever for Trigrams {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if queries.iter().any(|query| !query.filter.is_empty()) {
            return Err(RetrieverError::Unsupported {
                retriever: "trigrams".to_owned(),
                what: "filter passages",
            });
        }
        Ok(queries.iter().map(|query| self.best(query, k)).collect())
    }
}
