//! An evaluation from its first episode to its findings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_contracts::Episode;
use forage_contracts::environment::Outcome;
use forage_contracts::policy::Sampling;
use forage_contracts::scripted::ScriptEntry;
use forage_contracts::seed::Seed;
use forage_env::reward::RewardSet;
use forage_env::{Alarm, InfraBudget, Probe, Rollout};
use forage_eval::{Answers, Bootstrap, EvalSummary, RetrievalReport, Telemetry};
use serde_json::Value;

use super::play::{EpisodeFile, Evaluated, PlaySettings, Sets};
use super::player::{Opening, Player};
use super::probes::{ProbeBase, Probed};
use super::questions::{oracle_caveat, question_retrieval};
use crate::config::{EnvironmentConfig, EvaluationConfig, Resolved};
use crate::data::{Corpus, HOLD_OUT, Tasks, check_golds};
use crate::error::{Context, Result, RunError};
use crate::lock::FileLock;
use crate::observer::Observer;
use crate::records::write_episodes;
use crate::runtime::runtime;
use crate::session::Session;
use crate::splits::too_few_held_out;
use crate::unfinished::{Unfinished, check, record_of, settings};

/// Options of an evaluation: its policy, its extent and its files.
#[derive(Clone, Debug, Default)]
pub struct EvaluateOptions {
    /// A folder, a name on the hub, a server of `OpenAI`'s protocol by its address, a script of the environment or
    /// `constant:ANSWER`; the config's policy by default, played by its `[sampler]` where it has one.
    pub policy: Option<String>,
    /// The model to ask a server for; its only one by default.
    pub model: Option<String>,
    /// File with the access token of a server.
    pub token_file: Option<PathBuf>,
    /// The policy in whose tokens a script writes; bytes by default.
    pub tokens_of: Option<String>,
    /// Most questions.
    pub limit: Option<usize>,
    /// Sampled episodes per question, beside the greedy one; the config's by default, none for scripts.
    pub samples: Option<usize>,
    /// File for the greedy episodes; others go beside it.
    pub out: Option<PathBuf>,
    /// File for what the retriever answers.
    pub record_tools: Option<PathBuf>,
    /// Changes under which the questions are asked again.
    pub probes: Vec<Probe>,
    /// Whether the policy grades its sampled episodes itself.
    pub self_grade: bool,
    /// Goes on with an evaluation into `out` that was stopped.
    pub resume: bool,
}

impl EvaluateOptions {
    /// Tells whether a probe reads the policy's weights, where it has some.
    pub(super) fn reads_weights(&self) -> bool {
        let reading = [Probe::SelfCritique, Probe::ParaphrasedPrompt];
        self.probes.iter().any(|probe| reading.contains(probe))
    }

    /// Claims the files that will be written, for as long as the locks are kept: before any work is done. Those beside the greedy
    /// episodes too, since a file that differs in its ending alone has the same ones.
    ///
    /// # Errors
    /// When another process writes one of them, a finished evaluation would be lost, there is nothing to resume, or more samples are
    /// asked for than there is room for.
    pub(super) fn claim(&self) -> Result<Vec<FileLock>> {
        EvaluationConfig::check_asked(self.samples.unwrap_or_default())?;
        let mut files: Vec<PathBuf> = self.out.iter().chain(&self.record_tools).cloned().collect();
        if let Some(out) = &self.out {
            self.keep_finished(out)?;
            let probes = self.probes.iter().map(|probe| probe.name());
            let names = probes.chain([SAMPLED]);
            let names: BTreeSet<&str> = names.chain(self.self_grade.then_some(GRADES)).collect();
            files.extend(names.into_iter().map(|name| beside(out, name)));
            files.push(record_of(out));
        }
        let locks = FileLock::take_all(&files)?;
        if self.resume {
            let out = self.out.as_deref();
            let out = out.in_config("--resume goes on with the file of --out; name it")?;
            check(&record_of(out))?;
        }
        Ok(locks)
    }

    /// Refuses to overwrite a finished evaluation.
    fn keep_finished(&self, out: &Path) -> Result<()> {
        let finished = [out.to_owned(), beside(out, SAMPLED), beside(out, GRADES)]
            .into_iter()
            .find(|file| file.exists());
        match finished {
            Some(file) if !record_of(out).exists() && !self.resume => {
                Err(RunError::stage(format!(
                    "{} holds episodes of an evaluation; name another --out, or remove it",
                    file.display()
                )))
            }
            _ => Ok(()),
        }
    }

