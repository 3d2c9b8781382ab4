//! Data sets on the hub: single files and whole folders.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn files_of_data_sets_are_fetched_once() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::new(folder.path());
    let endpoint = serve(Arc::clone(&served)).await;
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint,
        token: Some("secret".into()),
        offline: false,
    };
    let fetch = |hub: Hub, address: &'static str| async move {
        let fetched = tokio::task::spawn_blocking(move || hub.fetch_data(address))
            .await
            .unwrap();
        fetched.map_err(|error| error.to_string())
    };
    let address = "hf://datasets/org/set/data/train.jsonl";
    let path = fetch(hub.clone(), address).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "{\"question\":\"q\"}\n"
    );
    assert!(
        path.ends_with(format!(
            "datasets--org--set/snapshots/{COMMIT}/data/train.jsonl"
        )),
        "{}",
        path.display()
    );
    // What a branch is may change at any time, so that its content is asked for by commit.
    let by = ["main", COMMIT];
    let by = by.map(|revision| format!("/datasets/org/set/resolve/{revision}/data/train.jsonl"));
    assert_eq!(served.asked(), by);
    let asked = served.asked().len();
    assert_eq!(
        fetch(
            Hub {
                offline: true,
                ..hub.clone()
            },
            address
        )
        .await
        .unwrap(),
        path
    );
    assert_eq!(fetch(hub.clone(), address).await.unwrap(), path);
    assert_eq!(served.asked().len(), asked, "what the cache has serves");
    let error = fetch(hub.clone(), "hf://datasets/org/set/data/none.jsonl")
        .await
        .unwrap_err();
    assert!(
        error.contains("below `data/none.jsonl`") && error.contains("data/train.jsonl"),
        "{error}"
    );
    let error = fetch(
        Hub {
            offline: true,
            ..hub.clone()
        },
        "hf://datasets/org/set/data/none.jsonl",
    )
    .await
    .unwrap_err();
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    for bad in [
        "hf://datasets/org",
        "hf://datasets/org/set/../x",
        "hf://datasets/org/set/a/./x",
        "hf://datasets/org/set/a\\..\\x",
        "hf://datasets//set/x",
    ] {
        assert!(
            fetch(hub.clone(), bad)
                .await
                .unwrap_err()
                .contains("not the address of a data set"),
            "{bad}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_data_sets_are_fetched_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Arc::into_inner(Served::new(folder.path())).unwrap();
    served
        .files
        .insert("data/test.jsonl".to_owned(), b"{}\n".to_vec());
    let numbered = "v1.0/x.jsonl".to_owned();
    served.files.insert(numbered, b"{}\n".to_vec());
    let piece = b"a piece".to_vec();
    served.files.insert("part_aa".to_owned(), piece.clone());
    let served = Arc::new(served);
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint: serve(Arc::clone(&served)).await,
        token: None,
        offline: false,
    };
    let offline = Hub {
        offline: true,
        ..hub.clone()
    };
    let fetch = |hub: &Hub, address: &'static str| {
        let hub = hub.clone();
        let fetched = tokio::task::spawn_blocking(move || hub.fetch_data(address));
        async move { fetched.await.unwrap().map_err(|error| error.to_string()) }
    };
    // One file of a folder is not the folder.
    fetch(&hub, "hf://org/set/data/train.jsonl").await.unwrap();
    let error = fetch(&offline, "hf://org/set/data").await.unwrap_err();
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    let all = fetch(&hub, "hf://org/set").await.unwrap();
    assert!(
        all.ends_with(format!("datasets--org--set/snapshots/{COMMIT}")),
        "{}",
        all.display()
    );
    assert_eq!(
        std::fs::read_to_string(all.join("data/test.jsonl")).unwrap(),
        "{}\n"
    );
    let data = fetch(&hub, "hf://org/set/data").await.unwrap();
    assert_eq!(data, all.join("data"));
    let others = |path: &String| path.contains("README") || path.contains("pytorch");
    assert!(!served.asked().iter().any(others), "{:?}", served.asked());
    assert_eq!(fetch(&offline, "hf://org/set").await.unwrap(), all);
    // A folder with a dot in its name.
    for hub in [&hub, &offline] {
        let found = fetch(hub, "hf://org/set/v1.0").await.unwrap();
        assert_eq!(found, all.join("v1.0"));
    }
    // A file without a dot in its name.
    let found = fetch(&hub, "hf://org/set/part_aa").await.unwrap();
    assert_eq!(std::fs::read(&found).unwrap(), piece);
    let again = fetch(&offline, "hf://org/set/part_aa").await.unwrap();
    assert_eq!(again, found);
    let error = fetch(&hub, "hf://org/set/none").await.unwrap_err();
    assert!(
        error.contains("below `none`") && error.contains("data/test.jsonl"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_files_may_have_any_letters() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Arc::into_inner(Served::new(folder.path())).unwrap();
    let names = ["a b#1?é%20+&.jsonl", "2026-01-01T00:00:00.jsonl"];
    for name in names {
        let content = format!("{name}\n").into_bytes();
        served.files.insert(format!("data/{name}"), content);
    }
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint: serve(Arc::new(served)).await,
        token: None,
        offline: false,
    };
    let one = hub.clone();
    let fetch = move || one.fetch_data("hf://org/set/data/a b#1?é%20+&.jsonl");
    let file = tokio::task::spawn_blocking(fetch).await.unwrap().unwrap();
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&file), format!("{}\n", names[0]));
    let fetch = move || hub.fetch_data("hf://org/set");
    let data = tokio::task::spawn_blocking(fetch).await.unwrap().unwrap();
    for name in names {
        assert_eq!(read(&data.join(name)), format!("{name}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_file_that_leads_out_of_the_folder_is_refused() {
    for name in [
        "../escaped.jsonl",
        "data/../../escaped.jsonl",
        "/escaped.jsonl",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut served = Arc::into_inner(Served::new(folder.path())).unwrap();
        served.files.insert(name.to_owned(), b"{}\n".to_vec());
        let hub = Hub {
            cache: folder.path().join("cache"),
            endpoint: serve(Arc::new(served)).await,
            token: None,
            offline: false,
        };
        let fetched = tokio::task::spawn_blocking(move || hub.fetch_data("hf://org/set"));
        let error = fetched.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("leads out of its folder"), "{error}");
        assert!(written(folder.path()).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_may_break_off_often() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Arc::into_inner(Served::new(folder.path())).unwrap();
    let content = vec![b'x'; (5 << 20) + 1];
    served.files.insert("part_aa".to_owned(), content.clone());
    served.etag = Some("a1".to_owned());
    served.most = 1 << 20;
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint: serve(Arc::new(served)).await,
        token: None,
        offline: false,
    };
    let fetched = tokio::task::spawn_blocking(move || hub.fetch_data("hf://org/set/part_aa"));
    let path = fetched.await.unwrap().unwrap();
    assert!(std::fs::read(path).unwrap() == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_lacks_nothing_is_not_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Arc::into_inner(Served::new(folder.path())).unwrap();
    served.etag = Some("a1".to_owned());
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint: serve(Arc::new(served)).await,
        token: None,
        offline: false,
    };
    let blobs = hub.cache.join("datasets--org--set/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    // As a process that was killed before the file had its name; the letter tells it from another fetch.
    let held = "{\"question\":\"Q\"}\n";
    std::fs::write(blobs.join("a1.part"), held).unwrap();
    let fetch = move || hub.fetch_data("hf://org/set/data/train.jsonl");
    let path = tokio::task::spawn_blocking(fetch).await.unwrap().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), held);
    assert!(!blobs.join("a1.part").exists());
}

/// Answers with an empty file, of which there is no range.
async fn empty(headers: HeaderMap) -> Response<Body> {
    if headers.contains_key(header::RANGE) {
        return status(StatusCode::RANGE_NOT_SATISFIABLE);
    }
    let described = Response::builder().header(header::ETAG, "\"a1\"");
    let described = described.header("x-repo-commit", COMMIT);
    described.body(Body::empty()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_is_fetched() {
    let path = "/datasets/org/set/resolve/{revision}/{*file}";
    let router = Router::new().route(path, get(empty));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let folder = tempfile::tempdir().unwrap();
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint,
        token: None,
        offline: false,
    };
    let fetch = move || hub.fetch_data("hf://org/set/data/empty.jsonl");
    let path = tokio::task::spawn_blocking(fetch).await.unwrap().unwrap();
    assert!(std::fs::read(path).unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_is_busy_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Arc::into_inner(Served::new(folder.path())).unwrap();
    served.busy = true;
    let served = Arc::new(served);
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint: serve(Arc::clone(&served)).await,
        token: None,
        offline: false,
    };
    let fetched = tokio::task::spawn_blocking(move || hub.fetch_data("hf://org/set"));
    let path = fetched.await.unwrap().unwrap();
    assert!(path.join("train.jsonl").is_file());
    // What it lists and describes is asked for twice.
    let asked = served.asked();
    assert!(asked[0] == asked[1] && asked[2] == asked[3], "{asked:?}");
}
