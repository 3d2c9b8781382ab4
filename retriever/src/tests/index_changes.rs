//! Adding, merging, dropping duplicates, building on several threads, and being killed while at it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Instant;

use forage_retriever::{
    AddRequest, Bm25Retriever, BuildRequest, CorpusFormat, Index, IndexError, Passage, ReadError,
};

const FORMAT: CorpusFormat = CorpusFormat::BEIR;

fn corpus(folder: &Path, name: &str, rows: &[(&str, &str)]) -> PathBuf {
    let row = |(id, text): &(&str, &str)| {
        format!("{{\"_id\":\"{id}\",\"title\":\"T\",\"text\":\"{text}\"}}\n")
    };
    let path = folder.join(name);
    fs::write(&path, rows.iter().map(row).collect::<Vec<_>>().concat()).unwrap();
    path
}

/// Numbered passages over a skewed vocabulary.
fn large_corpus(folder: &Path, name: &str, ids: std::ops::Range<u32>) -> PathBuf {
    let text = |id: u32| {
        let word = |place: u32| {
            let mixed = (id * 31 + place).wrapping_mul(2_654_435_761) >> 8;
            format!("w{}", mixed % (1 + mixed % 500))
        };
        (0..5 + id % 40).map(word).collect::<Vec<_>>().join(" ")
    };
    let rows: Vec<(String, String)> = ids.map(|id| (format!("d{id}"), text(id))).collect();
    let rows: Vec<(&str, &str)> = rows
        .iter()
        .map(|(id, text)| (id.as_str(), text.as_str()))
        .collect();
    corpus(folder, name, &rows)
}

fn build(request: &BuildRequest) -> Result<forage_retriever::BuildSummary, IndexError> {
    Index::build(request, &mut |_, _| {})
}

fn add(request: &AddRequest) -> Result<forage_retriever::BuildSummary, IndexError> {
    Index::add(request, &mut |_, _| {})
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn passages_without_a_text_are_counted() {
    let scratch = tempfile::tempdir().unwrap();
    let file = corpus(scratch.path(), "a.jsonl", &[("a", ""), ("b", "one")]);
    let index = scratch.path().join("index");
    let built = build(&BuildRequest::new(file, FORMAT, &index)).unwrap();
    assert_eq!((built.passages, built.textless), (2, 1));
    assert_eq!(built.first_textless.as_deref(), Some("a"));
    let more = corpus(scratch.path(), "b.jsonl", &[("c", " ")]);
    let grown = add(&AddRequest::new(more, FORMAT, &index)).unwrap();
    assert_eq!((grown.passages, grown.textless), (3, 1));
    assert_eq!(grown.first_textless.as_deref(), Some("c"));
}

#[test]
fn the_index_does_not_depend_on_the_number_of_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let source = large_corpus(scratch.path(), "corpus.jsonl", 0..3000);
    let indexes: Vec<Bm25Retriever> = [1, 2, 5]
        .into_iter()
        .map(|threads| {
            let out = scratch.path().join(format!("index{threads}"));
            build(&BuildRequest {
                threads,
                ..BuildRequest::new(&source, FORMAT, &out)
            })
            .unwrap();
            Bm25Retriever::open(out).unwrap()
        })
        .collect();
    let sized = |retriever: &Bm25Retriever| {
        let files = &retriever.index().manifest().segments[0].files;
        ["docs.bin", "offsets.bin", "by-id.bin", "bounds.bin"].map(|name| files[name].clone())
    };
    for other in &indexes[1..] {
        assert_eq!(
            other.fingerprint_and_counts(),
            indexes[0].fingerprint_and_counts()
        );
        assert_eq!(sized(other), sized(&indexes[0]));
        for query in ["w1", "w0 w3 w77", "w499 w2 w2 w250", "t"] {
            assert_eq!(
                other.search_one(query, 50).unwrap(),
                indexes[0].search_one(query, 50).unwrap()
            );
        }
    }
}

trait Described {
    fn fingerprint_and_counts(&self) -> (String, String);
}

impl Described for Bm25Retriever {
    fn fingerprint_and_counts(&self) -> (String, String) {
        let manifest = self.index().manifest();
        (
            manifest.fingerprint.0.clone(),
            format!("{:?}", manifest.counts),
        )
    }
}

