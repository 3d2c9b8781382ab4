//! What is published, in miniature: a cache of the hub in which the names that `docs/first-day.md` uses lead to a few rows and to tiny
//! models.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::blocks::root;

/// The commit that every repository of the cache is at.
const COMMIT: &str = "0000000000000000000000000000000000000000";
/// Data sets with their files, which are those of `tests/fixtures/first_day`.
const DATA: [(&str, &[&str]); 2] = [
    (
        "datasets--PeterJinGo--nq_hotpotqa_train",
        &["train.parquet", "test.parquet"],
    ),
    (
        "datasets--PeterJinGo--wiki-18-corpus",
        &["wiki-18.jsonl.gz"],
    ),
];
/// Models, each as the miniature of a recipe has it.
const MODELS: [(&str, &str); 2] = [
    ("models--Qwen--Qwen2.5-0.5B", "slime"),
    ("models--Qwen--Qwen3-0.6B", "slm_code_search"),
];

/// Makes the cache in `folder`.
pub(super) fn cache(folder: &Path) {
    let fixtures = root().join("cli/tests/fixtures/first_day");
    for (repository, files) in DATA {
        let snapshot = snapshot(folder, repository);
        for file in files {
            std::fs::copy(fixtures.join(file), snapshot.join(file)).unwrap();
        }
    }
    for (repository, recipe) in MODELS {
        let made = folder.join("made").join(recipe);
        let ran = Command::new(env!("CARGO_BIN_EXE_forage"))
            .args(["recipes", "run", recipe, "--miniature", "--out"])
            .arg(&made)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{recipe}: {error}");
        let snapshot = snapshot(folder, repository);
        std::fs::remove_dir(&snapshot).unwrap();
        std::fs::rename(made.join("start/model"), snapshot).unwrap();
    }
}

/// The folder of a repository's files, empty; the cache says that its main branch is there.
fn snapshot(folder: &Path, repository: &str) -> PathBuf {
    let place = folder.join(repository);
    std::fs::create_dir_all(place.join("refs")).unwrap();
    std::fs::write(place.join("refs/main"), COMMIT).unwrap();
    let snapshot = place.join("snapshots").join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    snapshot
}
