//! Qdrant: exchanges from its documentation, see `exchanges/README.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_net::{Auth, Fault, HttpOptions, NetError};
use forage_retriever::remote::{QdrantOptions, QdrantRetriever};
use forage_retriever::{Filter, Hit, Query, Retriever, RetrieverError};
use serde_json::{Value, json};

use super::server::{LengthEncoder, Reply, Server, hasty, token_file};

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

fn options(server: &Server) -> QdrantOptions {
    let mut options: QdrantOptions =
        serde_json::from_value(json!({"url": server.url(), "collection": "my wiki"})).unwrap();
    options.http = hasty();
    options
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
    let retriever = QdrantRetriever::connect(
        QdrantOptions {
            http,
            ..options(&server)
        },
        Arc::new(LengthEncoder),
    )
    .await
    .unwrap();
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
        let asked = QdrantOptions {
            vector: name.map(ToOwned::to_owned),
            ..options(&server)
        };
        let error = QdrantRetriever::connect(asked, Arc::new(LengthEncoder))
            .await
            .err()
            .unwrap();
        assert!(
            matches!(error, RetrieverError::Setting { .. }) && error.to_string().contains(part),
            "{error}"
        );
    }
    let server = replay(with(json!({"e5": {"size": 4, "distance": "Cosine"}}))).await;
    let asked = QdrantOptions {
        vector: Some("e5".into()),
        exact: true,
        ..options(&server)
    };
    let retriever = QdrantRetriever::connect(asked, Arc::new(LengthEncoder))
        .await
        .unwrap();
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
    let error = QdrantRetriever::connect(options(&server), Arc::new(LengthEncoder))
        .await
        .err()
        .unwrap();
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
    let retriever = QdrantRetriever::connect(options(&server), Arc::new(LengthEncoder))
        .await
        .unwrap();
    let error = retriever.search(&[Query::new("a")], 1).await.unwrap_err();
    assert!(
        error.to_string().contains("2 results for 1 searches"),
        "{error}"
    );
}
