//! `forage runs show`: a run on the terminal.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use forage_contracts::environment::Outcome;
use forage_contracts::{Ending, Episode, Provenance};
use forage_eval::{Origin, Trajectory};
use forage_lab::{Records, RunFolder, TrackedRun};
use serde_json::{Map, Value, json};

use super::{newest_run, place, side_by_side};
use crate::figures::{Figure, number, printable, sparkline};
use crate::terminal::{hint, out, word};

/// Shows a run in the terminal.
///
/// Prints how far it is, its newest metrics with their trend, validations, episodes, time, seed, recipe, version and the beginning of the
/// config's digest, verdict, alarms and some trajectories.
#[derive(Args, Debug)]
pub(crate) struct Show {
    /// Run folder of `forage train`, `sft` or `quickstart`, or a file of episodes; the newest run in `runs` by default.
    run: Option<PathBuf>,
    /// Only trajectories of this training step.
    #[arg(long)]
    step: Option<u64>,
    /// Only trajectories of this question: its id, as in `train_0` or `nq/train_0`, or in an evaluation its number, as printed.
    #[arg(long, value_name = "NUMBER|ID")]
    question: Option<String>,
    /// Only trajectories whose answer is not an exact match, or whose ranking has an NDCG@10 below 1.
    #[arg(long)]
    wrong: bool,
    /// Only trajectories that ended so.
    #[arg(long, value_enum)]
    ending: Option<Kind>,
    /// Most trajectories: evaluations first, then those of the newest steps.
    #[arg(short, default_value_t = 2)]
    n: usize,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Answered,
    Truncated,
    Malformed,
    Infra,
}

impl Kind {
    fn of(ending: &Ending) -> Self {
        match ending {
            Ending::Answered => Self::Answered,
            Ending::Truncated { .. } => Self::Truncated,
            Ending::Malformed { .. } => Self::Malformed,
            Ending::Infra { .. } => Self::Infra,
        }
    }
}

/// The trajectories that are shown.
struct Chosen {
    /// Notes on the files they are from.
    notes: Vec<String>,
    /// At most as many as were asked for.
    trajectories: Vec<Trajectory>,
    /// True where the files that were read hold more trajectories that the filters choose.
    more: bool,
}

/// Characters a metric's course is drawn in.
const COURSE: usize = 32;
/// Figures that status and alarms say in full.
const SAID: [&str; 2] = ["steps", "alarms"];

impl Show {
    pub(super) fn run(self) -> Result<()> {
        let path = place(&self.run.clone().map_or_else(newest_run, Ok)?);
        let run = RunFolder::peek(&path)?;
        // A file of episodes has no settings.
        let tracked = if path.is_file() {
            Vec::new()
        } else {
            TrackedRun::named(std::slice::from_ref(&path))?
        };
        if self.json {
            out(&self.as_json(&path, &run, &tracked)?.to_string());
            return Ok(());
        }
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        if let Some(sentence) = run.waits() {
            out(&sentence);
        }
        for records in &run.records {
            out(&records.status());
            let metrics = metrics(records);
            if !metrics.is_empty() {
                out(&format!("\n{metrics}"));
            }
        }
        if let Some(first) = tracked.first() {
            out(&printable(&side_by_side(&tracked, &SAID)));
            if !first.evaluations.is_empty() {
                let evaluations = first.evaluations.join("; ");
                out(&printable(&format!("evaluations: {evaluations}")));
            }
        }
        if let Some(verdict) = &run.verdict {
            out(&format!("\n{}", verdict.words().join("\n")));
        }
        for records in &run.records {
            for alarm in &records.alarms {
                out(&format!(
                    "\n{} step {}: {}: {}\n  {}",
                    records.name,
                    alarm.step.unwrap_or_default(),
                    alarm.severity.name(),
                    printable(&alarm.kind),
                    printable(&alarm.message)
                ));
            }
            for alarm in records.course.iter().flat_map(|course| &course.alarms) {
                out(&format!(
                    "\n{}: {}",
                    records.name,
                    printable(alarm.to_text().trim_end())
                ));
            }
        }
        let more = if self.trajectories(&path, &run, colours)? {
            format!("; -n {} shows more of these trajectories", 10 * self.n)
        } else {
            String::new()
        };
        hint(&format!("next: forage runs report {}{more}", word(&path)));
        Ok(())
    }