    /// The identity of the policy, for an evaluation that can be resumed; null for others.
    pub(super) fn identity(&self, opening: &Opening<'_>) -> Result<Value> {
        if self.out.is_none() {
            return Ok(Value::Null);
        }
        opening.identity()
    }
}

/// The sampled episodes beside the greedy ones, and the policy's own grades of them.
pub(super) const SAMPLED: &str = "sampled";
const GRADES: &str = "grades";

/// A file beside that of the greedy episodes.
pub(super) fn beside(out: &Path, name: &str) -> PathBuf {
    out.with_extension(format!("{name}.jsonl"))
}

/// The findings of an evaluation.
#[derive(Debug)]
pub struct Evaluation {
    /// The metrics of the greedy episodes.
    pub greedy: EvalSummary,
    /// The metrics of the sampled episodes; empty where there are none.
    pub sampled: EvalSummary,
    /// Measures of several answers to the same questions.
    pub answers: Option<Answers>,
    /// The ranking metrics of the questions as queries, where the tasks name their evidence.
    pub question_retrieval: Option<RetrievalReport>,
    /// Signs of a gamed reward.
    pub alarms: Vec<Alarm>,
    /// Findings of the probes, in the order they were asked for.
    pub probes: Vec<Probed>,
    /// A note on what the policy did not do as asked, if anything.
    pub caveat: Option<String>,
}

/// An evaluation with everything that it needs to begin.
pub(super) struct Exam<'a> {
    pub(super) environment: EnvironmentConfig,
    pub(super) rewards: Arc<RewardSet>,
    pub(super) corpus: Corpus,
    pub(super) tasks: Tasks,
    /// Questions that the config trains on; none without a config.
    pub(super) trained: Tasks,
    pub(super) config: Option<&'a Resolved>,
    pub(super) player: Player,
    /// Identity of the player.
    pub(super) identity: Value,
    pub(super) samples: usize,
    /// The budget of infrastructure faults.
    pub(super) budget: InfraBudget,
    pub(super) seed: u64,
    pub(super) threads: usize,
    pub(super) options: &'a EvaluateOptions,
    pub(super) observer: &'a dyn Observer,
}

