//! Files and folders of data sets.

use std::path::{Path, PathBuf};

use super::server::{Fault, Server};
use super::{DATASETS, Hub, HubError, SCHEME, Wanted, refer};

/// The kind, as the hub's own tools write it after the scheme.
const KIND: &str = "datasets/";
/// Begins the names of branches that hold a conversion or a proposal, three parts long: `refs/convert/parquet`.
const REFS: &str = "refs";
/// Ends of the names of files that hold rows or pages.
const ENDS: [&str; 7] = [
    ".jsonl",
    ".json",
    ".parquet",
    ".tsv",
    ".csv",
    ".md",
    ".markdown",
];
/// A file in a folder that is there as a whole: without it some of its files may be missing. It holds the path of the folder in
/// which the files lie, seen from the snapshot.
const WHOLE: &str = ".forage-whole";

/// An address in its parts.
struct Address {
    repository: Wanted,
    /// Empty for the whole data set.
    path: String,
}

impl Address {
    /// `hf://[datasets/]ORG/NAME[@REVISION][/PATH]`, or with the revision at the end.
    fn parse(address: &str) -> Option<Self> {
        let rest = address.strip_prefix(SCHEME)?;
        let rest = rest.strip_prefix(KIND).unwrap_or(rest);
        let (organisation, rest) = rest.split_once('/')?;
        let (set, path, revision) = match rest.split_once('@') {
            Some((set, rest)) if !set.contains('/') => {
                let parts = if rest.split('/').next() == Some(REFS) {
                    3
                } else {
                    1
                };
                let end = rest.match_indices('/').nth(parts - 1);
                let (revision, path) = end.map_or((rest, ""), |(at, _)| rest.split_at(at));
                (set, path.trim_start_matches('/'), Some(revision))
            }
            _ => {
                let (rest, revision) = match rest.rsplit_once('@') {
                    Some((rest, revision)) => (rest, Some(revision)),
                    None => (rest, None),
                };
                let (set, path) = rest.split_once('/').unwrap_or((rest, ""));
                (set, path, revision)
            }
        };
        let revision = revision.map_or(String::new(), |revision| format!("@{revision}"));
        let repository = Wanted::parse(&format!("{organisation}/{set}{revision}"))?;
        (path.is_empty() || is_inside(path)).then(|| Self {
            repository,
            path: path.to_owned(),
        })
    }

    /// Tells whether a file is likely to be meant, by its name.
    fn is_file(&self) -> bool {
        self.path
            .rsplit('/')
            .next()
            .is_some_and(|name| name.contains('.'))
    }
}

/// Tells whether a path of the server leads to a place inside of the snapshot.
fn is_inside(path: &str) -> bool {
    let outside = |part: &str| {
        let leads = part.contains('\\') || (cfg!(windows) && part.contains(':'));
        leads || ["", ".", ".."].contains(&part)
    };
    !path.split('/').any(outside)
}

/// Tells whether a file holds rows or pages.
fn is_data(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let described = name.starts_with('.') || name == "README.md" || name == "dataset_infos.json";
    !described && ENDS.iter().any(|end| name.ends_with(end))
}

/// The deepest folder that holds all the files.
fn common<'a>(files: &[&'a str]) -> &'a str {
    let folder = |path: &'a str| path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = files.first().copied().map_or("", folder);
    let holds = |found: &str, file: &str| {
        let rest = file.strip_prefix(found);
        found.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
    };
    while !files.iter().all(|&file| holds(found, file)) {
        found = folder(found);
    }
    found
}

impl Hub {
    /// A file or a folder of a data set in the cache, by its address: `hf://datasets/ORG/NAME/PATH`, `ORG/NAME@REVISION/PATH` or
    /// `ORG/NAME/PATH@REVISION`, with or without `datasets/`. The path is that of a file, else of a folder: of a folder, or of a data set
    /// without a path, all files of rows and pages are fetched, and the deepest folder that holds them is the answer. What the cache has
    /// serves; what it lacks is fetched first, each file whole or not at all, and a fetch that was cut goes on where it ended.
    ///
    /// # Errors
    /// [`HubError`].
    pub fn fetch_data(&self, address: &str) -> Result<PathBuf, HubError> {
        let wanted = Address::parse(address).ok_or_else(|| HubError::Data(address.to_owned()))?;
        let (repository, path) = (&wanted.repository, wanted.path.as_str());
        let repo = repository.repo(DATASETS, &repository.revision);
        if let Some(snapshot) = self.cached(&repo) {
            let held = snapshot.join(path);
            if held.is_file() {
                return Ok(held);
            }
            if let Ok(folder) = std::fs::read_to_string(held.join(WHOLE))
                && (folder.is_empty() || is_inside(&folder))
            {
                return Ok(snapshot.join(folder));
            }
        }
        if self.offline {
            return Err(HubError::Offline {
                name: repository.name.clone(),
                cache: self.cache.clone(),
                missing: if path.is_empty() { "all of it" } else { path }.to_owned(),
            });
        }
        let folder = repo.folder(&self.cache);
        let fail = |fault: Fault| self.failure(repository, &fault);
        let server = self.server()?;
        let named = wanted.is_file();
        let direct = named.then(|| server.fetch(&repo, path, &folder, u64::MAX));
        let (found, commit) = match direct {
            Some(Ok(fetched)) => fetched,
            Some(Err(fault)) if fault.status() != Some(404) => return Err(fail(fault)),
            // A folder may have a dot in its name too, and the list says what there is where the path leads nowhere.
            _ => self.fetch_folder(&server, &wanted, &folder)?,
        };
        refer(&folder, &repo.revision, &commit).map_err(fail)?;
        Ok(found)
    }