    /// Prints the trajectories that are asked for, and tells whether there are more.
    fn trajectories(&self, path: &Path, run: &RunFolder, colours: bool) -> Result<bool> {
        let Chosen {
            notes,
            trajectories: chosen,
            more,
        } = self.chosen(path, run)?;
        for note in &notes {
            out(note);
        }
        for trajectory in &chosen {
            out(&format!("\n{}", describe(trajectory, colours)));
        }
        if chosen.is_empty() && self.n > 0 {
            out(&format!("\n{}", self.nothing(run)));
        }
        Ok(more)
    }

    /// Says that nothing is of the kind asked for, and of a step that is not recorded which ones around it are.
    fn nothing(&self, run: &RunFolder) -> String {
        let steps = run.sources().into_iter();
        let steps: BTreeSet<u64> = steps.filter_map(|source| source.origin.step).collect();
        let unrecorded = self.step.filter(|step| !steps.contains(step));
        let Some(step) = unrecorded.filter(|_| !steps.is_empty()) else {
            return "No recorded trajectory is of this kind.".to_owned();
        };
        let [before, after] = [steps.range(..step).next_back(), steps.range(step..).next()];
        let around: Vec<String> = before
            .into_iter()
            .chain(after)
            .map(u64::to_string)
            .collect();
        format!(
            "No trajectory of step {step} is recorded. Steps are counted from 0; the nearest recorded: {}.",
            around.join(" and ")
        )
    }

    /// The trajectories that are asked for, with notes on their files.
    fn chosen(&self, path: &Path, run: &RunFolder) -> Result<Chosen> {
        let (mut notes, mut chosen, mut more) = (Vec::new(), Vec::new(), false);
        let mut is_known = self.question.is_none();
        for source in run.sources() {
            if chosen.len() >= self.n {
                break;
            }
            if self
                .step
                .is_some_and(|step| source.origin.step != Some(step))
            {
                continue;
            }
            let reading = source.read()?;
            notes.extend(reading.note);
            let asked = self.asked(&source.origin, &reading.episodes);
            is_known |= !asked.is_empty();
            let mut found = asked
                .into_iter()
                .map(|episode| run.trajectory(source.origin.clone(), episode))
                .filter(|found| self.wants(found));
            let left = self.n - chosen.len();
            chosen.extend(found.by_ref().take(left));
            more |= found.next().is_some();
        }
        if let Some(id) = self.question.as_ref().filter(|_| !is_known && self.n > 0) {
            bail!(
                "{} holds no trajectory of a question `{id}`",
                path.display()
            );
        }
        Ok(Chosen {
            notes,
            trajectories: chosen,
            more,
        })
    }

    fn as_json(&self, path: &Path, run: &RunFolder, tracked: &[TrackedRun]) -> Result<Value> {
        let Chosen {
            notes,
            trajectories: chosen,
            ..
        } = self.chosen(path, run)?;
        let runs = tracked.iter().map(|tracked| known(tracked, run));
        let runs: Vec<Value> = runs.collect::<Result<_>>()?;
        let trajectories: Vec<Value> = chosen.iter().map(texts).collect();
        Ok(json!({
            "runs": runs,
            "verdict": run.verdict.as_ref().map(forage_eval::Verdict::json),
            "notes": notes,
            "trajectories": trajectories,
        }))
    }

    /// The episodes of the question that is asked for, by its id or its whole name, else by its number where questions have one; all of
    /// them where none is asked for.
    fn asked<'a>(&self, origin: &Origin, episodes: &'a [Episode]) -> Vec<&'a Episode> {
        let Some(question) = &self.question else {
            return episodes.iter().collect();
        };
        let named =
            |episode: &&Episode| *question == episode.task.id || *question == episode.task.name();
        let found: Vec<&Episode> = episodes.iter().filter(named).collect();
        match question.parse::<u64>() {
            Ok(number) if found.is_empty() && origin.step.is_none() => {
                let numbered = |episode: &&Episode| episode.group.checked_add(1) == Some(number);
                episodes.iter().filter(numbered).collect()
            }
            _ => found,
        }
    }

    fn wants(&self, trajectory: &Trajectory) -> bool {
        (!self.wrong || is_wrong(trajectory))
            && self
                .ending
                .is_none_or(|kind| kind == Kind::of(&trajectory.ending))
    }
}

/// Tells whether an answer is not an exact match, or a ranking could be better; false where neither was measured.
fn is_wrong(trajectory: &Trajectory) -> bool {
    let ndcg = trajectory.parts.get(Outcome::Ranking.measure());
    match trajectory.is_correct() {
        Some(correct) => !correct,
        None => ndcg.is_some_and(|ndcg| *ndcg < 1.0),
    }
}

