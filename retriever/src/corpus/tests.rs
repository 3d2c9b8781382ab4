use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

fn write(folder: &tempfile::TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn read(path: &Path, format: CorpusFormat) -> Result<Vec<Passage>, ReadError> {
    CorpusReader::open(path, format)?.collect()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

const BEIR: &str =
    "\u{feff}{\"_id\":\"a\",\"title\":\"T\",\"text\":\"x\",\"metadata\":{}}\n\n{\"_id\":7,\"text\":\"y\"}\r\n";

#[test]
fn reads_beir_from_file_folder_and_gzip() {
    let folder = tempfile::tempdir().unwrap();
    let expected = vec![Passage::new("a", "T", "x"), Passage::new("7", "", "y")];
    let gz = write(&folder, "corpus.jsonl.gz", &gzip(BEIR.as_bytes()));
    assert_eq!(read(&gz, CorpusFormat::Beir).unwrap(), expected);
    assert_eq!(read(folder.path(), CorpusFormat::Beir).unwrap(), expected);
    let plain = write(&folder, "corpus.jsonl", BEIR.as_bytes());
    assert_eq!(read(&plain, CorpusFormat::Beir).unwrap(), expected);
    assert_eq!(CorpusFormat::detect(folder.path()).unwrap(), CorpusFormat::Beir);
}

#[test]
fn reads_search_r1() {
    let folder = tempfile::tempdir().unwrap();
    let rows =
        "{\"id\":\"0\",\"contents\":\"\\\"Evan Morris\\\"\\nfirst\\nsecond\"}\n{\"id\":1,\"contents\":\"no title\"}\n";
    let path = write(&folder, "wiki.jsonl", rows.as_bytes());
    let expected = vec![Passage::new("0", "Evan Morris", "first\nsecond"), Passage::new("1", "", "no title")];
    assert_eq!(read(&path, CorpusFormat::SearchR1).unwrap(), expected);
    assert_eq!(CorpusFormat::detect(&path).unwrap(), CorpusFormat::SearchR1);
}

#[test]
fn numbers_the_passages_of_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let row = "{\"id\":\"benham\",\"title\":\"Benham\",\"content\":\"# Benham\\n\\nOne.\\n\\n## History\\n\\nTwo.\\n\",\"sections\":1}";
    let path = write(&folder, "pages.jsonl", row.as_bytes());
    let expected =
        vec![Passage::new("benham#0", "Benham", "One."), Passage::new("benham#1", "Benham", "History\nTwo.")];
    assert_eq!(read(&path, CorpusFormat::Pages).unwrap(), expected);
}

#[test]
fn errors_name_file_line_fault_and_mend() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, &str); 5] = [
        ("{\"_id\":\"a\",\"text\":\"x\"}\n{\"_id\":\"b\"}\n", "line 2: field `text` is missing; BEIR rows are"),
        ("{\"_id\":null,\"text\":\"x\"}\n", "line 1: field `_id` is null, not a non-empty string"),
        ("{\"_id\":\"a\",\"text\":[1]}\n", "line 1: field `text` is an array, not a string"),
        ("\n\n{\"_id\":\n", "line 3: not a JSON object (EOF"),
        ("", "holds no passages"),
    ];
    for (content, expected) in cases {
        let path = write(&folder, "corpus.jsonl", content.as_bytes());
        let message = read(&path, CorpusFormat::Beir).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("corpus.jsonl"), "{message}");
    }
    let message = read(&folder.path().join("none.jsonl"), CorpusFormat::Beir).unwrap_err().to_string();
    assert!(message.contains("no file at") && message.contains("none.jsonl"), "{message}");
}

#[test]
fn a_cut_gzip_is_an_error_not_a_short_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (0..5000)
        .map(|id| format!("{{\"_id\":\"{id}\",\"text\":\"word {}\"}}\n", id * 7919))
        .collect::<Vec<_>>()
        .concat();
    let whole = gzip(rows.as_bytes());
    let path = write(&folder, "cut.jsonl.gz", &whole[..whole.len() / 2]);
    let error = read(&path, CorpusFormat::Beir).unwrap_err();
    assert!(matches!(error, ReadError::Truncated { line, .. } if line > 0), "{error}");
    let path = write(&folder, "trailer.jsonl.gz", &whole[..whole.len() - 4]);
    assert!(matches!(read(&path, CorpusFormat::Beir), Err(ReadError::Truncated { .. })));
}

#[test]
fn format_names_round_trip() {
    for format in CorpusFormat::ALL {
        assert_eq!(format.name().parse::<CorpusFormat>().unwrap(), format);
        assert_eq!(serde_json::to_string(&format).unwrap(), format!("\"{format}\""));
    }
    let message = "bier".parse::<CorpusFormat>().unwrap_err().to_string();
    assert!(message.contains("beir, search-r1, pages"), "{message}");
}

#[test]
fn digest_separates_fields() {
    let digest = |id: &str, title: &str| {
        let mut hasher = CorpusHasher::new();
        hasher.update(id, title, "x");
        hasher.finish()
    };
    assert_ne!(digest("ab", "c"), digest("a", "bc"));
    assert_eq!(digest("ab", "c").len(), 64);
}
