//! Scoring: from query text to ranked documents.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use tantivy::fieldnorm::FieldNormReader;

use super::Bm25Params;
use super::docset::DocSet;
use super::maxscore::{self, Buffers, Cursor, Norms};
use super::postings::{FoundTerm, Postings, inverse_norms};
use forage_contracts::retriever::CancelFlag;

use crate::analyzer::TermStream;

/// More than any rounding of the two table lookups and the product in [`Scorer::widening`].
const WIDENING_SLACK: f64 = 1.0 + 1e-6;

/// The sums that a score depends on besides the passage and the query: over the whole collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// Passages with at least one term: Lucene's `docCount`.
    pub(crate) docs: u64,
    /// Lucene's `sumTotalTermFreq`.
    pub(crate) tokens: u64,
}

/// BM25 with fixed constants over a collection with given totals.
#[derive(Debug)]
pub(crate) struct Scorer {
    inverse: [f32; 256],
    docs: u64,
}

/// One segment, as a search sees it.
#[derive(Clone, Copy)]
pub(crate) struct SegmentPart<'a> {
    pub(crate) postings: &'a Postings,
    /// Stored bounds, f32 LE by term number, see [`Postings::saturations`].
    pub(crate) bounds: &'a [u8],
    pub(crate) widening: Widening,
    /// Documents that may be returned; `None` for all.
    pub(crate) allowed: Option<&'a DocSet>,
}

/// The documents that a search of one segment is for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The number of documents.
    pub(crate) k: usize,
    /// Only scores above it are wanted.
    pub(crate) floor: f32,
    /// Ends the search.
    pub(crate) cancel: &'a CancelFlag,
}

/// Turns the stored bounds of a segment, which belong to the totals and constants of its build, into bounds under those
/// in force: a factor no table entry grew by more than.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Widening(f32);

impl Widening {
    /// An upper bound of `freq * inverse[length]` now, from the largest one at the build.
    fn apply(self, stored: f32) -> f32 {
        if self.0 == f32::INFINITY {
            f32::INFINITY
        } else {
            stored * self.0
        }
    }
}

/// Buffers a thread keeps between queries; holds no index open.
#[derive(Default)]
pub(crate) struct Scratch {
    bag: Bag,
    /// The place of each term of the bag in each segment, term by term.
    found: Vec<Option<FoundTerm>>,
    weights: Vec<f32>,
    buffers: Buffers,
}

/// The distinct terms of a text, in byte order, with their multiplicities.
#[derive(Default)]
pub(crate) struct Bag {
    text: String,
    terms: Vec<(Range<usize>, u32)>,
}

impl Bag {
    /// Analyses a text; the previous one is forgotten.
    pub(crate) fn fill(&mut self, text: &str) {
        let Self {
            text: analysed,
            terms,
        } = self;
        analysed.clear();
        terms.clear();
        let mut stream = TermStream::new(text);
        while let Some(term) = stream.next_term() {
            let from = analysed.len();
            analysed.push_str(term);
            terms.push((from..analysed.len(), 1));
        }
        terms
            .sort_unstable_by(|one, other| analysed[one.0.clone()].cmp(&analysed[other.0.clone()]));
        terms.dedup_by(|next, kept| {
            let same = analysed[next.0.clone()] == analysed[kept.0.clone()];
            kept.1 += if same { next.1 } else { 0 };
            same
        });
    }

    /// Terms and how often each occurs.
    pub(crate) fn terms(&self) -> impl Iterator<Item = (&str, u32)> {
        self.terms
            .iter()
            .map(|(span, times)| (&self.text[span.clone()], *times))
    }
}

impl Scorer {
    pub(crate) fn new(totals: Totals, params: Bm25Params) -> Self {
        let average_length = (totals.tokens as f64 / totals.docs.max(1) as f64) as f32;
        let inverse = inverse_norms(params.k1, params.b, average_length.max(f32::MIN_POSITIVE));
        Self {
            inverse,
            docs: totals.docs,
        }
    }

    /// One value per term, see [`Postings::saturations`].
    pub(crate) fn saturations(&self, postings: &Postings) -> io::Result<Vec<f32>> {
        postings.saturations(&self.inverse)
    }

