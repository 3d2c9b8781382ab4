//! Studies of runs: their gain beside that of their spurious twins and baselines, over one seed or several.

use std::path::PathBuf;
use std::slice::from_ref;

use forage_contracts::Episode;
use forage_eval::{Bootstrap, Course, SeedEpisodes};
use forage_trainer::metrics::Row;
use forage_trainer::{Checkpoint, Workers};
use serde_json::{Value, json};

use crate::baselines::{Baselines, Costs, cost_of};
use crate::conduct::course;
use crate::config::Resolved;
use crate::data::{Data, first};
use crate::error::{Context, Result, bail};
use crate::evaluate::{EpisodeFile, Evaluated, Opening, evaluate_checkpoint};
use crate::grpo::shape;
use crate::layout::{RunLayout, START, TRAINED, make_folder};
use crate::lock::RunLock;
use crate::memory::Start;
use crate::observer::Observer;
use crate::policy::{open_saved, start_at, weights_digest};
use crate::quickstart::start_in;
use crate::records::write_episodes;
use crate::resumed::differences;
use crate::run_folder::{self, forget_seeds};
use crate::side_by_side::side_by_side;
use crate::splits::too_few_held_out;
use crate::studied::Studied;
use crate::unfinished::{Unfinished, check, record_of, settings};

/// Evaluates start, trained policy and twins of each run, and the baselines that its config asks for, on its held-out questions,
/// at most `limit` of them; the greedy episodes of each, and the study of each run by itself, are kept in its folder. `overrides`
/// change the configs of all runs, `evaluation.samples=64` for instance. A process that is killed leaves the episodes that had ended in
/// the folders of the runs, and another goes on with them by `resume`. Runs of a small policy are evaluated several at a time on the
/// processor. Blocks, so async code must not call it.
///
/// # Errors
/// When a folder holds no run, a run or a twin has not come to its end, a run has a study of more than `limit` questions, an evaluation
/// fails, there is nothing to resume, or what is there was begun with other settings.
pub fn study(
    runs: &[PathBuf],
    limit: Option<usize>,
    overrides: &[String],
    resume: bool,
    observer: &dyn Observer,
) -> Result<Studied> {
    let records: Vec<PathBuf> = runs
        .iter()
        .map(|run| record_of(&RunLayout::new(run).unfinished_set(EVALUATION)))
        .collect();
    if let (true, Some(first)) = (resume, records.first()) {
        let begun = records.iter().find(|record| record.exists());
        check(begun.unwrap_or(first))?;
    }
    // Held to the end, since each run keeps its unfinished episodes until all runs are evaluated.
    let _locks = claim(runs)?;
    let configs = runs
        .iter()
        .map(|run| Resolved::read(&RunLayout::new(run).config(), overrides, None))
        .collect::<Result<Vec<_>>>()?;
    for (run, config) in runs.iter().zip(&configs) {
        let layout = RunLayout::new(run);
        check_ends(&layout, config.grpo.steps)?;
        if let (Some(limit), false) = (limit, resume) {
            check_larger(&layout, limit)?;
        }
    }
    for warning in unlike(runs, &configs)? {
        observer.warn(&warning);
    }
    let bootstrap = configs.first().context("name a run folder")?.bootstrap();
    let at_a_time = at_a_time(runs, &configs)?;
    let judged = side_by_side(at_a_time, runs.len(), observer, |place, observer| {
        let layout = RunLayout::new(&runs[place]);
        let config = &configs[place];
        let threads = (config.threads() / at_a_time).max(1);
        let config = config.vary(|config| config.threads = threads)?;
        let named = Named {
            observer,
            run: layout.folder().display().to_string(),
        };
        let found = evaluated(&layout, &config, limit, resume, &named)?;
        let course = course(&layout.trained(), bootstrap)?.map(|course| (config.seed, course));
        let run = RunStudy {
            greedy: found.seed(config.seed, |found| &found.greedy),
            sampled: found.seed(config.seed, |found| &found.sampled),
            course: course.into_iter().collect(),
            costs: found.costs,
        };
        let alone = run.alone(bootstrap)?;
        alone.write(&layout)?;
        Ok((run, alone))
    })?;
    let (found, studies): (Vec<RunStudy>, Vec<Studied>) = judged.into_iter().unzip();
    let studied = match <[Studied; 1]>::try_from(studies) {
        Ok([alone]) => alone,
        Err(_) => together(found, bootstrap)?,
    };
    // Only now those of the first run too: a study that is stopped in a later run still has its episodes.
    for run in runs {
        let place = RunLayout::new(run).unfinished();
        let removed = std::fs::remove_dir_all(&place);
        removed.with_context(|| format!("cannot remove {}", place.display()))?;
    }
    Ok(studied)
}

