//! Qdrant and Chroma: exchanges from Qdrant's documentation, see `exchanges/README.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_net::{Auth, Fault, HttpOptions, NetError};
use forage_retriever::{Filter, Hit, Query, Retriever, RetrieverError};
use serde_json::{Value, json};

use super::server::{Reply, Server, hasty, open, token_file};

const COLLECTION: &str = include_str!("exchanges/qdrant_collection.json");
const BATCH: &str = include_str!("exchanges/qdrant_batch.json");
const ERROR: &str = include_str!("exchanges/qdrant_error.json");

async fn replay(collection: String) -> Server {
    Server::start(move |seen, _| match seen.method.as_str() {
        "GET" => Reply::new(200, collection.clone()),
        _ => Reply::new(200, BATCH),
    })
    .await
}

async fn connect(server: &Server, more: Value) -> Result<Arc<dyn Retriever>, RetrieverError> {
    let mut settings = json!({"url": server.url(), "collection": "my wiki"});
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    open("qdrant", settings).await
}

#[tokio::test]
async fn points_become_hits() {
    let server = replay(COLLECTION.to_owned()).await;
    let (_folder, path) = token_file("key");
    let http = HttpOptions {
        token_file: Some(path),
        auth: Auth::ApiKey,
        ..hasty()
    };
    let retriever = connect(&server, json!({ "http": http })).await.unwrap();
    let filter = Filter(BTreeMap::from([
        (
            "id".to_owned(),
            vec![
                "42".to_owned(),
                "98a9a4b1-4ef2-46fb-8315-a97d874fe1d7".to_owned(),
            ],
        ),
        ("page".to_owned(), vec!["p1".to_owned(), "p2".to_owned()]),
    ]));
    let queries = [Query::new("a b"), Query::new("cd")].map(|query| query.filtered(filter.clone()));
    let found = retriever.search(&queries, 3).await.unwrap();
    let hit = |id: &str, score, title: &str, text: &str| Hit {
        id: id.into(),
        score,
        title: title.into(),
        text: text.into(),
    };
    let first = vec![
        hit("42", 0.75, "Tides", "The moon raises tides."),
        hit(
            "98a9a4b1-4ef2-46fb-8315-a97d874fe1d7",
            0.5,
            "",
            "A moon without a title.",
        ),
    ];
    assert_eq!(found, [first, Vec::new()]);
    let seen = server.seen();
    assert_eq!(
        (seen[0].method.as_str(), seen[0].target.as_str()),
        ("GET", "/collections/my%20wiki")
    );
    assert_eq!(
        (seen[1].method.as_str(), seen[1].target.as_str()),
        ("POST", "/collections/my%20wiki/points/query/batch")
    );
    assert_eq!(seen[1].header("api-key"), Some("key"));
    let search = |vector: [f32; 4]| {
        json!({
            "query": vector, "limit": 3, "with_payload": ["title", "text", "contents"],
            "filter": {"must": [
                {"has_id": [42, "98a9a4b1-4ef2-46fb-8315-a97d874fe1d7"]},
                {"key": "page", "match": {"any": ["p1", "p2"]}},
            ]},
        })
    };
    assert_eq!(
        seen[1].json(),
        json!({"searches": [search([3.0, 2.0, 0.5, -1.0]), search([2.0, 1.0, 0.5, -1.0])]})
    );
}

#[tokio::test]
async fn a_collection_that_does_not_fit_is_refused() {
    let with = |vectors: Value| {
        let mut collection: Value = serde_json::from_str(COLLECTION).unwrap();
        collection["result"]["config"]["params"]["vectors"] = vectors;
        collection.to_string()
    };
    for (vectors, name, part) in [
        (json!({"size": 768, "distance": "Cosine"}), None, "768"),
        (json!({"size": 4, "distance": "Euclid"}), None, "Euclid"),
        (
            json!({"e5": {"size": 4, "distance": "Cosine"}}),
            None,
            "vectors have names",
        ),
        (
            json!({"e5": {"size": 4, "distance": "Cosine"}}),
            Some("bge"),
            "is not a vector",
        ),
    ] {
        let server = replay(with(vectors)).await;
        let error = connect(&server, json!({ "vector": name }))
            .await
            .err()
            .unwrap();
        assert!(
            matches!(error, RetrieverError::Setting { .. }) && error.to_string().contains(part),
            "{error}"
        );
    }
    let server = replay(with(json!({"e5": {"size": 4, "distance": "Cosine"}}))).await;
    let asked = json!({"vector": "e5", "exact": true});
    let retriever = connect(&server, asked).await.unwrap();
    retriever
        .search(&[Query::new("a"), Query::new("b")], 1)
        .await
        .unwrap();
    let sent = &server.seen()[1].json()["searches"][0];
    assert_eq!(
        (&sent["using"], &sent["params"], &sent["filter"]),
        (&json!("e5"), &json!({"exact": true}), &Value::Null)
    );
}

