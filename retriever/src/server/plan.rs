//! The plan of a request: which retriever answers it, in which jobs.

use std::sync::Arc;
use std::time::Instant;

use axum::response::Response;
use forage_contracts::retriever::{CancelFlag, Hit, ParseIssue, Query, Retriever, RetrieverError};
use forage_net::{Refusal, Room, Ticket};

use super::answer::{Part, assemble, push_snippet, put};
use super::app::App;
use super::fault::Fault;
use super::request::{RerankRequest, RetrieveRequest, Shape};
use crate::mode::Mode;
use crate::rerank::{Reranker, reorder, scores};
use crate::retriever::Bm25Retriever;
use crate::snippet::Snippet;
use crate::statistics::Statistics;

/// Queries per job. BM25 takes well under a millisecond each, so a job is a few milliseconds: long against the cost of
/// handing it over, short against what another request may be kept waiting.
const QUERIES_PER_JOB: usize = 8;
/// Passages per job at most, unless one query asks for more: they are in memory until they are written.
const PASSAGES_PER_JOB: usize = 1000;
/// Queries per job where a model encodes them, which is faster together.
const ENCODED_PER_JOB: usize = 32;

/// Characters of an excerpt at most: a passage of Search-R1's corpus, a paragraph of a longer one.
const EXCERPT_CHARS: usize = 700;

/// A request with everything needed to answer any part of it.
struct Plan {
    request: RetrieveRequest,
    mode: Mode,
    search: Search,
    reranker: Option<Arc<dyn Reranker>>,
}

/// How hits are found.
enum Search {
    Retriever(Arc<dyn Retriever>),
    /// With what was repaired in each query.
    Boolean(Arc<Bm25Retriever>),
    /// As one shard of the collection that has these statistics.
    Shard(Arc<Bm25Retriever>, Statistics),
}

/// Per query.
type Lists = Vec<Vec<Hit>>;
/// Per query, or nothing outside boolean mode.
type Issues = Vec<Vec<ParseIssue>>;

/// Answers a request for passages.
pub(super) async fn retrieve(
    app: &App,
    ticket: &Ticket,
    mut request: RetrieveRequest,
) -> Result<Response, Fault> {
    let begin = Instant::now();
    let waiting = Waiting::default();
    for query in &mut request.queries {
        query.cancel = waiting.0.clone();
    }
    let (shape, count) = (request.shape, request.queries.len());
    let room = app.room.beside();
    let plan = Arc::new(plan(app, request)?);
    let per_job = plan.queries_per_job();
    let job = |number: usize| {
        let (plan, room) = (plan.clone(), room.clone());
        async move {
            let end = ((number + 1) * per_job).min(count);
            plan.part(number * per_job, end, &room).await
        }
    };
    let parts = app
        .pool
        .run_all(ticket, count.div_ceil(per_job), job)
        .await?;
    app.metrics.queries.inc_by(count as u64);
    Ok(room.answer(assemble(parts, shape, begin.elapsed())))
}

/// Ends the searches of a request that is given up: its time is over, or its client has gone.
struct Waiting(CancelFlag);

