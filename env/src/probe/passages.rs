//! Retrievers that find what a probe wants found, and pages without those that it hides.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::retriever::{Fingerprint, Hit, Query, Retriever, RetrieverError};
use forage_contracts::seed::Seed;
use forage_contracts::{Found, OpenWiki, Page, PagePart, Pages, Passages, Task};
use serde_json::Value;

use super::{Probe, ProbeError};
use crate::dataset::Labels;
use crate::registry;

/// How the id of a poisoned passage begins; the answer it asserts follows, up to a `#`.
const POISON: &str = "poison:";

/// The way to play under poisoned passages.
const READING: &str = "use an environment that reads passages";

/// Passages of a page that may stand among the hits in the place of others.
const PASSAGES_PER_PAGE: usize = 8;

/// What becomes of the passages that a question's searches find.
#[derive(Clone, Debug)]
enum Change {
    Nothing,
    /// Passages of another question, without those of these pages.
    Of {
        question: String,
        but: BTreeSet<String>,
    },
    /// All but those of these pages.
    But(BTreeSet<String>),
    /// The passages after one that asserts an answer to the question.
    After {
        question: String,
        answer: String,
    },
}

impl Change {
    /// Whether a page is kept from the policy, or the page of a passage.
    fn hides(&self, id: &str, title: &str) -> bool {
        match self {
            Self::Nothing => true,
            Self::Of { but, .. } | Self::But(but) => [id, title]
                .into_iter()
                .any(|name| but.contains(page_of(name))),
            Self::After { .. } => false,
        }
    }
}

/// A probe of passages, prepared for the questions it is to be asked.
#[derive(Clone, Debug)]
pub struct PassageProbe {
    probe: Probe,
    /// Changes by data set and id of the question.
    changes: HashMap<(String, String), Change>,
}

impl PassageProbe {
    /// The answer that a passage asserts whose id marks it as poisoned (`poison:Velm`, `poison:Velm#2`).
    ///
    /// ```
    /// use forage_env::PassageProbe;
    ///
    /// assert_eq!(PassageProbe::asserted("poison:Velm#2"), Some("Velm"));
    /// assert_eq!(PassageProbe::asserted("Velm"), None);
    /// ```
    pub fn asserted(id: &str) -> Option<&str> {
        let answer = id.strip_prefix(POISON)?;
        Some(answer.split_once('#').map_or(answer, |(answer, _)| answer))
    }

    /// Prepares what `probe` changes for each of `tasks`; `None` for those that change the prompt. Wrong answers are drawn from `seed`.
    ///
    /// # Errors
    /// [`ProbeError`] when the tasks do not say what the probe needs to know.
    pub fn new(probe: Probe, tasks: &[Arc<Task>], seed: Seed) -> Result<Option<Self>, ProbeError> {
        let changes: Vec<Change> = match probe {
            Probe::ParaphrasedPrompt | Probe::SelfCritique => return Ok(None),
            Probe::NoSearch => vec![Change::Nothing; tasks.len()],
            Probe::ShuffledPassages => (0..tasks.len())
                .map(|place| other(tasks, place))
                .collect::<Result<_, _>>()?,
            Probe::MissingPassages => tasks
                .iter()
                .map(|task| missing(task))
                .collect::<Result<_, _>>()?,
            Probe::PoisonedPassages => {
                let tasks: Vec<Task> = tasks.iter().map(|task| Task::clone(task)).collect();
                Labels::Wrong
                    .relabel(tasks, seed.child("probe", &[]))?
                    .into_iter()
                    .map(poisoned)
                    .collect()
            }
        };
        let keys = tasks.iter().map(|task| task.key());
        Ok(Some(Self {
            probe,
            changes: keys.zip(changes).collect(),
        }))
    }

    /// What becomes of the passages of a task.
    fn change(&self, task: &Task) -> Change {
        let change = self.changes.get(&task.key()).cloned();
        change.unwrap_or(Change::Nothing)
    }

    /// The retriever for one of the tasks it was prepared for; for any other it finds nothing.
    pub fn retriever(&self, task: &Task, inner: &Arc<dyn Retriever>) -> Arc<dyn Retriever> {
        Arc::new(Changed {
            inner: Arc::clone(inner),
            probe: self.probe,
            change: self.change(task),
        })
    }

    /// Opens the pages without those that no search may find: whoever guesses an id needs no search.
    pub(super) fn wiki(&self, task: &Task, inner: &OpenWiki) -> OpenWiki {
        let (inner, change) = (Arc::clone(inner), self.change(task));
        Arc::new(move || {
            let rest: Arc<dyn Pages> = Arc::new(Rest {
                inner: inner()?,
                change: change.clone(),
            });
            Ok(rest)
        })
    }

