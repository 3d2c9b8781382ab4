//! What tells that a run has gone on.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::layout::{PARTS, RunLayout};
use crate::lock::RunLock;
use crate::run_folder::RunFolder;

impl RunFolder {
    /// A text that changes when what is shown of a run changes: names, lengths and times of its records, and whether a process works on
    /// it. It reads none of them.
    pub fn mark(path: &Path) -> String {
        let (mut files, mut held) = (vec![path.to_owned()], Vec::new());
        if path.is_dir() {
            let layouts = layouts(path);
            files = layouts.iter().flat_map(records).collect();
            let is_held = |layout: &RunLayout| RunLock::is_held(layout.folder());
            held = layouts.iter().map(is_held).collect();
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{held:?}\n").as_bytes());
        for file in files {
            let found = std::fs::metadata(&file).ok();
            let state = found.map(|found| (found.len(), found.modified().ok()));
            hasher.update(format!("{} {state:?}\n", file.display()).as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// The time of the last writing to a record of the run in a folder.
pub(crate) fn written(folder: &Path) -> Option<SystemTime> {
    let layouts = layouts(folder);
    let files = layouts.iter().flat_map(records);
    let times = files.filter_map(|file| std::fs::metadata(file).ok()?.modified().ok());
    times.max()
}

/// The run in a folder, its parts and its twins.
fn layouts(folder: &Path) -> Vec<RunLayout> {
    let own = RunLayout::new(folder);
    let inner = PARTS.map(|part| own.part(part));
    let twins = own.twins().into_iter().map(|(_, twin)| twin);
    let parts = inner.into_iter().chain(twins);
    std::iter::once(own).chain(parts).collect()
}

/// The files of a run that people are shown, those of folders in the order of their names.
fn records(layout: &RunLayout) -> Vec<PathBuf> {
    let mut files = vec![
        layout.config(),
        layout.sft_settings(),
        layout.metrics(),
        layout.alarms(),
        layout.telemetry(),
        layout.verdict(),
    ];
    for folder in [layout.rollouts(), layout.evaluation()] {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut inside: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        inside.sort();
        files.extend(inside);
    }
    files
}
