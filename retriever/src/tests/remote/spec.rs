//! Remote retrievers as users write them.

use forage_retriever::RetrieverError;
use forage_retriever::remote::RemoteSpec;
use serde_json::{Value, json};

fn read(value: Value) -> Result<RemoteSpec, String> {
    serde_json::from_value(value).map_err(|cause| cause.to_string())
}

#[test]
fn every_kind_is_read_written_and_read_again() {
    for (value, encoder) in [
        (
            json!({"kind": "search-r1", "url": "http://h:8000/retrieve"}),
            false,
        ),
        (
            json!({"kind": "shards", "urls": ["http://a", "http://b"], "batch_queries": 8}),
            false,
        ),
        (
            json!({"kind": "elasticsearch", "url": "http://h:9200", "index": "wiki"}),
            false,
        ),
        (
            json!({"kind": "elasticsearch", "url": "http://h:9200", "index": "wiki", "vector_field": "v"}),
            true,
        ),
        (
            json!({"kind": "qdrant", "url": "http://h:6333", "collection": "wiki"}),
            true,
        ),
        (
            json!({"kind": "chroma", "url": "http://h:8000", "collection": "wiki"}),
            true,
        ),
        (
            json!({"kind": "anserini", "url": "http://h:8081", "index": "/data/ix", "http": {"attempts": 2}}),
            false,
        ),
    ] {
        let spec = read(value).unwrap();
        assert_eq!(spec.needs_encoder(), encoder);
        assert_eq!(read(serde_json::to_value(&spec).unwrap()).unwrap(), spec);
    }
}

#[test]
fn unknown_keys_and_kinds_are_errors() {
    for (value, part) in [
        (
            json!({"kind": "search-r1", "url": "http://h", "ulr": 1}),
            "ulr",
        ),
        (
            json!({"kind": "shards", "urls": [], "http": {"timeout": 1}}),
            "timeout",
        ),
        (
            json!({"kind": "qdrant", "url": "http://h", "collection": "c", "fields": {"body": "x"}}),
            "body",
        ),
        (json!({"kind": "solr", "url": "http://h"}), "solr"),
        (json!({"kind": "elasticsearch", "url": "http://h"}), "index"),
    ] {
        let message = read(value).unwrap_err();
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn vector_searches_need_an_encoder() {
    for value in [
        json!({"kind": "qdrant", "url": "http://h:6333", "collection": "wiki"}),
        json!({"kind": "chroma", "url": "http://h:8000", "collection": "wiki"}),
        json!({"kind": "elasticsearch", "url": "http://h:9200", "index": "wiki", "vector_field": "v"}),
    ] {
        let error = read(value).unwrap().open(None).await.err().unwrap();
        assert!(
            matches!(&error, RetrieverError::Setting { .. })
                && error.to_string().contains("encoder"),
            "{error}"
        );
    }
}
