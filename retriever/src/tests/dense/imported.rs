//! Vectors that another program made: rows at hand, `.npy` arrays, FAISS indexes.

use std::fs;
use std::path::Path;

use forage_retriever::dense::{VectorFile, VectorIndexKind, VectorSource, embed};
use forage_retriever::{BuildRequest, CorpusFormat, Index, Passage, Retriever};

use super::{
    DIMENSION, HashedWords, assert_like, built, expected, passages, queries, vector, write,
};

#[tokio::test]
async fn rows_in_corpus_order_are_taken() {
    let fixture = built(60);
    fixture.add(60, 90);
    let all = passages(0, 90);
    let contents = |passage: &Passage| format!("\"{}\"\n{}", passage.title, passage.text);
    let rows: Vec<f32> = all
        .iter()
        .flat_map(|passage| vector(&contents(passage)))
        .collect();
    let file = VectorFile::in_memory(rows.clone(), DIMENSION).unwrap();
    let summary = embed(
        &fixture.index,
        VectorSource::Rows(&file),
        VectorIndexKind::Flat,
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(
        (summary.embedded, summary.dense.encoder, summary.dense.unit),
        (90, None, true)
    );
    let encoder = HashedWords::new("words");
    let answers = fixture
        .open(&encoder)
        .unwrap()
        .search(&queries(), 6)
        .await
        .unwrap();
    for (query, hits) in queries().iter().zip(&answers) {
        assert_like(hits, &expected(&all, &query.text, 6));
    }
    let short = VectorFile::in_memory(rows[DIMENSION..].to_vec(), DIMENSION).unwrap();
    let failure = embed(
        &fixture.index,
        VectorSource::Rows(&short),
        VectorIndexKind::Flat,
        &mut |_| {},
    )
    .unwrap_err();
    assert!(
        failure.to_string().contains("89 rows for 90 passages"),
        "{failure}"
    );
}

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
    let all = passages(0, 30);
    let contents = |passage: &Passage| format!("\"{}\"\n{}", passage.title, passage.text);
    let rows: Vec<f32> = all
        .iter()
        .flat_map(|passage| vector(&contents(passage)))
        .collect();
    let file = fixture.folder.path().join("rows.npy");
    npy(&file, &rows[DIMENSION..], DIMENSION);
    let import = || {
        embed(
            &fixture.index,
            VectorSource::File(&file),
            VectorIndexKind::Quantised,
            &mut |_| {},
        )
    };
    assert!(
        import()
            .unwrap_err()
            .to_string()
            .contains("29 rows for 30 passages")
    );
    npy(&file, &rows, DIMENSION);
    assert_eq!(import().unwrap().embedded, 30);
    let answers = fixture
        .open(&HashedWords::new("words"))
        .unwrap()
        .search(&queries(), 6)
        .await
        .unwrap();
    for (query, hits) in queries().iter().zip(&answers) {
        assert_like(hits, &expected(&all, &query.text, 6));
    }
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
        &mut |_| {},
    )
    .unwrap();
    let fixture = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/vectors")
            .join(name)
    };
    let import = |name: &str| {
        embed(
            &index,
            VectorSource::File(&fixture(name)),
            VectorIndexKind::Flat,
            &mut |_| {},
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
