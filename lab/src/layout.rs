//! The folder of a run: the one owner of the names of the files in it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use forage_eval::write_atomic;
use forage_trainer::checkpoint;
use forage_trainer::metrics::{self, Row};

use crate::error::{Context, Result, bail};
use crate::lock::RunLock;

/// The trained part of a quickstart.
pub(crate) const TRAINED: &str = "trained";
/// The part of a quickstart that learns from a control reward.
pub(crate) const CONTROL: &str = "control";
/// The policy that a run begins with.
pub(crate) const START: &str = "start";
/// The parts of a quickstart, in the order people read them.
pub(crate) const PARTS: [&str; 3] = [START, TRAINED, CONTROL];
/// The sentinel's alarms of a run.
const ALARMS: &str = "alarms.jsonl";
/// The conduct of a run's policy.
const TELEMETRY: &str = "telemetry.jsonl";
/// The names of files with rows by steps, beside the trainer's metrics.
pub(crate) const STEP_RECORDS: [&str; 2] = [ALARMS, TELEMETRY];
/// Gaps in the metrics that are named, at most.
const NAMED: usize = 5;
/// End of the stems of files with sampled episodes, beside those with greedy ones.
const SAMPLED: &str = ".sampled";

/// The places of everything that a run leaves in its folder. Metrics and checkpoints are written by the trainer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLayout(PathBuf);

impl RunLayout {
    /// The layout of a run's folder, which need not be there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The resolved config.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// The record of the run that a fork began with.
    pub(crate) fn forked(&self) -> PathBuf {
        self.0.join("forked.json")
    }

    /// The settings of supervised fine-tuning.
    pub fn sft_settings(&self) -> PathBuf {
        self.0.join("sft.json")
    }

    /// A row of metrics per step.
    pub fn metrics(&self) -> PathBuf {
        self.0.join(metrics::FILE)
    }

    /// The sentinel's alarms.
    pub fn alarms(&self) -> PathBuf {
        self.0.join(ALARMS)
    }

    /// The conduct of the policy, step by step.
    pub fn telemetry(&self) -> PathBuf {
        self.0.join(TELEMETRY)
    }

    /// The folder of recorded rollouts.
    pub fn rollouts(&self) -> PathBuf {
        self.0.join("rollouts")
    }

    /// Rollouts of a step.
    pub(crate) fn rollouts_of(&self, step: u64) -> PathBuf {
        self.rollouts().join(format!("step-{step:06}.jsonl"))
    }

    /// The step of a file of rollouts.
    pub(crate) fn step_of(rollouts: &Path) -> Option<u64> {
        let name = rollouts.file_name()?.to_str()?.strip_prefix("step-")?;
        name.split_once(".jsonl")?.0.parse().ok()
    }

