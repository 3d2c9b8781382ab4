//! Elasticsearch, `OpenSearch` and Quickwit: exchanges from their documentation, see `exchanges/README.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_net::{Auth, Fault, HttpOptions, NetError};
use forage_retriever::{Filter, Hit, Query, Retriever, RetrieverError};
use serde_json::{Value, json};

use super::server::{Reply, Server, hasty, open, token_file};

const ELASTICSEARCH: &str = include_str!("exchanges/elasticsearch.json");
const ERROR: &str = include_str!("exchanges/elasticsearch_error.json");
const SHARD_FAILURE: &str = include_str!("exchanges/elasticsearch_shard_failure.json");
const OPENSEARCH: &str = include_str!("exchanges/opensearch.json");
const QUICKWIT: &str = include_str!("exchanges/quickwit.json");

async fn replay(body: &'static str) -> Server {
    Server::start(move |_, _| Reply::new(200, body)).await
}

async fn connect(url: &str, more: Value) -> Arc<dyn Retriever> {
    let mut settings = json!({"url": url, "index": "wiki"});
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    open("elasticsearch", settings).await.unwrap()
}

fn hit(id: &str, score: f32, title: &str, text: &str) -> Hit {
    Hit {
        id: id.into(),
        score,
        title: title.into(),
        text: text.into(),
    }
}

fn filter(field: &str, values: &[&str]) -> Filter {
    Filter(BTreeMap::from([(
        field.to_owned(),
        values.iter().map(|&value| value.to_owned()).collect(),
    )]))
}

#[tokio::test]
async fn elasticsearch_words() {
    let server = replay(ELASTICSEARCH).await;
    let (_folder, path) = token_file("encoded-key");
    let http = HttpOptions {
        token_file: Some(path),
        auth: Auth::ApiKey,
        ..hasty()
    };
    let retriever = connect(&server.url(), json!({ "http": http })).await;
    let queries = [
        Query::new("what raises the tide? (AND \"moon\")"),
        Query::new("nothing"),
    ];
    let found = retriever.search(&queries, 5).await.unwrap();
    let first = [
        hit("tides-0", 7.25, "Tides", "The moon raises tides."),
        hit("moon-1", 3.5, "", "A moon without a title."),
        hit("moon-3", 3.5, "Moon", "The moon turns once a month."),
    ];
    assert_eq!(found, [first.to_vec(), Vec::new()]);
    let seen = &server.seen()[0];
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("POST", "/_msearch")
    );
    assert_eq!(seen.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(seen.header("authorization"), Some("ApiKey encoded-key"));
    let body = |text: &str| {
        json!({
            "query": {"match": {"text": {"query": text}}},
            "sort": [{"_score": "desc"}],
            "size": 5, "track_total_hits": false, "_source": ["title", "text", "contents"],
        })
    };
    // Where no index has that name the answer is an error, and not an empty one.
    let header = json!({"index": "wiki", "allow_no_indices": false});
    assert_eq!(
        seen.lines(),
        [
            header.clone(),
            body("what raises the tide? (AND \"moon\")"),
            header,
            body("nothing")
        ]
    );
}

#[tokio::test]
async fn elasticsearch_fields_filters_and_global_frequencies() {
    let server = replay(OPENSEARCH).await;
    let asked =
        json!({"search_fields": ["title^2", "text"], "dfs": true, "fields": {"id": "passage"}});
    let retriever = connect(&server.url(), asked).await;
    let query = Query::new("tides").filtered(filter("page", &["p1", "p2"]));
    let found = retriever.search(&[query], 2).await.unwrap();
    let expected = [
        hit("tides-0", 1.5, "Tides", "The moon raises tides."),
        hit("wind-0", 0.5, "Wind", "The sun drives the wind."),
    ];
    assert_eq!(found, [expected]);
    let lines = server.seen()[0].lines();
    assert_eq!(
        lines[0],
        json!({"index": "wiki", "allow_no_indices": false, "search_type": "dfs_query_then_fetch"})
    );
    let words = json!({"multi_match": {"query": "tides", "type": "best_fields", "fields": ["title^2", "text"]}});
    let terms = json!([{"terms": {"page": ["p1", "p2"]}}]);
    assert_eq!(
        lines[1]["query"],
        json!({"bool": {"must": [words], "filter": terms}})
    );
    assert_eq!(
        lines[1]["_source"],
        json!(["title", "text", "contents", "passage"])
    );
}

