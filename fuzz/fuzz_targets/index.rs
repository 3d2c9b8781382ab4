//! Part of a file of an index is other bytes: the index is searched, or refused with a typed error.
//!
//! The first byte chooses the file, the second the place, and the rest stands there.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use forage_retriever::{Bm25Retriever, BuildRequest, CorpusFormat, Index, Query};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static INDEX: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let corpus = folder.path().join("corpus.jsonl");
    let lines: String = (0..20)
        .map(|number| format!("{{\"_id\":\"d{number}\",\"title\":\"Tides\",\"text\":\"the moon raises tide {number}\"}}\n"))
        .collect();
    std::fs::write(&corpus, lines).expect("room for a small file");
    let request = BuildRequest::new(&corpus, CorpusFormat::BEIR, folder.path().join("index"));
    Index::build(&request, &mut |_, _| {}).expect("a small corpus");
    folder
});

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("an index") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

/// Panics of tantivy on damaged segments are caught by the reader.
fn quiet() {
    std::panic::set_hook(Box::new(|info| {
        if !info
            .location()
            .is_some_and(|at| at.file().contains("tantivy"))
        {
            eprintln!("{info}");
        }
    }));
}

fuzz_target!(init: quiet(), |data: &[u8]| {
    let [file, place, rest @ ..] = data else { return };
    let whole = INDEX.path().join("index");
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder");
    let files = files(&whole);
    for (number, path) in files.iter().enumerate() {
        let mut bytes = std::fs::read(path).expect("a file of the index");
        if number == usize::from(*file) % files.len() {
            let start = bytes.len() * usize::from(*place) / 256;
            bytes.truncate(start.max(bytes.len().saturating_sub(rest.len())));
            bytes.splice(start.min(bytes.len()).., rest.iter().copied());
        }
        let copy = folder.path().join(path.strip_prefix(&whole).expect("within the index"));
        std::fs::create_dir_all(copy.parent().expect("within a folder")).expect("room for a folder");
        std::fs::write(copy, bytes).expect("room for a small file");
    }
    if let Ok(retriever) = Bm25Retriever::open(folder.path()) {
        let _ = retriever.search_boolean(&Query::new("\"moon raises\" OR tide"), 5);
    }
});
