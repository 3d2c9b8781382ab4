//! What a run became, for people: one self-contained HTML page, readable offline; the same as Markdown or JSON.
//!
//! The page needs no network and, but for the trajectory viewer, no script. Its content security policy lets the viewer's
//! script run and nothing else.

mod arms;
mod axis;
mod curves;
mod html;
mod intervals;
mod markdown;
mod tables;
mod trajectory;
mod viewer;

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::summary::EvalSummary;
use crate::telemetry::{self, Course, Example};
use crate::text::write_atomic;
use crate::trajectory::Trajectory;
use crate::verdict::Verdict;
use html::{concat, escape, section};

pub use arms::{Arm, Trend};

/// Something that a run's sentinel raised, or its telemetry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alarm {
    /// The run.
    pub run: String,
    /// The step that raised it; none of an evaluation.
    pub step: Option<u64>,
    /// `note`, `warn` or `stop` of the sentinel, [`SIGN`] of telemetry.
    pub severity: String,
    /// What went wrong, in a word.
    pub kind: String,
    /// What happened, the probable cause, the fix.
    pub message: String,
    /// Episodes to look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

/// The severity of what telemetry raises: a finding to be read.
pub const SIGN: &str = "sign";

impl Alarm {
    /// What telemetry raised of a run or an evaluation.
    pub fn of_telemetry(run: impl Into<String>, alarm: telemetry::Alarm) -> Self {
        let telemetry::Alarm { name: kind, first_step: step, examples, explanation: message, .. } = alarm;
        Self { run: run.into(), step, severity: SIGN.to_owned(), kind, message, examples }
    }
}

/// How a run is made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recipe {
    /// The run.
    pub run: String,
    /// Its resolved configuration.
    pub config: String,
    /// Digests by what they are of.
    pub digests: Vec<(String, String)>,
}

/// Collects what a report shows; parts left out leave no gap.
///
/// All text, the models' included, is escaped.
#[derive(Clone, Debug, Default)]
pub struct Report {
    title: String,
    notes: Vec<String>,
    verdicts: Vec<(String, Verdict)>,
    arms: Vec<Arm>,
    courses: Vec<(String, Course)>,
    alarms: Vec<Alarm>,
    evaluations: Vec<(String, EvalSummary)>,
    trajectories: Vec<Trajectory>,
    recipes: Vec<Recipe>,
}

/// A report that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the report {path}")]
pub struct ReportError {
    /// Its path.
    pub path: String,
    /// Why.
    pub source: std::io::Error,
}

impl Report {
    /// An empty report.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a sentence on the state of what is shown, such as a run that still goes on.
    #[must_use]
    pub fn note(mut self, sentence: impl Into<String>) -> Self {
        self.notes.push(sentence.into());
        self
    }

    /// Adds a run's verdict, with which the page opens.
    #[must_use]
    pub fn verdict(mut self, run: impl Into<String>, verdict: Verdict) -> Self {
        self.verdicts.push((run.into(), verdict));
        self
    }

    /// Adds curves; all arms share one plot per metric.
    #[must_use]
    pub fn arm(mut self, arm: Arm) -> Self {
        self.arms.push(arm);
        self
    }

    /// Adds the conduct of a run's policy over its steps, and the alarms of it.
    #[must_use]
    pub fn course(mut self, run: impl Into<String>, course: Course) -> Self {
        let run = run.into();
        self.alarms.extend(course.alarms.iter().map(|alarm| Alarm::of_telemetry(&run, alarm.clone())));
        self.courses.push((run, course));
        self
    }

    /// Adds an alarm.
    #[must_use]
    pub fn alarm(mut self, alarm: Alarm) -> Self {
        self.alarms.push(alarm);
        self
    }

    /// Adds a column to the table of results.
    #[must_use]
    pub fn evaluation(mut self, label: impl Into<String>, summary: EvalSummary) -> Self {
        self.evaluations.push((label.into(), summary));
        self
    }

