//! Finding and ranking the passages a query matches.
//!
//! Documents are taken in windows. Bit sets give those that may match, and frequencies the highest score each may have, leaf by leaf;
//! where there are phrases, those that could still enter the list have the positions of their terms compared.

use std::io;
use std::sync::Arc;

use forage_contracts::retriever::{
    BooleanAnswer, BooleanSearch, CancelFlag, Fingerprint, Hit, ParseIssue, Query, Retriever,
    RetrieverError,
};
use tantivy::TERMINATED;

use super::phrase::{Phrase, Places};
use super::plan::{LeafStep, Place, Plan, Step, plan};
use super::window::{Bits, NONE, Stream, WINDOW, each};
use super::{MAX_ISSUES, boolean_fingerprint, parse_with};
use crate::bm25::{DocSet, Scorer};
use crate::cancel::check_io;
use crate::index::{Index, Segment, floor, guarded};
use crate::mode::ModeEntry;
use crate::retriever::Bm25Retriever;
use crate::top::{Scored, TopK};

/// Widens highest scores by more than the order of a sum in f64 changes, and far less than a step of f32.
const ROUNDING_SLACK: f64 = 1.0 + 1e-12;

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
    /// A passage scores the BM25 of the positive words and phrases it matches.
    ///
    /// # Errors
    /// [`RetrieverError`] when postings or passages cannot be read, or the query's flag was set; never because of what the
    /// query says.
    pub fn search_boolean(&self, query: &Query, k: usize) -> Result<BooleanAnswer, RetrieverError> {
        guarded(self.index().place(), || self.answer_boolean(query, k))
    }

    fn answer_boolean(&self, query: &Query, k: usize) -> Result<BooleanAnswer, RetrieverError> {
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
            ranked = all_segments(index, &plan, scorer, allowed.as_deref(), &query.cancel, k)?;
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
    cancel: &CancelFlag,
    k: usize,
) -> Result<Vec<(u32, f32)>, RetrieverError> {
    let mut best: Vec<(u32, f32)> = Vec::new();
    for (slot, segment) in index.segments().iter().enumerate() {
        let mut top = TopK::default();
        top.reset(k.min(segment.len()), floor(&best, k));
        let mut search = Search {
            plan,
            scorer,
            slot,
            segment,
            allowed: allowed.map(|sets| &sets[slot]),
            cancel,
            streams: Vec::new(),
            places: plan.places.iter().map(|_| None).collect(),
            base: 0,
            top,
        };
        search.run().map_err(index.unreadable())?;
        let of_segment = search.top.drain_sorted();
        index.merge_ranked(&mut best, segment, of_segment, k)?;
    }
    Ok(best)
}

/// The treatment of phrases where frequencies alone are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// As matching where all their terms are.
    Possible,
    /// As not matching.
    Certain,
}

impl Mode {
    fn negated(self) -> Self {
        match self {
            Self::Possible => Self::Certain,
            Self::Certain => Self::Possible,
        }
    }
}

/// A query on its way through one segment.
struct Search<'a> {
    plan: &'a Plan,
    scorer: &'a Scorer,
    /// The number of the segment.
    slot: usize,
    segment: &'a Segment,
    allowed: Option<&'a DocSet>,
    cancel: &'a CancelFlag,
    /// One for each source.
    streams: Vec<Stream<'a>>,
    /// The same where a phrase has asked for positions.
    places: Vec<Option<Places>>,
    base: u32,
    top: TopK,
}

