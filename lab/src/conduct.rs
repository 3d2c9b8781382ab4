//! The behaviour of a run's policy, step by step: `telemetry.jsonl` in its folder.

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
