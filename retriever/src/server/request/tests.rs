use proptest::prelude::*;
use serde_json::json;

use super::*;

const LIMITS: Limits = Limits {
    topk: 3,
    max_topk: 100,
    max_queries: 50,
    max_query_bytes: 200,
};

fn retrieve(body: &Value) -> Result<RetrieveRequest, Vec<Problem>> {
    RetrieveRequest::parse(body.to_string().as_bytes(), &LIMITS)
}

#[test]
fn shapes_follow_the_keys_that_are_there() {
    let shape = |body: Value| retrieve(&body).unwrap().shape;
    assert_eq!(shape(json!({"queries": ["a"]})), Shape::Bare);
    assert_eq!(
        shape(json!({"queries": ["a"], "return_scores": true})),
        Shape::Scored
    );
    assert_eq!(
        shape(json!({"query": "a", "return_scores": true})),
        Shape::Scored
    );
    assert_eq!(
        shape(json!({"query": "a", "return_scores": false})),
        Shape::Bare
    );
    assert_eq!(shape(json!({"query": "a"})), Shape::Results);
    let both = retrieve(&json!({"query": "a", "queries": ["b"]})).unwrap();
    assert_eq!(
        (both.shape, both.queries),
        (Shape::Bare, vec![Query::new("b")])
    );
}

#[test]
fn reranking_takes_its_own_numbers() {
    let numbers = |body: Value| {
        let request = retrieve(&body).unwrap();
        (request.k, request.candidates)
    };
    assert_eq!(numbers(json!({"queries": [], "topk": 7})), (7, None));
    assert_eq!(
        numbers(json!({"queries": [], "topk_retrieval": 20, "topk_rerank": 5})),
        (5, Some(20))
    );
    assert_eq!(
        numbers(json!({"queries": [], "topk_rerank": 5})),
        (5, Some(10))
    );
    assert_eq!(
        numbers(json!({"queries": [], "topk_retrieval": 20})),
        (3, Some(20))
    );
    assert_eq!(
        numbers(json!({"queries": [], "topk_retrieval": 2, "topk_rerank": 5})),
        (5, Some(5))
    );
}

#[test]
fn documents_to_rerank_come_in_three_forms() {
    let body = json!({
        "queries": ["q"],
        "documents": [["plain", {"contents": "\"T\"\nx\ny"}, {"document": {"contents": "only"}, "score": 2.0}]],
        "rerank_topk": 2,
    });
    let request = RerankRequest::parse(body.to_string().as_bytes(), &LIMITS).unwrap();
    assert_eq!(
        request.documents,
        [["plain", "(Title: \"T\") x\ny", "(Title: only) "]]
    );
    assert_eq!((request.k, request.scores), (2, false));
    let wrong = |documents: Value| {
        let body = json!({"queries": ["q"], "documents": documents}).to_string();
        let problems = RerankRequest::parse(body.as_bytes(), &LIMITS).unwrap_err();
        (
            problems[0].kind,
            serde_json::to_value(&problems[0].loc).unwrap(),
        )
    };
    assert_eq!(
        wrong(json!([])),
        ("length_mismatch", json!(["body", "documents"]))
    );
    assert_eq!(
        wrong(json!([[{"text": ""}]])),
        ("missing", json!(["body", "documents", 0, 0, "contents"]))
    );
    assert_eq!(
        wrong(json!([[{"document": 3}]])),
        ("dict_type", json!(["body", "documents", 0, 0, "document"]))
    );
    assert_eq!(
        wrong(json!(["x"])),
        ("list_type", json!(["body", "documents", 0]))
    );
    assert_eq!(
        wrong(json!([vec!["x"; LIMITS.max_topk + 1]])),
        ("too_long", json!(["body", "documents", 0]))
    );
}

#[test]
fn few_of_many_faults_are_listed() {
    let problems = retrieve(&json!({"queries": vec![1; 50]})).unwrap_err();
    assert_eq!(problems.len(), 20);
}

#[test]
fn a_filter_is_held_once_for_all_queries() {
    let filter = json!({"page": ["p"]});
    let body = json!({"queries": ["a", "b"], "query": ["a", "b"], "filter": filter});
    let flashrag = RetrieveRequest::parse_flashrag(body.to_string().as_bytes(), &LIMITS, true);
    for queries in [retrieve(&body).unwrap().queries, flashrag.unwrap().queries] {
        assert_eq!(queries[0].filter.0["page"], ["p"]);
        assert!(Arc::ptr_eq(&queries[0].filter, &queries[1].filter));
    }
}

#[test]
fn what_was_sent_is_repeated_in_part() {
    let long = "é".repeat(1 << 19);
    let numbers = vec![1; 20_000];
    for (body, count) in [
        (
            json!({"queries": [], "filter": {(long.clone()): numbers}}),
            20,
        ),
        (json!({"queries": [], "statistics": (long.clone())}), 1),
    ] {
        let problems = retrieve(&body).unwrap_err();
        assert_eq!(problems.len(), count);
        let answer = serde_json::to_string(&problems).unwrap();
        assert!(
            answer.len() < 10_000 && answer.contains('é'),
            "{}",
            answer.len()
        );
    }
}

#[test]
fn the_name_of_a_filter_is_not_copied_for_each_value() {
    let begun = std::time::Instant::now();
    let values = vec!["a"; 200_000];
    let body = json!({"queries": ["a"], "filter": {("n".repeat(1 << 20)): values}});
    assert!(retrieve(&body).is_ok());
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let refused = RetrieveRequest::parse(&body, &LIMITS).is_err();
        let object = serde_json::from_slice::<Value>(&body).is_ok_and(|value| value.is_object());
        prop_assert!(refused || object);
    }

    #[test]
    fn queries_arrive_as_they_were_sent(texts in proptest::collection::vec("\\PC{0,20}", 0..20), k in 0_usize..100) {
        let request = retrieve(&json!({"queries": texts, "topk": k})).unwrap();
        prop_assert_eq!(request.queries, texts.into_iter().map(Query::new).collect::<Vec<_>>());
        prop_assert_eq!(request.k, if k == 0 { 3 } else { k });
    }

    #[test]
    fn any_value_of_any_key_is_read_or_named(key in 0_usize..9, value in values()) {
        let key = ["queries", "query", "topk", "return_scores", "mode", "filter", "statistics", "topk_rerank", "x"][key];
        let mut body = json!({"queries": ["a"]});
        body[key] = value;
        match retrieve(&body) {
            Ok(request) => prop_assert!(request.k >= 1 && request.k <= 100),
            Err(problems) => prop_assert!(problems.iter().all(|problem| problem.loc.get(1) == Some(&Place::from(key)))),
        }
    }
}

/// Small JSON values of every kind.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9 ]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,3}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
