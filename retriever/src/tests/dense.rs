//! Vectors in index folders: embedding, adding, replacing, and searching through `DenseRetriever`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forage_retriever::dense::retriever::DenseRetriever;
use forage_retriever::dense::storage::DenseManifest;
use forage_retriever::dense::{VectorIndexKind, VectorIndexRequest, VectorSource};
use forage_retriever::{
    AddRequest, BuildRequest, CancelFlag, CorpusFormat, Encoder, Filter, Hit, Index, Passage,
    Query, Retriever, RetrieverError, TextKind,
};

mod imported;

const DIMENSION: usize = 64;

/// A real, if weak, encoder: a bag of hashed words, normalised. It tests the plumbing, not what models know.
struct HashedWords {
    name: &'static str,
    calls: AtomicUsize,
    encoded: Mutex<Vec<String>>,
}

impl HashedWords {
    fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            calls: AtomicUsize::new(0),
            encoded: Mutex::default(),
        })
    }

    fn encoded(&self) -> usize {
        self.encoded.lock().unwrap().len()
    }
}

fn vector(text: &str) -> Vec<f32> {
    let mut row = vec![0.0_f32; DIMENSION];
    for word in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        let hash = word.to_lowercase().bytes().fold(17_usize, |hash, byte| {
            hash.wrapping_mul(31) ^ usize::from(byte)
        });
        row[hash % DIMENSION] += 1.0;
    }
    let norm = row
        .iter()
        .map(|value| value * value)
        .sum::<f32>()
        .sqrt()
        .max(1e-9);
    row.iter().map(|value| value / norm).collect()
}

impl Encoder for HashedWords {
    fn identity(&self) -> String {
        self.name.to_owned()
    }

    fn dimension(&self) -> usize {
        DIMENSION
    }

    fn encode(&self, kind: TextKind, texts: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if kind == TextKind::Passage {
            self.encoded
                .lock()
                .unwrap()
                .extend(texts.iter().map(|&text| text.to_owned()));
        }
        if texts.contains(&"fail") {
            return Err(RetrieverError::Model {
                model: self.identity(),
                what: "was told to".to_owned(),
            });
        }
        assert!(!texts.contains(&"panic"), "was told to");
        if texts.contains(&"nan") {
            return Ok(vec![f32::NAN; texts.len() * DIMENSION]);
        }
        Ok(texts.iter().flat_map(|text| vector(text)).collect())
    }
}

/// Ids descend while the corpus ascends, so that order of corpus and order of ids differ.
fn passages(from: usize, to: usize) -> Vec<Passage> {
    let words = [
        "tide", "moon", "wind", "sun", "rain", "stone", "river", "cloud", "leaf", "bird", "song",
    ];
    let passage = |number: usize| {
        let text: Vec<&str> = (0..4 + number % 5)
            .map(|at| words[(number * 7 + at * at * 3 + number / 11) % words.len()])
            .collect();
        Passage::new(
            format!("p{:04}", 9999 - number),
            format!("T{}", number % 3),
            format!("{} n{number}", text.join(" ")),
        )
    };
    (from..to).map(passage).collect()
}

fn write(folder: &Path, name: &str, passages: &[Passage]) -> PathBuf {
    let row = |passage: &Passage| {
        serde_json::json!({"_id": passage.id, "title": passage.title, "text": passage.text})
            .to_string()
    };
    let path = folder.join(name);
    fs::write(
        &path,
        passages.iter().map(row).collect::<Vec<_>>().join("\n"),
    )
    .unwrap();
    path
}

struct Fixture {
    folder: tempfile::TempDir,
    index: PathBuf,
}

fn built(count: usize) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "one.jsonl", &passages(0, count));
    let index = folder.path().join("index");
    Index::build(
        &BuildRequest::new(source, CorpusFormat::BEIR, &index),
        &mut |_, _| {},
    )
    .unwrap();
    Fixture { folder, index }
}