    /// The folder of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.0.join(checkpoint::FOLDER)
    }

    /// Weights on their way to a server that samples.
    pub(crate) fn pushed(&self) -> PathBuf {
        self.0.join("pushed")
    }

    /// The trained policy.
    pub fn policy(&self) -> PathBuf {
        self.0.join("policy")
    }

    /// The policy a quickstart begins with.
    pub fn start(&self) -> PathBuf {
        self.0.join(START)
    }

    /// The record of whether a quickstart made its start.
    pub(crate) fn origin(&self) -> PathBuf {
        self.0.join("start.json")
    }

    /// The verdict of a quickstart.
    pub fn verdict(&self) -> PathBuf {
        self.0.join("verdict.json")
    }

    /// The study of this run beside its twins and baselines.
    pub(crate) fn study(&self) -> PathBuf {
        self.0.join("study.json")
    }

    /// The page about a quickstart.
    pub fn page(&self) -> PathBuf {
        self.0.join("report.html")
    }

    /// The generated world.
    pub(crate) fn world(&self) -> PathBuf {
        self.0.join("world")
    }

    /// The index of the corpus.
    pub(crate) fn index(&self) -> PathBuf {
        self.0.join("index")
    }

    /// The index of whole pages.
    pub(crate) fn pages(&self) -> PathBuf {
        self.0.join("pages")
    }

    /// The folder of an evaluation's episodes.
    pub fn evaluation(&self) -> PathBuf {
        self.0.join("evaluation")
    }

    /// The folder of an evaluation that is not at its end.
    pub(crate) fn unfinished(&self) -> PathBuf {
        self.0.join("evaluation.partial")
    }

    /// A set of episodes of an evaluation that is not at its end.
    pub(crate) fn unfinished_set(&self, name: &str) -> PathBuf {
        self.unfinished().join(format!("{name}.jsonl"))
    }

    /// The greedy episodes of an evaluation.
    pub(crate) fn greedy(&self, name: &str) -> PathBuf {
        self.evaluation().join(format!("{name}.jsonl"))
    }

    /// The sampled episodes of an evaluation.
    pub(crate) fn sampled(&self, name: &str) -> PathBuf {
        self.greedy(name).with_extension("sampled.jsonl")
    }

    /// The name in the stem of a file of episodes, and whether they are sampled.
    pub(crate) fn evaluation_of(stem: &str) -> (&str, bool) {
        stem.strip_suffix(SAMPLED)
            .map_or((stem, false), |name| (name, true))
    }

    /// A run within this one: a part of a quickstart.
    pub(crate) fn part(&self, name: &str) -> Self {
        Self(self.0.join(name))
    }

    /// The run that has the records of the trained policy: a part of a quickstart, else this one.
    pub(crate) fn trained(&self) -> Self {
        let part = self.part(TRAINED);
        if part.metrics().exists() {
            part
        } else {
            self.clone()
        }
    }

    /// The spurious twin of this name.
    pub(crate) fn twin(&self, name: &str) -> Self {
        Self(self.0.join("twins").join(name))
    }

    /// The baseline of this name that was trained for a comparison with this run.
    pub(crate) fn baseline(&self, name: &str) -> Self {
        Self(self.0.join("baselines").join(name))
    }

    /// What the play of a baseline's round has taken.
    pub(crate) fn played(&self) -> PathBuf {
        self.0.join("played.json")
    }

    /// The demonstrations that a baseline learns from.
    pub(crate) fn demonstrations(&self) -> PathBuf {
        self.0.join("demonstrations.jsonl")
    }

    /// The twins that are there by name, in order.
    pub(crate) fn twins(&self) -> Vec<(String, Self)> {
        let entries = std::fs::read_dir(self.0.join("twins"))
            .into_iter()
            .flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Some((name, Self(entry.path())))
            })
            .collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found
    }

    /// Tells whether a run was begun here.
    pub(crate) fn holds_run(&self) -> bool {
        self.metrics().exists() || self.checkpoints().exists()
    }

    /// Steps that the newest checkpoint has done, whole or damaged; 0 where there is none.
    pub(crate) fn saved_steps(&self) -> u64 {
        let entries = std::fs::read_dir(self.checkpoints()).into_iter().flatten();
        let step = |entry: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
            let name = entry.ok()?.file_name();
            name.to_str()?.strip_prefix("step-")?.parse().ok()
        };
        entries.filter_map(step).max().unwrap_or(0)
    }

    /// A warning of steps before the newest checkpoint of which the metrics have no row; they are written before it, so that the file was
    /// changed or cut since.
    pub(crate) fn lost_rows(&self) -> Result<Option<String>> {
        let (path, done) = (self.metrics(), self.saved_steps());
        let rows = if path.exists() {
            Row::read_all(&path)?
        } else {
            Vec::new()
        };
        let kept: BTreeSet<u64> = rows.iter().map(Row::step).collect();
        let mut lost: Vec<RangeInclusive<u64>> = Vec::new();
        for step in (0..done).filter(|step| !kept.contains(step)) {
            let before = lost.pop_if(|last| last.end() + 1 == step);
            let first = before.map_or(step, |before| *before.start());
            lost.push(first..=step);
        }
        let more = if lost.len() > NAMED { ", ..." } else { "" };
        let named = lost.iter().take(NAMED).map(|steps| {
            let (first, last) = (steps.start(), steps.end());
            if first == last {
                first.to_string()
            } else {
                format!("{first} to {last}")
            }
        });
        let named: Vec<String> = named.collect();
        Ok((!lost.is_empty()).then(|| {
            format!(
                "warning: {} lacks rows of steps that are done ({}{more}): the run goes on from its checkpoint, and curves, costs and \
                 reports are without them; with a whole copy of the file, stop, put it back and resume",
                path.display(),
                named.join(", ")
            )
        }))
    }

    /// Tells whether there is a checkpoint of this run, or of a part of this quickstart.
    pub(crate) fn has_checkpoint(&self) -> bool {
        let parts = [TRAINED, CONTROL].map(|name| self.part(name));
        self.saved_steps() > 0 || parts.iter().any(|part| part.saved_steps() > 0)
    }

    /// Claims the folder for this process, as [`RunLayout::check`] wants it.
    pub(crate) fn claim(&self, resume: bool) -> Result<RunLock> {
        let lock = RunLock::take(&self.0)?;
        self.check_content(resume)?;
        Ok(lock)
    }

    /// Checks that no process works in the folder, and that it holds a run exactly where one is to be resumed.
    pub(crate) fn check(&self, resume: bool) -> Result<()> {
        RunLock::check_free(&self.0)?;
        self.check_content(resume)
    }

    fn check_content(&self, resume: bool) -> Result<()> {
        let used = self.holds_run();
        let has_settings = self.config().exists() || self.sft_settings().exists();
        if used && !has_settings && self.saved_steps() == 0 {
            bail!(
                "{} holds the beginning of a run that was stopped before its settings and a checkpoint were there, as --from leaves it; \
                 remove it, or give another --out",
                self.0.display()
            );
        }
        if used && !resume {
            bail!(
                "{} holds a run; give another --out, or --resume to continue it",
                self.0.display()
            );
        }
        if resume && !used {
            bail!(
                "{} holds no run to resume; start it without --resume",
                self.0.display()
            );
        }
        Ok(())
    }

    /// Writes the record of what the run is begun, or gone on with; where one is to be kept, it stays.
    pub(crate) fn record(&self, file: &Path, text: &str, keep: bool) -> Result<()> {
        make_folder(&self.0)?;
        if keep && file.exists() {
            return Ok(());
        }
        // Half a record would be kept for good by the run that is resumed.
        write_atomic(file, text.as_bytes())
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// The folder of the policy that a run leaves: of its newest checkpoint, of the step whose folder this is, or its last one;
    /// `None` where this is not a run's folder.
    ///
    /// # Errors
    /// When the run has no complete checkpoint yet, or its newest one is damaged.
    pub fn newest_policy(&self) -> Result<Option<PathBuf>> {
        let step = checkpoint::newest(&self.0)?;
        if step.is_none() && self.checkpoints().exists() {
            bail!(
                "{} holds no complete checkpoint yet; let it train to its next one",
                self.0.display()
            );
        }
        let step = step.unwrap_or_else(|| self.0.clone());
        // A quickstart keeps its trained policy alone.
        let places = [step.join("model"), self.policy()];
        Ok(places.into_iter().find(|model| model.is_dir()))
    }
}

pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_in_part_is_not_resumed_as_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path().join("run"));
        let refused = |resume: bool| layout.check(resume).unwrap_err().to_string();
        make_folder(&layout.checkpoints().join(".partial-step-000003-7")).unwrap();
        std::fs::write(layout.metrics(), "{\"step\":2}\n").unwrap();
        for resume in [true, false] {
            let words = refused(resume);
            assert!(words.contains("holds the beginning of a run"), "{words}");
        }
        // A run that was stopped before its first checkpoint begins anew.
        for settings in [layout.config(), layout.sft_settings()] {
            std::fs::write(&settings, "").unwrap();
            layout.check(true).unwrap();
            assert!(refused(false).contains("--resume to continue it"));
            std::fs::remove_file(settings).unwrap();
        }
        make_folder(&layout.checkpoints().join("step-000003")).unwrap();
        layout.check(true).unwrap();
    }

    #[test]
    fn steps_without_a_row_of_metrics_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        let lost = |steps: &[u64]| {
            let rows = steps.iter().map(|step| format!("{{\"step\":{step}}}\n"));
            std::fs::write(layout.metrics(), rows.collect::<Vec<_>>().concat()).unwrap();
            layout.lost_rows().unwrap().unwrap_or_default()
        };
        assert_eq!(lost(&[]), "");
        make_folder(&layout.checkpoints().join("step-000006")).unwrap();
        // Rows after the checkpoint are of steps that are taken again.
        assert_eq!(lost(&[0, 1, 2, 3, 4, 5, 6, 7]), "");
        let told = format!(
            "{} lacks rows of steps that are done",
            layout.metrics().display()
        );
        for (there, named) in [(&[1, 2, 5][..], "(0, 3 to 4)"), (&[0, 1][..], "(2 to 5)")] {
            let found = lost(there);
            assert!(found.contains(&format!("{told} {named}")), "{found}");
        }
        std::fs::remove_file(layout.metrics()).unwrap();
        let found = layout.lost_rows().unwrap().unwrap();
        assert!(found.contains("(0 to 5)"), "{found}");
    }
}
