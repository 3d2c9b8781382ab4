//! Runs among others: which there are in a folder, how far each has come, and what sets some of them apart.
//!
//! A folder of runs is its own registry: everything is read from what the runs left in theirs, and nothing is kept beside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forage_contracts::{Direction, Metric, STEP_METRICS};
use forage_env::Alarm;
use forage_eval::{Bootstrap, Comparison, Interval};
use forage_trainer::metrics::Row;
use serde::Serialize;
use serde_json::Value;

use crate::error::{Context, Result, bail, causes};
use crate::follow::written;
use crate::forked::Forked;
use crate::layout::{PARTS, RunLayout};
use crate::lock::RunLock;
use crate::run_folder::{Records, RunFolder, TIMES, settings, without_address, words};

/// Folders between the one that is searched and a run.
const DEPTH: usize = 3;
/// The measures of a validation; the first that a run has is its own.
const VALIDATIONS: [&str; 4] = [
    Metric::VAL_EM,
    Metric::VAL_NDCG,
    Metric::VAL_REWARD,
    Metric::SFT_VAL_LOSS,
];

/// A run in figures, as its folder has them; of a quickstart one of its runs, of a run with twins one of those.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrackedRun {
    /// The folder, of the whole where the run is a part.
    pub path: PathBuf,
    /// The name of a part: `trained`, `control`, a twin's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// `done`, `running` (a process has its folder), `unfinished` or `damaged`.
    pub state: &'static str,
    /// The record that cannot be read, of a damaged run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Steps that are done.
    pub steps: u64,
    /// Steps that the config asks for, where it says.
    pub steps_planned: Option<u64>,
    /// BLAKE3 of the config, or of the settings of fine-tuning, as it is in the folder but for the address of a served environment.
    pub config_digest: Option<String>,
    /// The seed.
    pub seed: Option<u64>,
    /// The recipe that the config was made from.
    pub recipe: Option<String>,
    /// The version of forage that started it.
    pub version: Option<String>,
    /// The metric of its validations.
    pub validation: Option<&'static str>,
    /// Every validation of its own steps by the step. An exact match has Wilson's interval over the questions; where their number or the
    /// spread is not recorded, both ends are the estimate.
    pub validations: BTreeMap<u64, Interval>,
    /// Scored episodes that it played to learn from; those of a run that it was forked from are not its own.
    pub episodes: Option<u64>,
    /// Seconds of all of its own steps, validations and checkpoints aside.
    pub seconds: Option<f64>,
    /// Alarms of the sentinel and signs of telemetry, by gravity.
    pub alarms: BTreeMap<&'static str, usize>,
    /// Names of the evaluations in its folder.
    pub evaluations: Vec<String>,
    /// The run that it was forked from, and the steps of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    forked: Option<Forked>,
    /// The settings by their paths.
    #[serde(skip)]
    settings: BTreeMap<String, Value>,
    #[serde(skip)]
    metrics: PathBuf,
}

/// Seconds of all steps, validations and checkpoints aside; `None` where no row has a time.
pub(crate) fn seconds(rows: &[Row]) -> Option<f64> {
    let timed = |row: &Row| {
        let parts: Vec<f64> = TIMES.iter().filter_map(|(_, name)| row.get(name)).collect();
        (!parts.is_empty()).then(|| parts.iter().sum::<f64>())
    };
    let times: Vec<f64> = rows.iter().filter_map(timed).collect();
    (!times.is_empty()).then(|| times.iter().sum())
}