/// The figures that a list of runs has of this one, with its status, headline metrics and alarms, where the list has their number.
fn known(tracked: &TrackedRun, run: &RunFolder) -> Result<Value> {
    let name = tracked.part.as_ref().unwrap_or(&run.name);
    let records = run.records.iter().find(|records| records.name == *name);
    let shown = records.map_or_else(
        || json!({"name": name, "status": run.waits(), "metrics": {}, "alarms": [], "signs": []}),
        figures,
    );
    let mut all = serde_json::to_value(tracked)?;
    if let (Value::Object(all), Value::Object(shown)) = (&mut all, shown) {
        all.extend(shown);
    }
    Ok(all)
}

/// The state, headline metrics and alarms of a run.
fn figures(records: &Records) -> Value {
    let metrics: Map<String, Value> = Figure::of(records)
        .into_iter()
        .map(|figure| {
            let ([first, last], newest) = (figure.ends, figure.newest());
            let values = json!({
                "newest": newest,
                "newest_step": figure.step,
                "first_tenth": first,
                "last_tenth": last,
            });
            (figure.metric, values)
        })
        .collect();
    let signs = records.course.iter().flat_map(|course| &course.alarms);
    json!({
        "name": records.name,
        "status": records.status(),
        "metrics": metrics,
        "alarms": records.alarms,
        "signs": signs.collect::<Vec<_>>(),
    })
}

/// A trajectory with its texts and their authors.
fn texts(trajectory: &Trajectory) -> Value {
    let segments = trajectory.segments.iter();
    let segments: Vec<Value> = segments
        .map(|segment| json!({"author": segment.author.name(), "text": segment.text}))
        .collect();
    json!({
        "run": trajectory.origin.run,
        "step": trajectory.origin.step,
        "group": trajectory.group,
        "member": trajectory.member,
        "data_source": trajectory.key.data_source,
        "id": trajectory.key.id,
        "question": trajectory.key.question,
        "golds": trajectory.golds,
        "relevant": trajectory.relevant,
        "answer": trajectory.answer,
        "reward": trajectory.reward,
        "score": trajectory.parts,
        "ending": trajectory.ending.name(),
        "turns": trajectory.turns,
        "searches": trajectory.searches,
        "texts": segments,
    })
}

/// The headline metrics of a run under a heading: the newest value, the course, and the means of the first and the last tenth of the
/// steps.
fn metrics(records: &Records) -> String {
    let figures = Figure::of(records);
    let mut lines = String::new();
    if !figures.is_empty() {
        let [metric, newest, course] = ["metric", "newest", "course"];
        let _ = writeln!(
            lines,
            "  {metric:<43} {newest:>8}  {course:<COURSE$}  means of the first to the last tenth of the steps"
        );
    }
    for figure in figures {
        let (newest, trend) = (number(figure.newest()), figure.trend());
        let course = sparkline(&figure.values, COURSE);
        let words = figure.words;
        let _ = writeln!(
            lines,
            "  {words:<43} {newest:>8}  {course:<COURSE$}  {trend}"
        );
    }
    lines
}

/// A trajectory in full, its authors in colours or named.
fn describe(trajectory: &Trajectory, colours: bool) -> String {
    let reward = trajectory.reward.map_or_else(
        || "no reward".to_owned(),
        |reward| format!("reward {reward:.2}"),
    );
    let parts: Vec<String> = trajectory
        .parts
        .iter()
        .map(|(name, value)| format!("{name} {value:.2}"))
        .collect();
    let title = format!("{} · {reward} · {}", trajectory.label(), trajectory.ending);
    let labels = trajectory.labels();
    let facts = format!(
        "{} ({}, {})\n{}score: {}",
        trajectory.key.question,
        trajectory.key.data_source,
        trajectory.key.id,
        labels.map_or_else(String::new, |labels| format!("{labels}\n")),
        if parts.is_empty() {
            "none".to_owned()
        } else {
            parts.join(" · ")
        }
    );
    let title = printable(&title);
    let mut lines = vec![
        if colours {
            format!("\x1b[1m{title}\x1b[0m")
        } else {
            title
        },
        printable(&facts),
    ];
    for segment in &trajectory.segments {
        let text = printable(segment.text.trim_end());
        lines.push(if colours {
            paint(&text, segment.author)
        } else {
            format!("[{}] {text}", segment.author.name())
        });
    }
    lines.join("\n")
}

/// Prompts dim, the policy blue, the environment green, what was forced red.
fn paint(text: &str, author: Provenance) -> String {
    let code = match author {
        Provenance::Prompt => 2,
        Provenance::Policy => 34,
        Provenance::Environment => 32,
        Provenance::Forced => 31,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}