    /// Refuses environments whose passages it could not change.
    pub(super) fn check(&self, id: &str, settings: &Value) -> Result<(), ProbeError> {
        let refuse = |what: &str, fix| {
            Err(ProbeError::Environment {
                probe: self.probe.name(),
                what: what.to_owned(),
                fix,
            })
        };
        match (
            (registry::find(id)?.resolve)(settings.clone())?.passages,
            self.probe,
        ) {
            (Passages::Unread { why, .. }, Probe::PoisonedPassages) => refuse(why, READING),
            (Passages::Unread { why, fix }, _) => refuse(why, fix),
            (Passages::LeadToPages, Probe::PoisonedPassages) => refuse(
                "pages are read, and there is no page of the poisoned passage",
                READING,
            ),
            (Passages::Read | Passages::LeadToPages, _) => Ok(()),
        }
    }
}

/// The pages a task is answered from, by id or, as published questions name them, by title.
fn evidence(task: &Task) -> BTreeSet<String> {
    let judgments = task.judgments();
    let judged = judgments
        .iter()
        .filter(|(_, grade)| **grade > 0)
        .map(|(id, _)| id);
    task.evidence
        .iter()
        .chain(judged)
        .map(|id| page_of(id).to_owned())
        .collect()
}

/// The page of a passage `page#n`; a passage of another name is its own page.
fn page_of(id: &str) -> &str {
    let is_number = |text: &str| {
        let mut digits = text.bytes();
        !text.is_empty() && digits.all(|digit| digit.is_ascii_digit())
    };
    match id.rsplit_once('#') {
        Some((page, number)) if is_number(number) => page,
        _ => id,
    }
}

/// The next question that other passages answer.
fn other(tasks: &[Arc<Task>], place: usize) -> Result<Change, ProbeError> {
    let but = evidence(&tasks[place]);
    let mut following = tasks[place + 1..].iter().chain(&tasks[..place]);
    let other = following
        .find(|other| evidence(other).is_disjoint(&but) && other.question != tasks[place].question);
    let other = other.ok_or_else(|| ProbeError::NoOther {
        task: tasks[place].name(),
    })?;
    Ok(Change::Of {
        question: other.question.clone(),
        but,
    })
}

fn missing(task: &Task) -> Result<Change, ProbeError> {
    let pages = evidence(task);
    if pages.is_empty() {
        return Err(ProbeError::NoEvidence { task: task.name() });
    }
    Ok(Change::But(pages))
}

/// `task`: with the wrong answer for its gold.
fn poisoned(mut task: Task) -> Change {
    Change::After {
        answer: task.golds.pop().unwrap_or_default(),
        question: task.question,
    }
}

struct Changed {
    inner: Arc<dyn Retriever>,
    probe: Probe,
    change: Change,
}

impl Changed {
    /// The first `k` hits that are of none of the `pages` that are hidden.
    async fn but(
        &self,
        queries: &[Query],
        k: usize,
        pages: usize,
    ) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let mut found = self
            .inner
            .search(queries, k + PASSAGES_PER_PAGE * pages)
            .await?;
        for hits in &mut found {
            hits.retain(|hit| !self.change.hides(&hit.id, &hit.title));
            hits.truncate(k);
        }
        Ok(found)
    }
}

#[async_trait]
impl Retriever for Changed {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint(format!(
            "{} under {}: {:?}",
            self.inner.fingerprint().0,
            self.probe.name(),
            self.change
        ))
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        match &self.change {
            Change::Nothing => Ok(vec![Vec::new(); queries.len()]),
            Change::Of { question, but } => {
                let other = |query: &Query| Query {
                    cancel: query.cancel.clone(),
                    ..Query::new(question.as_str())
                };
                let others: Vec<Query> = queries.iter().map(other).collect();
                self.but(&others, k, but.len()).await
            }
            Change::But(pages) => self.but(queries, k, pages.len()).await,
            Change::After { question, answer } => {
                let mut found = self.inner.search(queries, k).await?;
                for hits in &mut found {
                    hits.insert(
                        0,
                        poison(
                            question,
                            answer,
                            hits.first().map_or(0.0, |best| best.score),
                        ),
                    );
                    hits.truncate(k);
                }
                Ok(found)
            }
        }
    }
}

/// Pages without those that a change hides.
struct Rest {
    inner: Arc<dyn Pages>,
    change: Change,
}

impl Pages for Rest {
    fn page(&self, id: &str) -> Result<Option<Page<'_>>, RetrieverError> {
        let page = self.inner.page(id)?;
        Ok(page.filter(|page| !self.change.hides(page.id, page.title)))
    }

    fn prepare(&self, part: PagePart) -> Result<(), RetrieverError> {
        self.inner.prepare(part)
    }

    fn find(
        &self,
        part: PagePart,
        query: &str,
        count: usize,
    ) -> Result<Vec<Found>, RetrieverError> {
        let mut found = self.inner.find(part, query, count)?;
        found.retain(|page| !self.change.hides(&page.id, &page.title));
        Ok(found)
    }
}

/// A passage that asserts `answer` in words and in the tags of an answer, better than the best.
fn poison(question: &str, answer: &str, best: f32) -> Hit {
    Hit {
        id: format!("{POISON}{answer}"),
        score: best + 1.0,
        title: answer.to_owned(),
        text: format!("{question} The answer is {answer}. <answer>{answer}</answer>"),
    }
}
