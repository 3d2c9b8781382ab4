//! From query text to ranked documents.

use std::io;

use super::Bm25Params;
use super::maxscore::{self, Buffers, Cursor, Norms};
use super::postings::{FoundTerm, Postings, inverse_norms};
use crate::analyzer::TermStream;

/// BM25 with fixed constants over one index's postings.
pub(crate) struct Scorer {
    inverse: [f32; 256],
    docs: u64,
}

/// Buffers a thread keeps between queries; holds no index open.
#[derive(Default)]
pub(crate) struct Scratch {
    terms: Vec<FoundTerm>,
    buffers: Buffers,
}

impl Scorer {
    pub(crate) fn new(postings: &Postings, params: Bm25Params) -> Self {
        let docs = postings.docs_with_terms();
        let average_length = (postings.tokens() as f64 / docs.max(1) as f64) as f32;
        Self { inverse: inverse_norms(params.k1, params.b, average_length.max(f32::MIN_POSITIVE)), docs }
    }

    /// One value per term, see [`Postings::saturations`].
    pub(crate) fn saturations(&self, postings: &Postings) -> io::Result<Vec<f32>> {
        postings.saturations(&self.inverse)
    }

    /// The best `k` documents for a bag of words, best first, ties by document number.
    ///
    /// `saturation` gives the largest `freq * inverse[length]` of a term, or infinity when it is not known.
    pub(crate) fn top(
        &self,
        postings: &Postings,
        saturation: impl Fn(u64) -> f32,
        text: &str,
        k: usize,
        scratch: &mut Scratch,
    ) -> io::Result<Vec<(u32, f32)>> {
        if k == 0 {
            return Ok(Vec::new());
        }
        let Scratch { terms, buffers } = scratch;
        find_terms(postings, text, terms)?;
        buffers.top.reset(k);
        buffers.cursors.clear();
        for same in terms.chunk_by(|one, other| one.number == other.number) {
            let blocks = postings.blocks(&same[0].info)?;
            let weight = same.len() as f32 * inverse_document_frequency(self.docs, u64::from(blocks.doc_freq()));
            let bound = weight - weight / (1.0 + saturation(same[0].number));
            buffers.cursors.push(Cursor::new(blocks, weight, bound));
        }
        maxscore::collect(buffers, Norms { ids: postings.norms(), inverse: &self.inverse });
        buffers.cursors.clear();
        Ok(buffers.top.drain_sorted())
    }
}

/// The query's terms that occur in the corpus, in byte order, repeats kept.
fn find_terms(postings: &Postings, text: &str, terms: &mut Vec<FoundTerm>) -> io::Result<()> {
    terms.clear();
    let mut stream = TermStream::new(text);
    while let Some(term) = stream.next_term() {
        terms.extend(postings.find(term)?);
    }
    terms.sort_unstable_by_key(|term| term.number);
    Ok(())
}

/// Lucene's `ln(1 + (N - df + 0.5) / (df + 0.5))`, in f64, then rounded.
fn inverse_document_frequency(docs: u64, doc_freq: u64) -> f32 {
    let doc_freq = doc_freq as f64;
    (1.0 + (docs as f64 - doc_freq + 0.5) / (doc_freq + 0.5)).ln() as f32
}

#[cfg(test)]
mod tests;
