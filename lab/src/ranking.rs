//! The evaluation of rankers: a retriever or a cascade on judged queries, and lists under attack.

mod attack;
mod cascade;
mod certificate;
mod robustness;
mod synonyms;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use forage_eval::{Bootstrap, RetrievalReport, write_atomic};
use forage_retriever::{Hit, Index, Query, QueryRecord, Retriever, read_qrels};

use crate::error::{Context, Result, bail, refuse};
use crate::lock::FileLock;
use crate::retrieval::RetrieverConfig;
use crate::runtime::runtime;

/// Queries and what ranks passages for them.
pub struct Ranking<'a> {
    /// The search for passages.
    pub retrieval: &'a RetrieverConfig,
    /// The folder of an index.
    pub index: Option<&'a Path>,
    /// A TOML file that names a remote retriever, instead of an index.
    pub remote: Option<&'a Path>,
    /// JSON lines with `_id` and `text`.
    pub queries: &'a Path,
    /// Documents per query.
    pub depth: usize,
}

/// Queries handed to the retriever at once: enough to fill its batches.
const QUERIES_PER_CALL: usize = 64;

/// Ranks that metrics are cut at.
const CUTOFFS: [usize; 6] = [1, 3, 5, 10, 100, 1000];

/// Grades by query and passage.
type Qrels = BTreeMap<String, BTreeMap<String, i32>>;

impl Ranking<'_> {
    /// Ranks queries that are judged in `qrels`, TREC qrels or BEIR tsv: nDCG, MRR, recall, MAP as `trec_eval` computes them. The
    /// ranking is written to `run`, as a TREC run, when it is complete. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When a file cannot be read or written, no query is judged, the index has none of the relevant passages, or a search fails.
    pub fn evaluate(&self, qrels: &Path, run: Option<&Path>) -> Result<RetrievalReport> {
        let Self {
            retrieval, depth, ..
        } = *self;
        let own = run.and_then(|run| run.canonicalize().ok());
        let inputs = [self.queries, qrels];
        if let Some(own) = own
            && inputs
                .iter()
                .any(|input| input.canonicalize().is_ok_and(|input| input == own))
        {
            refuse!(
                "--run: {} is a file that is read; name another one",
                own.display()
            );
        }
        let index = match (self.index, self.remote) {
            (Some(folder), None) => Some(Arc::new(Index::open(folder)?)),
            _ => None,
        };
        let retriever = match &index {
            Some(index) => retrieval.over(index)?,
            None => retrieval.open(self.index, self.remote)?,
        };
        let queries = QueryRecord::read_all(self.queries)?;
        let qrels = match &index {
            Some(index) => judgments_of(index, qrels)?,
            None => read_qrels(qrels)?,
        };
        check_judged(&queries, &qrels, self.queries)?;
        // A device or a pipe is written to as it is.
        let file = run.filter(|place| place.is_file() || place.is_dir() || !place.exists());
        let _lock = file.map(FileLock::take).transpose()?;
        let mut lines = String::new();
        let tag = format!("forage-{}", retrieval.mode);
        let mut rankings = BTreeMap::new();
        for chunk in queries.chunks(QUERIES_PER_CALL) {
            let found = search(retriever.as_ref(), chunk, &qrels, depth)?;
            for (query, hits) in chunk.iter().zip(found) {
                let hits = as_trec_eval(&hits);
                if run.is_some() {
                    let scored = hits.iter().map(|hit| (hit.id.as_str(), hit.score));
                    write_run(&mut lines, &query.id, scored, &tag)?;
                }
                let ids = hits.into_iter().map(|hit| hit.id.clone()).collect();
                rankings.insert(query.id.clone(), ids);
            }
        }
        if let Some(file) = run {
            write_atomic(file, lines.as_bytes())
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        let cutoffs: Vec<usize> = CUTOFFS.into_iter().filter(|&at| at <= depth).collect();
        Ok(RetrievalReport::of(
            &rankings,
            &qrels,
            &cutoffs,
            Bootstrap::new(1),
        )?)
    }
}

