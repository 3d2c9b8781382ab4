//! The files behind a path.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use forage_contracts::RowFault;

use super::reader::{Place, RowReader, open_failure, stopped};
use crate::error::ReadError;

/// A file of a corpus.
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    /// The id of the page that it holds, where that is not its name.
    pub(super) page: Option<String>,
}

impl From<PathBuf> for Part {
    fn from(path: PathBuf) -> Self {
        Self { path, page: None }
    }
}

/// Ends of names of files, and the kind of file that each means.
type Ends = [(&'static str, &'static str)];

/// Files of rows and pages. A part of a folder that is packed otherwise than with gzip is an error of its reader, and is not passed over.
const ENDS: &Ends = &[
    (".jsonl", ".jsonl"),
    (".jsonl.gz", ".jsonl"),
    (".jsonl.zst", ".jsonl"),
    (".jsonl.xz", ".jsonl"),
    (".jsonl.bz2", ".jsonl"),
    (".jsonl.lz4", ".jsonl"),
    (".parquet", ".parquet"),
    (MARKDOWN, MARKDOWN),
    (".markdown", MARKDOWN),
];
const MARKDOWN: &str = ".md";
/// A page only where it is in a folder of pages: beside rows it describes them, as on the hub.
const README: &str = "README.md";

/// Files that hold the rows of a folder where it has none of the above; else they describe them.
const OTHER_ENDS: &Ends = &[
    (".json", ".json"),
    (".json.gz", ".json"),
    (".tsv", ".tsv"),
    (".tsv.gz", ".tsv"),
    (".csv", ".csv"),
    (".csv.gz", ".csv"),
];
/// What the hub's tools write beside the rows.
const DESCRIPTION: &str = "dataset_infos.json";

/// The kind of a file by its name; hidden files have none.
fn kind(path: &Path, ends: &Ends) -> Option<&'static str> {
    let name = path.file_name()?.to_string_lossy();
    let is = |end: &str| name.len() > end.len() && name.ends_with(end);
    let (_, kind) = ends.iter().find(|(end, _)| is(end))?;
    // Writers of tables keep their own books in `_metadata.parquet`; generators of sites have pages in `_index.md` and `_posts`.
    let is_books = *kind != MARKDOWN && name.starts_with('_');
    (!is_hidden(path) && !is_books && name != DESCRIPTION).then_some(*kind)
}

/// Tells whether a name begins with a dot.
fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::to_string_lossy);
    name.is_some_and(|name| name.starts_with('.'))
}

/// Tells whether an entry of a folder is to be read. A link that leads nowhere is: opening it tells that a part is missing.
fn is_part(path: &Path) -> bool {
    path.is_file() || !path.exists()
}

pub(super) fn is_markdown(path: &Path) -> bool {
    kind(path, ENDS) == Some(MARKDOWN)
}

