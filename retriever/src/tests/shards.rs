//! One corpus cut into parts and searched through the front gives what one index over everything gives, bit for bit.

use std::collections::BTreeMap;
use std::sync::Arc;

use forage_net::{Fault, NetError};
use forage_retriever::remote::RemoteSpec;
use forage_retriever::remote::shards::{Shard, ShardedRetriever};
use forage_retriever::server::{ServerConfig, Services};
use forage_retriever::statistics::Statistics;
use forage_retriever::{
    Bm25Retriever, Filter, Fingerprint, Hit, Passage, Query, Retriever, RetrieverError,
};
use proptest::prelude::*;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const WORDS: [&str; 12] = [
    "moon", "tide", "wind", "sun", "river", "stone", "salt", "cloud", "rain", "harbor", "lantern",
    "orchard",
];

/// A part in this process.
struct Local {
    name: String,
    retriever: Bm25Retriever,
}

#[async_trait::async_trait]
impl Shard for Local {
    fn name(&self) -> &str {
        &self.name
    }

    fn fingerprint(&self) -> Fingerprint {
        self.retriever.fingerprint()
    }

    async fn statistics(&self, queries: &[Query]) -> Result<Statistics, RetrieverError> {
        let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
        self.retriever.index().statistics(&texts)
    }

    async fn search_with(
        &self,
        queries: &[Query],
        k: usize,
        whole: &Statistics,
    ) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        queries
            .iter()
            .map(|query| self.retriever.search_with(query, k, whole))
            .collect()
    }
}

/// Ids, and scores to the last bit.
fn exact(lists: &[Vec<Hit>]) -> Vec<Vec<(String, u32, String)>> {
    let of_hit = |hit: &Hit| (hit.id.clone(), hit.score.to_bits(), hit.text.clone());
    lists
        .iter()
        .map(|hits| hits.iter().map(of_hit).collect())
        .collect()
}

fn text(longest: usize) -> impl Strategy<Value = String> {
    // Squared, so that some words are rare.
    let word = (0..WORDS.len() * WORDS.len()).prop_map(|n| WORDS[(n as f64).sqrt() as usize]);
    prop::collection::vec(word, 1..longest).prop_map(|words| words.join(" "))
}

/// Passages with the part each goes to; every part gets at least one.
fn corpus(parts: usize) -> impl Strategy<Value = Vec<Vec<Passage>>> {
    prop::collection::vec((text(40), 0..parts), parts..60).prop_map(move |rows| {
        let mut cut = vec![Vec::new(); parts];
        for (number, (text, part)) in rows.into_iter().enumerate() {
            let part = if number < parts { number } else { part };
            let page = format!("p{}", number % 3);
            cut[part].push(
                Passage::new(format!("d{}", (number * 7919) % 1000), "", text)
                    .with_field("page", page),
            );
        }
        cut
    })
}

fn queries(texts: &[String]) -> Vec<Query> {
    let filter = Filter(BTreeMap::from([(
        "page".to_owned(),
        vec!["p0".to_owned(), "p2".to_owned()],
    )]));
    let mut queries: Vec<Query> = texts.iter().map(Query::new).collect();
    queries.extend(
        texts
            .iter()
            .map(|text| Query::new(text).filtered(filter.clone())),
    );
    queries
}

