//! Configs as arguments name them.

use std::path::Path;

use anyhow::Result;
use forage_lab::Resolved;
use forage_trainer::device::DeviceSpec;

use crate::terminal::note;

/// Reads and resolves a config, and warns of what it may not mean.
pub(crate) fn read(
    path: &Path,
    overrides: &[String],
    device: Option<DeviceSpec>,
) -> Result<Resolved> {
    let config = Resolved::read(path, overrides, device)?;
    for warning in config.warnings() {
        note(&format!("warning: {warning}"));
    }
    Ok(config)
}
