//! Cascades: stages that put fewer and fewer candidates in order at a higher and higher price. What each adds, and what it costs.

mod player;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cpu_time::ProcessTime;
use forage_eval::{Bootstrap, Interval, RetrievalReport};
use forage_retriever::{Bm25Retriever, Hit, Index, Mode, QueryRecord, Reranker};
use serde::Serialize;

use super::{QUERIES_PER_CALL, Qrels, Ranking, as_trec_eval, check_judged, judgments_of, search};
use crate::config::Resolved;
use crate::error::{Context, Result, refuse};
use crate::observer::Observer;
use crate::retrieval::RetrieverConfig;
use player::Player;

/// The stage of a BERT cross-encoder, and that of a policy.
const CROSS_ENCODER: &str = "cross-encoder";
const POLICY: &str = "policy";

impl Ranking<'_> {
    /// Ranks the queries that are judged in `qrels` stage by stage. A stage is written `NAME:CANDIDATES`: the first is a search
    /// mode and finds so many passages, each of the others (`bm25`, `dense`, `cross-encoder`, `policy`) puts so many of the
    /// first in order anew and leaves those behind them as they are. `policy` plays the environment of a config, with another
    /// policy of this name where there is one. Blocks, so async code must not call it.
    ///
    /// # Errors
    /// When a stage is not known or lacks its model, a model has no stage, no query or no passage of the index is judged, a file cannot be
    /// read, or a stage fails.
    pub fn cascade(
        &self,
        qrels: &Path,
        stages: &[String],
        policy: Option<(&Resolved, Option<&str>)>,
        observer: &dyn Observer,
    ) -> Result<impl fmt::Display + Serialize + use<>> {
        let stages = stages.iter().map(|stage| parse(stage));
        let stages: Vec<(&str, usize)> = stages.collect::<Result<_>>()?;
        let Some((&(mode, depth), later)) = stages.split_first() else {
            refuse!("--stages: name at least one stage, such as bm25:100");
        };
        let finds: Mode = mode
            .parse()
            .in_config("--stages: the first stage is a search mode")?;
        let has = |name: &str| later.iter().any(|&(stage, _)| stage == name);
        if self.retrieval.reranker.is_some() && !has(CROSS_ENCODER) {
            refuse!("--stages: no stage is `{CROSS_ENCODER}`: add it, or leave --reranker out");
        }
        let words = [Mode::BM25, Mode::BOOLEAN].contains(&finds);
        if self.retrieval.encoder.is_some() && words && !has("dense") {
            refuse!("--stages: no stage is `dense` or `hybrid`: add one, or leave --encoder out");
        }
        let Some(folder) = self.index else {
            refuse!("--stages: a cascade begins in an index folder; give --index");
        };
        let index = Arc::new(Index::open(folder)?);
        let qrels = judgments_of(&index, qrels)?;
        let mut queries = QueryRecord::read_all(self.queries)?;
        check_judged(queries.iter().map(|query| &query.id), &qrels, self.queries)?;
        queries.retain(|query| qrels.contains_key(&query.id));
        let first = RetrieverConfig {
            mode: finds,
            reranker: None,
            cache_entries: 0,
            ..self.retrieval.clone()
        };
        let retriever = first.over(&index)?;
        let judged = Judged {
            queries: &queries,
            qrels: &qrels,
            cutoffs: [10, 100, 1000]
                .into_iter()
                .filter(|&at| at <= depth.max(10))
                .collect(),
        };
        let mut sorters = Vec::with_capacity(later.len());
        for &(name, most) in later {
            sorters.push(match (name, policy) {
                (POLICY, Some((config, policy))) => Sorter::Policy(Box::new(Player::open(
                    config, policy, most, &judged, observer,
                )?)),
                (POLICY, None) => {
                    refuse!("--stages: `policy` plays the environment of a config; give --config")
                }
                _ => Sorter::Model(self.model(name, &index)?),
            });
        }

        let meter = Meter::start();
        let mut lists: Vec<Vec<Hit>> = Vec::with_capacity(queries.len());
        for chunk in queries.chunks(QUERIES_PER_CALL) {
            lists.extend(search(retriever.as_ref(), chunk, &qrels, depth)?);
        }
        let cost = meter.stop(index.len() * queries.len());
        let mut reports = vec![(mode, cost, judged.report(&lists)?)];
        let (mut unranked, mut lost) = (0, BTreeSet::new());
        for (&(name, most), sorter) in later.iter().zip(sorters) {
            let meter = Meter::start();
            let mut seen = 0;
            match sorter {
                Sorter::Model(model) => {
                    for (query, list) in queries.iter().zip(&mut lists) {
                        seen += sort(model.as_ref(), &query.text, list, most)?;
                    }
                }
                Sorter::Policy(player) => {
                    let (left, faults) = player.sort(&queries, &mut lists, most)?;
                    unranked += left;
                    lost.extend(faults);
                    seen = player.shown();
                }
            }
            reports.push((name, meter.stop(seen), judged.report(&lists)?));
        }
        let rows = reports
            .into_iter()
            .map(|(name, cost, report)| judged.row(name, cost, &report, &lost));
        Ok(Cascade {
            queries: queries.len(),
            unasked: qrels.len().saturating_sub(queries.len()),
            unranked,
            faults: lost.len(),
            stages: rows.collect::<Result<_>>()?,
        })
    }

    /// The model of a later stage.
    fn model(&self, name: &str, index: &Arc<Index>) -> Result<Arc<dyn Reranker>> {
        let config = self.retrieval;
        match name {
            "bm25" => Ok(Arc::new(Bm25Retriever::new(Arc::clone(index)))),
            "dense" => {
                let encoder = config
                    .open_encoder()?
                    .in_config("--stages: `dense` scores by vectors; name an encoder")?;
                Ok(<dyn Reranker>::by_vectors(encoder))
            }
            CROSS_ENCODER => config
                .open_reranker()?
                .in_config("--stages: `cross-encoder` needs a reranker; name its folder"),
            _ => refuse!(
                "--stages: `{name}` cannot be a later stage; use bm25, dense, {CROSS_ENCODER} or {POLICY}"
            ),
        }
    }
}