    /// Adds an episode to the viewer; the first ones can be read without its script.
    #[must_use]
    pub fn trajectory(mut self, trajectory: Trajectory) -> Self {
        self.trajectories.push(trajectory);
        self
    }

    /// Adds a run's configuration, with which the page closes.
    #[must_use]
    pub fn recipe(mut self, recipe: Recipe) -> Self {
        self.recipes.push(recipe);
        self
    }

    /// The page.
    pub fn render(&self) -> String {
        let notes = concat(&self.notes, |note| format!("<p class=\"caption\">{}</p>", escape(note)));
        let verdicts = concat(&self.verdicts, |(run, verdict)| self.of_run(run) + &tables::verdict(verdict));
        let mut body = format!("<header><h1>{}</h1>{verdicts}{notes}</header>", escape(&self.title));
        body.push_str(&section("Results", &self.results()));
        body.push_str(&section("Alarms", &tables::alarms(&self.alarms)));
        body.push_str(&section("Training", &curves::panels(&self.arms)));
        body.push_str(&section("Reward, part by part", &curves::decomposition(&self.arms)));
        body.push_str(&section("Conduct", &concat(&self.courses, tables::course)));
        body.push_str(&section("Trajectories", &viewer::content(&self.trajectories)));
        body.push_str(&section("Configuration", &concat(&self.recipes, tables::recipe)));
        let script = if self.trajectories.is_empty() { "" } else { viewer::SCRIPT };
        html::page(&self.title, &body, script)
    }

    /// The same without curves and trajectories, as Markdown with tables.
    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }

    /// The same without curves and trajectories, as JSON: `title`, `notes`, `verdicts` by run, `evaluations` by label, `training`
    /// (of each arm the [`Trend`] of every metric), `conduct` (of each run the trend of every item), `alarms`, `recipes`.
    pub fn to_json(&self) -> Value {
        let training = |arm: &Arm| {
            let trends: Vec<Trend> = arm.metrics().iter().filter_map(|metric| arm.trend(metric)).collect();
            json!({"arm": arm.name, "runs": arm.runs.len(), "metrics": trends})
        };
        let evaluations: Map<String, Value> =
            self.evaluations.iter().map(|(label, summary)| (label.clone(), json!(summary))).collect();
        let verdicts: Map<String, Value> =
            self.verdicts.iter().map(|(run, verdict)| (run.clone(), json!(verdict))).collect();
        let conduct: Map<String, Value> =
            self.courses.iter().map(|(run, course)| (run.clone(), json!(course.items))).collect();
        json!({
            "title": self.title,
            "notes": self.notes,
            "verdicts": verdicts,
            "evaluations": evaluations,
            "training": self.arms.iter().map(training).collect::<Vec<Value>>(),
            "conduct": conduct,
            "alarms": self.alarms,
            "recipes": self.recipes,
        })
    }

    /// Writes the page; the file appears whole or not at all.
    ///
    /// # Errors
    /// [`ReportError`] when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        write_atomic(path, self.render().as_bytes())
            .map_err(|source| ReportError { path: path.display().to_string(), source })
    }

    /// Whose verdict it is, where there are several.
    fn of_run(&self, run: &str) -> String {
        if self.verdicts.len() > 1 { format!("<h3>{}</h3>", escape(run)) } else { String::new() }
    }

    fn results(&self) -> String {
        let mut content = concat(&self.verdicts, |(run, verdict)| self.of_run(run) + &intervals::gains(verdict));
        if !self.evaluations.is_empty() {
            content.push_str(&intervals::scores(&self.evaluations));
            content.push_str(&tables::metrics(&self.evaluations));
            content.push_str(&tables::hops(&self.evaluations));
        }
        content
    }
}

/// The metrics that people look at first, among those of the arms, with their words.
pub fn headline_metrics(arms: &[Arm]) -> Vec<(String, &'static str)> {
    let names: BTreeSet<String> = arms.iter().flat_map(Arm::metrics).collect();
    curves::headline(&names).into_iter().map(|(name, words)| (name.to_owned(), words)).collect()
}