#[tokio::test]
async fn elasticsearch_vectors() {
    let server = replay(ELASTICSEARCH).await;
    let retriever = connect(&server.url(), json!({"vector_field": "embedding"})).await;
    let queries =
        [Query::new("a b"), Query::new("cd")].map(|query| query.filtered(filter("id", &["x"])));
    retriever.search(&queries, 20).await.unwrap();
    let lines = server.seen()[0].lines();
    let knn = json!({
        "field": "embedding", "query_vector": [3.0, 2.0, 0.5, -1.0], "k": 20, "num_candidates": 200,
        "filter": [{"terms": {"_id": ["x"]}}],
    });
    assert_eq!(
        (&lines[1]["knn"], &lines[1]["query"], &lines[1]["size"]),
        (&knn, &Value::Null, &json!(20))
    );
    assert_eq!(
        lines[3]["knn"]["query_vector"],
        json!([2.0, 1.0, 0.5, -1.0])
    );
}

#[tokio::test]
async fn quickwit() {
    let server = replay(QUICKWIT).await;
    let url = format!("{}/api/v1/_elastic", server.url());
    let unnamed = connect(&url, json!({})).await;
    let error = unnamed.search(&[Query::new("moon")], 2).await.unwrap_err();
    assert!(error.to_string().contains("fields.id"), "{error}");
    let retriever = connect(&url, json!({"fields": {"id": "id"}})).await;
    let found = retriever.search(&[Query::new("moon")], 2).await.unwrap();
    let expected = [
        hit("tides-0", 4.75, "Tides", "The moon raises tides."),
        hit("moon-3", 2.25, "Moon", "The moon turns."),
    ];
    assert_eq!(found, [expected]);
    assert_eq!(server.seen()[1].target, "/api/v1/_elastic/_msearch");
}

