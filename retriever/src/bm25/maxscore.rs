//! Exact top-k by `MaxScore` over windows of documents.
//!
//! Terms are ordered by the highest score each can give. Those whose sum cannot reach the current k-th score are
//! *non-essential*: a document holding only them cannot enter the list, so they are looked up only for documents that an
//! essential term brings up and that could still enter. Essential terms are added up term by term into a window of
//! documents, which keeps the inner loop free of branches and of a document-at-a-time merge.

use std::io;

use tantivy::postings::BlockSegmentPostings;
use tantivy::{DocId, TERMINATED};

use forage_contracts::retriever::CancelFlag;

use super::docset::DocSet;
use crate::cancel::check_io;
use crate::top::{Scored, TopK};

const WINDOW_DOCS: usize = 4096;
const WORD_BITS: usize = 64;
/// Documents of a full postings block.
const FULL_BLOCK: usize = 128;
/// Widens upper bounds by more than any rounding of sums in f64, and far less than a step of f32.
const ROUNDING_SLACK: f64 = 1.0 + 1e-12;

/// Per-index lookups the inner loop needs.
#[derive(Clone, Copy)]
pub(super) struct Norms<'a> {
    /// One-byte length of every document.
    pub(super) ids: &'a [u8],
    /// `1 / (k1 (1 - b + b length / average))` for every one-byte length.
    pub(super) inverse: &'a [f32; 256],
    /// Documents that may be offered; `None` for all.
    pub(super) allowed: Option<&'a DocSet>,
}

impl Norms<'_> {
    /// Lucene's `BM25Scorer.doScore`, operation for operation.
    fn score(&self, weight: f32, doc: DocId, freq: u32) -> f32 {
        weight - weight / (1.0 + freq as f32 * self.inverse[usize::from(self.ids[doc as usize])])
    }
}

/// Position in the postings of one query term.
pub(super) struct Cursor {
    postings: BlockSegmentPostings,
    at: usize,
    weight: f32,
    /// Highest score the term gives any document.
    bound: f32,
}

impl Cursor {
    /// `weight` is the inverse document frequency times the term's multiplicity in the query.
    pub(super) fn new(postings: BlockSegmentPostings, weight: f32, bound: f32) -> Self {
        Self {
            postings,
            at: 0,
            weight,
            bound,
        }
    }

    /// The current document, `TERMINATED` at the end.
    fn doc(&self) -> DocId {
        self.postings.doc(self.at)
    }

    /// Adds the scores of all documents below `end` to the window and moves past them.
    fn accumulate(&mut self, end: DocId, norms: Norms<'_>, window: &mut Window) {
        loop {
            let docs = self.postings.docs();
            let block_len = docs.len();
            let open = &docs[self.at..];
            let count = match open.last() {
                None => return,
                Some(&last) if last < end => open.len(),
                Some(_) => open.partition_point(|&doc| doc < end),
            };
            let freqs = &self.postings.freqs()[self.at..];
            for (&doc, &freq) in open[..count].iter().zip(freqs) {
                window.add(doc, norms.score(self.weight, doc, freq));
            }
            self.at += count;
            if self.at < block_len || block_len < FULL_BLOCK {
                return;
            }
            self.postings.advance();
            self.at = 0;
        }
    }

    /// The score of `doc`, zero when the term does not occur in it. Documents must be asked for in ascending order.
    fn score_of(&mut self, doc: DocId, norms: Norms<'_>) -> f32 {
        if self.doc() < doc {
            self.at = self.postings.seek(doc);
        }
        if self.doc() == doc {
            norms.score(self.weight, doc, self.postings.freq(self.at))
        } else {
            0.0
        }
    }
}

/// Scores of up to [`WINDOW_DOCS`] consecutive documents and which of them were touched.
pub(super) struct Window {
    base: DocId,
    scores: Box<[f64]>,
    touched: [u64; WINDOW_DOCS / WORD_BITS],
}

impl Default for Window {
    fn default() -> Self {
        Self {
            base: 0,
            scores: vec![0.0; WINDOW_DOCS].into_boxed_slice(),
            touched: [0; WINDOW_DOCS / WORD_BITS],
        }
    }
}

impl Window {
    fn add(&mut self, doc: DocId, score: f32) {
        let slot = (doc - self.base) as usize;
        self.scores[slot] += f64::from(score);
        self.touched[slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
    }

    /// Hands every touched document to `visit`, ascending, and leaves the window clean.
    fn drain(&mut self, mut visit: impl FnMut(DocId, f64)) {
        for (word, touched) in self.touched.iter_mut().enumerate() {
            let mut bits = std::mem::take(touched);
            while bits != 0 {
                let slot = word * WORD_BITS + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                visit(
                    self.base + slot as DocId,
                    std::mem::take(&mut self.scores[slot]),
                );
            }
        }
    }
}

/// Buffers kept between queries.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) cursors: Vec<Cursor>,
    /// `bounds[i]`: sum of the bounds of cursors `0..=i`.
    bounds: Vec<f64>,
    window: Window,
    pub(super) top: TopK,
}

/// Fills `buffers.top` with the best documents of `buffers.cursors`.
pub(super) fn collect(
    buffers: &mut Buffers,
    norms: Norms<'_>,
    cancel: &CancelFlag,
) -> io::Result<()> {
    let Buffers {
        cursors,
        bounds,
        window,
        top,
    } = buffers;
    cursors.sort_by(|one, other| one.bound.total_cmp(&other.bound));
    bounds.clear();
    let mut sum = 0.0;
    for cursor in cursors.iter() {
        sum += f64::from(cursor.bound);
        bounds.push(sum * ROUNDING_SLACK);
    }
    let mut essential = 0;
    loop {
        check_io(cancel)?;
        essential += bounds[essential..].partition_point(|&bound| bound as f32 <= top.threshold());
        let (optional, required) = cursors.split_at_mut(essential);
        let first = required.iter().map(Cursor::doc).min().unwrap_or(TERMINATED);
        if first == TERMINATED {
            return Ok(());
        }
        window.base = first;
        let end = first.saturating_add(WINDOW_DOCS as DocId).min(TERMINATED);
        for cursor in required {
            cursor.accumulate(end, norms, window);
        }
        window.drain(|doc, score| complete(doc, score, optional, bounds, norms, top));
    }
}

/// Adds the non-essential terms to a document's score while it can still enter the list, then offers it.
fn complete(
    doc: DocId,
    partial: f64,
    optional: &mut [Cursor],
    bounds: &[f64],
    norms: Norms<'_>,
    top: &mut TopK,
) {
    if norms.allowed.is_some_and(|allowed| !allowed.contains(doc)) {
        return;
    }
    let threshold = top.threshold();
    let mut score = partial;
    for (cursor, bound) in optional.iter_mut().zip(bounds).rev() {
        if (score + bound) as f32 <= threshold {
            return;
        }
        score += f64::from(cursor.score_of(doc, norms));
    }
    let score = score as f32;
    top.push(Scored { score, doc });
}
