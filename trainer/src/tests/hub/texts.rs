//! Texts beside the weights: fetched alone, and no larger than they may be.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_tokenizer_is_had_without_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (source, cache) = (folder.path().join("source"), folder.path().join("cache"));
    saved(&source, 30_000);
    let served = Served::new(&source);
    let hub = Hub {
        cache,
        endpoint: serve(Arc::clone(&served)).await,
        token: None,
        offline: false,
    };
    let away = Hub {
        offline: true,
        ..hub.clone()
    };
    let texts = |hub: Hub| async move {
        let fetch = move || {
            let folder = hub.fetch_texts("org/tiny").unwrap();
            Checkpoint::tokenizer_of(&folder).map(|_| ()).unwrap();
        };
        tokio::task::spawn_blocking(fetch).await.unwrap();
    };
    texts(hub.clone()).await;
    assert!(
        !served
            .asked()
            .iter()
            .any(|path| path.contains("safetensors")),
        "{:?}",
        served.asked()
    );
    texts(away.clone()).await;
    // They are not a checkpoint, which is fetched when it is wanted.
    let error = open(away.clone(), "org/tiny").await.unwrap_err();
    assert!(
        error.contains("safetensors is missing") && error.contains("HF_HUB_OFFLINE"),
        "{error}"
    );
    open(hub, "org/tiny").await.unwrap();
    open(away, "org/tiny").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_out_of_proportion_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    saved(&source, 1_000_000);
    let mut served = Arc::into_inner(Served::new(&source)).unwrap();
    served.told = Some((64 << 20) + 1);
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint: serve(Arc::new(served)).await,
        token: None,
        offline: false,
    };
    let error = open(hub, "org/tiny").await.unwrap_err();
    let told = ".json, which is read whole, has 67108865 bytes, more than";
    assert!(error.contains(told), "{error}");
}
