//! A running server over a real checkpoint, and a client.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use burn::tensor::Device;
use forage_contracts::Tokenizer;
use forage_trainer::server::{Model, ServeError, ServerConfig, Summary};
use forage_trainer::weights::Checkpoint;
use forage_trainer::{EngineConfig, Workers};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::generate::{Engine, EngineModel};
use crate::tests::tool_caller;

const ENGINE: EngineConfig = EngineConfig {
    context: 1024,
    cache_tokens: 8192,
    step_tokens: 512,
    sequences: 16,
    bf16: false,
};

pub(crate) struct Running {
    pub(crate) base: String,
    pub(crate) client: reqwest::Client,
    pub(crate) model: Model,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<Summary, ServeError>>,
}

/// The policy of the quickstart: it writes text of words and tags, and has no chat template.
pub(crate) fn quickstart() -> Model {
    model(&quickstart_folder(), "quickstart")
}

fn quickstart_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart")
}

/// Decodes every token to nothing.
struct Mute;

impl Tokenizer for Mute {
    fn encode(&self, _text: &str) -> Vec<u32> {
        Vec::new()
    }

    fn decode(&self, _ids: &[u32]) -> String {
        String::new()
    }

    fn eos(&self) -> u32 {
        0
    }

    fn vocab_size(&self) -> usize {
        0
    }
}

/// The policy of the quickstart with an engine that sees no stop string.
pub(crate) fn without_stops() -> Model {
    let checkpoint = load(&quickstart_folder());
    let mute = EngineModel {
        tokenizer: Arc::new(Mute),
        ..EngineModel::from(&checkpoint)
    };
    let engine = Engine::of(mute, ENGINE, Workers::new(2).kernel_pool());
    Model {
        engine: Arc::new(engine),
        ..quickstart()
    }
}

/// A chat model that calls a tool.
pub(crate) fn chat() -> Model {
    model(&chat_folder(), "caller")
}

/// The chat model as a base model that learned chats: the token that ends its turns is not its own end.
pub(crate) fn taught_base() -> Model {
    let endless = EngineModel {
        eos: Vec::new(),
        ..EngineModel::from(&load(&chat_folder()))
    };
    let engine = Engine::of(endless, ENGINE, Workers::new(2).kernel_pool());
    Model {
        engine: Arc::new(engine),
        ends: Vec::new(),
        ..chat()
    }
}

fn chat_folder() -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        tool_caller::write(&folder.path().join("model"));
        folder
    });
    folder.path().join("model")
}

fn load(folder: &Path) -> Checkpoint {
    Checkpoint::load(folder, &Device::flex()).unwrap()
}

fn model(folder: &Path, name: &str) -> Model {
    Model::start(name, &load(folder), ENGINE, Workers::new(2).kernel_pool())
}

impl Running {
    pub(crate) async fn start(config: ServerConfig, model: Model) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let server = tokio::spawn(model.clone().serve(listener, config, shutdown));
        Self {
            base,
            client: client(),
            model,
            stop: Some(stop),
            server,
        }
    }

    pub(crate) async fn quickstart() -> Self {
        Self::start(ServerConfig::default(), quickstart()).await
    }

    pub(crate) async fn chat() -> Self {
        Self::start(ServerConfig::default(), chat()).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) async fn send(&self, path: &str, body: &Value) -> reqwest::Response {
        self.client
            .post(self.url(path))
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await
            .unwrap()
    }

    /// Status and JSON of an answer.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        read(self.send(path, body).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        read(self.client.get(self.url(path)).send().await.unwrap()).await
    }

    /// The answer to a request that must succeed.
    pub(crate) async fn answer(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert_eq!(status, 200, "{body} -> {answer}");
        answer
    }

    /// The events of a streamed answer, without the last, which must be `[DONE]`.
    pub(crate) async fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = true.into();
        let response = self.send(path, &body).await;
        assert_eq!(response.status(), 200, "{body}");
        assert_eq!(
            response.headers()["content-type"],
            "text/event-stream; charset=utf-8"
        );
        let text = response.text().await.unwrap();
        let mut events: Vec<&str> = text
            .split_terminator("\n\n")
            .map(|event| event.strip_prefix("data: ").unwrap())
            .collect();
        assert_eq!(events.pop(), Some("[DONE]"));
        events
            .into_iter()
            .map(|event| serde_json::from_str(event).unwrap())
            .collect()
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

    /// Waits until the engine does nothing; false when it still works after a while.
    pub(crate) async fn idle(&self) -> bool {
        for _ in 0..200 {
            let stats = self.model.engine.stats();
            if stats.running + stats.waiting == 0 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
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

/// Numbers of a JSON list, null as NaN.
pub(crate) fn numbers(value: &Value) -> Vec<f32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_f64().map_or(f32::NAN, |number| number as f32))
        .collect()
}

/// Strings at `path` of every event's first choice, joined.
pub(crate) fn joined(events: &[Value], path: &str) -> String {
    events
        .iter()
        .filter_map(|event| event.pointer(path)?.as_str())
        .collect()
}
