//! A small server on the base, and a client.

use std::sync::Arc;
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

pub(crate) struct App(Arc<Base>);

impl Service for App {
    type Fault = Fault;

    fn base(&self) -> &Arc<Base> {
        &self.0
    }
}

/// Bytes of the answer of `/large`: more than the system takes off a server's hands.
pub(crate) const LARGE: usize = 32 * 1024 * 1024;

/// Answers with the length of the body, after as many milliseconds as it says.
async fn wait(State(app): State<Arc<App>>, body: Body) -> Response {
    let work = async {
        let (_ticket, body) = app.0.admitted(body).await?;
        let text = String::from_utf8_lossy(&body);
        tokio::time::sleep(Duration::from_millis(text.trim().parse().unwrap_or(0))).await;
        Ok(json(body.len().to_string()))
    };
    app.observe("wait", work).await
}

pub(crate) fn config() -> BaseConfig {
    BaseConfig {
        max_body_bytes: 1000,
        queue: 8,
        drain: Duration::from_secs(5),
        ..BaseConfig::default()
    }
}

pub(crate) struct Running {
    pub(crate) base: String,
    pub(crate) client: Client,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) server: JoinHandle<Result<Summary, ServeError>>,
}

impl Running {
    pub(crate) async fn start(config: BaseConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let client = connector(&Url::parse(&base).unwrap()).build().unwrap();
        let app = Arc::new(App(Base::new(config, "test", &[1.0], |_| ()).0));
        let open = Router::new().route("/open", get(async || "open"));
        let guarded = Router::new()
            .route("/wait", post(wait))
            .route("/large", get(async || vec![b' '; LARGE]));
        let routes = router(&app, guarded, open);
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(async move {
            serve(listener, &app, routes, async { drop(stopped.await) }).await
        });
        Self {
            base,
            client,
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
        while !self.get("/metrics").await.1.contains("test_in_flight 1") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sent
    }
}
