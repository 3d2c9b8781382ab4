//! Recorded episodes played again, to the same observations and rewards.

use std::path::{Path, PathBuf};

use forage_contracts::Episode;
use forage_env::{Difference, EpisodeRecord, ReplayError, replay};
use forage_trainer::{GradientPair, Learner, Sample, UpdateConfig, Workers};
use serde::Serialize;

use crate::config::Resolved;
use crate::data::Data;
use crate::error::{Context, Result, RunError, bail};
use crate::evaluate::is_script;
use crate::observer::Observer;
use crate::policy::{PolicyFormat, is_server, needs_weights, start_of};
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
    /// The gradients of the episodes as recorded and as played again, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradients: Option<GradientPair>,
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
/// `policy` the one they were played with, the config's by default; a server is not asked. With `gradients` the update of the config on
/// both is compared too, under the weights of that policy. Blocks, so async code must not call it.
///
/// # Errors
/// When a file cannot be read, the environment cannot be made, or gradients are asked for of episodes or a policy that give none.
pub fn replay_files(
    config: &Resolved,
    files: &[PathBuf],
    tools: Option<&Path>,
    policy: Option<&str>,
    gradients: bool,
    observer: &dyn Observer,
) -> Result<Replayed> {
    let name = policy.unwrap_or(&config.policy.checkpoint);
    if gradients {
        needs_weights(name)?;
        if is_script(name) {
            return Err(RunError::config_because(
                format!("--gradients: policy {name} is a script"),
                "name the folder of the policy that played, with --policy",
            ));
        }
    }
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = match tools {
        Some(tape) => Data::taped(config, tape, scratch.path())?,
        None => Data::load(config, scratch.path())?,
    };
    let (environment, format) = if is_script(name) {
        (config.environment.for_bytes()?, PolicyFormat::bytes())
    } else if is_server(name) {
        (config.environment.clone(), PolicyFormat::text(None))
    } else {
        // Limits are counted in its tokens; its weights are not asked.
        let PolicyFormat { tokenizer, .. } = PolicyFormat::without_weights(name, None, usize::MAX)?;
        (config.environment.clone(), PolicyFormat::raw(tokenizer))
    };
    let rewards = config.rewards()?;
    let session = Session::new(&environment, rewards, &data.corpus, format, observer)?;
    let mut found = Replayed::default();
    let mut batches = Batches::default();
    for (number, file) in files.iter().enumerate() {
        for (index, record) in EpisodeRecord::read_all(file)?.enumerate() {
            let episode = record?.episode;
            found.episodes += 1;
            let played = replay(session.factory.as_ref(), &session.rewards, &episode);
            match runtime()?.block_on(played) {
                Ok((again, differences)) => {
                    if gradients {
                        batches.add(number, [&episode, &again]);
                    }
                    if differences.is_empty() {
                        found.equal += 1;
                    } else {
                        found.different.push(Different {
                            file: file.clone(),
                            line: index + 1,
                            task: episode.task.name(),
                            differences,
                        });
                    }
                }
                Err(ReplayError::Infra { .. }) => found.faults += 1,
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("{} line {}", file.display(), index + 1));
                }
            }
        }
    }
    if gradients {
        found.gradients = Some(batches.compare(config, name)?);
    }
    Ok(found)
}

/// The groups of episodes as recorded and as played again.
#[derive(Default)]
struct Batches {
    /// File, number and question of each group, in the order they begin.
    groups: Vec<(usize, u64, String)>,
    sides: [Vec<Vec<Sample>>; 2],
    /// Episodes whose token ids nobody knows.
    without_ids: usize,
}

impl Batches {
    fn add(&mut self, file: usize, sides: [&Episode; 2]) {
        let group = (file, sides[0].group, sides[0].task.name());
        let place = self.groups.iter().position(|known| *known == group);
        let place = place.unwrap_or_else(|| {
            self.groups.push(group);
            for side in &mut self.sides {
                side.push(Vec::new());
            }
            self.groups.len() - 1
        });
        self.without_ids += usize::from(!sides[0].tokens.has_ids());
        for (side, episode) in self.sides.iter_mut().zip(sides) {
            side[place].extend(Sample::of(episode));
        }
    }

    /// Compares what an update of the config would do on both sides, under the weights of a policy.
    fn compare(self, config: &Resolved, policy: &str) -> Result<GradientPair> {
        let [recorded, _] = &self.sides;
        if self.without_ids > 0 {
            bail!(
                "--gradients: {} episodes have no token ids: a server that tells text alone played them",
                self.without_ids
            );
        }
        if recorded.iter().all(|group| group.len() < 2) {
            bail!(
                "--gradients: no question has two episodes to compare; give rollouts of a run (RUN/rollouts), or of eval --samples"
            );
        }
        let config = config.vary(|config| policy.clone_into(&mut config.policy.checkpoint))?;
        let start = start_of(&config)?;
        let window = config.generation().window(&start.config);
        let samples = || recorded.iter().flatten();
        let longest = samples().map(|sample| sample.sequence.ids.len()).max();
        if let Some(longest) = longest.filter(|longest| *longest > window) {
            return Err(RunError::config_because(
                format!(
                    "--gradients: an episode has {longest} tokens, the policy's window {window}"
                ),
                "raise engine.context_tokens with --set",
            ));
        }
        let vocabulary = start.config.vocab_size;
        let foreign = |sample: &Sample| {
            let mut ids = sample.sequence.ids.iter();
            ids.any(|&id| id as usize >= vocabulary)
        };
        if samples().any(foreign) {
            bail!(
                "--gradients: the episodes hold tokens that policy {policy} does not know; name the one that played them with --policy"
            );
        }
        let update = UpdateConfig {
            minibatches: 1,
            ..config.grpo.update.clone()
        };
        let workers = Workers::for_model(config.threads(), &start.config, &start.decoder.device());
        let engine = config.generation().engine(&start.config);
        let mut learner = Learner::new(start, update, engine, workers);
        let compared = learner.compare_gradients(self.sides);
        compared.context("the gradients cannot be computed")
    }
}
