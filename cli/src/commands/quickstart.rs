//! `forage quickstart`: from a generated world to a verdict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use forage_env::registry;
use forage_eval::EvalSummary;
use forage_lab::{
    EnvironmentConfig, QuickstartOptions, Resolved, RunConfig, RunLayout, quickstart,
};
use serde::Serialize;
use serde_json::Value;

use crate::config::read;
use crate::figures::printable;
use crate::progress::{Watch, continued};
use crate::terminal::{hint, out, word};

/// Goes from a generated world to a verdict in minutes.
///
/// Builds a world and its index, takes the warm-started tiny policy, trains it with GRPO, trains a control that is paid for any search
/// from the same start, evaluates all three on held-out questions, and writes verdict.json and report.html. In search-r1 it takes 5 to 7
/// minutes on two cores, and in code-search training takes half as long again; with --config smoke it takes seconds, without a verdict
/// worth reading.
#[derive(Args, Debug)]
pub(crate) struct Quickstart {
    /// Run folder: created; must be empty or absent unless --resume is given. By default runs/quickstart, and runs/quickstart-NAME in
    /// another environment or by another config.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Seed of the rollouts and the statistics, and of the world of the built-in config.
    #[arg(long)]
    seed: Option<u32>,
    /// Environment to learn in: search-r1 (the config `quickstart`), code-search (`quickstart-code`) or query-writer.
    #[arg(long, default_value_t = EnvironmentConfig::default().id, conflicts_with = "config")]
    env: String,
    /// Config to start from instead of the environment's: a file, or a name such as smoke, which takes seconds.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Train the starting policy here instead of taking the built-in one.
    #[arg(long)]
    from_scratch: bool,
    /// Continue an interrupted quickstart in the same folder.
    #[arg(long)]
    resume: bool,
    /// Print verdict and evaluations as JSON.
    #[arg(long)]
    json: bool,
}

/// The findings that are printed as JSON.
#[derive(Serialize)]
struct Found {
    verdict: Value,
    evaluations: BTreeMap<&'static str, EvalSummary>,
}

impl Quickstart {
    pub(crate) fn run(self) -> Result<()> {
        let config = self.config()?;
        let folder = self.folder()?;
        let layout = RunLayout::new(&folder);
        let options = QuickstartOptions {
            folder,
            from_scratch: self.from_scratch,
            resume: self.resume,
        };
        let ran = quickstart(&config, &options, &Watch::stoppable()?);
        let (verdict, summaries) = ran.map_err(continued)?;
        if self.json {
            let found = Found {
                evaluations: summaries.into_iter().collect(),
                verdict: verdict.json(),
            };
            out(&serde_json::to_string(&found)?);
        } else {
            let named = summaries.iter().map(|(name, summary)| (*name, summary));
            let named: Vec<(&str, &EvalSummary)> = named.collect();
            out(&format!("greedy\n{}", EvalSummary::beside(&named)));
            for alarm in &verdict.alarms {
                out(&printable(&alarm.to_text()));
            }
            for sentence in verdict.words() {
                out(&sentence);
            }
            out(&format!(
                "{}  {}",
                layout.verdict().display(),
                layout.page().display()
            ));
        }
        hint(&format!(
            "next: open {} in a browser; forage runs show {}",
            word(&layout.page()),
            word(&options.folder)
        ));
        Ok(())
    }

    /// The folder of the run.
    fn folder(&self) -> Result<PathBuf> {
        if let Some(folder) = &self.out {
            return Ok(folder.clone());
        }
        let name = if let Some(path) = &self.config {
            let name = path.file_stem().context("the config has no file name")?;
            name.to_string_lossy().into_owned()
        } else {
            let [_, _, short] = registry::find(&self.env)?.names();
            let is_default = short == EnvironmentConfig::default().id;
            let name = if is_default { "quickstart" } else { short };
            name.to_owned()
        };
        let folder = Path::new("runs");
        Ok(match &*name {
            "quickstart" => folder.join("quickstart"),
            other => folder.join(format!("quickstart-{other}")),
        })
    }

    fn config(&self) -> Result<Resolved> {
        let mut overrides = self.overrides.clone();
        if let Some(seed) = self.seed {
            // The world is drawn anew too, from a number of its own so that it differs from the warm start's.
            overrides.push(format!("seed={seed}"));
            if self.config.is_none() {
                overrides.push(format!("data.world.seed={}", 1_000_000 + u64::from(seed)));
            }
        }
        Ok(match &self.config {
            Some(path) => read(path, &overrides, None)?,
            None => RunConfig::quickstart(&self.env, &overrides)?.resolve(None)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        quickstart: Quickstart,
    }

    #[test]
    fn each_quickstart_has_a_folder_of_its_own() {
        for (words, folder) in [
            ("x", "runs/quickstart"),
            ("x --env search-r1", "runs/quickstart"),
            ("x --env query-writer", "runs/quickstart-query-writer"),
            (
                "x --env forage/code-search-v0",
                "runs/quickstart-code-search",
            ),
            ("x --config smoke", "runs/quickstart-smoke"),
            ("x --config a/b.toml", "runs/quickstart-b"),
            ("x --config search-r1.toml", "runs/quickstart-search-r1"),
            ("x --env query-writer --out here", "here"),
        ] {
            let line = Line::parse_from(words.split(' '));
            assert_eq!(
                line.quickstart.folder().unwrap(),
                Path::new(folder),
                "{words}"
            );
        }
    }
}
