//! The records that a run writes step by step, beside the trainer's metrics and checkpoints.

use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use forage_contracts::Episode;
use forage_env::{Alarm, EpisodeWriter};
use forage_eval::write_atomic;
use forage_trainer::metrics::Row;
use forage_trainer::{Aliases, EventWriter};

use crate::conduct;
use crate::error::{Context, Result};
use crate::layout::{RunLayout, make_folder};
use crate::run_folder::files;

/// Rollouts, alarms, conduct and TensorBoard's events of a run.
pub(crate) struct RunRecords<'a> {
    layout: &'a RunLayout,
    events: Events<'a>,
    conduct: conduct::Log,
    /// Steps of the whole run.
    steps: u64,
    /// Whether this process has kept nothing yet.
    is_new: bool,
}

impl<'a> RunRecords<'a> {
    /// For a run of so many steps.
    pub(crate) fn open(layout: &'a RunLayout, names: Option<Aliases>, steps: u64) -> Result<Self> {
        make_folder(&layout.rollouts())?;
        Ok(Self {
            layout,
            events: Events {
                folder: layout.folder(),
                names,
                writer: None,
            },
            conduct: conduct::Log::of(layout),
            steps,
            is_new: true,
        })
    }

    /// Writes what a step leaves. The first step removes what it and later ones left before the run went back to a checkpoint, the last
    /// one the policy of an earlier end, which would pass for this one's until that is written.
    pub(crate) fn keep(&mut self, row: &Row, episodes: &[Episode], alarms: &[Alarm]) -> Result<()> {
        if self.is_new {
            remove_rollouts(self.layout, row.step())?;
        }
        if is_kept(row.step(), self.steps) {
            keep_rollouts(self.layout, row, episodes)?;
        }
        self.events.write(row)?;
        self.conduct.write(row.step(), episodes)?;
        if self.is_new || !alarms.is_empty() {
            keep_alarms(&self.layout.alarms(), row.step(), alarms)?;
        }
        if row.step() + 1 == self.steps {
            remove_policy(self.layout)?;
        }
        self.is_new = false;
        Ok(())
    }
}

/// TensorBoard's event files, one for each process that worked on the run.
struct Events<'a> {
    folder: &'a Path,
    names: Option<Aliases>,
    writer: Option<EventWriter>,
}

impl Events<'_> {
    fn write(&mut self, row: &Row) -> Result<()> {
        let Some(names) = self.names else {
            return Ok(());
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "dates for TensorBoard's eyes; nothing of the run depends on them"
        )]
        let now = SystemTime::now();
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self
                .writer
                .insert(EventWriter::create(self.folder, row.step(), names, now)?),
        };
        Ok(writer.write(row, now)?)
    }
}

