//! The lock on a run's folder: one process at a time writes in it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use crate::error::{Context, Result, bail};
use crate::layout::make_folder;

/// Held locked as long as a process works on the run. The file stays: the lock is the operating system's, which releases it
/// however the process ends.
const FILE: &str = ".lock";

/// A run's folder that belongs to this process until this is dropped.
#[derive(Debug)]
pub(crate) struct RunLock {
    _file: File,
}

impl RunLock {
    /// Makes the folder and claims it.
    ///
    /// # Errors
    /// When another process works on the run; its id is named.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        make_folder(folder)?;
        let path = folder.join(FILE);
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false);
        let mut file = opened
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        lock(&mut file, folder)?;
        let holder = format!("process {}{}\n", std::process::id(), host());
        file.set_len(0)
            .and_then(|()| file.write_all(holder.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { _file: file })
    }

    /// Checks that no process works on the run, without a trace in its folder.
    ///
    /// # Errors
    /// As [`RunLock::take`].
    pub(crate) fn check_free(folder: &Path) -> Result<()> {
        match File::open(folder.join(FILE)) {
            Ok(mut file) => lock(&mut file, folder),
            // Nobody has ever worked here; what else is wrong comes up when the folder is claimed.
            Err(_) => Ok(()),
        }
    }
}

fn lock(file: &mut File, folder: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Another user's lock may not be readable; it is held all the same.
            let _ = file.take(256).read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process",
                named => named,
            };
            bail!(
                "{} is in use by {holder}; wait for its end or stop it (Ctrl-C or SIGTERM saves a checkpoint), or give another \
                 --out",
                folder.display()
            );
        }
        Err(TryLockError::Error(source)) => Err(source).with_context(|| {
            format!(
                "{} cannot be locked; give an --out on a file system with locks",
                folder.display()
            )
        }),
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
        drop(held);
        RunLock::check_free(&run).unwrap();
        RunLock::take(&run).unwrap();
    }
}
