//! Finding and ranking the passages a query matches.
//!
//! Documents are taken in windows. Bit sets give those that may match, the index's frequencies give the highest score each
//! may have; phrases and words in one part, which the index cannot decide, are then read off the stored passage in the
//! order of those scores, and only as long as one could still enter the list and [`MAX_VERIFIED_BYTES`] are not used up.

use std::cell::Cell;
use std::sync::Arc;

use forage_contracts::retriever::{
    BooleanAnswer, BooleanSearch, CancelFlag, Fingerprint, Hit, ParseIssue, Query, Retriever,
    RetrieverError,
};
use tantivy::TERMINATED;

use super::plan::{LeafStep, Plan, Step, plan};
use super::window::{Bits, NONE, Stream, WINDOW};
use super::{MAX_ISSUES, MAX_VERIFIED_BYTES, boolean_fingerprint, parse_with};
use crate::bm25::{DocSet, Scorer};
use crate::index::{Document, Index, Segment, floor, guarded};
use crate::mode::ModeEntry;
use crate::retriever::Bm25Retriever;
use crate::top::{Scored, TopK};

/// Bytes that a passage counts for at least when it is read: finding it takes time too.
const LEAST_BYTES: u64 = 256;

/// AND, OR, NOT, phrases and fields, ranked by BM25.
pub(crate) const MODE: ModeEntry = ModeEntry {
    name: "boolean",
    about: "AND, OR, NOT, phrases and fields, ranked by BM25",
    needs_encoder: false,
    open: |searched| {
        let bm25 = Arc::new(Bm25Retriever::new(Arc::clone(searched.index)));
        Ok(Arc::new(BooleanRetriever::new(bm25)))
    },
};

impl Bm25Retriever {
    /// The best `k` passages that a query in boolean syntax matches, and the repairs of the query.
    ///
    /// A passage scores the BM25 of the positive words and phrases it matches. A query whose phrases would take reading
    /// more than 64 MiB of passages is answered by what was read, with an issue that says so.
    ///
    /// # Errors
    /// [`RetrieverError`] when postings or passages cannot be read, or the query's flag was set; never because of what the
    /// query says.
    pub fn search_boolean(&self, query: &Query, k: usize) -> Result<BooleanAnswer, RetrieverError> {
        let search = || self.search_boolean_within(query, k, MAX_VERIFIED_BYTES);
        guarded(self.index().place(), search)
    }

    fn search_boolean_within(
        &self,
        query: &Query,
        k: usize,
        verified_bytes: u64,
    ) -> Result<BooleanAnswer, RetrieverError> {
        let index = self.index();
        // A dictionary that cannot be read fails when the value is looked up.
        let is_field = |name: &str| {
            index
                .segments()
                .iter()
                .any(|segment| segment.postings.has_field(name).unwrap_or(true))
        };
        let (parsed, mut issues) = parse_with(&query.text, &is_field);
        let segments = index.segments();
        let scorer = self.ranking().scorer();
        let mut ranked = Vec::new();
        let planned = plan(&parsed, segments, scorer, &query.cancel);
        if let Some(plan) = planned.map_err(index.unreadable())? {
            if issues.len() < MAX_ISSUES {
                issues.extend(plan.broad.iter().map(|prefix| ParseIssue {
                    at: 0..query.text.len(),
                    message: format!("`{prefix}*` stands for too many words to rank by; it only decides what matches"),
                }));
            }
            let allowed = index.allowed(&query.filter, &query.cancel)?;
            let reading = Reading {
                left: Cell::new(Some(verified_bytes)),
                cancel: &query.cancel,
            };
            ranked = all_segments(index, &plan, scorer, allowed.as_deref(), &reading, k)?;
            if reading.is_over() {
                issues.push(ParseIssue {
                    at: 0..query.text.len(),
                    message: format!(
                        "too many passages have to be read for its phrases and words in one part: after {} MiB the \
                         others were not searched for them; add rarer words that must match",
                        verified_bytes >> 20
                    ),
                });
            }
        }
        Ok(BooleanAnswer {
            hits: self.hits(&ranked)?,
            issues,
        })
    }
}

#[async_trait::async_trait]
impl BooleanSearch for Bm25Retriever {
    async fn answer(&self, query: &Query, k: usize) -> Result<BooleanAnswer, RetrieverError> {
        self.search_boolean(query, k)
    }
}

/// Boolean mode as a [`Retriever`]; repairs of queries are not reported.
struct BooleanRetriever(Arc<Bm25Retriever>);

impl BooleanRetriever {
    /// Searches the index of `retriever`, with its constants.
    fn new(retriever: Arc<Bm25Retriever>) -> Self {
        Self(retriever)
    }
}

