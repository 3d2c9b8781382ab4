//! Dense search over the segments of an index.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_contracts::retriever::{
    CancelFlag, Encoder, Filter, Fingerprint, Hit, Query, Retriever, RetrieverError, TextKind,
};

use super::batcher::{Batcher, FULL_BATCH};
use super::storage::DenseManifest;
use super::{VectorIndex, encode_checked, fault};
use crate::cancel;
use crate::index::{Index, Segment, guarded};
use crate::mode::ModeEntry;

/// Nearest vectors.
pub(crate) const MODE: ModeEntry = ModeEntry {
    name: "dense",
    about: "nearest vectors",
    needs_encoder: true,
    open: |searched| {
        let index = Arc::clone(searched.index);
        Ok(Arc::new(DenseRetriever::open(index, searched.encoder()?)?))
    },
};

/// The hits for a query, or [`RetrieverError::Cancelled`] where it was given up while others of its batch were waited for.
type Answer = Result<Vec<Hit>, RetrieverError>;

/// Finds the passages whose vectors have the largest inner products with that of the query.
///
/// Queries of concurrent callers are encoded together on a thread of the retriever, which the model may block; a caller
/// waits up to two milliseconds for others. Every passage of the index is a candidate: there are `k` hits unless a filter
/// or the index has fewer.
pub(crate) struct DenseRetriever {
    batcher: Batcher<(Query, usize), Answer>,
    fingerprint: Fingerprint,
}

impl DenseRetriever {
    /// Searches the vectors of an index with queries encoded by `encoder`.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when the index has no vectors, lacks those of some segments, or has those of another
    /// encoder; the message names the command that makes them.
    pub(crate) fn open(
        index: Arc<Index>,
        encoder: Arc<dyn Encoder>,
    ) -> Result<Self, RetrieverError> {
        let (place, manifest) = (index.place(), index.manifest());
        let Some(dense) = DenseManifest::of(manifest, place)? else {
            let what = format!(
                "the index has none; make them with `forage index embed {}`",
                place.display()
            );
            return Err(fault(place, what));
        };
        check_encoder(&dense, encoder.as_ref(), &index)?;
        let parts = manifest
            .segments
            .iter()
            .map(|segment| dense.open(place, segment));
        let parts: Vec<Box<dyn VectorIndex>> = parts.collect::<Result<_, _>>()?;
        let digests = dense.digests(manifest);
        let parameters = parts
            .first()
            .map_or_else(String::new, |part| part.parameters());
        let kind = parts.first().map_or("", |part| part.kind().name());
        let (corpus, encoded_by) = (&index.manifest().contents_digest, encoder.identity());
        let named = format!(
            "dense\ncorpus={corpus}\nencoder={encoded_by}\nindex={kind} {parameters}\n{digests}"
        );
        let fingerprint = Fingerprint::of(&named);
        let searcher = Searcher {
            index,
            encoder,
            parts,
        };
        let batcher = Batcher::start("forage-dense", move |queries: &[(Query, usize)]| {
            searcher.answer(queries)
        })?;
        Ok(Self {
            batcher,
            fingerprint,
        })
    }
}

#[async_trait::async_trait]
impl Retriever for DenseRetriever {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if queries.is_empty() || k == 0 {
            return Ok(vec![Vec::new(); queries.len()]);
        }
        let queries = queries.iter().map(|query| (query.clone(), k)).collect();
        self.batcher.submit(queries).await?.into_iter().collect()
    }
}

fn check_encoder(
    dense: &DenseManifest,
    encoder: &dyn Encoder,
    index: &Index,
) -> Result<(), RetrieverError> {
    let identity = encoder.identity();
    if let Some(made_by) = &dense.encoder
        && *made_by != identity
    {
        let what = format!(
            "made by encoder {made_by}, queries come from {identity}; use that encoder or embed again"
        );
        return Err(fault(index.place(), what));
    }
    if dense.dimension != encoder.dimension() {
        let (expected, found) = (dense.dimension, encoder.dimension());
        let what = format!(
            "{expected} numbers each, encoder {identity} gives {found}; use the encoder that made them"
        );
        return Err(fault(index.place(), what));
    }
    Ok(())
}

/// The parts that the retriever's thread searches with.
struct Searcher {
    index: Arc<Index>,
    encoder: Arc<dyn Encoder>,
    /// One per segment.
    parts: Vec<Box<dyn VectorIndex>>,
}

