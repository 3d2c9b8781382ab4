//! `forage runs`: the runs of a folder, listed, shown, followed, reported on, compared and exported.

mod report;
mod show;
mod watch;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use forage_contracts::Metric;
use forage_eval::{Bootstrap, Interval};
use forage_lab::TrackedRun;
use serde_json::{Value, json};

use super::recipes::short;
use crate::figures::{columns, number, printable};
use crate::terminal::{hint, note, out};
pub(super) use report::check_replaced;

/// Lists, shows, follows, reports on, compares and exports runs.
///
/// Everything is read from the folders of the runs; a run that is damaged, unfinished or going on is listed as that. Without a command
/// the runs in the folder `runs` are listed, and without a RUN the newest of them is shown, followed or reported on. `forage serve run`
/// serves the report, live, to a browser.
#[derive(Args, Debug)]
pub(crate) struct Runs {
    #[command(subcommand)]
    command: Option<Command>,
}

/// The folder in which runs are, unless others are named.
const FOLDER: &str = "runs";

#[derive(Subcommand, Debug)]
enum Command {
    /// Lists the runs in a folder.
    ///
    /// A line for each: state, steps, last and best validation with a 95 % interval where the number of questions is known, episodes,
    /// time, alarms, seed, recipe, version, and the beginning of the config's digest. The runs of a quickstart and the twins of a run
    /// have lines of their own.
    List {
        /// Folder with runs, in it or in folders of it.
        #[arg(default_value = FOLDER)]
        folder: PathBuf,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    Show(show::Show),
    Watch(watch::Watch),
    Report(report::Report),
    /// Compares two or more: settings, figures, evaluations.
    ///
    /// Prints the settings in which their configs differ and their figures side by side. Where two folders hold evaluations of the same name
    /// on the same questions (`evaluation/NAME.jsonl`), it prints their paired difference with its interval, the first run against each other one.
    Compare {
        /// Run folders, the first to compare the others with.
        #[arg(required = true, num_args = 2..)]
        runs: Vec<PathBuf>,
        /// Seed of the bootstrap.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Writes every metric of every step as CSV.
    ///
    /// The columns are run, metric, step and value. Damaged runs are named and left out.
    Export {
        /// Run folders, or folders with runs.
        #[arg(default_value = FOLDER)]
        folders: Vec<PathBuf>,
        /// File to write, instead of printing.
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

impl Runs {
    pub(crate) fn run(self) -> Result<()> {
        let all = Command::List {
            folder: FOLDER.into(),
            json: false,
        };
        match self.command.unwrap_or(all) {
            Command::List { folder, json } => list(&folder, json),
            Command::Show(command) => command.run(),
            Command::Watch(command) => command.run(),
            Command::Report(command) => command.run(),
            Command::Compare { runs, seed, json } => compare(&runs, Bootstrap::new(seed), json),
            Command::Export { folders, out } => export(&folders, out.as_deref()),
        }
    }
}

/// The run that is looked at where none is named: the newest in the folder `runs`. Says which it is.
pub(super) fn newest_run() -> Result<PathBuf> {
    let folder = Path::new(FOLDER);
    let newest = if folder.is_dir() {
        TrackedRun::newest(folder)?
    } else {
        None
    };
    let Some(run) = newest else {
        bail!(
            "no RUN is named, and the folder `{FOLDER}` here holds none; name the folder of a run, or make one: forage quickstart"
        );
    };
    hint(&format!("the newest run: {}", run.display()));
    Ok(run)
}

fn list(folder: &Path, json: bool) -> Result<()> {
    let runs = TrackedRun::all(folder)?;
    if json {
        out(&json!({ "runs": runs }).to_string());
        return Ok(());
    }
    if runs.is_empty() {
        out(&format!("{} holds no run", folder.display()));
        return Ok(());
    }
    let mut rows = vec![vec!["run".to_owned()]];
    rows[0].extend(FIGURES.map(|(name, _)| name.to_owned()));
    rows.extend(runs.iter().map(|run| {
        let cells = FIGURES.map(|(_, figure)| figure(run).unwrap_or_else(|| "-".to_owned()));
        std::iter::once(run.name()).chain(cells).collect()
    }));
    out(&printable(&(columns(&rows) + &faults(&runs))));
    hint("next: forage runs show RUN; forage runs report RUN...; forage runs compare RUN RUN");
    Ok(())
}

/// The figures of a run with their names, `None` where it has none.
type Figure = fn(&TrackedRun) -> Option<String>;
const FIGURES: [(&str, Figure); 11] = [
    ("state", |run| Some(run.state.to_owned())),
    ("steps", |run| {
        let of = run.steps_planned.map(|planned| format!("/{planned}"));
        let others = run.taken_over().map(|others| format!(", {others}"));
        let [of, others] = [of, others].map(Option::unwrap_or_default);
        Some(format!("{}{of}{others}", run.steps))
    }),
    ("validation", |run| run.validation.map(str::to_owned)),
    ("last", |run| Some(interval(run.last()?.1))),
    ("best (step)", |run| {
        let (step, found) = run.best()?;
        Some(format!("{} ({step})", interval(found)))
    }),
    ("episodes", |run| Some(run.episodes?.to_string())),
    ("time", TrackedRun::time),
    ("alarms", |run| {
        let counts = run
            .alarms
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"));
        let counts: Vec<String> = counts.collect();
        (!counts.is_empty()).then(|| counts.join(", "))
    }),
    ("seed", |run| Some(run.seed?.to_string())),
    ("recipe, version", |run| {
        let recipe = run.recipe.as_deref().unwrap_or("-");
        Some(format!("{recipe}, {}", run.version.as_deref()?))
    }),
    ("config", |run| {
        let digest = run.config_digest.as_ref()?;
        Some(digest.chars().take(8).collect())
    }),
];

/// `0.412 [0.330, 0.500]`; without ends where they are the estimate.
fn interval(found: Interval) -> String {
    let estimate = number(found.estimate);
    if found.high > found.low {
        let [low, high] = found.ends().map(number);
        format!("{estimate} [{low}, {high}]")
    } else {
        estimate
    }
}

/// The folder of a run as it is written, or as `list` names the part of one: `RUN: trained`.
fn place(written: &Path) -> PathBuf {
    let named = || {
        let (whole, part) = written.to_str()?.rsplit_once(": ")?;
        let whole = Path::new(whole);
        let places = [whole.join(part), whole.join("twins").join(part)];
        places.into_iter().find(|place| place.is_dir())
    };
    if written.is_dir() {
        return written.to_owned();
    }
    named().unwrap_or_else(|| written.to_owned())
}

/// The runs of these folders, each of which is one, holds its parts or is a part.
fn opened(folders: &[PathBuf]) -> Result<Vec<TrackedRun>> {
    if let Some(missing) = folders.iter().find(|folder| !folder.is_dir()) {
        bail!(
            "there is no folder {}; give the folder of a run (`forage runs list` lists them)",
            missing.display()
        );
    }
    Ok(TrackedRun::named(folders)?)
}

/// Faults of the damaged runs, one line each; empty when there are none.
fn faults(runs: &[TrackedRun]) -> String {
    let of = |run: &TrackedRun| {
        Some(format!(
            "\n{} is damaged: {}",
            run.name(),
            run.fault.as_ref()?
        ))
    };
    runs.iter().filter_map(of).collect()
}

/// The newest training reward of runs that were not all validated, one line each; empty where it is told by their validations or there is
/// none.
fn rewards(runs: &[TrackedRun]) -> Result<String> {
    let mut text = String::new();
    if runs.iter().all(|run| run.validation.is_some()) {
        return Ok(text);
    }
    for run in runs.iter().filter(|run| run.fault.is_none()) {
        let mut values = run.values()?.into_iter();
        if let Some((step, _, reward)) = values.rfind(|(_, metric, _)| metric == Metric::REWARD) {
            let (name, reward) = (run.name(), number(reward));
            let _ = write!(text, "\n{name}: training reward {reward} at step {step}");
        }
    }
    Ok(text)
}

/// A row per figure that is not left out, a column per run.
fn side_by_side(runs: &[TrackedRun], left_out: &[&str]) -> String {
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(runs.iter().map(TrackedRun::name));
    let kept = FIGURES
        .into_iter()
        .filter(|(name, _)| !left_out.contains(name));
    rows.extend(kept.map(|(name, figure)| {
        let cells = runs
            .iter()
            .map(|run| figure(run).unwrap_or_else(|| "-".to_owned()));
        std::iter::once(name.to_owned()).chain(cells).collect()
    }));
    columns(&rows)
}

fn compare(folders: &[PathBuf], bootstrap: Bootstrap, json: bool) -> Result<()> {
    let folders: Vec<PathBuf> = folders.iter().map(|folder| place(folder)).collect();
    let runs = opened(&folders)?;
    let differences = TrackedRun::differences(&runs);
    let (first, others) = folders.split_first().context("clap asks for two")?;
    let mut paired = Vec::new();
    let is_damaged = |folder: &Path| {
        let of = |run: &&TrackedRun| run.path == folder;
        runs.iter().find(of).is_some_and(|run| run.fault.is_some())
    };
    let whole = others
        .iter()
        .filter(|other| !is_damaged(other.as_path()) && !is_damaged(first.as_path()));
    for other in whole {
        for (name, found) in TrackedRun::paired(first, other, bootstrap)? {
            paired.push((other, name, found));
        }
    }
    if json {
        let paired = paired.iter().map(|(other, name, found)| match found {
            Ok(found) => json!({"a": first, "b": other, "evaluation": name, "comparison": found}),
            Err(error) => {
                json!({"a": first, "b": other, "evaluation": name, "error": error.to_string()})
            }
        });
        let paired: Vec<Value> = paired.collect();
        let all = json!({"runs": runs, "differences": differences, "paired": paired});
        out(&all.to_string());
        return Ok(());
    }
    let mut text = side_by_side(&runs, &[]) + &rewards(&runs)? + &faults(&runs);
    if differences.is_empty() {
        // A damaged run is not asked, and a folder may have no config.
        let is_known = |run: &&TrackedRun| run.fault.is_none() && run.config_digest.is_some();
        let known = runs.iter().filter(is_known).count();
        text += "\n\n";
        text += if known == runs.len() {
            "Their settings are the same."
        } else if known > 1 {
            "Their settings are the same as far as they are known."
        } else {
            "There are no two of which the settings are known."
        };
    } else {
        let mut rows = vec![vec!["setting".to_owned()]];
        rows[0].extend(runs.iter().map(TrackedRun::name));
        rows.extend(differences.iter().map(|(key, values)| {
            let cells = values
                .iter()
                .map(|value| value.map_or("-".to_owned(), |value| short(value.to_string())));
            std::iter::once((*key).to_owned()).chain(cells).collect()
        }));
        let _ = write!(text, "\n\n{}", columns(&rows));
    }
    for (other, name, found) in &paired {
        let [a, b] = [first, other].map(|path| path.display().to_string());
        let told = match found {
            Ok(found) => found.outcome(&a, &b),
            Err(error) => format!("{a} and {b} cannot be compared: {error}."),
        };
        let _ = write!(text, "\n\n{name}: {told}");
    }
    out(&printable(&text));
    Ok(())
}

fn export(folders: &[PathBuf], file: Option<&Path>) -> Result<()> {
    let mut text = "run,metric,step,value\n".to_owned();
    for folder in folders {
        for run in TrackedRun::all(folder)? {
            if let Some(fault) = &run.fault {
                note(&printable(&format!("{} is left out: {fault}", run.name())));
            }
            let name = field(&run.name());
            for (step, metric, value) in run.values()? {
                let _ = writeln!(text, "{name},{},{step},{value}", field(&metric));
            }
        }
    }
    let Some(file) = file else {
        out(text.trim_end());
        return Ok(());
    };
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    out(&file.display().to_string());
    Ok(())
}

/// A field of CSV (RFC 4180), in quotes where it needs them.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_under_the_name_that_the_list_gives_it() {
        let folder = tempfile::tempdir().unwrap();
        let [part, twin] = ["trained", "twins/random"].map(|name| folder.path().join(name));
        for made in [&part, &twin] {
            std::fs::create_dir_all(made).unwrap();
        }
        let named = |part: &str| place(Path::new(&format!("{}: {part}", folder.path().display())));
        assert_eq!(named("trained"), part);
        assert_eq!(named("random"), twin);
        assert_eq!(place(&part), part);
        assert!(named("control").to_string_lossy().ends_with(": control"));
    }
}
