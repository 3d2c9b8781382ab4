//! A small HTTP server that answers as told and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Response};
use forage_net::HttpOptions;
use forage_retriever::remote::RemoteSpec;
use forage_retriever::{Encoder, Retriever, RetrieverError, TextKind};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        assert!(self.body.ends_with('\n'), "the last line must be ended");
        self.body
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// What to answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
    pub(crate) delay: Duration,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
            delay: Duration::ZERO,
        }
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::new(200, body.to_string())
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// The running server; `seen` holds every request in the order of arrival.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// `answer` gets the request and how many came before it for the same path.
    pub(crate) async fn start(
        answer: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Vec::<Seen>::new()));
        let log = Arc::clone(&seen);
        let answer = Arc::new(answer);
        let handler = move |request: Request| {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap();
                let request = Seen {
                    method: parts.method.to_string(),
                    target: parts.uri.to_string(),
                    headers: parts.headers,
                    body: String::from_utf8(body.to_vec()).unwrap(),
                };
                let before = {
                    let mut log = log.lock().unwrap();
                    let before = log
                        .iter()
                        .filter(|earlier| earlier.target == request.target)
                        .count();
                    log.push(request.clone());
                    before
                };
                let reply = answer(&request, before);
                tokio::time::sleep(reply.delay).await;
                let mut response = Response::builder().status(reply.status);
                for (name, value) in reply.headers {
                    response = response.header(name, value);
                }
                response.body(Body::from(reply.body)).unwrap()
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            axum::serve(listener, Router::new().fallback(handler))
                .await
                .unwrap();
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Requests whose path ends so.
    pub(crate) fn seen_at(&self, path: &str) -> Vec<Seen> {
        self.seen()
            .into_iter()
            .filter(|seen| seen.target.ends_with(path))
            .collect()
    }
}

/// Limits that make faults quick.
pub(crate) fn hasty() -> HttpOptions {
    HttpOptions {
        timeout_ms: 300,
        deadline_ms: 5_000,
        attempts: 3,
        backoff_ms: 1,
        ..HttpOptions::default()
    }
}

/// Opens a retriever as a config names it, with limits that make faults quick unless `settings` has its own.
pub(crate) async fn open(
    kind: &str,
    mut settings: Value,
) -> Result<Arc<dyn Retriever>, RetrieverError> {
    settings["kind"] = kind.into();
    if settings["http"].is_null() {
        settings["http"] = json!(hasty());
    }
    let spec: RemoteSpec = serde_json::from_value(settings).unwrap();
    spec.open(Some(Arc::new(LengthEncoder))).await
}

/// A file with credentials, and the folder that holds it.
pub(crate) fn token_file(secret: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, format!("{secret}\n")).unwrap();
    (folder, path)
}

/// Four numbers per text: its length, its words, and two constants.
pub(crate) struct LengthEncoder;

impl Encoder for LengthEncoder {
    fn identity(&self) -> String {
        "length and words".to_owned()
    }

    fn dimension(&self) -> usize {
        4
    }

    fn encode(&self, kind: TextKind, texts: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        assert_eq!(kind, TextKind::Query);
        let vector = |text: &&str| {
            [
                text.len() as f32,
                text.split_whitespace().count() as f32,
                0.5,
                -1.0,
            ]
        };
        Ok(texts.iter().flat_map(vector).collect())
    }
}