/// `NAME:CANDIDATES`.
fn parse(stage: &str) -> Result<(&str, usize)> {
    let parts = stage.split_once(':').and_then(|(name, count)| {
        let count: usize = count.parse().ok()?;
        (count > 0).then_some((name, count))
    });
    parts.in_config(format!(
        "--stages: `{stage}` is not NAME:CANDIDATES, such as bm25:100"
    ))
}

/// What puts the candidates of a later stage in order.
enum Sorter {
    Model(Arc<dyn Reranker>),
    Policy(Box<Player>),
}

/// Puts the first `most` of a list in order by a model's scores; gives their number.
fn sort(model: &dyn Reranker, query: &str, list: &mut [Hit], most: usize) -> Result<usize> {
    let seen = most.min(list.len());
    let scores = model.score_hits(query, &list[..seen])?;
    for (hit, score) in list.iter_mut().zip(scores) {
        hit.score = score;
    }
    list[..seen].sort_by(Hit::rank);
    Ok(seen)
}

/// Time since a stage began, on the clock and of all threads of the process.
struct Meter(Instant, ProcessTime);

/// What a stage cost for all queries: passages that it chose among, CPU time and time, both in seconds.
#[derive(Clone, Copy)]
struct Cost(usize, f64, f64);

impl Meter {
    fn start() -> Self {
        Self(Instant::now(), ProcessTime::now())
    }

    fn stop(self, candidates: usize) -> Cost {
        let (elapsed, used) = (self.0.elapsed(), self.1.elapsed());
        Cost(candidates, used.as_secs_f64(), elapsed.as_secs_f64())
    }
}

/// The queries of a cascade with their judgments.
struct Judged<'a> {
    queries: &'a [QueryRecord],
    qrels: &'a Qrels,
    cutoffs: Vec<usize>,
}

