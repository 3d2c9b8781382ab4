//! `forage audit`: an experiment, before time and money are spent on it.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use forage_trainer::device::DeviceSpec;
use forage_trainer::doctor::Check;
use serde::Serialize;

use super::recipes;
use crate::config::again;
use crate::environment::EnvironmentArgs;
use crate::progress::Watch;
use crate::terminal::{counted, hint, out, word};

/// Examines an experiment before time and money are spent.
///
/// Looks at files, settings, memory and disk; at the data (repeated questions, empty answers, leaks between splits, tags in questions);
/// at the tokenizer (text that comes back, tags, the chat template); at some groups of rollouts of the policy as it is (faults, groups,
/// tokens against text, loss mask, endings, searches, range and variance of the reward); at a first update on them, which is thrown away
/// (ratio, masked tokens, gradient, sign); and at the time of the run by that of both. Exit code 1 when something fails.
///
/// Data are loaded as `forage train` loads them, into a temporary folder: an index that is not named is built there. Machines are
/// checked by `forage doctor`, judges by `forage judge audit`, files of questions alone by `forage data check`.
#[derive(Args, Debug)]
pub(crate) struct Audit {
    /// Config file, or the name of a recipe.
    config: PathBuf,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Groups of rollouts to play.
    #[arg(long, default_value_t = 8)]
    groups: usize,
    /// Compute device instead of the config's: cpu, cuda:0, ...
    #[arg(long)]
    device: Option<DeviceSpec>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Pass,
    Warn,
    Fail,
}

impl Status {
    /// A check that holds, with something to look at, is a warning.
    fn of(check: &Check) -> Self {
        match (check.holds, check.fix) {
            (true, None) => Self::Pass,
            (true, Some(_)) => Self::Warn,
            (false, _) => Self::Fail,
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// The check that says whether groups of episodes show where to go.
const DIRECTIONS: &str = "directions";

impl Audit {
    pub(crate) fn run(mut self) -> Result<()> {
        let words = format!(
            "{}{}{}",
            word(&self.config),
            again(&self.overrides),
            self.environment.again()
        );
        let json = self.json;
        let mut servers = self.environment.start(&mut self.overrides)?;
        let teaches = servers.explain(self.audit())?;
        if !json {
            hint(&if teaches {
                format!("next: forage train {words}")
            } else {
                format!("next: mend what `{DIRECTIONS}` says; forage audit {words}")
            });
        }
        Ok(())
    }

    /// Returns whether anything would be learned from the groups that were played.
    fn audit(self) -> Result<bool> {
        // Without the warnings of other commands: they are checks here.
        let config = recipes::named(&self.config, &self.overrides)?.resolve(self.device)?;
        let checks = config.audit(self.groups, &Watch::new())?;
        let count = |status: Status| {
            let found = checks
                .iter()
                .filter(|(_, check)| Status::of(check) == status);
            found.count()
        };
        let (failures, warnings) = (count(Status::Fail), count(Status::Warn));
        if self.json {
            out(&as_json(&checks, failures == 0));
        } else {
            out(&as_text(&checks));
            out(&format!(
                "{} passed, {warnings} to look at, {failures} failed",
                count(Status::Pass)
            ));
        }
        if failures > 0 {
            let checks = counted(failures, "check");
            bail!("{checks} failed; the lines above say what to do");
        }
        let is_lacking =
            |(_, check): &(_, Check)| check.name == DIRECTIONS && Status::of(check) != Status::Pass;
        Ok(!checks.iter().any(is_lacking))
    }
}

fn as_json(checks: &[(&'static str, Check)], holds: bool) -> String {
    let lines: Vec<serde_json::Value> = checks
        .iter()
        .map(|(of, check)| {
            serde_json::json!({
                "of": of,
                "name": check.name,
                "status": Status::of(check),
                "found": check.found,
                "fix": check.fix,
            })
        })
        .collect();
    serde_json::json!({"holds": holds, "checks": lines}).to_string()
}

fn as_text(checks: &[(&'static str, Check)]) -> String {
    let mut lines = Vec::new();
    let mut last = "";
    for (of, check) in checks {
        if *of != last {
            lines.push((*of).to_owned());
            last = *of;
        }
        let mark = Status::of(check).mark();
        lines.push(format!("  {mark}  {}: {}", check.name, check.found));
        if let Some(fix) = check.fix {
            lines.push(format!("        {fix}"));
        }
    }
    lines.join("\n")
}
