//! A running server, a client, and a retriever that is slow or broken on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forage_net::{Fault, NetError};
use forage_retriever::server::{ServeError, ServerConfig, Services, Summary};
use forage_retriever::{
    Bm25Retriever, Fingerprint, Hit, Mode, Passage, Query, Retriever, RetrieverError,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct Running {
    pub(crate) base: String,
    pub(crate) client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<Summary, ServeError>>,
}

impl Running {
    pub(crate) async fn start(config: ServerConfig, services: Services) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let server = tokio::spawn(services.serve(listener, config, shutdown));
        Self {
            base,
            client: client(),
            stop: Some(stop),
            server,
        }
    }

    /// Five passages, default limits.
    pub(crate) async fn small() -> Self {
        Self::start(config(), Services::of_index(corpus())).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Host and port, for raw sockets.
    pub(crate) fn address(&self) -> &str {
        &self.base["http://".len()..]
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.post_bytes(path, body.to_string().into_bytes()).await
    }

    pub(crate) async fn post_bytes(&self, path: &str, body: Vec<u8>) -> (u16, Value) {
        let sent = self
            .client
            .post(self.url(path))
            .header("content-type", "application/json")
            .body(body)
            .send();
        read(sent.await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        read(self.client.get(self.url(path)).send().await.unwrap()).await
    }

    pub(crate) async fn retrieve(&self, body: Value) -> Value {
        let (status, mut answer) = self.post("/retrieve", &body).await;
        assert_eq!(status, 200, "{body} -> {answer}");
        assert!(answer["took_ms"].as_f64().unwrap() >= 0.0);
        answer.as_object_mut().unwrap().remove("took_ms");
        answer
    }

    pub(crate) async fn metrics(&self) -> String {
        self.client
            .get(self.url("/metrics"))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    }

    pub(crate) fn tell_to_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn ended(self) -> Summary {
        self.server.await.unwrap().unwrap()
    }
}

async fn read(response: reqwest::Response) -> (u16, Value) {
    let status = response.status().as_u16();
    assert_eq!(
        response.headers()["content-type"],
        "application/json",
        "{status}"
    );
    (
        status,
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap(),
    )
}

pub(crate) fn client() -> reqwest::Client {
    let base = reqwest::Url::parse("http://127.0.0.1").unwrap();
    forage_net::connector(&base).build().unwrap()
}

pub(crate) fn config() -> ServerConfig {
    ServerConfig {
        workers: 2,
        ..ServerConfig::default()
    }
}

pub(crate) fn corpus() -> Arc<Bm25Retriever> {
    let passages = vec![
        Passage::new("moon", "Moon", "The moon raises tides in the sea."),
        Passage::new("sun", "Sun", "The sun drives the wind and lights the moon."),
        Passage::new(
            "a/b c#1",
            "Odd \"id\"",
            "Tides <script>alert(1)</script> & more\nlines, the moon again.",
        ),
        Passage::new("wind", "", "Wind moves the sea."),
        Passage::new("müll", "Ünïcode 😀", "Der Mond hebt das Meer."),
    ];
    Arc::new(Bm25Retriever::in_memory(passages).unwrap())
}

/// What a document of the wire must look like for a hit.
pub(crate) fn document(hit: &Hit) -> Value {
    let contents = format!("\"{}\"\n{}", hit.title, hit.text);
    json!({"id": hit.id, "title": hit.title, "text": hit.text, "contents": contents})
}

/// The answer to a query as the library gives it, in the wire's form.
pub(crate) fn expected(query: &str, k: usize, scored: bool) -> Value {
    let hits = corpus().search_one(query, k).unwrap();
    let item = |hit: &Hit| {
        if !scored {
            return document(hit);
        }
        // Scores are written as the shortest decimal that is the same f32.
        json!({"document": document(hit), "score": hit.score.to_string().parse::<f64>().unwrap()})
    };
    hits.iter().map(item).collect()
}

/// How a [`Difficult`] retriever is difficult.
#[derive(Clone, Copy)]
pub(crate) enum Difficulty {
    /// Waits without holding a thread, per job.
    Waits(Duration),
    /// Computes, holding a thread, per query.
    Computes(Duration),
    /// A remote backend that does not answer.
    Remote,
    /// A model that fails.
    Model,
    /// What cannot be done.
    Unsupported,
    /// A defect.
    Panics,
    /// One list too few.
    Short,
}

/// Answers every query with one hit that repeats it, after some trouble. Counts what it was asked.
pub(crate) struct Difficult {
    pub(crate) difficulty: Difficulty,
    pub(crate) asked: Arc<AtomicUsize>,
}

impl Difficult {
    pub(crate) fn services(difficulty: Difficulty) -> (Services, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let retriever = Arc::new(Self {
            difficulty,
            asked: asked.clone(),
        });
        (Services::of_retriever(Mode::BM25, retriever), asked)
    }
}

#[async_trait::async_trait]
impl Retriever for Difficult {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint("difficult".to_owned())
    }

    async fn search(&self, queries: &[Query], _k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let short = matches!(self.difficulty, Difficulty::Short);
        match self.difficulty {
            Difficulty::Waits(time) => tokio::time::sleep(time).await,
            Difficulty::Computes(time) => std::thread::sleep(time * queries.len() as u32),
            Difficulty::Remote => {
                let fault = Fault::Timeout { milliseconds: 5 };
                let error = NetError {
                    url: "http://far".to_owned(),
                    fault,
                    attempts: 3,
                };
                return Err(RetrieverError::Remote(error.into()));
            }
            Difficulty::Model => {
                return Err(RetrieverError::Model {
                    model: "encoder".to_owned(),
                    what: "no memory".to_owned(),
                });
            }
            Difficulty::Unsupported => {
                return Err(RetrieverError::Unsupported {
                    retriever: "it".to_owned(),
                    what: "filter by field",
                });
            }
            Difficulty::Panics => panic!("a defect, on purpose"),
            Difficulty::Short => {}
        }
        self.asked.fetch_add(queries.len(), Ordering::SeqCst);
        let hit = |query: &Query| Hit {
            id: query.text.clone(),
            score: 1.0,
            title: String::new(),
            text: String::new(),
        };
        Ok(queries
            .iter()
            .skip(usize::from(short))
            .map(|query| vec![hit(query)])
            .collect())
    }
}
