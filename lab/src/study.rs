//! A study: what is left of the gain of runs beside their spurious twins and baselines, over one seed or several.

use std::path::{Path, PathBuf};
use std::slice::from_ref;

use forage_contracts::Episode;
use forage_eval::{Course, SeedEpisodes};
use forage_trainer::{Checkpoint, Precision};

use crate::baselines::Baselines;
use crate::conduct::course;
use crate::config::Resolved;
use crate::data::{Data, first};
use crate::error::{Context, Result, bail};
use crate::evaluate::{Evaluated, evaluate_checkpoint};
use crate::layout::{RunLayout, START, TRAINED, make_folder};
use crate::lock::RunLock;
use crate::observer::Observer;
use crate::policy::{open_policy, start_of};
use crate::records::write_episodes;
use crate::studied::Studied;

/// Evaluates start, trained policy and twins of each run, and the baselines that its config asks for, on its held-out questions,
/// at most `limit` of them; the greedy episodes of each, and the study of each run by itself, are kept in its folder. `overrides`
/// change the configs of all runs, `evaluation.samples=64` for instance. Blocks; not to be called from async code.
///
/// # Errors
/// When a folder holds no run, a run or a twin has not come to its end, or an evaluation fails.
pub fn study(
    runs: &[PathBuf],
    limit: Option<usize>,
    overrides: &[String],
    observer: &dyn Observer,
) -> Result<Studied> {
    let (mut greedy, mut sampled, mut courses) = (Vec::new(), Vec::new(), Vec::new());
    let mut studies = Vec::new();
    let mut bootstrap = None;
    for run in runs {
        let layout = RunLayout::new(run);
        if !layout.config().exists() {
            bail!("{} is not a folder of `forage train`", run.display());
        }
        let config = Resolved::read(&layout.config(), overrides, None)?;
        let bootstrap = *bootstrap.get_or_insert(config.bootstrap());
        let found = evaluated(&layout, &config, limit, observer)?;
        let own = found.seed(config.seed, |found| &found.greedy);
        let own_samples = found.seed(config.seed, |found| &found.sampled);
        let own_course = course(&layout, bootstrap)?.map(|course| (config.seed, course));
        let own_course: Vec<(u64, Course)> = own_course.into_iter().collect();
        let alone = Studied::of(
            from_ref(&own),
            from_ref(&own_samples),
            &own_course,
            bootstrap,
        )?;
        alone.write(&layout)?;
        studies.push(alone);
        greedy.push(own);
        sampled.push(own_samples);
        courses.extend(own_course);
    }
    let bootstrap = bootstrap.context("name a run folder")?;
    if let Ok([alone]) = <[Studied; 1]>::try_from(studies) {
        return Ok(alone);
    }
    Studied::of(&greedy, &sampled, &courses, bootstrap)
}

/// Everything that a run is judged by.
struct Judged {
    start: Evaluated,
    /// The trained policy, then its twins.
    arms: Vec<(String, Evaluated)>,
    baselines: Vec<(String, Evaluated)>,
    /// Held until the run's study is kept.
    _lock: RunLock,
}

impl Judged {
    /// One seed of a study.
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

/// Start, trained policy, twins and baselines of a run on its held-out questions.
fn evaluated(
    run: &RunLayout,
    config: &Resolved,
    limit: Option<usize>,
    observer: &dyn Observer,
) -> Result<Judged> {
    let folder = run.folder().display();
    if !run.policy().exists() {
        bail!("{folder} has not come to its end; `forage train --resume` ends it");
    }
    let lock = RunLock::take(run.folder())?;
    let twins = finished_twins(run)?;
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = Data::load(config, scratch.path())?;
    let tasks = first(&data.test, limit);
    if data.test.is_empty() {
        bail!(
            "{folder}: there are no held-out questions; a verdict needs data.test_questions above 0"
        );
    }
    make_folder(&run.evaluation())?;
    let evaluate = |name: &str, policy: &Checkpoint| -> Result<Evaluated> {
        observer.say(&format!("{folder}: {name} on {} questions", tasks.len()));
        let found = evaluate_checkpoint(config, policy, &data, &tasks, observer)?;
        write_episodes(&run.greedy(name), found.greedy.iter().cloned())?;
        Ok(found)
    };
    let untrained = start_of(config)?;
    let start = evaluate(START, &untrained)?;
    let mut policies = vec![(TRAINED.to_owned(), run.policy())];
    policies.extend(twins.into_iter().map(|(name, twin)| (name, twin.policy())));
    let mut arms = Vec::new();
    for (name, place) in policies {
        let found = evaluate(&name, &open_saved(&place, config)?)?;
        arms.push((name, found));
    }
    let baselines = Baselines {
        config,
        run,
        data: &data,
        tasks: &tasks,
        start: &untrained,
        start_name: config.policy.checkpoint.clone(),
        before: &start,
        observer,
    };
    let baselines = baselines.evaluate()?;
    for (name, found) in &baselines {
        write_episodes(&run.greedy(name), found.greedy.iter().cloned())?;
    }
    Ok(Judged {
        start,
        arms,
        baselines,
        _lock: lock,
    })
}

/// A policy that a run has saved.
pub(crate) fn open_saved(folder: &Path, config: &Resolved) -> Result<Checkpoint> {
    open_policy(&folder.to_string_lossy(), Precision::Full, &config.device)
}

/// The twins of a run, all of which have come to their ends.
fn finished_twins(run: &RunLayout) -> Result<Vec<(String, RunLayout)>> {
    let found = run.twins();
    if let Some((name, _)) = found.iter().find(|(_, twin)| !twin.policy().exists()) {
        bail!(
            "twin {name} of {} has not come to its end; `forage train --resume` with the same --twins ends it",
            run.folder().display()
        );
    }
    Ok(found)
}
