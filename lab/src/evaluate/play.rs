//! The episodes of an evaluation.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forage_contracts::Episode;
use forage_contracts::policy::{Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_env::{EpisodeRecord, EpisodeWriter, InfraBudget, Job, RecordError, Rollout};
use forage_trainer::Checkpoint;
use forage_trainer::run::group_jobs;

use super::exam::{SAMPLED, beside};
use crate::config::Resolved;
use crate::data::{Data, Tasks};
use crate::error::{Context, Result, RunError};
use crate::observer::Observer;
use crate::records::write_episodes;
use crate::runtime::runtime;
use crate::session::Session;
use crate::unfinished::Unfinished;

/// Name of the greedy episodes in progress reports.
const GREEDY: &str = "greedy";

/// Interval between two checks whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Episodes of one policy on the same questions.
#[derive(Clone, Debug)]
pub(crate) struct Evaluated {
    /// One episode of each question.
    pub(crate) greedy: Vec<Episode>,
    /// The samples of all questions, at temperature 1.
    pub(crate) sampled: Vec<Episode>,
}

/// The sets of an evaluation's episodes that have begun, by file name, and whether each is complete.
pub(crate) type Sets = BTreeMap<String, bool>;

/// A file for episodes, and the record from which a stopped evaluation is resumed.
#[derive(Clone, Copy)]
pub(crate) struct EpisodeFile<'a> {
    pub(crate) file: &'a Path,
    pub(crate) unfinished: &'a Unfinished<Sets>,
}

impl EpisodeFile<'_> {
    fn name(&self) -> String {
        let name = self.file.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Records that the set has begun, or is complete.
    fn mark(&self, complete: bool) -> Result<()> {
        let mut sets = self.unfinished.done();
        sets.insert(self.name(), complete);
        self.unfinished.keep(sets)
    }

    /// The episodes of a set that was complete before the evaluation was stopped.
    fn complete(&self, jobs: &[Job]) -> Result<Option<Vec<Episode>>> {
        if self.unfinished.done().get(&self.name()) != Some(&true) || !self.file.exists() {
            return Ok(None);
        }
        let records = EpisodeRecord::read_all(self.file)?;
        let episodes = records
            .map(|record| Ok(record?.episode))
            .collect::<Result<Vec<Episode>>>()?;
        let asked = jobs.iter().map(|job| Some(job.seed));
        if !episodes.iter().map(|episode| episode.seed).eq(asked) {
            return Err(self.of_another());
        }
        self.clear()?;
        Ok(Some(episodes))
    }

    /// Opens the file for the episodes of a set as they end. Returns those kept before, by the index of their job, without those lost to
    /// faults, which are played again.
    fn open(&self, jobs: &[Job]) -> Result<(EpisodeWriter, HashMap<usize, Episode>)> {
        if !self.unfinished.done().contains_key(&self.name()) {
            // Creating the file clears what an evaluation with other settings left, before the set counts as begun.
            let writer = EpisodeWriter::create(self.file)?;
            self.mark(false)?;
            return Ok((writer, HashMap::new()));
        }
        let (writer, kept) = EpisodeWriter::resume(self.file, usize::MAX)?;
        let seeds = jobs.iter().map(|job| job.seed);
        let places: HashMap<Seed, usize> = seeds.zip(0..).collect();
        let mut played = HashMap::with_capacity(kept.len());
        for episode in kept {
            let place = episode.seed.and_then(|seed| places.get(&seed));
            let place = *place.ok_or_else(|| self.of_another())?;
            if !episode.ending.is_infra() {
                played.insert(place, episode);
            }
        }
        Ok((writer, played))
    }

    fn of_another(&self) -> RunError {
        let file = self.file.display();
        RunError::stage(format!(
            "{file} or {file}.partial has episodes of another evaluation; remove {} to begin anew",
            self.unfinished.path().display()
        ))
    }

    /// Writes the complete file: the episodes in the order of the questions, with the scores of judges of whole groups.
    fn finish(&self, episodes: &[Episode]) -> Result<()> {
        // Written beside the partial file, which stays until the rename is done.
        let ordered = with_ending(self.file, ".ordered");
        write_episodes(&ordered, episodes.iter().cloned())?;
        let named = std::fs::rename(&ordered, self.file);
        named.with_context(|| format!("cannot write {}", self.file.display()))?;
        self.mark(true)?;
        self.clear()
    }

    /// Removes the partial file of a complete set, unless the process that completed the set has.
    fn clear(&self) -> Result<()> {
        let partial = with_ending(self.file, ".partial");
        let removed = match std::fs::remove_file(&partial) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        removed.with_context(|| format!("cannot remove {}", partial.display()))
    }
}

