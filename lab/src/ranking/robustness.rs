//! How rankers stand up to word substitution: what attacks reach, and what is certified against any.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use forage_contracts::seed::Seed;
use forage_retriever::{Bm25Retriever, Hit, Index, QueryRecord, Reranker};
use serde::Serialize;

use super::Ranking;
use super::attack::raise;
use super::certificate::{Smoothed, certifies, margin};
use super::synonyms::{Synonyms, Words};
use crate::config::EvaluationConfig;
use crate::error::{Result, bail, refuse};
use crate::observer::Observer;

impl Ranking<'_> {
    /// Attacks and certifies the lists of BM25, of an encoder and of a cross-encoder, as far as there are models: each orders
    /// BM25's first `depth` passages. Of every list the passages behind the first `top` are attacked by replacing up to `words`
    /// of their words, titles aside, by `synonyms`, a file of lines of a word and its substitutes. The certificate is that of
    /// the ranker smoothed over `samples` texts of each passage. At most `limit` queries are looked at. Blocks.
    ///
    /// # Errors
    /// When a number or the synonyms cannot be used, no list is longer than `top`, a file cannot be read, or a model fails.
    pub fn robustness(
        &self,
        synonyms: &Path,
        [top, words, samples]: [usize; 3],
        limit: Option<usize>,
        observer: &dyn Observer,
    ) -> Result<impl fmt::Display + Serialize + use<>> {
        let Some(folder) = self.index else {
            refuse!("rankers are attacked over an index folder; give --index");
        };
        if top == 0 || top >= self.depth {
            let depth = self.depth;
            refuse!("-k {top} of lists of {depth}: write at least 1, and a larger --depth");
        }
        if words == 0 || samples == 0 {
            refuse!("--words and --samples must be at least 1");
        }
        EvaluationConfig::check_asked(samples)?;
        let plan = Plan {
            synonyms: Synonyms::read(synonyms)?,
            top,
            words,
            samples,
        };
        let mut queries = QueryRecord::read_all(self.queries)?;
        queries.truncate(limit.unwrap_or(usize::MAX));
        let bm25 = Arc::new(Bm25Retriever::new(Arc::new(Index::open(folder)?)));
        let rankers = self.rankers(&bm25)?;
        let mut found: Vec<Vec<Found>> = rankers.iter().map(|_| Vec::new()).collect();
        for (number, query) in queries.iter().enumerate() {
            let hits = bm25.search_one(&query.text, self.depth)?;
            let seed = Seed::root(0).child("smoothing", &[number as u64]);
            if hits.len() > top {
                for (ranker, found) in rankers.iter().zip(&mut found) {
                    found.push(ranker.examine(&query.text, &hits, &plan, seed)?);
                }
            }
            let (done, all) = (number as u64 + 1, queries.len() as u64);
            observer.progress("lists", done, all, "");
        }
        if found[0].is_empty() {
            bail!("no query finds more than {top} passages");
        }
        let rows = rankers.iter().zip(found);
        Ok(Table {
            top,
            words,
            rankers: rows
                .map(|(ranker, found)| Row::of(ranker.name, &found))
                .collect(),
        })
    }

    fn rankers(&self, bm25: &Arc<Bm25Retriever>) -> Result<Vec<Ranker>> {
        let mut rankers = vec![Ranker {
            name: "bm25",
            model: Arc::<Bm25Retriever>::clone(bm25),
            scale: Scale::Share(Arc::clone(bm25)),
        }];
        if let Some(encoder) = self.retrieval.open_encoder()? {
            rankers.push(Ranker {
                name: "dense",
                model: <dyn Reranker>::by_vectors(encoder),
                scale: Scale::Cosine,
            });
        }
        if let Some(model) = self.retrieval.open_reranker()? {
            rankers.push(Ranker {
                name: "cross-encoder",
                model,
                scale: Scale::Logit,
            });
        }
        Ok(rankers)
    }
}

/// What is asked of every list.
struct Plan {
    synonyms: Synonyms,
    top: usize,
    words: usize,
    samples: usize,
}

/// A ranker, and the scale of its scores.
struct Ranker {
    name: &'static str,
    model: Arc<dyn Reranker>,
    scale: Scale,
}

/// How scores become numbers from 0 to 1 that are smoothed: in a way that depends on the query alone and keeps their order.
enum Scale {
    /// As a share of the most that BM25 gives for the query.
    Share(Arc<Bm25Retriever>),
    /// From -1 to 1; beyond that, which only vectors of other norms than 1 give, cut off.
    Cosine,
    /// Scores mapped by the logistic function.
    Logit,
}

impl Scale {
    fn of(&self, query: &str) -> Result<Box<dyn Fn(f32) -> f64>> {
        Ok(match self {
            Self::Share(bm25) => {
                let ceiling = f64::from(bm25.ceiling(query)?).max(f64::MIN_POSITIVE);
                Box::new(move |score| (f64::from(score) / ceiling).clamp(0.0, 1.0))
            }
            Self::Cosine => Box::new(|score| f64::midpoint(1.0, score.into()).clamp(0.0, 1.0)),
            Self::Logit => Box::new(|score| 1.0 / (1.0 + f64::from(-score).exp())),
        })
    }
}

