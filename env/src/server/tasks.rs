//! Which question an episode asks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forage_contracts::seed::Seed;
use forage_contracts::{Task, nearest};

use super::fault::Fault;

/// The questions, by place and by id.
pub(super) struct Tasks {
    all: Arc<[Arc<Task>]>,
    places: HashMap<String, usize>,
    next: AtomicUsize,
}

impl Tasks {
    pub(super) fn new(all: Arc<[Arc<Task>]>) -> Self {
        // Of equal ids the first is found.
        let places = all
            .iter()
            .enumerate()
            .rev()
            .map(|(place, task)| (task.id.clone(), place))
            .collect();
        Self {
            all,
            places,
            next: AtomicUsize::new(0),
        }
    }

    pub(super) fn all(&self) -> &[Arc<Task>] {
        &self.all
    }

    /// The question that was asked for by id or place; else the one a seed stands for, else the next in order.
    pub(super) fn choose(
        &self,
        id: Option<&str>,
        index: Option<usize>,
        seed: Option<u64>,
    ) -> Result<Arc<Task>, Fault> {
        let count = self.all.len();
        let place = match (id, index, seed) {
            (Some(_), Some(_), _) => {
                return Err(Fault::Invalid(
                    "give `task_id` or `task_index`, not both".to_owned(),
                ));
            }
            (Some(id), None, _) => *self.places.get(id).ok_or_else(|| self.unknown(id))?,
            (None, Some(index), _) if index < count => index,
            (None, Some(index), _) => {
                return Err(Fault::Invalid(format!(
                    "`task_index` is {index}; there are {count} tasks, from 0"
                )));
            }
            (None, None, Some(seed)) => {
                (Seed::root(seed).child("task", &[]).0 % count as u64) as usize
            }
            (None, None, None) => self.next.fetch_add(1, Ordering::Relaxed) % count,
        };
        Ok(Arc::clone(&self.all[place]))
    }

    fn unknown(&self, id: &str) -> Fault {
        let nearest = nearest(id, self.all.iter().map(|task| task.id.as_str()));
        Fault::Invalid(format!(
            "there is no task `{id}`; did you mean `{nearest}`?"
        ))
    }
}
