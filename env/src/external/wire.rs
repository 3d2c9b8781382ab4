//! What is said to the server and what it answers.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forage_contracts::environment::{Action, EnvSpec, Observation, Outcome, Step, TurnKind};
use forage_contracts::seed::Seed;
use forage_contracts::{Split, Task};
use forage_net::{Again, Client, Fault, KeyHeader, NetError, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::settings::ExternalSettings;

/// Why an environment on a server cannot be played.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExternalError {
    #[error(
        "`url` names no server; write http://HOST:PORT into a config, as environment.settings.url, or start the server by --env-command beside \
         the config"
    )]
    NoServer,
    /// An address or a limit that cannot work.
    #[error(transparent)]
    Setting(#[from] forage_net::SettingError),
    /// A call failed.
    #[error(transparent)]
    Call(NetError),
    /// A call that was not answered in time.
    #[error(
        "{0}; where the class needs longer, raise environment.settings.http.timeout_ms and deadline_ms, or spread episodes over more \
         processes (--env-workers, or a list as environment.settings.url)"
    )]
    Slow(NetError),
    /// Nothing listens at the address before there is a run, as at one that a run's own processes had.
    #[error(
        "{0}; start the server there, or, where a run had started it by --env-command, give that option again"
    )]
    Absent(NetError),
    #[error("{url} serves an environment that cannot be played: {what}")]
    Unfit { url: String, what: &'static str },
    #[error("{first} and {second} serve different environments; several addresses must serve one")]
    Differ { first: String, second: String },
    #[error("the thread that asks the server cannot be started")]
    Thread(#[from] std::io::Error),
    /// A turn that is not sent.
    #[error("{what} has {bytes} bytes, at most {most} are taken")]
    Long {
        what: &'static str,
        bytes: usize,
        most: usize,
    },
}

/// A server, and how it is asked.
pub(super) struct Server {
    client: Client,
    /// Longest time that `close` waits.
    timeout: Duration,
    /// Whether a reset brings the whole task; else the task's name, for a server that has the same tasks.
    takes_tasks: bool,
    limits: Limits,
}

impl Server {
    /// Prepares calls of the server at `place` of the settings; nothing is sent.
    pub(super) fn new(settings: &ExternalSettings, place: usize) -> Result<Self, ExternalError> {
        let url = settings.url.get(place).ok_or(ExternalError::NoServer)?;
        let http = settings.http.clone();
        Ok(Self {
            timeout: Duration::from_millis(http.timeout_ms),
            client: Client::new(url, http, KeyHeader::Named("x-api-key"))?,
            takes_tasks: false,
            limits: Limits::default(),
        })
    }

    /// The same server, asked in the form that it announces.
    pub(super) fn taking(self, info: &Info) -> Self {
        Self {
            takes_tasks: info.takes_tasks,
            limits: info.limits.clone(),
            ..self
        }
    }

    pub(super) fn url(&self) -> &str {
        self.client.base()
    }

    /// What is served.
    pub(super) async fn info(&self) -> Result<Info, ExternalError> {
        self.ask(Request::get(self.client.at("/info"))).await
    }

    /// The server's own questions, the first `count` of a split.
    pub(super) async fn questions(
        &self,
        split: Split,
        count: usize,
        seed: Seed,
    ) -> Result<Vec<Task>, ExternalError> {
        let body = json!({"split": split, "count": count, "seed": seed.0});
        let found: Questions = self.post("/questions", &body).await?;
        Ok(found.tasks)
    }

    pub(super) async fn reset(
        &self,
        name: &str,
        task: &Task,
        seed: Seed,
    ) -> Result<Answer, ExternalError> {
        let mut body = json!({"episode_id": name, "seed": seed.0});
        if self.takes_tasks {
            body["task"] = json!(task);
        } else {
            body["task_id"] = task.name().into();
        }
        self.post("/reset", &body).await
    }

    /// Takes turn `number`, from 1. Asked again, the server gives the answer that was lost.
    pub(super) async fn step(
        &self,
        name: &str,
        number: usize,
        action: &Action,
    ) -> Result<Answer, ExternalError> {
        self.post("/step", &self.turn(name, number, action)?).await
    }

    /// The body of a turn's request, unless it exceeds the limits that the server states.
    fn turn(&self, name: &str, number: usize, action: &Action) -> Result<Value, ExternalError> {
        let turn = json!({"text": action.text, "finish": action.finish});
        let body =
            json!({"episode_id": name, "action": turn, "request_id": format!("turn-{number}")});
        let Limits {
            action_bytes,
            body_bytes,
        } = self.limits;
        fits("the turn", action.text.len(), action_bytes)?;
        fits("the turn as JSON", body.to_string().len(), body_bytes)?;
        Ok(body)
    }

    /// Returns true where the policy's text is why a turn was not taken: it is too long and a harmless one is not, or the server refuses it
    /// and takes a harmless one, in an episode begun for that.
    pub(super) async fn refused(
        &self,
        error: &ExternalError,
        action: &Action,
        task: &Task,
        seed: Seed,
    ) -> bool {
        // But for its text the same, so that a server that refuses another field refuses both.
        let harmless = Action {
            text: "water".to_owned(),
            finish: action.finish,
            turns_left: action.turns_left,
        };
        match error {
            ExternalError::Long { .. } => self.turn(&episode_name(), 1, &harmless).is_ok(),
            ExternalError::Call(NetError {
                fault:
                    Fault::Status {
                        status: 400 | 413 | 422,
                        ..
                    },
                ..
            }) => self.takes(&harmless, task, seed).await,
            _ => false,
        }
    }

    /// Returns true where the server takes a turn as the first of a new episode.
    async fn takes(&self, action: &Action, task: &Task, seed: Seed) -> bool {
        let name = episode_name();
        let taken = match self.reset(&name, task, seed).await {
            Ok(_) => self.step(&name, 1, action).await.is_ok(),
            Err(_) => false,
        };
        self.close(&name).await;
        taken
    }

    /// Lets the server forget an episode. A failure is of no matter: an episode that stays open expires there.
    pub(super) async fn close(&self, name: &str) {
        let request = Request::json(self.client.at("/close"), &json!({"episode_id": name}));
        let _ = self.client.send(&request, self.timeout).await;
    }

    async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<A, ExternalError> {
        self.ask(Request::json(self.client.at(path), body)).await
    }

    async fn ask<A: DeserializeOwned>(&self, request: Request) -> Result<A, ExternalError> {
        // What is not JSON may come from a proxy, once; JSON of another shape is the server's own, each time.
        let take = |answer: Value| {
            serde_json::from_value(answer).map_err(|error| Fault::Protocol(error.to_string()))
        };
        let answer = self.client.call_within(request, || Ok(()), again, take);
        answer.await.map_err(|error| {
            let is_late = matches!(error.fault, Fault::Timeout { .. } | Fault::Queued { .. });
            if is_late || is_busy(&error.fault) {
                ExternalError::Slow(error)
            } else {
                ExternalError::Call(error)
            }
        })
    }
}

/// Refuses what is longer than the server says that it takes.
fn fits(what: &'static str, bytes: usize, most: Option<usize>) -> Result<(), ExternalError> {
    match most {
        Some(most) if bytes > most => Err(ExternalError::Long { what, bytes, most }),
        _ => Ok(()),
    }
}

/// As for any server, with two exceptions: an environment that failed is not asked again, because its episode is over; one that is busy
/// is, because it is still at the turn whose answer came too late.
fn again(fault: &Fault) -> Again {
    match fault {
        Fault::Status { body, .. } if body.contains("\"EXECUTION_ERROR\"") => Again::Never,
        busy if is_busy(busy) => Again::Soon,
        other => other.again(),
    }
}

/// Returns true where a server is still at the turn before.
fn is_busy(fault: &Fault) -> bool {
    matches!(fault, Fault::Status { status: 409, body, .. } if body.contains("\"busy\""))
}

/// Asks a server one thing before there is a run: from any thread, inside of a runtime or outside. The connection ends with it.
pub(super) fn once<T: Send>(
    settings: &ExternalSettings,
    place: usize,
    ask: impl AsyncFnOnce(&Server) -> Result<T, ExternalError> + Send,
) -> Result<T, ExternalError> {
    let server = Server::new(settings, place)?;
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build()?;
            runtime.block_on(ask(&server))
        });
        let answer: Result<T, ExternalError> = asked
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        answer.map_err(|error| match error {
            ExternalError::Call(error) if matches!(error.fault, Fault::Connect(_)) => {
                ExternalError::Absent(error)
            }
            other => other,
        })
    })
}

