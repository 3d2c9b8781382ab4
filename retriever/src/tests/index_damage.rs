//! Damage of every kind to every kind of file is found and named.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use forage_retriever::{
    AddRequest, Bm25Retriever, BuildRequest, CorpusFormat, Filter, Index, IndexError, Query,
    RetrieverError,
};

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
        &mut |_, _| {},
    )
    .unwrap();
    let second = corpus(folder, "two.jsonl", 2000..2200);
    Index::add(
        &AddRequest::new(second, CorpusFormat::BEIR, &out),
        &mut |_, _| {},
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

/// Writes a manifest whose digests fit the files as they are: the work of whoever means harm.
fn sign(index: &Path, mut manifest: crate::index::Manifest) {
    for segment in &mut manifest.segments {
        for (name, record) in &mut segment.files {
            if let Ok(bytes) = fs::read(index.join(&segment.name).join(name)) {
                record.bytes = bytes.len() as u64;
                record.blake3 = blake3::hash(&bytes).to_hex().to_string();
            }
        }
    }
    manifest.checksum = String::new();
    let unsigned = serde_json::to_vec(&manifest).unwrap();
    manifest.checksum = blake3::hash(&unsigned).to_hex().to_string();
    fs::write(
        index.join("manifest.json"),
        serde_json::to_vec(&manifest).unwrap(),
    )
    .unwrap();
}

/// Everything that reads an index, whatever comes of it.
fn use_it(index: &Path) -> Result<(), RetrieverError> {
    Index::verify(index)?;
    let retriever = Bm25Retriever::open(index)?;
    let filter = Filter([("id".to_owned(), vec!["1007".to_owned()])].into());
    let titled = Filter([("title".to_owned(), vec!["T1003".to_owned()])].into());
    let mut outcomes = vec![
        retriever.search_one("word common number1001", 5).map(drop),
        retriever
            .search_boolean(&Query::new("nu* AND \"word number1002\" OR title:T1003"), 5)
            .map(drop),
        retriever.index().statistics(&["word", "nothing"]).map(drop),
        retriever.index().verify_contents().map_err(Into::into),
    ];
    for filter in [filter, titled] {
        let query = Query::new("common").filtered(filter);
        outcomes.push(
            retriever
                .search_many(&[query.clone(), query], 500)
                .map(drop),
        );
    }
    outcomes.into_iter().collect()
}

#[test]
fn a_hostile_index_is_an_error_or_an_answer_and_never_a_panic() {
    let scratch = tempfile::tempdir().unwrap();
    let index = index(scratch.path());
    let manifest = Index::open(&index).unwrap().manifest().clone();
    sign(&index, manifest.clone());
    use_it(&index).unwrap();
    let names = files(&index);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let (mut refused, mut answered) = (0, 0);
    for _ in 0..200 {
        let path = index.join(&names[draw(names.len())]);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        for _ in 0..=draw(3) {
            let at = draw(bytes.len());
            bytes[at] = [0, 0xFF, bytes[at] ^ (1 << draw(8)), draw(256) as u8][draw(4)];
        }
        if draw(8) == 0 {
            bytes.truncate(draw(whole.len()));
        }
        fs::write(&path, bytes).unwrap();
        sign(&index, manifest.clone());
        match use_it(&index) {
            Ok(()) => answered += 1,
            Err(_) => refused += 1,
        }
        fs::write(&path, whole).unwrap();
    }
    assert!(refused > 20 && answered > 0, "{refused} {answered}");
    sign(&index, manifest);
    use_it(&index).unwrap();
}

#[test]
fn names_that_lead_out_of_the_folder_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let index = index(scratch.path());
    let manifest = Index::open(&index).unwrap().manifest().clone();
    for name in ["../other", "/etc", "", ".", "seg-000001/bm25"] {
        let mut changed = manifest.clone();
        changed.segments[0].name = name.to_owned();
        sign(&index, changed);
        refused(&index, "is not the name of a folder in it", name);
    }
    for name in ["../manifest.json", "/etc/passwd"] {
        let mut changed = manifest.clone();
        let record = changed.segments[0].files["docs.bin"].clone();
        changed.segments[0].files.insert(name.to_owned(), record);
        sign(&index, changed);
        refused(&index, "leads out of segment", name);
    }
}
