//! Curricula: which questions a step asks, by what became of those that were asked before.
//!
//! A new curriculum is an entry of the list here, and its function. Every draw is a function of the run's seed and of what was
//! asked, which checkpoints keep ([`Memory`]).

mod alignment;
mod difficulty;
mod recap;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use forage_contracts::objective::{Setting, Settings};
use forage_contracts::seed::Seed;
use forage_contracts::{Asked, CurriculumEntry, CurriculumInputs, Registry, SettingError, Task};
use serde::{Deserialize, Serialize};

use crate::objective::{Choice, Entry};
use crate::sequence::shuffled;

/// Every built-in curriculum.
const CURRICULA: &[CurriculumEntry] = &[
    CurriculumEntry::new(
        "uniform",
        "every question once per epoch, in an order drawn anew for each",
        |_, inputs, _| uniform(inputs),
    ),
    CurriculumEntry {
        settings: difficulty::SETTINGS,
        ..CurriculumEntry::new(
            "difficulty",
            "questions of a predicted difficulty d near the target: drawn without repetition with weights exp(-abs(d - target) / \
             temperature), d = sum of a_i d_i over the last `reference` questions that were asked, d_i one less their mean \
             accuracy, a the softmax of the similarities over `attention`: DOTS (arXiv 2506.05316, target .5, temperature 1e-3, \
             128 or 256 references). Uniform until as many were asked",
            difficulty::draw,
        )
    },
    CurriculumEntry {
        settings: alignment::SETTINGS,
        ..CurriculumEntry::new(
            "alignment",
            "uniform for so many epochs, then without the questions whose alignment 1 - sum of (r_k - m_k)^2 / sum of (1 - m_k)^2 is \
             not above the threshold, r_k the mean accuracy when it was asked for the k-th time, m_k the mean of r_k over questions: \
             LIMR (arXiv 2502.11886, threshold .6; its code measures 21 epochs)",
            alignment::draw,
        )
    },
    CurriculumEntry {
        settings: recap::SETTINGS,
        ..CurriculumEntry::new(
            "recap",
            "from each data set a share of the step, the softmax of (n / m + s / a) / temperature, a and s the mean and standard deviation of \
             its accuracy over the last `window` steps that asked it, m = 1 - a, n the mean of 1 - accuracy over the newer half of \
             them: RECAP (arXiv 2510.21978; the formula is assumed, and so are a window of 10 and temperature 1). Within a data set \
             as uniform; alike until each was asked in as many steps",
            recap::draw,
        )
    },
];

static REGISTRY: Registry<CurriculumEntry> = Registry::new(CURRICULA);

impl Entry for CurriculumEntry {
    fn settings(&self) -> &'static [Setting] {
        self.settings
    }

    fn registry() -> &'static Registry<Self> {
        &REGISTRY
    }
}

/// A rule for what is asked, as a configuration names it.
pub(crate) type Curriculum = Choice<CurriculumEntry>;

impl Curriculum {
    /// The rule of runs that name none.
    pub(crate) fn uniform() -> Self {
        Self::of("uniform", &[])
    }

    /// Returns whether it is [`Self::uniform`].
    pub(crate) fn is_uniform(&self) -> bool {
        *self == Self::uniform()
    }

    /// The places of the questions to ask; `note` puts a figure into the step's row.
    ///
    /// # Errors
    /// When a curriculum from outside gives another number of questions, or one that is not there.
    pub(crate) fn draw(
        &self,
        inputs: &CurriculumInputs<'_>,
        note: &mut dyn FnMut(&'static str, f64),
    ) -> Result<Vec<usize>, SettingError> {
        let drawn = (self.entry.draw)(&self.settings, inputs, note);
        let (count, there) = (inputs.count, inputs.questions.len());
        if drawn.len() == count && drawn.iter().all(|&place| place < there) {
            return Ok(drawn);
        }
        let fault = format!(
            "`{}` must draw {count} of the {there} questions, and drew {} with places up to {}; fix its entry",
            self.name(),
            drawn.len(),
            drawn.iter().max().unwrap_or(&0)
        );
        Err(SettingError::new(
            <CurriculumEntry as forage_contracts::Entry>::KIND,
            fault,
        ))
    }
}

/// What a run has asked, as checkpoints keep it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Digest of the questions that places refer to.
    questions: String,
    /// In order.
    asked: Vec<Asked>,
}

