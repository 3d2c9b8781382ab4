//! A run of several ranks: how it begins, what all agree on after a step, and what is saved when a rank is lost.

use std::path::PathBuf;
use std::sync::Arc;

use forage_contracts::Episode;

use super::{GrpoConfig, Run, RunError, RunPlace, lost_at};
use crate::checkpoint::{self, Snapshot};
use crate::curriculum::Memory;
use crate::learner::Learner;
use crate::objective::RankMetrics;
use crate::optim::AdamW;
use crate::ranks::{Ranks, Vote};
use crate::records::Records;
use crate::student::LearnError;
use crate::watch::Sentinel;
use crate::weights::Checkpoint;

/// Waits for all ranks of the run, which must have the same settings. Those of one process are connected already, and a learner by itself
/// is one rank.
pub(super) fn meet(
    config: &GrpoConfig,
    place: &RunPlace,
    learner: &Learner,
) -> Result<Arc<Ranks>, RunError> {
    let Some(settings) = &place.ranks else {
        return Ok(Arc::clone(learner.ranks()));
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(place.config_digest.as_bytes());
    hasher.update(&place.seed.to_le_bytes());
    // Settings outside the run's digest decide when all ranks exchange data and stop.
    hasher.update(serde_json::json!(config).to_string().as_bytes());
    let digest = hasher.finalize().to_hex();
    let ranks = Ranks::join(settings, &digest).map_err(RunError::Meeting)?;
    Ok(Arc::new(ranks))
}

/// The state of a run between two steps, kept during the next.
pub(super) struct Held {
    /// Steps done.
    step: u64,
    model: Checkpoint,
    optimizer: AdamW,
    critic: Option<(Checkpoint, AdamW)>,
    ahead: Vec<Vec<Episode>>,
    replay: Vec<Vec<Episode>>,
    solved: Vec<Episode>,
    memory: Option<Memory>,
    sentinel: Sentinel,
    anchor: Option<f32>,
    averages: Option<RankMetrics>,
}

impl Run<'_> {
    /// Keeps the state before a step, since the update changes weights and moments in place and a rank may be lost after it. Numbers are
    /// shared, not copied, until then. A lost rank's moments cannot be kept.
    pub(super) fn hold(&mut self, step: u64) {
        let is_whole = !self.learner.optimizer().is_sharded();
        if self.ranks.size() > 1 && self.ranks.is_first() && is_whole {
            self.held = Some(Held {
                step,
                model: self.learner.checkpoint(),
                optimizer: self.learner.optimizer().clone(),
                critic: self
                    .learner
                    .critic_state()
                    .map(|(model, optimizer)| (model.clone(), optimizer.clone())),
                ahead: self.batches().map(<[Episode]>::to_vec).collect(),
                replay: self.buffer.groups().to_vec(),
                solved: self.solved.episodes().to_vec(),
                memory: self.memory.clone(),
                sentinel: self.sentinel.clone(),
                anchor: self.learner.anchor(),
                averages: self.learner.averages(),
            });
        }
    }

    /// Lets all ranks agree on how to go on after a step, and checks that their weights are equal.
    pub(super) fn agree(&self, step: u64, own: Vote) -> Result<Vote, RunError> {
        if self.ranks.size() == 1 {
            return Ok(own);
        }
        let weights = self.learner.weights_digest();
        let agreed = self.ranks.agree(Vote { weights, ..own });
        agreed.map_err(lost_at(step))
    }

    /// The error of a failed checkpoint: where a rank was lost with moments that belong to it, that is the cause, not the file.
    pub(super) fn unsaved(&self, error: RunError, done: u64) -> RunError {
        let misses_moments =
            matches!(error, RunError::Checkpoint(_)) && self.learner.optimizer().is_sharded();
        let lost = self.ranks.loss().filter(|_| misses_moments);
        lost.map_or(error, lost_at(done))
    }

    /// The error of a run that cannot go on. Where a rank was lost, rank 0 first saves the state after the last step that all completed,
    /// unless a part of it is gone.
    pub(super) fn given_up(
        &mut self,
        error: RunError,
        records: Option<&mut Records<'_>>,
    ) -> RunError {
        let RunError::Learn {
            source: LearnError::Ranks(source),
            ..
        } = error
        else {
            return error;
        };
        // Releases the other ranks before writing to disk.
        self.ranks.leave(Some(&source.to_string()));
        let again = if self.place.ranks.is_some() {
            "start all ranks again with --resume, as many of them as you like"
        } else {
            "start it again with --resume, on as many devices as you like"
        };
        let gone = if self.learner.optimizer().is_sharded() {
            Some("the optimizer is sharded, and the moments of that rank are gone with it")
        } else if self.ranks.hangs() {
            Some("the other devices wait in that sum, and cannot be read")
        } else {
            None
        };
        if let Some(gone) = gone {
            let fix = format!("{gone}: {}; {again}", self.left());
            let step = self.done;
            return RunError::Ranks { step, fix, source };
        }
        let held = self.held.take();
        let step = held.as_ref().map_or(self.done, |held| held.step);
        let fix = match records
            .zip(held)
            .map(|(records, held)| self.keep(records, &held))
        {
            Some(Ok(Some(folder))) => {
                format!(
                    "the checkpoint in {} holds the run; {again}",
                    folder.display()
                )
            }
            Some(Ok(None)) => again.to_owned(),
            None if self.ranks.is_first() => again.to_owned(),
            Some(Err(error)) => format!("its checkpoint cannot be written ({error}); {again}"),
            None => format!("rank 0 keeps the checkpoint; {again}"),
        };
        RunError::Ranks { step, fix, source }
    }

    /// The checkpoint that a run resumes from after a rank was lost with its share of the moments, in words.
    fn left(&self) -> String {
        if !self.ranks.is_first() {
            return "rank 0 keeps the last checkpoint that was due".to_owned();
        }
        let newest = checkpoint::list(&self.place.folder).ok();
        match newest.and_then(|mut there| there.pop()) {
            Some(folder) => format!("what is left is the last checkpoint, {}", folder.display()),
            None => "no checkpoint was due yet (grpo.checkpoint_every), and the run begins anew"
                .to_owned(),
        }
    }

    /// The checkpoint of the held state, written unless it exists; `None` before the first step.
    fn keep(&self, records: &mut Records<'_>, held: &Held) -> Result<Option<PathBuf>, RunError> {
        if held.step == 0 {
            return Ok(None);
        }
        let name = checkpoint::name(held.step);
        let there = checkpoint::list(&self.place.folder)?;
        if let Some(folder) = there.into_iter().find(|folder| folder.ends_with(&name)) {
            return Ok(Some(folder));
        }
        let snapshot = Snapshot {
            model: held.model.clone(),
            optimizer: &held.optimizer,
            ranks: &self.ranks,
            critic: held
                .critic
                .as_ref()
                .map(|(model, optimizer)| (model, optimizer)),
            ahead: held.ahead.iter().map(Vec::as_slice).collect(),
            replay: &held.replay,
            solved: &held.solved,
            memory: held.memory.as_ref(),
            sentinel: Some(&held.sentinel),
            anchor: held.anchor,
            averages: held.averages,
        };
        records.save(held.step, &snapshot).map(Some)
    }

    /// Leaves the other ranks. They are not told of an end that all agreed on.
    pub(super) fn part(&mut self, error: Option<&RunError>) {
        let failed = error.filter(|error| {
            let agreed = matches!(
                error,
                RunError::Interrupted { .. } | RunError::Paused { .. } | RunError::Followed { .. }
            );
            !agreed
        });
        self.ranks.leave(failed.map(described).as_deref());
        // A share of the moments is of no use to one process.
        self.learner.join(Arc::new(Ranks::alone()));
    }
}

/// An error with its causes.
fn described(error: &RunError) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