/// A name for an episode that no other process gives.
pub(super) fn episode_name() -> String {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0_u8));
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:016x}-{number}", *PROCESS)
}

/// The answer of `/info`; what else it says is not needed here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Info {
    spec: Spec,
    #[serde(default)]
    takes_tasks: bool,
    #[serde(default)]
    limits: Limits,
}

/// The most bytes of a turn, and of the JSON that brings it; none where the server does not say.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Limits {
    action_bytes: Option<usize>,
    body_bytes: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Spec {
    /// The server's own name for what it serves.
    id: String,
    #[serde(default)]
    outcome: Outcome,
    max_turns: usize,
    max_turn_tokens: usize,
    max_episode_tokens: usize,
    stop: Vec<String>,
    #[serde(default)]
    append_eos_after_stop: bool,
    #[serde(default)]
    tools: Vec<Value>,
}

impl Info {
    /// The facts about the environment, with the limits of the settings where they have some.
    pub(super) fn spec(
        &self,
        settings: &ExternalSettings,
        url: &str,
    ) -> Result<EnvSpec, ExternalError> {
        let spec = &self.spec;
        let unfit = |what| {
            let url = url.to_owned();
            Err(ExternalError::Unfit { url, what })
        };
        if spec.outcome != Outcome::Answer {
            return unfit("its episodes are judged by a ranking, and only answers are judged here");
        }
        if spec.id.is_empty() {
            return unfit("its id is empty; name it as in mine/guess-v0");
        }
        if spec.max_turns == 0 || spec.max_turn_tokens == 0 || spec.max_episode_tokens == 0 {
            return unfit("a limit of turns or tokens is 0; it must be at least 1");
        }
        if spec.stop.iter().any(String::is_empty) {
            return unfit("a stop string is empty, which ends every turn at once; leave it out");
        }
        Ok(EnvSpec {
            id: spec.id.clone(),
            outcome: spec.outcome,
            max_turns: spec.max_turns,
            max_turn_tokens: settings.max_turn_tokens.unwrap_or(spec.max_turn_tokens),
            max_episode_tokens: settings
                .max_episode_tokens
                .unwrap_or(spec.max_episode_tokens),
            stop: spec.stop.clone(),
            append_eos_after_stop: spec.append_eos_after_stop,
            tools: spec.tools.clone(),
        })
    }
}