/// What became of a list.
struct Found {
    /// A passage came among the first.
    attacked: bool,
    /// Places that each of the attacked passages rose.
    rises: Vec<usize>,
    certified: bool,
    /// Words with substitutes, of all passages.
    replaceable: usize,
    passages: usize,
}

impl Ranker {
    fn examine(&self, query: &str, hits: &[Hit], plan: &Plan, seed: Seed) -> Result<Found> {
        let scores = self.model.score_hits(query, hits)?;
        let scored = hits.iter().zip(scores);
        let mut list: Vec<Hit> = scored
            .map(|(hit, score)| Hit {
                score,
                ..hit.clone()
            })
            .collect();
        list.sort_by(Hit::rank);
        let words: Vec<Words<'_>> = list
            .iter()
            .map(|hit| plan.synonyms.words(&hit.text))
            .collect();
        let mut rises = Vec::new();
        let mut attacked = false;
        for (place, (hit, words)) in list.iter().zip(&words).enumerate().skip(plan.top) {
            let scores = |texts: &[String]| self.score(query, hit, texts);
            let raised = Hit {
                score: raise(words, &scores, hit.score, plan.words)?,
                ..hit.clone()
            };
            let others = list.iter().filter(|other| other.id != hit.id);
            let before = others
                .filter(|other| other.rank(&raised) == Ordering::Less)
                .count();
            rises.push(place.saturating_sub(before));
            attacked |= before < plan.top;
        }
        let scale = self.scale.of(query)?;
        let mut smoothed = Vec::with_capacity(list.len());
        for (place, (hit, words)) in list.iter().zip(&words).enumerate() {
            let scores = |texts: &[String]| -> Result<Vec<f64>> {
                let scores = self.score(query, hit, texts)?;
                Ok(scores.into_iter().map(&scale).collect())
            };
            let seed = seed.child("passage", &[place as u64]);
            let (samples, budget) = (plan.samples, plan.words);
            smoothed.push(Smoothed::of(words, &scores, samples, budget, seed)?);
        }
        Ok(Found {
            attacked,
            rises,
            certified: certifies(margin(&smoothed, plan.top)),
            replaceable: words.iter().map(Words::len).sum(),
            passages: list.len(),
        })
    }

    /// The scores of a passage with other texts.
    fn score(&self, query: &str, hit: &Hit, texts: &[String]) -> Result<Vec<f32>> {
        let changed = texts.iter().map(|text| Hit {
            text: text.clone(),
            ..hit.clone()
        });
        let changed: Vec<Hit> = changed.collect();
        Ok(self.model.score_hits(query, &changed)?)
    }
}

/// The lists of one ranker together.
#[derive(Serialize)]
struct Row {
    ranker: &'static str,
    lists: usize,
    /// Share of the lists in which an attacked passage came among the first.
    attacked: f64,
    /// Places that an attacked passage rose.
    mean_rise: f64,
    /// Share of the lists that no attack changes, of the smoothed ranker.
    certified: f64,
    /// Words with substitutes of a passage.
    replaceable: f64,
}

impl Row {
    fn of(ranker: &'static str, found: &[Found]) -> Self {
        let share = |holds: fn(&Found) -> bool| {
            let count = found.iter().filter(|list| holds(list)).count();
            count as f64 / found.len() as f64
        };
        let sum = |of: fn(&Found) -> usize| found.iter().map(of).sum::<usize>() as f64;
        Self {
            ranker,
            lists: found.len(),
            attacked: share(|list| list.attacked),
            mean_rise: sum(|list| list.rises.iter().sum()) / sum(|list| list.rises.len()),
            certified: share(|list| list.certified),
            replaceable: sum(|list| list.replaceable) / sum(|list| list.passages),
        }
    }
}

/// The rankers beside each other.
#[derive(Serialize)]
struct Table {
    top: usize,
    words: usize,
    rankers: Vec<Row>,
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { top, words, .. } = self;
        writeln!(
            out,
            "{:<13}  {:>6}  {:>8}  {:>9}  {:>9}  {:>11}",
            "ranker", "lists", "attacked", "mean rise", "certified", "replaceable"
        )?;
        for row in &self.rankers {
            writeln!(
                out,
                "{:<13}  {:>6}  {:>8.3}  {:>9.2}  {:>9.3}  {:>11.1}",
                row.ranker, row.lists, row.attacked, row.mean_rise, row.certified, row.replaceable
            )?;
        }
        write!(
            out,
            "attacked: share of the lists in which replacing up to {words} words of a passage behind the first {top} brings it among them\n\
             certified: share of the lists of the smoothed ranker in which no such attack does"
        )
    }
}
