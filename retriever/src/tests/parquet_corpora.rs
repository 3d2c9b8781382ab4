//! Corpora in parquet as `pyarrow` writes them (`fixtures/corpora/make.py`), and damaged ones.

use std::path::{Path, PathBuf};

use forage_retriever::{CorpusFormat, CorpusReader, Passage, ReadError};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/corpora")
        .join(name)
}

fn read(path: &Path) -> Result<Vec<Passage>, ReadError> {
    CorpusReader::open(path, CorpusFormat::detect(path)?)?.collect()
}

#[test]
fn codecs_pages_and_row_groups_read_the_same() {
    let expected = std::fs::read_to_string(fixture("expected.json")).unwrap();
    let expected: Vec<Passage> = serde_json::from_str(&expected).unwrap();
    for codec in ["snappy", "zstd", "gzip", "none"] {
        let path = fixture(&format!("beir-{codec}.parquet"));
        assert_eq!(CorpusFormat::detect(&path).unwrap(), CorpusFormat::BEIR);
        assert_eq!(read(&path).unwrap(), expected, "{codec}");
    }
}

#[test]
fn shards_and_pages() {
    let folder = fixture("shards");
    assert_eq!(
        CorpusFormat::detect(&folder).unwrap(),
        CorpusFormat::SEARCH_R1
    );
    let mut reader = CorpusReader::open(&folder, CorpusFormat::SEARCH_R1).unwrap();
    for number in 0..6_u64 {
        let passage = reader.next().unwrap().unwrap();
        assert_eq!(
            (passage.id, reader.line()),
            (number.to_string(), number + 1)
        );
        assert_eq!(passage.title, format!("Title {}", number % 5));
        assert!(passage.text.starts_with(&format!("Text {number}: n")));
    }
    assert!(reader.next().is_none());
    let page = |id: &str, text: &str| {
        Passage::new(id, "P", text)
            .with_field("page", "p")
            .with_field("url", "u")
    };
    let expected = [
        page("p#0", "Intro."),
        page("p#1", "Part\nMore.").with_field("section", "Part"),
    ];
    assert_eq!(read(&fixture("pages.parquet")).unwrap(), expected);
}

#[test]
fn faults_name_file_row_and_mend() {
    let message = read(&fixture("empty.parquet")).unwrap_err().to_string();
    assert!(message.contains("holds no passages"), "{message}");
    let message = read(&fixture("lists.parquet")).unwrap_err().to_string();
    assert!(
        message.contains("no column holds single values"),
        "{message}"
    );
    let reader = CorpusReader::open(&fixture("pages.parquet"), CorpusFormat::BEIR).unwrap();
    let message = reader.last().unwrap().unwrap_err().to_string();
    assert!(
        message.contains("pages.parquet` row 1: field `_id` is missing; BEIR rows are"),
        "{message}"
    );
}

#[test]
fn cut_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(fixture("beir-snappy.parquet")).unwrap();
    let path = folder.path().join("cut.parquet");
    for length in (4..whole.len()).step_by(97) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(
            message.contains("cut.parquet`: not a readable parquet file"),
            "{message}"
        );
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(fixture("beir-none.parquet")).unwrap();
    let path = folder.path().join("flipped.parquet");
    for at in (0..whole.len()).step_by(53) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&path, &bytes).unwrap();
        drop(read(&path));
    }
}
