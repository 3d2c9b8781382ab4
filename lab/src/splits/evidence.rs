//! The lookup of the evidence of questions in the index that is searched.

use std::collections::BTreeSet;
use std::sync::Arc;

use forage_contracts::Task;
use forage_contracts::environment::Outcome;
use forage_env::registry;
use forage_retriever::Index;

use crate::config::EnvironmentConfig;
use crate::data::{Corpus, Tasks};
use crate::error::{Result, RunError};
use crate::evidence::is_there;

/// Questions of each split whose evidence is looked up: more would read much of a large index.
const LOOKED_UP: usize = 1000;

/// The result of looking up the evidence of questions in an index.
pub(crate) struct Evidence {
    /// Questions whose evidence was looked up.
    pub(crate) looked_up: usize,
    /// Says of how many of them it is not there; none where all of it is.
    pub(crate) unknown: Option<String>,
    /// True where the index has no evidence of any of these questions.
    pub(crate) is_elsewhere: bool,
    /// Says so where the index is then of other documents: where it has titles too, which the evidence could be, or where rankings are
    /// graded, by ids alone.
    pub(crate) refusal: Option<String>,
}

impl Evidence {
    /// Looks up the evidence of the first questions of each split that name any. It is named by the id of a passage, by that of a page,
    /// which is there as the passages that it was cut into too, or by a title.
    ///
    /// # Errors
    /// When the index is damaged.
    pub(crate) fn of(
        index: &Index,
        splits: &[&Tasks],
        environment: &EnvironmentConfig,
    ) -> Result<Self> {
        let is_named = |task: &&Arc<Task>| task.judgments().values().any(|grade| *grade > 0);
        let named = |tasks: &&Tasks| -> Vec<Arc<Task>> {
            let named = tasks.iter().filter(is_named).take(LOOKED_UP);
            named.cloned().collect()
        };
        let looked_up: Vec<Arc<Task>> = splits.iter().flat_map(named).collect();
        let (mut unknown, mut knows_some) = (BTreeSet::new(), false);
        for task in &looked_up {
            for (name, _) in task.judgments().iter().filter(|(_, grade)| **grade > 0) {
                if is_there(index, name)? || index.has_title(name)? {
                    knows_some = true;
                } else {
                    unknown.insert(name.clone());
                }
            }
        }
        let examples = looked_up.iter().filter_map(|task| {
            let judgments = task.judgments();
            let mut judged = judgments.iter();
            let (name, _) = judged.find(|(name, grade)| **grade > 0 && unknown.contains(*name))?;
            Some(format!("`{name}` of {}", task.name()))
        });
        let examples: Vec<String> = examples.collect();
        let is_elsewhere = !examples.is_empty() && !knows_some;
        let by_ids = registry::find(&environment.id)?.outcome == Outcome::Ranking;
        let is_refused = is_elsewhere && (by_ids || has_titles(index)?);
        let all = if is_elsewhere {
            "; none of it is there, so the index seems to be of other documents than the questions (`forage search INDEX \
             QUESTION` shows it)"
        } else {
            ""
        };
        let refusal = examples.first().filter(|_| is_refused).map(|example| {
            format!(
                "the index {} has the evidence of none of the {} questions that were looked up, {example} for instance, which is neither \
                 an id nor a title there",
                index.place().display(),
                looked_up.len()
            )
        });
        let unknown = examples.first().map(|example| {
            format!(
                "the evidence of {} of {} questions is not in the index, {example} for instance, which is neither an id nor a title \
                 there: no search finds it, and recall counts it as missed{all}",
                examples.len(),
                looked_up.len()
            )
        });
        Ok(Self {
            looked_up: looked_up.len(),
            unknown,
            is_elsewhere,
            refusal,
        })
    }

    /// Says of how many questions the evidence is not there.
    ///
    /// # Errors
    /// When the index is of other documents than the questions.
    pub(crate) fn checked(self) -> Result<Option<String>> {
        match self.refusal {
            Some(why) => Err(RunError::config_because(
                why,
                "name the index, or the corpus, of the documents that the questions are about (`forage search INDEX QUESTION` shows what \
                 is there), or ask questions that name no evidence",
            )),
            None => Ok(self.unknown),
        }
    }
}

/// Passages of an index that are looked at for a title.
const TITLED: u32 = 100;

/// Tells whether the first passages of an index have titles, by one of which evidence may be named.
fn has_titles(index: &Index) -> Result<bool> {
    let last = TITLED.min(index.len() as u32);
    for ordinal in 0..last {
        if !index.document(ordinal)?.title.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Corpus {
    /// Says of how many questions the evidence is not in the index. None where all of it is there, or no index is at hand. Where the
    /// questions are `few` of more, all of theirs may be missing by chance.
    ///
    /// # Errors
    /// As [`Evidence::of`], and when the index is of other documents than the questions.
    pub(crate) fn unknown_evidence(
        &self,
        splits: &[&Tasks],
        few: bool,
        environment: &EnvironmentConfig,
    ) -> Result<Option<String>> {
        let Some(index) = &self.index else {
            return Ok(None);
        };
        let found = Evidence::of(index, splits, environment)?;
        if few {
            Ok(found.unknown)
        } else {
            found.checked()
        }
    }
}
