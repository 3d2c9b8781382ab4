//! The entry of a search mode.

use std::sync::Arc;

use forage_contracts::Entry;
use forage_contracts::retriever::{Encoder, Retriever, RetrieverError};

use crate::index::Index;

/// A way to search an index folder: `mode = "NAME"` in a config's `[retriever]`, `--mode NAME`, `"mode"` in a request.
#[derive(Debug, Clone, Copy)]
pub struct ModeEntry {
    /// The name used in configs, requests and on the command line.
    pub name: &'static str,
    /// A few words about it.
    pub about: &'static str,
    /// Searches encode the query, with the model that the index was embedded with.
    pub needs_encoder: bool,
    /// Makes the retriever.
    pub open: fn(&Searched<'_>) -> Result<Arc<dyn Retriever>, RetrieverError>,
}

/// The index that a mode searches.
pub struct Searched<'a> {
    /// The index.
    pub index: &'a Arc<Index>,
    /// The encoder of queries, if there is one.
    pub encoder: Option<&'a Arc<dyn Encoder>>,
}

impl Searched<'_> {
    /// The encoder, for modes that cannot do without.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] when there is none.
    pub fn encoder(&self) -> Result<Arc<dyn Encoder>, RetrieverError> {
        let what = "is missing; name the model the index was embedded with";
        let encoder = self.encoder.map(Arc::clone);
        encoder.ok_or_else(|| RetrieverError::setting("encoder", what))
    }
}

impl Entry for ModeEntry {
    const KIND: &'static str = "mode";

    fn label(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }
}
