//! Curricula: which questions a step asks, by what became of those that were asked before.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::objective::{Setting, Settings};
use crate::registry::Entry;
use crate::seed::Seed;
use crate::task::Task;

/// One registered curriculum.
///
/// ```
/// # use forage_contracts::CurriculumEntry;
/// const ENTRY: CurriculumEntry = CurriculumEntry::new("in_order", "as the file has them", |_, inputs, _| {
///     let places = inputs.drawn..inputs.drawn + inputs.count;
///     places.map(|place| place % inputs.questions.len()).collect()
/// });
/// assert_eq!(ENTRY.name, "in_order");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CurriculumEntry {
    /// The name in configurations.
    pub name: &'static str,
    /// The rule and its source.
    pub about: &'static str,
    /// The settings that it reads from its table in a configuration, at most four.
    pub settings: &'static [Setting],
    /// The questions to ask, by their places, as many as are wanted; one may come twice. The last argument puts a figure into the
    /// step's row. A function of its arguments alone: a resumed run draws again what it had drawn.
    pub draw: DrawQuestions,
}

type DrawQuestions =
    fn(&Settings, &CurriculumInputs<'_>, &mut dyn FnMut(&'static str, f64)) -> Vec<usize>;

impl CurriculumEntry {
    /// A curriculum without settings.
    pub const fn new(name: &'static str, about: &'static str, draw: DrawQuestions) -> Self {
        Self {
            name,
            about,
            settings: &[],
            draw,
        }
    }
}

impl Entry for CurriculumEntry {
    const KIND: &'static str = "curriculum";

    fn label(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }
}

/// Everything that a draw may depend on.
#[derive(Clone, Copy, Debug)]
pub struct CurriculumInputs<'a> {
    /// The training questions of the run; never empty.
    pub questions: &'a [Arc<Task>],
    /// Questions asked so far, in the order in which they were asked, those of batches that are still in play included. When a step draws
    /// again to fill its batch, so are those of its first draw; where steps are played ahead, what fills a batch stands behind the first
    /// questions of later steps.
    pub asked: &'a [Asked],
    /// The number of questions drawn before: that of `asked`, except for the default curriculum, of which nothing is kept.
    pub drawn: usize,
    /// The step.
    pub step: u64,
    /// The number of questions wanted.
    pub count: usize,
    /// The run's seed.
    pub seed: Seed,
}

/// A question that was asked, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Its place among the training questions.
    pub question: usize,
    /// The step that asked it.
    pub step: u64,
    /// Mean accuracy of its episodes, 0 to 1; the reward where nothing says what is right. None where they are still in play, or all were
    /// lost to infrastructure faults.
    pub accuracy: Option<f32>,
}
