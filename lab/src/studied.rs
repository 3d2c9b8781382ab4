//! The findings of a study, and the file in which a run keeps its own.

use forage_eval::{Bootstrap, Course, SeedEpisodes, Study, write_atomic};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Result};
use crate::layout::RunLayout;

/// The findings of a study.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Studied {
    /// The study of greedy episodes.
    pub greedy: Study,
    /// The study of sampled episodes, where all runs have some.
    pub sampled: Option<Study>,
}

impl Studied {
    /// Studies the greedy and the sampled episodes of each seed, with the courses of their trained policies and the cost of training.
    pub(crate) fn of(
        greedy: &[SeedEpisodes],
        sampled: &[SeedEpisodes],
        courses: &[(u64, Course)],
        costs: &[(String, [f64; 2])],
        bootstrap: Bootstrap,
    ) -> Result<Self> {
        let has_samples = sampled.iter().all(|seed| !seed.start.is_empty());
        Ok(Self {
            greedy: Study::of(greedy, bootstrap)?
                .with_courses(courses)
                .with_costs(costs),
            sampled: has_samples
                .then(|| Study::of(sampled, bootstrap))
                .transpose()?
                .map(|study| study.with_costs(costs)),
        })
    }

    /// Keeps the study of one run in its folder; it appears whole or not at all.
    pub(crate) fn write(&self, run: &RunLayout) -> Result<()> {
        let file = run.study();
        let failed = || format!("cannot write {}", file.display());
        let mut json = serde_json::to_vec_pretty(self).with_context(failed)?;
        json.push(b'\n');
        write_atomic(&file, &json).with_context(failed)
    }

    /// The study that a run's folder keeps, where it has one.
    pub(crate) fn read(run: &RunLayout) -> Result<Option<Self>> {
        let file = run.study();
        if !file.exists() {
            return Ok(None);
        }
        let shown = file.display();
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read {shown}"))?;
        let parsed = serde_json::from_slice(&bytes).with_context(|| {
            format!("{shown} does not hold a study; remove it, and forage eval --controls writes another")
        });
        parsed.map(Some)
    }
}
