//! The hidden folder an index or a segment is built in, and how it takes its place.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::IndexError;
use crate::index::manifest::{MANIFEST_DRAFT, Manifest, sync_folder};
use crate::index::{MANIFEST_FILE, SEGMENT_PREFIX};

/// Held locked while a build runs, so that a second one is refused and the remains of a killed one are recognised.
const LOCK_FILE: &str = ".build.lock";

/// Most links that are followed one after the other, as in Linux.
const MOST_LINKS: usize = 40;

/// `.NAME.building` beside the index folder, held under the lock of the index. Dropped before [`Staging::publish`], it
/// takes its content with it.
pub(in crate::index) struct Staging {
    target: PathBuf,
    path: PathBuf,
    replaced: PathBuf,
    published: bool,
    _lock: File,
}

impl Staging {
    /// Claims the folder for a new index, clearing what a killed build left.
    pub(in crate::index) fn for_new(target: &Path, replace: bool) -> Result<Self, IndexError> {
        let target = &led_to(target);
        let (path, replaced) = siblings(target)?;
        let staging = Self::claim(target, path, replaced)?;
        check_target(target, replace)?;
        // The old index is to be moved there in the end; better told now than after hours.
        discard(&staging.replaced)?;
        Ok(staging)
    }

    /// Claims the folder for a change of an existing index, whose manifest is read under the lock. Clears what a killed
    /// build, addition or merge left beside the index and in it.
    pub(in crate::index) fn for_change(target: &Path) -> Result<(Self, Manifest), IndexError> {
        let target = &led_to(target);
        let (path, replaced) = siblings(target)?;
        if !holds_index(&replaced) {
            // Nothing is made beside what is not an index.
            Manifest::read(target)?;
        }
        let staging = Self::claim(target, path, replaced)?;
        let manifest = Manifest::read(target)?;
        // What cannot be removed now is in the way of a build alone.
        let _ = discard(&staging.replaced);
        clear_leftovers(target, &manifest)?;
        Ok((staging, manifest))
    }

