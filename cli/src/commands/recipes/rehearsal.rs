//! A config seen through in miniature.

use std::path::Path;

use anyhow::{Context, Result};
use forage_contracts::Metric;
use forage_env::registry;
use forage_lab::{RunConfig, RunError, RunLayout, TrainOptions, train};
use forage_trainer::metrics::Row;

use super::{as_text, differences, settings};
use crate::progress::Watch;
use crate::terminal::out;

/// Runs a config in miniature in the folder `kept`, or in one that is gone afterwards, after it has said what that changes.
pub(super) fn rehearse(config: &RunConfig, name: &str, kept: Option<&Path>) -> Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let folder = kept.unwrap_or(scratch.path());
    let small = config.miniature(&folder.join("start"))?;
    let changes = differences(&settings(config, name)?, &settings(&small, name)?);
    out(&as_text(name, "in miniature", &changes));
    let options = TrainOptions {
        folder: folder.join("run"),
        ..TrainOptions::default()
    };
    train(&small.resolve(None)?, &options, &Watch::interruptible()?)
        .map_err(|error| ended(error, name, kept))?;
    let rows = Row::read_all(&RunLayout::new(&options.folder).metrics())?;
    let searched = rows
        .iter()
        .any(|row| row.get(Metric::SEARCHES).is_some_and(|mean| mean > 0.0));
    let searches = registry::find(&config.environment.id)?.telemetry.searches;
    // A random policy hardly ever writes a whole search.
    out(&if searches && !searched {
        format!(
            "{name} runs, but no episode searched: the retriever was not asked, and no observation was read"
        )
    } else {
        format!("{name} runs")
    });
    Ok(())
}

/// The error of a rehearsal. One that a signal stopped is not continued: it takes seconds.
fn ended(error: RunError, name: &str, kept: Option<&Path>) -> RunError {
    let elsewhere = kept.map_or_else(String::new, |kept| {
        format!(", with another --out than {}", kept.display())
    });
    match error {
        RunError::Stopped { .. } => RunError::Stopped {
            what: format!(
                "{name} in miniature was interrupted, and is not continued: begin it anew{elsewhere}"
            ),
        },
        other => other,
    }
}
