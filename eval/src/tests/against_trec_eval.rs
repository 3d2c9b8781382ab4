//! Ranking metrics against `trec_eval` (`fixtures/make_fixtures.py`, through `pytrec_eval`).

use forage_eval::RetrievalReport;
use forage_eval::retrieval::{Qrels, Rankings};
use forage_eval::stats::Bootstrap;
use serde_json::Value;

#[test]
fn every_metric_of_every_query_is_equal() -> Result<(), Box<dyn std::error::Error>> {
    let fixture: Value = serde_json::from_str(include_str!("../../tests/fixtures/ranking.json"))?;
    let qrels: Qrels = serde_json::from_value(fixture["qrels"].clone())?;
    let run: Rankings = serde_json::from_value(fixture["run"].clone())?;
    let settings = Bootstrap {
        resamples: 100,
        confidence: 0.95,
        seed: 0,
    };
    let report = RetrievalReport::of(&run, &qrels, &[1, 3, 10, 100], settings)?;
    let mut compared = 0;
    for (metric, ours) in &report.metrics {
        let Some(theirs) = trec_name(metric) else {
            continue;
        };
        for (query, value) in report.queries.iter().zip(&ours.per_query) {
            // `trec_eval -c` counts 0 for what the run leaves out; its library leaves such queries out.
            let expected = fixture["expected"]
                .get(query)
                .map_or(Some(0.0), |row| row[&theirs].as_f64());
            let expected = expected.unwrap_or(f64::NAN);
            assert!(
                (value - expected).abs() < 1e-9,
                "{query} {metric}: {value}, trec_eval {expected}"
            );
            compared += 1;
        }
    }
    assert_eq!(
        (compared, report.unanswered, report.unjudged),
        (61 * 14, 2, 1)
    );
    Ok(())
}

/// `trec_eval` has no cut reciprocal rank; at 100 every list of the fixture is whole.
fn trec_name(metric: &str) -> Option<String> {
    let Some((name, k)) = metric.split_once('@') else {
        return Some(metric.to_owned());
    };
    match name {
        "ndcg" => Some(format!("ndcg_cut_{k}")),
        "recall" => Some(format!("recall_{k}")),
        "precision" => Some(format!("P_{k}")),
        "mrr" if k == "100" => Some("recip_rank".to_owned()),
        _ => None,
    }
}
