//! Damage of every kind to every kind of file is found and named.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use forage_retriever::{AddRequest, BuildRequest, CorpusFormat, Index, IndexError};

fn corpus(folder: &Path, name: &str, ids: std::ops::Range<u32>) -> PathBuf {
    let row = |id: u32| {
        format!("{{\"_id\":\"{id}\",\"title\":\"T{id}\",\"text\":\"word number{id} common\"}}\n")
    };
    let path = folder.join(name);
    fs::write(&path, ids.map(row).collect::<Vec<_>>().concat()).unwrap();
    path
}

/// An index of two segments of one shape, so that files of equal size can be swapped.
fn index(folder: &Path) -> PathBuf {
    let out = folder.join("index");
    let first = corpus(folder, "one.jsonl", 1000..1200);
    Index::build(
        &BuildRequest::new(first, CorpusFormat::BEIR, &out),
        &mut |_| {},
    )
    .unwrap();
    let second = corpus(folder, "two.jsonl", 2000..2200);
    Index::add(
        &AddRequest::new(second, CorpusFormat::BEIR, &out),
        &mut |_| {},
    )
    .unwrap();
    out
}

/// `docs.bin`, `bm25/*.idx`: what the file is for, without the name tantivy drew.
fn kind(file: &str) -> String {
    let name = file.split_once('/').map_or(file, |(_, rest)| rest);
    let extension = Path::new(name)
        .extension()
        .map(|extension| extension.to_string_lossy().into_owned());
    match extension {
        Some(extension) if name.starts_with("bm25/") && extension != "json" => {
            format!("bm25/*.{extension}")
        }
        _ => name.to_owned(),
    }
}

fn files(index: &Path) -> Vec<String> {
    let manifest = Index::open(index).unwrap().manifest().clone();
    let names = manifest.segments.iter().flat_map(|segment| {
        segment
            .files
            .iter()
            .filter(|file| file.1.bytes > 0)
            .map(|file| format!("{}/{}", segment.name, file.0))
    });
    names.collect()
}

/// Both the opening and the deep check refuse the index and name the file.
fn refused(index: &Path, file: &str, how: &str) {
    for error in [
        Index::open(index).unwrap_err(),
        Index::verify(index).unwrap_err(),
    ] {
        assert!(
            matches!(&error, IndexError::Damaged { what, .. } if what.contains(file)),
            "{file} {how}: {error}"
        );
    }
}

#[test]
fn truncated_flipped_and_missing_files_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let index = index(scratch.path());
    let names = files(&index);
    for file in &names {
        let path = index.join(file);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        refused(&index, file, "truncated");
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            fs::write(&path, flipped).unwrap();
            refused(&index, file, "flipped");
        }
        fs::remove_file(&path).unwrap();
        refused(&index, file, "missing");
        fs::write(&path, bytes).unwrap();
    }
    Index::verify(&index).unwrap();
    let kinds: BTreeSet<String> = names.iter().map(|file| kind(file)).collect();
    for expected in [
        "bm25/*.fieldnorm",
        "bm25/*.idx",
        "bm25/*.term",
        "bm25/meta.json",
    ] {
        assert!(kinds.contains(expected), "{kinds:?}");
    }
    for expected in ["bounds.bin", "by-id.bin", "docs.bin", "offsets.bin"] {
        assert!(kinds.contains(expected), "{kinds:?}");
    }
}

#[test]
fn swapped_files_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let index = index(scratch.path());
    let manifest = Index::open(&index).unwrap().manifest().clone();
    let [one, other] = manifest.segments.as_slice() else {
        panic!("two segments")
    };
    let mut swapped = 0;
    for (name, record) in &one.files {
        let twin = other.files.iter().find(|(twin, of)| {
            kind(&format!("/{twin}")) == kind(&format!("/{name}")) && of.bytes == record.bytes
        });
        let Some((twin, of_twin)) = twin else {
            continue;
        };
        let paths = [
            index.join(&one.name).join(name),
            index.join(&other.name).join(twin),
        ];
        if record.blake3 == of_twin.blake3 {
            continue;
        }
        let swap = || {
            let aside = scratch.path().join("aside");
            fs::rename(&paths[0], &aside).unwrap();
            fs::rename(&paths[1], &paths[0]).unwrap();
            fs::rename(&aside, &paths[1]).unwrap();
        };
        swap();
        refused(&index, &format!("{}/{name}", one.name), "swapped");
        swap();
        swapped += 1;
    }
    assert!(
        swapped >= 2,
        "documents and postings of both segments have one size"
    );
    Index::verify(&index).unwrap();
}

#[test]
fn a_changed_manifest_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let index = index(scratch.path());
    let path = index.join("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to) in [
        ("\"passages\": 400", "\"passages\": 401"),
        ("\"k1\": 0.9", "\"k1\": 1.2"),
        ("\"generation\": 2", "\"generation\": 3"),
        ("\"name\": \"seg-000002\"", "\"name\": \"seg-000001\""),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        refused(&index, "manifest.json", to);
    }
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    refused(&index, "manifest.json", "truncated");
    fs::remove_file(&path).unwrap();
    assert!(matches!(
        Index::open(&index),
        Err(IndexError::Missing { .. })
    ));
    fs::write(&path, text).unwrap();
    Index::open(&index).unwrap();
}