impl Exam<'_> {
    pub(super) fn run(self) -> Result<Evaluation> {
        if self.tasks.is_empty() {
            return Err(RunError::config_because(
                "there are no questions to ask",
                format!("{HOLD_OUT}; without a config --questions"),
            ));
        }
        if let Some(few) = too_few_held_out(self.options.limit, self.config, self.tasks.len()) {
            self.observer.warn(&few);
        }
        check_golds(&self.rewards, &self.tasks)?;
        let few = self.options.limit.is_some();
        if let Some(found) = self
            .corpus
            .unknown_evidence(&[&self.tasks], few, &self.environment)?
        {
            self.observer.warn(&format!("warning: {found}"));
        }
        let options = self.options;
        let searched = self.corpus.clone();
        let session = Session::new(
            &self.environment,
            Arc::clone(&self.rewards),
            &searched.recorded(options.record_tools.as_deref())?,
            self.player.format.clone(),
            self.observer,
        )?;
        ProbeBase::check(&self, &session)?;
        let rollout = session.rollout(Arc::clone(&self.player.policy), Sampling::GREEDY)?;
        if options.self_grade
            && (self.samples < 2 || rollout.factory.spec().outcome != Outcome::Answer)
        {
            return Err(RunError::config_because(
                "--self-grade ranks several sampled answers to a question",
                "give --samples 2 or more, in an environment whose episodes end in an answer",
            ));
        }
        if let Some(warning) = Session::check_room(&rollout, &self.tasks, self.seed)? {
            self.observer.warn(&warning);
        }
        let unfinished = self.begin()?;
        let out = options.out.as_deref().zip(unfinished.as_ref());
        let settings = PlaySettings {
            in_flight: self.player.in_flight,
            budget: self.budget,
            out: out.map(|(file, unfinished)| EpisodeFile { file, unfinished }),
            observer: self.observer,
        };
        let Evaluated { greedy, sampled } =
            settings.play(&rollout, &self.tasks, self.seed, self.samples)?;
        if let Err(error) = Session::check_begun(&rollout, &greedy) {
            // Resumed, it would end so again.
            unfinished.map(Unfinished::end).transpose()?;
            return Err(error);
        }
        let base = ProbeBase {
            exam: &self,
            session: &session,
            episodes: &greedy,
            unfinished: unfinished.as_ref(),
        };
        let probes = options.probes.iter().map(|probe| base.probe(*probe));
        let probes = probes.collect::<Result<_>>()?;
        let bootstrap = Bootstrap::new(self.seed);
        let mut answers = Answers::of(&greedy, &sampled, bootstrap)?;
        if options.self_grade {
            let graded = self.graded(&session, rollout, &sampled)?;
            let with = |answers: Answers| answers.with_grades(&graded, bootstrap);
            answers = answers.map(with).transpose()?;
        }
        let caveat = self.player.policy.caveat();
        let found = Evaluation {
            alarms: Telemetry::from_episodes(&greedy, bootstrap)?.alarms,
            greedy: EvalSummary::from_episodes(&greedy, bootstrap)?,
            sampled: EvalSummary::from_episodes(&sampled, bootstrap)?,
            answers,
            question_retrieval: question_retrieval(&self.corpus, &self.tasks, bootstrap)?,
            probes,
            caveat: caveat.map_or_else(|| self.oracle_caveat(), |caveat| Ok(Some(caveat)))?,
        };
        unfinished.map(Unfinished::end).transpose()?;
        Ok(found)
    }

    /// A caveat for the score of an oracle.
    fn oracle_caveat(&self) -> Result<Option<String>> {
        if self.options.policy.as_deref() != Some(ScriptEntry::ORACLE) {
            return Ok(None);
        }
        oracle_caveat(&self.environment, &self.tasks)
    }

    /// Begins the evaluation, or resumes one, where there is a file for its episodes.
    fn begin(&self) -> Result<Option<Unfinished<Sets>>> {
        let Some(out) = &self.options.out else {
            return Ok(None);
        };
        let (config, seed) = (self.config, self.seed);
        let mut about = settings(&self.environment, config, &self.corpus, &self.tasks, seed)?;
        about["policy"] = self.identity.clone();
        about["samples"] = self.samples.into();
        let resume = self.options.resume;
        Unfinished::begin(record_of(out), about, resume, self.observer).map(Some)
    }

    /// The sampled episodes with the policy's own grades. Left out are those whose playing or grading a fault ended.
    fn graded<'a>(
        &self,
        session: &Session,
        rollout: Rollout,
        sampled: &'a [Episode],
    ) -> Result<Vec<(&'a Episode, Option<f64>)>> {
        let attempts: Vec<&Episode> = sampled
            .iter()
            .filter(|episode| !episode.ending.is_infra())
            .collect();
        // A grade calls no tools.
        let rollout = Rollout {
            presentation: session.format.presentation.clone(),
            ..rollout
        };
        let seed = Seed::root(self.seed).child("evaluation", &[]);
        let grading = rollout.grading(&attempts, seed, self.player.in_flight);
        let graded = runtime()?.block_on(grading);
        self.budget
            .check(&graded)
            .context("the policy's own grades show nothing")?;
        if let Some(path) = &self.options.out {
            write_episodes(&beside(path, GRADES), graded.iter().cloned())?;
        }
        let pairs = attempts.into_iter().zip(&graded);
        Ok(pairs
            .filter(|(_, graded)| !graded.ending.is_infra())
            .map(|(attempt, graded)| (attempt, Rollout::grade(graded)))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use forage_contracts::Split;
    use forage_trainer::device::DeviceSpec;
    use serde_json::json;

    use super::*;
    use crate::retrieval::RetrieverConfig;
    use crate::sources::Sources;

    /// Looks at a file whenever it hears of an episode.
    struct Looking {
        file: PathBuf,
        seen: Mutex<Vec<(u64, usize)>>,
    }

    impl Observer for Looking {
        fn progress(&self, _task: &str, done: u64, _total: u64, _shown: &str) {
            let text = std::fs::read_to_string(&self.file).unwrap_or_default();
            self.seen.lock().unwrap().push((done, text.lines().count()));
        }
    }

    fn sources(retrieval: &RetrieverConfig) -> Sources<'_> {
        Sources {
            environment: "search-r1",
            questions: None,
            index: None,
            corpus: None,
            retrieval,
            split: Split::Test,
            limit: Some(4),
            usual: 4,
            pages: Some(100),
            seed: 1,
        }
    }

    /// Keeps what it is warned of.
    #[derive(Default)]
    struct Warned(Mutex<Vec<String>>);

    impl Observer for Warned {
        fn warn(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
    }

    #[test]
    fn a_small_window_is_told_of_and_a_prompt_that_fills_it_is_refused_with_the_fix() {
        let retrieval = RetrieverConfig::default();
        let sources = Sources {
            environment: "code-search",
            ..sources(&retrieval)
        };
        let options = EvaluateOptions {
            policy: Some("builtin:quickstart-code".to_owned()),
            ..EvaluateOptions::default()
        };
        let warned = Warned::default();
        let evaluated = sources.evaluate(DeviceSpec::Cpu, &options, &warned);
        let error = anyhow::Error::from(evaluated.unwrap_err());
        let words = format!("{error:#}");
        assert!(
            words.contains("an episode 512 (environment.settings.max_episode_tokens)")
                && words.contains("forage config init"),
            "{words}"
        );
        let warned = warned.0.into_inner().unwrap();
        assert!(
            warned.len() == 1 && warned[0].contains("reads 512 tokens"),
            "{warned:?}"
        );
    }

    #[test]
    fn episodes_are_told_of_and_kept_as_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("episodes.jsonl");
        let looking = Looking {
            file: folder.path().join("episodes.jsonl.partial"),
            seen: Mutex::default(),
        };
        let retrieval = RetrieverConfig::default();
        let options = EvaluateOptions {
            policy: Some("oracle".to_owned()),
            out: Some(out.clone()),
            ..EvaluateOptions::default()
        };
        let evaluated = sources(&retrieval).evaluate(DeviceSpec::Cpu, &options, &looking);
        evaluated.unwrap();
        let seen = looking.seen.into_inner().unwrap();
        assert_eq!(seen, [(1, 0), (2, 1), (3, 2), (4, 3)]);
        let whole = std::fs::read_to_string(&out).unwrap();
        assert!(whole.lines().count() == 4 && !looking.file.exists());
    }

    /// Dies when so many episodes have ended; the last of them is not kept.
    struct Killed {
        at: usize,
        seen: AtomicUsize,
    }

    impl Observer for Killed {
        fn progress(&self, _task: &str, _done: u64, _total: u64, _shown: &str) {
            let seen = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(seen < self.at, "killed");
        }
    }

    /// Asks to stop.
    struct Stopped;

    impl Observer for Stopped {
        fn is_stopped(&self) -> bool {
            true
        }
    }

    #[test]
    fn an_evaluation_that_is_stopped_says_how_it_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("episodes.jsonl");
        let retrieval = RetrieverConfig::default();
        let evaluate = |out: Option<&PathBuf>, resume: bool, observer: &dyn Observer| {
            let options = EvaluateOptions {
                policy: Some("oracle".to_owned()),
                out: out.cloned(),
                resume,
                ..EvaluateOptions::default()
            };
            sources(&retrieval).evaluate(DeviceSpec::Cpu, &options, observer)
        };
        let words = evaluate(Some(&out), false, &Stopped)
            .unwrap_err()
            .to_string();
        assert!(words.contains("of 4 episodes; --resume goes on"), "{words}");
        evaluate(Some(&out), true, &()).unwrap();
        let whole = std::fs::read_to_string(&out).unwrap();
        assert_eq!(whole.lines().count(), 4);
        let words = evaluate(None, false, &Stopped).unwrap_err().to_string();
        assert!(words.ends_with("of 4 episodes"), "{words}");
    }

    #[test]
    fn an_evaluation_that_was_killed_goes_on_to_the_same_files_and_findings() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let retrieval = RetrieverConfig::default();
        let evaluate = |out: &str, policy: &str, resume: bool, observer: &dyn Observer| {
            let options = EvaluateOptions {
                policy: Some(policy.to_owned()),
                samples: Some(2),
                out: Some(at(out)),
                probes: vec![Probe::NoSearch],
                resume,
                ..EvaluateOptions::default()
            };
            let found = sources(&retrieval).evaluate(DeviceSpec::Cpu, &options, observer);
            let found = found.map_err(|error| error.to_string())?;
            let Evaluation {
                greedy,
                sampled,
                answers,
                probes,
                ..
            } = &found;
            Ok::<_, String>(json!([greedy, sampled, answers, probes]))
        };
        let expected = evaluate("whole.jsonl", "random", false, &()).unwrap();
        // Four greedy episodes, eight samples and four under the probe: two of the first are kept, then all of them and three
        // samples, then another sample, then all of them and one under the probe.
        for (resume, at) in [(false, 3), (true, 6), (true, 2), (true, 6)] {
            let killed = Killed {
                at,
                seen: AtomicUsize::new(0),
            };
            let ran = AssertUnwindSafe(|| evaluate("broken.jsonl", "random", resume, &killed));
            assert!(catch_unwind(ran).is_err(), "not killed");
            let partial = folder.path().join("broken.jsonl.partial");
            if !resume {
                // In the middle of a line.
                let mut text = std::fs::read(&partial).unwrap();
                text.extend(b"{\"schema\":1,\"rew");
                std::fs::write(&partial, text).unwrap();
            }
        }
        let words = evaluate("broken.jsonl", "random", false, &()).unwrap_err();
        assert!(words.contains("give --resume to go on"), "{words}");
        let words = evaluate("broken.jsonl", "oracle", true, &()).unwrap_err();
        assert!(
            words.contains("policy.name was \"random\" and is \"oracle\""),
            "{words}"
        );
        let count = Killed {
            at: usize::MAX,
            seen: AtomicUsize::new(0),
        };
        // Of who is killed as a set is complete.
        std::fs::copy(at("broken.jsonl"), at("broken.jsonl.partial")).unwrap();
        let found = evaluate("broken.jsonl", "random", true, &count).unwrap();
        assert_eq!(found, expected);
        assert_eq!(count.seen.into_inner(), 3, "what was kept is not played");
        for ending in ["jsonl", "sampled.jsonl", "no-search.jsonl"] {
            let read = |stem: &str| std::fs::read(at(&format!("{stem}.{ending}"))).unwrap();
            assert!(read("broken") == read("whole"), "{ending}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 6);
        let words = evaluate("broken.jsonl", "random", true, &()).unwrap_err();
        assert!(words.contains("nothing to resume"), "{words}");
        for kept in ["whole.jsonl", "whole.sampled.jsonl"] {
            let words = evaluate("whole.jsonl", "oracle", false, &()).unwrap_err();
            let told = format!("{kept} holds episodes of an evaluation");
            assert!(words.contains(&told), "{words}");
            std::fs::remove_file(at(kept)).unwrap();
        }
        let options = EvaluateOptions {
            resume: true,
            ..EvaluateOptions::default()
        };
        let error = options.claim().unwrap_err().to_string();
        assert!(error.contains("--out"), "{error}");
    }

    #[test]
    fn samples_that_no_machine_has_room_for_are_refused() {
        let retrieval = RetrieverConfig::default();
        let options = EvaluateOptions {
            policy: Some("oracle".to_owned()),
            samples: Some(1_000_000_000_000),
            ..EvaluateOptions::default()
        };
        let evaluated = sources(&retrieval).evaluate(DeviceSpec::Cpu, &options, &());
        let words = evaluated.unwrap_err().to_string();
        assert!(words.contains("give 100000 or less"), "{words}");
    }

    #[test]
    fn every_file_of_an_evaluation_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let options = EvaluateOptions {
            out: Some(at("episodes.jsonl")),
            probes: vec![Probe::NoSearch, Probe::NoSearch],
            self_grade: true,
            ..EvaluateOptions::default()
        };
        let files =
            ["", "grades.", "sampled.", "no-search."].map(|of| format!("episodes.{of}jsonl"));
        for name in &files {
            let held = FileLock::take(&at(name)).unwrap();
            let error = options.claim().unwrap_err().to_string();
            assert!(
                error.contains(&format!("{name} is being written")),
                "{error}"
            );
            drop(held);
        }
        let locks = options.claim().unwrap();
        for name in &files {
            assert!(FileLock::take(&at(name)).is_err(), "{name}");
        }
        // Another file with the same files beside it.
        let other = EvaluateOptions {
            out: Some(at("episodes.json")),
            probes: Vec::new(),
            self_grade: false,
            ..options.clone()
        };
        let error = other.claim().unwrap_err().to_string();
        assert!(
            error.contains("episodes.sampled.jsonl is being written"),
            "{error}"
        );
        drop(locks);
        other.claim().unwrap();
    }
}