#[async_trait::async_trait]
impl Retriever for BooleanRetriever {
    fn fingerprint(&self) -> Fingerprint {
        boolean_fingerprint(&self.0.fingerprint())
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        queries
            .iter()
            .map(|query| self.0.search_boolean(query, k).map(|answer| answer.hits))
            .collect()
    }

    fn boolean(self: Arc<Self>) -> Option<Arc<dyn BooleanSearch>> {
        Some(Arc::clone(&self.0) as Arc<dyn BooleanSearch>)
    }
}

fn all_segments(
    index: &Index,
    plan: &Plan,
    scorer: &Scorer,
    allowed: Option<&[DocSet]>,
    reading: &Reading<'_>,
    k: usize,
) -> Result<Vec<(u32, f32)>, RetrieverError> {
    let mut best: Vec<(u32, f32)> = Vec::new();
    for (slot, segment) in index.segments().iter().enumerate() {
        let mut streams = Vec::with_capacity(plan.places.len());
        for places in &plan.places {
            streams
                .push(Stream::open(&places[slot], &segment.postings).map_err(index.unreadable())?);
        }
        let mut top = TopK::default();
        top.reset(k.min(segment.len()), floor(&best, k));
        let mut search = Search {
            plan,
            scorer,
            segment,
            allowed: allowed.map(|sets| &sets[slot]),
            reading,
            streams,
            base: 0,
            top,
        };
        search.run()?;
        let of_segment = search.top.drain_sorted();
        index.merge_ranked(&mut best, segment, of_segment, k)?;
    }
    Ok(best)
}

/// The treatment of leaves that the index cannot decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// As matching, as often as the frequencies allow.
    Possible,
    /// As not matching.
    Certain,
    /// By a look into the passage.
    Exact,
}

impl Mode {
    fn negated(self) -> Self {
        match self {
            Self::Possible => Self::Certain,
            Self::Certain => Self::Possible,
            Self::Exact => Self::Exact,
        }
    }
}

/// A query on its way through one segment.
struct Search<'a> {
    plan: &'a Plan,
    scorer: &'a Scorer,
    segment: &'a Segment,
    allowed: Option<&'a DocSet>,
    reading: &'a Reading<'a>,
    streams: Vec<Stream<'a>>,
    base: u32,
    top: TopK,
}

/// The reading of passages for one query, over all segments.
struct Reading<'a> {
    /// Bytes that may still be read; `None` once a passage was longer than that.
    left: Cell<Option<u64>>,
    cancel: &'a CancelFlag,
}

