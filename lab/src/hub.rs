//! Files and folders by their paths, or by their addresses on the hub.

use std::path::{Path, PathBuf};

use forage_trainer::Hub;

use crate::archive::{is_archive, unpacked};
use crate::error::{Context, Result};

/// The hub as the environment of this process describes it.
pub fn hub() -> Hub {
    #[expect(
        clippy::disallowed_methods,
        reason = "where the hub keeps its files is said by its own variables alone"
    )]
    Hub::from_variables(|name| std::env::var(name).ok())
}

/// Finds a file or folder by its path, or by its address on the hub (`hf://ORG/NAME[/PATH][@REVISION]`), which is fetched. A zip
/// archive is unpacked beside itself, once, and its folder found.
///
/// # Errors
/// When the hub does not have it, or the archive cannot be unpacked.
pub fn fetch_file(path: &Path) -> Result<PathBuf> {
    let found = match path.to_str().filter(|path| path.starts_with("hf://")) {
        None => path.to_owned(),
        Some(address) => hub()
            .fetch_data(address)
            .in_config(format!("the data set {address} cannot be had"))?,
    };
    if is_archive(&found) {
        return unpacked(&found);
    }
    Ok(found)
}
