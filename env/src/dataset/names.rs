//! Questions by what people call them: an id, or the data set and the id.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use forage_contracts::Task;

/// The places of questions by id, and by data set and id.
#[derive(Debug, Default)]
pub(crate) struct Names {
    full: HashMap<String, usize>,
    /// A place for each data set that has the id.
    ids: HashMap<String, Vec<usize>>,
}

impl Names {
    /// Questions in their order; of equal ones the first is found.
    pub(crate) fn of<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> Self {
        let mut names = Self::default();
        for (place, task) in tasks.into_iter().enumerate() {
            if let Entry::Vacant(entry) = names.full.entry(task.name()) {
                entry.insert(place);
                names.ids.entry(task.id.clone()).or_default().push(place);
            }
        }
        names
    }

    /// The places that a text may mean: one for a data set and an id, for an id alone one of each data set that has it.
    pub(crate) fn places(&self, text: &str) -> Vec<usize> {
        match self.full.get(text) {
            Some(place) => vec![*place],
            None => self.ids.get(text).cloned().unwrap_or_default(),
        }
    }

    /// The shortest text that means this question alone.
    pub(crate) fn shortest(&self, task: &Task) -> String {
        let others = self.ids.get(&task.id).map_or(0, Vec::len);
        if others > 1 || self.full.contains_key(&task.id) {
            return task.name();
        }
        task.id.clone()
    }
}