impl Fixture {
    fn add(&self, from: usize, to: usize) {
        let source = write(self.folder.path(), "more.jsonl", &passages(from, to));
        Index::add(
            &AddRequest::new(source, CorpusFormat::BEIR, &self.index),
            &mut |_, _| {},
        )
        .unwrap();
    }

    fn embed(&self, encoder: &Arc<HashedWords>, index: impl Into<VectorIndexRequest>) -> u64 {
        Index::embed(
            &self.index,
            VectorSource::Encoder(encoder.as_ref()),
            index,
            &mut |_, _| {},
        )
        .unwrap()
        .embedded
    }

    fn open(&self, encoder: &Arc<HashedWords>) -> Result<DenseRetriever, RetrieverError> {
        DenseRetriever::open(Arc::new(Index::open(&self.index).unwrap()), encoder.clone())
    }
}

/// What exact search gives, from the definition.
fn expected(passages: &[Passage], query: &str, k: usize) -> Vec<(String, f32)> {
    let query = vector(query);
    let score = |passage: &Passage| {
        let contents = format!("\"{}\"\n{}", passage.title, passage.text);
        query
            .iter()
            .zip(vector(&contents))
            .map(|(a, b)| a * b)
            .sum::<f32>()
    };
    let mut scored: Vec<(String, f32)> = passages
        .iter()
        .map(|passage| (passage.id.clone(), score(passage)))
        .collect();
    scored.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    scored.truncate(k);
    scored
}

fn assert_like(hits: &[Hit], wanted: &[(String, f32)]) {
    assert_eq!(hits.len(), wanted.len());
    for (hit, (_, score)) in hits.iter().zip(wanted) {
        assert!(
            (hit.score - score).abs() < 1e-5,
            "{hits:?} where {wanted:?} are expected"
        );
    }
    assert!(hits.is_sorted_by(|one, other| {
        other
            .score
            .total_cmp(&one.score)
            .then_with(|| one.id.cmp(&other.id))
            .is_le()
    }));
}

fn queries() -> Vec<Query> {
    [
        "moon tide",
        "the wind and the rain",
        "n17",
        "",
        "stone river stone",
    ]
    .map(Query::new)
    .to_vec()
}

#[tokio::test]
async fn hits_are_the_best_of_all_segments_for_every_kind() {
    let fixture = built(300);
    fixture.add(300, 420);
    let all = passages(0, 420);
    let encoder = HashedWords::new("words");
    let mut fingerprints = Vec::new();
    for (kind, embedded) in [
        (VectorIndexKind::Flat, 420),
        (VectorIndexKind::Quantised, 0),
        (VectorIndexKind::Ivf, 0),
        (VectorIndexKind::Graph, 0),
    ] {
        // All lists, so that these few hits are exact.
        let nprobe = (kind == VectorIndexKind::Ivf).then_some(usize::MAX);
        let request = VectorIndexRequest {
            nprobe,
            ..kind.into()
        };
        assert_eq!(fixture.embed(&encoder, request), embedded);
        let retriever = fixture.open(&encoder).unwrap();
        let answers = retriever.search(&queries(), 8).await.unwrap();
        for (query, hits) in queries().iter().zip(&answers) {
            assert_like(hits, &expected(&all, &query.text, 8));
        }
        assert_eq!(
            retriever.search(&queries(), 1000).await.unwrap()[0].len(),
            420,
            "all there are"
        );
        assert!(
            retriever
                .search(&queries(), 0)
                .await
                .unwrap()
                .iter()
                .all(Vec::is_empty)
        );
        fingerprints.push(retriever.fingerprint());
        Index::verify(&fixture.index).unwrap();
    }
    assert_eq!(encoder.encoded(), 420, "another kind encodes nothing");
    fingerprints.sort();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 4);
}

#[tokio::test]
async fn filters_restrict_the_hits() {
    for kind in [VectorIndexKind::Quantised, VectorIndexKind::Ivf] {
        filters_restrict_the_hits_of(kind).await;
    }
}