#[test]
fn ids_already_indexed_are_named_by_line() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("index");
    let first = corpus(scratch.path(), "one.jsonl", &[("a", "red"), ("b", "green")]);
    build(&BuildRequest::new(first, FORMAT, &out)).unwrap();
    let before = fs::read(out.join("manifest.json")).unwrap();
    for (rows, expected_line) in [
        (&[("c", "blue"), ("b", "teal")][..], 2),
        (&[("a", "red")][..], 1),
    ] {
        let second = corpus(scratch.path(), "two.jsonl", rows);
        let error = add(&AddRequest::new(second, FORMAT, &out)).unwrap_err();
        let IndexError::Read(ReadError::AlreadyIndexed { line, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*line, expected_line);
        assert!(error.to_string().contains("already in index"), "{error}");
    }
    let twice = corpus(scratch.path(), "two.jsonl", &[("c", "blue"), ("c", "teal")]);
    let error = add(&AddRequest::new(twice, FORMAT, &out)).unwrap_err();
    assert!(
        matches!(
            error,
            IndexError::Read(ReadError::DuplicateId {
                first: 1,
                second: 2,
                ..
            })
        ),
        "{error}"
    );
    assert_eq!(fs::read(out.join("manifest.json")).unwrap(), before);
    assert_eq!(entries(&out), ["manifest.json", "seg-000001"]);
    assert_eq!(entries(scratch.path()), ["index", "one.jsonl", "two.jsonl"]);
    let nowhere = AddRequest::new(
        scratch.path().join("one.jsonl"),
        FORMAT,
        scratch.path().join("nowhere"),
    );
    assert!(matches!(add(&nowhere), Err(IndexError::Missing { .. })));
    assert!(matches!(
        Index::merge(scratch.path().join("nowhere"), &mut |_, _| {}),
        Err(IndexError::Missing { .. })
    ));
}

#[test]
fn whole_pages_and_passages_of_pages_do_not_mix() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("index");
    let pages = |name: &str| {
        let path = scratch.path().join(format!("{name}.jsonl"));
        let row = format!("{{\"id\":\"{name}\",\"title\":\"T\",\"content\":\"red\"}}\n");
        fs::write(&path, row).unwrap();
        path
    };
    let whole = CorpusFormat::WHOLE_PAGES;
    build(&BuildRequest::new(pages("a"), whole, &out)).unwrap();
    let index = Index::open(&out).unwrap();
    index.verify_corpora(&[pages("a")], whole).unwrap();
    let verified = index.verify_corpora(&[pages("a")], CorpusFormat::PAGES);
    let words = verified.unwrap_err().to_string();
    assert!(
        words.contains("in the format whole-pages, and pages is expected")
            && words.contains("data.files.format = \"whole-pages\""),
        "{words}"
    );
    let verified = index.verify_corpora(&[pages("b")], CorpusFormat::PAGES);
    assert!(matches!(verified, Err(IndexError::CorpusMismatch { .. })));
    let error = add(&AddRequest::new(pages("b"), CorpusFormat::PAGES, &out)).unwrap_err();
    assert!(
        error.to_string().contains("--format whole-pages"),
        "{error}"
    );
    let grown = add(&AddRequest::new(pages("b"), whole, &out)).unwrap();
    assert_eq!(grown.passages, 2);
}