impl TrackedRun {
    /// The runs in a folder and the folders in it, in the order of their paths. One that is damaged is among them.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let found = folders(folder)?;
        Ok(found.iter().flat_map(|path| Self::of(path)).collect())
    }

    /// The folder of the run that was written to last, of those in a folder and the folders in it; `None` where they hold none.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn newest(folder: &Path) -> Result<Option<PathBuf>> {
        let found = folders(folder)?;
        Ok(found.into_iter().max_by_key(|path| written(path)))
    }

    /// The runs of these folders, each of which is one, holds its parts, or is a part. One that is damaged is among them.
    ///
    /// # Errors
    /// When no run was begun in one of them.
    pub fn named(folders: &[PathBuf]) -> Result<Vec<Self>> {
        let mut runs = Vec::new();
        for folder in folders {
            let found = Self::of_part(folder).unwrap_or_else(|| Self::of(folder));
            let fault = found.iter().find_map(|run| run.fault.as_ref());
            if let Some(fault) = fault.filter(|_| !is_begun(folder)) {
                bail!("{fault}");
            }
            runs.extend(found);
        }
        Ok(runs)
    }

    /// The run whose folder is that of a part of a quickstart: its config and its policy are the quickstart's.
    fn of_part(path: &Path) -> Option<Vec<Self>> {
        let name = path.file_name()?.to_str()?;
        let above = path.parent()?;
        let whole = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        let is_part = PARTS.contains(&name) && !RunLayout::new(path).config().exists();
        if !is_part || !RunLayout::new(whole).config().exists() {
            return None;
        }
        let mut found = Self::of(whole);
        found.retain(|run| run.part.as_deref() == Some(name));
        for run in &mut found {
            path.clone_into(&mut run.path);
            run.part = None;
            run.evaluations.clear();
        }
        (!found.is_empty()).then_some(found)
    }

    /// The run in a folder, or its parts: a quickstart's two runs, a run and its twins.
    fn of(path: &Path) -> Vec<Self> {
        let run = match RunFolder::peek(path) {
            Ok(run) => run,
            Err(error) => {
                return vec![Self {
                    path: path.to_owned(),
                    state: "damaged",
                    fault: Some(causes(&error)),
                    ..Self::default()
                }];
            }
        };
        let whole = RunLayout::new(path);
        let evaluations: Vec<String> = run
            .evaluations
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        let bare = Self {
            path: path.to_owned(),
            steps_planned: run.settings["grpo"]["steps"].as_u64(),
            evaluations,
            ..Self::default()
        };
        if run.records.is_empty() {
            let state = state(&whole, &whole, run.verdict.is_some());
            return vec![Self { state, ..bare }.configured(run.config.as_deref())];
        }
        let part = |records: &Records| {
            let own = records.layout.config();
            let config = std::fs::read_to_string(own).ok().or(run.config.clone());
            let part = (records.name != run.name).then(|| records.name.clone());
            // Settings of fine-tuning have no number of steps. Where a config is gone, its policy may be that of an earlier end.
            let enough = records
                .steps
                .map_or(config.is_some(), |steps| records.done() >= steps);
            let found = Self {
                part,
                state: state(&records.layout, &whole, enough),
                ..bare.clone()
            };
            found.configured(config.as_deref()).recorded(records)
        };
        run.records.iter().map(part).collect()
    }

    /// Adds what the config says.
    fn configured(mut self, config: Option<&str>) -> Self {
        let Some(text) = config else {
            return self;
        };
        let text = without_address(text);
        let found = settings(&text);
        let stamped = |key: &str| found["stamp"][key].as_str().map(str::to_owned);
        self.config_digest = Some(blake3::hash(text.as_bytes()).to_hex().to_string());
        self.seed = found["seed"].as_u64();
        self.recipe = stamped("recipe");
        self.version = stamped("version");
        flatten(&found, "", &mut self.settings);
        self
    }

    /// Adds what the records say.
    fn recorded(mut self, records: &Records) -> Self {
        self.steps = records.done();
        self.episodes = records.episodes;
        self.forked.clone_from(&records.forked);
        self.metrics = records.layout.metrics();
        let rows = records.own_rows();
        let has = |name: &&&str| rows.iter().any(|row| row.get(name).is_some());
        self.validation = VALIDATIONS.iter().find(has).copied();
        if let Some(name) = self.validation {
            let of = |row: &Row| Some((row.step(), validated(row, name)?));
            self.validations = rows.iter().filter_map(of).collect();
        }
        self.seconds = seconds(rows);
        let signs = records.course.iter().flat_map(|course| &course.alarms);
        for Alarm { severity, .. } in records.alarms.iter().chain(signs) {
            *self.alarms.entry(severity.name()).or_default() += 1;
        }
        self
    }

    /// Its path, and its part where it is one.
    pub fn name(&self) -> String {
        let path = self.path.display();
        self.part
            .as_ref()
            .map_or_else(|| path.to_string(), |part| format!("{path}: {part}"))
    }

    /// The steps, of those that are done, that are of the run it was forked from: `8 of runs/first`.
    pub fn taken_over(&self) -> Option<String> {
        let Forked { from, steps } = self.forked.as_ref()?;
        Some(format!("{steps} of {}", from.display()))
    }

    /// The last validation and its step.
    pub fn last(&self) -> Option<(u64, Interval)> {
        self.validations
            .last_key_value()
            .map(|(step, found)| (*step, *found))
    }

    /// The best validation and its step, the first of several. It was chosen for being high: its interval is that of a step by itself.
    pub fn best(&self) -> Option<(u64, Interval)> {
        let name = self.validation?;
        let metric = STEP_METRICS.iter().find(|metric| metric.name == name)?;
        let sign = if metric.better == Direction::Lower {
            -1.0
        } else {
            1.0
        };
        let pairs = self.validations.iter().rev();
        let best =
            pairs.max_by(|(_, a), (_, b)| (sign * a.estimate).total_cmp(&(sign * b.estimate)));
        best.map(|(step, found)| (*step, *found))
    }

    /// Its seconds in words.
    pub fn time(&self) -> Option<String> {
        let time = Duration::try_from_secs_f64(self.seconds?).ok()?;
        Some(words(time))
    }

    /// The settings that are not the same in all of these runs by their paths, `[run]` each; `None` where a run has none. Damaged runs
    /// are not asked.
    pub fn differences(runs: &[Self]) -> BTreeMap<&str, Vec<Option<&Value>>> {
        let whole = || runs.iter().filter(|run| run.fault.is_none());
        let mut found = BTreeMap::new();
        for key in whole().flat_map(|run| run.settings.keys()) {
            let mut values = whole().map(|run| run.settings.get(key));
            let first = values.next();
            if values.any(|value| Some(value) != first) {
                let all = runs.iter().map(|run| run.settings.get(key));
                found.insert(key.as_str(), all.collect());
            }
        }
        found
    }

    /// Compares the evaluations of the same name in the folders of two runs, question by question; of each the error where they
    /// asked different questions or cannot be read.
    ///
    /// # Errors
    /// When a folder is not of a run.
    pub fn paired(
        a: &Path,
        b: &Path,
        bootstrap: Bootstrap,
    ) -> Result<BTreeMap<String, Result<Comparison>>> {
        let [a, b] = [RunFolder::peek(a)?, RunFolder::peek(b)?];
        let of = |run: &RunFolder| {
            let sources = run.sources().into_iter();
            let evaluations = sources.filter(|source| source.origin.step.is_none());
            evaluations
                .map(|source| (source.origin.run.clone(), source))
                .collect::<BTreeMap<_, _>>()
        };
        let (a, b) = (of(&a), of(&b));
        let both = a.into_iter().filter_map(|(name, a)| {
            let b = b.get(&name)?;
            let compare = || -> Result<Comparison> {
                let [a, b] = [a.read()?.episodes, b.read()?.episodes];
                Ok(Comparison::from_episodes(&a, &b, bootstrap)?)
            };
            Some((name, compare()))
        });
        Ok(both.collect())
    }

    /// Every number of its `metrics.jsonl`: the step, the metric and the value, step after step.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn values(&self) -> Result<Vec<(u64, String, f64)>> {
        if !self.metrics.exists() {
            return Ok(Vec::new());
        }
        let rows = Row::read_all(&self.metrics)?;
        let numbers = rows.into_iter().flat_map(|row| {
            let step = row.step();
            let numbers = row.0.into_iter().filter(|(name, _)| name != "step");
            numbers.filter_map(move |(name, value)| Some((step, name, value.as_f64()?)))
        });
        Ok(numbers.collect())
    }
}

