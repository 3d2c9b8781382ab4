//! Published figures on real data; skipped where `../../shared/data` is not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forage_retriever::{Bm25Retriever, BuildRequest, CorpusFormat, Index, QueryRecord, read_qrels};

fn data(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data")
        .join(name);
    path.is_dir().then_some(path)
}

/// The `ndcg_cut` of `trec_eval`: linear gains, discount `log2(rank + 1)`, negative grades count as zero.
fn ndcg(ranking: &[String], grades: &BTreeMap<String, i32>, cut: usize) -> f64 {
    let gain = |grades: &mut dyn Iterator<Item = i32>| -> f64 {
        (2_u32..)
            .zip(grades.take(cut))
            .map(|(next, grade)| f64::from(grade.max(0)) / f64::from(next).log2())
            .sum()
    };
    let found = gain(
        &mut ranking
            .iter()
            .map(|id| grades.get(id).copied().unwrap_or(0)),
    );
    let mut ideal: Vec<i32> = grades.values().copied().collect();
    ideal.sort_unstable_by(|one, other| other.cmp(one));
    let best = gain(&mut ideal.into_iter());
    if best > 0.0 { found / best } else { 0.0 }
}

fn recall(ranking: &[String], grades: &BTreeMap<String, i32>, cut: usize) -> f64 {
    let relevant = grades.values().filter(|&&grade| grade > 0).count();
    let found = ranking
        .iter()
        .take(cut)
        .filter(|id| grades.get(*id).is_some_and(|&grade| grade > 0))
        .count();
    if relevant > 0 {
        found as f64 / relevant as f64
    } else {
        0.0
    }
}

struct Figures {
    ndcg_10: f64,
    recall_100: f64,
    recall_1000: f64,
}

/// Builds an index of the folder's corpus and averages over the judged queries.
#[allow(
    clippy::print_stdout,
    reason = "measured figures belong in the test's output"
)]
fn evaluate(folder: &Path, queries: &str, qrels: &str) -> Figures {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("index");
    let request = BuildRequest::new(folder, CorpusFormat::BEIR, &out);
    Index::build(&request, &mut |_, _| {}).unwrap();
    let retriever = Bm25Retriever::open(&out).unwrap();

    let queries = QueryRecord::read_all(&folder.join(queries)).unwrap();
    let qrels = read_qrels(&folder.join(qrels)).unwrap();
    let mut sums = [0.0; 3];
    for query in &queries {
        let Some(grades) = qrels.get(&query.id) else {
            continue;
        };
        let hits = retriever.search_one(&query.text, 1000).unwrap();
        let ranking: Vec<String> = hits.into_iter().map(|hit| hit.id).collect();
        let top = retriever.search_one(&query.text, 10).unwrap();
        assert!(
            top.iter().map(|hit| &hit.id).eq(ranking.iter().take(10)),
            "a smaller k must give the same head"
        );
        sums[0] += ndcg(&ranking, grades, 10);
        sums[1] += recall(&ranking, grades, 100);
        sums[2] += recall(&ranking, grades, 1000);
    }
    let [ndcg_10, recall_100, recall_1000] = sums.map(|sum| sum / qrels.len() as f64);
    println!("nDCG@10 {ndcg_10:.4}  R@100 {recall_100:.4}  R@1000 {recall_1000:.4}");
    Figures {
        ndcg_10,
        recall_100,
        recall_1000,
    }
}

#[allow(clippy::print_stdout, reason = "a skipped test says why")]
fn skip(name: &str) {
    println!("skipped: ../../shared/data/{name} is not there");
}

#[test]
fn scifact_equals_anserini() {
    let Some(folder) = data("scifact") else {
        return skip("scifact");
    };
    let figures = evaluate(&folder, "queries.test.jsonl", "qrels.test.trec");
    let rounded = [figures.ndcg_10, figures.recall_100, figures.recall_1000]
        .map(|value| format!("{value:.4}"));
    assert_eq!(rounded, ["0.6789", "0.9253", "0.9767"]);
}

#[test]
fn xquad_is_nearly_solved() {
    let Some(folder) = data("xquad_en") else {
        return skip("xquad_en");
    };
    let figures = evaluate(&folder, "questions.jsonl", "qrels.trec");
    assert!(
        (figures.ndcg_10 - 0.968).abs() < 0.002,
        "{}",
        figures.ndcg_10
    );
}

#[test]
fn every_wiki_page_becomes_passages() {
    let Some(folder) = data("wiki_pages") else {
        return skip("wiki_pages");
    };
    let scratch = tempfile::tempdir().unwrap();
    let pages = folder.join("pages.jsonl");
    let request = BuildRequest::new(
        &pages,
        CorpusFormat::detect(&pages).unwrap(),
        scratch.path().join("index"),
    );
    let summary = Index::build(&request, &mut |_, _| {}).unwrap();
    assert!(summary.passages > 1280, "{}", summary.passages);
    let retriever = Bm25Retriever::open(&request.out).unwrap();
    let hits = retriever
        .search_one("unincorporated community Ripley County Benham Indiana", 3)
        .unwrap();
    assert_eq!(hits[0].id, "benham_indiana#0");
}
