//! Checkpoints by name: fetched from a server with the hub's addresses and headers, kept in the cache's layout.

mod data;
mod texts;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use forage_contracts::seed::Seed;

use crate::tests::common::problem::checkpoint;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::get;
use burn::tensor::Device;
use forage_trainer::weights::{Checkpoint, FileType, Hub, Precision, SaveOptions};
use forage_trainer::{LoraConfig, Targets};
use sha2::{Digest as _, Sha256};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// One repository, `org/tiny`, whose large files are answered with a redirect as the hub does.
struct Served {
    files: BTreeMap<String, Vec<u8>>,
    /// `ETag` of every file instead of its digest.
    etag: Option<String>,
    /// The length that is told of every file instead of its own.
    told: Option<usize>,
    /// Most bytes of a body, which then breaks off.
    most: usize,
    sha: &'static str,
    /// Refuses the first request of each path.
    busy: bool,
    /// Paths of the requests, and whether they carried the token.
    log: Mutex<Vec<(String, bool)>>,
}

fn sha256(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    digits
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

impl Served {
    fn new(folder: &Path) -> Arc<Self> {
        let entries = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut files: BTreeMap<String, Vec<u8>> = entries
            .map(|path| {
                (
                    path.file_name().unwrap().to_str().unwrap().to_owned(),
                    std::fs::read(path).unwrap(),
                )
            })
            .collect();
        files.insert("README.md".to_owned(), b"not needed".to_vec());
        files.insert("pytorch_model.bin".to_owned(), b"not needed".to_vec());
        files.insert(
            "data/train.jsonl".to_owned(),
            b"{\"question\":\"q\"}\n".to_vec(),
        );
        Arc::new(Self {
            files,
            etag: None,
            told: None,
            most: usize::MAX,
            sha: COMMIT,
            busy: false,
            log: Mutex::default(),
        })
    }

    fn etag(&self, file: &str) -> String {
        let own = || format!("{:x}", file.len() * 31 + usize::from(file.as_bytes()[0]));
        let digest = |bytes: &Vec<u8>| sha256(bytes);
        let digest = || self.files.get(file).map_or_else(own, digest);
        self.etag.clone().unwrap_or_else(digest)
    }

    fn asked(&self) -> Vec<String> {
        self.log
            .lock()
            .unwrap()
            .iter()
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Notes a request; returns whether it is to be refused.
    fn note(&self, path: &str, headers: &HeaderMap) -> bool {
        let token = headers
            .get(header::AUTHORIZATION)
            .is_some_and(|value| value == "Bearer secret");
        let mut log = self.log.lock().unwrap();
        let is_first = log.iter().all(|(asked, _)| asked != path);
        log.push((path.to_owned(), token));
        self.busy && is_first
    }

    fn partial(&self, file: &str, headers: &HeaderMap) -> Response<Body> {
        let Some(bytes) = self.files.get(file) else {
            return status(StatusCode::NOT_FOUND);
        };
        let range = headers[header::RANGE]
            .to_str()
            .unwrap()
            .strip_prefix("bytes=")
            .unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let start: usize = start.parse().unwrap();
        if start >= bytes.len() {
            return status(StatusCode::RANGE_NOT_SATISFIABLE);
        }
        let end = end
            .parse()
            .map_or(bytes.len(), |last: usize| (last + 1).min(bytes.len()));
        Response::builder()
            .status(StatusCode::PARTIAL_CONTENT)
            .header(
                header::CONTENT_RANGE,
                format!(
                    "bytes {start}-{}/{}",
                    end - 1,
                    self.told.unwrap_or(bytes.len())
                ),
            )
            .header(header::ETAG, format!("\"{}\"", self.etag(file)))
            .header("x-repo-commit", COMMIT)
            .body(Body::from(
                bytes[start..end.min(start.saturating_add(self.most))].to_vec(),
            ))
            .unwrap()
    }
}

fn status(code: StatusCode) -> Response<Body> {
    Response::builder()
        .status(code)
        .body(Body::empty())
        .unwrap()
}

async fn info(
    State(served): State<Arc<Served>>,
    UrlPath(rest): UrlPath<String>,
    headers: HeaderMap,
) -> Response<Body> {
    served.note(&format!("/api/models/{rest}"), &headers);
    if rest == "org/private/revision/main" {
        return status(StatusCode::UNAUTHORIZED);
    }
    if rest != "org/tiny/revision/main" {
        return status(StatusCode::NOT_FOUND);
    }
    let siblings: Vec<_> = served
        .files
        .keys()
        .map(|name| serde_json::json!({ "rfilename": name }))
        .collect();
    let body = serde_json::json!({ "id": "org/tiny", "sha": served.sha, "siblings": siblings })
        .to_string();
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .unwrap()
}

async fn resolve(
    State(served): State<Arc<Served>>,
    UrlPath((revision, file)): UrlPath<(String, String)>,
    headers: HeaderMap,
) -> Response<Body> {
    served.note(&format!("/org/tiny/resolve/{revision}/{file}"), &headers);
    if !file.ends_with(".safetensors") {
        return served.partial(&file, &headers);
    }
    let host = headers[header::HOST].to_str().unwrap();
    Response::builder()
        .status(StatusCode::FOUND)
        .header(header::LOCATION, format!("http://{host}/cdn/{file}"))
        .header("x-linked-etag", format!("\"{}\"", served.etag(&file)))
        .header("x-repo-commit", COMMIT)
        .body(Body::empty())
        .unwrap()
}

async fn data(
    State(served): State<Arc<Served>>,
    UrlPath((revision, file)): UrlPath<(String, String)>,
    headers: HeaderMap,
) -> Response<Body> {
    let path = format!("/datasets/org/set/resolve/{revision}/{file}");
    if served.note(&path, &headers) {
        return status(StatusCode::SERVICE_UNAVAILABLE);
    }
    served.partial(&file, &headers)
}

async fn data_info(
    State(served): State<Arc<Served>>,
    UrlPath(rest): UrlPath<String>,
    headers: HeaderMap,
) -> Response<Body> {
    if served.note(&format!("/api/datasets/{rest}"), &headers) {
        return status(StatusCode::SERVICE_UNAVAILABLE);
    }
    let files = served.files.keys();
    let siblings: Vec<_> = files
        .map(|name| serde_json::json!({ "rfilename": name }))
        .collect();
    let body = serde_json::json!({ "sha": served.sha, "siblings": siblings }).to_string();
    Response::new(Body::from(body))
}

async fn cdn(
    State(served): State<Arc<Served>>,
    UrlPath(file): UrlPath<String>,
    headers: HeaderMap,
) -> Response<Body> {
    served.partial(&file, &headers)
}

/// Serves on a port of this machine; returns its address.
async fn serve(served: Arc<Served>) -> String {
    let router = Router::new()
        .route("/api/models/{*rest}", get(info))
        .route("/org/tiny/resolve/{revision}/{*file}", get(resolve))
        .route("/datasets/org/set/resolve/{revision}/{*file}", get(data))
        .route("/api/datasets/{*rest}", get(data_info))
        .route("/cdn/{file}", get(cdn))
        .with_state(served);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    format!("http://{address}")
}

fn saved(folder: &Path, shard_bytes: usize) {
    checkpoint(3)
        .save_with(
            folder,
            SaveOptions {
                file_type: FileType::F32,
                shard_bytes,
            },
        )
        .unwrap();
}

async fn open(hub: Hub, name: &'static str) -> Result<Checkpoint, String> {
    let open = move || Checkpoint::open(name, &hub, Precision::Full, &Device::flex());
    tokio::task::spawn_blocking(open)
        .await
        .unwrap()
        .map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_fetched_once_and_then_found_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (source, cache) = (folder.path().join("source"), folder.path().join("cache"));
    saved(&source, 30_000);
    let mut served = Arc::into_inner(Served::new(&source)).unwrap();
    let of_encoders = "1_Pooling/config.json".to_owned();
    served.files.insert(of_encoders.clone(), b"{}".to_vec());
    let served = Arc::new(served);
    let endpoint = serve(Arc::clone(&served)).await;
    let hub = Hub {
        cache: cache.clone(),
        endpoint,
        token: Some("secret".into()),
        offline: false,
    };
    let found = open(hub.clone(), "org/tiny").await.unwrap();
    assert_eq!(found.config, checkpoint(3).config);
    let asked = served.asked();
    assert!(
        asked
            .iter()
            .any(|path| path.ends_with(&format!("{COMMIT}/model-00001-of-00004.safetensors"))),
        "{asked:?}"
    );
    assert!(
        !asked
            .iter()
            .any(|path| path.contains("README") || path.contains("pytorch")),
        "{asked:?}"
    );
    assert!(served.log.lock().unwrap().iter().all(|(_, token)| *token));
    // The layout is that of the hub's own tools.
    let repo = cache.join("models--org--tiny");
    assert_eq!(
        std::fs::read_to_string(repo.join("refs/main")).unwrap(),
        COMMIT
    );
    assert!(
        repo.join("snapshots")
            .join(COMMIT)
            .join("config.json")
            .is_symlink()
    );
    assert!(
        repo.join("blobs")
            .join(served.etag("config.json"))
            .is_file()
    );
    let snapshot = repo.join("snapshots").join(COMMIT);
    assert!(snapshot.join(of_encoders).is_file());
    // A second time only the revision is asked for; offline and by commit nothing is.
    let before = served.asked().len();
    open(hub.clone(), "org/tiny").await.unwrap();
    assert_eq!(served.asked().len(), before + 1);
    open(
        Hub {
            offline: true,
            ..hub.clone()
        },
        "org/tiny@main",
    )
    .await
    .unwrap();
    open(
        hub.clone(),
        "org/tiny@0123456789abcdef0123456789abcdef01234567",
    )
    .await
    .unwrap();
    assert_eq!(served.asked().len(), before + 1);
    // A hub that is away does no harm.
    open(
        Hub {
            endpoint: "http://127.0.0.1:9".into(),
            ..hub.clone()
        },
        "org/tiny",
    )
    .await
    .unwrap();
    let error = open(
        Hub {
            offline: true,
            ..hub.clone()
        },
        "org/other",
    )
    .await
    .unwrap_err();
    assert!(
        error.contains("org/other") && error.contains("HF_HUB_OFFLINE"),
        "{error}"
    );
    std::fs::remove_file(
        repo.join("snapshots")
            .join(COMMIT)
            .join("model-00002-of-00004.safetensors"),
    )
    .unwrap();
    let error = open(
        Hub {
            offline: true,
            ..hub
        },
        "org/tiny",
    )
    .await
    .unwrap_err();
    assert!(
        error.contains("model-00002-of-00004.safetensors is missing"),
        "{error}"
    );
}

/// Everything below a folder but what is needed to hold it.
fn written(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(written(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_server_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (source, cache) = (folder.path().join("source"), folder.path().join("cache"));
    saved(&source, 1_000_000);
    let escape = folder.path().join("escaped").display().to_string();
    for (etag, sha) in [
        (Some(escape.as_str()), COMMIT),
        (Some("../../../../escaped"), COMMIT),
        (Some(".."), COMMIT),
        (None, "../../../escaped"),
        (None, ""),
    ] {
        let mut served = Arc::into_inner(Served::new(&source)).unwrap();
        (served.etag, served.sha) = (etag.map(str::to_owned), sha);
        let hub = Hub {
            cache: cache.clone(),
            endpoint: serve(Arc::new(served)).await,
            token: None,
            offline: false,
        };
        let error = open(hub, "org/tiny").await.unwrap_err();
        assert!(
            error.contains("hexadecimal") && error.contains("HF_ENDPOINT"),
            "{error}"
        );
        assert_eq!(written(&cache), Vec::<std::path::PathBuf>::new());
        assert!(!folder.path().join("escaped").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_what_its_name_says_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (source, cache) = (folder.path().join("source"), folder.path().join("cache"));
    saved(&source, 1_000_000);
    let mut served = Arc::into_inner(Served::new(&source)).unwrap();
    served.etag = Some(sha256(b"the weights that somebody else publishes"));
    let hub = Hub {
        cache: cache.clone(),
        endpoint: serve(Arc::new(served)).await,
        token: None,
        offline: false,
    };
    let error = open(hub, "org/tiny").await.unwrap_err();
    assert!(error.contains("called by its SHA-256"), "{error}");
    let left = written(&cache);
    let empty = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().len() == 0;
    assert!(left.iter().all(empty), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_never_sent_in_the_open() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint: "http://hub.example".into(),
        token: Some("secret".into()),
        offline: false,
    };
    let error = open(hub.clone(), "org/tiny").await.unwrap_err();
    assert!(
        error.contains("plain http") && !error.contains("secret"),
        "{error}"
    );
    let data = move || hub.fetch_data("hf://datasets/org/set/data.jsonl");
    let error = tokio::task::spawn_blocking(data)
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("plain http"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_gaps_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    saved(&source, 1_000_000);
    std::fs::remove_file(source.join("model.safetensors")).unwrap();
    let endpoint = serve(Served::new(&source)).await;
    let hub = Hub {
        cache: folder.path().join("cache"),
        endpoint,
        token: None,
        offline: false,
    };
    let error = open(hub.clone(), "org/tiny").await.unwrap_err();
    assert!(
        error.contains("org/tiny has no model.safetensors"),
        "{error}"
    );
    let error = open(hub.clone(), "org/absent").await.unwrap_err();
    assert!(
        error.contains("org/absent") && error.contains("check the name"),
        "{error}"
    );
    let error = open(hub.clone(), "org/private").await.unwrap_err();
    assert!(
        error.contains("check the name") && error.contains("set HF_TOKEN to a token of yours"),
        "{error}"
    );
    let known = Hub {
        token: Some("worn out".into()),
        ..hub.clone()
    };
    let error = open(known, "org/private").await.unwrap_err();
    assert!(error.contains("the access token is not taken"), "{error}");
    let error = open(
        Hub {
            endpoint: "http://127.0.0.1:9".into(),
            ..hub.clone()
        },
        "org/tiny",
    )
    .await
    .unwrap_err();
    assert!(error.contains("check the network"), "{error}");
    let error = open(hub, "./nowhere/at/all").await.unwrap_err();
    assert!(error.contains("neither a folder nor a name"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_other_tools_filled_serves_offline() {
    let folder = tempfile::tempdir().unwrap();
    let repo = folder.path().join("models--org--tiny");
    let (blobs, snapshot) = (repo.join("blobs"), repo.join("snapshots").join(COMMIT));
    saved(&folder.path().join("source"), 1_000_000);
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(repo.join("refs")).unwrap();
    std::fs::write(repo.join("refs/main"), COMMIT).unwrap();
    for (number, entry) in std::fs::read_dir(folder.path().join("source"))
        .unwrap()
        .enumerate()
    {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), blobs.join(number.to_string())).unwrap();
        std::os::unix::fs::symlink(
            format!("../../blobs/{number}"),
            snapshot.join(entry.file_name()),
        )
        .unwrap();
    }
    let hub = Hub {
        cache: folder.path().into(),
        endpoint: "http://127.0.0.1:9".into(),
        token: None,
        offline: true,
    };
    let found = open(hub, "org/tiny").await.unwrap();
    assert_eq!(found.tokenizer_json, checkpoint(3).tokenizer_json);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_s_folder_opens_with_its_base() {
    let folder = tempfile::tempdir().unwrap();
    let (base, adapter, merged) = (
        folder.path().join("base"),
        folder.path().join("adapter"),
        folder.path().join("out"),
    );
    saved(&base, 1_000_000);
    let hub = Hub {
        cache: folder.path().into(),
        endpoint: "http://127.0.0.1:9".into(),
        token: None,
        offline: true,
    };
    let open = |path: &Path| {
        Checkpoint::open(
            path.to_str().unwrap(),
            &hub,
            Precision::Stored,
            &Device::flex(),
        )
    };
    let mut start = open(&base).unwrap();
    let targets = Targets::Names(vec!["q_proj".into(), "up_proj".into()]);
    let name = base.to_str().unwrap().to_owned();
    let config = LoraConfig {
        rank: 2,
        alpha: 4.0,
        rank_stabilised: true,
        dropout: 0.0,
        targets,
        base: name,
    };
    assert!(
        start
            .save_adapter(&adapter)
            .unwrap_err()
            .to_string()
            .contains("no adapter")
    );
    start.adapt(config.clone(), Seed::root(1)).unwrap();
    start.save_adapter(&adapter).unwrap();
    let found = open(&adapter).unwrap();
    assert_eq!(found.lora, Some(config));
    // Saving an adapted model writes what it computes: a fresh adapter changes nothing.
    found.save(&merged).unwrap();
    let bytes = |path: &Path| std::fs::read(path.join("model.safetensors")).unwrap();
    assert!(bytes(&merged) == bytes(&base));
    std::fs::remove_dir_all(&base).unwrap();
    let error = open(&adapter).unwrap_err().to_string();
    assert!(
        error.contains(base.to_str().unwrap()) && error.contains("neither a folder"),
        "{error}"
    );
}
