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

/// Passages by query, best first.
type Rankings = BTreeMap<String, Vec<String>>;

impl Ranking<'_> {
    /// Ranks queries that are judged in `qrels`, TREC qrels or BEIR tsv: nDCG, MRR, recall, MAP as `trec_eval` computes them. The
    /// ranking is written to `run`, as a TREC run, when it is complete. `against` is the TREC run of another search, scored in the same
    /// way: its report is the second. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When a file cannot be read or written, no query is judged, the index has none of the relevant passages, or a search fails.
    pub fn evaluate(
        &self,
        qrels: &Path,
        run: Option<&Path>,
        against: Option<&Path>,
    ) -> Result<(RetrievalReport, Option<RetrievalReport>)> {
        let Self {
            retrieval, depth, ..
        } = *self;
        let own = run.and_then(|run| run.canonicalize().ok());
        let inputs = [Some(self.queries), Some(qrels), against];
        if let Some(own) = own
            && inputs
                .into_iter()
                .flatten()
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
        check_judged(queries.iter().map(|query| &query.id), &qrels, self.queries)?;
        let other = against.map(|path| read_run(path, &qrels, depth));
        let other = other.transpose()?;
        // A device or a pipe is written to as it is.
        let file = run.filter(|place| place.is_file() || place.is_dir() || !place.exists());
        let _lock = file.map(FileLock::take).transpose()?;
        let mut lines = String::new();
        let tag = format!("forage-{}", retrieval.mode);
        let mut rankings = Rankings::new();
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
        let score = |rankings: &Rankings| {
            RetrievalReport::of(rankings, &qrels, &cutoffs, Bootstrap::new(1))
        };
        let other = other.as_ref().map(score).transpose()?;
        Ok((score(&rankings)?, other))
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
fn check_judged<'a>(
    queries: impl IntoIterator<Item = &'a String>,
    qrels: &Qrels,
    path: &Path,
) -> Result<()> {
    let mut first = None;
    for query in queries {
        if qrels.contains_key(query) {
            return Ok(());
        }
        first = first.or(Some(query));
    }
    let first = first.map_or("", String::as_str);
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
    let found = |place: &usize| {
        let query = &all[*place].id;
        lists[*place].iter().any(|hit| is_query(query, hit, qrels))
    };
    let places: Vec<usize> = (0..lists.len()).filter(found).collect();
    if places.is_empty() {
        return Ok(lists);
    }
    // One more each, so that as many are left.
    let again: Vec<&QueryRecord> = places.iter().map(|&place| all[place]).collect();
    let longer = ask(&again, depth.saturating_add(1))?;
    for (place, mut list) in places.into_iter().zip(longer) {
        list.retain(|hit| !is_query(&all[place].id, hit, qrels));
        list.truncate(depth);
        lists[place] = list;
    }
    Ok(lists)
}

/// Tells whether a hit is the query itself and not judged for it.
fn is_query(query: &str, hit: &Hit, qrels: &Qrels) -> bool {
    let judged = qrels.get(query);
    hit.id == query && judged.is_none_or(|judged| !judged.contains_key(&hit.id))
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

/// Reads the lists of a TREC run as those of a search are taken: the best `depth` passages by score, whatever the ranks say, without the
/// query itself.
fn read_run(path: &Path, qrels: &Qrels, depth: usize) -> Result<Rankings> {
    let place = path.display();
    let text = std::fs::read_to_string(path)
        .in_config(format!("--against: cannot read {place}; check the path"))?;
    let mut scores: BTreeMap<&str, BTreeMap<&str, f32>> = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (query, passage, score) = match columns.as_slice() {
            [] => continue,
            [query, _, passage, _, score, _] => (*query, *passage, *score),
            _ => refuse!(
                "--against: {place} line {number} has {} columns and not the 6 of a TREC run, `qid Q0 docid rank score tag`; name a file \
                 that --run wrote, or fix the line",
                columns.len()
            ),
        };
        let parsed = score.parse::<f32>().ok().filter(|score| score.is_finite());
        let Some(parsed) = parsed else {
            refuse!(
                "--against: {place} line {number}: the score `{score}` is not a finite number; fix the line"
            );
        };
        let known = scores.entry(query).or_default().insert(passage, parsed);
        if known.is_some() {
            refuse!(
                "--against: {place} line {number} ranks passage `{passage}` for query `{query}` a second time; remove one of the lines"
            );
        }
    }
    if scores.is_empty() {
        refuse!("--against: {place} holds no line of a TREC run; name a file that --run wrote");
    }
    let mut rankings = Rankings::new();
    for (query, scored) in scores {
        let hits = scored.into_iter().map(|(id, score)| Hit {
            id: id.to_owned(),
            score,
            title: String::new(),
            text: String::new(),
        });
        let mut list: Vec<Hit> = hits.collect();
        list.sort_by(Hit::rank);
        list.retain(|hit| !is_query(query, hit, qrels));
        list.truncate(depth);
        let ids = as_trec_eval(&list).into_iter();
        rankings.insert(query.to_owned(), ids.map(|hit| hit.id.clone()).collect());
    }
    check_judged(rankings.keys(), qrels, path)?;
    Ok(rankings)
}

#[cfg(test)]
mod tests;