/// The path with `ending` appended.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Plays questions with a checkpoint under a config: once greedily and `samples` times at temperature 1. Blocks.
pub(crate) fn evaluate_checkpoint(
    config: &Resolved,
    checkpoint: &Checkpoint,
    data: &Data,
    (tasks, samples): (&Tasks, usize),
    out: Option<EpisodeFile<'_>>,
    observer: &dyn Observer,
) -> Result<Evaluated> {
    let session = Session::of(config, &data.corpus, checkpoint, observer)?;
    let policy = config.generation().start(checkpoint);
    evaluate_policy(config, &session, policy, (tasks, samples), out, observer)
}

/// As [`evaluate_checkpoint`], with any policy that writes in the session's tokens. Blocks.
pub(crate) fn evaluate_policy(
    config: &Resolved,
    session: &Session,
    policy: Arc<dyn Policy>,
    (tasks, samples): (&Tasks, usize),
    out: Option<EpisodeFile<'_>>,
    observer: &dyn Observer,
) -> Result<Evaluated> {
    let rollout = session.rollout(policy, Sampling::GREEDY)?;
    let settings = PlaySettings {
        in_flight: usize::MAX,
        budget: fault_budget(config),
        out,
        observer,
    };
    settings.play(&rollout, tasks, config.seed, samples)
}

/// The budget of infrastructure faults in the episodes of a config's policy, in training and elsewhere.
pub(crate) fn fault_budget(config: &Resolved) -> InfraBudget {
    InfraBudget {
        share: config.grpo.fault_share,
    }
}

/// Settings that questions are played with.
#[derive(Clone, Copy)]
pub(crate) struct PlaySettings<'a> {
    /// Most episodes at a time.
    pub(crate) in_flight: usize,
    /// The budget of infrastructure faults.
    pub(crate) budget: InfraBudget,
    /// File for the episodes, with those at temperature 1 beside it. A killed process leaves the episodes that had ended, with the ending
    /// `.partial`, from which another resumes.
    pub(crate) out: Option<EpisodeFile<'a>>,
    /// Receives the number of episodes that have ended.
    pub(crate) observer: &'a dyn Observer,
}

impl PlaySettings<'_> {
    /// Plays `tasks` once greedily and `samples` times sampled. Seeds depend only on the task's index and the sample's, so that two
    /// policies meet the same randomness. Blocks.
    pub(crate) fn play(
        self,
        rollout: &Rollout,
        tasks: &Tasks,
        seed: u64,
        samples: usize,
    ) -> Result<Evaluated> {
        let greedy = self.play_greedily(rollout, tasks, seed, GREEDY)?;
        if samples == 0 {
            return Ok(Evaluated {
                greedy,
                sampled: Vec::new(),
            });
        }
        let beside = self.out.map(|out| beside(out.file, SAMPLED));
        let out = self.out.zip(beside.as_deref());
        let settings = PlaySettings {
            out: out.map(|(out, file)| EpisodeFile { file, ..out }),
            ..self
        };
        let jobs = group_jobs(tasks, samples, stream(seed));
        let sampled = settings.play_jobs(rollout, Sampling::FULL, jobs, SAMPLED)?;
        Ok(Evaluated { greedy, sampled })
    }

    /// Plays `tasks` once greedily; progress is reported under `name`. Blocks.
    pub(crate) fn play_greedily(
        self,
        rollout: &Rollout,
        tasks: &Tasks,
        seed: u64,
        name: &str,
    ) -> Result<Vec<Episode>> {
        let jobs = group_jobs(tasks, 1, stream(seed));
        self.play_jobs(rollout, Sampling::GREEDY, jobs, name)
    }

    fn play_jobs(
        self,
        rollout: &Rollout,
        sampling: Sampling,
        jobs: Vec<Job>,
        name: &str,
    ) -> Result<Vec<Episode>> {
        let rollout = Rollout {
            sampling,
            ..rollout.clone()
        };
        let total = jobs.len() as u64;
        let (mut writer, mut played) = (None, HashMap::new());
        if let Some(out) = &self.out {
            if let Some(episodes) = out.complete(&jobs)? {
                let told = format!("{name}: all {total} episodes were played before");
                self.observer.say(&told);
                return Ok(episodes);
            }
            let (opened, kept) = out.open(&jobs)?;
            if !kept.is_empty() {
                let told = format!(
                    "{name}: {} of {total} episodes were played before",
                    kept.len()
                );
                self.observer.say(&told);
            }
            (writer, played) = (Some(opened), kept);
        }
        let done = AtomicU64::new(played.len() as u64);
        let task = format!("{name}: played");
        let kept: Mutex<Result<_, RecordError>> = Mutex::new(Ok(writer));
        let on_end = |episode: &Episode| {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            self.observer.progress(&task, done, total, "");
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(Some(writer)) = &mut *kept
                && let Err(error) = writer.write(episode.clone())
            {
                *kept = Err(error);
            }
        };
        // Once an episode cannot be written, those that follow would be lost too.
        let is_lost = || {
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.is_err()
        };
        let playing = rollout.resume(jobs, played, self.in_flight, &on_end);
        let ended = runtime()?.block_on(async {
            tokio::select! {
                biased;
                () = until(|| self.observer.is_stopped() || is_lost()) => None,
                episodes = playing => Some(episodes),
            }
        });
        kept.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let Some(episodes) = ended else {
            let done = done.load(Ordering::Relaxed);
            let goes_on = match self.out {
                Some(_) => "; --resume goes on",
                None => "",
            };
            return Err(RunError::stopped(format!(
                "{name}: interrupted after {done} of {total} episodes{goes_on}"
            )));
        };
        let checked = self.budget.check(&episodes);
        checked.context(match self.out {
            None => "the evaluation shows nothing",
            Some(_) => "the evaluation shows nothing yet; --resume plays again what faults took",
        })?;
        if let Some(out) = &self.out {
            out.finish(&episodes)?;
        }
        Ok(episodes)
    }
}

