//! `forage report`: one HTML page from run folders.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use forage_eval::report::Report;
use forage_eval::verdict::Verdict;
use forage_trainer::metrics;

use super::out;

/// Writes a self-contained HTML page with the curves of runs, and the verdict where one was reached.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Run folders: those of `forage train`, or one of `forage quickstart`.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Page to write.
    #[arg(long, default_value = "report.html")]
    out: PathBuf,
}

impl ReportArgs {
    pub(crate) fn run(self) -> Result<()> {
        let mut report = Report::new("forage report");
        for run in &self.runs {
            let inner: Vec<PathBuf> = ["trained", "control"].iter().map(|name| run.join(name)).collect();
            let folders = if run.join("metrics.jsonl").exists() { vec![run.clone()] } else { inner };
            for folder in folders {
                let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                let rows = metrics::read(&folder.join("metrics.jsonl"))
                    .with_context(|| format!("{} is no run folder", run.display()))?;
                let rows = rows.into_iter().map(|row| serde_json::Value::Object(row.0)).collect();
                report = report.series(name, rows);
            }
            if run.join("verdict.json").exists() {
                report = report.verdict(Verdict::read(&run.join("verdict.json"))?);
            }
            if let Ok(config) = std::fs::read_to_string(run.join("config.toml")) {
                report = report.config(config);
            }
        }
        report.write(&self.out)?;
        out(&self.out.display().to_string());
        Ok(())
    }
}
