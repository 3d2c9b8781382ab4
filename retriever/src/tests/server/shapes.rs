//! Every request shape of the known clients, with every number of queries.

use serde_json::{Value, json};

use super::support::{Running, expected};

const TEXTS: [&str; 7] = [
    "moon tides",
    "wind",
    "nothing of this",
    "",
    "Meer 😀",
    "sea \"moon\" AND (",
    "the",
];

fn texts(count: usize) -> Vec<&'static str> {
    TEXTS.iter().copied().cycle().take(count).collect()
}

fn lists(texts: &[&str], k: usize, scored: bool) -> Vec<Value> {
    texts.iter().map(|text| expected(text, k, scored)).collect()
}

#[tokio::test]
async fn queries_with_and_without_scores() {
    let server = Running::small().await;
    // Two queries without scores is where the Python servers answer with garbage; 8 queries make one job.
    for count in [0, 1, 2, 3, 7, 8, 9, 16, 17, 300] {
        let texts = texts(count);
        for scored in [true, false] {
            let answer = server
                .retrieve(json!({"queries": texts, "topk": 2, "return_scores": scored}))
                .await;
            assert_eq!(
                answer,
                json!({"result": lists(&texts, 2, scored)}),
                "{count} queries, scores {scored}"
            );
        }
    }
    let answer = server.retrieve(json!({"queries": ["moon"]})).await;
    assert_eq!(
        answer,
        json!({"result": [expected("moon", 3, false)]}),
        "scores are off and topk is 3 by default"
    );
}

