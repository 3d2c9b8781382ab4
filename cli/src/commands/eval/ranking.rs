//! `forage eval retrieval` and `forage eval robustness`: rankings of judged queries.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use forage_lab::{Ranking, RetrieverConfig};
use forage_trainer::device::DeviceSpec;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::read;
use crate::progress::Watch;
use crate::retrieval::RetrievalArgs;
use crate::terminal::out;

/// Ranks judged queries by an index, or stage by stage.
///
/// Prints nDCG, MRR, recall and MAP as `trec_eval` computes them; with --stages what every stage of a cascade adds, and what it costs per query.
#[derive(Args, Debug)]
pub(super) struct Retrieval {
    /// Index folder.
    #[arg(long)]
    index: Option<PathBuf>,
    #[command(flatten)]
    how: RetrievalArgs,
    /// TOML file that names a remote retriever, instead of --index.
    #[arg(long, conflicts_with = "index")]
    remote: Option<PathBuf>,
    /// Queries: JSON lines with `_id` and `text`.
    #[arg(long)]
    queries: PathBuf,
    /// Judgements: TREC qrels or BEIR tsv.
    #[arg(long)]
    qrels: PathBuf,
    /// Documents per query.
    #[arg(short, long, default_value = "1000")]
    k: NonZeroUsize,
    /// Write the ranking as a TREC run; a file that is there is replaced.
    #[arg(long)]
    run: Option<PathBuf>,
    /// TREC run of the same queries, as --run writes it, to compare with: beside each metric stand that of the run and the difference,
    /// paired by query, with its 95 % interval.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Stages of a cascade, as in bm25:1000,dense:100,cross-encoder:20,policy:10. The first is a search mode that finds so many
    /// passages; each of the others (bm25, dense, cross-encoder, policy) puts so many of the first in order anew.
    #[arg(long, value_name = "NAME:CANDIDATES", value_delimiter = ',', requires = "index",
        conflicts_with_all = ["mode", "rerank_depth", "cache_entries", "remote", "k", "run", "against"])]
    stages: Vec<String>,
    /// Config whose environment and policy are the stage `policy`: one that ends in a ranking, such as rerank.
    #[arg(long, requires = "stages")]
    config: Option<PathBuf>,
    /// The policy of that stage, instead of the config's: a folder, builtin:NAME, a server or a script of the environment.
    #[arg(long, requires = "config")]
    policy: Option<String>,
    /// Change a value of the config: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    overrides: Vec<String>,
    /// Print as JSON: metric name to mean, and `intervals`; with --against the other run's means and the differences; with --stages the
    /// stages with their metrics.
    #[arg(long)]
    json: bool,
}

/// Attacks rankings by replacing words, and certifies them against it.
///
/// BM25, an encoder and a cross-encoder, as far as they are named, order the first passages that BM25 finds for each query. Prints the
/// share of the lists in which replacing a few words brings a passage among the first k, the places that passages rise, and the share in
/// which that is proven impossible for the ranker smoothed by random substitutions (`CertDR`), with 95 % confidence where texts are drawn.
#[derive(Args, Debug)]
pub(super) struct Robustness {
    /// Index folder.
    #[arg(long)]
    index: PathBuf,
    /// Queries: JSON lines with `_id` and `text`.
    #[arg(long)]
    queries: PathBuf,
    /// File of synonyms: each line has a word and those that may replace it.
    #[arg(long)]
    synonyms: PathBuf,
    /// Folder of a BERT encoder (E5, BGE, MiniLM).
    #[arg(long)]
    encoder: Option<PathBuf>,
    /// Folder of a BERT cross-encoder.
    #[arg(long)]
    reranker: Option<PathBuf>,
    /// Device of encoder and cross-encoder: cpu, cuda:0, ...
    #[arg(id = "model-device", long, default_value = "cpu")]
    device: DeviceSpec,
    /// Passages of a list.
    #[arg(long, default_value_t = 20)]
    depth: usize,
    /// First passages of a list, among which no other is to come.
    #[arg(short, default_value_t = 10)]
    k: usize,
    /// Words of a passage that an attack may replace.
    #[arg(long, default_value_t = 3)]
    words: usize,
    /// Texts of a passage that its smoothed score is the mean of; where it has no more, all of them are counted out.
    #[arg(long, default_value_t = 200)]
    samples: usize,
    /// Most queries.
    #[arg(long)]
    limit: Option<usize>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

impl Retrieval {
    pub(super) fn run(self) -> Result<()> {
        let retrieval = if self.stages.is_empty() && self.remote.is_none() {
            self.how.one_mode()?
        } else {
            self.how.config()
        };
        let ranking = Ranking {
            retrieval: &retrieval,
            index: self.index.as_deref(),
            remote: self.remote.as_deref(),
            queries: &self.queries,
            depth: self.k.get(),
        };
        if !self.stages.is_empty() {
            let config = self.config.as_deref();
            let config = config.map(|path| read(path, &self.overrides, None));
            let config = config.transpose()?;
            let policy = config
                .as_ref()
                .map(|config| (config, self.policy.as_deref()));
            let found = ranking.cascade(&self.qrels, &self.stages, policy, &Watch::new())?;
            return print(&found, self.json);
        }
        let [run, against] = [&self.run, &self.against].map(Option::as_deref);
        let (report, other) = ranking.evaluate(&self.qrels, run, against)?;
        if !self.json {
            out(&match &other {
                Some(other) => report.to_text_against(other)?,
                None => report.to_text(),
            });
            return Ok(());
        }
        let metrics = report.metrics.iter();
        let mut all: Map<String, Value> = metrics
            .clone()
            .map(|(name, metric)| (name.clone(), metric.mean.estimate.into()))
            .collect();
        let intervals: Map<String, Value> = metrics
            .map(|(name, metric)| (name.clone(), serde_json::json!(metric.mean.ends())))
            .collect();
        all.insert("intervals".to_owned(), intervals.into());
        if let Some(other) = &other {
            let gains = report.gains(other)?.into_iter();
            let metrics: Map<String, Value> = gains
                .map(|(name, gain)| {
                    let mean = other.mean(&name).map(|mean| mean.estimate);
                    (name, serde_json::json!({"mean": mean, "difference": gain}))
                })
                .collect();
            let against = serde_json::json!({
                "metrics": metrics,
                "unanswered": other.unanswered,
                "unjudged": other.unjudged,
            });
            all.insert("against".to_owned(), against);
        }
        out(&Value::Object(all).to_string());
        Ok(())
    }
}

impl Robustness {
    pub(super) fn run(self) -> Result<()> {
        let models = RetrieverConfig {
            encoder: self.encoder,
            reranker: self.reranker,
            device: self.device,
            ..RetrieverConfig::default()
        };
        let ranking = Ranking {
            retrieval: &models,
            index: Some(&self.index),
            remote: None,
            queries: &self.queries,
            depth: self.depth,
        };
        let numbers = [self.k, self.words, self.samples];
        let watch = Watch::new();
        let found = ranking.robustness(&self.synonyms, numbers, self.limit, &watch)?;
        print(&found, self.json)
    }
}

/// Prints for people or as JSON.
fn print(found: &(impl Display + Serialize), json: bool) -> Result<()> {
    let text = if json {
        serde_json::to_string(found)?
    } else {
        found.to_string()
    };
    out(&text);
    Ok(())
}