/// Tells whether a run was begun in a folder itself.
fn is_begun(folder: &Path) -> bool {
    let layout = RunLayout::new(folder);
    let marks = [
        layout.config(),
        layout.sft_settings(),
        layout.metrics(),
        layout.verdict(),
    ];
    marks.iter().any(|mark| mark.exists())
}

/// The folders of the runs in a folder and the folders in it, in the order of their paths.
fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = BTreeMap::new();
    find(folder, DEPTH, &mut found).with_context(|| {
        let folder = folder.display();
        format!("cannot read {folder}; name a folder with runs, the --out of forage train or one above it")
    })?;
    let mut found: Vec<PathBuf> = found.into_values().collect();
    found.sort();
    Ok(found)
}

/// Adds the folders of runs at or below this one by what they are called without links; those of a run's parts are not looked for.
fn find(
    folder: &Path,
    depth: usize,
    found: &mut BTreeMap<PathBuf, PathBuf>,
) -> std::io::Result<()> {
    if is_begun(folder) {
        let real = folder.canonicalize()?;
        found.entry(real).or_insert_with(|| folder.to_owned());
        return Ok(());
    }
    let entries: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    let is_link = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
    let mut inside: Vec<(bool, PathBuf)> = entries
        .iter()
        .map(|entry| (is_link(entry), entry.path()))
        .filter(|(_, path)| path.is_dir())
        .collect();
    // Links last: a run whose folder is here goes by that.
    inside.sort();
    for (_, path) in inside.iter().filter(|_| depth > 0) {
        // A folder of somebody else may not be readable, and holds nothing to list then.
        let _ = find(path, depth - 1, found);
    }
    Ok(())
}

/// The state of a run in `own`, which is `whole` or a part of it, and has taken `enough` steps or has not.
fn state(own: &RunLayout, whole: &RunLayout, enough: bool) -> &'static str {
    // A quickstart keeps one policy for both of its runs; a twin has a config and a policy of its own.
    let policy = if own.config().exists() {
        own.policy()
    } else {
        whole.policy()
    };
    let held = |layout: &RunLayout| RunLock::is_held(layout.folder());
    // Twins are trained after their run has its policy.
    let has_more = own.folder() == whole.folder() && held(whole);
    if enough && !has_more && (policy.exists() || whole.verdict().exists()) {
        "done"
    } else if held(own) || held(whole) {
        "running"
    } else {
        "unfinished"
    }
}

