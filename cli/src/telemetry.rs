//! The conduct of a run's policy, step by step: `telemetry.jsonl` in its folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forage_env::episode::Episode;
use forage_eval::stats::Bootstrap;
use forage_eval::telemetry::{Course, StepTelemetry};
use forage_trainer::metrics::{self, MetricsWriter, Row};
use serde_json::Value;

const FILE: &str = "telemetry.jsonl";

/// Writes a line for each step; a resumed run cuts off those it plays again.
pub(crate) struct Log {
    path: PathBuf,
    writer: Option<MetricsWriter>,
}

impl Log {
    pub(crate) fn of(folder: &Path) -> Self {
        Self { path: folder.join(FILE), writer: None }
    }

    /// Recorded rollouts are no episodes and leave no line.
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

/// The course of the run in `folder`; `None` where it has left no telemetry.
pub(crate) fn course(folder: &Path, bootstrap: Bootstrap) -> Result<Option<Course>> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let mut steps: Vec<StepTelemetry> = Vec::new();
    for (index, row) in metrics::read(&path)?.into_iter().enumerate() {
        let step = serde_json::from_value(Value::Object(row.0)).with_context(|| {
            format!("{} line {} is not a step's telemetry; remove the file", path.display(), index + 1)
        })?;
        steps.push(step);
    }
    if steps.is_empty() {
        return Ok(None);
    }
    let course = Course::of(&steps, bootstrap).with_context(|| format!("{} cannot be used", path.display()))?;
    Ok(Some(course))
}
