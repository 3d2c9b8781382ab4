//! The folder of a run, read for people: a run that is still being written is read as far as it has come.

mod records;

pub use records::Records;
pub(crate) use records::{TIMES, unchanged, words};

use std::borrow::Cow;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use forage_contracts::{Episode, Tokenizer};
use forage_env::{EpisodeRecord, HfTokenizer, RecordError};
use forage_eval::{Bootstrap, Course, Origin, Trajectory, Verdict};
use forage_trainer::Checkpoint;
use serde::Deserialize;
use serde_json::Value;

use crate::conduct::course;
use crate::config::Stamp;
use crate::error::{Context, Result, bail};
use crate::layout::{CONTROL, PARTS, RunLayout, TRAINED};
use crate::lock::RunLock;
use crate::studied::Studied;

/// A run's folder, or a file of episodes by itself.
pub struct RunFolder {
    /// The folder's own name.
    pub name: String,
    /// Its verdict, where it has one.
    pub verdict: Option<Verdict>,
    /// Its study beside its twins and baselines, where it was evaluated so.
    pub(crate) studied: Option<Studied>,
    /// The run's own and its twins', or those of a quickstart's two runs.
    pub records: Vec<Records>,
    /// The resolved config, or the settings of supervised fine-tuning, as they are in the folder.
    pub(crate) config: Option<String>,
    pub(crate) settings: Value,
    pub(crate) evaluations: Vec<(String, PathBuf)>,
    tokenizer: Option<HfTokenizer>,
}

/// A file of episodes.
pub struct Source {
    /// The origin of its episodes; without a step where it is an evaluation.
    pub origin: Origin,
    /// The file.
    pub path: PathBuf,
}

/// The episodes of a source.
pub struct Reading {
    /// The episodes that are complete.
    pub episodes: Vec<Episode>,
    /// A note where the last line was left out because it has no end yet.
    pub note: Option<String>,
}

/// Resamples behind the intervals of conduct for who looks often: they are drawn anew each time.
const FEW: usize = 100;

