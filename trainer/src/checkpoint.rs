//! Checkpoints of a run: a folder per step, complete or absent.
//!
//! `checkpoints/step-000050/` holds `model/` (a Hugging Face folder, or a PEFT folder where an adapter is trained: the
//! base does not change), `optimizer.safetensors`, `state.json` and, where episodes are played ahead, `ahead.jsonl`; where they are
//! replayed, `replay.jsonl`; where right ones are kept, `solved.jsonl`; where a critic learns, `critic/` with its own `model/`, `head.safetensors` and
//! `optimizer.safetensors`. `BLAKE3SUMS` has the digests of all of them, which are checked before anything is read. It is
//! written under another name and renamed at the end, so a run killed or out of disk leaves no half checkpoint.

mod fork;
mod kept;
mod sums;

use std::path::{Path, PathBuf};

use forage_contracts::Episode;
use forage_env::{EpisodeRecord, EpisodeWriter, RecordError};
pub use fork::fork;
use serde::{Deserialize, Serialize};

use crate::critic::{self, Critic};
use crate::curriculum::Memory;
use crate::file_error::FileError;
use crate::folder::{self, FolderFault};
use crate::model::Decoder;
use crate::objective::RankMetrics;
use crate::optim::{AdamW, AdamWConfig};
use crate::ranks::{Ranks, Shard, sample};
use crate::watch::Sentinel;
use crate::weights::{Checkpoint, WeightsError, adapter, load_decoder_like};

/// Everything besides weights and moments that the next step depends on. Random streams and the data order are functions
/// of `seed` and `step`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunState {
    /// Format of this file.
    pub(crate) format: u32,
    /// Steps done.
    pub(crate) step: u64,
    /// Optimizer updates done: fewer than steps when whole steps had no direction.
    pub(crate) updates: u64,
    /// Seed of the run.
    pub(crate) seed: u64,
    /// Digest of the settings that shape the run; another digest cannot be resumed.
    pub(crate) config_digest: String,
    /// The memory of the sentinel; only runs that it watches have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sentinel: Option<Sentinel>,
    /// The entropy that the objective holds, nats; only runs that hold one have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) anchor: Option<f32>,
    /// The moving averages that the objective shapes advantages by; only runs that do so have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) averages: Option<RankMetrics>,
    /// Optimizer updates of the critic; only runs that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) critic_updates: Option<u64>,
    /// See [`base_of`]; only runs that train an adapter have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<u64>,
}

/// Format this version writes.
pub(crate) const FORMAT: u32 = 2;
/// Format of versions that wrote no digests.
const WITHOUT_DIGESTS: u32 = 1;

/// A checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Weights, tokenizer or model config.
    #[error("checkpoint not usable")]
    Weights(#[from] WeightsError),
    /// Optimizer moments.
    #[error("checkpoint not usable")]
    Optim(#[from] FileError),
    /// Episodes played ahead or kept.
    #[error("checkpoint not usable")]
    Episodes(#[from] RecordError),
    /// A file or folder cannot be read or written.
    #[error("{path} cannot be read or written")]
    Io {
        /// File or folder concerned.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The content of a file.
    #[error("{path}: {message}")]
    File {
        /// File or folder concerned.
        path: PathBuf,
        /// The fault and the fix.
        message: String,
    },
    /// The run that goes on is not the one that was saved.
    #[error(
        "{path} was written under other settings; use the config the run was started with, or start a new run with another --out, into \
         which `forage train --from RUN` takes what was learned"
    )]
    Settings {
        /// The state of the run that was saved.
        path: PathBuf,
    },
}

impl From<FolderFault> for CheckpointError {
    fn from(FolderFault { path, source }: FolderFault) -> Self {
        Self::Io { path, source }
    }
}

/// A checkpoint read back.
#[derive(Debug)]
pub(crate) struct Restored {
    /// Weights.
    pub(crate) decoder: Decoder,
    /// Moments.
    pub(crate) optimizer: AdamW,
    /// Weights and moments of the critic, if the run has one.
    pub(crate) critic: Option<(Decoder, AdamW)>,
    /// Episodes of the steps that were played ahead, step after step.
    pub(crate) ahead: Vec<Episode>,
    /// Episodes kept to be replayed, group after group, oldest first.
    pub(crate) replay: Vec<Episode>,
    /// Right episodes of solved questions, oldest first.
    pub(crate) solved: Vec<Episode>,
    /// The task that was asked.
    pub(crate) memory: Memory,
    /// The rest.
    pub(crate) state: RunState,
}

/// Everything that a checkpoint is written from besides the place of the run.
pub(crate) struct Snapshot<'a> {
    /// Weights, or base and adapter.
    pub(crate) model: Checkpoint,
    pub(crate) optimizer: &'a AdamW,
    /// The ranks, which keep the rest of the moments where the optimizer is sharded.
    pub(crate) ranks: &'a Ranks,
    /// Weights and moments of the critic, if there is one.
    pub(crate) critic: Option<(&'a Checkpoint, &'a AdamW)>,
    /// Episodes of the steps that were played ahead, the next one first.
    pub(crate) ahead: Vec<&'a [Episode]>,
    /// Groups kept to be replayed, oldest first.
    pub(crate) replay: &'a [Vec<Episode>],
    /// Right episodes of solved questions, oldest first.
    pub(crate) solved: &'a [Episode],
    /// What was asked, where that is kept.
    pub(crate) memory: Option<&'a Memory>,
    pub(crate) sentinel: Option<&'a Sentinel>,
    /// The entropy that the objective holds, if it holds one.
    pub(crate) anchor: Option<f32>,
    /// The moving averages that the objective shapes advantages by, if it does.
    pub(crate) averages: Option<RankMetrics>,
}