/// A row of a segment with its score.
struct Candidate {
    score: f32,
    segment: usize,
    rank: u32,
}

impl Searcher {
    fn answer(&self, queries: &[(Query, usize)]) -> Result<Vec<Answer>, RetrieverError> {
        let dimension = self.encoder.dimension();
        let mut encoded = Vec::with_capacity(queries.len() * dimension);
        for batch in queries.chunks(FULL_BATCH) {
            cancel::all(queries.iter().map(|(query, _)| &query.cancel)).check()?;
            let texts: Vec<&str> = batch.iter().map(|(query, _)| query.text.as_str()).collect();
            encoded.extend(encode_checked(
                self.encoder.as_ref(),
                TextKind::Query,
                &texts,
            )?);
        }
        // Those that want the same of the same passages are searched together.
        let mut groups: BTreeMap<(&Filter, usize), Vec<usize>> = BTreeMap::new();
        for (at, (query, k)) in queries.iter().enumerate() {
            groups.entry((&*query.filter, *k)).or_default().push(at);
        }
        let mut answers: Vec<Answer> = queries.iter().map(|_| Ok(Vec::new())).collect();
        for ((filter, k), members) in groups {
            let rows = members
                .iter()
                .flat_map(|&at| &encoded[at * dimension..(at + 1) * dimension]);
            let rows: Vec<f32> = rows.copied().collect();
            let flags = members.iter().map(|&at| &queries[at].0.cancel);
            let cancel = cancel::all(flags);
            let found = match self.candidates(&rows, k, filter, &cancel) {
                Err(failure) if matches!(failure.root(), RetrieverError::Cancelled) => {
                    for at in members {
                        answers[at] = Err(RetrieverError::Cancelled);
                    }
                    continue;
                }
                found => found?,
            };
            for (at, candidates) in members.into_iter().zip(found) {
                answers[at] = Ok(self.hits(candidates, k)?);
            }
        }
        Ok(answers)
    }

    /// The best `k` of every segment, for each query.
    fn candidates(
        &self,
        queries: &[f32],
        k: usize,
        filter: &Filter,
        cancel: &CancelFlag,
    ) -> Result<Vec<Vec<Candidate>>, RetrieverError> {
        let count = queries.len() / self.encoder.dimension();
        let mut found: Vec<Vec<Candidate>> = (0..count).map(|_| Vec::new()).collect();
        for (number, (segment, part)) in self.index.segments().iter().zip(&self.parts).enumerate() {
            let allowed = self.allowed(segment, filter, cancel)?;
            let of_segment = part.search(queries, k, allowed.as_deref(), cancel)?;
            for (found, rows) in found.iter_mut().zip(of_segment) {
                found.extend(rows.into_iter().map(|(rank, score)| Candidate {
                    score,
                    segment: number,
                    rank,
                }));
            }
        }
        Ok(found)
    }

    fn allowed(
        &self,
        segment: &Segment,
        filter: &Filter,
        cancel: &CancelFlag,
    ) -> Result<Option<Vec<bool>>, RetrieverError> {
        let allowed = guarded(self.index.place(), || {
            let allowed = segment.allowed(filter, cancel);
            allowed.map_err(self.index.unreadable())
        })?;
        Ok(allowed.map(|allowed| {
            (0..segment.len() as u32)
                .map(|rank| allowed.contains(rank))
                .collect()
        }))
    }

    /// The best `k` candidates of all segments, ties by id. Rows of a segment lie in the order of ids, so its own ties are
    /// cut rightly already.
    fn hits(&self, mut candidates: Vec<Candidate>, k: usize) -> Result<Vec<Hit>, RetrieverError> {
        candidates.sort_by(|one, other| other.score.total_cmp(&one.score));
        if let Some(last) = candidates.get(k.saturating_sub(1)).map(|last| last.score) {
            candidates.retain(|candidate| candidate.score >= last);
        }
        let mut hits = Vec::with_capacity(candidates.len());
        for Candidate {
            score,
            segment,
            rank,
        } in candidates
        {
            let segment = &self.index.segments()[segment];
            let document = segment.document(segment.local_at_rank(rank)?)?;
            hits.push(Hit {
                id: document.id.to_owned(),
                score,
                title: document.title.to_owned(),
                text: document.text.to_owned(),
            });
        }
        hits.sort_by(Hit::rank);
        hits.truncate(k);
        Ok(hits)
    }
}