impl Judged<'_> {
    /// The quality of the lists behind a stage.
    fn report(&self, lists: &[Vec<Hit>]) -> Result<RetrievalReport> {
        let ids = |list: &[Hit]| -> Vec<String> {
            let read = as_trec_eval(list).into_iter();
            read.map(|hit| hit.id.clone()).collect()
        };
        let rankings = self.queries.iter().zip(lists);
        let rankings = rankings.map(|(query, list)| (query.id.clone(), ids(list)));
        Ok(RetrievalReport::of(
            &rankings.collect(),
            self.qrels,
            &self.cutoffs,
            Bootstrap::new(1),
        )?)
    }

    /// A stage without the queries that some stage lost, so that all rows are of the same ones.
    fn row(
        &self,
        stage: &str,
        cost: Cost,
        report: &RetrievalReport,
        lost: &BTreeSet<String>,
    ) -> Result<Row> {
        let metrics = report.without(lost)?.metrics.into_iter();
        let per_query = 1.0 / self.queries.len() as f64;
        let Cost(candidates, cpu, elapsed) = cost;
        Ok(Row {
            stage: stage.to_owned(),
            candidates: candidates as f64 * per_query,
            cpu_ms: 1e3 * cpu * per_query,
            ms: 1e3 * elapsed * per_query,
            metrics: metrics.map(|(name, metric)| (name, metric.mean)).collect(),
        })
    }
}

/// A stage: the quality of the lists behind it, and its cost per query.
#[derive(Serialize)]
struct Row {
    stage: String,
    /// Passages that the stage chose among: all of the index for the first.
    candidates: f64,
    /// CPU time of this process, all threads together.
    cpu_ms: f64,
    ms: f64,
    metrics: BTreeMap<String, Interval>,
}

/// The stages of a cascade, the first one first.
#[derive(Serialize)]
struct Cascade {
    queries: usize,
    /// Queries that are judged and were not asked: they count 0, as `trec_eval -c` has it.
    unasked: usize,
    /// Lists that the policy gave no ranking for.
    unranked: usize,
    /// Queries that a fault of the infrastructure took: no row counts them.
    faults: usize,
    stages: Vec<Row>,
}

/// The metrics of the table.
const SHOWN: [&str; 4] = ["ndcg@10", "recall@10", "recall@100", "recall@1000"];