impl RunFolder {
    /// Reads everything but the episodes. A run that has begun and has no step yet has no records.
    ///
    /// # Errors
    /// When the folder is not of a run, or a record in it cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(path, None)
    }

    /// The same for who looks often: the intervals of conduct are of few resamples, its alarms are the same.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn peek(path: &Path) -> Result<Self> {
        Self::read(path, Some(FEW))
    }

    fn read(path: &Path, resamples: Option<usize>) -> Result<Self> {
        let name = std::path::absolute(path)
            .with_context(|| format!("cannot read {}", path.display()))?
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into());
        if path.is_file() {
            return Ok(Self::of_file(path, &name));
        }
        if !path.exists() {
            bail!(
                "there is no {}; give the folder of a run (`forage runs list` lists them), or a file of episodes",
                path.display()
            );
        }
        let layout = RunLayout::new(path);
        let config = [layout.config(), layout.sft_settings()]
            .iter()
            .find_map(|file| std::fs::read_to_string(file).ok());
        let settings = config.as_deref().map(settings).unwrap_or_default();
        let own = (name.clone(), layout.clone());
        let inner = PARTS.map(|part| (part.to_owned(), layout.part(part)));
        let own_bootstrap = bootstrap(&settings);
        let bootstrap = Bootstrap {
            resamples: resamples.unwrap_or(own_bootstrap.resamples),
            ..own_bootstrap
        };
        let is_held = |inner: &RunLayout| {
            let places = [inner.folder(), layout.folder()];
            places.into_iter().any(RunLock::is_held)
        };
        let mut records = Vec::new();
        for (name, inner) in [own].into_iter().chain(inner).chain(layout.twins()) {
            if inner.metrics().exists() {
                let steps = settings["grpo"]["steps"].as_u64();
                let held = is_held(&inner);
                records.push(Records::read(&name, &inner, steps, held, bootstrap)?);
            }
        }
        let evaluations = evaluations(&layout);
        let begun = settings["grpo"].is_object() || settings["learning"].is_object();
        let bare = records.is_empty() && evaluations.is_empty() && !layout.verdict().exists();
        if bare && !begun {
            bail!(
                "{} is not a run folder: it holds no metrics.jsonl, no verdict.json and no evaluation/; name the --out of \
                 forage train, sft or quickstart, or a file of forage eval --out",
                path.display()
            );
        }
        let verdict = if layout.verdict().exists() {
            Some(Verdict::read(&layout.verdict())?)
        } else {
            None
        };
        Ok(Self {
            name,
            verdict,
            studied: Studied::read(&layout)?,
            records,
            config,
            settings,
            evaluations,
            tokenizer: tokenizer(&layout),
        })
    }

    fn of_file(path: &Path, name: &str) -> Self {
        let stem = name.trim_end_matches(".partial").trim_end_matches(".jsonl");
        let name = match RunLayout::evaluation_of(stem) {
            (name, true) => format!("{name}, sampled"),
            (name, false) => name.to_owned(),
        };
        Self {
            name: name.clone(),
            verdict: None,
            studied: None,
            records: Vec::new(),
            config: None,
            settings: Value::Null,
            evaluations: vec![(name, path.to_owned())],
            tokenizer: None,
        }
    }

    /// Gives it another name, and what is called as it is.
    pub(crate) fn rename(&mut self, name: &str) {
        let old = std::mem::replace(&mut self.name, name.to_owned());
        for records in self
            .records
            .iter_mut()
            .filter(|records| records.name == old)
        {
            name.clone_into(&mut records.name);
        }
        for (label, _) in &mut self.evaluations {
            if *label == old {
                name.clone_into(label);
            }
        }
    }

    /// A note on a run that has begun and has left nothing to show yet.
    pub fn waits(&self) -> Option<String> {
        let bare = self.records.is_empty() && self.evaluations.is_empty();
        let waits = bare && self.verdict.is_none();
        waits.then(|| format!("{}: no step is done yet.", self.name))
    }

    /// Its files of episodes: evaluations, then the newest steps.
    pub fn sources(&self) -> Vec<Source> {
        let evaluation = |(label, path): &(String, PathBuf)| Source {
            origin: Origin {
                run: label.clone(),
                step: None,
                alarms: Vec::new(),
            },
            path: path.clone(),
        };
        let mut sources: Vec<Source> = self.evaluations.iter().map(evaluation).collect();
        for records in &self.records {
            sources.extend(records.rollouts.iter().map(|(step, path)| {
                let alarms = records.raised_at(*step);
                Source {
                    origin: Origin {
                        run: records.name.clone(),
                        step: Some(*step),
                        alarms,
                    },
                    path: path.clone(),
                }
            }));
        }
        sources.sort_by_key(Source::age);
        sources
    }

    /// An episode for people: in the tokens' own words where the run's tokenizer is at hand and they are its, else turn by turn.
    pub fn trajectory(&self, origin: Origin, episode: &Episode) -> Trajectory {
        match &self.tokenizer {
            Some(tokenizer) if wrote(tokenizer, episode) => {
                Trajectory::from_tokens(origin, episode, |ids| tokenizer.decode(ids))
            }
            _ => Trajectory::from_turns(origin, episode),
        }
    }

    /// The courses of the run in a folder, or of the runs of a quickstart, each with its folder.
    ///
    /// # Errors
    /// When there is no telemetry, or a file is not telemetry.
    pub fn courses(folder: &Path, bootstrap: Bootstrap) -> Result<Vec<(PathBuf, Course)>> {
        let run = RunLayout::new(folder);
        let mut found = Vec::new();
        for layout in [run.clone(), run.part(TRAINED), run.part(CONTROL)] {
            let course = course(&layout, bootstrap)?;
            found.extend(course.map(|course| (layout.folder().to_owned(), course)));
        }
        if found.is_empty() {
            bail!(
                "{} holds no telemetry; give the folder of a run whose policy played, or files of episodes",
                folder.display()
            );
        }
        Ok(found)
    }

    /// The settings of the run's own intervals.
    pub(crate) fn bootstrap(&self) -> Bootstrap {
        bootstrap(&self.settings)
    }

    /// The config without what differs between runs that are the same but for their seeds; of a run without a config, its name.
    pub(crate) fn arm(&self) -> String {
        let mut settings = self.settings.clone();
        forget_seeds(&mut settings);
        if let Some(Value::Object(served)) = settings.pointer_mut("/environment/settings") {
            served.remove("url");
        }
        if settings.is_null() {
            self.name.clone()
        } else {
            settings.to_string()
        }
    }

    /// Digests of the config and, as the config has them, of the data, the recipe, the prompt and the chat template.
    pub(crate) fn digests(&self) -> Vec<(String, String)> {
        let digest = |text: &String| blake3::hash(text.as_bytes()).to_hex().to_string();
        let config = self
            .config
            .iter()
            .map(|text| ("this file (BLAKE3)".to_owned(), digest(text)));
        let data = self.settings["data"]["digests"]
            .as_object()
            .into_iter()
            .flatten();
        let data = data.map(|(split, digest)| {
            (
                format!("{split} questions"),
                digest.as_str().unwrap_or_default().to_owned(),
            )
        });
        let stamp = self.stamp();
        let texts = stamp.digests().into_iter();
        let texts = texts.filter_map(|(name, digest)| Some((name.to_owned(), digest?.clone())));
        config.chain(data).chain(texts).collect()
    }

    /// The stamp of its config; empty where there is none.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::deserialize(&self.settings["stamp"]).unwrap_or_default()
    }
}