impl Memory {
    /// Nothing yet of these questions.
    pub(crate) fn of(questions: &[Arc<Task>]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for task in questions {
            let name = task.name();
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
        }
        Self {
            questions: hasher.finalize().to_hex().to_string(),
            asked: Vec::new(),
        }
    }

    pub(crate) fn asked(&self) -> &[Asked] {
        &self.asked
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// The questions asked before a step drew its first ones, with the outcomes that were known then: those of the steps up to `over`.
    pub(crate) fn before(&self, step: u64, over: u64) -> Vec<Asked> {
        let earlier = self.asked.iter().take_while(|asked| asked.step != step);
        let known = |asked: &Asked| Asked {
            accuracy: asked.accuracy.filter(|_| asked.step <= over),
            ..*asked
        };
        earlier.map(known).collect()
    }

    /// Adds questions of a step, of which nothing is known yet.
    pub(crate) fn ask(&mut self, step: u64, questions: &[usize]) {
        let asked = questions.iter().map(|&question| Asked {
            question,
            step,
            accuracy: None,
        });
        self.asked.extend(asked);
    }

    /// Adds the first questions of a step, unless it has asked already; returns those that it asked.
    pub(crate) fn ask_once(&mut self, step: u64, questions: Vec<usize>) -> Vec<usize> {
        let own = self.asked.iter().filter(|asked| asked.step == step);
        let own: Vec<usize> = own.map(|asked| asked.question).collect();
        if !own.is_empty() {
            return own;
        }
        self.ask(step, &questions);
        questions
    }

    /// Takes in the accuracies of a step's questions, from its `first` on.
    pub(crate) fn learn(
        &mut self,
        step: u64,
        first: usize,
        accuracies: impl Iterator<Item = Option<f32>>,
    ) {
        let own = self.asked.iter_mut().filter(|asked| asked.step == step);
        for (asked, accuracy) in own.skip(first).zip(accuracies) {
            asked.accuracy = accuracy;
        }
    }

    /// Forgets what was asked for steps from this one on, which are played anew.
    pub(crate) fn forget_from(&mut self, step: u64) {
        self.asked.retain(|asked| asked.step < step);
    }

    /// Takes over what a checkpoint kept, unless its places refer to other questions than this run's: a run that begins from the
    /// checkpoint of another run may have questions of its own.
    pub(crate) fn restore(&mut self, kept: Self) {
        if kept.questions == self.questions {
            self.asked = kept.asked;
        } else if !kept.is_empty() {
            tracing::warn!(
                "the training questions are not those of the checkpoint; the curriculum begins anew"
            );
        }
    }
}

fn uniform(inputs: &CurriculumInputs<'_>) -> Vec<usize> {
    let count = inputs.questions.len();
    walk(count, inputs.drawn, inputs.count, inputs.seed)
}

/// `count` places below `among`, from the `first` of a walk on, whose order is drawn anew for each epoch.
fn walk(among: usize, first: usize, count: usize, seed: Seed) -> Vec<usize> {
    let mut order = (usize::MAX, Vec::new());
    (first..first + count)
        .map(|index| {
            let epoch = index / among;
            if order.0 != epoch {
                order = (epoch, shuffled(among, seed.child("order", &[epoch as u64])));
            }
            order.1[index % among]
        })
        .collect()
}

/// The range of a setting that is a count, in words and as a test.
const COUNT: (&str, fn(&Settings, f64) -> bool) = ("a whole number from 1 on", |_, count| {
    count >= 1.0 && count.fract() == 0.0
});