impl fmt::Display for Cascade {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = &self.stages[0].metrics;
        let shown: Vec<&str> = SHOWN
            .into_iter()
            .filter(|name| first.contains_key(*name))
            .collect();
        write!(out, "{:<13}  {:>12}", "stage", "candidates")?;
        for name in &shown {
            write!(out, "  {name:>11}")?;
        }
        writeln!(out, "  {:>10}  {:>10}", "CPU ms", "ms")?;
        for row in &self.stages {
            write!(out, "{:<13}  {:>12.1}", row.stage, row.candidates)?;
            for name in &shown {
                write!(out, "  {:>11.4}", row.metrics[*name].estimate)?;
            }
            writeln!(out, "  {:>10.3}  {:>10.3}", row.cpu_ms, row.ms)?;
        }
        write!(
            out,
            "{} judged queries; candidates and times are those of a stage alone, per query",
            self.queries
        )?;
        let notes = [
            (
                self.unasked,
                "more are judged and not among the queries: they count 0",
            ),
            (
                self.unranked,
                "of them the policy ranked nothing for: these lists stay as they were",
            ),
            (
                self.faults,
                "of them were lost because a part failed, such as the engine: no row counts them",
            ),
        ];
        for (count, note) in notes {
            if count > 0 {
                write!(out, "\n{count} {note}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::Tokenizer;
    use forage_contracts::policy::{Completion, GenerateRequest, Policy, PolicyError};

    use super::*;
    use crate::config::RunConfig;

    /// A policy that is gone where it reads a question.
    struct Unsteady {
        policy: Arc<dyn Policy>,
        tokenizer: Arc<dyn Tokenizer>,
        question: &'static str,
    }

    #[async_trait::async_trait]
    impl Policy for Unsteady {
        fn version(&self) -> u64 {
            self.policy.version()
        }

        async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
            if self
                .tokenizer
                .decode(&request.tokens)
                .contains(self.question)
            {
                return Err(PolicyError::Gone("no answer".to_owned()));
            }
            self.policy.generate(request).await
        }
    }

    #[test]
    fn a_query_that_a_fault_took_counts_in_no_row() {
        let query = |text: &str| QueryRecord {
            id: text.replace(' ', "-"),
            text: text.to_owned(),
        };
        let queries = ["first moon", "second moon", "third moon"].map(query);
        let id = |query: &QueryRecord, place: usize| format!("{}-{place}", query.id);
        // What is relevant stands last of three.
        let relevant = |query: &QueryRecord| {
            let grades = BTreeMap::from([(id(query, 2), 1)]);
            (query.id.clone(), grades)
        };
        let qrels: Qrels = queries.iter().map(relevant).collect();
        let list = |query: &QueryRecord| {
            let hit = |place: usize| Hit {
                id: id(query, place),
                score: 3.0 - place as f32,
                title: "Moon".to_owned(),
                text: "It circles a planet.".to_owned(),
            };
            (0..3).map(hit).collect::<Vec<Hit>>()
        };
        let before: Vec<Vec<Hit>> = queries.iter().map(list).collect();
        let judged = Judged {
            queries: &queries,
            qrels: &qrels,
            cutoffs: vec![10],
        };
        let config = RunConfig::parse(include_str!("../../../configs/rerank.toml"), &[]).unwrap();
        let config = config.resolve(None).unwrap();
        let mut player = Player::open(&config, Some("oracle"), 3, &judged, &()).unwrap();
        let rollout = &mut player.rollout;
        rollout.policy = Arc::new(Unsteady {
            policy: Arc::clone(&rollout.policy),
            tokenizer: Arc::clone(&rollout.tokenizer),
            question: "second moon",
        });
        let mut after = before.clone();
        let (unranked, lost) = player.sort(&queries, &mut after, 3).unwrap();
        assert_eq!(unranked, 0);
        assert_eq!(lost, BTreeSet::from(["second-moon".to_owned()]));
        assert_eq!(after[1], before[1], "never an emptier list");
        let ndcg = |lists: &[Vec<Hit>]| {
            let report = judged.report(lists).unwrap();
            let row = judged.row("stage", Cost(3, 1.0, 1.0), &report, &lost);
            row.unwrap().metrics["ndcg@10"].estimate
        };
        // One over the binary logarithm of four, and of two.
        assert!((ndcg(&before) - 0.5).abs() < 1e-12);
        assert!((ndcg(&after) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_policy_orders_as_many_passages_as_its_stage_has() {
        let queries = [QueryRecord {
            id: "moon".to_owned(),
            text: "moon".to_owned(),
        }];
        let id = |place: usize| format!("moon-{place}");
        let grades = BTreeMap::from([(id(5), 1)]);
        let qrels = Qrels::from([("moon".to_owned(), grades)]);
        let hit = |place: usize| Hit {
            id: id(place),
            score: 6.0 - place as f32,
            title: "Moon".to_owned(),
            text: "It circles a planet.".to_owned(),
        };
        let mut lists = [(0..6).map(hit).collect::<Vec<Hit>>()];
        let judged = Judged {
            queries: &queries,
            qrels: &qrels,
            cutoffs: vec![10],
        };
        // It has four candidates in a window, which slides over the six.
        let config = RunConfig::parse(include_str!("../../../configs/rerank.toml"), &[]).unwrap();
        let config = config.resolve(None).unwrap();
        let player = Player::open(&config, Some("oracle"), 6, &judged, &()).unwrap();
        player.sort(&queries, &mut lists, 6).unwrap();
        assert_eq!((player.shown(), lists[0][0].id.as_str()), (6, "moon-5"));
    }
}