/// The folder of checkpoints in that of a run.
pub const FOLDER: &str = "checkpoints";
/// File of the episodes played ahead.
const AHEAD: &str = "ahead.jsonl";
/// File of the episodes kept to be replayed.
const REPLAY: &str = "replay.jsonl";
/// File of the right episodes of solved questions.
const SOLVED: &str = "solved.jsonl";
/// File of what was asked.
const ASKED: &str = "asked.json";
/// Folder of the critic.
const CRITIC: &str = "critic";

/// Writes `run/checkpoints/step-N` and removes all but the newest `keep`.
///
/// # Errors
/// [`CheckpointError`]; earlier checkpoints are untouched and nothing partial stays.
pub(crate) fn save(
    run: &Path,
    snapshot: &Snapshot<'_>,
    state: &RunState,
    keep: usize,
) -> Result<PathBuf, CheckpointError> {
    let folder = run.join(FOLDER);
    let target = folder.join(name(state.step));
    let partial = staging(&folder, state.step);
    let written = write(&partial, snapshot, state).and_then(|()| publish(run, &partial, &target));
    if let Err(error) = written {
        let _ = std::fs::remove_dir_all(&partial);
        return Err(error);
    }
    thin(run, keep)?;
    Ok(target)
}

/// Removes all checkpoints but the newest `keep`. What cannot be removed ends no run: a network file system keeps the files that another
/// process still reads.
fn thin(run: &Path, keep: usize) -> Result<(), CheckpointError> {
    for old in list(run)?.iter().rev().skip(keep.max(1)) {
        let name = old.file_name().unwrap_or_default().to_string_lossy();
        // Half of one is none, whatever stops this.
        let aside = old.with_file_name(format!("{PARTIAL}{name}-old"));
        match std::fs::rename(old, &aside) {
            Ok(()) => discard(&aside),
            Err(error) => tracing::warn!("{} cannot be removed: {error}", old.display()),
        }
    }
    Ok(())
}

/// Removes a folder that is not a checkpoint; one that cannot be removed only takes space.
fn discard(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        tracing::warn!("{} cannot be removed: {error}", folder.display());
    }
}

fn write(folder: &Path, snapshot: &Snapshot<'_>, state: &RunState) -> Result<(), CheckpointError> {
    let Snapshot {
        model,
        optimizer,
        ranks,
        critic,
        ahead,
        replay,
        solved,
        memory,
        ..
    } = snapshot;
    std::fs::create_dir_all(folder).map_err(at(folder))?;
    match model.lora {
        Some(_) => model.save_adapter(&folder.join("model"))?,
        None => model.save(&folder.join("model"))?,
    }
    optimizer.save(&folder.join("optimizer.safetensors"), ranks)?;
    if let Some(state) = *critic {
        critic::save(state, &folder.join(CRITIC), ranks)?;
    }
    if !ahead.is_empty() {
        write_episodes(&folder.join(AHEAD), ahead.iter().copied().flatten())?;
    }
    if !replay.is_empty() {
        write_episodes(&folder.join(REPLAY), replay.iter().flatten())?;
    }
    if !solved.is_empty() {
        write_episodes(&folder.join(SOLVED), solved.iter())?;
    }
    if let Some(memory) = memory {
        let path = folder.join(ASKED);
        std::fs::write(&path, serde_json::json!(memory).to_string()).map_err(at(&path))?;
    }
    write_state(folder, state)?;
    sums::seal(folder)
}

/// The name of the checkpoint of a run that has done so many steps.
pub(crate) fn name(step: u64) -> String {
    format!("{STEP}{step:06}")
}

/// Start of the names of checkpoints.
const STEP: &str = "step-";

/// Start of the names of checkpoints that are being written or removed.
const PARTIAL: &str = ".partial-";

