//! `forage eval --controls`: what is left of a run's gain beside its spurious twins, over one seed or several.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use forage_env::episode::Episode;
use forage_eval::stats::Bootstrap;
use forage_eval::study::{SeedEpisodes, Study};

use super::{note, out};
use crate::config::RunConfig;
use crate::pipeline::{Evaluated, evaluate, write_episodes};
use crate::run_folder::EVALUATION;
use crate::setup;
use crate::twins;

/// Evaluates start, trained policy and twins of each run on its held-out questions, and says whether the gain is real. The
/// greedy episodes of each are kept in RUN/evaluation.
pub(super) fn verdict(runs: &[PathBuf], limit: Option<usize>, json: bool) -> Result<()> {
    let (mut greedy, mut sampled) = (Vec::new(), Vec::new());
    let mut bootstrap = None;
    for run in runs {
        let config = RunConfig::read(&run.join("config.toml"), &[])
            .with_context(|| format!("{} is not a folder of `forage train`", run.display()))?;
        bootstrap.get_or_insert(Bootstrap { resamples: config.evaluation.resamples, ..Bootstrap::new(config.seed) });
        let arms = evaluated(run, &config, limit)?;
        let of = |pick: fn(&Evaluated) -> &Vec<Episode>| {
            let mut arms = arms.iter().map(|(name, found)| (name.clone(), pick(found).clone()));
            let start = arms.next().map(|(_, episodes)| episodes).unwrap_or_default();
            SeedEpisodes { seed: config.seed, start, arms: arms.collect() }
        };
        greedy.push(of(|found| &found.greedy));
        sampled.push(of(|found| &found.sampled));
    }
    let bootstrap = bootstrap.context("name a run folder")?;
    let study = Study::of(&greedy, bootstrap)?;
    let has_samples = sampled.iter().all(|seed| !seed.start.is_empty());
    let samples = has_samples.then(|| Study::of(&sampled, bootstrap)).transpose()?;
    if json {
        out(&serde_json::json!({"greedy": study, "sampled": samples, "holds": study.holds()}).to_string());
        return Ok(());
    }
    out(&format!("greedy\n{}", study.to_text()));
    if let Some(samples) = samples {
        out(&format!("sampled\n{}", samples.to_text()));
    }
    study.words().iter().for_each(|sentence| out(sentence));
    Ok(())
}

/// Start, trained policy and twins of a run on its held-out questions.
fn evaluated(run: &Path, config: &RunConfig, limit: Option<usize>) -> Result<Vec<(String, Evaluated)>> {
    if !run.join("policy").exists() {
        bail!("{} has not come to its end; `forage train --resume` ends it", run.display());
    }
    let twins = finished_twins(run)?;
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = setup::load_data(config, scratch.path())?;
    let tasks = data.test.iter().take(limit.unwrap_or(usize::MAX)).cloned().collect();
    if data.test.is_empty() {
        bail!("{}: there are no held-out questions; a verdict needs data.test_questions above 0", run.display());
    }
    let place = run.join(EVALUATION);
    std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let mut policies = vec![("start".to_owned(), None), ("trained".to_owned(), Some(run.join("policy")))];
    policies.extend(twins.into_iter().map(|(name, folder)| (name, Some(folder.join("policy")))));
    let mut arms = Vec::new();
    for (name, folder) in policies {
        note(&format!("{}: {name} on {} questions", run.display(), data.test.len().min(limit.unwrap_or(usize::MAX))));
        let policy = match folder {
            None => setup::checkpoint(config)?,
            Some(folder) => setup::load_policy(&folder.to_string_lossy(), config)?,
        };
        let found = evaluate(&policy, config, &data, &tasks, config.threads())?;
        write_episodes(&place.join(format!("{name}.jsonl")), found.greedy.iter().cloned())?;
        arms.push((name, found));
    }
    Ok(arms)
}

/// The twins of a run, all of which have come to their ends.
fn finished_twins(run: &Path) -> Result<Vec<(String, PathBuf)>> {
    let found = twins::folders(run);
    if let Some((name, _)) = found.iter().find(|(_, folder)| !folder.join("policy").exists()) {
        bail!(
            "twin {name} of {} has not come to its end; `forage train --resume` with the same --twins ends it",
            run.display()
        );
    }
    Ok(found)
}