    /// The factor by which bounds stored under `stored` must be widened to hold under this scorer.
    pub(crate) fn widening(&self, stored: &Self) -> Widening {
        if self.inverse.map(f32::to_bits) == stored.inverse.map(f32::to_bits) {
            return Widening(1.0);
        }
        let ratios = self
            .inverse
            .iter()
            .zip(&stored.inverse)
            .map(|(now, then)| f64::from(*now) / f64::from(*then));
        // `max` would pass over a quotient that is not a number.
        let largest = ratios.fold(
            0.0,
            |largest: f64, ratio| if ratio <= largest { largest } else { ratio },
        );
        let widened = (largest * WIDENING_SLACK) as f32;
        // Constants at the ends of their ranges (k1 of 0 or beyond all use) make table entries infinite or zero.
        let usable = widened.is_normal() && stored.inverse.iter().all(|then| then.is_normal());
        Widening(if usable { widened } else { f32::INFINITY })
    }

    /// The weight of a term that this many passages hold.
    pub(crate) fn idf(&self, doc_freq: u64) -> f32 {
        inverse_document_frequency(self.docs, doc_freq)
    }

    /// Lucene's `BM25Scorer.doScore` for a one-byte length.
    pub(crate) fn score(&self, weight: f32, norm: u8, freq: f32) -> f32 {
        weight - weight / (1.0 + freq * self.inverse[usize::from(norm)])
    }

    /// The score of a text that need not be in the index, for the terms of a query with their weights.
    pub(crate) fn score_bag(&self, weights: &[(String, f32)], text: &Bag) -> f32 {
        let terms: Vec<(&str, u32)> = text.terms().collect();
        let norm = FieldNormReader::fieldnorm_to_id(terms.iter().map(|(_, times)| times).sum());
        let mut score = 0.0_f64;
        for (term, weight) in weights {
            if let Ok(at) = terms.binary_search_by(|(held, _)| (*held).cmp(term.as_str())) {
                score += f64::from(self.score(*weight, norm, terms[at].1 as f32));
            }
        }
        score as f32
    }

    /// Looks the terms of a text up in every segment and weighs them by their frequency in the whole collection: the sum
    /// over the segments, or the one that `frequencies` has for a term.
    pub(crate) fn prepare(
        &self,
        parts: &[SegmentPart<'_>],
        text: &str,
        frequencies: Option<&BTreeMap<String, u64>>,
        scratch: &mut Scratch,
    ) -> io::Result<()> {
        let Scratch {
            bag,
            found,
            weights,
            ..
        } = scratch;
        bag.fill(text);
        found.clear();
        weights.clear();
        for (term, times) in bag.terms() {
            let mut local = 0;
            for part in parts {
                let place = part.postings.find(term)?;
                local += place
                    .as_ref()
                    .map_or(0, |place| u64::from(place.info.doc_freq));
                found.push(place);
            }
            let given = frequencies.and_then(|frequencies| frequencies.get(term));
            weights.push(
                times as f32
                    * inverse_document_frequency(self.docs, given.copied().unwrap_or(local)),
            );
        }
        Ok(())
    }

    /// The documents wanted of segment `slot` for the prepared text, best first, ties by document number.
    pub(crate) fn top(
        &self,
        parts: &[SegmentPart<'_>],
        slot: usize,
        Wanted { k, floor, cancel }: Wanted<'_>,
        scratch: &mut Scratch,
    ) -> io::Result<Vec<(u32, f32)>> {
        let Scratch {
            found,
            weights,
            buffers,
            ..
        } = scratch;
        let SegmentPart {
            postings,
            bounds,
            widening,
            allowed,
        } = parts[slot];
        if k == 0 {
            return Ok(Vec::new());
        }
        buffers.top.reset(k, floor);
        buffers.cursors.clear();
        for (places, &weight) in found.chunks_exact(parts.len()).zip(weights.iter()) {
            let Some(term) = &places[slot] else {
                continue;
            };
            let saturation = bounds
                .get(term.number as usize * 4..)
                .and_then(|rest| rest.first_chunk());
            let saturation = saturation.map_or(f32::INFINITY, |raw| {
                widening.apply(f32::from_le_bytes(*raw))
            });
            let bound = weight - weight / (1.0 + saturation);
            buffers
                .cursors
                .push(Cursor::new(postings.blocks(&term.info)?, weight, bound));
        }
        let norms = Norms {
            ids: postings.norms(),
            inverse: &self.inverse,
            allowed,
        };
        maxscore::collect(buffers, norms, cancel)?;
        buffers.cursors.clear();
        Ok(buffers.top.drain_sorted())
    }
}

/// Lucene's `ln(1 + (N - df + 0.5) / (df + 0.5))`, in f64, then rounded.
fn inverse_document_frequency(docs: u64, doc_freq: u64) -> f32 {
    let doc_freq = doc_freq as f64;
    (1.0 + (docs as f64 - doc_freq + 0.5) / (doc_freq + 0.5)).ln() as f32
}

#[cfg(test)]
mod tests;
