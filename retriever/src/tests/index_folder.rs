//! The life of an index folder: built, opened, replaced, damaged, killed.

use std::fs;
use std::path::{Path, PathBuf};

use forage_retriever::{
    AddRequest, Bm25Params, Bm25Retriever, BuildRequest, CorpusFormat, Index, IndexError, Passage,
    Query, ReadError, Retriever,
};

struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn corpus(&self, rows: &[(&str, &str)]) -> PathBuf {
        let lines: Vec<String> = rows
            .iter()
            .map(|(id, text)| format!("{{\"_id\":\"{id}\",\"title\":\"T\",\"text\":\"{text}\"}}\n"))
            .collect();
        let path = self.path("corpus.jsonl");
        fs::write(&path, lines.concat()).unwrap();
        path
    }

    fn request(&self, rows: &[(&str, &str)]) -> BuildRequest {
        BuildRequest::new(self.corpus(rows), CorpusFormat::BEIR, self.path("index"))
    }

    /// Names in the root, hidden ones too.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.root.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

const ROWS: [(&str, &str); 3] = [("b", "red apple"), ("a", "green apple"), ("c", "blue sky")];

fn build(request: &BuildRequest) -> Result<(), IndexError> {
    Index::build(request, &mut |_, _| {}).map(|_| ())
}

fn ids(folder: &Path, query: &str) -> Vec<String> {
    Bm25Retriever::open(folder)
        .unwrap()
        .search_one(query, 10)
        .unwrap()
        .into_iter()
        .map(|hit| hit.id)
        .collect()
}

#[tokio::test]
async fn built_opened_and_searched() {
    let place = Place::new();
    let request = place.request(&ROWS);
    let summary = Index::build(&request, &mut |_, _| {}).unwrap();
    assert_eq!((summary.passages, summary.tokens), (3, 9));
    assert_eq!(place.names(), ["corpus.jsonl", "index"]);

    let index = Index::open(place.path("index")).unwrap();
    assert_eq!(index.len(), 3);
    assert_eq!(index.document(0).unwrap().text, "red apple");
    assert_eq!(index.ordinal_of("c").unwrap(), Some(2));
    assert_eq!(index.ordinal_of("zz").unwrap(), None);
    assert!(index.document(3).is_err());
    index.verify_contents().unwrap();
    index
        .verify_corpus(&request.format.digest_of(&request.sources).unwrap())
        .unwrap();

    let retriever = Bm25Retriever::open(place.path("index")).unwrap();
    assert_eq!(retriever.fingerprint(), summary.fingerprint);
    let hits = retriever
        .search(
            &[
                Query::new("apples"),
                Query::new("sky"),
                Query::new("nothing"),
            ],
            5,
        )
        .await
        .unwrap();
    let found: Vec<Vec<&str>> = hits
        .iter()
        .map(|list| list.iter().map(|hit| hit.id.as_str()).collect())
        .collect();
    assert_eq!(found, [vec!["a", "b"], vec!["c"], vec![]]);
    assert_eq!(hits[1][0].text, "blue sky");
}

#[tokio::test]
async fn memory_and_folder_agree() {
    let place = Place::new();
    build(&place.request(&ROWS)).unwrap();
    let passages = ROWS
        .iter()
        .map(|(id, text)| Passage::new(*id, "T", *text))
        .collect();
    let memory = Bm25Retriever::in_memory(passages).unwrap();
    let folder = Bm25Retriever::open(place.path("index")).unwrap();
    assert_eq!(memory.fingerprint(), folder.fingerprint());
    for query in ["apple", "green sky", "t"] {
        assert_eq!(
            memory.search_one(query, 3).unwrap(),
            folder.search_one(query, 3).unwrap()
        );
    }
    let other = Bm25Params { k1: 1.2, b: 0.75 };
    let tuned = Bm25Retriever::with_params(folder.index().clone(), other).unwrap();
    assert_ne!(tuned.fingerprint(), folder.fingerprint());
}

#[test]
fn an_index_is_no_corpus() {
    let place = Place::new();
    build(&place.request(&ROWS)).unwrap();
    let error = forage_retriever::CorpusFormat::detect(&place.path("index")).unwrap_err();
    assert!(error.to_string().contains("data.files.index"), "{error}");
}

