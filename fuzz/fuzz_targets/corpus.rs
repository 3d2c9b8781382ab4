//! Every corpus format over arbitrary bytes: JSON lines, gzip, parquet and markdown, as their first bytes decide.
//!
//! The first byte, divided by 3, chooses by its remainder what the rest is: 0 markdown, 1 lines to be packed with gzip first, 2 the file
//! as it is.
#![no_main]

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use forage_retriever::{CorpusFormat, CorpusReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: quiet(), |data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder");
    let path = folder.path().join(if kind % 3 == 0 { "page.md" } else { "corpus.jsonl" });
    let packed = if kind % 3 == 1 { gzip(bytes) } else { bytes.to_vec() };
    std::fs::write(&path, packed).expect("room for a small file");
    for format in CorpusFormat::all() {
        check(&path, format);
    }
    if let Err(error) = CorpusFormat::detect(&path) {
        check_message(&error.to_string());
    }
});

/// Panics of the parquet crate are caught by the reader, which must answer with an error. libFuzzer's hook would abort at
/// them before that; a panic that nobody catches still ends the run.
fn quiet() {
    std::panic::set_hook(Box::new(|info| {
        let is_parquet = info
            .location()
            .is_some_and(|at| at.file().contains("parquet"));
        if !is_parquet {
            eprintln!("{info}");
        }
    }));
}

fn check(path: &Path, format: CorpusFormat) {
    let Ok(mut reader) = CorpusReader::open(path, format) else {
        return;
    };
    let mut last = 0;
    while let Some(passage) = reader.next() {
        match passage {
            Ok(passage) => {
                assert!(!passage.id.is_empty());
                assert!(
                    passage
                        .fields
                        .iter()
                        .all(|(name, value)| name == "page" || value.len() <= 4096)
                );
                assert!(reader.line() >= last, "lines go backwards");
                last = reader.line();
            }
            Err(error) => {
                check_message(&error.to_string());
                assert!(reader.next().is_none(), "reading goes on after an error");
            }
        }
    }
}

fn check_message(message: &str) {
    assert!(message.contains("; "), "no fix in `{message}`");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}
