//! Folders that are written under another name, and get their own when they are complete.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

/// The system's error of a file or folder.
#[derive(Debug)]
pub(crate) struct FolderFault {
    /// File or folder concerned.
    pub(crate) path: PathBuf,
    /// The system's error.
    pub(crate) source: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> FolderFault {
    |source| FolderFault {
        path: path.to_owned(),
        source,
    }
}

/// Waits until a folder with everything in it is on the disk.
pub(crate) fn sync(folder: &Path) -> Result<(), FolderFault> {
    let entries = std::fs::read_dir(folder).map_err(at(folder))?;
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let paths = paths.map_err(at(folder))?;
    paths.par_iter().try_for_each(|path| {
        if path.is_dir() {
            return sync(path);
        }
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(at(path))
    })?;
    sync_names(folder)
}

/// Waits until the names in a folder are on the disk, where the system can open folders.
pub(crate) fn sync_names(folder: &Path) -> Result<(), FolderFault> {
    if cfg!(unix) {
        let synced = File::open(folder).and_then(|file| file.sync_all());
        synced.map_err(at(folder))?;
    }
    Ok(())
}

/// Gives a folder that is on the disk its name, which is on the disk too when this returns. Another one of that name stays until then, as
/// `aside`, and for good where the new one cannot have it.
pub(crate) fn publish(partial: &Path, target: &Path, aside: &Path) -> Result<(), FolderFault> {
    if target.exists() {
        let _ = std::fs::remove_dir_all(aside);
        std::fs::rename(target, aside).map_err(at(target))?;
    }
    if let Err(source) = std::fs::rename(partial, target) {
        let _ = std::fs::rename(aside, target);
        return Err(at(target)(source));
    }
    let around = target
        .parent()
        .filter(|around| !around.as_os_str().is_empty());
    sync_names(around.unwrap_or(Path::new(".")))?;
    // Files that another process still reads are kept by a network file system, and only take space.
    let _ = std::fs::remove_dir_all(aside);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_folder_stays_until_the_new_one_has_its_name() {
        let place = tempfile::tempdir().unwrap();
        let [partial, target, aside] =
            [".partial-policy", "policy", ".old-policy"].map(|name| place.path().join(name));
        let held = || std::fs::read_to_string(target.join("inner/file")).unwrap();
        let write = |folder: &Path, text: &str| {
            std::fs::create_dir_all(folder.join("inner")).unwrap();
            std::fs::write(folder.join("inner/file"), text).unwrap();
            sync(folder).unwrap();
        };
        write(&target, "old");
        let fault = publish(&partial, &target, &aside).unwrap_err();
        assert_eq!((fault.path, held()), (target.clone(), "old".to_owned()));
        write(&partial, "new");
        // Of a process that was killed between the two names.
        write(&aside, "older");
        publish(&partial, &target, &aside).unwrap();
        assert_eq!(held(), "new");
        assert!(!aside.exists() && !partial.exists());
        let fault = sync(&partial).unwrap_err();
        assert_eq!(fault.path, partial);
    }
}
