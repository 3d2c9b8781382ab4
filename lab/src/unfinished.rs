//! Interrupted work: the settings that it was begun with, and its progress.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use forage_eval::write_atomic;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::{EnvironmentConfig, Resolved, version};
use crate::data::{Corpus, Tasks};
use crate::error::{Context, Result, bail};
use crate::grpo::shape;
use crate::observer::Observer;
use crate::resumed::differences;

/// The record of unfinished work: a file that exists from the beginning of the work to its end.
#[derive(Debug)]
pub(crate) struct Unfinished<T> {
    path: PathBuf,
    record: Mutex<Record<T>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record<T> {
    /// Settings that determine the results.
    settings: Value,
    done: T,
}

/// The record of work whose results are in this file.
pub(crate) fn record_of(file: &Path) -> PathBuf {
    file.with_extension("resume.json")
}

/// Refuses to resume work that was not begun or is complete.
pub(crate) fn check(record: &Path) -> Result<()> {
    if record.exists() {
        return Ok(());
    }
    bail!(
        "there is nothing to resume: no {}; start without --resume",
        record.display()
    )
}

impl<T: Clone + Default + Serialize + DeserializeOwned> Unfinished<T> {
    /// Begins work with these settings, or resumes it.
    ///
    /// # Errors
    /// When there is nothing to resume or the record is of other settings, and without `resume` when it is of the same ones.
    pub(crate) fn begin(
        path: PathBuf,
        settings: Value,
        resume: bool,
        observer: &dyn Observer,
    ) -> Result<Self> {
        if resume {
            check(&path)?;
        }
        let mut done = T::default();
        if path.exists() {
            // Parsed as from a file, which may change the last digit of a number.
            let now: Value = serde_json::from_str(&settings.to_string())?;
            let shown = path.display();
            let damaged = || format!("{shown} is damaged; remove it to begin anew");
            let text = std::fs::read(&path).with_context(|| format!("cannot read {shown}"))?;
            let before: Record<Value> = serde_json::from_slice(&text).with_context(damaged)?;
            match (differences(&before.settings, &now), resume) {
                (None, true) => done = serde_json::from_value(before.done).with_context(damaged)?,
                (None, false) => bail!(
                    "this was begun before and stopped on its way ({shown}); give --resume to go on with it, or remove that \
                     file to begin anew"
                ),
                (Some(others), true) => bail!(
                    "{shown} has other settings: {others}; give those that it was begun with, or leave out --resume to begin anew"
                ),
                (Some(others), false) => observer.warn(&format!(
                    "warning: what was begun before with other settings ({others}) and stopped on its way is replaced"
                )),
            }
        }
        let record = Mutex::new(Record { settings, done });
        let unfinished = Self { path, record };
        unfinished.write()?;
        Ok(unfinished)
    }

    /// The file of the record.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The progress of the work.
    pub(crate) fn done(&self) -> T {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.done.clone()
    }

    /// Records the progress of the work.
    pub(crate) fn keep(&self, done: T) -> Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.done = done;
        drop(record);
        self.write()
    }

    fn write(&self) -> Result<()> {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = || format!("cannot write {}", self.path.display());
        let mut text = serde_json::to_vec_pretty(&*record).with_context(failed)?;
        text.push(b'\n');
        write_atomic(&self.path, &text).with_context(failed)
    }

    /// Removes the record of complete work.
    pub(crate) fn end(self) -> Result<()> {
        let removed = std::fs::remove_file(&self.path);
        removed.with_context(|| format!("cannot remove {}", self.path.display()))
    }
}

/// The settings that determine how questions are played and scored, without the policy.
pub(crate) fn settings(
    environment: &EnvironmentConfig,
    config: Option<&Resolved>,
    corpus: &Corpus,
    tasks: &Tasks,
    seed: u64,
) -> Result<Value> {
    let mut questions = blake3::Hasher::new();
    for task in tasks.iter() {
        questions.update(serde_json::to_string(task.as_ref())?.as_bytes());
    }
    let files = config.and_then(|config| config.data.files.as_ref());
    let pages = files.and_then(|files| files.pages.as_ref());
    Ok(json!({
        "version": version(),
        "seed": seed,
        "environment": {
            "id": environment.id,
            "settings": environment.without_address(),
            "prompt": environment.resolved()?.prompt,
        },
        "reward": config.map(|config| shape(config).reward),
        "retriever": corpus.retriever.fingerprint(),
        "pages": pages.map(|pages| pages.to_string_lossy()),
        "questions": {
            "count": tasks.len(),
            "digest": questions.finalize().to_hex().to_string(),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_on_under_its_own_settings_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.resume.json");
        let begin = |seed: u64, resume: bool| {
            let settings = json!({ "seed": seed, "policy": { "name": "oracle" } });
            let begun = Unfinished::<usize>::begin(path.clone(), settings, resume, &());
            begun.map_err(|error| error.to_string())
        };
        assert!(begin(1, true).unwrap_err().contains("nothing to resume"));
        begin(1, false).unwrap().keep(7).unwrap();
        let words = begin(1, false).unwrap_err();
        assert!(words.contains("give --resume to go on"), "{words}");
        let words = begin(2, true).unwrap_err();
        assert!(
            words.contains("has other settings: seed was 1 and is 2;"),
            "{words}"
        );
        let resumed = begin(1, true).unwrap();
        assert_eq!(resumed.done(), 7);
        // Other work takes its place, and is begun from nothing.
        assert_eq!(begin(2, false).unwrap().done(), 0);
        begin(2, true).unwrap().end().unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "{").unwrap();
        assert!(begin(1, true).unwrap_err().contains("is damaged"));
    }
}