#[tokio::test]
async fn topk_falls_back_and_is_bounded_by_the_corpus() {
    let server = Running::small().await;
    let three = json!({"result": [expected("moon sea tides mond", 3, false)]});
    for topk in [json!(null), json!(0), json!(3), json!("3"), json!(3.0)] {
        assert_eq!(
            server
                .retrieve(json!({"queries": ["moon sea tides mond"], "topk": topk}))
                .await,
            three,
            "{topk}"
        );
    }
    let all = server
        .retrieve(json!({"queries": ["moon sea tides mond"], "topk": 1000}))
        .await;
    assert_eq!(all["result"][0].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn one_query_alone() {
    let server = Running::small().await;
    for scored in [true, false] {
        let answer = server
            .retrieve(json!({"query": "moon", "topk": 3, "return_scores": scored}))
            .await;
        assert_eq!(answer, json!({"result": [expected("moon", 3, scored)]}));
    }
    let answer = server.retrieve(json!({"query": "moon", "topk": 2})).await;
    let results = answer["results"].as_array().unwrap();
    let scored = expected("moon", 2, true);
    assert_eq!((results.len(), answer.as_object().unwrap().len()), (2, 1));
    for (result, item) in results.iter().zip(scored.as_array().unwrap()) {
        assert_eq!(result["doc_id"], item["document"]["id"]);
        assert_eq!(result["contents"], item["document"]["contents"]);
        assert_eq!(result["score"], item["score"]);
    }
    assert_eq!(
        server.retrieve(json!({"query": "nothing of this"})).await,
        json!({"results": []})
    );
}

#[tokio::test]
async fn unknown_keys_are_ignored_and_repeated_ones_count_last() {
    let server = Running::small().await;
    let body = br#"{"queries": ["wind"], "queries": ["moon"], "topk": 1, "model": {"x": [1, {}]}, "user": null}"#;
    let (status, answer) = server.post_bytes("/retrieve", body.to_vec()).await;
    assert_eq!(
        (status, &answer["result"]),
        (200, &json!([expected("moon", 1, false)]))
    );
}

#[tokio::test]
async fn the_flashrag_dialect() {
    let server = Running::small().await;
    for count in [0, 1, 2, 3, 20] {
        let texts = texts(count);
        let (status, bare) = server
            .post("/batch_search", &json!({"query": texts, "top_n": 2}))
            .await;
        assert_eq!((status, bare), (200, json!(lists(&texts, 2, false))));
        let (_, both) = server
            .post(
                "/batch_search",
                &json!({"query": texts, "top_n": 2, "return_score": true}),
            )
            .await;
        let scored = lists(&texts, 2, true);
        let scores: Vec<Vec<&Value>> = scored
            .iter()
            .map(|list| {
                list.as_array()
                    .unwrap()
                    .iter()
                    .map(|item| &item["score"])
                    .collect()
            })
            .collect();
        assert_eq!(both, json!([lists(&texts, 2, false), scores]));
    }
    let (_, one) = server
        .post("/search", &json!({"query": "moon", "top_n": 2}))
        .await;
    assert_eq!(one, expected("moon", 2, false));
    let (_, pair) = server
        .post(
            "/search",
            &json!({"query": "moon", "top_n": 1, "return_score": true}),
        )
        .await;
    assert_eq!(
        pair,
        json!([
            expected("moon", 1, false),
            [expected("moon", 1, true)[0]["score"]]
        ])
    );
    let (_, ten) = server
        .post("/search", &json!({"query": ["moon", "wind"]}))
        .await;
    assert_eq!(
        ten,
        json!([expected("moon", 10, false), expected("wind", 10, false)])
    );
    let (status, answer) = server.post("/search", &json!({"query": "  "})).await;
    assert_eq!(
        (status, &answer["detail"]),
        (400, &json!("Query content cannot be empty"))
    );
}

#[tokio::test]
async fn a_filter_and_a_mode_per_request() {
    let server = Running::small().await;
    let body = json!({"queries": ["moon"], "filter": {"id": ["sun", "wind"]}, "mode": "bm25"});
    let answer = server.retrieve(body).await;
    assert_eq!(answer["result"][0].as_array().unwrap().len(), 1);
    assert_eq!(answer["result"][0][0]["id"], "sun");
    let one = server
        .retrieve(json!({"queries": ["moon"], "filter": {"title": "Moon"}}))
        .await;
    assert_eq!(one["result"][0][0]["id"], "moon");
}

#[tokio::test]
async fn a_shard_ranks_with_the_statistics_it_is_given() {
    let server = Running::small().await;
    let (status, counted) = server
        .post(
            "/statistics",
            &json!({"queries": ["moon tides", "Moon zebra"]}),
        )
        .await;
    assert_eq!((status, &counted["passages"]), (200, &json!(5)));
    assert_eq!(
        counted["frequencies"],
        json!({"moon": 3, "tide": 2, "zebra": 0})
    );
    let ask = |statistics: Value| json!({"queries": ["moon"], "return_scores": true, "statistics": statistics});
    assert_eq!(
        server.retrieve(ask(counted.clone())).await,
        json!({"result": [expected("moon", 3, true)]})
    );
    let whole = json!({"passages": 1000, "tokens": 20_000, "frequencies": {"moon": 3}});
    let rarer = server.retrieve(ask(whole)).await;
    assert!(
        rarer["result"][0][0]["score"].as_f64() > expected("moon", 3, true)[0]["score"].as_f64()
    );
    let (status, answer) = server
        .post(
            "/retrieve",
            &ask(json!({"passages": 1, "tokens": 9, "frequencies": {}})),
        )
        .await;
    assert_eq!((status, &answer["cause"]), (422, &json!("statistics")));
}

#[tokio::test]
async fn boolean_answers_say_what_was_not_taken_as_written() {
    let server = Running::small().await;
    let texts = ["moon AND sea", "\"moon AND", "sun"];
    let answer = server
        .retrieve(json!({"queries": texts, "mode": "boolean"}))
        .await;
    let issues = answer["issues"].as_array().unwrap();
    assert_eq!(
        (issues.len(), &issues[0], &issues[2]),
        (3, &json!([]), &json!([]))
    );
    assert!(
        issues[1][0]["message"].as_str().unwrap().contains("quote"),
        "{answer}"
    );
    let plain = server.retrieve(json!({"queries": texts})).await;
    assert!(plain.get("issues").is_none());
}

#[tokio::test]
async fn excerpts_come_in_pieces() {
    let server = Running::small().await;
    let answer = server
        .retrieve(json!({"queries": ["alert tide"], "topk": 1, "snippets": true}))
        .await;
    let pieces = &answer["result"][0][0]["snippet"]["pieces"];
    let whole: String = pieces
        .as_array()
        .unwrap()
        .iter()
        .map(|piece| piece[0].as_str().unwrap())
        .collect();
    assert_eq!(whole, answer["result"][0][0]["text"].as_str().unwrap());
    assert_eq!(pieces[0], json!(["Tides", true]));
    assert_eq!(answer["result"][0][0]["snippet"]["cut"], false);
}

#[tokio::test]
async fn passages_by_id() {
    let server = Running::small().await;
    for (path, id) in [
        ("moon", "moon"),
        ("a/b%20c%231", "a/b c#1"),
        ("m%C3%BCll", "müll"),
    ] {
        let (status, found) = server.get(&format!("/doc/{path}")).await;
        assert_eq!((status, &found["id"]), (200, &json!(id)));
        assert!(found["contents"].as_str().unwrap().starts_with('"'));
    }
    let (status, answer) = server.get("/doc/none").await;
    assert_eq!(
        (status, &answer["detail"]),
        (404, &json!("no passage has the id `none`"))
    );
}