#[test]
fn ids_of_a_folder_are_named_by_file_and_line() {
    let scratch = tempfile::tempdir().unwrap();
    let (out, shards) = (scratch.path().join("index"), scratch.path().join("shards"));
    fs::create_dir(&shards).unwrap();
    let one = corpus(&shards, "a.jsonl", &[("a", "red"), ("b", "green")]);
    let two = corpus(&shards, "b.jsonl", &[("c", "blue"), ("b", "teal")]);
    corpus(&shards, "c.jsonl", &[("d", "grey")]);
    let error = build(&BuildRequest::new(&shards, FORMAT, &out)).unwrap_err();
    let IndexError::Read(ReadError::DuplicateId {
        path,
        earlier,
        first,
        second,
        ..
    }) = &error
    else {
        panic!("{error}")
    };
    assert_eq!((path, earlier), (&two, &Some(one)));
    assert_eq!((*first, *second), (2, 2));
    assert!(error.to_string().contains("on line 2 of `"), "{error}");

    let first = corpus(scratch.path(), "first.jsonl", &[("d", "grey")]);
    build(&BuildRequest::new(first, FORMAT, &out)).unwrap();
    corpus(&shards, "b.jsonl", &[("c", "blue")]);
    let error = add(&AddRequest::new(&shards, FORMAT, &out)).unwrap_err();
    let IndexError::Read(ReadError::AlreadyIndexed { path, line, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((path, *line), (&shards.join("c.jsonl"), 1));
}

#[test]
fn a_merge_leaves_open_readers_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("index");
    let first = corpus(
        scratch.path(),
        "one.jsonl",
        &[("a", "red apple"), ("b", "green apple")],
    );
    build(&BuildRequest::new(first, FORMAT, &out)).unwrap();
    let small = Bm25Retriever::open(&out).unwrap();
    let second = corpus(scratch.path(), "two.jsonl", &[("0", "blue apple")]);
    add(&AddRequest::new(second, FORMAT, &out)).unwrap();
    let cut = Bm25Retriever::open(&out).unwrap();
    let summary = Index::merge(&out, &mut |_, _| {}).unwrap();
    assert_eq!(
        (summary.segments, summary.generation, summary.passages),
        (1, 3, 3)
    );
    assert_eq!(entries(&out), ["manifest.json", "seg-000003"]);
    let merged = Bm25Retriever::open(&out).unwrap();
    assert_eq!(
        cut.search_one("apple", 9).unwrap(),
        merged.search_one("apple", 9).unwrap()
    );
    assert_eq!(merged.search_one("apple", 9).unwrap().len(), 3);
    assert_eq!(small.search_one("apple", 9).unwrap().len(), 2);
    // One segment is not merged again, and its generation stays.
    assert_eq!(Index::merge(&out, &mut |_, _| {}).unwrap().generation, 3);
    merged.index().verify_contents().unwrap();
}

#[test]
fn duplicates_are_kept_or_dropped_and_counted() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("index");
    let rows = [("a", "red"), ("b", "green"), ("c", "red"), ("d", "red")];
    let first = corpus(scratch.path(), "one.jsonl", &rows);
    let request = BuildRequest {
        replace: true,
        ..BuildRequest::new(&first, FORMAT, &out)
    };
    let dropped_in_all = || {
        let index = Index::open(&out).unwrap();
        index.manifest().counts.dropped_duplicates
    };
    let kept = build(&request).unwrap();
    assert_eq!((kept.passages, kept.dropped_duplicates), (4, 0));
    let dropped = build(&BuildRequest {
        drop_duplicates: true,
        ..request.clone()
    })
    .unwrap();
    assert_eq!(
        (
            dropped.passages,
            dropped.dropped_duplicates,
            dropped_in_all()
        ),
        (2, 2, 2)
    );
    // Of one corpus, but other rankings.
    assert_eq!(dropped.corpus_digest, kept.corpus_digest);
    assert_ne!(dropped.fingerprint, kept.fingerprint);
    let index = Index::open(&out).unwrap();
    index
        .verify_corpus(&FORMAT.digest_of(&[&first]).unwrap())
        .unwrap();
    index.verify_contents().unwrap();
    assert_eq!(index.manifest().sources[0].passages, 4);

    let second = corpus(
        scratch.path(),
        "two.jsonl",
        &[("x", "green"), ("y", "blue"), ("z", "blue")],
    );
    let more = AddRequest {
        drop_duplicates: true,
        ..AddRequest::new(&second, FORMAT, &out)
    };
    let summary = add(&more).unwrap();
    assert_eq!(
        (
            summary.passages,
            summary.dropped_duplicates,
            dropped_in_all()
        ),
        (3, 2, 4)
    );
    let index = Index::open(&out).unwrap();
    index.verify_contents().unwrap();
    assert_eq!(
        index.manifest().sources[1].corpus_digest,
        FORMAT.digest_of(&[&second]).unwrap()
    );
    // Nothing new: the file is on record, no segment is added.
    let third = corpus(scratch.path(), "three.jsonl", &[("q", "blue")]);
    let summary = add(&AddRequest {
        drop_duplicates: true,
        ..AddRequest::new(third, FORMAT, &out)
    })
    .unwrap();
    assert_eq!(
        (
            summary.segments,
            summary.generation,
            summary.dropped_duplicates
        ),
        (2, 3, 1)
    );
    let merged = Index::merge(&out, &mut |_, _| {}).unwrap();
    assert_eq!(
        (merged.segments, dropped_in_all(), merged.passages),
        (1, 5, 3)
    );
    let fresh: Vec<Passage> = [("a", "red"), ("b", "green"), ("y", "blue")]
        .map(|(id, text)| Passage::new(id, "T", text))
        .into();
    let fresh = Bm25Retriever::in_memory(fresh).unwrap();
    assert_eq!(merged.fingerprint, fresh.index().manifest().fingerprint);
}

