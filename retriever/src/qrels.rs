//! Relevance judgements (TREC and BEIR).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use forage_contracts::{Cell, RowFault};

use crate::error::ReadError;
use crate::rows::{RowReader, each_line, is_parquet};

/// A judgement and its line: query, passage, grade.
type Judgement = (u64, String, String, i32);

const TREC: &str = "TREC rows are `qid 0 docid grade`; BEIR files begin with the header `query-id corpus-id score`";
const BEIR: &str = "BEIR rows are query-id, corpus-id, score, separated by tabs";
const PARQUET: &str = "parquet judgements have the columns `query-id`, `corpus-id` and `score`";

/// Reads judgements, grades by query id and passage id, in one of three forms, told apart by the first bytes and the first line; text plain or gzip.
///
/// TREC: `qid iteration docid grade`, separated by blanks. BEIR: `query-id corpus-id score` under a header, separated by
/// tabs, or by blanks where a line has no tab; or parquet with these columns. Grades are whole numbers, also written `1.0`;
/// negative ones are kept. A judgement that stands twice, as in some published files, counts once and is reported as a
/// warning (`tracing`).
///
/// # Errors
/// A missing or unreadable file, a line that does not fit, a pair with two grades, or no judgement at all.
pub fn read_qrels(path: &Path) -> Result<BTreeMap<String, BTreeMap<String, i32>>, ReadError> {
    let judgements = if is_parquet(path)? {
        parquet_judgements(path)?
    } else {
        text_judgements(path)?
    };
    if judgements.is_empty() {
        return Err(ReadError::Empty {
            path: path.to_owned(),
            what: "judgements",
        });
    }
    let mut judged: BTreeMap<(String, String), (u64, i32)> = BTreeMap::new();
    let mut repeated = 0_u64;
    for (second, query, document, other) in judgements {
        match judged.entry((query, document)) {
            Entry::Vacant(pair) => {
                pair.insert((second, other));
            }
            Entry::Occupied(pair) => {
                let &(first, grade) = pair.get();
                if grade != other {
                    let (query, document) = pair.remove_entry().0;
                    return Err(ReadError::Contradiction {
                        path: path.to_owned(),
                        query,
                        document,
                        first,
                        grade,
                        second,
                        other,
                    });
                }
                repeated += 1;
            }
        }
    }
    if repeated > 0 {
        let path = path.display();
        tracing::warn!(%path, repeated, "judgements that stand twice count once");
    }
    let mut qrels: BTreeMap<String, BTreeMap<String, i32>> = BTreeMap::new();
    for ((query, document), (_, grade)) in judged {
        qrels.entry(query).or_default().insert(document, grade);
    }
    Ok(qrels)
}

fn text_judgements(path: &Path) -> Result<Vec<Judgement>, ReadError> {
    let mut judgements = Vec::new();
    let mut is_beir = None;
    each_line(path, |line, text| {
        if is_beir.is_none() {
            is_beir = Some(is_beir_header(text));
            if is_beir == Some(true) {
                return Ok(());
            }
        }
        let (query, document, grade) = if is_beir == Some(true) {
            parse_beir(text)?
        } else {
            parse_trec(text)?
        };
        judgements.push((line, query.to_owned(), document.to_owned(), grade));
        Ok(())
    })?;
    Ok(judgements)
}

fn parquet_judgements(path: &Path) -> Result<Vec<Judgement>, ReadError> {
    let mut judgements = Vec::new();
    let mut rows = RowReader::open(path)?;
    while let Some(mut row) = rows.next_row()? {
        let mut id = |name: &str| {
            let other = name.replace('-', "_");
            let known = if row.has(&other) { &other } else { name };
            row.id(known, PARQUET)
        };
        let ids = id("query-id").and_then(|query| Ok((query, id("corpus-id")?)));
        let grade = match row.take("score") {
            Some(Cell::Number(grade)) => grade.to_string(),
            Some(Cell::Text(grade)) => grade.into_owned(),
            _ => String::new(),
        };
        let parsed =
            ids.and_then(|(query, document)| Ok((query, document, parse_grade(&grade, PARQUET)?)));
        let (query, document, grade) = parsed.map_err(|fault| rows.fault(fault))?;
        judgements.push((rows.number(), query, document, grade));
    }
    Ok(judgements)
}

/// Three columns whose first is a name for the query: `query-id`, `query_id`, `qid`, `query`, quoted or not.
fn is_beir_header(text: &str) -> bool {
    let columns = beir_columns(text);
    let [name, _, grade] = columns.as_slice() else {
        return false;
    };
    let name = name
        .trim_matches('"')
        .to_ascii_lowercase()
        .replace('_', "-");
    matches!(name.as_str(), "query-id" | "qid" | "query") && parse_grade(grade, BEIR).is_err()
}

fn beir_columns(text: &str) -> Vec<&str> {
    if text.contains('\t') {
        text.split('\t').map(str::trim).collect()
    } else {
        text.split_whitespace().collect()
    }
}

fn parse_trec(text: &str) -> Result<(&str, &str, i32), RowFault> {
    let columns: Vec<&str> = text.split_whitespace().collect();
    let [query, _, document, grade] = columns.as_slice() else {
        let what = format!("{} columns where 4 are expected", columns.len());
        return Err(RowFault::new(what, TREC));
    };
    Ok((query, document, parse_grade(grade, TREC)?))
}

fn parse_beir(text: &str) -> Result<(&str, &str, i32), RowFault> {
    let columns = beir_columns(text);
    let [query, document, grade] = columns.as_slice() else {
        let what = format!("{} columns where 3 are expected", columns.len());
        return Err(RowFault::new(what, BEIR));
    };
    if query.is_empty() || document.is_empty() {
        return Err(RowFault::new("an id is empty", BEIR));
    }
    Ok((query, document, parse_grade(grade, BEIR)?))
}