    fn claim(target: &Path, path: PathBuf, replaced: PathBuf) -> Result<Self, IndexError> {
        fs::create_dir_all(&path).map_err(IndexError::io("create", &path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = File::create(&lock_path).map_err(IndexError::io("create", &lock_path))?;
        match lock.try_lock() {
            Ok(()) if lock_path.exists() => {}
            Ok(()) | Err(TryLockError::WouldBlock) => {
                return Err(IndexError::Busy {
                    path: target.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => {
                return Err(IndexError::io("lock", &lock_path)(source));
            }
        }
        let staging = Self {
            target: target.to_owned(),
            path,
            replaced,
            published: false,
            _lock: lock,
        };
        staging.clear()?;
        staging.restore()?;
        Ok(staging)
    }

    pub(in crate::index) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the manifest and moves the folder to its place as a whole index.
    pub(in crate::index) fn publish(mut self, manifest: &mut Manifest) -> Result<(), IndexError> {
        manifest.write(&self.path)?;
        if self.target.exists() {
            fs::rename(&self.target, &self.replaced)
                .map_err(IndexError::io("move aside", &self.target))?;
        }
        if let Err(source) = fs::rename(&self.path, &self.target) {
            self.restore()?;
            return Err(IndexError::io("move into place", &self.target)(source));
        }
        self.published = true;
        // What follows tidies up; the index is complete whether it succeeds or not.
        let _ = fs::remove_file(self.target.join(LOCK_FILE));
        // The old index goes once the new one is there for good.
        if let Some(parent) = self.target.parent()
            && sync_folder(parent).is_ok()
        {
            let _ = discard(&self.replaced);
        }
        Ok(())
    }

    /// Moves a finished segment into the index folder, where no manifest names it yet.
    pub(in crate::index) fn install(&self, segment: &str) -> Result<(), IndexError> {
        let (from, to) = (self.path.join(segment), self.target.join(segment));
        fs::rename(&from, &to).map_err(IndexError::io("move into place", &to))?;
        sync_folder(&self.target).map_err(IndexError::io("write", &self.target))
    }

    /// Makes a manifest the one of the index, then removes the files it does not name. Readers that have them mapped keep
    /// them until they close.
    pub(in crate::index) fn commit(self, manifest: &mut Manifest) -> Result<(), IndexError> {
        manifest.write(&self.target)?;
        // The index is complete; what cannot be removed now is cleared by the next change.
        let _ = clear_leftovers(&self.target, manifest);
        Ok(())
    }

    /// Puts the old index back where a build was stopped, or failed, between its two renames.
    fn restore(&self) -> Result<(), IndexError> {
        if holds_index(&self.target) || !holds_index(&self.replaced) {
            return Ok(());
        }
        fs::rename(&self.replaced, &self.target).map_err(IndexError::io("restore", &self.target))
    }

    fn clear(&self) -> Result<(), IndexError> {
        for entry in fs::read_dir(&self.path).map_err(IndexError::io("list", &self.path))? {
            let entry = entry.map_err(IndexError::io("list", &self.path))?;
            if entry.file_name() != LOCK_FILE {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.published {
            // What cannot be removed now is cleared by the next build.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes segments, and files of segments, that the manifest does not name. Anything else in the folder is left alone.
fn clear_leftovers(index: &Path, manifest: &Manifest) -> Result<(), IndexError> {
    let draft = index.join(MANIFEST_DRAFT);
    if draft.exists() {
        remove(&draft)?;
    }
    for entry in fs::read_dir(index).map_err(IndexError::io("list", index))? {
        let entry = entry.map_err(IndexError::io("list", index))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(SEGMENT_PREFIX) {
            continue;
        }
        match manifest
            .segments
            .iter()
            .find(|segment| segment.name == name)
        {
            None => remove(&entry.path())?,
            Some(segment) => {
                for file in
                    files_below(&entry.path()).map_err(IndexError::io("list", &entry.path()))?
                {
                    if !segment.files.contains_key(&file) {
                        remove(&entry.path().join(file))?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Paths of all files below a folder, relative to it, with `/`; lock files are left out.
pub(in crate::index) fn files_below(folder: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(prefix) = folders.pop() {
        for entry in fs::read_dir(folder.join(&prefix))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let relative = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                folders.push(format!("{relative}/"));
            } else if Path::new(&name)
                .extension()
                .is_none_or(|extension| extension != "lock")
            {
                files.push(relative);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The folder that a path leads to, there or not yet. A link stays, and the index behind it is built, changed and locked on its own file
/// system under its own name.
fn led_to(target: &Path) -> PathBuf {
    // A slash at the end would hide the link.
    let mut place: PathBuf = target.components().collect();
    for _ in 0..MOST_LINKS {
        let Ok(next) = fs::read_link(&place) else {
            break;
        };
        place = place.parent().unwrap_or(Path::new("")).join(next);
    }
    place
}

fn siblings(target: &Path) -> Result<(PathBuf, PathBuf), IndexError> {
    let name = target
        .file_name()
        .ok_or_else(|| IndexError::NotAnIndexFolder {
            path: target.to_owned(),
        })?;
    let name = name.to_string_lossy();
    let building = target.with_file_name(format!(".{name}.building"));
    Ok((building, target.with_file_name(format!(".{name}.replaced"))))
}

/// The folder of an index that a build puts another in the place of, until that one is there.
pub(in crate::index) fn moved_aside(target: &Path) -> Option<PathBuf> {
    let (_, replaced) = siblings(&led_to(target)).ok()?;
    Some(replaced)
}

fn holds_index(folder: &Path) -> bool {
    folder.join(MANIFEST_FILE).exists()
}

/// Removes an index that was moved aside, its manifest first: what is left where the rest cannot be removed is never put
/// back.
fn discard(replaced: &Path) -> Result<(), IndexError> {
    for path in [replaced.join(MANIFEST_FILE).as_path(), replaced] {
        if path.exists() {
            remove(path)?;
        }
    }
    Ok(())
}

fn check_target(target: &Path, replace: bool) -> Result<(), IndexError> {
    if !target.exists() {
        return Ok(());
    }
    let path = target.to_owned();
    if target.join(MANIFEST_FILE).is_file() && is_manifest(&target.join(MANIFEST_FILE)) {
        return if replace {
            Ok(())
        } else {
            Err(IndexError::Exists { path })
        };
    }
    let is_empty = fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty {
        Ok(())
    } else {
        Err(IndexError::NotAnIndexFolder { path })
    }
}

/// Tells whether a `manifest.json` is one of an index, of whatever version.
fn is_manifest(path: &Path) -> bool {
    let Ok(bytes) = fs::read(path) else {
        return false;
    };
    let Ok(manifest) = serde_json::from_slice::<serde_json::Value>(&bytes) else {
        return false;
    };
    ["format_version", "corpus_digest", "analyzer"]
        .iter()
        .all(|field| manifest.get(field).is_some())
}

fn remove(path: &Path) -> Result<(), IndexError> {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    removed.map_err(IndexError::io("remove", path))
}
