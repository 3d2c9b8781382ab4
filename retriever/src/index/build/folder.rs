//! The hidden folder an index is built in, and how it takes its place.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use super::Existing;
use crate::error::IndexError;
use crate::index::MANIFEST_FILE;
use crate::index::manifest::Manifest;

/// Held locked while a build runs, so that a second one is told and the remains of a killed one are recognised.
const LOCK_FILE: &str = ".build.lock";

/// `.NAME.building` beside the index folder. Dropped before [`BuildFolder::publish`], it takes its content with it.
pub(super) struct BuildFolder {
    target: PathBuf,
    path: PathBuf,
    replaced: PathBuf,
    published: bool,
    _lock: File,
}

impl BuildFolder {
    /// Claims the folder, clearing what a killed build left.
    pub(super) fn create(target: &Path, existing: Existing) -> Result<Self, IndexError> {
        let (path, replaced) = siblings(target)?;
        restore_replaced(target, &replaced)?;
        check_target(target, existing)?;
        fs::create_dir_all(&path).map_err(failure("create", &path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = File::create(&lock_path).map_err(failure("create", &lock_path))?;
        match lock.try_lock() {
            Ok(()) if lock_path.exists() => {}
            Ok(()) | Err(TryLockError::WouldBlock) => {
                return Err(IndexError::Busy { path: target.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(failure("lock", &lock_path)(source)),
        }
        let folder = Self { target: target.to_owned(), path, replaced, published: false, _lock: lock };
        folder.clear()?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self, name: &str) -> Result<BufWriter<File>, IndexError> {
        let path = self.path.join(name);
        let file = File::create(&path).map_err(failure("create", &path))?;
        Ok(BufWriter::with_capacity(1 << 20, file))
    }

    /// Sizes of all files so far, by relative path with `/`; lock files are left out.
    pub(super) fn file_sizes(&self) -> Result<BTreeMap<String, u64>, IndexError> {
        let mut sizes = BTreeMap::new();
        add_sizes(&self.path, "", &mut sizes).map_err(failure("list", &self.path))?;
        Ok(sizes)
    }

    /// Writes the manifest and moves the folder to its place.
    pub(super) fn publish(mut self, manifest: &Manifest) -> Result<(), IndexError> {
        self.write_manifest(manifest)?;
        if self.target.exists() {
            fs::rename(&self.target, &self.replaced).map_err(failure("move aside", &self.target))?;
        }
        if let Err(source) = fs::rename(&self.path, &self.target) {
            restore_replaced(&self.target, &self.replaced)?;
            return Err(failure("move into place", &self.target)(source));
        }
        self.published = true;
        // What follows tidies up; the index is complete whether it succeeds or not.
        let _ = fs::remove_file(self.target.join(LOCK_FILE));
        let _ = fs::remove_dir_all(&self.replaced);
        if let Some(parent) = self.target.parent() {
            let _ = sync_folder(parent);
        }
        Ok(())
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<(), IndexError> {
        let draft = self.path.join("manifest.json.draft");
        let mut text =
            serde_json::to_vec_pretty(manifest).map_err(|cause| failure("write", &draft)(io::Error::other(cause)))?;
        text.push(b'\n');
        fs::write(&draft, text).map_err(failure("write", &draft))?;
        File::open(&draft).and_then(|file| file.sync_all()).map_err(failure("write", &draft))?;
        fs::rename(&draft, self.path.join(MANIFEST_FILE)).map_err(failure("rename", &draft))?;
        sync_folder(&self.path).map_err(failure("write", &self.path))
    }

    fn clear(&self) -> Result<(), IndexError> {
        for entry in fs::read_dir(&self.path).map_err(failure("list", &self.path))? {
            let entry = entry.map_err(failure("list", &self.path))?;
            let path = entry.path();
            if entry.file_name() == LOCK_FILE {
                continue;
            }
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(failure("remove", &path))?;
        }
        Ok(())
    }
}

impl Drop for BuildFolder {
    fn drop(&mut self) {
        if !self.published {
            // The build already failed; what cannot be removed now is cleared by the next build.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn siblings(target: &Path) -> Result<(PathBuf, PathBuf), IndexError> {
    let name = target.file_name().ok_or_else(|| IndexError::NotAnIndexFolder { path: target.to_owned() })?;
    let name = name.to_string_lossy();
    let building = target.with_file_name(format!(".{name}.building"));
    Ok((building, target.with_file_name(format!(".{name}.replaced"))))
}

/// A build killed between its two renames left the old index aside: put it back.
fn restore_replaced(target: &Path, replaced: &Path) -> Result<(), IndexError> {
    if target.exists() || !replaced.join(MANIFEST_FILE).exists() {
        return Ok(());
    }
    fs::rename(replaced, target).map_err(failure("restore", target))
}

fn check_target(target: &Path, existing: Existing) -> Result<(), IndexError> {
    if !target.exists() {
        return Ok(());
    }
    let path = target.to_owned();
    if target.join(MANIFEST_FILE).is_file() && is_manifest(&target.join(MANIFEST_FILE)) {
        return match existing {
            Existing::Replace => Ok(()),
            Existing::Keep => Err(IndexError::Exists { path }),
        };
    }
    let is_empty = fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty { Ok(()) } else { Err(IndexError::NotAnIndexFolder { path }) }
}

/// Whether a `manifest.json` is one of ours, of whatever version.
fn is_manifest(path: &Path) -> bool {
    let Ok(bytes) = fs::read(path) else {
        return false;
    };
    let Ok(manifest) = serde_json::from_slice::<serde_json::Value>(&bytes) else {
        return false;
    };
    ["format_version", "corpus_digest", "analyzer"].iter().all(|field| manifest.get(field).is_some())
}

fn add_sizes(folder: &Path, prefix: &str, sizes: &mut BTreeMap<String, u64>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let relative = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            add_sizes(&entry.path(), &format!("{relative}/"), sizes)?;
        } else if Path::new(&name).extension().is_none_or(|extension| extension != "lock") {
            sizes.insert(relative, entry.metadata()?.len());
        }
    }
    Ok(())
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}

fn failure(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IndexError {
    let path = path.to_owned();
    move |source| IndexError::Io { action, path, source }
}