impl Reading<'_> {
    /// Tells whether a passage may be read, and counts it.
    fn allows(&self, document: Document<'_>) -> bool {
        let bytes = (document.title.len() + document.text.len()) as u64;
        let left = self.left.get();
        let left = left.and_then(|left| left.checked_sub(bytes.max(LEAST_BYTES)));
        self.left.set(left);
        left.is_some()
    }

    fn is_over(&self) -> bool {
        self.left.get().is_none()
    }
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), RetrieverError> {
        let len = self.segment.len() as u32;
        let mut candidates: Vec<Scored> = Vec::new();
        loop {
            self.reading.cancel.check()?;
            let next = self.next(&self.plan.root);
            // Later documents lose ties, so nothing better can come when the list is full of the highest score.
            let possible = Scored {
                score: self.plan.ceiling,
                doc: next,
            };
            if next >= len || !self.top.admits(possible) {
                return Ok(());
            }
            self.base = next & !63;
            for stream in &mut self.streams {
                stream.fill(self.base);
            }
            candidates.clear();
            self.candidates(len, &mut candidates)?;
            if self.plan.verifies {
                candidates.sort_unstable_by(|one, other| other.cmp(one));
            }
            for &candidate in &candidates {
                if !self.top.admits(candidate) {
                    if self.plan.verifies {
                        break;
                    }
                    continue;
                }
                let score = if self.plan.verifies {
                    self.verified(candidate.doc)?
                } else {
                    Some(f64::from(candidate.score))
                };
                if let Some(score) = score {
                    self.top.push(Scored {
                        score: score as f32,
                        doc: candidate.doc,
                    });
                }
            }
            self.base = self.base.saturating_add(WINDOW as u32);
        }
    }

    /// The score of a document by what stands in it, or by what the index is sure of once no more may be read.
    fn verified(&self, doc: u32) -> Result<Option<f64>, RetrieverError> {
        if !self.reading.is_over() {
            let score = self.score(&self.plan.root, doc, Mode::Exact)?;
            if !self.reading.is_over() {
                return Ok(score);
            }
        }
        self.score(&self.plan.root, doc, Mode::Certain)
    }

    /// The documents of the window that may match, with the highest scores they may have.
    fn candidates(&self, len: u32, candidates: &mut Vec<Scored>) -> Result<(), RetrieverError> {
        for (slot, mut bits) in self
            .bits(&self.plan.root, Mode::Possible)
            .into_iter()
            .enumerate()
        {
            while bits != 0 {
                let doc = self.base + slot as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if doc < len
                    && self.allowed.is_none_or(|allowed| allowed.contains(doc))
                    && let Some(score) = self.score(&self.plan.root, doc, Mode::Possible)?
                {
                    candidates.push(Scored {
                        score: score as f32,
                        doc,
                    });
                }
            }
        }
        Ok(())
    }

    /// The first document from the next window on that may match.
    fn next(&self, step: &Step) -> u32 {
        match step {
            Step::Leaf(leaf) => leaf
                .sources
                .iter()
                .map(|&source| self.streams[source].next_from(self.base))
                .max()
                .unwrap_or(TERMINATED),
            Step::Group { must, should, .. } => {
                let of_must = must.iter().map(|step| self.next(step)).max();
                let of_should = || should.iter().map(|step| self.next(step)).min();
                of_must.or_else(of_should).unwrap_or(self.base)
            }
        }
    }

    fn bits(&self, step: &Step, mode: Mode) -> Bits {
        let (must, should, not) = match step {
            Step::Leaf(leaf) if mode == Mode::Certain && leaf.check.is_some() => return NONE,
            Step::Leaf(leaf) => {
                let mut all = [u64::MAX; WINDOW / 64];
                for &source in &leaf.sources {
                    and(&mut all, &self.streams[source].bits);
                }
                return all;
            }
            Step::Group { must, should, not } => (must, should, not),
        };
        let mut found = [u64::MAX; WINDOW / 64];
        if must.is_empty() && !should.is_empty() {
            found = NONE;
            for step in should {
                for (word, more) in found.iter_mut().zip(self.bits(step, mode)) {
                    *word |= more;
                }
            }
        }
        for step in must {
            and(&mut found, &self.bits(step, mode));
        }
        for step in not {
            and(
                &mut found,
                &self.bits(step, mode.negated()).map(|word| !word),
            );
        }
        found
    }

    /// The score of a document of the window; `None` when it does not match.
    fn score(&self, step: &Step, doc: u32, mode: Mode) -> Result<Option<f64>, RetrieverError> {
        let (must, should, not) = match step {
            Step::Leaf(leaf) => return self.leaf_score(leaf, doc, mode),
            Step::Group { must, should, not } => (must, should, not),
        };
        let mut sum = 0.0;
        for step in must {
            match self.score(step, doc, mode)? {
                Some(score) => sum += score,
                None => return Ok(None),
            }
        }
        for step in not {
            if self.score(step, doc, mode.negated())?.is_some() {
                return Ok(None);
            }
        }
        let mut matched = !must.is_empty() || should.is_empty();
        for step in should {
            if let Some(score) = self.score(step, doc, mode)? {
                (sum, matched) = (sum + score, true);
            }
        }
        Ok(matched.then_some(sum))
    }

    fn leaf_score(
        &self,
        leaf: &LeafStep,
        doc: u32,
        mode: Mode,
    ) -> Result<Option<f64>, RetrieverError> {
        let slot = (doc - self.base) as usize;
        let mut fewest = u32::MAX;
        for &source in &leaf.sources {
            let stream = &self.streams[source];
            if !stream.holds(slot) {
                return Ok(None);
            }
            fewest = fewest.min(stream.freq(slot));
        }
        let first = leaf
            .sources
            .first()
            .map_or(0, |&source| self.streams[source].freq(slot));
        let freq = match (&leaf.check, mode) {
            (None, _) => first as f32,
            (Some(_), Mode::Certain) => return Ok(None),
            // Every match begins at an occurrence of the first term.
            (Some(_), Mode::Possible) => {
                if leaf.rigid {
                    fewest as f32
                } else {
                    first as f32
                }
            }
            (Some(check), Mode::Exact) => {
                self.reading.cancel.check()?;
                let document = self.segment.document(self.segment.local_at_rank(doc)?)?;
                if !self.reading.allows(document) {
                    return Ok(None);
                }
                check.frequency(document)
            }
        };
        let norm = self.segment.postings.norms()[doc as usize];
        Ok((freq > 0.0).then(|| f64::from(self.scorer.score(leaf.weight(), norm, freq))))
    }
}

fn and(bits: &mut Bits, other: &Bits) {
    for (word, of_other) in bits.iter_mut().zip(other) {
        *word &= of_other;
    }
}

#[cfg(test)]
mod tests;