fn parse_grade(text: &str, fix: &'static str) -> Result<i32, RowFault> {
    let whole = text
        .split_once('.')
        .filter(|(_, fraction)| fraction.bytes().all(|digit| digit == b'0'));
    let whole = whole.map_or(text, |(whole, _)| whole);
    whole
        .parse()
        .map_err(|_| RowFault::new(format!("grade `{text}` is not a whole number"), fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::QueryRecord;

    fn with_file<T>(
        content: &str,
        read: impl Fn(&Path) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, content).unwrap();
        read(&path)
    }

    #[test]
    fn both_forms_of_judgements() {
        let trec = with_file("q1 0 d1 2\nq1\t0\td2\t0\n\nq2 0 d1 -1\n", read_qrels).unwrap();
        let beir = with_file(
            "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\r\nq2\td1\t-1\n",
            read_qrels,
        )
        .unwrap();
        assert_eq!(trec, beir);
        assert_eq!(trec["q1"]["d1"], 2);
    }

    #[test]
    fn headers_and_grades_as_people_write_them() {
        let expected = with_file("q1 0 d1 2\nq2 0 d3 0\n", read_qrels).unwrap();
        for header in [
            "query-id\tcorpus-id\tscore",
            "query_id corpus_id score",
            "\"qid\"\t\"docid\"\t\"rel\"",
        ] {
            let content = format!("\u{feff}{header}\r\nq1\td1\t2.0\r\nq2 d3 0\r\n");
            assert_eq!(
                with_file(&content, read_qrels).unwrap(),
                expected,
                "{header}"
            );
        }
        let spaced = with_file("query-id\tcorpus-id\tscore\nq 1\td 1\t1\n", read_qrels).unwrap();
        assert_eq!(spaced["q 1"]["d 1"], 1);
        // A query of this name is not a header.
        assert_eq!(
            with_file("query 0 d1 1\n", read_qrels).unwrap()["query"]["d1"],
            1
        );
    }

    #[test]
    fn a_judgement_that_stands_twice_counts_once() {
        let twice = with_file("q1 0 d1 1\nq2 0 d1 0\nq1 0 d1 1\n", read_qrels).unwrap();
        assert_eq!(
            twice,
            with_file("q1 0 d1 1\nq2 0 d1 0\n", read_qrels).unwrap()
        );
        let tabs = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t1.0\n";
        assert_eq!(with_file(tabs, read_qrels).unwrap()["q1"]["d1"], 1);
    }

    proptest::proptest! {
        #[test]
        fn written_judgements_read_back(
            pairs in proptest::collection::btree_map(("[!-~]{1,6}", "[!-~]{1,6}"), -2..4_i32, 1..30)
        ) {
            let mut expected: BTreeMap<String, BTreeMap<String, i32>> = BTreeMap::new();
            for ((query, document), &grade) in &pairs {
                expected.entry(query.clone()).or_default().insert(document.clone(), grade);
            }
            let rows = |separator: &str, middle: &str| {
                let rows = pairs.iter().map(|((query, document), grade)| {
                    format!("{query}{separator}{middle}{document}{separator}{grade}\n")
                });
                rows.collect::<Vec<_>>().concat()
            };
            proptest::prop_assert_eq!(&with_file(&rows(" ", "0 "), read_qrels).unwrap(), &expected);
            let beir = format!("query-id\tcorpus-id\tscore\n{}", rows("\t", ""));
            proptest::prop_assert_eq!(&with_file(&beir, read_qrels).unwrap(), &expected);
        }
    }

    #[test]
    fn faults_name_the_line() {
        let cases = [
            (
                "q1 0 d1 1\nq1 d2 1\n",
                "line 2: 3 columns where 4 are expected; TREC rows are",
            ),
            (
                "q1 0 d1 high\n",
                "line 1: grade `high` is not a whole number",
            ),
            (
                "q1 0 d1 1\nq1 0 d1 2\n",
                "query `q1` and passage `d1` have grade 1 on line 1 and grade 2 on line 2; remove one",
            ),
            (
                "query-id\tcorpus-id\tscore\nq1 d1\n",
                "line 2: 2 columns where 3 are expected; BEIR rows",
            ),
            (
                "query-id\tcorpus-id\tscore\nq1\t\t1\n",
                "line 2: an id is empty; BEIR rows",
            ),
            (" \u{b}\n", "line 1: 0 columns where 4 are expected"),
            ("q1 0 d1 0.5\n", "line 1: grade `0.5` is not a whole number"),
            ("query-id\tcorpus-id\tscore\n", "holds no judgements"),
        ];
        for (content, expected) in cases {
            let message = with_file(content, read_qrels).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_folder_is_no_file_of_judgements() {
        let folder = tempfile::tempdir().unwrap();
        let message = read_qrels(folder.path()).unwrap_err().to_string();
        let place = format!(
            "cannot read `{}`; check what is there",
            folder.path().display()
        );
        assert!(message.starts_with(&place), "{message}");
    }

    #[test]
    fn queries_ignore_other_fields() {
        let queries = with_file(
            "{\"_id\":\"1\",\"text\":\"a b\",\"answers\":[\"x\"]}\n",
            QueryRecord::read_all,
        )
        .unwrap();
        assert_eq!(
            (queries[0].id.as_str(), queries[0].text.as_str()),
            ("1", "a b")
        );
        let twice = "{\"_id\":\"1\",\"text\":\"a\"}\n{\"_id\":\"1\",\"text\":\"b\"}\n";
        let message = with_file(twice, QueryRecord::read_all)
            .unwrap_err()
            .to_string();
        assert!(message.contains("line 1 and again on line 2"), "{message}");
    }
}
