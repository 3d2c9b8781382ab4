//! What a run leaves in its folder step by step: metrics, and checkpoints where they are due.

use crate::checkpoint::{self, CheckpointError, FORMAT, Restored, RunState};
use crate::metrics::{MetricsWriter, Row};
use crate::optim::{AdamW, AdamWConfig};
use crate::run::{Control, RunError, RunPlace};
use crate::weights::Checkpoint;

/// When checkpoints are written and how many stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saving {
    /// Steps between checkpoints; 0 writes only the last.
    pub(crate) every: u64,
    /// Checkpoints kept.
    pub(crate) keep: usize,
}

/// The metrics and checkpoints of a run that is going on.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    place: &'a RunPlace,
    saving: Saving,
    /// Steps of the whole run.
    steps: u64,
    metrics: MetricsWriter,
}

impl<'a> Records<'a> {
    /// For a run of `steps` that begins or goes on at step `first`.
    pub(crate) fn open(place: &'a RunPlace, saving: Saving, steps: u64, first: u64) -> Result<Self, RunError> {
        std::fs::create_dir_all(&place.folder)
            .map_err(|error| CheckpointError::File { path: place.folder.clone(), message: error.to_string() })?;
        let metrics = MetricsWriter::open(&place.folder.join("metrics.jsonl"), first)?;
        Ok(Self { place, saving, steps, metrics })
    }

    /// Appends the row of a step.
    pub(crate) fn write(&mut self, row: &Row) -> Result<(), RunError> {
        Ok(self.metrics.write(row)?)
    }

    /// Ends a step: writes a checkpoint where one is due, where it was the last step, or where the caller stops the run,
    /// which is then the error.
    pub(crate) fn close(
        &self,
        step: u64,
        control: Control,
        model: impl FnOnce() -> Checkpoint,
        optimizer: &AdamW,
    ) -> Result<(), RunError> {
        let done = step + 1;
        let due = self.saving.every > 0 && done.is_multiple_of(self.saving.every);
        if !(due || done == self.steps || control == Control::Stop) {
            return Ok(());
        }
        let state = RunState {
            format: FORMAT,
            step: done,
            updates: optimizer.steps(),
            seed: self.place.seed,
            config_digest: self.place.config_digest.clone(),
        };
        let folder = checkpoint::save(&self.place.folder, &model(), optimizer, &state, self.saving.keep)?;
        if control == Control::Stop && done < self.steps {
            return Err(RunError::Interrupted { step: done, folder });
        }
        Ok(())
    }
}

/// The newest checkpoint of a run that is to be resumed and has one; `start` is what the run started from.
pub(crate) fn newest(
    place: &RunPlace,
    optimizer: AdamWConfig,
    start: impl FnOnce() -> Checkpoint,
) -> Result<Option<Restored>, RunError> {
    let newest = if place.resume { checkpoint::list(&place.folder)?.pop() } else { None };
    let Some(newest) = newest else { return Ok(None) };
    Ok(Some(checkpoint::load(&newest, &place.config_digest, optimizer, &start())?))
}
