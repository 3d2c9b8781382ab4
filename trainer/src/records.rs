//! What a run leaves in its folder step by step: metrics, and checkpoints where they are due.

use std::path::PathBuf;

use forage_env::episode::Episode;

use crate::checkpoint::{self, CheckpointError, FORMAT, Parts, Restored, RunState};
use crate::metrics::{MetricsWriter, Row};
use crate::optim::{AdamW, AdamWConfig};
use crate::run::{Control, RunError, RunPlace};
use crate::watch::Sentinel;
use crate::weights::Checkpoint;

/// When checkpoints are written and how many stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saving {
    /// Steps between checkpoints; 0 writes only the last.
    pub(crate) every: u64,
    /// Checkpoints kept.
    pub(crate) keep: usize,
}

/// What a checkpoint holds besides the run's place.
pub(crate) struct Snapshot<'a> {
    pub(crate) model: Checkpoint,
    pub(crate) optimizer: &'a AdamW,
    /// Episodes of the next step, if it was played ahead.
    pub(crate) ahead: Option<&'a [Episode]>,
    /// Groups kept to be replayed.
    pub(crate) replay: &'a [Vec<Episode>],
    pub(crate) sentinel: Option<&'a Sentinel>,
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

    /// Ends a step: writes a checkpoint where one is due, where it was the last step, where the run pauses, or where the caller
    /// stops it, which is then the error. Returns what was written.
    pub(crate) fn close<'s>(
        &self,
        step: u64,
        control: Control,
        pauses: bool,
        snapshot: impl FnOnce() -> Snapshot<'s>,
    ) -> Result<Option<PathBuf>, RunError> {
        let done = step + 1;
        let due = self.saving.every > 0 && done.is_multiple_of(self.saving.every);
        if !(due || done == self.steps || control == Control::Stop || pauses) {
            return Ok(None);
        }
        let Snapshot { model, optimizer, ahead, replay, sentinel } = snapshot();
        let state = RunState {
            format: FORMAT,
            step: done,
            updates: optimizer.steps(),
            seed: self.place.seed,
            config_digest: self.place.config_digest.clone(),
            sentinel: sentinel.cloned(),
        };
        let parts = Parts { model: &model, optimizer, ahead, replay };
        let folder = checkpoint::save(&self.place.folder, &parts, &state, self.saving.keep)?;
        if control == Control::Stop && done < self.steps {
            return Err(RunError::Interrupted { step: done, folder });
        }
        Ok(Some(folder))
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