/// The folder in which this process writes the checkpoint of a step.
fn staging(checkpoints: &Path, step: u64) -> PathBuf {
    let process = std::process::id();
    checkpoints.join(format!("{PARTIAL}{}-{process}", name(step)))
}

/// Gives a checkpoint that is on the disk its name, which is on the disk too when this returns: only then may others be removed.
fn publish(run: &Path, partial: &Path, target: &Path) -> Result<(), CheckpointError> {
    // Another one of this step stays until the new one is there, under a name that is of this step too and stands before it.
    let aside = target.file_name().unwrap_or_default().to_string_lossy();
    let aside = target.with_file_name(aside.replacen(STEP, &format!("{STEP}0"), 1));
    folder::publish(partial, target, &aside)?;
    Ok(folder::sync_names(run)?)
}

/// Removes what killed processes left half written or half removed. Only for the process that the run belongs to.
pub(crate) fn clear_partial(run: &Path) {
    let entries = std::fs::read_dir(run.join(FOLDER)).into_iter().flatten();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PARTIAL) {
            discard(&path);
        }
    }
}

fn write_episodes<'a>(
    path: &Path,
    episodes: impl Iterator<Item = &'a Episode>,
) -> Result<(), RecordError> {
    let mut writer = EpisodeWriter::create(path)?;
    for episode in episodes {
        writer.write(episode.clone())?;
    }
    writer.finish()
}

