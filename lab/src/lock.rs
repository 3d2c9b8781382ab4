//! Locks on what a process writes: a run's folder, a file. One process at a time writes there.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Context, Result, bail};
use crate::layout::make_folder;

/// Held locked as long as a process works on the run. The file stays where anything else is in the folder: the lock is the operating
/// system's, which releases it however the process ends.
const FILE: &str = ".lock";

/// Time for whoever looks whether a run is worked on, who holds its lock meanwhile: a moment, and longer on a network file system.
const GLANCE: Duration = Duration::from_millis(500);
/// Time between two tries to take a lock.
const PAUSE: Duration = Duration::from_millis(20);

/// A run's folder that belongs to this process until this is dropped.
#[derive(Debug)]
pub(crate) struct RunLock {
    folder: PathBuf,
    /// True where the lock made the folder.
    is_new: bool,
    _file: File,
}

impl RunLock {
    /// Makes the folder and claims it.
    ///
    /// # Errors
    /// When another process works on the run; its id is named.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        let is_new = !folder.exists();
        let path = folder.join(FILE);
        loop {
            make_folder(folder)?;
            let mut file =
                open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            lock_folder(&mut file, folder)?;
            // Whoever held it before may have removed it since it was opened here.
            if is_at(&file, &path) {
                sign(&mut file).with_context(|| format!("cannot write {}", path.display()))?;
                return Ok(Self {
                    folder: folder.to_owned(),
                    is_new,
                    _file: file,
                });
            }
        }
    }

    /// Checks that no process works on the run, without a trace in its folder.
    ///
    /// # Errors
    /// As [`RunLock::take`].
    pub(crate) fn check_free(folder: &Path) -> Result<()> {
        match File::open(folder.join(FILE)) {
            Ok(mut file) => lock_folder(&mut file, folder),
            // Nobody has ever worked here; what else is wrong comes up when the folder is claimed.
            Err(_) => Ok(()),
        }
    }

    /// Tells whether a process works on the run, as far as that can be told.
    pub(crate) fn is_held(folder: &Path) -> bool {
        let file = File::open(folder.join(FILE));
        // Shared: two that look at once do not take each other for the holder.
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

/// A run that could not begin leaves nothing behind.
impl Drop for RunLock {
    fn drop(&mut self) {
        let Ok(mut entries) = std::fs::read_dir(&self.folder) else {
            return;
        };
        let is_bare = entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == FILE));
        if cfg!(unix) && is_bare {
            let _ = std::fs::remove_file(self.folder.join(FILE));
            if self.is_new {
                let _ = std::fs::remove_dir(&self.folder);
            }
        }
    }
}

/// A file that this process alone writes until this is dropped, with all that take their names from it.
#[derive(Debug)]
pub(crate) struct FileLock {
    /// A file beside it: the file itself is replaced when it is complete.
    path: PathBuf,
    _file: File,
}

impl FileLock {
    /// Claims the files that a command was told to write.
    ///
    /// # Errors
    /// As [`FileLock::take`].
    pub(crate) fn take_all<'a>(
        targets: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Result<Vec<Self>> {
        let taken = targets.into_iter().map(|target| Self::take(target));
        taken.collect()
    }

    /// Claims the file.
    ///
    /// # Errors
    /// When another process writes it, which is named, what is there is no file, or nothing can be written in its folder.
    pub(crate) fn take(target: &Path) -> Result<Self> {
        // A device would be replaced by the file that is complete.
        if target.exists() && !target.is_file() {
            bail!(
                "cannot write {}: it is a folder or a device; name a file",
                target.display()
            );
        }
        Self::claim(target, false)
    }

    /// Claims the file or folder, once no other process writes it.
    ///
    /// # Errors
    /// When nothing can be written in its folder.
    pub(crate) fn wait(target: &Path) -> Result<Self> {
        Self::claim(target, true)
    }

