//! The name of a data set, by its path.

use std::path::Path;

use super::CorpusReader;

/// Names of files and folders that say nothing of the data set.
const GENERIC: [&str; 10] = [
    "corpus",
    "questions",
    "queries",
    "train",
    "dev",
    "validation",
    "test",
    "data",
    "default",
    "main",
];

impl CorpusReader {
    /// The name of a data set whose rows have none: the file's name, or its folder's where the file's says nothing. In the hub's cache
    /// the repository's, where no folder of it says more.
    pub fn source_name(path: &Path) -> String {
        let (mut parts, rest) = names_along(path);
        // `..`, and `.` alone, are called after the folder that they lead to.
        if parts.is_empty() || rest.ends_with("..") {
            let folder = rest.canonicalize().unwrap_or_default();
            parts.extend(names_along(&folder).0);
        }
        parts.reverse();
        if let Some(name) = parts.last_mut().filter(|_| !path.is_dir()) {
            // Shards are named `test-00000-of-00001.parquet`.
            let stem = name.split('.').next().unwrap_or_default();
            *name = stem.split("-0000").next().unwrap_or_default().to_owned();
        }
        let numbered = |part: &str| part.bytes().all(|letter| letter.is_ascii_digit());
        let says = |part: &&String| !GENERIC.contains(&part.as_str()) && !numbered(part);
        if let Some((repository, inside)) = in_hub(&parts) {
            let found = inside.iter().rev().find(says);
            return found.map_or(repository, String::as_str).to_owned();
        }
        let mut names = parts.iter().rev();
        let name = names.next();
        let folder = names.next();
        let found = name.filter(says).or(folder).or(name);
        found.cloned().unwrap_or_default()
    }

    /// The id of a passage among those of several corpora, by the name of its own: equal ids of two corpora stay apart.
    pub fn id_among(name: &str, id: &str) -> String {
        format!("{name}/{id}")
    }
}

/// The names along a path, the last one first, and what is left of it before them: nothing, the root, `.`, or what ends in `..`.
fn names_along(path: &Path) -> (Vec<String>, &Path) {
    let (mut names, mut rest) = (Vec::new(), path);
    while let (Some(name), Some(folder)) = (rest.file_name(), rest.parent()) {
        names.push(name.to_string_lossy().into_owned());
        rest = folder;
    }
    (names, rest)
}

/// The repository's name and the path inside it of a path in the hub's cache, `datasets--ORG--NAME/snapshots/COMMIT/PATH`.
fn in_hub(parts: &[String]) -> Option<(&str, &[String])> {
    let at = parts.iter().rposition(|part| part == "snapshots")?;
    let repository = parts[..at].last()?.strip_prefix("datasets--")?;
    let name = repository.rsplit("--").next().unwrap_or_default();
    Some((name, parts.get(at + 2..).unwrap_or_default()))
}
