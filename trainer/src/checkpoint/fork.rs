//! A new run that begins with the checkpoint of another.

use std::path::Path;

use super::{
    AHEAD, CheckpointError, FOLDER, at, list, name, publish, read_state, staging, sums, write_state,
};
use crate::folder::sync_names;
use crate::metrics::{FILE, MetricsWriter, Row};

/// Copies a checkpoint, and the rows of the steps before it, into the new folder `run`, as one of settings with digest `config_digest`.
/// `other` is the folder of a run, of which the newest is taken, or of one of its checkpoints. Rows are those of the metrics, and of the
/// files named `beside` as far as the other run has them. Episodes that were played ahead are taken over where the settings are the same.
/// Returns its step.
///
/// # Errors
/// [`CheckpointError`] that names the file; a half copy is not taken for a checkpoint.
pub fn fork(
    other: &Path,
    run: &Path,
    config_digest: &str,
    beside: &[&str],
) -> Result<u64, CheckpointError> {
    let (newest, other) = match other.parent().and_then(Path::parent) {
        Some(whole) if other.join("state.json").exists() => (other.to_owned(), whole),
        _ => {
            let newest = list(other)?.pop().ok_or_else(|| CheckpointError::File {
                path: other.join(FOLDER),
                message: "holds no checkpoint; name the folder of a run that has saved one, or of a checkpoint"
                    .to_owned(),
            })?;
            (newest, other)
        }
    };
    let mut state = read_state(&newest)?;
    let is_same = state.config_digest == config_digest;
    config_digest.clone_into(&mut state.config_digest);
    // Under other settings the base of an adapter may be of another precision.
    state.base = state.base.filter(|_| is_same);
    let folder = run.join(FOLDER);
    let partial = staging(&folder, state.step);
    copy(&newest, &partial)?;
    let ahead = partial.join(AHEAD);
    if !is_same && ahead.exists() {
        // They are of the questions and groups of other settings.
        std::fs::remove_file(&ahead).map_err(at(&ahead))?;
    }
    write_state(&partial, &state)?;
    sums::seal(&partial)?;
    // A run can be resumed from the moment that its checkpoint is there, and needs the rows of all steps before it.
    let there = beside.iter().filter(|file| other.join(file).exists());
    for file in there.chain(&[FILE]) {
        copy_rows(&other.join(file), &run.join(file), state.step)?;
    }
    sync_names(run)?;
    let target = folder.join(name(state.step));
    publish(run, &partial, &target)?;
    Ok(state.step)
}

fn copy(from: &Path, to: &Path) -> Result<(), CheckpointError> {
    for (name, path) in sums::content(from)? {
        let place = to.join(name);
        let folder = place.parent().unwrap_or(to);
        std::fs::create_dir_all(folder).map_err(at(folder))?;
        std::fs::copy(&path, &place).map_err(at(&path))?;
    }
    Ok(())
}

/// Copies the rows of steps before `step`, which are on the disk when this returns.
fn copy_rows(from: &Path, to: &Path, step: u64) -> Result<(), CheckpointError> {
    std::fs::copy(from, to).map_err(at(from))?;
    // A line that is not a row is named where it stays.
    Row::read_all(from)?;
    MetricsWriter::open(to, step)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{FORMAT, RunState, newest};
    use super::*;

    #[test]
    fn a_fork_has_no_checkpoint_without_the_rows_before_it() {
        let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let state = RunState {
            format: FORMAT,
            step: 3,
            updates: 3,
            seed: 1,
            config_digest: "old".to_owned(),
            sentinel: None,
            anchor: None,
            averages: None,
            critic_updates: None,
            base: None,
        };
        let saved = other.path().join("checkpoints").join(name(3));
        std::fs::create_dir_all(&saved).unwrap();
        write_state(&saved, &state).unwrap();
        sums::seal(&saved).unwrap();
        let beside = ["telemetry.jsonl", "alarms.jsonl"];
        let fork = || fork(other.path(), run.path(), "new", &beside);
        // As a process that is killed before the rows are there.
        let error = fork().unwrap_err();
        assert!(matches!(error, CheckpointError::Io { .. }), "{error}");
        assert!(newest(run.path()).unwrap().is_none());
        let rows = "{\"step\":2}\n{\"step\":3}\n";
        for name in ["metrics.jsonl", "telemetry.jsonl"] {
            std::fs::write(other.path().join(name), rows).unwrap();
        }
        assert_eq!(fork().unwrap(), 3);
        let found = newest(run.path()).unwrap().unwrap();
        assert_eq!(read_state(&found).unwrap().config_digest, "new");
        for name in ["metrics.jsonl", "telemetry.jsonl"] {
            let rows = std::fs::read_to_string(run.path().join(name)).unwrap();
            assert_eq!(rows, "{\"step\":2}\n", "{name}: of the steps before");
        }
        assert!(!run.path().join("alarms.jsonl").exists());
    }
}