impl Source {
    /// Orders evaluations first, then the newest steps.
    pub(crate) fn age(&self) -> Reverse<u64> {
        Reverse(self.origin.step.unwrap_or(u64::MAX))
    }

    /// Its episodes, as far as they are written.
    ///
    /// # Errors
    /// When the file cannot be read, or a complete line is not an episode.
    pub fn read(&self) -> Result<Reading> {
        let mut episodes = Vec::new();
        for record in EpisodeRecord::read_all(&self.path)? {
            match record {
                Ok(record) => episodes.push(record.episode),
                Err(RecordError::Unfinished { .. }) => {
                    let file = self.path.display();
                    let note = format!("{file}: its last line is half written and left out.");
                    let note = Some(note);
                    return Ok(Reading { episodes, note });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Reading {
            episodes,
            note: None,
        })
    }
}

fn bootstrap(settings: &Value) -> Bootstrap {
    let default = Bootstrap::new(settings["seed"].as_u64().unwrap_or(1));
    let resamples = settings["evaluation"]["resamples"].as_u64();
    Bootstrap {
        resamples: resamples.map_or(default.resamples, |count| count as usize),
        ..default
    }
}

/// The settings in TOML or JSON; null where the file is of another form.
pub(crate) fn settings(text: &str) -> Value {
    toml::from_str(text)
        .ok()
        .or_else(|| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// The text of a config without the address of a served environment, which `--env-command` draws anew for each run.
pub(crate) fn without_address(text: &str) -> Cow<'_, str> {
    let Ok(mut config) = toml::from_str::<toml::Table>(text) else {
        return Cow::Borrowed(text);
    };
    let served = config
        .get_mut("environment")
        .and_then(|environment| environment.get_mut("settings"))
        .and_then(toml::Value::as_table_mut);
    match served.and_then(|settings| settings.remove("url")) {
        Some(_) => toml::to_string(&config).map_or(Cow::Borrowed(text), Cow::Owned),
        None => Cow::Borrowed(text),
    }
}

/// Leaves out what may differ between runs of one training: seeds, and the digests of questions that follow from them.
pub(crate) fn forget_seeds(settings: &mut Value) {
    let Value::Object(table) = settings else {
        return;
    };
    table.retain(|key, _| key != "seed" && key != "digests");
    for (_, value) in table.iter_mut() {
        forget_seeds(value);
    }
}

/// Files of evaluations with what they are called.
fn evaluations(layout: &RunLayout) -> Vec<(String, PathBuf)> {
    let label = |path: &PathBuf| {
        let stem = path.file_name()?.to_str()?.split_once(".jsonl")?.0;
        let (name, sampled) = RunLayout::evaluation_of(stem);
        let how = if sampled { "sampled" } else { "greedy" };
        let place = PARTS
            .iter()
            .position(|part| *part == name)
            .unwrap_or(PARTS.len());
        Some(((place, name.to_owned(), how), path.clone()))
    };
    let mut found: Vec<_> = files(&layout.evaluation())
        .iter()
        .filter_map(label)
        .collect();
    found.sort();
    found.dedup_by(|later, earlier| later.0 == earlier.0);
    found
        .into_iter()
        .map(|((_, name, how), path)| (format!("{name}, {how}"), path))
        .collect()
}

/// JSON lines of a folder that are complete, or being written under the name that tells so.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let ends = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".jsonl") || name.ends_with(".jsonl.partial")
    };
    paths.filter(ends).collect()
}

/// The tokenizer of what a run trained or started from.
fn tokenizer(layout: &RunLayout) -> Option<HfTokenizer> {
    let mut places = vec![layout.policy(), layout.start()];
    let entries = std::fs::read_dir(layout.checkpoints())
        .into_iter()
        .flatten();
    places.extend(entries.filter_map(|entry| Some(entry.ok()?.path().join("model"))));
    places
        .iter()
        .find(|place| place.join("tokenizer.json").exists())
        .and_then(|place| Checkpoint::tokenizer_of(place).ok())
}

/// Tells whether the episode's tokens are this tokenizer's: they decode to what its policy is recorded to have written.
fn wrote(tokenizer: &HfTokenizer, episode: &Episode) -> bool {
    let text = tokenizer.decode(episode.tokens.ids());
    episode.turns.iter().all(|turn| text.contains(&turn.policy))
}

#[cfg(test)]
mod tests {
    use forage_contracts::Tokenizer;
    use forage_contracts::seed::Seed;
    use forage_trainer::device::DeviceSpec;
    use forage_trainer::{LoraConfig, Targets};

