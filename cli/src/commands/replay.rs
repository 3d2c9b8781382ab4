//! `forage replay`: recorded episodes played again, to the same observations and rewards.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use forage_env::Difference;
use forage_lab::{Different, Replayed, replay_files};
use forage_trainer::GradientPair;

use crate::config::read;
use crate::environment::EnvironmentArgs;
use crate::progress::Watch;
use crate::terminal::{hint, out, word};

/// Plays recorded episodes again and compares them to the bit.
///
/// Plays their turns without a model and compares prompts, observations, endings, rewards and
/// every part of the scores with the recorded ones. Exit code 1 on any difference.
///
/// With --tools the retriever is the recording that --record-tools wrote beside the rollouts, and neither an index nor a server
/// is needed; programs in the sandbox replay by themselves. Pages that an environment reads whole come from the config.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// Episodes, from `eval --out`, `collect` or a run's rollouts/.
    #[arg(required = true)]
    episodes: Vec<PathBuf>,
    /// Config they were played with, RUN/config.toml for instance, or the name of a recipe.
    #[arg(long)]
    config: PathBuf,
    /// Recording of what the retriever answered; without it the config's retriever is asked.
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// The policy they were played with, whose tokens limits are counted in: a folder, builtin:NAME, a name on the hub, a script or a
    /// server, which is not asked; the config's by default.
    #[arg(long)]
    policy: Option<String>,
    /// Compare the gradients too: those of the config's update on the episodes as recorded and as played again, under the weights of
    /// the policy.
    #[arg(long)]
    gradients: bool,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Longest piece of a text that is shown, characters.
const SHOWN: usize = 160;

impl Replay {
    pub(crate) fn run(mut self) -> Result<()> {
        let mut servers = self.environment.start(&mut self.overrides)?;
        servers.explain(self.replay())
    }

    fn replay(&self) -> Result<()> {
        let config = read(&self.config, &self.overrides, None)?;
        let found = replay_files(
            &config,
            &self.episodes,
            self.tools.as_deref(),
            self.policy.as_deref(),
            self.gradients,
            &Watch::new(),
        )?;
        self.print(&found)
    }

    fn print(&self, found: &Replayed) -> Result<()> {
        if self.json {
            out(&serde_json::to_string(found)?);
        } else {
            for Different {
                file,
                line,
                task,
                differences,
            } in &found.different
            {
                out(&format!("{} line {line}, task {task}", file.display()));
                for Difference {
                    place,
                    recorded,
                    replayed,
                } in differences
                {
                    let [recorded, replayed] = parting(recorded, replayed);
                    out(&format!(
                        "  {place}\n    recorded {recorded}\n    replayed {replayed}"
                    ));
                }
            }
            let Replayed {
                episodes,
                equal,
                faults,
                different,
                gradients,
            } = found;
            out(&format!(
                "{episodes} episodes: {equal} equal, {} different, {faults} faults skipped",
                different.len()
            ));
            if let Some(gradients) = gradients {
                out(&told(gradients));
            }
        }
        held(found)?;
        if let Some(file) = self.episodes.first().filter(|_| !self.json) {
            hint(&format!("next: forage runs show {}", word(file)));
        }
        Ok(())
    }
}

/// Refuses what shows that episodes came out otherwise, or shows nothing.
fn held(found: &Replayed) -> Result<()> {
    if found.episodes == 0 {
        bail!("there is no episode to play");
    }
    if !found.different.is_empty() {
        bail!(
            "{} of {} episodes came out otherwise",
            found.different.len(),
            found.episodes
        );
    }
    if found.equal == 0 {
        bail!(
            "nothing was compared: infrastructure faults ended all of {} episodes",
            found.episodes
        );
    }
    if let Some(GradientPair {
        digests: [a, b], ..
    }) = &found.gradients
        && a != b
    {
        bail!("the episodes came out as recorded, and the gradients differ");
    }
    Ok(())
}

/// The gradients in words.
fn told(found: &GradientPair) -> String {
    let GradientPair {
        norms: [recorded, replayed],
        digests: [digest, _],
        largest_difference,
        parameter,
    } = found;
    let norms = format!("gradient norm: {recorded:.6e} recorded, {replayed:.6e} replayed");
    match parameter {
        None => format!("{norms}; equal, digest {digest}"),
        Some(parameter) => {
            format!("{norms}; largest difference {largest_difference:.3e}, in {parameter}")
        }
    }
}

/// Two texts from a little before where they part, cut to what people read.
fn parting(left: &str, right: &str) -> [String; 2] {
    let common = left
        .chars()
        .zip(right.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let start = common.saturating_sub(SHOWN / 4);
    [left, right].map(|text| {
        let piece: String = text.chars().skip(start).take(SHOWN).collect();
        let (before, after) = (start > 0, text.chars().count() > start + SHOWN);
        format!(
            "{}{piece:?}{}",
            if before { "... " } else { "" },
            if after { " ..." } else { "" }
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_that_compared_nothing_does_not_hold() {
        let held = |episodes: usize, equal: usize| {
            held(&Replayed {
                episodes,
                equal,
                faults: episodes - equal,
                different: Vec::new(),
                gradients: None,
            })
        };
        held(3, 1).unwrap();
        let words = held(3, 0).unwrap_err().to_string();
        assert!(words.contains("ended all of 3 episodes"), "{words}");
        assert!(held(0, 0).is_err());
    }
}
