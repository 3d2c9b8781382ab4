//! `forage replay`: recorded episodes played again, to the same observations and rewards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_env::environment::EnvFactory;
use forage_env::reward::RewardSet;
use forage_env::rollout::{Difference, ReplayError, read_episodes, replay};
use forage_env::tokenizer::{ByteTokenizer, Tokenizer};
use serde::Serialize;

use super::eval::{byte_limits, is_script};
use super::out;
use crate::config::RunConfig;
use crate::pipeline::runtime;
use crate::setup;

/// Plays the turns of recorded episodes again, without a model, and compares prompts, observations, endings, rewards and
/// every part of the scores with the recorded ones, to the bit. Exit code 1 on any difference.
///
/// With --tools the retriever is the tape that --record-tools wrote beside the rollouts, and neither an index nor a server is
/// needed; programs in the sandbox replay by themselves. Pages that an environment reads whole come from the config.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// Episodes, from `eval --out`, `collect` or a run's rollouts/.
    #[arg(required = true)]
    episodes: Vec<PathBuf>,
    /// Config they were played with: RUN/config.toml.
    #[arg(long)]
    config: PathBuf,
    /// Tape of what the retriever answered; without it the config's retriever is asked.
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// The policy they were played with, whose tokens limits are counted in: a folder, a name or a script; the config's by
    /// default.
    #[arg(long)]
    policy: Option<String>,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// What came of all files.
#[derive(Default, Serialize)]
struct Outcome {
    episodes: usize,
    equal: usize,
    /// Episodes that ended in a fault of ours: nothing to compare.
    faults: usize,
    different: Vec<Different>,
}

#[derive(Serialize)]
struct Different {
    file: PathBuf,
    line: usize,
    task: String,
    differences: Vec<Difference>,
}

/// Longest piece of a text that is shown, characters.
const SHOWN: usize = 160;

impl Replay {
    pub(crate) fn run(self) -> Result<()> {
        let mut config = RunConfig::read(&self.config, &self.overrides)?;
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (factory, rewards) = self.stage(&mut config, scratch.path())?;
        let mut outcome = Outcome::default();
        for file in &self.episodes {
            for (index, record) in read_episodes(file)?.enumerate() {
                let episode = record?.episode;
                outcome.episodes += 1;
                let played = runtime()?.block_on(replay(factory.as_ref(), &rewards, &episode));
                match played {
                    Ok(differences) if differences.is_empty() => outcome.equal += 1,
                    Ok(differences) => {
                        let (file, task) = (file.clone(), episode.task.id);
                        outcome.different.push(Different { file, line: index + 1, task, differences });
                    }
                    Err(ReplayError::Infra { .. }) => outcome.faults += 1,
                    Err(error) => {
                        let place = format!("{} line {}", file.display(), index + 1);
                        return Err(anyhow::Error::from(error).context(place));
                    }
                }
            }
        }
        self.tell(&outcome)
    }

    /// The environment and the rewards of the config, over the tape where there is one.
    fn stage(&self, config: &mut RunConfig, scratch: &Path) -> Result<(Arc<dyn EnvFactory>, Arc<RewardSet>)> {
        let data = match &self.tools {
            Some(tape) => setup::load_taped(config, tape, scratch)?,
            None => setup::load_data(config, scratch)?,
        };
        let name = self.policy.as_ref().unwrap_or(&config.policy.checkpoint);
        let tokenizer: Arc<dyn Tokenizer> = if is_script(name) {
            config.environment.settings = byte_limits(&config.environment.id, config.environment.settings.clone())?;
            Arc::new(ByteTokenizer)
        } else {
            Arc::new(setup::load_policy(name, config)?.tokenizer)
        };
        let factory = setup::environment(&config.environment, data.resources(tokenizer), None)?;
        Ok((factory, setup::rewards(&config.environment.id, &config.reward, config.seed)?))
    }

    fn tell(&self, outcome: &Outcome) -> Result<()> {
        if self.json {
            out(&serde_json::to_string(outcome)?);
        } else {
            for Different { file, line, task, differences } in &outcome.different {
                out(&format!("{} line {line}, task {task}", file.display()));
                for Difference { place, recorded, replayed } in differences {
                    let [recorded, replayed] = parting(recorded, replayed);
                    out(&format!("  {place}\n    recorded {recorded}\n    replayed {replayed}"));
                }
            }
            let Outcome { episodes, equal, faults, different } = outcome;
            out(&format!("{episodes} episodes: {equal} equal, {} different, {faults} faults skipped", different.len()));
        }
        if outcome.episodes == 0 {
            bail!("there is no episode to play");
        }
        if !outcome.different.is_empty() {
            bail!("{} of {} episodes came out otherwise", outcome.different.len(), outcome.episodes);
        }
        Ok(())
    }
}

/// Two texts from a little before where they part, cut to what people read.
fn parting(left: &str, right: &str) -> [String; 2] {
    let common = left.chars().zip(right.chars()).take_while(|(a, b)| a == b).count();
    let start = common.saturating_sub(SHOWN / 4);
    [left, right].map(|text| {
        let piece: String = text.chars().skip(start).take(SHOWN).collect();
        let (before, after) = (start > 0, text.chars().count() > start + SHOWN);
        format!("{}{piece:?}{}", if before { "... " } else { "" }, if after { " ..." } else { "" })
    })
}