/// A validation of a step with its interval.
fn validated(row: &Row, name: &str) -> Option<Interval> {
    let estimate = row.get(name)?;
    let alone = Interval {
        estimate,
        low: estimate,
        high: estimate,
    };
    let questions = row
        .get(Metric::VAL_QUESTIONS)
        .filter(|_| name == Metric::VAL_EM);
    let Some(questions) = questions else {
        return Some(alone);
    };
    let right = (estimate * questions).round();
    let found = Bootstrap::new(1).share(right as u64, questions as u64);
    Some(found.unwrap_or(alone))
}

/// Adds the values of nested tables by their paths; lists are values.
pub(crate) fn flatten(value: &Value, path: &str, found: &mut BTreeMap<String, Value>) {
    let Value::Object(table) = value else {
        found.insert(path.to_owned(), value.clone());
        return;
    };
    for (name, value) in table {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        flatten(value, &path, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_twins_are_still_trained_is_running() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        std::fs::write(layout.config(), "seed = 1\n[grpo]\nsteps = 1\n").unwrap();
        std::fs::write(layout.metrics(), "{\"step\":0,\"val/ndcg\":0.25}\n").unwrap();
        std::fs::create_dir(layout.policy()).unwrap();
        let state = || TrackedRun::of(folder.path())[0].state;
        assert_eq!(state(), "done");
        let lock = RunLock::take(folder.path()).unwrap();
        assert_eq!(state(), "running");
        drop(lock);
        assert_eq!(state(), "done");
    }

    #[test]
    fn a_part_of_a_quickstart_has_its_config_and_state() {
        let folder = tempfile::tempdir().unwrap();
        let whole = RunLayout::new(folder.path());
        std::fs::write(whole.config(), "seed = 7\n[grpo]\nsteps = 1\n").unwrap();
        std::fs::create_dir(whole.policy()).unwrap();
        let parts = ["trained", "control"].map(|name| whole.part(name));
        for part in &parts {
            std::fs::create_dir(part.folder()).unwrap();
            std::fs::write(part.metrics(), "{\"step\":0}\n").unwrap();
        }
        let folders = parts.map(|part| part.folder().to_owned());
        let found = TrackedRun::named(&folders).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|run| (run.name(), run.state, run.seed))
            .collect();
        let expected = folders.map(|folder| (folder.display().to_string(), "done", Some(7)));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_run_whose_config_is_gone_is_not_done() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        std::fs::write(layout.metrics(), "{\"step\":0}\n").unwrap();
        std::fs::create_dir(layout.policy()).unwrap();
        let state = || TrackedRun::of(folder.path())[0].state;
        assert_eq!(state(), "unfinished");
        std::fs::write(layout.sft_settings(), "{\"learning\": {}}").unwrap();
        assert_eq!(state(), "done");
    }

    #[test]
    fn the_newest_run_is_the_one_that_was_written_to_last() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(TrackedRun::newest(folder.path()).unwrap(), None);
        let write = |run: &Path, second: u64| {
            let metrics = RunLayout::new(run).metrics();
            std::fs::create_dir_all(run).unwrap();
            std::fs::write(&metrics, "{\"step\":0}\n").unwrap();
            let file = std::fs::File::options().append(true).open(metrics).unwrap();
            let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            file.set_modified(time).unwrap();
        };
        let [a, b] = ["a", "deeper/b"].map(|name| folder.path().join(name));
        write(&a, 2);
        write(&b, 1);
        assert_eq!(TrackedRun::newest(folder.path()).unwrap(), Some(a));
        // A quickstart is written to where one of its runs is.
        write(&b.join("control"), 3);
        assert_eq!(TrackedRun::newest(folder.path()).unwrap(), Some(b));
    }

    #[test]
    fn a_run_behind_links_is_found_once() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [own, link] = ["run", "a"].map(|name| folder.path().join(name));
        std::fs::create_dir(&own).unwrap();
        for run in [own.as_path(), elsewhere.path()] {
            let config = RunLayout::new(run).config();
            std::fs::write(config, "seed = 1\n[grpo]\nsteps = 1\n").unwrap();
        }
        for (target, name) in [
            (elsewhere.path(), "a"),
            (own.as_path(), "latest"),
            (folder.path(), "loop"),
        ] {
            std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        }
        let found = TrackedRun::all(folder.path()).unwrap();
        let found: Vec<PathBuf> = found.into_iter().map(|run| run.path).collect();
        assert_eq!(found, [link, own]);
    }
}
