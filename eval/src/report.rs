//! The results of runs as one self-contained HTML page, readable offline; the same as Markdown or JSON.
//!
//! The page needs no network and, but for the trajectory viewer, no script. Its content security policy lets the viewer's
//! script run and nothing else.

mod arms;
mod at_k;
mod axis;
mod curves;
mod failures;
mod html;
mod intervals;
mod markdown;
mod opening;
mod parts;
mod studies;
mod tables;
mod trajectory;
mod verdict;
mod viewer;

use std::path::Path;

use forage_contracts::Episode;
use forage_env::Alarm;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::compare::Comparison;
use crate::stats::{Bootstrap, StatsError};
use crate::study::Study;
use crate::summary::EvalSummary;
use crate::telemetry::{Course, Failure, count_failures};
use crate::text::write_atomic;
use crate::trajectory::Trajectory;
use crate::verdict::Verdict;
use html::{coded, sections};
use studies::Studies;

pub use arms::{Arm, Trend};

/// The data from which a run can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recipe {
    /// The run.
    pub run: String,
    /// Its resolved configuration.
    pub config: String,
    /// Digests by what they are of.
    pub digests: Vec<(String, String)>,
}

/// Two evaluations on the same questions.
#[derive(Clone, Debug, Serialize)]
struct Paired {
    a: String,
    b: String,
    /// What is to be said of the main metric.
    words: String,
    comparison: Comparison,
    /// How both fail, where that was counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<Failure>,
}

/// An alarm with its run.
#[derive(Serialize)]
struct Raised<'a> {
    run: &'a str,
    #[serde(flatten)]
    alarm: &'a Alarm,
}

/// Collects what a report shows; parts left out leave no gap.
///
/// All text, the models' included, is escaped.
#[derive(Clone, Debug, Default)]
pub struct Report {
    title: String,
    notes: Vec<String>,
    verdicts: Vec<(String, Verdict)>,
    studies: Vec<(String, Studies)>,
    arms: Vec<Arm>,
    courses: Vec<(String, Course)>,
    alarms: Vec<(String, Alarm)>,
    evaluations: Vec<(String, EvalSummary)>,
    paired: Option<Paired>,
    trajectories: Vec<Trajectory>,
    recipes: Vec<Recipe>,
}

/// A report that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the report {path}")]
pub struct ReportError {
    /// Its path.
    pub path: String,
    /// The cause.
    pub source: std::io::Error,
}

