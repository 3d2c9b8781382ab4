//! Vectors that another program made: rows at hand, `.npy` arrays, FAISS indexes.

use std::fs;
use std::path::Path;

use forage_retriever::dense::{VectorIndexKind, VectorSource};
use forage_retriever::{BuildRequest, CorpusFormat, Index, Passage, Retriever};

use super::{
    DIMENSION, HashedWords, assert_like, built, expected, passages, queries, vector, write,
};

/// A version 1 `.npy` array of f4.
fn npy(path: &Path, rows: &[f32], dimension: usize) {
    let shape = format!("({}, {dimension})", rows.len() / dimension);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    header.push_str(&" ".repeat(64 - (11 + header.len()) % 64));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(rows.iter().flat_map(|number| number.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn vector_files_of_other_programs_are_imported() {
    let fixture = built(30);
    fixture.add(30, 45);
    let all = passages(0, 45);
    let contents = |passage: &Passage| format!("\"{}\"\n{}", passage.title, passage.text);
    let rows: Vec<f32> = all
        .iter()
        .flat_map(|passage| vector(&contents(passage)))
        .collect();
    let file = fixture.folder.path().join("rows.npy");
    npy(&file, &rows[DIMENSION..], DIMENSION);
    let import = || {
        Index::embed(
            &fixture.index,
            VectorSource::Files(std::slice::from_ref(&file)),
            VectorIndexKind::Quantised,
            &mut |_, _| {},
        )
    };
    assert!(
        import()
            .unwrap_err()
            .to_string()
            .contains("44 rows for 45 passages")
    );
    npy(&file, &rows, DIMENSION);
    let summary = import().unwrap();
    assert_eq!(
        (summary.embedded, summary.dense.encoder, summary.dense.unit),
        (45, None, true)
    );
    let answers = fixture
        .open(&HashedWords::new("words"))
        .unwrap()
        .search(&queries(), 6)
        .await
        .unwrap();
    for (query, hits) in queries().iter().zip(&answers) {
        assert_like(hits, &expected(&all, &query.text, 6));
    }
    // Another index over them needs neither the file nor an encoder.
    fs::remove_file(&file).unwrap();
    let vectors = |index: &Index| {
        let files = &index.manifest().segments[0].files;
        let vectors = files
            .iter()
            .find(|(name, _)| name.ends_with("/vectors.f32"));
        vectors.map(|(name, record)| (name.clone(), record.blake3.clone()))
    };
    let before = vectors(&Index::open(&fixture.index).unwrap());
    let again = |kind: VectorIndexKind| {
        Index::embed(&fixture.index, VectorSource::Kept, kind, &mut |_, _| {})
    };
    for kind in [VectorIndexKind::Ivf, VectorIndexKind::Flat] {
        let summary = again(kind).unwrap();
        assert_eq!((summary.embedded, summary.kind()), (0, kind));
        assert_eq!(vectors(&Index::open(&fixture.index).unwrap()), before);
        let retriever = fixture.open(&HashedWords::new("words")).unwrap();
        let answers = retriever.search(&queries(), 6).await.unwrap();
        for (query, hits) in queries().iter().zip(&answers) {
            assert_like(hits, &expected(&all, &query.text, 6));
        }
    }
    fixture.add(45, 50);
    let missing = again(VectorIndexKind::Ivf).unwrap_err().to_string();
    assert!(missing.contains("added later"), "{missing}");
    let none = built(3);
    let none = Index::embed(
        &none.index,
        VectorSource::Kept,
        VectorIndexKind::Flat,
        &mut |_, _| {},
    );
    assert!(none.unwrap_err().to_string().contains("none yet"));
    let left: Vec<String> = fs::read_dir(fixture.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_flat_index_by_distance_needs_vectors_of_one_norm() {
    let folder = tempfile::tempdir().unwrap();
    let source = write(folder.path(), "one.jsonl", &passages(0, 5));
    let index = folder.path().join("index");
    Index::build(
        &BuildRequest::new(source, CorpusFormat::BEIR, &index),
        &mut |_, _| {},
    )
    .unwrap();
    let fixture = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/vectors")
            .join(name)
    };
    let import = |name: &str| {
        Index::embed(
            &index,
            VectorSource::Files(&[fixture(name)]),
            VectorIndexKind::Flat,
            &mut |_, _| {},
        )
    };
    assert!(
        import("l2.faiss")
            .unwrap_err()
            .to_string()
            .contains("distance")
    );
    let summary = import("ip.faiss").unwrap();
    assert_eq!(
        (
            summary.embedded,
            summary.dense.dimension,
            summary.dense.unit
        ),
        (5, 4, false)
    );
}
