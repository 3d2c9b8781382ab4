//! A study: what is left of the gain of runs beside their spurious twins, over one seed or several.

use std::path::{Path, PathBuf};

use forage_contracts::Episode;
use forage_eval::{SeedEpisodes, Study};
use forage_trainer::{Checkpoint, Precision};

use crate::config::Resolved;
use crate::data::{Data, first};
use crate::error::{Context, Result, bail};
use crate::evaluate::{Evaluated, evaluate_checkpoint};
use crate::layout::{RunLayout, START, TRAINED, make_folder};
use crate::lock::RunLock;
use crate::observer::Observer;
use crate::policy::{open_policy, start_of};
use crate::records::write_episodes;

/// The findings of a study.
#[derive(Debug)]
pub struct Studied {
    /// From greedy episodes.
    pub greedy: Study,
    /// From sampled episodes, where all runs have some.
    pub sampled: Option<Study>,
}

/// Evaluates start, trained policy and twins of each run on its held-out questions, at most `limit` of them; the greedy episodes
/// of each are kept in the run's folder. Blocks; not to be called from async code.
///
/// # Errors
/// When a folder holds no run, a run or a twin has not come to its end, or an evaluation fails.
pub fn study(runs: &[PathBuf], limit: Option<usize>, observer: &dyn Observer) -> Result<Studied> {
    let (mut greedy, mut sampled) = (Vec::new(), Vec::new());
    let mut bootstrap = None;
    for run in runs {
        let layout = RunLayout::new(run);
        let config = Resolved::read(&layout.config(), &[], None)
            .with_context(|| format!("{} is not a folder of `forage train`", run.display()))?;
        bootstrap.get_or_insert(config.bootstrap());
        let arms = evaluated(&layout, &config, limit, observer)?;
        greedy.push(seed_of(&config, &arms, |found| &found.greedy));
        sampled.push(seed_of(&config, &arms, |found| &found.sampled));
    }
    let bootstrap = bootstrap.context("name a run folder")?;
    let has_samples = sampled.iter().all(|seed| !seed.start.is_empty());
    Ok(Studied {
        greedy: Study::of(&greedy, bootstrap)?,
        sampled: has_samples
            .then(|| Study::of(&sampled, bootstrap))
            .transpose()?,
    })
}

/// The arms of a run as one seed of a study; the first is the start.
fn seed_of(
    config: &Resolved,
    arms: &[(String, Evaluated)],
    pick: fn(&Evaluated) -> &Vec<Episode>,
) -> SeedEpisodes {
    let mut arms = arms
        .iter()
        .map(|(name, found)| (name.clone(), pick(found).clone()));
    SeedEpisodes {
        seed: config.seed,
        start: arms
            .next()
            .map(|(_, episodes)| episodes)
            .unwrap_or_default(),
        arms: arms.collect(),
    }
}

/// Start, trained policy and twins of a run on its held-out questions.
fn evaluated(
    run: &RunLayout,
    config: &Resolved,
    limit: Option<usize>,
    observer: &dyn Observer,
) -> Result<Vec<(String, Evaluated)>> {
    let folder = run.folder().display();
    if !run.policy().exists() {
        bail!("{folder} has not come to its end; `forage train --resume` ends it");
    }
    let _lock = RunLock::take(run.folder())?;
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
    let mut policies = vec![
        (START.to_owned(), None),
        (TRAINED.to_owned(), Some(run.policy())),
    ];
    policies.extend(
        twins
            .into_iter()
            .map(|(name, twin)| (name, Some(twin.policy()))),
    );
    let mut arms = Vec::new();
    for (name, place) in policies {
        observer.say(&format!("{folder}: {name} on {} questions", tasks.len()));
        let policy = match place {
            None => start_of(config)?,
            Some(place) => open_saved(&place, config)?,
        };
        let found = evaluate_checkpoint(config, &policy, &data, &tasks, observer)?;
        write_episodes(&run.greedy(&name), found.greedy.iter().cloned())?;
        arms.push((name, found));
    }
    Ok(arms)
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
