//! Configs as arguments name them.

use std::path::Path;

use anyhow::{Context, Result};
use forage_lab::Resolved;
use forage_trainer::device::DeviceSpec;

use crate::commands::recipes;
use crate::terminal::{note, word};

/// The same overrides at the end of another command line, after a blank; nothing where there are none.
pub(crate) fn again(overrides: &[String]) -> String {
    let words = overrides.iter().map(|item| word(Path::new(item)));
    words
        .flat_map(|item| [" --set ".to_owned(), item])
        .collect()
}

/// Reads and resolves a config, a file or the name of a recipe, and warns of what it may not mean.
pub(crate) fn read(
    path: &Path,
    overrides: &[String],
    device: Option<DeviceSpec>,
) -> Result<Resolved> {
    let config = recipes::named(path, overrides)?
        .resolve(device)
        .with_context(|| format!("config {} cannot be used", path.display()))?;
    for warning in config.warnings() {
        note(&format!("warning: {warning}"));
    }
    Ok(config)
}