#[test]
fn another_corpus_is_one_clear_error() {
    let place = Place::new();
    build(&place.request(&ROWS)).unwrap();
    let error = Index::open(place.path("index"))
        .unwrap()
        .verify_corpus("feed")
        .unwrap_err();
    assert!(matches!(&error, IndexError::CorpusMismatch { expected, .. } if expected == "feed"));
    assert!(
        error.to_string().contains("build the index again"),
        "{error}"
    );
}

#[test]
fn existing_folders_are_respected() {
    let place = Place::new();
    let mut request = place.request(&ROWS);
    build(&request).unwrap();
    assert!(matches!(build(&request), Err(IndexError::Exists { .. })));

    request.replace = true;
    place.corpus(&[("x", "apple tart")]);
    build(&request).unwrap();
    assert_eq!(ids(&request.out, "apple"), ["x"]);

    request.out = place.path("papers");
    fs::create_dir(&request.out).unwrap();
    fs::write(request.out.join("thesis.txt"), "years of work").unwrap();
    assert!(matches!(
        build(&request),
        Err(IndexError::NotAnIndexFolder { .. })
    ));
    assert_eq!(fs::read_dir(&request.out).unwrap().count(), 1);
}

#[test]
fn a_failed_build_leaves_the_old_index_and_nothing_else() {
    let place = Place::new();
    let mut request = place.request(&ROWS);
    build(&request).unwrap();
    request.replace = true;
    place.corpus(&[("a", "one"), ("b", "two"), ("a", "three")]);
    let error = build(&request).unwrap_err();
    let IndexError::Read(ReadError::DuplicateId {
        id, first, second, ..
    }) = &error
    else {
        panic!("{error}")
    };
    assert_eq!((id.as_str(), *first, *second), ("a", 1, 3));
    assert_eq!(ids(&request.out, "apple"), ["a", "b"]);
    assert_eq!(place.names(), ["corpus.jsonl", "index"]);
}

#[test]
fn an_id_that_one_of_several_corpora_repeats_is_named_with_it() {
    let place = Place::new();
    let mut request = place.request(&ROWS);
    request.sources = ["twice", "once"].map(|name| place.path(name)).to_vec();
    for (folder, ids) in request.sources.iter().zip([&["b", "a", "a"][..], &["a"]]) {
        fs::create_dir(folder).unwrap();
        let row = |id: &&str| format!("{{\"_id\":\"{id}\",\"text\":\"x\"}}\n");
        let rows: String = ids.iter().map(row).collect();
        fs::write(folder.join("corpus.jsonl"), rows).unwrap();
    }
    let IndexError::Read(ReadError::DuplicateId {
        path,
        earlier: None,
        id,
        first,
        second,
    }) = build(&request).unwrap_err()
    else {
        panic!("another error")
    };
    let named = place.path("twice").join("corpus.jsonl");
    assert_eq!((path, id.as_str()), (named, "twice/a"));
    assert_eq!((first, second), (2, 3));
}

#[test]
fn the_remains_of_a_killed_build_are_cleared() {
    let place = Place::new();
    let request = place.request(&ROWS);
    let remains = place.path(".index.building");
    fs::create_dir_all(remains.join("bm25")).unwrap();
    fs::write(remains.join("docs.bin"), "half").unwrap();
    assert!(matches!(
        Index::open(&request.out),
        Err(IndexError::Missing { .. })
    ));
    build(&request).unwrap();
    assert_eq!(place.names(), ["corpus.jsonl", "index"]);

    // Killed between moving the old index aside and the new one in.
    fs::rename(&request.out, place.path(".index.replaced")).unwrap();
    // Readers find the old one, and leave it to the next build to put it back.
    assert_eq!(ids(&request.out, "apple"), ["a", "b"]);
    Index::verify(&request.out).unwrap();
    assert_eq!(place.names(), [".index.replaced", "corpus.jsonl"]);
    assert!(matches!(build(&request), Err(IndexError::Exists { .. })));
    assert_eq!(ids(&request.out, "apple"), ["a", "b"]);
}

/// Killed while the old index was being removed, or unable to remove it.
#[test]
fn the_remains_of_a_replaced_index_are_in_nobodys_way() {
    let place = Place::new();
    let mut request = place.request(&ROWS);
    build(&request).unwrap();
    let leave = || {
        let remains = place.path(".index.replaced");
        fs::create_dir_all(remains.join("seg-000001")).unwrap();
        fs::write(remains.join("seg-000001/docs.bin"), "half").unwrap();
        let manifest = "manifest.json";
        fs::copy(request.out.join(manifest), remains.join(manifest)).unwrap();
    };
    leave();
    Index::merge(&request.out, &mut |_, _| {}).unwrap();
    assert_eq!(place.names(), ["corpus.jsonl", "index"]);
    leave();
    request.replace = true;
    build(&request).unwrap();
    assert_eq!(place.names(), ["corpus.jsonl", "index"]);
    assert_eq!(ids(&request.out, "apple"), ["a", "b"]);
}

