//! A policy as a stage of a cascade: it plays an environment whose searches find the candidates of the stage before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forage_contracts::Task;
use forage_contracts::environment::Outcome;
use forage_contracts::policy::Sampling;
use forage_env::{InfraBudget, Rollout, registry};
use forage_retriever::{Fingerprint, Hit, Query, QueryRecord, Retriever, RetrieverError};

use super::{Judged, POLICY};
use crate::config::Resolved;
use crate::data::{Corpus, Tasks};
use crate::error::{Result, refuse};
use crate::evaluate::{Opening, PlaySettings, fault_budget};
use crate::observer::Observer;
use crate::session::Session;

/// A policy and the environment that it ranks in.
pub(super) struct Player {
    pub(super) rollout: Rollout,
    tasks: Tasks,
    candidates: Arc<Candidates>,
    seed: u64,
    in_flight: usize,
    budget: InfraBudget,
}

/// The setting of an environment for the passages that are put in order.
const CANDIDATES: &str = "candidates";

impl Player {
    /// Opens a stage of `most` passages. An environment with a setting for their number has this one, whatever the config says.
    pub(super) fn open(
        config: &Resolved,
        name: Option<&str>,
        most: usize,
        judged: &Judged<'_>,
        observer: &dyn Observer,
    ) -> Result<Self> {
        if registry::find(&config.environment.id)?.outcome != Outcome::Ranking {
            refuse!(
                "--stages: `policy` plays an environment that ends in a ranking, and {} ends in an answer",
                config.environment.id
            );
        }
        let settings = config.environment.resolved()?.settings;
        let config = &config.vary(|config| {
            if settings.get(CANDIDATES).is_some() {
                let settings = &mut config.environment.settings;
                settings.insert(CANDIDATES.to_owned(), most.into());
            }
        })?;
        let tasks = judged.queries.iter().map(|query| {
            Arc::new(Task {
                qrels: judged.qrels[&query.id].clone(),
                ..Task::new(query.id.as_str(), query.text.as_str())
            })
        });
        let tasks: Tasks = tasks.collect();
        let generation = config.generation();
        let opening = Opening::of(config, name, &generation);
        let player = opening.open(&tasks)?;
        let candidates = Arc::new(Candidates::default());
        let corpus = Corpus {
            retriever: Arc::<Candidates>::clone(&candidates),
            ..Corpus::none()
        };
        let environment = opening.limits(&config.environment)?;
        let rewards = config.rewards()?;
        let session = Session::new(&environment, rewards, &corpus, player.format, observer)?;
        Ok(Self {
            rollout: session.rollout(player.policy, Sampling::GREEDY)?,
            tasks,
            candidates,
            seed: config.seed,
            in_flight: player.in_flight,
            budget: fault_budget(config),
        })
    }

    /// Passages that its environment has shown so far.
    pub(super) fn shown(&self) -> usize {
        self.candidates.shown.load(Ordering::Relaxed)
    }

    /// Puts the first `most` of every list in order; gives the number of lists that stay as they are
    /// because the policy gave no ranking for them, and the queries that a fault of ours took.
    pub(super) fn sort(
        &self,
        queries: &[QueryRecord],
        lists: &mut [Vec<Hit>],
        most: usize,
    ) -> Result<(usize, BTreeSet<String>)> {
        let shown = queries.iter().zip(lists.iter()).map(|(query, list)| {
            let first = list.iter().take(most).cloned();
            // By rank: scores of different stages do not compare.
            let ranked = (1..).zip(first).map(|(rank, hit)| Hit {
                score: 1.0 / rank as f32,
                ..hit
            });
            (query.text.trim().to_owned(), ranked.collect())
        });
        *self.candidates.lists() = shown.collect();
        let settings = PlaySettings {
            in_flight: self.in_flight,
            budget: self.budget,
            out: None,
            observer: &(),
        };
        let episodes = settings.play_greedily(&self.rollout, &self.tasks, self.seed, POLICY)?;
        let mut rankings = BTreeMap::new();
        for episode in &episodes {
            if let Some(ranking) = episode.ranking() {
                let places = ranking.iter().map(String::as_str).zip(0..);
                let places: BTreeMap<&str, usize> = places.collect();
                rankings.insert(episode.task.id.as_str(), places);
            }
        }
        let faults = episodes.iter().filter(|episode| episode.ending.is_infra());
        let lost: BTreeSet<String> = faults.map(|episode| episode.task.id.clone()).collect();
        let mut left = 0;
        for (query, list) in queries.iter().zip(lists) {
            match rankings.get(query.id.as_str()) {
                // Stable: passages that were not shown stay behind the others as they were.
                Some(places) => {
                    list.sort_by_key(|hit| {
                        places.get(hit.id.as_str()).copied().unwrap_or(usize::MAX)
                    });
                    // An order without scores has no ties.
                    for (rank, hit) in (1..).zip(list.iter_mut()) {
                        hit.score = 1.0 / rank as f32;
                    }
                }
                None => left += usize::from(!lost.contains(&query.id)),
            }
        }
        Ok((left, lost))
    }
}

/// Candidates by the text of the query.
type Lists = BTreeMap<String, Vec<Hit>>;

/// The lists of the stage before, as the retriever of the policy's environment.
#[derive(Default)]
struct Candidates {
    lists: Mutex<Lists>,
    /// Passages handed out so far.
    shown: AtomicUsize,
}

impl Candidates {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait::async_trait]
impl Retriever for Candidates {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&format!("candidates\n{:?}", *self.lists()))
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let lists = self.lists();
        let found = queries.iter().map(|query| {
            let Some(list) = lists.get(query.text.trim()) else {
                return Err(RetrieverError::Unsupported {
                    retriever: "the stage before the policy".to_owned(),
                    what: "search for anything but the queries themselves",
                });
            };
            let first: Vec<Hit> = list.iter().take(k).cloned().collect();
            self.shown.fetch_add(first.len(), Ordering::Relaxed);
            Ok(first)
        });
        found.collect()
    }
}