/// Writes the alarms of a step into the run's `alarms.jsonl`, behind those of earlier steps.
fn keep_alarms(path: &Path, step: u64, alarms: &[Alarm]) -> Result<()> {
    let before = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if alarms.is_empty() {
                return Ok(());
            }
            Vec::new()
        }
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    // A last line that was cut, within a letter perhaps, is not an alarm and goes.
    let before = String::from_utf8_lossy(&before);
    let earlier = before.lines().filter(|line| {
        serde_json::from_str::<serde_json::Value>(line)
            .is_ok_and(|alarm| alarm["step"].as_u64() < Some(step))
    });
    let lines: String = earlier
        .map(str::to_owned)
        .chain(
            alarms
                .iter()
                .map(|alarm| serde_json::json!(alarm).to_string()),
        )
        .map(|line| line + "\n")
        .collect();
    write_atomic(path, lines.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns true where episodes of a step are kept: of every tenth one, and of the last of `steps`, which shows the policy as it was
/// trained.
fn is_kept(step: u64, steps: u64) -> bool {
    step.is_multiple_of(10) || step + 1 == steps
}

/// Removes the rollouts of a step and of those after it.
fn remove_rollouts(layout: &RunLayout, step: u64) -> Result<()> {
    for path in files(&layout.rollouts()) {
        if RunLayout::step_of(&path).is_some_and(|of| of >= step) {
            std::fs::remove_file(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Removes the policy of a run, if there is one.
fn remove_policy(layout: &RunLayout) -> Result<()> {
    let policy = layout.policy();
    let removed = std::fs::remove_dir_all(&policy);
    let is_missing = |error: &std::io::Error| error.kind() == ErrorKind::NotFound;
    if removed.as_ref().is_err_and(is_missing) {
        return Ok(());
    }
    removed.with_context(|| format!("cannot remove {}", policy.display()))
}

/// Keeps the first group of a step, in a file of its own.
fn keep_rollouts(layout: &RunLayout, row: &Row, episodes: &[Episode]) -> Result<()> {
    if episodes.is_empty() {
        return Ok(());
    }
    let group: Vec<Episode> = episodes
        .iter()
        .take_while(|episode| episode.group == 0)
        .cloned()
        .collect();
    write_episodes(&layout.rollouts_of(row.step()), group)
}

/// Writes a file of episodes, which appears when it is complete.
pub(crate) fn write_episodes(
    path: &Path,
    episodes: impl IntoIterator<Item = Episode>,
) -> Result<()> {
    let mut writer = EpisodeWriter::create(path)?;
    for episode in episodes {
        writer.write(episode)?;
    }
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn episodes_of_every_tenth_step_and_of_the_last_are_kept() {
        let kept =
            |steps: u64| -> Vec<u64> { (0..steps).filter(|&step| is_kept(step, steps)).collect() };
        assert_eq!(kept(1), [0]);
        assert_eq!(kept(8), [0, 7]);
        assert_eq!(kept(21), [0, 10, 20]);
    }

    #[test]
    fn alarms_stay_until_their_step_or_an_earlier_one_is_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alarms.jsonl");
        let keep = |step: u64| {
            let alarm = json!({"kind": "collapse", "step": step, "message": "all the same"});
            keep_alarms(&path, step, &[serde_json::from_value(alarm).unwrap()])
        };
        for step in [1, 3, 4, 3] {
            keep(step).unwrap();
        }
        let steps = || -> Vec<u64> {
            let text = std::fs::read_to_string(&path).unwrap();
            let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
            let steps = text.lines().map(|line| row(line)["step"].as_u64().unwrap());
            steps.collect()
        };
        assert_eq!(steps(), [1, 3]);
        keep_alarms(&path, 2, &[]).unwrap();
        assert_eq!(steps(), [1]);
        let mut cut = std::fs::read(&path).unwrap();
        cut.push(0xff);
        std::fs::write(&path, cut).unwrap();
        keep(5).unwrap();
        assert_eq!(steps(), [1, 5]);
        let fault = keep_alarms(folder.path(), 5, &[]).unwrap_err();
        assert!(fault.to_string().contains("cannot read"), "{fault}");
    }

    #[test]
    fn a_run_that_went_back_leaves_nothing_of_the_steps_after() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        let step = |records: &mut RunRecords<'_>, step: u64| {
            records.keep(&Row::new(step), &[], &[]).unwrap();
        };
        step(&mut RunRecords::open(&layout, None, 31).unwrap(), 0);
        for left in [0, 20, 30] {
            std::fs::write(layout.rollouts_of(left), "").unwrap();
        }
        std::fs::write(layout.alarms(), "{\"step\":9}\n{\"step\":25}\n").unwrap();
        let mut records = RunRecords::open(&layout, None, 31).unwrap();
        step(&mut records, 20);
        let left = [0, 20, 30].map(|step| layout.rollouts_of(step).exists());
        assert_eq!(left, [true, false, false]);
        let alarms = std::fs::read_to_string(layout.alarms()).unwrap();
        assert_eq!(alarms, "{\"step\":9}\n");
        std::fs::write(layout.rollouts_of(30), "").unwrap();
        step(&mut records, 21);
        assert!(layout.rollouts_of(30).exists(), "looked for once");
    }

    /// As a run of 2 steps that is resumed to take 4.
    #[test]
    fn the_policy_of_an_earlier_end_goes_with_the_last_step() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        make_folder(&layout.policy()).unwrap();
        let mut records = RunRecords::open(&layout, None, 4).unwrap();
        for (step, stays) in [(2, true), (3, false)] {
            records.keep(&Row::new(step), &[], &[]).unwrap();
            assert_eq!(layout.policy().exists(), stays, "step {step}");
        }
        // A run that comes to its end for the first time has none.
        records.keep(&Row::new(3), &[], &[]).unwrap();
    }
}
