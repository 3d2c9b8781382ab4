//! The records of a run, which every kind of run shares: its place, its metrics and checkpoints, and the errors that end it.

use std::path::PathBuf;

use forage_contracts::{RegistryError, SettingError};
use forage_env::BudgetExceeded;

use crate::checkpoint::{self, CheckpointError, FORMAT, Restored, RunState, Snapshot};
use crate::file_error::FileError;
use crate::metrics::{FILE, MetricsWriter, Row};
use crate::optim::AdamWConfig;
use crate::ranks::{RankError, RankSettings, Shard};
use crate::student::LearnError;
use crate::weights::Checkpoint;

/// The folder of a run, its seed and its settings' digest.
#[derive(Clone, Debug)]
pub struct RunPlace {
    /// The run's folder.
    pub folder: PathBuf,
    /// Its seed.
    pub seed: u64,
    /// Digest of everything that shapes the run.
    pub config_digest: String,
    /// Continue from the newest checkpoint if there is one.
    pub resume: bool,
    /// The place of this process among those that train the policy together: rank 0 alone keeps records in `folder`, and the others use
    /// theirs for what it sends them. None of a process by itself, or of learners of one that were put together: these go on from what
    /// one `folder` holds, where the first of them alone keeps records.
    pub ranks: Option<RankSettings>,
}

/// A run that could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The update failed.
    #[error("step {step} failed")]
    Learn {
        /// The step.
        step: u64,
        /// The cause.
        source: LearnError,
    },
    /// A checkpoint could not be written or read.
    #[error("the run cannot be saved or resumed")]
    Checkpoint(#[from] CheckpointError),
    /// The settings do not fit one another, or what the run learns from.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Metrics could not be written.
    #[error("metrics cannot be kept")]
    Metrics(#[from] FileError),
    /// Too many episodes were lost to infrastructure faults.
    #[error("step {step} lost too many episodes to infrastructure faults")]
    Infra {
        /// The step.
        step: u64,
        /// The component that is down.
        source: BudgetExceeded,
    },
    /// The run was asked to stop; a checkpoint holds its state.
    #[error(
        "interrupted after step {step} of {steps}; the checkpoint in {folder} holds the run; continue with --resume"
    )]
    Interrupted {
        /// Steps done.
        step: u64,
        /// Steps of the whole run.
        steps: u64,
        /// The folder of the checkpoint.
        folder: PathBuf,
    },
    /// The ranks did not come together.
    #[error("the run cannot begin with its ranks")]
    Meeting(#[source] RankError),
    /// The run has done more steps than its settings ask for.
    #[error("the run has done {done} steps, and grpo.steps is {steps}; give {done} or more")]
    Shorter {
        /// Steps done.
        done: u64,
        /// Steps that the settings ask for.
        steps: u64,
    },
    /// A rank was lost, or stopped; all stop.
    #[error("stopped after step {step} because a rank was lost; {fix}")]
    Ranks {
        /// Steps done.
        step: u64,
        /// What holds the run, and how it goes on.
        fix: String,
        /// The rank and its fault.
        source: RankError,
    },
    /// A checkpoint could not be sent to the other ranks, or kept by one.
    #[error("{path} cannot go from rank to rank")]
    Sent {
        /// File or folder concerned.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// All ranks stop, because one was asked to or saw a grave alarm; this one is not the first.
    #[error(
        "stopped after step {step} with the other ranks; rank 0 keeps the checkpoint; continue with --resume"
    )]
    Followed {
        /// Steps done.
        step: u64,
    },
    /// The sentinel raised a grave alarm; a checkpoint holds the run's state.
    #[error(
        "paused after step {step}: {diagnosis} The checkpoint in {folder} holds the run as it is now: continue it with --resume, or \
         fork an earlier one with --from; grpo.sentinel.stop = false only warns"
    )]
    Paused {
        /// Steps done.
        step: u64,
        /// The diagnosis in words.
        diagnosis: String,
        /// The folder of the checkpoint.
        folder: PathBuf,
    },
    /// The environment cannot be demonstrated.
    #[error("there are no demonstrations")]
    Demonstrations(#[from] RegistryError),
    /// There is nothing to learn from.
    #[error("there are no training questions; give the run at least one")]
    NoTasks,
    /// No demonstration of a step reached its answer.
    #[error(
        "step {step}: none of {tried} demonstrations reached the answer; raise the environment's limits"
    )]
    NoDemonstrations {
        /// The step.
        step: u64,
        /// Demonstrations played.
        tried: usize,
    },
}