async fn fault(body: &'static str, queries: usize) -> (Fault, u32) {
    let server = replay(body).await;
    let retriever = connect(&server.url(), json!({})).await;
    match retriever
        .search(&vec![Query::new("moon"); queries], 2)
        .await
        .unwrap_err()
    {
        RetrieverError::Remote(error) => {
            let error = error.downcast::<NetError>().unwrap();
            (error.fault, error.attempts)
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn searches_that_were_not_done_whole_are_faults() {
    let missing = "index_not_found_exception: no such index [wiki]".to_owned();
    let (fault_of_missing, tries) = fault(ERROR, 2).await;
    assert_eq!(
        (fault_of_missing.to_string(), tries),
        (format!("HTTP status 404: {missing}"), 1)
    );
    let (shards, tries) = fault(SHARD_FAILURE, 1).await;
    assert!(
        shards
            .to_string()
            .contains("1 of 2 shards failed: circuit_breaking_exception: [parent]"),
        "{shards}"
    );
    assert_eq!(tries, 3);
    for (body, part, tries) in [
        (
            r#"{"responses": [{"timed_out": true, "hits": {"hits": []}, "status": 200}]}"#,
            "timed_out",
            3,
        ),
        (r#"{"responses": [{"status": 200}]}"#, "without `hits`", 1),
        (r#"{"responses": []}"#, "0 responses for 1", 1),
        (
            r#"{"responses": [{"error": {"type": "rejected", "reason": "queue full"}, "status": 429}]}"#,
            "queue full",
            3,
        ),
        (
            r#"{"responses": [{"hits": {"hits": [{"_id": "1", "_score": null, "_source": {"text": "a"}}]}}]}"#,
            "_score",
            1,
        ),
        (
            r#"{"responses": [{"hits": {"hits": [{"_id": "1", "_score": 1, "_source": {}}]}}]}"#,
            "neither `text`",
            1,
        ),
    ] {
        let (fault, attempts) = fault(body, 1).await;
        assert!(fault.to_string().contains(part), "{fault}");
        assert_eq!(attempts, tries, "{fault}");
    }
}

#[tokio::test]
async fn no_part_of_a_key_is_left_of_a_long_reason() {
    let (_folder, path) = token_file("encoded-key");
    let http = HttpOptions {
        token_file: Some(path),
        ..hasty()
    };
    // At every place where a reason could be cut.
    for length in [290, 294, 298, 340, 393] {
        let server = Server::start(move |_, _| {
            let reason = format!("{}encoded-key{}", ".".repeat(length), ".".repeat(500));
            let error = json!({"type": "x", "reason": reason});
            Reply::json(&json!({"responses": [{"error": error, "status": 400}]}))
        })
        .await;
        let retriever = connect(&server.url(), json!({ "http": http })).await;
        let error = retriever.search(&[Query::new("moon")], 2).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("x: ..."), "{error}");
        assert!(!error.contains("enc") && !error.contains("key"), "{error}");
    }
}

#[tokio::test]
async fn a_search_that_was_cut_short_is_asked_for_again() {
    const TIMED_OUT: &str =
        r#"{"responses": [{"timed_out": true, "hits": {"hits": []}, "status": 200}]}"#;
    for partial in [TIMED_OUT, SHARD_FAILURE] {
        let server = Server::start(move |_, before| {
            Reply::new(200, if before == 0 { partial } else { OPENSEARCH })
        })
        .await;
        let retriever = connect(&server.url(), json!({"fields": {"id": "passage"}})).await;
        let found = retriever.search(&[Query::new("tides")], 2).await.unwrap();
        assert_eq!(found[0].len(), 2);
        assert_eq!(server.seen().len(), 2);
    }
}

/// One query of a policy that repeats itself is not a failure of the server, nor of the queries beside it.
#[tokio::test]
async fn a_query_of_too_many_words_is_refused_and_no_failure() {
    let cause = json!({
        "type": "too_many_nested_clauses",
        "reason": "Query contains too many nested clauses; maxClauseCount is set to 1024",
    });
    let failed = json!({
        "root_cause": [cause], "type": "search_phase_execution_exception", "reason": "all shards failed",
        "failed_shards": [{"shard": 0, "index": "wiki", "reason": cause}],
    });
    let server = Server::start(move |seen, _| {
        let searches = seen.lines().into_iter().skip(1).step_by(2);
        let answer = |body: Value| match body.to_string().len() {
            ..2000 => json!({"hits": {"hits": []}, "status": 200}),
            _ => json!({"error": failed, "status": 500}),
        };
        Reply::json(&json!({"responses": searches.map(answer).collect::<Vec<_>>()}))
    })
    .await;
    let retriever = connect(&server.url(), json!({})).await;
    let long = "moon ".repeat(1025);
    let queries = ["tides", &long, "wind"].map(Query::new);
    let error = retriever.search(&queries, 2).await.unwrap_err();
    let RetrieverError::Refused { query, .. } = &error else {
        panic!("{error}")
    };
    assert!(query.starts_with("moon moon"), "{query}");
    assert!(error.to_string().contains("set to 1024"), "{error}");
}

#[tokio::test]
async fn the_fingerprint_tells_how_it_is_asked() {
    let of = async |more: Value| connect("http://h:9200", more).await.fingerprint();
    let base = of(json!({})).await;
    assert_eq!(base, of(json!({"http": {"attempts": 9}})).await);
    for more in [
        json!({"index": "other"}),
        json!({"dfs": true}),
        json!({"search_fields": ["title"]}),
        json!({"vector_field": "v"}),
        json!({"fields": {"text": "body"}}),
    ] {
        assert_ne!(base, of(more).await);
    }
}