async fn filters_restrict_the_hits_of(kind: VectorIndexKind) {
    let fixture = built(200);
    let encoder = HashedWords::new("words");
    fixture.embed(&encoder, kind);
    let retriever = fixture.open(&encoder).unwrap();
    let filter: Filter = serde_json::from_str(r#"{"title": ["T1"]}"#).unwrap();
    let kept: Vec<Passage> = passages(0, 200)
        .into_iter()
        .filter(|passage| passage.title == "T1")
        .collect();
    let asked = [
        Query::new("moon tide").filtered(filter),
        Query::new("moon tide"),
    ];
    let answers = retriever.search(&asked, 5).await.unwrap();
    assert_like(&answers[0], &expected(&kept, "moon tide", 5));
    assert!(answers[0].iter().all(|hit| hit.title == "T1"));
    assert_like(&answers[1], &expected(&passages(0, 200), "moon tide", 5));
}

#[tokio::test]
async fn only_new_passages_are_encoded_and_missing_ones_are_named() {
    let fixture = built(50);
    let encoder = HashedWords::new("words");
    let nothing = fixture.open(&encoder).err().unwrap().to_string();
    assert!(nothing.contains("forage index embed"), "{nothing}");
    assert_eq!(fixture.embed(&encoder, VectorIndexKind::Quantised), 50);
    assert_eq!(fixture.embed(&encoder, VectorIndexKind::Quantised), 0);
    assert!(
        encoder
            .encoded
            .lock()
            .unwrap()
            .iter()
            .any(|text| text.starts_with("\"T1\"\n")),
        "contents as published"
    );
    let generation = Index::open(&fixture.index).unwrap().manifest().generation;
    fixture.add(50, 80);
    let partly = fixture.open(&encoder).err().unwrap().to_string();
    assert!(
        partly.contains("seg-") && partly.contains("forage index embed"),
        "{partly}"
    );
    assert_eq!(fixture.embed(&encoder, VectorIndexKind::Quantised), 30);
    assert_eq!(encoder.encoded(), 80);
    assert_eq!(
        fixture
            .open(&encoder)
            .unwrap()
            .search(&queries(), 100)
            .await
            .unwrap()[0]
            .len(),
        80
    );
    assert_eq!(
        Index::open(&fixture.index).unwrap().manifest().generation,
        generation + 2
    );
}

#[tokio::test]
async fn vectors_of_another_encoder_are_refused_and_replaced() {
    let fixture = built(40);
    let (one, other) = (HashedWords::new("one"), HashedWords::new("other"));
    fixture.embed(&one, VectorIndexKind::Quantised);
    let reader = fixture.open(&one).unwrap();
    let refused = fixture.open(&other).err().unwrap().to_string();
    assert!(
        refused.contains("encoder one") && refused.contains("other"),
        "{refused}"
    );
    assert_eq!(fixture.embed(&other, VectorIndexKind::Flat), 40);
    assert!(fixture.open(&one).is_err());
    assert_eq!(
        fixture
            .open(&other)
            .unwrap()
            .search(&queries(), 3)
            .await
            .unwrap()[0]
            .len(),
        3
    );
    assert_eq!(
        reader.search(&queries(), 3).await.unwrap()[0].len(),
        3,
        "readers keep what they have open"
    );
    let files: Vec<String> = Index::open(&fixture.index).unwrap().manifest().segments[0]
        .files
        .keys()
        .cloned()
        .collect();
    assert_eq!(
        files
            .iter()
            .filter(|name| name.starts_with("dense-"))
            .count(),
        1,
        "the old vectors are gone: {files:?}"
    );
}

#[test]
fn a_failed_embedding_leaves_the_index_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(
        folder.path(),
        "one.jsonl",
        &[Passage::new("a", "", "fine"), Passage::new("b", "", "nan")],
    );
    let index = folder.path().join("index");
    Index::build(
        &BuildRequest::new(source, CorpusFormat::BEIR, &index),
        &mut |_, _| {},
    )
    .unwrap();
    let before = fs::read(index.join("manifest.json")).unwrap();
    let encoder = HashedWords::new("words");
    let source = VectorSource::Encoder(encoder.as_ref());
    let failure = Index::embed(&index, source, VectorIndexKind::Flat, &mut |_, _| {})
        .unwrap_err()
        .to_string();
    assert!(
        failure.contains("row 0") && failure.contains("NaN"),
        "{failure}"
    );
    assert_eq!(fs::read(index.join("manifest.json")).unwrap(), before);
    Index::verify(&index).unwrap();
    assert!(
        DenseManifest::of(Index::open(&index).unwrap().manifest(), &index)
            .unwrap()
            .is_none()
    );
}

