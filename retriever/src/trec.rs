//! Relevance judgements (TREC and BEIR) and TREC run files.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use crate::error::ReadError;
use crate::lines::LineReader;

/// Grades by query id, then passage id. Ordered, so that iteration is deterministic.
pub type Qrels = BTreeMap<String, BTreeMap<String, i32>>;

/// Reads judgements in either form, told apart by the first line; plain or gzip.
///
/// TREC: `qid iteration docid grade`, separated by blanks. BEIR: tab-separated `query-id corpus-id score` under a header.
///
/// # Errors
/// A missing or unreadable file, a line that does not fit, a pair judged twice, or no judgement at all.
pub fn read_qrels(path: &Path) -> Result<Qrels, ReadError> {
    let mut reader = LineReader::open(path)?;
    let mut lines_of: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut qrels = Qrels::new();
    let mut is_beir = false;
    while let Some((line, text)) = reader.next_text()? {
        if lines_of.is_empty() && !is_beir && text.starts_with("query-id") {
            is_beir = true;
            continue;
        }
        let parsed = if is_beir { parse_beir(text) } else { parse_trec(text) };
        let (query, document, grade) = match parsed {
            Ok((query, document, grade)) => (query.to_owned(), document.to_owned(), grade),
            Err(what) => {
                let mend = if is_beir {
                    "BEIR rows are query-id, corpus-id, score, separated by tabs"
                } else {
                    "TREC rows are `qid 0 docid grade`; BEIR files begin with the header `query-id corpus-id score`"
                };
                return Err(reader.malformed(line, what, mend));
            }
        };
        if let Some(first) = lines_of.insert((query.clone(), document.clone()), line) {
            let id = format!("{query} {document}");
            return Err(ReadError::DuplicateId { path: path.to_owned(), id, first, second: line });
        }
        qrels.entry(query).or_default().insert(document, grade);
    }
    if qrels.is_empty() {
        return Err(ReadError::Empty { path: path.to_owned(), what: "judgements" });
    }
    Ok(qrels)
}

fn parse_trec(text: &str) -> Result<(&str, &str, i32), String> {
    let columns: Vec<&str> = text.split_whitespace().collect();
    let [query, _, document, grade] = columns.as_slice() else {
        return Err(format!("{} columns where 4 are expected", columns.len()));
    };
    Ok((query, document, parse_grade(grade)?))
}

fn parse_beir(text: &str) -> Result<(&str, &str, i32), String> {
    let columns: Vec<&str> = text.split('\t').map(str::trim).collect();
    let [query, document, grade] = columns.as_slice() else {
        return Err(format!("{} columns where 3 are expected", columns.len()));
    };
    Ok((query, document, parse_grade(grade)?))
}

fn parse_grade(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| format!("grade `{text}` is not a whole number"))
}

/// Writes one query's ranking as TREC run lines: `qid Q0 docid rank score tag`, ranks from 1.
///
/// `ranking` yields passage ids and scores, best first. Scores are printed so that they read back exactly.
///
/// # Errors
/// Whatever the writer fails with.
pub fn write_run<'a>(
    out: &mut dyn Write,
    query_id: &str,
    ranking: impl IntoIterator<Item = (&'a str, f32)>,
    tag: &str,
) -> io::Result<()> {
    for (rank, (document, score)) in (1..).zip(ranking) {
        writeln!(out, "{query_id} Q0 {document} {rank} {score} {tag}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beir::read_queries;

    fn with_file<T>(content: &str, read: impl Fn(&Path) -> Result<T, ReadError>) -> Result<T, ReadError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, content).unwrap();
        read(&path)
    }

    #[test]
    fn both_forms_of_judgements() {
        let trec = with_file("q1 0 d1 2\nq1\t0\td2\t0\n\nq2 0 d1 -1\n", read_qrels).unwrap();
        let beir = with_file("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\r\nq2\td1\t-1\n", read_qrels).unwrap();
        assert_eq!(trec, beir);
        assert_eq!(trec["q1"]["d1"], 2);
    }

    #[test]
    fn faults_name_the_line() {
        let cases = [
            ("q1 0 d1 1\nq1 d2 1\n", "line 2: 3 columns where 4 are expected; TREC rows are"),
            ("q1 0 d1 high\n", "line 1: grade `high` is not a whole number"),
            ("q1 0 d1 1\nq1 0 d1 2\n", "id `q1 d1` is on line 1 and again on line 2"),
            ("query-id\tcorpus-id\tscore\nq1 d1 1\n", "line 2: 1 columns where 3 are expected; BEIR rows"),
            ("query-id\tcorpus-id\tscore\n", "holds no judgements"),
        ];
        for (content, expected) in cases {
            let message = with_file(content, read_qrels).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn queries_ignore_other_fields() {
        let queries = with_file("{\"_id\":\"1\",\"text\":\"a b\",\"answers\":[\"x\"]}\n", read_queries).unwrap();
        assert_eq!((queries[0].id.as_str(), queries[0].text.as_str()), ("1", "a b"));
        let twice = "{\"_id\":\"1\",\"text\":\"a\"}\n{\"_id\":\"1\",\"text\":\"b\"}\n";
        let message = with_file(twice, read_queries).unwrap_err().to_string();
        assert!(message.contains("line 1 and again on line 2"), "{message}");
    }

    #[test]
    fn run_lines() {
        let mut out = Vec::new();
        write_run(&mut out, "q1", [("d2", 1.5), ("d1", 0.1)], "forage").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "q1 Q0 d2 1 1.5 forage\nq1 Q0 d1 2 0.1 forage\n");
    }
}
