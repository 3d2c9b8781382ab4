//! `forage runs report`: run folders as one HTML page, Markdown or JSON.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_lab::page;

use super::newest_run;
use crate::terminal::{hint, out, word};

/// Writes a self-contained HTML page about runs.
///
/// The page shows verdict, results with intervals, curves, alarms, trajectories and configuration. Runs whose configs differ in their seeds alone are one arm: its curves are their mean with an interval. A run that is still
/// being written is shown as far as it has come. docs/reports.md tells how to read the page.
#[derive(Args, Debug)]
pub(crate) struct Report {
    /// Run folders of `forage train`, `sft` or `quickstart`; files of episodes, from `forage eval --out`; the newest run in `runs` by
    /// default.
    runs: Vec<PathBuf>,
    /// Page to write; an earlier page of a report is replaced, another file is not.
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

impl Report {
    pub(super) fn run(self) -> Result<()> {
        let runs = if self.runs.is_empty() {
            vec![newest_run()?]
        } else {
            self.runs
        };
        if !self.markdown && !self.json {
            check_replaced(&self.out)?;
        }
        let report = page(&runs, self.most)?;
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

/// The beginning of a page, in which its title stands.
const HEAD: u64 = 4096;

/// Refuses to replace a file that is not the page of a report.
pub(crate) fn check_replaced(path: &Path) -> Result<()> {
    // A device or a pipe is written to as it is.
    if !path.is_file() {
        return Ok(());
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.with_context(|| format!("--out: cannot read {}", path.display()))?;
    let head = String::from_utf8_lossy(&head);
    let is_page = head.starts_with("<!DOCTYPE html>") && head.contains("<title>forage: ");
    if is_page || head.is_empty() {
        return Ok(());
    }
    bail!(
        "{} is not the page of a report; name another --out, or remove it",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_replaces_pages_alone() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("page.html");
        check_replaced(&place).unwrap();
        let report = forage_eval::Report::new("forage: a run");
        report.write(&place).unwrap();
        check_replaced(&place).unwrap();
        std::fs::write(&place, "").unwrap();
        check_replaced(&place).unwrap();
        std::fs::write(&place, "<!DOCTYPE html><title>notes</title>").unwrap();
        let error = check_replaced(&place).unwrap_err().to_string();
        assert!(
            error.contains("page.html is not the page of a report"),
            "{error}"
        );
    }
}
