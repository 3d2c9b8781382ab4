//! The behaviour of a run's policy, step by step: `telemetry.jsonl` in its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use forage_contracts::Episode;
use forage_eval::{Bootstrap, Course, StepTelemetry};
use forage_trainer::metrics::{MetricsWriter, Row};
use serde_json::Value;

use crate::error::{Context, Result};
use crate::layout::RunLayout;

/// Writes a line for each step; a resumed run removes the lines of steps that it plays again.
pub(crate) struct Log {
    path: PathBuf,
    writer: Option<MetricsWriter>,
}

impl Log {
    pub(crate) fn of(layout: &RunLayout) -> Self {
        Self {
            path: layout.telemetry(),
            writer: None,
        }
    }

    /// Recorded rollouts have no episodes and leave no line.
    pub(crate) fn write(&mut self, step: u64, episodes: &[Episode]) -> Result<()> {
        if episodes.is_empty() {
            return Ok(());
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(MetricsWriter::open(&self.path, step)?),
        };
        if let Value::Object(row) = serde_json::to_value(StepTelemetry::of(step, episodes))? {
            writer.write(&Row(row))?;
        }
        Ok(())
    }
}

/// Says that members of a group began with different prompts, so that the rewards that training compares are of different tasks.
pub(crate) fn drawn_prompts(episodes: &[Episode]) -> Option<String> {
    let (mut prompts, mut torn) = (BTreeMap::new(), BTreeSet::new());
    for episode in episodes.iter().filter(|one| !one.ending.is_infra()) {
        let first = *prompts.entry(episode.group).or_insert(&episode.prompt);
        if *first != episode.prompt {
            torn.insert(episode.group);
        }
    }
    let fix = "the environment draws its prompt, which must follow from the question alone: leave the seed to what comes after it";
    (!torn.is_empty()).then(|| {
        format!(
            "the members of {} of {} groups began with different prompts, and are compared all the same; {fix}",
            torn.len(),
            prompts.len()
        )
    })
}

/// The steps of a run; none where it has left no telemetry.
pub(crate) fn steps(layout: &RunLayout) -> Result<Vec<StepTelemetry>> {
    let path = layout.telemetry();
    let mut steps = Vec::new();
    if !path.exists() {
        return Ok(steps);
    }
    for (index, row) in Row::read_all(&path)?.into_iter().enumerate() {
        let step = serde_json::from_value(Value::Object(row.0)).with_context(|| {
            format!(
                "{} line {} is not a step's telemetry; remove the file",
                path.display(),
                index + 1
            )
        })?;
        steps.push(step);
    }
    Ok(steps)
}

/// The course of a run; `None` where it has left no telemetry.
pub(crate) fn course(layout: &RunLayout, bootstrap: Bootstrap) -> Result<Option<Course>> {
    course_of(layout, &steps(layout)?, bootstrap)
}

/// The course of a run by its steps.
pub(crate) fn course_of(
    layout: &RunLayout,
    steps: &[StepTelemetry],
    bootstrap: Bootstrap,
) -> Result<Option<Course>> {
    if steps.is_empty() {
        return Ok(None);
    }
    let course = Course::of(steps, bootstrap)
        .with_context(|| format!("{} cannot be used", layout.telemetry().display()))?;
    Ok(Some(course))
}

#[cfg(test)]
mod tests {
    use forage_contracts::{Boundary, Ending, Task};

    use super::*;

    #[test]
    fn groups_whose_members_began_differently_are_told() {
        let begun = |group: u64, prompt: &str| Episode {
            group,
            prompt: prompt.to_owned(),
            ..Episode::new(Task::new("a", "How many points?"))
        };
        let lost = Episode {
            ending: Ending::Infra {
                boundary: Boundary::Environment,
                message: "down".into(),
            },
            ..begun(0, "")
        };
        let mut episodes = vec![begun(0, "You hold 4."), lost, begun(0, "You hold 4.")];
        episodes.extend([begun(1, "You hold 5."), begun(1, "You hold 5.")]);
        assert_eq!(drawn_prompts(&episodes), None);
        episodes.push(begun(1, "You hold 6."));
        let told = drawn_prompts(&episodes).unwrap();
        assert!(told.starts_with("the members of 1 of 2 groups"), "{told}");
    }
}
