//! `forage/external-v0`: an environment on a server, for instance a class in Python.
//!
//! The server speaks the protocol of `forage serve env` (`docs/environment-server.md`): `/info` tells its limits, `/reset` begins an
//! episode, `/step` takes a turn. The server is asked for its limits once, when the environment is made. It gets each turn as the policy
//! wrote it, and decides what the turn means; a server that does not answer, or says that it failed, is a fault of the environment. A turn
//! that is longer than the server takes, or that it refuses while it takes another, is the policy's doing: the episode ends as malformed.
//!
//! Records name the environment as the server does. Its oracle writes the turns that a question brings for it, else the answer.
//!
//! Rewards are the config's: the answer of a turn is what `em` compares, and what the server pays for turns is what `return` adds up.

mod settings;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnKind,
};
use forage_contracts::scripted::{ScriptEntry, Scripted};
use forage_contracts::seed::Seed;
use forage_contracts::{EnvEntry, Passages, RegistryError, Resolved, Split, Task};
use serde_json::{Map, Value};

use settings::ExternalSettings;
use wire::{ExternalError, Info, Server};

/// The registry's entry.
pub(crate) const ENTRY: EnvEntry = EnvEntry {
    for_bytes: |settings| {
        let limits = Map::from_iter([
            ("max_turn_tokens".to_owned(), Value::from(4_000)),
            ("max_episode_tokens".to_owned(), Value::from(40_000)),
        ]);
        settings.into_iter().chain(limits).collect()
    },
    schema: Some(|| schemars::schema_for!(ExternalSettings).into()),
    resolve: |written| {
        let settings: ExternalSettings = serde_json::from_value(written)?;
        settings.check()?;
        Ok(Resolved {
            settings: serde_json::to_value(settings)?,
            prompt: None,
            wordings: Vec::new(),
            files: Vec::new(),
            passages: Passages::Unread {
                why: "what the policy reads comes from a server",
                fix: "change the environment there, and compare two evaluations with `forage compare`",
            },
        })
    },
    questions: Some(questions),
    scripts: &[ScriptEntry {
        name: ScriptEntry::ORACLE,
        play: |cast| Arc::new(Scripted::solution(cast, solution)),
    }],
    ..EnvEntry::new(
        "forage/external-v0",
        "an environment on a server, for instance a class in Python",
        Outcome::Answer,
        "<search>x</search>",
        |settings, _resources| {
            let settings: ExternalSettings = serde_json::from_value(settings)?;
            settings.check()?;
            let factory = External::factory(&settings).map_err(own)?;
            Ok(Arc::new(factory))
        },
    )
};

fn own(error: ExternalError) -> RegistryError {
    match error {
        ExternalError::NoServer | ExternalError::Setting(_) => {
            RegistryError::Settings(Box::new(error))
        }
        other => RegistryError::Own(Box::new(other)),
    }
}

/// The next of the turns that the question brings for it; without one the turn that answers.
///
/// A step of a solution that has a finding is a query, as questions for other environments have them.
fn solution(task: &Task, shown: &[String]) -> String {
    let turn = task.oracle.get(shown.len());
    turn.filter(|turn| turn.finding.is_empty())
        .map_or_else(|| (ENTRY.gold)(task), |turn| turn.query.clone())
}

/// The server's own questions.
fn questions(
    settings: Value,
    split: Split,
    count: usize,
    seed: Seed,
) -> Result<Vec<Task>, RegistryError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let settings: ExternalSettings = serde_json::from_value(settings)?;
    settings.check()?;
    let found = wire::once(&settings, 0, async |server: &Server| {
        server.questions(split, count, seed).await
    });
    found.map_err(own)
}

/// Makes the environments; episodes go to the servers in turns.
struct External {
    spec: EnvSpec,
    servers: Vec<Arc<Server>>,
    next: AtomicUsize,
}

impl External {
    /// Asks every server what it serves.
    fn factory(settings: &ExternalSettings) -> Result<Self, ExternalError> {
        let mut servers = Vec::new();
        let mut first: Option<Info> = None;
        for (place, url) in settings.url.iter().enumerate() {
            let info = wire::once(settings, place, Server::info)?;
            servers.push(Arc::new(Server::new(settings, place)?.taking(&info)));
            if first.get_or_insert_with(|| info.clone()) != &info {
                let [first, second] = [&settings.url[0], url].map(String::clone);
                return Err(ExternalError::Differ { first, second });
            }
        }
        let (Some(info), Some(url)) = (first, settings.url.first()) else {
            return Err(ExternalError::NoServer);
        };
        Ok(Self {
            spec: info.spec(settings, url)?,
            servers,
            next: AtomicUsize::new(0),
        })
    }
}

impl EnvFactory for External {
    fn make(&self) -> Box<dyn Environment> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.servers.len();
        Box::new(Played {
            spec: self.spec.clone(),
            server: Arc::clone(&self.servers[place]),
            episode: None,
        })
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn entry(&self) -> &str {
        ENTRY.id
    }
}

/// One episode at a time, on one server.
struct Played {
    spec: EnvSpec,
    server: Arc<Server>,
    /// The episode that is open there.
    episode: Option<Open>,
}

struct Open {
    name: String,
    turns: usize,
    task: Task,
    seed: Seed,
}

impl Played {
    /// Lets the server forget the episode, if one is open; nobody waits for that.
    fn close(&mut self) {
        let Some(Open { name, .. }) = self.episode.take() else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let server = Arc::clone(&self.server);
            runtime.spawn(async move { server.close(&name).await });
        }
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl Environment for Played {
    async fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        self.close();
        let name = wire::episode_name();
        // Open from here on, whether or not the answer arrives.
        self.episode = Some(Open {
            name: name.clone(),
            turns: 0,
            task: task.clone(),
            seed,
        });
        let answer = self.server.reset(&name, task, seed).await;
        Ok(answer.map_err(EnvError::own)?.observation())
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let open = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        open.turns += 1;
        let answer = self.server.step(&open.name, open.turns, action).await;
        if let Err(error) = &answer
            && self
                .server
                .refused(error, action, &open.task, open.seed)
                .await
        {
            let kind = TurnKind::invalid(error.to_string());
            self.close();
            return Ok(Step::end(kind));
        }
        let step = answer.and_then(|answer| answer.step(self.server.url()));
        if step.as_ref().is_ok_and(|step| step.terminated) {
            // The server has closed it.
            self.episode = None;
        }
        step.map_err(EnvError::own)
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }
}