/// Reads judgments of the passages of an index. Refuses those of which it has no relevant passage: every metric would be 0.
fn judgments_of(index: &Index, path: &Path) -> Result<Qrels> {
    let qrels = read_qrels(path)?;
    let mut missing = None;
    for (query, grades) in &qrels {
        for (id, _) in grades.iter().filter(|(_, grade)| **grade > 0) {
            if index.ordinal_of(id)?.is_some() {
                return Ok(qrels);
            }
            missing = missing.or(Some((query, id)));
        }
    }
    let Some((query, id)) = missing else {
        return Ok(qrels);
    };
    refuse!(
        "{} judges no passage of the index {} relevant: `{id}` of query `{query}`, for instance, is not in it; name the index of the \
         judged passages, or write their ids as it has them (in an index of several corpora the name of their own stands before them)",
        path.display(),
        index.place().display()
    )
}

/// Refuses queries of which none is judged: every metric would be 0.
fn check_judged(queries: &[QueryRecord], qrels: &Qrels, path: &Path) -> Result<()> {
    if queries.iter().any(|query| qrels.contains_key(&query.id)) {
        return Ok(());
    }
    let first = queries.first().map_or("", |query| query.id.as_str());
    refuse!(
        "no query of {} is judged, `{first}` for instance: name the queries of these judgments, or write their ids as the judgments have them",
        path.display()
    )
}

/// The best `depth` passages for each query. One with the query's id is the query itself, as in `ArguAna` and Quora, and is left out,
/// as in BEIR's evaluation; but where it is judged, which BEIR does not look at, it stays. Blocks.
fn search(
    retriever: &dyn Retriever,
    queries: &[QueryRecord],
    qrels: &Qrels,
    depth: usize,
) -> Result<Vec<Vec<Hit>>> {
    let runtime = runtime()?;
    let ask = |queries: &[&QueryRecord], depth: usize| {
        let asked = queries.iter().map(|query| Query::new(query.text.as_str()));
        let asked: Vec<Query> = asked.collect();
        runtime.block_on(retriever.search(&asked, depth))
    };
    let all: Vec<&QueryRecord> = queries.iter().collect();
    let mut lists = ask(&all, depth)?;
    let is_query = |query: &QueryRecord, hit: &Hit| {
        let judged = qrels.get(&query.id);
        hit.id == query.id && judged.is_none_or(|judged| !judged.contains_key(&hit.id))
    };
    let found = |place: &usize| lists[*place].iter().any(|hit| is_query(all[*place], hit));
    let places: Vec<usize> = (0..lists.len()).filter(found).collect();
    if places.is_empty() {
        return Ok(lists);
    }
    // One more each, so that as many are left.
    let again: Vec<&QueryRecord> = places.iter().map(|&place| all[place]).collect();
    let longer = ask(&again, depth.saturating_add(1))?;
    for (place, mut list) in places.into_iter().zip(longer) {
        list.retain(|hit| !is_query(all[place], hit));
        list.truncate(depth);
        lists[place] = list;
    }
    Ok(lists)
}

/// A list as `trec_eval` reads it, and BEIR's evaluation by it: of equal scores the last id first, where lists have the first.
fn as_trec_eval(list: &[Hit]) -> Vec<&Hit> {
    let mut read: Vec<&Hit> = list.iter().collect();
    for tied in read.chunk_by_mut(|a, b| a.score.total_cmp(&b.score).is_eq()) {
        tied.sort_unstable_by(|a, b| a.id.cmp(&b.id).reverse());
    }
    read
}

/// Adds one query's ranking as TREC run lines: `qid Q0 docid rank score tag`, ranks from 1.
///
/// `ranking` yields passage ids and scores, best first. Scores are printed so that they read back exactly. Refuses ids that would be read
/// back as several columns.
fn write_run<'a>(
    out: &mut String,
    query_id: &str,
    ranking: impl IntoIterator<Item = (&'a str, f32)>,
    tag: &str,
) -> Result<()> {
    for (rank, (document, score)) in (1..).zip(ranking) {
        let mut ids = [query_id, document].into_iter();
        if let Some(id) = ids.find(|id| id.contains(char::is_whitespace)) {
            bail!(
                "--run: the columns of a TREC run are separated by blanks, and the id {id:?} holds one; write it without, in queries or \
                 corpus and in the judgments, or leave out --run"
            );
        }
        let _ = writeln!(out, "{query_id} Q0 {document} {rank} {score} {tag}");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
