//! One self-contained HTML page about a run, readable offline: no scripts, no network, light and dark.

mod axis;
mod curves;
mod html;
mod intervals;
mod tables;
mod trajectory;

use std::path::Path;

use forage_env::episode::Episode;
use serde_json::Value;

use crate::summary::EvalSummary;
use crate::text::write_atomic;
use crate::verdict::Verdict;
use html::{escape, section};
use trajectory::Trajectory;

/// Collects what a report shows; parts left out leave no gap.
///
/// All text, the models' included, is escaped.
#[derive(Clone, Debug, Default)]
pub struct Report {
    title: String,
    verdict: Option<Verdict>,
    config: String,
    series: Vec<(String, Vec<Value>)>,
    evaluations: Vec<(String, EvalSummary)>,
    trajectories: Vec<Trajectory>,
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

    /// Opens the page with the verdict.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(verdict);
        self
    }

    /// Closes the page with the resolved configuration.
    #[must_use]
    pub fn config(mut self, text: impl Into<String>) -> Self {
        self.config = text.into();
        self
    }

    /// Adds a run to the training curves: its rows of `metrics.jsonl`, objects with `step` and numbers by name. Runs
    /// share one plot per metric; a name with "control" in it is drawn as the control.
    #[must_use]
    pub fn series(mut self, run: impl Into<String>, rows: Vec<Value>) -> Self {
        self.series.push((run.into(), rows));
        self
    }

    /// Adds a column to the table of results.
    #[must_use]
    pub fn evaluation(mut self, label: impl Into<String>, summary: EvalSummary) -> Self {
        self.evaluations.push((label.into(), summary));
        self
    }

    /// Adds an episode, coloured by author turn by turn.
    #[must_use]
    pub fn trajectory(mut self, label: impl Into<String>, episode: &Episode) -> Self {
        self.trajectories.push(Trajectory::from_turns(label.into(), episode));
        self
    }

    /// Adds an episode, coloured by the authorship of its tokens, forced ones included; `decode` turns ids into text.
    #[must_use]
    pub fn decoded_trajectory(
        mut self,
        label: impl Into<String>,
        episode: &Episode,
        decode: impl Fn(&[u32]) -> String,
    ) -> Self {
        self.trajectories.push(Trajectory::from_tokens(label.into(), episode, decode));
        self
    }

    /// The page.
    pub fn render(&self) -> String {
        let mut body = format!("<header><h1>{}</h1>{}</header>", escape(&self.title), self.opening());
        body.push_str(&self.results());
        let runs: Vec<(&str, &[Value])> = self.series.iter().map(|(name, rows)| (&**name, &**rows)).collect();
        body.push_str(&section("Training", &curves::panels(&runs)));
        body.push_str(&section("Trajectories", &trajectory::list(&self.trajectories)));
        if !self.config.is_empty() {
            body.push_str(&section("Configuration", &format!("<pre class=\"config\">{}</pre>", escape(&self.config))));
        }
        html::page(&self.title, &body)
    }

    /// Writes the page; the file appears whole or not at all.
    ///
    /// # Errors
    /// [`ReportError`] when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        write_atomic(path, self.render().as_bytes())
            .map_err(|source| ReportError { path: path.display().to_string(), source })
    }

    fn opening(&self) -> String {
        self.verdict.as_ref().map_or_else(String::new, tables::verdict)
    }

    fn results(&self) -> String {
        let mut content = String::new();
        if let Some(verdict) = &self.verdict {
            content.push_str(&intervals::gains(verdict));
        }
        if !self.evaluations.is_empty() {
            content.push_str(&intervals::scores(&self.evaluations));
            content.push_str(&tables::metrics(&self.evaluations));
            content.push_str(&tables::hops(&self.evaluations));
        }
        section("Results", &content)
    }
}