impl Report {
    /// An empty report.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            ..Self::default()
        }
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

    /// Adds the study of one run beside its twins and baselines, of greedy episodes and of sampled ones where there are some.
    #[must_use]
    pub fn study(mut self, run: impl Into<String>, greedy: Study, sampled: Option<Study>) -> Self {
        self.studies.push((run.into(), Studies { greedy, sampled }));
        self
    }

    /// Adds curves; all arms share one plot per metric.
    #[must_use]
    pub fn arm(mut self, arm: Arm) -> Self {
        self.arms.push(arm);
        self
    }

    /// Adds the behaviour of a run's policy over its steps, and its alarms.
    #[must_use]
    pub fn course(self, run: impl Into<String>, course: Course) -> Self {
        let run = run.into();
        let mut report = self.alarms(&run, course.alarms.clone());
        report.courses.push((run, course));
        report
    }

    /// Adds alarms that the sentinel or telemetry raised of a run or an evaluation.
    #[must_use]
    pub fn alarms(mut self, run: &str, alarms: impl IntoIterator<Item = Alarm>) -> Self {
        let alarms = alarms.into_iter().map(|alarm| (run.to_owned(), alarm));
        self.alarms.extend(alarms);
        self
    }

    /// Adds a column to the table of results.
    #[must_use]
    pub fn evaluation(mut self, label: impl Into<String>, summary: EvalSummary) -> Self {
        self.evaluations.push((label.into(), summary));
        self
    }

    /// Adds the comparison of two evaluations on the same questions, by their labels; a page without a verdict opens with it.
    #[must_use]
    pub fn comparison(mut self, [a, b]: [&str; 2], comparison: Comparison) -> Self {
        self.notes.extend(comparison.caveat());
        self.paired = Some(Paired {
            a: a.to_owned(),
            b: b.to_owned(),
            words: comparison.outcome(a, b),
            comparison,
            failures: Vec::new(),
        });
        self
    }

    /// Adds to the comparison how its two sides fail: answers without a search, repeated instructions, stray answers, tags left open,
    /// each as a share of the episodes by data set, with examples.
    ///
    /// # Errors
    /// [`StatsError`] when the bootstrap's settings are out of range.
    pub fn failures(
        mut self,
        sides: [&[Episode]; 2],
        bootstrap: Bootstrap,
    ) -> Result<Self, StatsError> {
        if let Some(paired) = &mut self.paired {
            paired.failures = count_failures(sides, bootstrap)?;
        }
        Ok(self)
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

    /// The notes, with one on scripts, whose tokens are bytes; a comparison says that of its sides itself.
    fn said(&self) -> Vec<String> {
        let scripts = self.evaluations.iter();
        let scripts = scripts.filter(|(_, summary)| summary.in_bytes && self.paired.is_none());
        let scripts: Vec<&str> = scripts.map(|(label, _)| label.as_str()).collect();
        let bytes = (!scripts.is_empty()).then(|| {
            format!(
                "Counts of tokens, such as policy_tokens, are bytes in {}: a script has no tokenizer.",
                scripts.join("; ")
            )
        });
        self.notes.iter().cloned().chain(bytes).collect()
    }

    /// The page.
    pub fn render(&self) -> String {
        let results = html! {
            (self.by_run(verdict::results, Studies::results))
            @if let Some(paired) = &self.paired {
                (tables::differences(paired).html())
                @if let Some(table) = tables::differences_by_source(paired) { (table.html()) }
            }
            (intervals::scores(&self.evaluations))
            (tables::results(&self.evaluations))
        };
        let failing = html! { @if let Some(paired) = &self.paired { (failures::section(paired)) } };
        let conduct = html! { @for course in &self.courses { (tables::course(course)) } };
        let recipes = html! { @for recipe in &self.recipes { (tables::recipe(recipe)) } };
        let body = html! {
            header {
                h1 { (self.title) }
                (self.by_run(verdict::opening, Studies::opening))
                @if let Some(paired) = &self.paired { p.lead { (coded(&paired.words)) } }
                @if self.is_of_runs_alone() { (opening::of_arms(&self.arms, &self.alarms, !self.trajectories.is_empty())) }
                @for note in &self.said() { p.caption { (coded(note)) } }
            }
            (sections(&[
                ("Results", results),
                ("Failures", failing),
                ("Alarms", tables::alarms(&self.alarms)),
                ("Training", curves::panels(&self.arms)),
                ("Reward, part by part", curves::decomposition(&self.arms)),
                ("Conduct", conduct),
                ("Trajectories", viewer::content(&self.trajectories)),
                ("Configuration", recipes),
            ]))
        };
        let script = if self.trajectories.is_empty() {
            ""
        } else {
            viewer::SCRIPT
        };
        html::page(&self.title, &body, script)
    }

    /// Tells whether nothing compares its runs: no verdict, no study and no second evaluation.
    fn is_of_runs_alone(&self) -> bool {
        self.verdicts.is_empty() && self.studies.is_empty() && self.paired.is_none()
    }

    /// A view of every verdict and every study, with the run's name where there are several.
    fn by_run(
        &self,
        of_verdict: impl Fn(&Verdict) -> Markup,
        of_study: impl Fn(&Studies) -> Markup,
    ) -> Markup {
        let several = self.verdicts.len() + self.studies.len() > 1;
        html! {
            @for (run, verdict) in &self.verdicts {
                @if several { h3 { (run) } }
                (of_verdict(verdict))
            }
            @for (run, study) in &self.studies {
                @if several { h3 { (run) } }
                (of_study(study))
            }
        }
    }

    /// The report as Markdown with tables, without curves and trajectories.
    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }

    /// The same without curves and trajectories, as JSON: `title`, `notes`, `verdicts` and `studies` by run, `evaluations` by label,
    /// `comparison` of two, `training` (of each arm the `Trend` of every metric), `conduct` (of each run the trend of every item),
    /// `alarms`, `recipes`.
    pub fn to_json(&self) -> Value {
        let training = |arm: &Arm| {
            let metrics = arm.metrics();
            let trends: Vec<_> = metrics.iter().filter_map(|name| arm.trend(name)).collect();
            json!({"arm": arm.name, "runs": arm.runs.len(), "metrics": trends})
        };
        let alarms = self.alarms.iter().map(|(run, alarm)| Raised { run, alarm });
        json!({
            "title": self.title,
            "notes": self.said(),
            "verdicts": by_name(&self.verdicts, |verdict| json!(verdict)),
            "studies": by_name(&self.studies, |study| json!(study)),
            "evaluations": by_name(&self.evaluations, |summary| json!(summary)),
            "comparison": self.paired,
            "training": self.arms.iter().map(training).collect::<Vec<Value>>(),
            "conduct": by_name(&self.courses, |course| json!(course.items)),
            "alarms": alarms.collect::<Vec<_>>(),
            "recipes": self.recipes,
        })
    }

    /// Writes the page; the file appears whole or not at all.
    ///
    /// # Errors
    /// [`ReportError`] when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        write_atomic(path, self.render().as_bytes()).map_err(|source| ReportError {
            path: path.display().to_string(),
            source,
        })
    }
}

fn by_name<T>(named: &[(String, T)], value: impl Fn(&T) -> Value) -> Map<String, Value> {
    named
        .iter()
        .map(|(name, one)| (name.clone(), value(one)))
        .collect()
}

/// A length in pixels, to a tenth.
fn px(value: f64) -> String {
    format!("{value:.1}")
}