    fn claim(target: &Path, waits: bool) -> Result<Self> {
        let unwritable = || format!("cannot write {}", target.display());
        let Some(name) = target.file_name() else {
            bail!("cannot write {}: it names no file", target.display());
        };
        let path = target.with_file_name(format!(".{}.lock", name.to_string_lossy()));
        loop {
            let mut file = open(&path).with_context(unwritable)?;
            if waits {
                file.lock().with_context(unwritable)?;
            } else if let Some(holder) = held(&mut file, Duration::ZERO).with_context(unwritable)? {
                bail!(
                    "{} is being written by {holder}; wait for its end, or give another file",
                    target.display()
                );
            }
            // Whoever held it before may have removed it since it was opened here.
            if is_at(&file, &path) {
                sign(&mut file).with_context(unwritable)?;
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if cfg!(unix) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Tells whether this is the file that a path names.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: io::Result<std::fs::Metadata>| found.ok().map(|it| (it.dev(), it.ino()));
    let here = identity(file.metadata());
    here.is_some() && here == identity(std::fs::metadata(path))
}

/// As files stay where their identity cannot be told.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

/// Locks a file, or tells who holds it for longer than that.
fn held(file: &mut File, patience: Duration) -> io::Result<Option<String>> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) if begun.elapsed() < patience => {
                std::thread::sleep(PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Another user's lock may not be readable; it is held all the same.
                let _ = file.take(256).read_to_string(&mut holder);
                return Ok(Some(match holder.trim() {
                    "" => "another process".to_owned(),
                    named => named.to_owned(),
                }));
            }
            Err(TryLockError::Error(source)) => return Err(source),
        }
    }
}

/// Writes into a locked file who holds it.
fn sign(file: &mut File) -> io::Result<()> {
    let holder = format!("process {}{}\n", std::process::id(), host());
    file.set_len(0)?;
    file.write_all(holder.as_bytes())
}

fn lock_folder(file: &mut File, folder: &Path) -> Result<()> {
    let holder = held(file, GLANCE).with_context(|| {
        format!(
            "{} cannot be locked; give an --out on a file system with locks",
            folder.display()
        )
    })?;
    match holder {
        None => Ok(()),
        Some(holder) => bail!(
            "{} is in use by {holder}; wait for its end or stop it (Ctrl-C or SIGTERM saves a checkpoint), or give another \
             --out",
            folder.display()
        ),
    }
}

/// The name of this machine, where the system tells it: folders may be shared between machines.
fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| String::new(), |name| format!(" on {}", name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_is_named_and_leaves_the_folder_free() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        RunLock::check_free(&run).unwrap();
        assert!(!run.exists());
        let held = RunLock::take(&run).unwrap();
        for refused in [RunLock::take(&run).map(drop), RunLock::check_free(&run)] {
            let error = refused.unwrap_err().to_string();
            let holder = format!("process {}", std::process::id());
            assert!(error.contains("run is in use by"), "{error}");
            assert!(error.contains(&holder), "{error}");
        }
        assert!(RunLock::is_held(&run));
        drop(held);
        assert_eq!(run.exists(), !cfg!(unix), "a run that could not begin");
        assert!(!RunLock::is_held(&run) && !RunLock::is_held(folder.path()));
        RunLock::check_free(&run).unwrap();
        RunLock::take(&run).unwrap();
    }

    #[test]
    fn who_looks_whether_a_run_is_worked_on_is_not_taken_for_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let held = RunLock::take(&run).unwrap();
        std::fs::write(run.join("metrics.jsonl"), "").unwrap();
        drop(held);
        let looking = File::open(run.join(FILE)).unwrap();
        looking.lock_shared().unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| RunLock::take(&run).map(drop));
            std::thread::sleep(GLANCE / 5);
            drop(looking);
            taken.join().unwrap().unwrap();
        });
    }

    #[test]
    fn one_writer_of_a_file_at_a_time_is_named_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("episodes.jsonl");
        let held = FileLock::take(&target).unwrap();
        let error = FileLock::take(&target).unwrap_err().to_string();
        let holder = format!(
            "episodes.jsonl is being written by process {}",
            std::process::id()
        );
        assert!(error.contains(&holder), "{error}");
        drop(held);
        if cfg!(unix) {
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        // What a killed process left behind is nobody's.
        std::fs::write(folder.path().join(".episodes.jsonl.lock"), "process 1\n").unwrap();
        drop(FileLock::take(&target).unwrap());
        let nowhere = [folder.path().join("none/episodes.jsonl"), "..".into()];
        for nowhere in nowhere.into_iter().chain([folder.path().to_owned()]) {
            let error = FileLock::take(&nowhere).unwrap_err().to_string();
            assert!(error.contains("cannot write"), "{error}");
        }
    }

    #[test]
    fn a_file_has_one_writer_among_many_that_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("episodes.jsonl");
        let writers = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        if let Ok(lock) = FileLock::take(&target) {
                            let before = writers.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                            assert_eq!(before, 0);
                            writers.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                            drop(lock);
                        }
                    }
                });
            }
        });
    }
}