/// Number of runs to evaluate at a time. Where several micro-batches of such a policy are trained at once on the processor, a policy of
/// this size plays faster on one core than on all; a larger one uses all cores, and is in memory once.
fn at_a_time(runs: &[PathBuf], configs: &[Resolved]) -> Result<usize> {
    let (Some(run), Some(config)) = (runs.first(), configs.first()) else {
        return Ok(1);
    };
    if !config.device.is_cpu() {
        return Ok(1);
    }
    let trained = RunLayout::new(run).policy();
    let trained = config.vary(|config| {
        config.policy.checkpoint = trained.to_string_lossy().into_owned();
    })?;
    let small = |start: Start| {
        Workers::micro_batches_at_a_time(config.threads(), start.shape()).min(configs.len())
    };
    Ok(Start::of(&trained, true)?.map_or(1, small))
}

/// The observer of one run of a study; it begins every line with the run's name.
struct Named<'a> {
    observer: &'a dyn Observer,
    run: String,
}

impl Observer for Named<'_> {
    fn say(&self, line: &str) {
        self.observer.say(&format!("{}: {line}", self.run));
    }

    fn warn(&self, line: &str) {
        self.observer.warn(&format!("{}: {line}", self.run));
    }

    fn progress(&self, task: &str, done: u64, total: u64, shown: &str) {
        let task = format!("{}: {task}", self.run);
        self.observer.progress(&task, done, total, shown);
    }

    fn is_stopped(&self) -> bool {
        self.observer.is_stopped()
    }

    fn notice(&self) -> fn(&str) {
        self.observer.notice()
    }
}

/// The part of one run in a study.
struct RunStudy {
    greedy: SeedEpisodes,
    sampled: SeedEpisodes,
    /// The course with its seed; empty where the run has recorded no steps.
    course: Vec<(u64, Course)>,
    costs: Costs,
}

impl RunStudy {
    /// The study of this run by itself.
    fn alone(&self, bootstrap: Bootstrap) -> Result<Studied> {
        let (greedy, sampled) = (from_ref(&self.greedy), from_ref(&self.sampled));
        Studied::of(greedy, sampled, &self.course, &self.costs, bootstrap)
    }
}

/// The study of several runs.
fn together(runs: Vec<RunStudy>, bootstrap: Bootstrap) -> Result<Studied> {
    let (mut greedy, mut sampled) = (Vec::new(), Vec::new());
    let (mut courses, mut costs) = (Vec::new(), Costs::new());
    for run in runs {
        greedy.push(run.greedy);
        sampled.push(run.sampled);
        courses.extend(run.course);
        costs.extend(run.costs);
    }
    Studied::of(&greedy, &sampled, &courses, &costs, bootstrap)
}

/// Locks the folders of the runs, which must be complete.
fn claim(runs: &[PathBuf]) -> Result<Vec<RunLock>> {
    for (place, run) in runs.iter().enumerate() {
        let (layout, folder) = (RunLayout::new(run), run.display());
        if !layout.config().exists() {
            bail!("{folder} is not a folder of `forage train`");
        }
        if !layout.policy().exists() {
            bail!("{folder} has not come to its end; `forage train --resume` ends it");
        }
        if runs[..place].contains(run) {
            bail!("{folder} is named twice; name each run once");
        }
    }
    runs.iter().map(|run| RunLock::take(run)).collect()
}

/// Warnings of runs that differ from the first in more than their seeds, and are judged as one training all the same.
///
/// # Errors
/// When two runs have the same seed.
fn unlike(runs: &[PathBuf], configs: &[Resolved]) -> Result<Vec<String>> {
    let of = |config: &Resolved| -> Result<Value> {
        let mut shape = shape(config);
        shape.grpo.steps = config.grpo.steps;
        let mut found = run_folder::settings(&shape.to_toml()?);
        forget_seeds(&mut found);
        Ok(found)
    };
    let mut warnings = Vec::new();
    for (place, config) in configs.iter().enumerate() {
        let run = runs[place].display();
        let seed = config.seed;
        if let Some(other) = configs[..place].iter().position(|other| other.seed == seed) {
            bail!(
                "{} and {run} have the same seed, {seed}; name one of them: a study is of runs that differ in their seeds",
                runs[other].display()
            );
        }
        if let Some(others) = differences(&of(&configs[0])?, &of(config)?) {
            warnings.push(format!(
                "warning: {run} has other settings than {} ({others}), and the figures are of both as if they differed in their seeds \
                 alone; evaluate each by itself, or leave one out",
                runs[0].display()
            ));
        }
    }
    Ok(warnings)
}

/// File stem of the record of a run's evaluation, different from the names of its sets of episodes.
const EVALUATION: &str = "evaluation";

