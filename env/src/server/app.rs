//! The parts that all protocols share: opening, playing and closing sessions.

mod work;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forage_contracts::seed::Seed;
use forage_contracts::{Limit, Task};
use forage_net::{Base, Refusal, Room, ServeError, Service, Workers};
use serde::Deserialize;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;

use super::fault::Fault;
use super::memory;
use super::metrics::{Metrics, REQUESTS};
use super::play::{Opening, Play, Reply, Turn};
use super::session::{How, Last, Playing, Request, Session, Sessions, Slot};
use super::tasks::Tasks;
use super::{Served, ServerConfig};

/// Longest id a client may give to a session or a request; of a longer one no more is repeated.
pub(super) const LONGEST_ID: usize = 255;

/// The choices of a reset.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    pub(super) seed: Option<u64>,
    pub(super) task_id: Option<String>,
    pub(super) task_index: Option<usize>,
    pub(super) member: Option<u64>,
}

/// The choices of a reset, looked up.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    task: Arc<Task>,
    seed: u64,
    member: u64,
    /// The episode's name, where that is not its session's id.
    name: Option<String>,
}

impl Asked {
    /// Calls the episode otherwise than its session.
    pub(super) fn named(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }
}

/// How long a piece of an episode may take, and the request it is for where that may be sent again.
#[derive(Clone, Debug, Default)]
pub(super) struct Manner {
    pub(super) timeout: Option<Duration>,
    pub(super) request: Option<Request>,
}

pub(super) struct App {
    pub(super) config: ServerConfig,
    pub(super) served: Served,
    pub(super) tasks: Tasks,
    pub(super) metrics: Metrics,
    /// Requests being answered and steps being done are its work in flight.
    pub(super) base: Arc<Base>,
    pub(super) sessions: Sessions,
    /// The memory for answers; each has a part of it.
    pub(super) answers: Room,
    work: Workers,
    /// Differs from process to process.
    seed: Seed,
    numbers: AtomicU64,
}

impl App {
    pub(super) fn new(config: ServerConfig, served: Served) -> Result<Self, ServeError> {
        let (base, metrics) = Base::new(
            config.base.clone(),
            "forage_environment",
            &REQUESTS,
            Metrics::register,
        );
        Ok(Self {
            tasks: Tasks::new(Arc::clone(&served.tasks)),
            metrics,
            base,
            sessions: Sessions::new(
                config.max_sessions,
                config.session_ttl,
                memory::most_kept(&config),
            ),
            answers: Room::new(config.max_answer_bytes),
            work: Workers::start("steps", config.workers)?,
            seed: Seed::root(RandomState::new().hash_one(std::process::id())),
            numbers: AtomicU64::new(0),
            config,
            served,
        })
    }

    /// A name for a session: 32 hexadecimal digits nobody can guess.
    pub(super) fn fresh_id(&self) -> String {
        let seed = self
            .seed
            .child("session", &[self.numbers.fetch_add(1, Ordering::Relaxed)]);
        format!("{:016x}{:016x}", seed.0, seed.child("tail", &[]).0)
    }

    /// A seed nobody chose, that survives being a JSON number.
    fn fresh_seed(&self) -> u64 {
        self.seed
            .child("episode", &[self.numbers.fetch_add(1, Ordering::Relaxed)])
            .0
            >> 11
    }

    /// Memory for an answer, enough for most from the beginning.
    pub(super) fn room(&self) -> Result<Arc<Room>, Fault> {
        let room = self.answers.beside();
        room.take(memory::FIRST.min(self.config.max_answer_bytes))?;
        Ok(room)
    }

    /// Opens a session under an id of the client's or a fresh one; one that is open already is given.
    pub(super) fn open(&self, id: Option<String>, lasting: bool) -> Result<Arc<Session>, Fault> {
        if self.base.draining() {
            return Err(Refusal::Stopped.into());
        }
        let id = id.unwrap_or_else(|| self.fresh_id());
        check_id("episode_id", &id)?;
        self.sessions.open(&self.metrics, id, lasting)
    }

    /// Looks up what a reset asks for. Done before a session is opened for it.
    pub(super) fn ask(&self, options: &Options) -> Result<Asked, Fault> {
        let task =
            self.tasks
                .choose(options.task_id.as_deref(), options.task_index, options.seed)?;
        let seed = options.seed.unwrap_or_else(|| self.fresh_seed());
        Ok(Asked {
            task,
            seed,
            member: options.member.unwrap_or(seed),
            name: None,
        })
    }