#[tokio::test]
async fn a_missing_collection_and_a_short_answer_are_faults() {
    let server = Server::start(|_, _| Reply::new(404, ERROR)).await;
    let error = connect(&server, json!({})).await.err().unwrap();
    let RetrieverError::Remote(cause) = &error else {
        panic!("{error}")
    };
    let cause: &NetError = cause.downcast_ref().unwrap();
    assert!(
        matches!(cause.fault, Fault::Status { status: 404, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("doesn't exist"), "{error}");
    let server = replay(COLLECTION.to_owned()).await;
    let retriever = connect(&server, json!({})).await.unwrap();
    let error = retriever.search(&[Query::new("a")], 1).await.unwrap_err();
    assert!(
        error.to_string().contains("2 results for 1 searches"),
        "{error}"
    );
}

/// Chroma's answers have their own shape; what comes of them is the same.
#[tokio::test]
async fn records_of_chroma_become_hits() {
    let server = Server::start(|seen, _| match seen.method.as_str() {
        "GET" => Reply::json(&json!({
            "id": "7e0c", "dimension": 4, "configuration_json": {"hnsw": {"space": "cosine"}},
        })),
        _ => Reply::json(&json!({
            "ids": [["b", "a"], []], "distances": [[0.25, 0.25], []],
            "documents": [["A moon.", "The moon raises tides."], []],
            "metadatas": [[null, {"title": "Tides"}], []],
        })),
    })
    .await;
    let settings = json!({"url": server.url(), "collection": "wiki"});
    let retriever = open("chroma", settings.clone()).await.unwrap();
    let filter = Filter(BTreeMap::from([
        ("id".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
        ("page".to_owned(), vec!["p1".to_owned()]),
        ("title".to_owned(), vec!["Tides".to_owned()]),
    ]));
    let queries = [Query::new("a b"), Query::new("cd")].map(|query| query.filtered(filter.clone()));
    let found = retriever.search(&queries, 3).await.unwrap();
    let hit = |id: &str, title: &str, text: &str| Hit {
        id: id.into(),
        score: 0.75,
        title: title.into(),
        text: text.into(),
    };
    let first = vec![
        hit("a", "Tides", "The moon raises tides."),
        hit("b", "", "A moon."),
    ];
    assert_eq!(found, [first, Vec::new()]);
    let seen = server.seen();
    let above = "/api/v2/tenants/default_tenant/databases/default_database/collections";
    assert_eq!(
        (seen[0].target.clone(), seen[1].target.clone()),
        (format!("{above}/wiki"), format!("{above}/7e0c/query"))
    );
    assert_eq!(
        seen[1].json(),
        json!({
            "query_embeddings": [[3.0, 2.0, 0.5, -1.0], [2.0, 1.0, 0.5, -1.0]], "n_results": 3,
            "include": ["documents", "metadatas", "distances"], "ids": ["a", "b"],
            "where": {"$and": [{"page": {"$in": ["p1"]}}, {"title": {"$in": ["Tides"]}}]},
        })
    );
    let error = retriever.search(&queries[..1], 3).await.unwrap_err();
    assert!(
        error.to_string().contains("2 results for 1 searches"),
        "{error}"
    );
    let other = Server::start(|_, _| {
        Reply::json(&json!({"id": "7e0c", "dimension": 768, "configuration_json": {}}))
    })
    .await;
    let error = open("chroma", json!({"url": other.url(), "collection": "wiki"})).await;
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("vectors of 768 numbers, the encoder makes 4"),
        "{error}"
    );
}