fn whole(parts: &[Vec<Passage>]) -> Bm25Retriever {
    Bm25Retriever::in_memory(parts.concat()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parts_in_this_process_rank_as_one_index(
        parts in (1_usize..5).prop_flat_map(corpus),
        texts in prop::collection::vec(text(8), 1..6),
        k in 1_usize..20,
        batch in 1_usize..5,
    ) {
        let local = |(number, passages): (usize, &Vec<Passage>)| -> Arc<dyn Shard> {
            let retriever = Bm25Retriever::in_memory(passages.clone()).unwrap();
            Arc::new(Local { name: format!("part {number}"), retriever })
        };
        let front = ShardedRetriever::new(parts.iter().enumerate().map(local).collect(), batch).unwrap();
        let queries = queries(&texts);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(front.search(&queries, k)).unwrap();
        let expected = runtime.block_on(whole(&parts).search(&queries, k)).unwrap();
        prop_assert_eq!(exact(&found), exact(&expected));
    }
}

/// A retrieval server over some passages.
async fn start(passages: Vec<Passage>) -> Server {
    let services = Services::of_index(Arc::new(Bm25Retriever::in_memory(passages).unwrap()));
    let config = ServerConfig {
        workers: 1,
        ..ServerConfig::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (bound, address) = oneshot::channel();
    runtime.spawn(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        bound.send(listener.local_addr().unwrap()).unwrap();
        services
            .serve(listener, config, std::future::pending())
            .await
            .unwrap();
    });
    Server {
        url: format!("http://{}", address.await.unwrap()),
        runtime: Some(runtime),
    }
}

/// A server with threads of its own, which end with it: open connections too.
struct Server {
    url: String,
    runtime: Option<Runtime>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Passages that need no generator: words at distances that differ from part to part.
fn parts() -> Vec<Vec<Passage>> {
    let text = |number: usize| {
        let words = (0..5 + number % 17)
            .map(|place| WORDS[(number * (place + 3) + place * place) % WORDS.len()]);
        words.collect::<Vec<_>>().join(" ")
    };
    let passage = |number: usize| {
        Passage::new(format!("d{number:03}"), "", text(number))
            .with_field("page", format!("p{}", number % 3))
    };
    [0..10, 10..140, 140..300]
        .into_iter()
        .map(|range| range.map(passage).collect())
        .collect()
}

async fn connect(urls: &[&str]) -> Result<Arc<dyn Retriever>, RetrieverError> {
    let http = json!({"attempts": 2, "backoff_ms": 10});
    let settings = json!({"kind": "shards", "urls": urls, "batch_queries": 3, "http": http});
    let spec: RemoteSpec = serde_json::from_value(settings).unwrap();
    spec.open(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_over_parts_rank_as_one_index() {
    let parts = parts();
    let mut servers = Vec::new();
    for passages in &parts {
        servers.push(start(passages.clone()).await);
    }
    let urls: Vec<&str> = servers.iter().map(|server| server.url.as_str()).collect();
    let front = connect(&urls).await.unwrap();
    let texts: Vec<String> = [
        "moon",
        "tide wind",
        "rain rain orchard",
        "unheard",
        "",
        "the harbor's lanterns, sun & stones!",
    ]
    .map(ToOwned::to_owned)
    .into();
    let queries = queries(&texts);
    for k in [1, 10, 400] {
        let found = front.search(&queries, k).await.unwrap();
        let expected = whole(&parts).search(&queries, k).await.unwrap();
        assert_eq!(exact(&found), exact(&expected), "k = {k}");
        assert!(!found[0].is_empty() && found[3].is_empty());
    }
    // One part goes away: an error that names it, not fewer passages.
    let gone = servers.pop().unwrap().url.clone();
    let error = front.search(&queries, 10).await.unwrap_err();
    let RetrieverError::Remote(error) = error else {
        panic!("{error}")
    };
    let NetError {
        url,
        fault,
        attempts,
    } = *error.downcast().unwrap();
    assert!(url.starts_with(&gone), "{url}");
    assert!(matches!(fault, Fault::Connect(_)), "{fault}");
    assert_eq!(attempts, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_part_twice_is_refused() {
    let passages = parts().remove(0);
    let (one, two) = (start(passages.clone()).await, start(passages).await);
    let error = connect(&[&one.url, &two.url]).await.err().unwrap();
    assert!(
        matches!(error, RetrieverError::Setting { .. })
            && error.to_string().contains("same passages"),
        "{error}"
    );
}