/// The evaluations of everything that a run is judged by.
struct Judged {
    start: Evaluated,
    /// The trained policy, then its twins.
    arms: Vec<(String, Evaluated)>,
    baselines: Vec<(String, Evaluated)>,
    /// Cost of training arms and baselines.
    costs: Costs,
}

impl Judged {
    /// The run as one seed of a study.
    fn seed(&self, seed: u64, pick: fn(&Evaluated) -> &Vec<Episode>) -> SeedEpisodes {
        let picked = |policies: &[(String, Evaluated)]| -> Vec<(String, Vec<Episode>)> {
            policies
                .iter()
                .map(|(name, found)| (name.clone(), pick(found).clone()))
                .collect()
        };
        SeedEpisodes {
            seed,
            start: pick(&self.start).clone(),
            arms: picked(&self.arms),
            baselines: picked(&self.baselines),
        }
    }
}

/// Start, trained policy, twins and baselines of a run on its held-out questions. What was played before is not played again where it
/// is to be resumed.
fn evaluated(
    run: &RunLayout,
    config: &Resolved,
    limit: Option<usize>,
    resume: bool,
    observer: &dyn Observer,
) -> Result<Judged> {
    let folder = run.folder().display().to_string();
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = Data::load(config, scratch.path())?;
    let tasks = first(data.held_out().in_config(folder)?, limit);
    if let Some(few) = too_few_held_out(limit, Some(config), tasks.len()) {
        observer.warn(&few);
    }
    make_folder(&run.evaluation())?;
    make_folder(&run.unfinished())?;
    let start_name = start_in(config, run)?;
    let untrained = start_at(config, &start_name)?;
    let mut policies = vec![(TRAINED.to_owned(), run.clone())];
    policies.extend(run.twins());
    let generation = config.generation();
    let mut about = settings(
        &config.environment,
        Some(config),
        &data.corpus,
        &tasks,
        config.seed,
    )?;
    about["samples"] = config.evaluation.samples.into();
    about["base"] = json!(config.policy.base);
    // Every policy is played by the engine of this process.
    let opening = Opening::of(config, Some(&start_name), &generation);
    about["policies"][START] = opening.identity()?;
    for (name, part) in &policies {
        about["policies"][name] = weights_digest(&part.policy().to_string_lossy())?.into();
    }
    let record = record_of(&run.unfinished_set(EVALUATION));
    // Of several runs those before the one in which a study was stopped were begun, and those after it were not.
    let resume = resume && record.exists();
    let unfinished = Unfinished::begin(record, about, resume, observer)?;
    let evaluate = |name: &str, policy: &Checkpoint| -> Result<Evaluated> {
        observer.say(&format!("{name} on {} questions", tasks.len()));
        let file = run.unfinished_set(name);
        let out = EpisodeFile {
            file: &file,
            unfinished: &unfinished,
        };
        let played = (&tasks, config.evaluation.samples_of(name));
        let found = evaluate_checkpoint(config, policy, &data, played, Some(out), observer)?;
        write_episodes(&run.greedy(name), found.greedy.iter().cloned())?;
        Ok(found)
    };
    let start = evaluate(START, &untrained)?;
    let (mut arms, mut costs) = (Vec::new(), Costs::new());
    for (name, part) in policies {
        let found = evaluate(&name, &open_saved(&part.policy(), config)?)?;
        costs.extend(cost_of(&part.trained())?.map(|cost| (name.clone(), cost)));
        arms.push((name, found));
    }
    let baselines = Baselines {
        config,
        run,
        trained: &run.trained(),
        data: &data,
        tasks: &tasks,
        start: &untrained,
        start_name,
        before: &start,
        unfinished: Some(&unfinished),
        observer,
    };
    let (baselines, taken) = baselines.evaluate()?;
    costs.extend(taken);
    for (name, found) in &baselines {
        write_episodes(&run.greedy(name), found.greedy.iter().cloned())?;
    }
    Ok(Judged {
        start,
        arms,
        baselines,
        costs,
    })
}

/// Refuses a run with steps left to take, or with a twin that has some: the policy in its folder is that of an earlier end.
fn check_ends(run: &RunLayout, steps: u64) -> Result<()> {
    let folder = run.folder().display();
    if let Some(done) = behind(&run.trained(), steps)? {
        bail!(
            "{folder} has not come to its end: {done} of {steps} steps are done; `forage train --resume` ends it"
        );
    }
    for (name, twin) in run.twins() {
        let done = behind(&twin, steps)?;
        if done.is_some() || !twin.policy().exists() {
            let done = done.map_or_else(String::new, |done| {
                format!(": {done} of {steps} steps are done")
            });
            bail!(
                "twin {name} of {folder} has not come to its end{done}; `forage train --resume` with the same --twins ends it"
            );
        }
    }
    Ok(())
}

