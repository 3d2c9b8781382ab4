//! Curricula: which questions a step asks, given the outcomes of those asked before.

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
    /// Draws the questions to ask, as indices, as many as are wanted; one may occur twice. The last argument sets a figure in the step's
    /// row. Must be a function of its arguments alone, so that a resumed run draws the same questions again.
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
    /// Questions asked so far, in order, including those of batches still in play. When a step draws again to fill its batch, they
    /// include its first draw; where steps are played ahead, questions that fill a batch come after the first questions of later steps.
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

/// A question that was asked, and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Index among the training questions.
    pub question: usize,
    /// The step that asked it.
    pub step: u64,
    /// Mean accuracy of its episodes, 0 to 1; the reward where nothing says what is right. None where they are still in play, or all were
    /// lost to infrastructure faults.
    pub accuracy: Option<f32>,
}
