//! A server over a generated world, and clients that speak to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Cast, ScriptEntry};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Episode, Resources, Split, Task};
use forage_env::reward::RewardSet;
use forage_env::server::{ServeError, Served, ServerConfig, Summary};
use forage_env::{Job, Presentation, Rollout, Wiki, World, WorldSpec, registry};
use forage_retriever::{Bm25Retriever, Retriever};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// A running server.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<Summary, ServeError>>,
}

impl Server {
    pub(crate) async fn start(served: Served, config: ServerConfig) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(served.serve(listener, config, async {
            let _ = stopped.await;
        }));
        let base = reqwest::Url::parse("http://127.0.0.1").expect("an address");
        let client = forage_net::connector(&base).build().expect("a client");
        Self {
            addr,
            client,
            stop: Some(stop),
            task,
        }
    }

    pub(crate) fn url(&self, route: &str) -> String {
        format!("http://{}{route}", self.addr)
    }

    /// Status and body.
    pub(crate) async fn post(&self, route: &str, body: Value) -> (u16, Value) {
        self.post_text(route, body.to_string()).await
    }

    pub(crate) async fn post_text(&self, route: &str, body: String) -> (u16, Value) {
        let answer = self
            .client
            .post(self.url(route))
            .body(body)
            .send()
            .await
            .expect("answered");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("a body");
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    /// The body of an answer that must be 200.
    pub(crate) async fn ok(&self, route: &str, body: Value) -> Value {
        let (status, answer) = self.post(route, body).await;
        assert_eq!(status, 200, "{route}: {answer}");
        answer
    }

    pub(crate) async fn get(&self, route: &str) -> (u16, Value) {
        let answer = self
            .client
            .get(self.url(route))
            .send()
            .await
            .expect("answered");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("a body");
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    /// A value of `/metrics`, by the beginning of its line.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.get("/metrics").await;
        let text = text.as_str().expect("text").to_owned();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("forage_environment_{name}")));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
            .unwrap_or(0)
    }

    pub(crate) async fn socket(&self) -> Socket {
        let (stream, _) = connect_async(format!("ws://{}/ws", self.addr))
            .await
            .expect("a WebSocket");
        Socket(stream)
    }

    /// Tells the server to stop; it drains.
    pub(crate) fn begin_stop(&mut self) {
        self.stop
            .take()
            .expect("stopped once")
            .send(())
            .expect("it listens");
    }

    pub(crate) async fn ended(self) -> Summary {
        let ended = tokio::time::timeout(Duration::from_secs(20), self.task).await;
        ended
            .expect("it stops in time")
            .expect("no panic")
            .expect("no failure")
    }
}

/// A WebSocket client.
pub(crate) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    pub(crate) async fn ask(&mut self, message: Value) -> Value {
        self.ask_text(message.to_string()).await
    }

    /// Sends a message, whose answer is not waited for.
    pub(crate) async fn say(&mut self, message: Value) {
        let message = Message::text(message.to_string());
        self.0.send(message).await.expect("sent");
    }

    pub(crate) async fn ask_text(&mut self, text: String) -> Value {
        self.0.send(Message::text(text)).await.expect("sent");
        self.hear().await.expect("answered")
    }

    /// The next message; `None` at the end of the connection.
    pub(crate) async fn hear(&mut self) -> Option<Value> {
        loop {
            match tokio::time::timeout(Duration::from_secs(10), self.0.next())
                .await
                .expect("in time")
            {
                Some(Ok(Message::Text(text))) => {
                    return Some(serde_json::from_str(&text).expect("JSON"));
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// What comes after a message that ends the connection.
    pub(crate) async fn ask_end(&mut self, message: Value) -> Option<Value> {
        self.0
            .send(Message::text(message.to_string()))
            .await
            .expect("sent");
        self.hear().await
    }

    /// Asks for a sign of life; whether that is what comes next.
    pub(crate) async fn is_alive(&mut self) -> bool {
        let ping = Message::Ping("there?".into());
        self.0.send(ping).await.expect("sent");
        let answer = tokio::time::timeout(Duration::from_secs(10), self.0.next()).await;
        matches!(answer.expect("in time"), Some(Ok(Message::Pong(_))))
    }

    /// Closes the connection; whether the server answers that in the protocol's own way.
    pub(crate) async fn close(&mut self) -> bool {
        self.0.close(None).await.expect("sent");
        let answer = tokio::time::timeout(Duration::from_secs(10), self.0.next()).await;
        matches!(answer.expect("in time"), Some(Ok(Message::Close(_))))
    }

    /// The observation message's data.
    pub(crate) async fn observe(&mut self, message: Value) -> Value {
        let answer = self.ask(message).await;
        assert_eq!(answer["type"], "observation", "{answer}");
        answer["data"].clone()
    }
}

/// What a world serves for an environment.
pub(crate) fn served(env: &str, settings: Value) -> Served {
    let world = World::new(WorldSpec::new(200, 3)).expect("a world");
    let retriever: Arc<dyn Retriever> =
        Arc::new(Bm25Retriever::in_memory(world.passages().collect()).expect("an index"));
    let entry = registry::find(env).expect("registered");
    let mut fields = (entry.for_bytes)(serde_json::Map::new());
    let Value::Object(settings) = settings else {
        panic!("settings are an object")
    };
    fields.extend(settings);
    let wiki = Arc::new(Wiki::of_world(&world).expect("pages"));
    let tokenizer = Arc::new(ByteTokenizer);
    let resources = Resources::new(retriever, tokenizer.clone()).with_open_wiki(wiki);
    let factory = (entry.make)(Value::Object(fields), resources).expect("made");
    let tasks: Arc<[Arc<Task>]> = world
        .questions(Split::Train, 12)
        .expect("questions")
        .map(Arc::new)
        .collect();
    Served {
        factory,
        tasks,
        rewards: Arc::new(RewardSet::measure(entry.outcome)),
        tokenizer,
    }
}

pub(crate) fn search() -> Served {
    served("search-r1", json!({}))
}

/// The oracle's episodes in the rollout driver: task `i` is played under the seed `100 + i`.
pub(crate) async fn played(served: &Served) -> Vec<Episode> {
    let tokenizer = served.tokenizer.clone();
    let cast = Cast::new(tokenizer.clone(), served.tasks.iter().cloned());
    let policy = registry::find(&served.factory.spec().id)
        .and_then(|entry| entry.script(ScriptEntry::ORACLE, cast))
        .expect("an oracle");
    let rollout = Rollout {
        policy,
        tokenizer,
        factory: served.factory.clone(),
        rewards: served.rewards.clone(),
        sampling: Sampling::GREEDY,
        presentation: Presentation::RAW,
    };
    let jobs = (100..)
        .zip(served.tasks.iter())
        .map(|(seed, task)| Job::alone(task.clone(), Seed::root(seed)));
    let episodes = rollout.run(jobs.collect()).await;
    assert!(
        episodes.iter().any(|episode| episode.reward() == Some(1.0)),
        "the oracle is right somewhere"
    );
    episodes
}

/// Asserts that an observation says of a finished episode what the driver said.
pub(crate) fn assert_same_end(view: &Value, episode: &Episode) {
    assert_eq!(
        view["info"]["score"],
        json!(episode.score),
        "{}",
        episode.task.id
    );
    assert_eq!(view["info"]["ending"], json!(episode.ending));
    assert_eq!(view["turn"], episode.turns.len());
    assert_eq!(
        view["info"]["kind"],
        json!(episode.turns.last().expect("a turn").kind)
    );
}