/// Refuses to replace the study of a run, where it has one, by one of fewer questions.
fn check_larger(run: &RunLayout, limit: usize) -> Result<()> {
    let held = Studied::read(run)?.map_or(0, |study| study.greedy.questions);
    if held > limit {
        bail!(
            "{} has a study of {held} questions, which --limit {limit} would replace; leave --limit out, or remove {}",
            run.folder().display(),
            run.study().display()
        );
    }
    Ok(())
}

/// Steps that a run has saved, or recorded where its checkpoints were removed, if they are fewer than it is to take.
fn behind(run: &RunLayout, steps: u64) -> Result<Option<u64>> {
    let mut done = run.saved_steps();
    if done == 0 && run.metrics().exists() {
        let rows = Row::read_all(&run.metrics())?;
        done = rows.last().map_or(0, |row| row.step() + 1);
    }
    Ok((1..steps).contains(&done).then_some(done))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    #[test]
    fn all_runs_of_a_study_belong_to_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let runs = ["one", "two"].map(|name| folder.path().join(name));
        let refused = |runs: &[PathBuf]| claim(runs).unwrap_err().to_string();
        let words = refused(&runs);
        assert!(words.contains("one is not a folder of"), "{words}");
        for run in &runs {
            let layout = RunLayout::new(run);
            std::fs::create_dir(run).unwrap();
            std::fs::write(layout.config(), "").unwrap();
            let words = refused(from_ref(run));
            assert!(words.contains("has not come to its end"), "{words}");
            std::fs::create_dir(layout.policy()).unwrap();
        }
        let held = claim(&runs).unwrap();
        let words = refused(&runs[1..]);
        assert!(words.contains("two is in use by process"), "{words}");
        drop(held);
        let twice = [runs[0].clone(), runs[0].clone()];
        let words = refused(&twice);
        assert!(words.contains("one is named twice"), "{words}");
        drop(claim(&runs).unwrap());
    }

    #[test]
    fn runs_of_a_study_differ_in_their_seeds_alone() {
        let text = include_str!("../../configs/smoke.toml");
        let config = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
            let config = RunConfig::parse(text, &overrides).unwrap();
            config.resolve(None).unwrap()
        };
        let judged = |other: &[&str]| {
            let runs = ["one", "two"].map(PathBuf::from);
            unlike(&runs, &[config(&[]), config(other)])
        };
        let seeds = ["seed=2", "data.world.seed=2000001", "threads=1"];
        assert_eq!(judged(&seeds).unwrap(), [""; 0]);
        let warnings = judged(&["seed=2", "grpo.steps=9", "grpo.group_size=2"]).unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for words in [
            "two has other settings than one",
            "grpo.group_size was 4 and is 2; grpo.steps was 4 and is 9",
        ] {
            assert!(warnings[0].contains(words), "{warnings:?}");
        }
        let error = judged(&["grpo.steps=9"]).unwrap_err().to_string();
        assert!(
            error.contains("one and two have the same seed, 1"),
            "{error}"
        );
    }

    #[test]
    fn a_run_that_goes_on_beyond_an_earlier_end_is_not_judged_by_what_that_left() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunLayout::new(folder.path());
        let twin = run.twin("random");
        let saved = |run: &RunLayout, step: u64| {
            make_folder(&run.checkpoints().join(format!("step-{step:06}"))).unwrap();
        };
        let refused = |steps: u64| check_ends(&run, steps).unwrap_err().to_string();
        saved(&run, 2);
        check_ends(&run, 2).unwrap();
        let words = refused(4);
        assert!(words.contains("2 of 4 steps are done"), "{words}");
        saved(&run, 4);
        saved(&twin, 2);
        make_folder(&twin.policy()).unwrap();
        let words = refused(4);
        assert!(words.contains("twin random of"), "{words}");
        assert!(words.contains("2 of 4 steps are done"), "{words}");
        saved(&twin, 4);
        check_ends(&run, 4).unwrap();
        std::fs::remove_dir(twin.policy()).unwrap();
        assert!(refused(4).contains("has not come to its end"));
        // Who needs the space removes checkpoints of what is done.
        make_folder(&twin.policy()).unwrap();
        std::fs::remove_dir_all(twin.checkpoints()).unwrap();
        std::fs::write(twin.metrics(), "{\"step\":2}\n").unwrap();
        assert!(refused(4).contains("3 of 4 steps are done"));
        std::fs::write(twin.metrics(), "{\"step\":3}\n").unwrap();
        check_ends(&run, 4).unwrap();
    }
}