impl Default for Waiting {
    fn default() -> Self {
        Self(CancelFlag::new())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn plan(app: &App, mut request: RetrieveRequest) -> Result<Plan, Fault> {
    let services = &app.services;
    let reranker = match (request.candidates, &services.reranker) {
        (None, _) => None,
        (Some(_), Some(reranker)) => Some(reranker.clone()),
        (Some(_), None) => {
            let msg = "this server has no reranker; leave out topk_retrieval and topk_rerank, or start it with one";
            return Err(Fault::invalid("unsupported", "topk_rerank", msg));
        }
    };
    let mode = request.mode.unwrap_or(services.default_mode);
    let search = match (request.statistics.take(), mode, &services.bm25) {
        (None, mode, Some(bm25)) if mode == Mode::BOOLEAN => Search::Boolean(bm25.clone()),
        (None, ..) => {
            let Some(retriever) = services.retrievers.get(&mode) else {
                let names: Vec<&str> = services.modes().into_iter().map(Mode::name).collect();
                let msg = format!(
                    "this server has no mode {mode}; it has {}",
                    names.join(", ")
                );
                return Err(Fault::invalid("unsupported", "mode", msg));
            };
            Search::Retriever(retriever.clone())
        }
        (Some(statistics), mode, Some(bm25)) if mode == Mode::BM25 => {
            Search::Shard(bm25.clone(), statistics)
        }
        (Some(_), ..) => {
            let msg = "given statistics rank by BM25 only, on a server that holds an index";
            return Err(Fault::invalid("unsupported", "statistics", msg));
        }
    };
    Ok(Plan {
        request,
        mode,
        search,
        reranker,
    })
}

impl Plan {
    fn queries_per_job(&self) -> usize {
        // A boolean query may read passages for seconds, as a model may.
        if self.reranker.is_some() || self.mode == Mode::BOOLEAN {
            return 1;
        }
        let most = if self.mode.needs_encoder {
            ENCODED_PER_JOB
        } else {
            QUERIES_PER_JOB
        };
        (PASSAGES_PER_JOB / self.request.k.max(1)).clamp(1, most)
    }

    /// The answer to queries `begin..end`, which goes into `room`.
    async fn part(&self, begin: usize, end: usize, room: &Room) -> Result<Part, Fault> {
        let request = &self.request;
        let queries = &request.queries[begin..end];
        let mut part = Part::default();
        let (lists, issues) = self
            .hits(queries, request.candidates.unwrap_or(request.k))
            .await?;
        if lists.len() != queries.len() {
            // Pairing answers with the wrong queries is the one thing that must never happen.
            return Err(Refusal::Panicked.into());
        }
        for (query, hits) in queries.iter().zip(lists) {
            query.cancel.check()?;
            let hits = match &self.reranker {
                Some(reranker) => reorder(reranker.as_ref(), query, hits, request.k)?,
                None => hits,
            };
            part.push_hits(hits, request.shape, room, |hit, out| {
                if request.snippets {
                    push_snippet(out, &Snippet::new(&hit.text, &query.text, EXCERPT_CHARS));
                }
            })?;
        }
        for repaired in &issues {
            part.push_issues(repaired, room)?;
        }
        Ok(part)
    }

    /// The hits of each query and, in boolean mode, what was repaired in it.
    async fn hits(&self, queries: &[Query], k: usize) -> Result<(Lists, Issues), RetrieverError> {
        match &self.search {
            Search::Retriever(retriever) => Ok((retriever.search(queries, k).await?, Vec::new())),
            Search::Shard(bm25, statistics) => {
                let lists = queries
                    .iter()
                    .map(|query| bm25.search_with(query, k, statistics));
                Ok((lists.collect::<Result<_, _>>()?, Vec::new()))
            }
            Search::Boolean(bm25) => {
                let answers = queries.iter().map(|query| bm25.search_boolean(query, k));
                let answers = answers.collect::<Result<Vec<_>, _>>()?;
                Ok(answers
                    .into_iter()
                    .map(|answer| (answer.hits, answer.issues))
                    .unzip())
            }
        }
    }
}

/// Answers a request to score given documents: equal scores keep the order given.
pub(super) async fn rerank_documents(
    app: &App,
    ticket: &Ticket,
    request: RerankRequest,
) -> Result<Response, Fault> {
    let begin = Instant::now();
    let Some(reranker) = app.services.reranker.clone() else {
        return Err(Fault::NotFound(
            "this server has no reranker; start it with one".to_owned(),
        ));
    };
    let count = request.queries.len();
    let room = app.room.beside();
    let waiting = Waiting::default();
    let shared = Arc::new((request, reranker, waiting.0.clone()));
    let job = |number: usize| {
        let (shared, room) = (shared.clone(), room.clone());
        async move {
            let (request, reranker, cancel) = shared.as_ref();
            let (query, texts) = (&request.queries[number], &request.documents[number]);
            let scores = scores(reranker.as_ref(), query, texts, cancel)?;
            let mut ranked: Vec<(&str, f32)> =
                texts.iter().map(String::as_str).zip(scores).collect();
            ranked.sort_by(|left, right| right.1.total_cmp(&left.1));
            ranked.truncate(request.k);
            let mut part = Part::default();
            part.push_texts(&ranked, request.scores);
            room.take(part.bytes())?;
            Ok(part)
        }
    };
    let parts = app.pool.run_all(ticket, count, job).await?;
    app.metrics.queries.inc_by(count as u64);
    Ok(room.answer(assemble(parts, Shape::Bare, begin.elapsed())))
}

/// Answers a front of shards that asks what this part adds to the collection.
pub(super) async fn statistics(
    app: &App,
    ticket: &Ticket,
    texts: Vec<String>,
) -> Result<Response, Fault> {
    let Some(bm25) = app.services.bm25.clone() else {
        return Err(Fault::NotFound(
            "this server holds no index to count in".to_owned(),
        ));
    };
    let waiting = Waiting::default();
    let cancel = waiting.0.clone();
    let room = app.room.beside();
    let taken = Arc::clone(&room);
    let job = async move {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let index = bm25.index();
        let mut counted = index.statistics(&[])?;
        for some in texts.chunks(QUERIES_PER_JOB) {
            cancel.check()?;
            let more = index.statistics(some)?;
            counted.frequencies.extend(more.frequencies);
        }
        let mut out = Vec::new();
        put(&mut out, &counted);
        taken.take(out.len())?;
        Ok::<_, Fault>(out)
    };
    let counted = app.pool.run(ticket, job).await??;
    Ok(room.answer(vec![counted.into()]))
}