    /// Opens a session that ends with its episode, and begins it.
    pub(super) async fn begin(
        self: &Arc<Self>,
        id: Option<String>,
        options: &Options,
    ) -> Result<Reply, Fault> {
        self.begin_asked(id, self.ask(options)?).await
    }

    /// As [`Self::begin`], with what was looked up before.
    pub(super) async fn begin_asked(
        self: &Arc<Self>,
        id: Option<String>,
        asked: Asked,
    ) -> Result<Reply, Fault> {
        let session = self.open(id, false)?;
        self.reset(&session, asked).await
    }

    /// Begins an episode, in place of the one that may be running.
    pub(super) async fn reset(
        self: &Arc<Self>,
        session: &Arc<Session>,
        asked: Asked,
    ) -> Result<Reply, Fault> {
        if self.base.draining() {
            return Err(Refusal::Stopped.into());
        }
        let Asked {
            task,
            seed,
            member,
            name,
        } = asked;
        let id = name.unwrap_or_else(|| session.id.clone());
        check_id("episode_id", &id)?;
        let opening = Opening {
            id,
            called: self.tasks.called(&task),
            task,
            seed,
            member,
        };
        let manner = Manner {
            timeout: None,
            request: Some(Request::Reset),
        };
        let mut slot = match take(session) {
            // It was sent again because its connection was lost: it fails as the first did, or begins the episode anew.
            Err(Fault::Busy(_)) if session.is_at(manner.request.as_ref()) => {
                let slot = Arc::clone(&session.slot).lock_owned().await;
                if let Slot::Failed(failed) = &*slot
                    && failed.request == Request::Reset
                {
                    return Err(failed.fault.clone());
                }
                slot
            }
            taken => taken?,
        };
        let room = self.sessions.room(memory::WRITTEN).or_else(|_| {
            // The episode before makes room.
            *slot = Slot::Empty;
            self.sessions.room(memory::WRITTEN)
        });
        let room = room.inspect_err(|_| {
            if !session.lasting {
                self.sessions
                    .close(&self.metrics, session, How::Closed, None);
            }
        })?;
        let app = Arc::clone(self);
        let before = std::mem::take(&mut *slot);
        self.on_workers(session, slot, manner, async move {
            drop(before);
            let (play, reply) = Play::open(&app.served, opening).await?;
            let last = Last {
                reply: reply.clone(),
                request: None,
                room,
            };
            Ok((reply, app.playing(play, last)))
        })
        .await
    }

    /// Takes a turn.
    pub(super) async fn step(
        self: &Arc<Self>,
        session: &Arc<Session>,
        turn: Turn,
        manner: Manner,
    ) -> Result<Reply, Fault> {
        let most = self.config.max_action_bytes;
        if turn.text.len() > most {
            let length = turn.text.len();
            return Err(Fault::Invalid(format!(
                "the turn has {length} bytes, at most {most} are taken; write less"
            )));
        }
        if let Some(Request::Step(name)) = &manner.request {
            check_id("request_id", name)?;
        }
        let mut slot = match take(session) {
            // It was sent again because its connection was lost: its answer is there once it is done.
            Err(Fault::Busy(_)) if session.is_at(manner.request.as_ref()) => {
                Arc::clone(&session.slot).lock_owned().await
            }
            taken => taken?,
        };
        let Playing { play, last } = match std::mem::take(&mut *slot) {
            Slot::Empty => return Err(Fault::NotReset(session.id.clone())),
            Slot::Failed(failed) => {
                let fault = if manner.request.as_ref() == Some(&failed.request) {
                    failed.fault.clone()
                } else {
                    Fault::NotReset(session.id.clone())
                };
                *slot = Slot::Failed(failed);
                return Err(fault);
            }
            Slot::Over(last) => {
                let again = last.again(manner.request.as_ref());
                *slot = Slot::Over(last);
                return again.ok_or_else(|| Fault::Over(session.id.clone()));
            }
            Slot::Playing(playing) => {
                if let Some(reply) = playing.last.again(manner.request.as_ref()) {
                    *slot = Slot::Playing(playing);
                    return Ok(reply);
                }
                let bytes = playing.kept().saturating_add(memory::of_turn(&turn.text));
                if let Err(full) = self.sessions.keep(&playing.last.room, bytes) {
                    *slot = Slot::Playing(playing);
                    return Err(full);
                }
                *playing
            }
        };
        let app = Arc::clone(self);
        let keeper = Arc::clone(session);
        let request = manner.request.clone();
        self.on_workers(session, slot, manner, async move {
            let begin = Instant::now();
            let (reply, play) = play.step(&app.served, turn).await?;
            app.metrics.step(begin.elapsed());
            let last = Last {
                reply: reply.clone(),
                request,
                room: last.room,
            };
            let next = match play {
                Some(play) => app.playing(play, last),
                None => app.over(&keeper, last),
            };
            Ok((reply, next))
        })
        .await
    }