#[derive(Debug, Deserialize)]
struct Questions {
    tasks: Vec<Task>,
}

/// The answer to a reset or a step.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    observation: Seen,
    #[serde(default)]
    reward: Option<f32>,
}

#[derive(Debug, Deserialize)]
struct Seen {
    text: String,
    #[serde(default)]
    results: Vec<String>,
    #[serde(default)]
    forced_prefix: Option<String>,
    #[serde(default)]
    terminated: bool,
    #[serde(default)]
    info: Told,
}

#[derive(Debug, Default, Deserialize)]
struct Told {
    #[serde(default)]
    kind: Option<TurnKind>,
}

impl Answer {
    /// As the answer to a reset.
    pub(super) fn observation(self) -> Observation {
        Observation {
            text: self.observation.text,
            results: self.observation.results,
        }
    }

    /// As the answer to a turn.
    pub(super) fn step(self, url: &str) -> Result<Step, ExternalError> {
        let Seen {
            text,
            results,
            forced_prefix,
            terminated,
            info,
        } = self.observation;
        let unfit = |what| {
            let url = url.to_owned();
            ExternalError::Unfit { url, what }
        };
        let kind = info
            .kind
            .ok_or_else(|| unfit("the answer to a turn has no `info.kind`"))?;
        let free = "the answer to a turn has no `reward`; it must say 0 where it pays nothing";
        let reward = self.reward.ok_or_else(|| unfit(free))?;
        Ok(Step {
            observation: Observation { text, results },
            reward,
            terminated,
            kind,
            forced_prefix,
        })
    }
}
