//! A small server on the base, and a client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use forage_net::{
    Base, BaseConfig, Refusal, Refuse, ServeError, Service, Summary, Url, connector, json, refused,
    router, serve,
};
use reqwest::Client;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(crate) struct Fault(Refusal);

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        refused(self.0.status(), self.0.to_string())
    }
}

impl Refuse for Fault {
    fn cause(&self) -> &'static str {
        self.0.cause()
    }
}

pub(crate) struct App {
    base: Arc<Base>,
    /// The gate of `/heavy`: its work waits until the sender is dropped.
    gate: Mutex<mpsc::Receiver<()>>,
    /// Requests whose bodies are there.
    pub(crate) admitted: AtomicUsize,
    running: AtomicUsize,
    /// Most work of `/heavy` that ran at once.
    pub(crate) most_running: AtomicUsize,
}

impl Service for App {
    type Fault = Fault;

    fn base(&self) -> &Arc<Base> {
        &self.base
    }
}

/// Bytes of the answer of `/large`: more than the system takes off a server's hands.
pub(crate) const LARGE: usize = 32 * 1024 * 1024;

/// Answers with the length of the body, after as many milliseconds as it says.
async fn wait(State(app): State<Arc<App>>, body: Body) -> Response {
    let work = async {
        let (_ticket, body) = app.base.admitted(body).await?;
        app.admitted.fetch_add(1, Ordering::SeqCst);
        let text = String::from_utf8_lossy(&body);
        tokio::time::sleep(Duration::from_millis(text.trim().parse().unwrap_or(0))).await;
        Ok(json(body.len().to_string()))
    };
    app.observe("wait", work).await
}

/// Answers with the length of the body, after heavy work that lasts until the gate is opened.
async fn heavy(State(app): State<Arc<App>>, body: Body) -> Response {
    let work = async {
        let (_ticket, body) = app.base.admitted(body).await?;
        app.admitted.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(&app);
        let work = move || {
            let running = shared.running.fetch_add(1, Ordering::SeqCst) + 1;
            shared.most_running.fetch_max(running, Ordering::SeqCst);
            let _ = shared.gate.lock().unwrap().recv();
            shared.running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Fault>(json(body.len().to_string()))
        };
        app.base.heavy(work).await
    };
    app.observe("heavy", work).await
}

/// Requests whose heavy work is done at a time.
pub(crate) fn turns() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

pub(crate) fn config() -> BaseConfig {
    BaseConfig {
        max_body_bytes: 1000,
        queue: 8,
        drain: Duration::from_secs(5),
        ..BaseConfig::default()
    }
}

/// Waits for something, half a minute at most.
pub(crate) async fn soon(happens: impl Future<Output = ()>) {
    let waited = tokio::time::timeout(Duration::from_secs(30), happens).await;
    waited.expect("it happens within 30 s");
}

pub(crate) struct Running {
    pub(crate) base: String,
    pub(crate) client: Client,
    pub(crate) app: Arc<App>,
    /// Dropped, it lets the work of `/heavy` end.
    pub(crate) gate: Option<mpsc::Sender<()>>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) server: JoinHandle<Result<Summary, ServeError>>,
}

impl Running {
    pub(crate) async fn start(config: BaseConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let client = connector(&Url::parse(&base).unwrap()).build().unwrap();
        let (gate, closed) = mpsc::channel();
        let app = Arc::new(App {
            base: Base::new(config, "test", &[1.0], |_| ()).0,
            gate: Mutex::new(closed),
            admitted: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        });
        let open = Router::new().route("/open", get(async || "open"));
        let guarded = Router::new()
            .route("/wait", post(wait))
            .route("/heavy", post(heavy))
            .route("/large", get(async || vec![b' '; LARGE]));
        let routes = router(&app, guarded, open);
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&app);
        let server = tokio::spawn(async move {
            serve(listener, &served, routes, async { drop(stopped.await) }).await
        });
        Self {
            base,
            client,
            app,
            gate: Some(gate),
            stop,
            server,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, String) {
        let answer = self.client.get(format!("{}{path}", self.base)).send().await;
        let answer = answer.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    pub(crate) fn post(&self, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        self.client.post(format!("{}/wait", self.base)).body(body)
    }

    /// A connection that has sent this.
    pub(crate) async fn raw(&self, text: impl AsRef<[u8]>) -> TcpStream {
        let mut stream = TcpStream::connect(&self.base["http://".len()..])
            .await
            .unwrap();
        stream.write_all(text.as_ref()).await.unwrap();
        stream
    }

    /// Asks for heavy work with a body of so many bytes, and goes away once it has begun or waits for its turn.
    pub(crate) async fn abandoned(&self, bytes: usize) {
        let gone = self.metric("cancelled_total").await;
        let admitted = self.app.admitted.load(Ordering::SeqCst);
        let running = self.app.running.load(Ordering::SeqCst);
        let head = "POST /heavy HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        let mut stream = self
            .raw(format!("{head}content-length: {bytes}\r\n\r\n"))
            .await;
        stream.write_all(&vec![b' '; bytes]).await.unwrap();
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        soon(async {
            while count(&self.app.admitted) == admitted
                || (count(&self.app.running) == running && running < turns())
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        // Nothing shows that it waits for its turn.
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(stream);
        soon(async {
            while self.metric("cancelled_total").await == gone {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// A metric of the server.
    async fn metric(&self, name: &str) -> u64 {
        let (_, metrics) = self.get("/metrics").await;
        let line = format!("test_{name} ");
        let value = metrics.lines().find_map(|it| it.strip_prefix(&*line));
        value.unwrap().parse().unwrap()
    }

    /// A request that is on its way when this returns.
    pub(crate) async fn sent(
        &self,
        milliseconds: &'static str,
    ) -> JoinHandle<(StatusCode, String)> {
        let request = self.post(milliseconds);
        let sent = tokio::spawn(async move {
            let answer = request.send().await.unwrap();
            (answer.status(), answer.text().await.unwrap())
        });
        soon(async {
            while !self.get("/metrics").await.1.contains("test_in_flight 1") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        sent
    }
}