#[test]
fn what_a_running_build_moved_aside_stays_there() {
    let place = Place::new();
    let request = place.request(&ROWS);
    build(&request).unwrap();
    let (building, aside) = (place.path(".index.building"), place.path(".index.replaced"));
    fs::create_dir_all(&building).unwrap();
    let lock = fs::File::create(building.join(".build.lock")).unwrap();
    lock.try_lock().unwrap();
    fs::rename(&request.out, &aside).unwrap();
    assert!(matches!(build(&request), Err(IndexError::Busy { .. })));
    let addition = AddRequest::new(&request.sources[0], request.format, &request.out);
    assert!(matches!(
        Index::add(&addition, &mut |_, _| {}),
        Err(IndexError::Busy { .. })
    ));
    assert!(!request.out.exists() && aside.join("manifest.json").exists());
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_the_index_behind_it_is_changed() {
    let place = Place::new();
    let mut request = place.request(&ROWS);
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    std::os::unix::fs::symlink("disk/wiki", place.path("index")).unwrap();
    // The link may be there first.
    build(&request).unwrap();
    assert_eq!(ids(&disk.join("wiki"), "apple"), ["a", "b"]);
    place.corpus(&[("x", "apple tart")]);
    request.replace = true;
    build(&request).unwrap();
    assert_eq!(ids(&disk.join("wiki"), "apple"), ["x"]);
    // One build at a time, by whatever name.
    let building = disk.join(".wiki.building");
    fs::create_dir(&building).unwrap();
    let lock = fs::File::create(building.join(".build.lock")).unwrap();
    lock.try_lock().unwrap();
    let more = place.corpus(&[("y", "apple pie")]);
    let addition = AddRequest::new(&more, request.format, &request.out);
    let add = || Index::add(&addition, &mut |_, _| {});
    assert!(matches!(add(), Err(IndexError::Busy { .. })));
    drop(lock);
    assert_eq!(add().unwrap().passages, 2);
    assert!(request.out.is_symlink());
    assert_eq!(place.names(), ["corpus.jsonl", "disk", "index"]);
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 1);
}

#[test]
fn a_second_build_at_the_same_place_is_told() {
    let place = Place::new();
    let request = place.request(&ROWS);
    let building = place.path(".index.building");
    fs::create_dir_all(&building).unwrap();
    let lock = fs::File::create(building.join(".build.lock")).unwrap();
    lock.try_lock().unwrap();
    assert!(matches!(build(&request), Err(IndexError::Busy { .. })));
    drop(lock);
    build(&request).unwrap();
    // Additions and merges wait for nobody either.
    fs::create_dir_all(&building).unwrap();
    let lock = fs::File::create(building.join(".build.lock")).unwrap();
    lock.try_lock().unwrap();
    let addition = AddRequest::new(&request.sources[0], request.format, &request.out);
    assert!(matches!(
        Index::add(&addition, &mut |_, _| {}),
        Err(IndexError::Busy { .. })
    ));
    assert!(matches!(
        Index::merge(&request.out, &mut |_, _| {}),
        Err(IndexError::Busy { .. })
    ));
    assert_eq!(ids(&request.out, "apple"), ["a", "b"]);
}

#[test]
fn manifests_of_other_versions_and_nonsense() {
    let place = Place::new();
    let request = place.request(&ROWS);
    assert!(matches!(
        Index::open(place.path("nowhere")),
        Err(IndexError::Missing { .. })
    ));
    build(&request).unwrap();
    let manifest = request.out.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, "{\"format_version\": 99, \"new_field\": 1}").unwrap();
    let error = Index::open(&request.out).unwrap_err();
    assert!(
        matches!(error, IndexError::Version { found: 99, .. })
            && error.to_string().contains("build it again")
    );
    fs::write(
        &manifest,
        text.replace(forage_retriever::analyzer::ANALYZER_ID, "whitespace-1"),
    )
    .unwrap();
    assert!(matches!(
        Index::open(&request.out),
        Err(IndexError::Analyzer { .. })
    ));
    fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    assert!(matches!(
        Index::open(&request.out),
        Err(IndexError::Damaged { .. })
    ));
}
