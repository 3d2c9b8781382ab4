//! Ranking over all segments as if they were one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use forage_contracts::retriever::{CancelFlag, Filter, Query, RetrieverError};

use super::guard::guarded;
use super::open::Index;
use super::segment::Segment;
use crate::bm25::{
    Bag, Bm25Params, DocSet, Scorer, Scratch, SegmentPart, Totals, Wanted, Widening,
};
use crate::error::IndexError;
use crate::statistics::Statistics;

/// BM25 with given constants and collection totals, fitted to the segments of one index.
#[derive(Debug)]
pub(crate) struct Ranking {
    scorer: Scorer,
    widening: Vec<Widening>,
}

impl Ranking {
    /// The arithmetic of one score.
    pub(crate) fn scorer(&self) -> &Scorer {
        &self.scorer
    }
}

impl Index {
    /// The numbers of this index that exact BM25 over it and others needs: passages, tokens, and the frequency of every
    /// term of these texts.
    ///
    /// # Errors
    /// [`RetrieverError::Postings`] when the dictionary cannot be read.
    pub(crate) fn statistics(&self, texts: &[&str]) -> Result<Statistics, RetrieverError> {
        guarded(&self.place, || self.count(texts))
    }

    /// The names of the fields that a filter may ask for: `id`, `title` and what else passages have values of, those aside that are
    /// too long to be indexed.
    ///
    /// # Errors
    /// [`RetrieverError::Postings`] when the dictionary cannot be read.
    pub fn fields(&self) -> Result<BTreeSet<String>, RetrieverError> {
        guarded(&self.place, || {
            let mut names = BTreeSet::from(["id", "title"].map(str::to_owned));
            for segment in &self.segments {
                let found = segment.postings.field_names(&mut names);
                found.map_err(self.unreadable())?;
            }
            Ok(names)
        })
    }