/// The files of a folder with these ends, in the byte order of their names, each with its kind.
fn listed(folder: &Path, ends: &Ends) -> Result<Vec<(PathBuf, &'static str)>, ReadError> {
    let fail = |source| open_failure(folder, source);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let file = entry.map_err(fail)?.path();
        if let Some(kind) = kind(&file, ends).filter(|_| is_part(&file)) {
            files.push((file, kind));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The markdown files of a folder and of the folders below it, in the order of their paths; hidden ones and links to folders aside.
/// A page is called after its file, and where several files have one name, each after its path below the folder: only those are renamed
/// that could not be told apart, so that the ids of all others depend on no folder.
fn pages_below(folder: &Path) -> Result<Vec<Part>, ReadError> {
    let (mut pages, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let fail = |source| open_failure(&folder, source);
        for entry in std::fs::read_dir(&folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let path = entry.path();
            if entry.file_type().map_err(fail)?.is_dir() {
                folders.extend((!is_hidden(&path)).then_some(path));
            } else if is_markdown(&path) && is_part(&path) {
                pages.push(path);
            }
        }
    }
    pages.sort_unstable();
    let mut files = HashMap::new();
    for page in &pages {
        *files.entry(page.file_stem()).or_insert(0_usize) += 1;
    }
    let mut parts = Vec::with_capacity(pages.len());
    for path in &pages {
        let is_shared = files[&path.file_stem()] > 1;
        parts.push(Part {
            path: path.clone(),
            page: is_shared.then(|| path_below(path, folder)).transpose()?,
        });
    }
    distinct(&parts)?;
    Ok(parts)
}

/// The path of a page below a folder, without the extension: `guide/index`.
fn path_below(page: &Path, folder: &Path) -> Result<String, ReadError> {
    let below = page.strip_prefix(folder).unwrap_or(page);
    let below = below.with_extension("");
    let names: Option<Vec<&str>> = below.iter().map(OsStr::to_str).collect();
    let names = names.ok_or_else(|| {
        let fault = RowFault::new("the path is not UTF-8", "rename the file or its folder");
        stopped(page, Place::File, fault.into())
    })?;
    Ok(names.join("/"))
}

/// Refuses files of one path that differ in their extensions alone, `a.md` and `a.markdown`.
fn distinct(pages: &[Part]) -> Result<(), ReadError> {
    let mut seen = HashMap::new();
    let mut repeated = Vec::new();
    for Part { path, page } in pages {
        if let Some(id) = page
            && let Some(first) = seen.insert(id, path)
        {
            repeated.push((first, path));
        }
    }
    let Some((first, path)) = repeated.first() else {
        return Ok(());
    };
    Err(ReadError::SamePage {
        path: (*path).clone(),
        first: (*first).clone(),
        count: repeated.len(),
    })
}

impl RowReader {
    /// The files of a path: itself, or the `.parquet` and `.jsonl` files of a folder in the byte order of their names, hidden
    /// ones and subfolders aside; of a folder without any its `.json`, `.tsv` and `.csv` files.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub fn files(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
        if !path.is_dir() {
            return Ok(vec![path.to_owned()]);
        }
        let mut files = listed(path, ENDS)?;
        files.retain(|(_, kind)| *kind != MARKDOWN);
        if files.is_empty() {
            files = listed(path, OTHER_ENDS)?;
        }
        Ok(files.into_iter().map(|(file, _)| file).collect())
    }
}

/// The files of a corpus, in the order they are read.
///
/// A file stands for itself. A folder stands for its `corpus.jsonl`, `corpus.jsonl.gz` or `corpus.parquet`, the first
/// there is; without one, for all its `.jsonl` and `.jsonl.gz` or its `.parquet` files in the byte order of their names,
/// hidden ones and subfolders aside, or for all `.md` and `.markdown` files in it and below it, or else for its `.json`, `.tsv` or
/// `.csv` files.
/// Beside files of rows a `README.md` is none of them.
pub(crate) fn corpus_files(path: &Path) -> Result<Vec<Part>, ReadError> {
    if !path.is_dir() {
        return Ok(vec![Part::from(path.to_owned())]);
    }
    let named = ["corpus.jsonl", "corpus.jsonl.gz", "corpus.parquet"].map(|name| path.join(name));
    if let Some(file) = named.into_iter().find(|file| file.exists()) {
        return Ok(vec![Part::from(file)]);
    }
    if path.join("manifest.json").is_file() && holds_segment(path) {
        let path = path.to_owned();
        return Err(ReadError::IsIndex { path });
    }
    let readme = path.join(README);
    let mut found = listed(path, ENDS)?;
    if found.iter().all(|(_, kind)| *kind == MARKDOWN) {
        let pages = pages_below(path)?;
        found = listed(path, OTHER_ENDS)?;
        let is_described = !found.is_empty() && pages.iter().all(|page| page.path == readme);
        if !(pages.is_empty() || is_described) {
            return Ok(pages);
        }
    } else {
        found.retain(|(file, _)| *file != readme);
    }
    let (files, mut kinds): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    kinds.sort_unstable();
    kinds.dedup();
    let path = path.to_owned();
    match kinds[..] {
        [] => Err(ReadError::NoCorpus { path }),
        [_] => Ok(files.into_iter().map(Part::from).collect()),
        // The two that an alphabet puts first: a message that does not depend on the folder's order.
        [one, other, ..] => Err(ReadError::MixedFolder { path, one, other }),
    }
}

/// Tells whether a folder has the folder of an index's segment in it.
fn holds_segment(path: &Path) -> bool {
    let entries = path.read_dir().into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("seg-"))
}
