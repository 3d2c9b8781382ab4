//! Recorded episodes played again, to the same observations and rewards.

use std::path::{Path, PathBuf};

use forage_env::{Difference, EpisodeRecord, ReplayError, replay};
use forage_trainer::Precision;
use serde::Serialize;

use crate::config::Resolved;
use crate::data::Data;
use crate::error::{Context, Result};
use crate::evaluate::is_script;
use crate::observer::Observer;
use crate::policy::{PolicyFormat, is_server, open_policy};
use crate::runtime::runtime;
use crate::session::Session;

/// The outcome of playing files of episodes again.
#[derive(Debug, Default, Serialize)]
pub struct Replayed {
    /// Episodes in the files.
    pub episodes: usize,
    /// Episodes that came out as recorded.
    pub equal: usize,
    /// Episodes that ended in an infrastructure fault: there is nothing to compare.
    pub faults: usize,
    /// Episodes that came out otherwise.
    pub different: Vec<Different>,
}

/// An episode that came out otherwise.
#[derive(Debug, Serialize)]
pub struct Different {
    /// Its file.
    pub file: PathBuf,
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its question: the data set and the id there.
    pub task: String,
    /// All that differs.
    pub differences: Vec<Difference>,
}

/// Plays the turns of recorded episodes again, without a model, and compares. `tools` is a tape that stands for the retriever;
/// `policy` the one they were played with, the config's by default; a server is not asked. Blocks; not to be called from async code.
///
/// # Errors
/// When a file cannot be read, or the environment cannot be made.
pub fn replay_files(
    config: &Resolved,
    files: &[PathBuf],
    tools: Option<&Path>,
    policy: Option<&str>,
    observer: &dyn Observer,
) -> Result<Replayed> {
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = match tools {
        Some(tape) => Data::taped(config, tape, scratch.path())?,
        None => Data::load(config, scratch.path())?,
    };
    let name = policy.unwrap_or(&config.policy.checkpoint);
    let (environment, format) = if is_script(name) {
        (config.environment.for_bytes()?, PolicyFormat::bytes())
    } else if is_server(name) {
        (config.environment.clone(), PolicyFormat::text(None))
    } else {
        let tokenizer = open_policy(name, Precision::Full, &config.device)?.tokenizer;
        let format = PolicyFormat::raw(std::sync::Arc::new(tokenizer));
        (config.environment.clone(), format)
    };
    let rewards = config.rewards()?;
    let session = Session::new(&environment, rewards, &data.corpus, format, observer)?;
    let mut found = Replayed::default();
    for file in files {
        for (index, record) in EpisodeRecord::read_all(file)?.enumerate() {
            let episode = record?.episode;
            found.episodes += 1;
            let played = replay(session.factory.as_ref(), &session.rewards, &episode);
            match runtime()?.block_on(played) {
                Ok(differences) if differences.is_empty() => found.equal += 1,
                Ok(differences) => found.different.push(Different {
                    file: file.clone(),
                    line: index + 1,
                    task: episode.task.name(),
                    differences,
                }),
                Err(ReplayError::Infra { .. }) => found.faults += 1,
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("{} line {}", file.display(), index + 1));
                }
            }
        }
    }
    Ok(found)
}