    /// Fetches the files of rows and pages below a path, or the file that stands there; returns their folder, or the file, and the
    /// commit.
    fn fetch_folder(
        &self,
        server: &Server<'_>,
        wanted: &Address,
        folder: &Path,
    ) -> Result<(PathBuf, String), HubError> {
        let (repository, path) = (&wanted.repository, wanted.path.as_str());
        let fail = |fault: Fault| self.failure(repository, &fault);
        let named = repository.repo(DATASETS, &repository.revision);
        let info = server.info(&named).map_err(fail)?;
        let names = || info.siblings.iter().map(|file| file.rfilename.as_str());
        // By commit, so that all files are of one state even if the branch moves meanwhile.
        let repo = repository.repo(DATASETS, &info.sha);
        if names().any(|name| name == path) {
            // The pieces of a large file are named without a dot.
            return server.fetch(&repo, path, folder, u64::MAX).map_err(fail);
        }
        let below = |name: &&str| {
            let rest = name.strip_prefix(path);
            path.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let files: Vec<&str> = names().filter(below).filter(|name| is_data(name)).collect();
        if let Some(stray) = files.iter().find(|name| !is_inside(name)) {
            let what = format!("it lists the file {stray:?}, which leads out of its folder");
            return Err(fail(Fault::Refused(what)));
        }
        if files.is_empty() {
            return Err(HubError::NoData {
                name: repository.name.clone(),
                path: path.to_owned(),
                there: names().take(SHOWN).collect::<Vec<_>>().join(", "),
            });
        }
        let snapshot = folder.join("snapshots").join(&info.sha);
        for file in &files {
            if !snapshot.join(file).exists() {
                server.fetch(&repo, file, folder, u64::MAX).map_err(fail)?;
            }
        }
        let common = common(&files);
        let mark = snapshot.join(path).join(WHOLE);
        std::fs::write(&mark, common).map_err(|source| fail(Fault::File { path: mark, source }))?;
        Ok((snapshot.join(common), info.sha))
    }
}

/// Files that an error names.
const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_each_form() {
        let read = |address: &str| {
            let found = Address::parse(&format!("hf://{address}"))?;
            let Wanted { id, revision, .. } = found.repository;
            Some((id, revision, found.path))
        };
        let is = |id: &str, revision: &str, path: &str| {
            Some((id.to_owned(), revision.to_owned(), path.to_owned()))
        };
        for (address, expected) in [
            ("datasets/o/n/a/b.jsonl", is("o/n", "main", "a/b.jsonl")),
            ("o/n/a/b.jsonl", is("o/n", "main", "a/b.jsonl")),
            ("o/n", is("o/n", "main", "")),
            ("o/n@v1", is("o/n", "v1", "")),
            ("o/n@v1/a/b", is("o/n", "v1", "a/b")),
            ("o/n/a/b@v1", is("o/n", "v1", "a/b")),
            (
                "o/n@refs/convert/parquet/default/test",
                is("o/n", "refs/convert/parquet", "default/test"),
            ),
            (
                "o/n/default@refs/convert/parquet",
                is("o/n", "refs/convert/parquet", "default"),
            ),
            ("o/n@refs/pr/3", is("o/n", "refs/pr/3", "")),
        ] {
            assert_eq!(read(address), expected, "{address}");
        }
        for bad in [
            "o",
            "o/",
            "/n/x",
            "o/n/../x",
            "o/n/a/./x",
            "o/n/a\\..\\x",
            "o/n@/x",
            "o/n@../x/y",
            "datasets//n/x",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert!(Address::parse("https://o/n").is_none());
    }

    #[test]
    fn files_of_rows_and_pages_are_told_from_others() {
        for data in [
            "a.jsonl",
            "data/train-0.parquet",
            "x.tsv.gz",
            "pages/b.md",
            "pages/c.markdown",
        ] {
            assert!(is_data(data), "{data}");
        }
        for other in [
            "README.md",
            ".gitattributes",
            "dataset_infos.json",
            "a.py",
            "b.zip",
        ] {
            assert!(!is_data(other), "{other}");
        }
        assert_eq!(common(&["data/a.jsonl", "data/b.jsonl"]), "data");
        assert_eq!(common(&["data/x/a.jsonl", "data/xy/b.jsonl"]), "data");
        assert_eq!(common(&["corpus.jsonl", "qrels/test.tsv"]), "");
    }
}
