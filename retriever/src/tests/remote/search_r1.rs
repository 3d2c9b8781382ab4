//! The Search-R1 protocol as a client.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_retriever::{Filter, Query, Retriever, RetrieverError};
use serde_json::{Value, json};

use super::server::{Reply, Seen, Server, open};

/// Answers every query with one passage named after it.
fn echo(seen: &Seen) -> Reply {
    let queries = seen.json()["queries"].as_array().unwrap().clone();
    let lists: Vec<Value> = queries
        .iter()
        .map(|query| json!([{"document": {"id": query, "contents": "\"T\"\nx"}, "score": 1.5}]))
        .collect();
    Reply::json(&json!({ "result": lists }))
}

async fn connect(server: &Server, path: &str, batch_queries: usize) -> Arc<dyn Retriever> {
    let url = format!("{}{path}", server.url());
    let settings = json!({"url": url, "batch_queries": batch_queries});
    open("search-r1", settings).await.unwrap()
}

#[tokio::test]
async fn queries_are_batched_in_order() {
    let server = Server::start(|seen, _| match seen.target.as_str() {
        "/retrieve" => echo(seen),
        _ => Reply::new(404, ""),
    })
    .await;
    let client = connect(&server, "/retrieve", 2).await;
    let queries: Vec<Query> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .map(Query::new)
        .collect();
    let found = client.search(&queries, 3).await.unwrap();
    let ids: Vec<_> = found.iter().map(|hits| hits[0].id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c", "d", "e"]);
    let mut sizes: Vec<_> = server
        .seen_at("/retrieve")
        .iter()
        .map(|seen| seen.json()["queries"].as_array().unwrap().len())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2, 2]);
    let first = &server.seen_at("/retrieve")[0];
    let keys: Vec<_> = first.json().as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        (first.method.as_str(), keys),
        (
            "POST",
            vec!["queries".into(), "topk".into(), "return_scores".into()]
        )
    );
    assert_eq!(
        (&first.json()["topk"], &first.json()["return_scores"]),
        (&json!(3), &json!(true))
    );
}

#[tokio::test]
async fn nothing_is_sent_for_no_queries_or_no_hits() {
    let server = Server::start(|_, _| Reply::new(404, "")).await;
    let client = connect(&server, "", 2).await;
    assert_eq!(client.search(&[], 3).await.unwrap(), Vec::<Vec<_>>::new());
    assert_eq!(
        client.search(&[Query::new("a")], 0).await.unwrap(),
        vec![Vec::new()]
    );
    assert!(server.seen_at("/retrieve").is_empty());
}

#[tokio::test]
async fn a_foreign_server_gets_no_filter() {
    let server = Server::start(|_, _| Reply::new(404, "")).await;
    let client = connect(&server, "", 2).await;
    let filter = Filter(BTreeMap::from([("page".to_owned(), vec!["p".to_owned()])]));
    let error = client
        .search(&[Query::new("a").filtered(filter)], 3)
        .await
        .unwrap_err();
    assert!(
        matches!(error, RetrieverError::Unsupported { .. }),
        "{error}"
    );
    let other = Server::start(|_, _| Reply::new(404, "")).await;
    assert_ne!(
        client.fingerprint(),
        connect(&other, "", 2).await.fingerprint()
    );
}

#[tokio::test]
async fn our_server_is_known_by_its_info_and_gets_filters() {
    let server = Server::start(|seen, _| match seen.target.as_str() {
        "/info" => Reply::json(&json!({
            "fingerprint": "f00d", "passages": 3, "fingerprints": {"bm25": "f00d", "dense": "beef"},
        })),
        _ => echo(seen),
    })
    .await;
    let client = connect(&server, "", 8).await;
    assert_eq!(client.fingerprint().0, "f00d");
    let filter = Filter(BTreeMap::from([("page".to_owned(), vec!["p".to_owned()])]));
    let queries = [
        Query::new("a"),
        Query::new("b").filtered(filter.clone()),
        Query::new("c").filtered(filter),
    ];
    let found = client.search(&queries, 3).await.unwrap();
    assert_eq!(
        found
            .iter()
            .map(|hits| hits[0].id.as_str())
            .collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    let mut sent: Vec<_> = server
        .seen_at("/retrieve")
        .iter()
        .map(|seen| seen.json()["filter"].clone())
        .collect();
    sent.sort_by_key(ToString::to_string);
    assert_eq!(
        sent,
        [Value::Null, json!({"page": ["p"]})].map(|value| value),
        "{sent:?}"
    );
}

#[tokio::test]
async fn modes_are_for_our_servers_that_have_them() {
    let server = Server::start(|seen, _| match seen.target.as_str() {
        "/info" => Reply::json(
            &json!({"fingerprint": "f00d", "fingerprints": {"bm25": "f00d", "dense": "beef"}}),
        ),
        _ => echo(seen),
    })
    .await;
    let ask = |url: String, mode: &str| open("search-r1", json!({"url": url, "mode": mode}));
    let dense = ask(server.url(), "dense").await.unwrap();
    assert_eq!(dense.fingerprint().0, "beef");
    dense.search(&[Query::new("a")], 1).await.unwrap();
    assert_eq!(
        server.seen_at("/retrieve")[0].json()["mode"],
        json!("dense")
    );
    let error = ask(server.url(), "hybrid").await.err().unwrap();
    assert!(error.to_string().contains("only bm25, dense"), "{error}");
    let foreign = Server::start(|_, _| Reply::new(404, "")).await;
    assert!(matches!(
        ask(foreign.url(), "bm25").await,
        Err(RetrieverError::Setting { .. })
    ));
}