/// Where a child process of the tests below does its work: the folder it is started in.
#[test]
#[ignore = "started by `killed_at_any_moment` in a process of its own"]
fn work_to_be_killed() {
    let here = Path::new(".");
    if !here.join("first.jsonl").is_file() {
        return;
    }
    if here.join("second.jsonl").is_file() {
        add(&AddRequest {
            threads: 2,
            ..AddRequest::new("second.jsonl", FORMAT, "index")
        })
        .unwrap();
        Index::merge("index", &mut |_, _| {}).unwrap();
    } else {
        build(&BuildRequest {
            replace: true,
            threads: 2,
            ..BuildRequest::new("first.jsonl", FORMAT, "index")
        })
        .unwrap();
    }
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "work_to_be_killed", "--ignored"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Starts the work in copies of a folder and kills it at evenly spread moments; `check` looks at each copy.
fn kill_and_check(prepare: impl Fn(&Path), check: impl Fn(&Path)) {
    const KILLS: u32 = 10;
    let scratch = tempfile::tempdir().unwrap();
    prepare(scratch.path());
    let started = Instant::now();
    assert!(start(scratch.path()).wait().unwrap().success());
    let whole = started.elapsed();
    check(scratch.path());
    for moment in 0..KILLS {
        let scratch = tempfile::tempdir().unwrap();
        prepare(scratch.path());
        let mut child = start(scratch.path());
        sleep(whole * moment / KILLS);
        child.kill().unwrap();
        child.wait().unwrap();
        check(scratch.path());
    }
}

#[test]
fn a_build_killed_at_any_moment_leaves_nothing_that_looks_complete() {
    kill_and_check(
        |folder| {
            large_corpus(folder, "first.jsonl", 0..2000);
        },
        |folder| {
            let out = folder.join("index");
            match Index::verify(&out) {
                Ok(index) => assert_eq!(index.len(), 2000),
                Err(error) => assert!(matches!(error, IndexError::Missing { .. }), "{error}"),
            }
            build(&BuildRequest {
                replace: true,
                ..BuildRequest::new(folder.join("first.jsonl"), FORMAT, &out)
            })
            .unwrap();
            Index::verify(&out).unwrap();
            assert_eq!(entries(folder), ["first.jsonl", "index"]);
        },
    );
}

#[test]
fn an_addition_or_merge_killed_at_any_moment_leaves_a_whole_generation() {
    let prepare = |folder: &Path| {
        let first = large_corpus(folder, "first.jsonl", 0..1000);
        build(&BuildRequest::new(first, FORMAT, folder.join("index"))).unwrap();
        large_corpus(folder, "second.jsonl", 1000..2000);
    };
    let check = |folder: &Path| {
        let out = folder.join("index");
        let index = Index::verify(&out).unwrap();
        let manifest = index.manifest();
        let generations = [(1, 1, 1000), (2, 2, 2000), (3, 1, 2000)];
        let found = (
            manifest.generation,
            manifest.segments.len(),
            manifest.counts.passages,
        );
        assert!(generations.contains(&found), "{found:?}");
        if manifest.generation == 1 {
            add(&AddRequest::new(folder.join("second.jsonl"), FORMAT, &out)).unwrap();
        }
        let merged = Index::merge(&out, &mut |_, _| {}).unwrap();
        assert_eq!((merged.segments, merged.passages), (1, 2000));
        Index::open(&out).unwrap().verify_contents().unwrap();
        assert_eq!(entries(&out), ["manifest.json", "seg-000003"]);
        assert_eq!(entries(folder), ["first.jsonl", "index", "second.jsonl"]);
    };
    kill_and_check(prepare, check);
}
