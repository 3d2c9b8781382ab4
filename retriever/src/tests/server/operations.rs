//! What whoever runs the server sees.

use std::sync::Arc;

use forage_retriever::server::Services;
use forage_retriever::{CachedRetriever, Mode, Retriever};
use serde_json::json;

use super::support::{Running, config, corpus};

#[tokio::test]
async fn info_names_what_decides_the_answers() {
    let server = Running::small().await;
    let (status, info) = server.get("/info").await;
    assert_eq!(status, 200);
    let corpus = corpus();
    assert_eq!(info["fingerprint"], json!(corpus.fingerprint()));
    assert_eq!(info["fingerprints"]["bm25"], info["fingerprint"]);
    assert_eq!(info["passages"], 5);
    assert_eq!(info["default_mode"], "bm25");
    assert!(
        info["bm25"] == json!({"k1": 0.9, "b": 0.4})
            && info["analyzer"].is_string()
            && info["corpus_digest"].is_string()
    );
    assert!(info["modes"].as_array().unwrap().contains(&json!("bm25")));
    assert_eq!(info["limits"]["queries"], 16_384);
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let mut services = Services::of_index(corpus());
    let cache = Arc::new(CachedRetriever::new(
        Arc::clone(&services.retrievers[&Mode::BM25]),
        100,
    ));
    services
        .retrievers
        .insert(Mode::BM25, Arc::clone(&cache) as Arc<dyn Retriever>);
    services.caches = vec![cache];
    let server = Running::start(config(), services).await;
    server
        .retrieve(json!({"queries": ["moon", "wind", "sea"]}))
        .await;
    server.retrieve(json!({"queries": ["wind"]})).await;
    server.post("/retrieve", &json!({})).await;
    server.get("/doc/moon").await;
    let metrics = server.metrics().await;
    for line in [
        "forage_retriever_requests_total{route=\"retrieve\",status=\"200\"} 2",
        "forage_retriever_requests_total{route=\"retrieve\",status=\"422\"} 1",
        "forage_retriever_requests_total{route=\"doc\",status=\"200\"} 1",
        "forage_retriever_request_seconds_count{route=\"retrieve\"} 3",
        "forage_retriever_queries_total 4",
        "forage_retriever_errors_total{cause=\"invalid\"} 1",
        "forage_retriever_passages 5",
        "forage_retriever_cache_hits_total 1",
        "forage_retriever_cache_joined_total 0",
        "forage_retriever_cache_misses_total 3",
        "forage_retriever_jobs_waiting 0",
        "# EOF",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\nis not in\n{metrics}"
        );
    }
}
