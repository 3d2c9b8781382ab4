//! The client against this crate's server: over HTTP the same hits as in the process, bit for bit.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_retriever::server::{ServerConfig, Services};
use forage_retriever::{Bm25Retriever, Filter, Hit, Passage, Query, Retriever};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::server::open;

fn exact(lists: &[Vec<Hit>]) -> Vec<Vec<(&str, u32, &str, &str)>> {
    lists
        .iter()
        .map(|hits| {
            hits.iter()
                .map(|hit| {
                    (
                        hit.id.as_str(),
                        hit.score.to_bits(),
                        hit.title.as_str(),
                        hit.text.as_str(),
                    )
                })
                .collect()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_are_those_of_the_index() {
    let titles = [
        "Tides",
        "\"Quoted\" title",
        "",
        "Two\nlines",
        "Ünïcode \u{1F30A}",
    ];
    let passages: Vec<Passage> = (0..40_usize)
        .map(|number| {
            let text = format!(
                "The moon \"raises\" tides.\nLine {number} {}",
                "salt ".repeat(number % 7)
            );
            Passage::new(format!("d{number:02}"), titles[number % titles.len()], text)
                .with_field("page", format!("p{}", number % 3))
        })
        .collect();
    let index = Arc::new(Bm25Retriever::in_memory(passages).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/retrieve", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let services = Services::of_index(Arc::clone(&index));
    let server = tokio::spawn(async move {
        let config = ServerConfig {
            workers: 1,
            ..ServerConfig::default()
        };
        services
            .serve(listener, config, async move { drop(stopped.await) })
            .await
            .unwrap();
    });
    let settings = json!({"url": url, "batch_queries": 2, "mode": "bm25", "http": {}});
    let client = open("search-r1", settings).await.unwrap();
    assert_eq!(client.fingerprint(), index.fingerprint());
    let filter = Filter(BTreeMap::from([("page".to_owned(), vec!["p1".to_owned()])]));
    let queries = [
        Query::new("salt tides"),
        Query::new("quoted moon"),
        Query::new("nothing of it"),
        Query::new("line 7"),
        Query::new("salt tides").filtered(filter),
    ];
    for k in [1, 3, 100] {
        let expected = index.search(&queries, k).await.unwrap();
        assert!(
            expected[4]
                .iter()
                .all(|hit| hit.id[1..].parse::<usize>().unwrap() % 3 == 1)
                && !expected[4].is_empty()
        );
        let found = client.search(&queries, k).await.unwrap();
        assert_eq!(exact(&found), exact(&expected), "k = {k}");
    }
    drop(stop);
    server.await.unwrap();
}