    /// Ends an episode that its client has left, with its score.
    pub(super) async fn stop(
        self: &Arc<Self>,
        session: &Arc<Session>,
        limit: Limit,
    ) -> Result<Reply, Fault> {
        let mut slot = take(session)?;
        let Playing { play, last } = match std::mem::take(&mut *slot) {
            Slot::Empty | Slot::Failed(_) => return Err(Fault::NotReset(session.id.clone())),
            Slot::Over(last) => {
                let reply = last.reply.clone();
                *slot = Slot::Over(last);
                return Ok(reply);
            }
            Slot::Playing(playing) => *playing,
        };
        let (app, keeper) = (Arc::clone(self), Arc::clone(session));
        self.on_workers(session, slot, Manner::default(), async move {
            let reply = play.stop(&app.served, limit).await?;
            let last = Last {
                reply: reply.clone(),
                request: None,
                room: last.room,
            };
            let next = app.over(&keeper, last);
            Ok((reply, next))
        })
        .await
    }

    /// An episode that goes on.
    fn playing(&self, play: Play, last: Last) -> Slot {
        let playing = Playing { play, last };
        // Where the environment wrote more than there is room for, the next turn waits until there is.
        let _ = self.sessions.keep(&playing.last.room, playing.kept());
        Slot::Playing(Box::new(playing))
    }

    /// An episode that ended by itself.
    fn over(&self, session: &Arc<Session>, last: Last) -> Slot {
        // Nothing else is left of the episode: that is less than it kept before, but for a score of very many parts.
        let _ = self.sessions.keep(&last.room, last.reply.bytes);
        if let Some(ending) = &last.reply.view.info.ending {
            self.metrics.ended(ending);
        }
        if !session.lasting {
            let last = Some(last.clone());
            self.sessions
                .close(&self.metrics, session, How::Ended, last);
        }
        Slot::Over(Box::new(last))
    }

    /// Closes a session; `false` when it was not open.
    pub(super) fn close(&self, id: &str) -> bool {
        let open = self.sessions.find(id);
        open.is_ok_and(|session| {
            self.sessions
                .close(&self.metrics, &session, How::Closed, None)
        })
    }
}

impl Service for App {
    type Fault = Fault;
    const OPENAPI: Option<&'static str> = Some(include_str!("openapi.json"));
    /// `OpenEnv`'s word for it.
    const HEALTH: &'static str = r#"{"status":"healthy"}"#;

    fn base(&self) -> &Arc<Base> {
        &self.base
    }

    fn give_up(&self) {
        self.work.stop();
    }
}

/// The session's slot, or the refusal of a second request at a time.
fn take(session: &Session) -> Result<OwnedMutexGuard<Slot>, Fault> {
    let slot = Arc::clone(&session.slot)
        .try_lock_owned()
        .map_err(|_| Fault::Busy(session.id.clone()))?;
    session.touch();
    Ok(slot)
}

/// Refuses ids that are empty or too long.
pub(super) fn check_id(name: &str, id: &str) -> Result<(), Fault> {
    if id.is_empty() || id.len() > LONGEST_ID {
        return Err(Fault::Invalid(format!(
            "`{name}` must have 1 to {LONGEST_ID} bytes, not {}",
            id.len()
        )));
    }
    Ok(())
}

/// Closes idle sessions from time to time, until aborted.
pub(super) fn sweep(app: &Arc<App>) -> JoinHandle<()> {
    let weak = Arc::downgrade(app);
    let often =
        (app.config.session_ttl / 4).clamp(Duration::from_millis(20), Duration::from_secs(5));
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(often);
        loop {
            ticks.tick().await;
            let Some(app) = weak.upgrade() else { return };
            app.sessions.sweep(&app.metrics);
        }
    })
}