/// The episodes of a file; `None` where there is none.
fn episodes(path: &Path) -> Result<Option<Vec<Episode>>, RecordError> {
    if !path.exists() {
        return Ok(None);
    }
    EpisodeRecord::read_all(path)?
        .map(|record| Ok(record?.episode))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// What a file says was asked; nothing where there is none.
fn asked(path: &Path) -> Result<Memory, CheckpointError> {
    if !path.exists() {
        return Ok(Memory::default());
    }
    let text = std::fs::read_to_string(path).map_err(at(path))?;
    serde_json::from_str(&text).map_err(|error| CheckpointError::File {
        path: path.to_owned(),
        message: format!("is damaged: {error}"),
    })
}

/// The files of a checkpoint by their names within its folder.
///
/// # Errors
/// [`CheckpointError`] when the folder cannot be listed, or holds something else.
pub(crate) fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, CheckpointError> {
    sums::content(folder)
}

/// Complete checkpoints of a run, oldest first.
///
/// # Errors
/// [`CheckpointError`] when the folder cannot be listed.
pub(crate) fn list(run: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let folder = run.join(FOLDER);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(&folder).map_err(at(&folder))?;
    let step = |path: PathBuf| {
        let digits = path.file_name()?.to_str()?.strip_prefix(STEP)?;
        let step: u64 = digits.parse().ok()?;
        Some((step, path))
    };
    let mut found: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| step(entry.ok()?.path()))
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The newest checkpoint of a run, or the checkpoint whose folder this is; `None` where there is none.
///
/// # Errors
/// [`CheckpointError`] that names the file that is not as it was written, and the ways to go on.
pub fn newest(place: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    let newest = if place.join("state.json").exists() {
        Some(place.to_owned())
    } else {
        list(place)?.pop()
    };
    if let Some(folder) = &newest {
        read_state(folder)?;
    }
    Ok(newest)
}

/// Digest of a sample of the weights beneath an adapter, of which a checkpoint has none; `None` where all weights are trained.
pub(crate) fn base_of(model: &Checkpoint) -> Option<u64> {
    model.lora.as_ref()?;
    Some(sample(&model.decoder.clone().without_adapter()))
}

fn write_state(folder: &Path, state: &RunState) -> Result<(), CheckpointError> {
    let path = folder.join("state.json");
    let text = format!("{:#}\n", serde_json::json!(state));
    std::fs::write(&path, text).map_err(at(&path))
}

/// Reads the state of a checkpoint whose files are as they were written.
fn read_state(folder: &Path) -> Result<RunState, CheckpointError> {
    let sealed = sums::verify(folder)?;
    let path = folder.join("state.json");
    let text = std::fs::read_to_string(&path).map_err(at(&path))?;
    let fail = |message: String| CheckpointError::File {
        path: path.clone(),
        message,
    };
    let mut state: RunState =
        serde_json::from_str(&text).map_err(|error| fail(format!("is damaged: {error}")))?;
    match state.format {
        FORMAT if sealed => {}
        FORMAT => return Err(sums::damaged(folder, sums::SUMS, "is missing")),
        WITHOUT_DIGESTS => {
            tracing::warn!(
                "{} is of a version that kept no digests; whether its files are whole is not known",
                folder.display()
            );
            state.format = FORMAT;
        }
        format => {
            return Err(fail(format!(
                "has format {format}, this version reads {WITHOUT_DIGESTS} and {FORMAT}; start the run anew"
            )));
        }
    }
    Ok(state)
}

/// Reads a checkpoint folder of a run that started from `start`, with settings of digest `config_digest`, and the state of its
/// `critic`: none where the checkpoint is of a run that had no critic, whose own then begins anew. Of moments that are sharded, those
/// of `shard` are kept.
///
/// # Errors
/// [`CheckpointError`] that names what is missing, damaged or different.
pub(crate) fn load(
    folder: &Path,
    config_digest: &str,
    optimizer: AdamWConfig,
    shard: Shard,
    start: &Checkpoint,
    critic: Option<&Critic>,
) -> Result<Restored, CheckpointError> {
    let state = read_state(folder)?;
    if state.config_digest != config_digest {
        let path = folder.join("state.json");
        return Err(CheckpointError::Settings { path });
    }
    let model = folder.join("model");
    let device = start.decoder.device();
    let decoder = if let Some(lora) = &start.lora {
        if state.base.is_some() && state.base != base_of(start) {
            return Err(CheckpointError::File {
                path: folder.join("state.json"),
                message: format!(
                    "is of an adapter on other weights than those of {} now; give the run the weights that it was started with, or \
                     start a new one",
                    lora.base
                ),
            });
        }
        let mut decoder = start.decoder.clone().without_adapter();
        adapter::load_on(lora, &mut decoder, &model)?;
        decoder
    } else {
        load_decoder_like(&model, &start.config, &device)?
    };
    let critic = critic.zip(state.critic_updates);
    let critic = critic
        .map(|(critic, updates)| critic.load(&folder.join(CRITIC), updates, optimizer, shard));
    let critic = critic.transpose()?;
    let moments = folder.join("optimizer.safetensors");
    let optimizer = AdamW::load(optimizer, shard, state.updates, &moments, &device)?;
    optimizer.check_fit(&decoder, &moments)?;
    let ahead = episodes(&folder.join(AHEAD))?.unwrap_or_default();
    let replay = episodes(&folder.join(REPLAY))?.unwrap_or_default();
    let solved = episodes(&folder.join(SOLVED))?.unwrap_or_default();
    let memory = asked(&folder.join(ASKED))?;
    Ok(Restored {
        decoder,
        optimizer,
        critic,
        ahead,
        replay,
        solved,
        memory,
        state,
    })
}

/// Makes the error of a file or folder from the system's.
pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError {
    |source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_listed_by_their_steps() {
        let run = tempfile::tempdir().unwrap();
        let names = ["step-000050", "step-999999", "step-1000000"];
        for name in names
            .iter()
            .chain(&["step-x", ".partial-step-000060-7", "notes"])
        {
            std::fs::create_dir_all(run.path().join("checkpoints").join(name)).unwrap();
        }
        let found = list(run.path()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(found, names);
        clear_partial(run.path());
        let left = std::fs::read_dir(run.path().join("checkpoints")).unwrap();
        assert_eq!(left.count(), names.len() + 2);
    }

    #[test]
    fn an_old_checkpoint_that_cannot_be_removed_ends_no_run() {
        let run = tempfile::tempdir().unwrap();
        let folder = run.path().join("checkpoints");
        for step in 2..=4 {
            std::fs::create_dir_all(folder.join(name(step)).join("model")).unwrap();
        }
        // Which the system does not remove as a folder, as it keeps one that holds files in use on a network file system.
        std::fs::write(folder.join(name(1)), "").unwrap();
        thin(run.path(), 2).unwrap();
        let left = [name(3), name(4)].map(|name| folder.join(name));
        assert_eq!(list(run.path()).unwrap(), left);
        assert!(!folder.join(name(2)).exists());
        clear_partial(run.path());
        thin(run.path(), 2).unwrap();
        assert_eq!(list(run.path()).unwrap(), left);
    }

    #[test]
    fn a_checkpoint_is_there_whenever_its_replacement_ends() {
        let run = tempfile::tempdir().unwrap();
        let folder = run.path().join("checkpoints");
        for step in [7, 1_000_000] {
            let target = folder.join(name(step));
            let newest = || {
                let found = list(run.path()).unwrap().pop().unwrap();
                std::fs::read_to_string(found.join("content")).unwrap()
            };
            let publish = |content: Option<&str>| {
                let partial = staging(&folder, step);
                if let Some(content) = content {
                    std::fs::create_dir_all(&partial).unwrap();
                    std::fs::write(partial.join("content"), content).unwrap();
                }
                publish(run.path(), &partial, &target)
            };
            publish(Some("first")).unwrap();
            // As a process that is killed in between: nothing takes the name.
            publish(None).unwrap_err();
            assert_eq!(newest(), "first");
            publish(Some("second")).unwrap();
            assert_eq!(newest(), "second");
            publish(Some("third")).unwrap();
            assert_eq!(newest(), "third");
        }
        assert_eq!(list(run.path()).unwrap().len(), 2);
    }
}