impl Search<'_> {
    fn run(&mut self) -> io::Result<()> {
        for places in &self.plan.places {
            let stream = Stream::open(&places[self.slot], &self.segment.postings)?;
            self.streams.push(stream);
        }
        let len = self.segment.len() as u32;
        let mut scores = vec![0.0; WINDOW];
        loop {
            check_io(self.cancel)?;
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
                stream.fill(self.base)?;
            }
            let mut found = self.bits(&self.plan.root, Mode::Possible);
            self.keep_allowed(len, &mut found);
            self.add_highest(&self.plan.root, &found, &mut scores);
            self.offer(&found, &mut scores)?;
            self.base = self.base.saturating_add(WINDOW as u32);
        }
    }

    /// Leaves out what the segment does not have and the filter does not let through.
    fn keep_allowed(&self, len: u32, found: &mut Bits) {
        let inside = (len - self.base) as usize;
        for (number, word) in found.iter_mut().enumerate() {
            let (first, base) = (number * 64, self.base as usize / 64);
            if let Some(allowed) = self.allowed {
                *word &= allowed.words().get(base + number).copied().unwrap_or(0);
            } else if first >= inside {
                *word = 0;
            } else if inside - first < 64 {
                *word &= (1 << (inside - first)) - 1;
            }
        }
    }

    /// Adds the highest score of each of these documents, all of which the step may match, to those of the window.
    fn add_highest(&self, step: &Step, among: &Bits, scores: &mut [f64]) {
        let (must, should) = match step {
            Step::Leaf(leaf) => return self.add_leaf(leaf, among, scores),
            Step::Group { must, should, .. } => (must, should),
        };
        for step in must {
            self.add_highest(step, among, scores);
        }
        for step in should {
            let mut matched = self.bits(step, Mode::Possible);
            and(&mut matched, among);
            self.add_highest(step, &matched, scores);
        }
    }

    fn add_leaf(&self, leaf: &LeafStep, among: &Bits, scores: &mut [f64]) {
        let (weight, norms) = (leaf.weight(), self.segment.postings.norms());
        let Some((first, others)) = leaf.sources.split_first() else {
            return;
        };
        each(among, |slot| {
            let mut freq = self.streams[*first].freq(slot);
            // Every match begins at an occurrence of the first term, and a rigid one takes one of every term.
            if leaf.rigid {
                let of_others = others.iter().map(|&other| self.streams[other].freq(slot));
                freq = of_others.fold(freq, u32::min);
            }
            let norm = norms[self.base as usize + slot];
            scores[slot] += f64::from(self.scorer.score(weight, norm, freq as f32));
        });
    }

    /// Offers the documents to the list; leaves no scores behind.
    fn offer(&mut self, found: &Bits, scores: &mut [f64]) -> io::Result<()> {
        for (number, &word) in found.iter().enumerate() {
            let mut bits = word;
            if bits != 0 && self.plan.has_phrases {
                check_io(self.cancel)?;
            }
            while bits != 0 {
                let slot = number * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let doc = self.base + slot as u32;
                let highest = std::mem::take(&mut scores[slot]);
                let score = (highest * ROUNDING_SLACK) as f32;
                if !self.top.admits(Scored { score, doc }) {
                    continue;
                }
                let score = if self.plan.has_phrases {
                    self.score(&self.plan.root, doc)?
                } else {
                    Some(highest)
                };
                if let Some(score) = score {
                    let score = score as f32;
                    self.top.push(Scored { score, doc });
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
            Step::Leaf(leaf) if mode == Mode::Certain && leaf.phrase.is_some() => return NONE,
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

    /// The score of a document of the window; `None` when it does not match. Documents must be asked for in ascending order.
    fn score(&mut self, step: &Step, doc: u32) -> io::Result<Option<f64>> {
        let (must, should, not) = match step {
            Step::Leaf(leaf) => return self.leaf_score(leaf, doc),
            Step::Group { must, should, not } => (must, should, not),
        };
        let mut sum = 0.0;
        for step in must {
            match self.score(step, doc)? {
                Some(score) => sum += score,
                None => return Ok(None),
            }
        }
        for step in not {
            if self.score(step, doc)?.is_some() {
                return Ok(None);
            }
        }
        let mut matched = !must.is_empty() || should.is_empty();
        for step in should {
            if let Some(score) = self.score(step, doc)? {
                (sum, matched) = (sum + score, true);
            }
        }
        Ok(matched.then_some(sum))
    }

    fn leaf_score(&mut self, leaf: &LeafStep, doc: u32) -> io::Result<Option<f64>> {
        let slot = (doc - self.base) as usize;
        let is_missing = |&source: &usize| !self.streams[source].holds(slot);
        let Some(&first) = leaf.sources.first() else {
            return Ok(None);
        };
        if leaf.sources.iter().any(is_missing) {
            return Ok(None);
        }
        let freq = match &leaf.phrase {
            Some(phrase) => self.phrase_frequency(phrase, &leaf.sources, doc)?,
            None => self.streams[first].freq(slot) as f32,
        };
        let norm = self.segment.postings.norms()[doc as usize];
        Ok((freq > 0.0).then(|| f64::from(self.scorer.score(leaf.weight(), norm, freq))))
    }

    fn phrase_frequency(
        &mut self,
        phrase: &Phrase,
        sources: &[usize],
        doc: u32,
    ) -> io::Result<f32> {
        let postings = &self.segment.postings;
        for &source in sources {
            let opened = match &mut self.places[source] {
                Some(opened) => opened,
                closed => {
                    let Place::Postings(infos) = &self.plan.places[source][self.slot] else {
                        return Err(io::Error::other("a phrase of what is not a term"));
                    };
                    let [info] = &infos[..] else {
                        return Err(io::Error::other("a document holds a term without postings"));
                    };
                    closed.insert(Places::new(postings.located(info)?))
                }
            };
            opened.read(doc)?;
        }
        let within = phrase.part.positions(postings.text_position(doc));
        let places = |number: usize| {
            self.places[sources[number]]
                .as_ref()
                .map_or(&[][..], Places::get)
        };
        Ok(phrase.frequency(places, &within))
    }
}

fn and(bits: &mut Bits, other: &Bits) {
    for (word, of_other) in bits.iter_mut().zip(other) {
        *word &= of_other;
    }
}

#[cfg(test)]
mod tests;