    /// Tells whether a passage has this title, letter by letter: a search for its words would find none where all of them are passed over.
    ///
    /// # Errors
    /// [`RetrieverError::Postings`] when the dictionary cannot be read.
    pub fn has_title(&self, title: &str) -> Result<bool, RetrieverError> {
        guarded(&self.place, || {
            for segment in &self.segments {
                let found = segment.field_docs("title", title, &CancelFlag::default());
                if !found.map_err(self.unreadable())?.is_empty() {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    fn count(&self, texts: &[&str]) -> Result<Statistics, RetrieverError> {
        let totals = self.totals();
        let mut frequencies = BTreeMap::new();
        let mut bag = Bag::default();
        for text in texts {
            bag.fill(text);
            for (term, _) in bag.terms() {
                if !frequencies.contains_key(term) {
                    frequencies.insert(
                        term.to_owned(),
                        self.frequency(term).map_err(self.unreadable())?,
                    );
                }
            }
        }
        Ok(Statistics {
            passages: totals.docs,
            tokens: totals.tokens,
            frequencies,
        })
    }

    /// Passages that hold an analysed term.
    fn frequency(&self, term: &str) -> io::Result<u64> {
        let mut frequency = 0;
        for segment in &self.segments {
            frequency += segment
                .postings
                .find(term)?
                .map_or(0, |found| u64::from(found.info.doc_freq));
        }
        Ok(frequency)
    }

    /// Sums over the segments.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for of_segment in self.segments.iter().map(Segment::totals) {
            totals.docs += of_segment.docs;
            totals.tokens += of_segment.tokens;
        }
        totals
    }

    /// BM25 as part of a collection with these totals.
    pub(crate) fn ranking(&self, totals: Totals, params: Bm25Params) -> Ranking {
        let scorer = Scorer::new(totals, params);
        let built_for = self.manifest.bm25;
        let widening = self
            .segments
            .iter()
            .map(|segment| scorer.widening(&segment.bounds_scorer(built_for)))
            .collect();
        Ranking { scorer, widening }
    }

    /// The documents of every segment that pass a filter; `None` when everything does.
    pub(crate) fn allowed(
        &self,
        filter: &Filter,
        cancel: &CancelFlag,
    ) -> Result<Option<Vec<DocSet>>, RetrieverError> {
        if filter.is_empty() {
            return Ok(None);
        }
        let mut sets = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            sets.extend(segment.allowed(filter, cancel).map_err(self.unreadable())?);
        }
        Ok(Some(sets))
    }

    /// The best `k` ordinals for a bag of words, best first, ties by external id.
    ///
    /// `frequencies` overrides the frequencies of terms it knows; the filter leaves passages out without changing scores.
    pub(crate) fn top(
        &self,
        ranking: &Ranking,
        query: &Query,
        frequencies: Option<&BTreeMap<String, u64>>,
        k: usize,
        scratch: &mut Scratch,
    ) -> Result<Vec<(u32, f32)>, RetrieverError> {
        let allowed = self.allowed(&query.filter, &query.cancel)?;
        let parts: Vec<SegmentPart<'_>> = (self.segments.iter().zip(&ranking.widening).enumerate())
            .map(|(slot, (segment, &widening))| SegmentPart {
                postings: &segment.postings,
                bounds: &segment.bounds,
                widening,
                allowed: allowed.as_ref().map(|sets| &sets[slot]),
            })
            .collect();
        ranking
            .scorer
            .prepare(&parts, &query.text, frequencies, scratch)
            .map_err(self.unreadable())?;
        let mut best: Vec<(u32, f32)> = Vec::new();
        for (slot, segment) in self.segments.iter().enumerate() {
            if parts[slot]
                .allowed
                .is_some_and(|allowed| allowed.count() == 0)
            {
                continue;
            }
            let (most, floor) = (k.min(segment.len()), floor(&best, k));
            let wanted = Wanted {
                k: most,
                floor,
                cancel: &query.cancel,
            };
            let of_segment = ranking.scorer.top(&parts, slot, wanted, scratch);
            let of_segment = of_segment.map_err(self.unreadable())?;
            self.merge_ranked(&mut best, segment, of_segment, k)?;
        }
        Ok(best)
    }

    /// Adds the ranks and scores of a segment's best documents to the best `k` ordinals of the segments before it.
    pub(crate) fn merge_ranked(
        &self,
        best: &mut Vec<(u32, f32)>,
        segment: &Segment,
        of_segment: Vec<(u32, f32)>,
        k: usize,
    ) -> Result<(), RetrieverError> {
        let is_first = best.is_empty();
        for (rank, score) in of_segment {
            best.push((segment.info.base + segment.local_at_rank(rank)?, score));
        }
        if !is_first {
            best.sort_by(|(one, one_score), (other, other_score)| {
                let scores = other_score.total_cmp(one_score);
                scores.then_with(|| self.sort_key(*one).cmp(self.sort_key(*other)))
            });
            best.truncate(k);
        }
        Ok(())
    }

    /// The external id; empty for a passage that does not read back, which then fails when it is fetched.
    fn sort_key(&self, ordinal: u32) -> &str {
        self.document(ordinal).map_or("", |document| document.id)
    }

    pub(crate) fn unreadable(&self) -> impl Fn(io::Error) -> RetrieverError {
        let path = self.place.clone();
        move |source| {
            let source = match source.downcast::<RetrieverError>() {
                Ok(cancelled) => return cancelled,
                Err(source) => source,
            };
            match source.downcast::<IndexError>() {
                Ok(fault) => fault.into(),
                Err(source) => RetrieverError::Postings {
                    path: path.clone(),
                    source,
                },
            }
        }
    }
}

/// The score that a passage of the next segment must exceed: with the very score of the k-th so far its id may still win.
pub(crate) fn floor(best: &[(u32, f32)], k: usize) -> f32 {
    match best.last() {
        Some((_, score)) if best.len() == k => score.next_down(),
        _ => f32::NEG_INFINITY,
    }
}