    use super::{RunFolder, tokenizer, without_address};
    use crate::builtin;
    use crate::layout::RunLayout;

    #[test]
    fn the_address_of_a_served_environment_makes_no_arm_of_its_own() {
        let config = |seed: u64, settings: &str| {
            format!(
                "seed = {seed}\n[environment]\nid = \"external\"\n[environment.settings]\n{settings}\n"
            )
        };
        let arm = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let layout = RunLayout::new(folder.path());
            std::fs::write(layout.config(), text).unwrap();
            std::fs::write(layout.metrics(), "{\"step\":0}\n").unwrap();
            RunFolder::peek(folder.path()).unwrap().arm()
        };
        let first = config(1, "url = [\"http://127.0.0.1:39867\"]");
        let again = config(1, "url = [\"http://127.0.0.1:37519\"]");
        let other = config(2, "url = [\"http://127.0.0.1:37519\"]");
        let short = config(1, "url = []\nmax_turn_tokens = 8");
        assert_eq!(arm(&first), arm(&other));
        assert_ne!(arm(&first), arm(&short));
        assert_eq!(without_address(&first), without_address(&again));
        assert_ne!(without_address(&first), without_address(&other));
        let plain = config(1, "max_turns = 3");
        assert_eq!(without_address(&plain), plain);
    }

    #[test]
    fn the_tokenizer_of_a_run_that_trained_an_adapter_is_at_hand() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        assert!(tokenizer(&layout).is_none());
        let mut start = builtin::load("quickstart", &DeviceSpec::Cpu).unwrap();
        let config = LoraConfig {
            rank: 2,
            alpha: 4.0,
            rank_stabilised: false,
            dropout: 0.0,
            targets: Targets::AllLinear,
            base: "builtin:quickstart".to_owned(),
        };
        start.adapt(config, Seed::root(1)).unwrap();
        start.save_adapter(&layout.policy()).unwrap();
        let ids = start.tokenizer.encode("<search> Velm</search>");
        let found = tokenizer(&layout).unwrap();
        assert_eq!(found.decode(&ids), start.tokenizer.decode(&ids));
    }
}