/// The caller's answer to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Write a checkpoint and stop.
    Stop,
}

/// The rhythm of checkpoints and the number that stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saving {
    /// Steps between checkpoints; 0 writes only the last.
    pub(crate) every: u64,
    /// Checkpoints kept.
    pub(crate) keep: usize,
}

impl Saving {
    /// Tells whether a run of `steps` that has done so many writes a checkpoint: where one is due, where it was the last step, where
    /// the run pauses, or where it was told to stop.
    pub(crate) fn is_due(&self, done: u64, steps: u64, control: Control, pauses: bool) -> bool {
        let due = self.every > 0 && done.is_multiple_of(self.every);
        due || done == steps || control == Control::Stop || pauses
    }
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
    pub(crate) fn open(
        place: &'a RunPlace,
        saving: Saving,
        steps: u64,
        first: u64,
    ) -> Result<Self, RunError> {
        std::fs::create_dir_all(&place.folder).map_err(checkpoint::at(&place.folder))?;
        checkpoint::clear_partial(&place.folder);
        let metrics = MetricsWriter::open(&place.folder.join(FILE), first)?;
        Ok(Self {
            place,
            saving,
            steps,
            metrics,
        })
    }

    /// Appends the row of a step.
    pub(crate) fn write(&mut self, row: &Row) -> Result<(), RunError> {
        Ok(self.metrics.write(row)?)
    }

    /// Ends a step: writes a checkpoint where [`Saving::is_due`] says so. That the run was told to stop is then the error. Returns the
    /// folder of the checkpoint.
    pub(crate) fn end<'s>(
        &mut self,
        done: u64,
        control: Control,
        pauses: bool,
        snapshot: impl FnOnce() -> Snapshot<'s>,
    ) -> Result<Option<PathBuf>, RunError> {
        if !self.saving.is_due(done, self.steps, control, pauses) {
            return Ok(None);
        }
        let folder = self.save(done, &snapshot())?;
        if control == Control::Stop && done < self.steps {
            return Err(RunError::Interrupted {
                step: done,
                steps: self.steps,
                folder,
            });
        }
        Ok(Some(folder))
    }

    /// Writes the checkpoint of a run that has done so many steps.
    pub(crate) fn save(&mut self, done: u64, snapshot: &Snapshot<'_>) -> Result<PathBuf, RunError> {
        let state = RunState {
            format: FORMAT,
            step: done,
            updates: snapshot.optimizer.steps(),
            seed: self.place.seed,
            config_digest: self.place.config_digest.clone(),
            sentinel: snapshot.sentinel.cloned(),
            anchor: snapshot.anchor,
            averages: snapshot.averages,
            critic_updates: snapshot.critic.map(|(_, optimizer)| optimizer.steps()),
            base: checkpoint::base_of(&snapshot.model),
        };
        // A resumed run needs the rows of all steps before its checkpoint.
        self.metrics.sync()?;
        let keep = self.saving.keep;
        Ok(checkpoint::save(
            &self.place.folder,
            snapshot,
            &state,
            keep,
        )?)
    }
}

/// The newest checkpoint of a run that is to be resumed and has one; `start` is what the run started from.
pub(crate) fn newest(
    place: &RunPlace,
    optimizer: AdamWConfig,
    start: impl FnOnce() -> Checkpoint,
) -> Result<Option<Restored>, RunError> {
    let newest = if place.resume {
        checkpoint::list(&place.folder)?.pop()
    } else {
        None
    };
    let Some(newest) = newest else {
        return Ok(None);
    };
    Ok(Some(checkpoint::load(
        &newest,
        &place.config_digest,
        optimizer,
        Shard::WHOLE,
        &start(),
        None,
    )?))
}
