//! `forage report`: run folders as one HTML page, Markdown or JSON.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use forage_lab::page;

use crate::terminal::{hint, out, word};

/// Writes a self-contained HTML page about runs.
///
/// The page shows verdict, results with intervals, curves, alarms, trajectories and configuration. Runs whose configs differ in their seeds alone are one arm: its curves are their mean with an interval. A run that is still
/// being written is shown as far as it has come. docs/reports.md tells how to read the page.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Run folders of `forage train`, `sft` or `quickstart`; files of episodes, from `forage eval --out`.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Page to write; one that is there is replaced.
    #[arg(long, default_value = "report.html")]
    out: PathBuf,
    /// Most trajectories on the page: evaluations first, then those of the newest steps.
    #[arg(long, default_value_t = 10_000)]
    most: usize,
    /// Print the results as Markdown instead of writing the page.
    #[arg(long)]
    markdown: bool,
    /// Print the results as JSON instead of writing the page.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
}

impl ReportArgs {
    pub(crate) fn run(self) -> Result<()> {
        let report = page(&self.runs, self.most)?;
        if self.markdown {
            out(report.to_markdown().trim_end());
        } else if self.json {
            out(&report.to_json().to_string());
        } else {
            report.write(&self.out)?;
            out(&self.out.display().to_string());
            hint(&format!("next: open {} in a browser", word(&self.out)));
        }
        Ok(())
    }
}