#[test]
fn damaged_vectors_are_errors_not_answers() {
    for kind in [VectorIndexKind::Graph, VectorIndexKind::Ivf] {
        damaged_vectors_are_errors_not_answers_of(kind);
    }
}

fn damaged_vectors_are_errors_not_answers_of(kind: VectorIndexKind) {
    let fixture = built(30);
    let encoder = HashedWords::new("words");
    fixture.embed(&encoder, kind);
    let index = Arc::new(Index::open(&fixture.index).unwrap());
    let segment = &index.manifest().segments[0];
    for name in segment
        .files
        .keys()
        .filter(|name| name.starts_with("dense-"))
    {
        let path = fixture.index.join(&segment.name).join(name);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
        assert!(Index::open(&fixture.index).is_err(), "{name}");
        assert!(
            DenseRetriever::open(Arc::clone(&index), encoder.clone()).is_err(),
            "{name}"
        );
        fs::remove_file(&path).unwrap();
        assert!(
            DenseRetriever::open(Arc::clone(&index), encoder.clone()).is_err(),
            "{name}"
        );
        fs::write(&path, bytes).unwrap();
    }
}

/// Vectors are read, and lists written, under names of the manifest.
#[test]
fn names_that_lead_out_of_the_index_are_refused() {
    let fixture = built(30);
    fixture.embed(&HashedWords::new("words"), VectorIndexKind::Ivf);
    let mut manifest = Index::open(&fixture.index).unwrap().manifest().clone();
    let dense = manifest.dense.clone().unwrap();
    let segment = manifest.segments[0].name.clone();
    let mut refused = |changed, part: &str| {
        manifest.dense = Some(changed);
        let failure = DenseManifest::of(&manifest, &fixture.index).unwrap_err();
        assert!(failure.to_string().contains(part), "{failure}");
    };
    for folder in ["../dense", "/tmp", "", ".", "..", "one/other"] {
        let mut changed = dense.clone();
        changed["folders"][segment.as_str()] = folder.into();
        refused(changed, "not the name of a folder");
    }
    let mut changed = dense.clone();
    changed["folders"] = serde_json::json!({});
    refused(changed, "lists and no vectors");
}

