//! Which question an episode asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forage_contracts::seed::Seed;
use forage_contracts::{Task, nearest};

use super::app::LONGEST_ID;
use super::fault::Fault;
use crate::dataset::Names;

/// Most tasks with which an unknown id is compared: the thread that does it reads and answers the requests of others too.
const COMPARED: usize = 1000;

/// The questions, by place and by id.
pub(super) struct Tasks {
    all: Arc<[Arc<Task>]>,
    names: Names,
    next: AtomicUsize,
}

impl Tasks {
    pub(super) fn new(all: Arc<[Arc<Task>]>) -> Self {
        Self {
            names: Names::of(all.iter().map(Arc::as_ref)),
            all,
            next: AtomicUsize::new(0),
        }
    }

    pub(super) fn all(&self) -> &[Arc<Task>] {
        &self.all
    }

    /// What a question is called here: its id, after its data set where others have the id too.
    pub(super) fn called(&self, task: &Task) -> String {
        self.names.shortest(task)
    }

    /// The question that was asked for by name or place; else the one a seed stands for, else the next in order.
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
            (Some(id), None, _) => match self.names.places(id)[..] {
                [place] => place,
                [] => return Err(self.unknown(id)),
                [place, ..] => {
                    let name = self.all[place].name();
                    return Err(Fault::Invalid(format!(
                        "several data sets have a task `{id}`; name the data set too, as in `{name}`"
                    )));
                }
            },
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
        if id.len() > LONGEST_ID {
            let length = id.len();
            return Fault::Invalid(format!("there is no task whose id has {length} bytes"));
        }
        let compared = self.all.iter().take(COMPARED);
        let near = nearest(id, compared.map(|task| task.id.as_str()));
        let way = near.map_or_else(
            || "GET /tasks lists them".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        Fault::Invalid(format!("there is no task `{id}`; {way}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_called_by_their_ids_where_these_say_enough() {
        let task = |source: &str, id: &str| {
            Arc::new(Task {
                data_source: source.to_owned(),
                ..Task::new(id, id)
            })
        };
        let all = [task("nq", "0"), task("hotpotqa", "0"), task("nq", "1")];
        let tasks = Tasks::new(all.into());
        let called: Vec<String> = tasks.all().iter().map(|task| tasks.called(task)).collect();
        assert_eq!(called, ["nq/0", "hotpotqa/0", "1"]);
        for (place, name) in called.iter().enumerate() {
            let found = tasks.choose(Some(name), None, None).unwrap();
            assert!(Arc::ptr_eq(&found, &tasks.all()[place]), "{name}");
        }
        let fault = |id| match tasks.choose(Some(id), None, None) {
            Err(Fault::Invalid(words)) => words,
            _ => String::new(),
        };
        assert!(fault("0").contains("as in `nq/0`"), "{}", fault("0"));
        assert!(fault("2").contains("there is no task `2`"));
    }

    #[test]
    fn an_unknown_id_is_compared_with_few_tasks_and_not_repeated_at_length() {
        let fault = |tasks: usize, id: &str| {
            let all = (0..tasks).map(|number| Arc::new(Task::new(number.to_string(), "?")));
            match Tasks::new(all.collect()).choose(Some(id), None, None) {
                Err(Fault::Invalid(words)) => words,
                _ => String::new(),
            }
        };
        let near = fault(COMPARED, "77x");
        assert!(near.contains("did you mean `77`"), "{near}");
        let unlike = fault(COMPARED, "first");
        assert!(unlike.contains("no task `first`; GET /tasks"), "{unlike}");
        let beyond = fault(COMPARED + 1, "100x");
        assert!(beyond.contains("did you mean `100`"), "{beyond}");
        let long = fault(COMPARED, &"9".repeat(1 << 20));
        assert!(long.contains("1048576 bytes") && long.len() < 100, "{long}");
    }
}