/// Completes once `holds` returns true.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Start of an evaluation's random streams.
fn stream(seed: u64) -> Seed {
    Seed::root(seed).child("evaluation", &[])
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use forage_contracts::Split;
    use forage_contracts::policy::{Completion, Finish, GenerateRequest, PolicyError};
    use forage_trainer::device::DeviceSpec;
    use serde_json::json;

    use super::*;
    use crate::evaluate::EvaluateOptions;
    use crate::retrieval::RetrieverConfig;
    use crate::sources::Sources;
    use crate::unfinished::record_of;

    /// Answers in the first episode that asks, and never in the others.
    struct First(Mutex<Option<u64>>);

    #[async_trait]
    impl Policy for First {
        fn version(&self) -> u64 {
            0
        }

        async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
            let first = *self.0.lock().unwrap().get_or_insert(request.episode);
            if request.episode != first {
                std::future::pending::<()>().await;
            }
            Ok(Completion {
                tokens: Vec::new(),
                logprobs: Vec::new(),
                finish: Finish::Length,
                version: 0,
            })
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_evaluation_ends_when_an_episode_cannot_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("episodes.jsonl");
        // A full disk.
        std::os::unix::fs::symlink("/dev/full", with_ending(&file, ".partial")).unwrap();
        let sources = Sources {
            environment: "search-r1",
            questions: None,
            index: None,
            corpus: None,
            retrieval: &RetrieverConfig::default(),
            split: Split::Test,
            limit: Some(2),
            usual: 2,
            pages: Some(100),
            seed: 1,
        };
        let (corpus, tasks) = sources.open(folder.path()).unwrap();
        let oracle = EvaluateOptions {
            policy: Some("oracle".to_owned()),
            ..EvaluateOptions::default()
        };
        let rollout = sources.rollout(DeviceSpec::Cpu, &oracle, &corpus, &tasks, &());
        let rollout = Rollout {
            policy: Arc::new(First(Mutex::default())),
            ..rollout.unwrap()
        };
        let unfinished = Unfinished::begin(record_of(&file), json!({}), false, &()).unwrap();
        let settings = PlaySettings {
            in_flight: usize::MAX,
            budget: InfraBudget::default(),
            out: Some(EpisodeFile {
                file: &file,
                unfinished: &unfinished,
            }),
            observer: &(),
        };
        let played = settings.play_greedily(&rollout, &tasks, 1, GREEDY);
        let words = played.unwrap_err().to_string();
        assert!(words.contains("write episode records"), "{words}");
    }
}