#[tokio::test]
async fn lists_and_probes_can_be_chosen_and_stay() {
    let fixture = built(300);
    let encoder = HashedWords::new("words");
    let embed = |lists, nprobe| {
        let request = VectorIndexRequest {
            kind: VectorIndexKind::Ivf,
            lists,
            nprobe,
        };
        let source = VectorSource::Encoder(encoder.as_ref());
        let summary = Index::embed(&fixture.index, source, request, &mut |_, _| {}).unwrap();
        Index::verify(&fixture.index).unwrap();
        let index = Index::open(&fixture.index).unwrap();
        let files = &index.manifest().segments[0].files;
        let lists: Vec<String> = files
            .keys()
            .filter_map(|name| name.split_once("/lists-"))
            .map(|(_, lists)| lists.to_owned())
            .collect();
        let probing = summary.dense.ivf.values().next().copied().unwrap();
        (probing, lists, index.manifest().generation)
    };
    // 4 sqrt(300) = 69.3
    let (own, files, generation) = embed(None, None);
    assert_eq!((own.lists, files), (69, vec!["69.bin".to_owned()]));
    assert!(
        own.recall >= 0.99 && (1..=69).contains(&own.nprobe),
        "{own:?}"
    );
    assert_eq!(embed(None, None).2, generation, "nothing to do");
    let one = fixture.open(&encoder).unwrap().fingerprint();
    let (fewer, files, _) = embed(Some(20), None);
    assert_eq!(
        (fewer.lists, files),
        (20, vec!["20.bin".to_owned()]),
        "the old lists are gone"
    );
    let (read, ..) = embed(None, Some(1));
    assert_eq!((read.lists, read.nprobe), (20, 1));
    assert!(read.recall < fewer.recall);
    let other = fixture.open(&encoder).unwrap().fingerprint();
    assert_ne!(one, other);
    let (kept, _, generation) = embed(None, None);
    assert_eq!(kept, read, "what was chosen stays");
    assert_eq!(embed(Some(20), Some(1)).2, generation);
    let (most, ..) = embed(Some(1000), Some(1000));
    assert_eq!((most.lists, most.nprobe, most.recall), (300, 300, 1.0));
    assert_ne!(fixture.open(&encoder).unwrap().fingerprint(), other);
    // Passages that were added get lists of their own.
    fixture.add(300, 340);
    let (_, _, _) = embed(None, None);
    let answers = fixture
        .open(&encoder)
        .unwrap()
        .search(&queries(), 8)
        .await
        .unwrap();
    for (query, hits) in queries().iter().zip(&answers) {
        assert_like(hits, &expected(&passages(0, 340), &query.text, 8));
    }
}

#[tokio::test]
async fn a_caller_who_gives_up_ends_no_search_of_another() {
    let fixture = built(100);
    let encoder = HashedWords::new("words");
    fixture.embed(&encoder, VectorIndexKind::Flat);
    let retriever = fixture.open(&encoder).unwrap();
    let alone = retriever.search(&queries(), 4).await.unwrap();
    let (waited, mut given_up) = (queries(), queries());
    for query in &mut given_up {
        query.cancel = CancelFlag::when(|| true);
    }
    let (answers, failure) =
        tokio::join!(retriever.search(&waited, 4), retriever.search(&given_up, 8));
    assert_eq!(answers.unwrap(), alone);
    let failure = failure.unwrap_err();
    assert!(matches!(failure.root(), RetrieverError::Cancelled));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_callers_share_batches_and_failures_are_typed() {
    let fixture = built(100);
    let encoder = HashedWords::new("words");
    fixture.embed(&encoder, VectorIndexKind::Quantised);
    let retriever = Arc::new(fixture.open(&encoder).unwrap());
    let alone = retriever.search(&queries(), 4).await.unwrap();
    let before = encoder.calls.load(Ordering::SeqCst);
    let ask = |k: usize| {
        let retriever = Arc::clone(&retriever);
        tokio::spawn(async move { retriever.search(&queries(), k).await })
    };
    let tasks: Vec<_> = (0..60)
        .map(|number| (number % 4 + 1, ask(number % 4 + 1)))
        .collect();
    for (k, task) in tasks {
        let answers = task.await.unwrap().unwrap();
        for (answer, whole) in answers.iter().zip(&alone) {
            assert_eq!(answer, &whole[..k]);
        }
    }
    let calls = encoder.calls.load(Ordering::SeqCst) - before;
    assert!(calls < 60, "{calls} calls for 60 callers");

    let failing = ["fail", "panic", "nan"].map(|text| {
        let retriever = Arc::clone(&retriever);
        async move { retriever.search(&[Query::new(text)], 3).await.unwrap_err() }
    });
    let [failed, panicked, no_number] = failing;
    assert!(matches!(failed.await.root(), RetrieverError::Model { .. }));
    assert!(matches!(panicked.await.root(), RetrieverError::Stopped));
    assert!(matches!(
        no_number.await.root(),
        RetrieverError::Vectors { .. }
    ));
    assert_eq!(
        retriever.search(&queries(), 4).await.unwrap(),
        alone,
        "the thread lives on"
    );

    let watched = Arc::downgrade(&encoder);
    drop((encoder, retriever));
    for _ in 0..200 {
        if watched.upgrade().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the thread of the retriever did not end");
}
