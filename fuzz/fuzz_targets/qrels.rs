//! Judgements and queries over arbitrary bytes: text, gzip or parquet, as their first bytes say; what is read must read back the same
//! when written.
#![no_main]

use forage_retriever::{QueryRecord, read_qrels};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder");
    let path = folder.path().join("file");
    std::fs::write(&path, data).expect("room for a small file");
    if let Ok(queries) = QueryRecord::read_all(&path) {
        assert!(queries.iter().all(|query| !query.id.is_empty()));
    }
    let Ok(qrels) = read_qrels(&path) else { return };
    // Ids of parquet files may hold what separates columns and rows of text.
    let is_plain = |id: &String| id.trim() == id && !id.contains(['\t', '\n', '\r']);
    let mut ids = qrels
        .iter()
        .flat_map(|(query, grades)| std::iter::once(query).chain(grades.keys()));
    if !ids.all(is_plain) {
        return;
    }
    let rows = qrels.iter().flat_map(|(query, grades)| {
        grades
            .iter()
            .map(move |(document, grade)| format!("{query}\t{document}\t{grade}\n"))
    });
    let written = std::iter::once("query-id\tcorpus-id\tscore\n".to_owned())
        .chain(rows)
        .collect::<String>();
    std::fs::write(&path, written).expect("room for a small file");
    assert_eq!(
        read_qrels(&path).expect("what was read is well formed"),
        qrels
    );
});
