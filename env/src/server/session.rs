//! The sessions that are open, and what is remembered of those that were.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forage_net::{Refusal, Room};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fault::Fault;
use super::metrics::Metrics;
use super::play::{Play, Reply};

/// Closed sessions that are remembered, each with its last answer; as many as may be open where those are more.
const REMEMBERED: usize = 1024;

/// State of a session. Whoever works on it holds its lock. Who finds it locked is refused, but for a request that is sent again while it
/// is done, which waits.
#[derive(Default)]
pub(super) enum Slot {
    /// No episode: none was begun, or a fault ended it.
    #[default]
    Empty,
    /// During an episode.
    Playing(Box<Playing>),
    /// After an episode.
    Over(Box<Last>),
    /// After a fault that ended one, in the work of a request that may be sent again.
    Failed(Box<Failed>),
}

/// A request that its client may send again, because the connection was lost before its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A reset. It needs no name: whichever comes while one is being done is the same one.
    Reset,
    /// A step, by its `request_id`.
    Step(String),
}

/// The fault that ended an episode, and the request it was the answer to.
pub(super) struct Failed {
    pub(super) request: Request,
    pub(super) fault: Fault,
}

/// An episode and its last answer.
pub(super) struct Playing {
    pub(super) play: Play,
    pub(super) last: Last,
}

impl Playing {
    /// The memory that it keeps, about.
    pub(super) fn kept(&self) -> usize {
        self.play.kept() + self.last.reply.bytes
    }
}

/// The last answer, and the request it was for where that was a step with a name.
#[derive(Clone)]
pub(super) struct Last {
    pub(super) reply: Reply,
    pub(super) request: Option<Request>,
    /// The memory of the episode; once that is over, of this answer alone.
    pub(super) room: Arc<Room>,
}

impl Last {
    /// The answer, when `request` is the one it was for: it was sent again because the answer was lost.
    pub(super) fn again(&self, request: Option<&Request>) -> Option<Reply> {
        request
            .filter(|&request| self.request.as_ref() == Some(request))
            .map(|_| self.reply.clone())
    }
}

/// A place among the open sessions.
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    active: Gauge,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.active.dec();
    }
}

/// One client's environment.
pub(super) struct Session {
    pub(super) id: String,
    /// Whether it outlives its episodes, as a connection or a handle does.
    pub(super) lasting: bool,
    pub(super) slot: Arc<tokio::sync::Mutex<Slot>>,
    /// The request whose work was begun last, where that may be sent again.
    request: Mutex<Option<Request>>,
    touched: Mutex<Instant>,
    _place: Place,
}

impl Session {
    /// Something was asked of it.
    pub(super) fn touch(&self) {
        *lock(&self.touched) = now();
    }

    pub(super) fn idle(&self) -> Duration {
        lock(&self.touched).elapsed()
    }

    /// Notes that the work of a request begins.
    pub(super) fn begin(&self, request: Option<Request>) {
        *lock(&self.request) = request;
    }

    /// Whether the work that was begun last is that of this request.
    pub(super) fn is_at(&self, request: Option<&Request>) -> bool {
        request.is_some() && lock(&self.request).as_ref() == request
    }
}

/// Why a session was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Its episode ended.
    Ended,
    /// Its client closed it or went away.
    Closed,
    /// Nobody asked anything of it for too long.
    Expired,
    /// A fault ended its episode.
    Failed,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Closed => "closed",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }
}

/// What is remembered of a closed session.
#[derive(Clone)]
pub(super) struct Grave {
    how: How,
    pub(super) last: Option<Last>,
}

impl Grave {
    /// The refusal for whoever still asks something of the session.
    pub(super) fn fault(&self, id: &str) -> Fault {
        let why = match self.how {
            How::Ended => return Fault::Over(id.to_owned()),
            How::Closed => "was closed",
            How::Expired => "was closed because it was idle for too long",
            How::Failed => "was ended by a fault of the server",
        };
        Fault::Gone {
            id: id.to_owned(),
            why: why.to_owned(),
        }
    }
}

/// What is remembered, the oldest first; each session has one entry in both.
#[derive(Default)]
struct Graves {
    order: VecDeque<(Instant, String)>,
    by_id: HashMap<String, Grave>,
}

/// All sessions.
pub(super) struct Sessions {
    open: Mutex<HashMap<String, Arc<Session>>>,
    graves: Mutex<Graves>,
    places: Arc<Semaphore>,
    max: usize,
    ttl: Duration,
    /// The memory for what all of them keep; each episode has a part of it.
    kept: Room,
    /// The size of that memory, bytes.
    most_kept: usize,
}

impl Sessions {
    /// No sessions yet, of which there are at most `max` at a time and which keep at most `most_kept` bytes together.
    pub(super) fn new(max: usize, ttl: Duration, most_kept: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(max));
        Self {
            open: Mutex::default(),
            graves: Mutex::default(),
            places,
            max,
            ttl,
            kept: Room::shared(most_kept),
            most_kept,
        }
    }

    /// Memory for an episode, of which `bytes` are there from the beginning.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub(super) fn room(&self, bytes: usize) -> Result<Arc<Room>, Fault> {
        let room = self.kept.beside();
        self.keep(&room, bytes)?;
        Ok(room)
    }

    /// Takes memory until an episode has `bytes`, or gives back what it has beyond them. Closed sessions are forgotten, the
    /// oldest first, where others need what is remembered of them.
    ///
    /// # Errors
    /// [`Fault::Kept`] when open ones leave no memory.
    pub(super) fn keep(&self, room: &Room, bytes: usize) -> Result<(), Fault> {
        loop {
            match room.settle(bytes) {
                Ok(()) => return Ok(()),
                Err(Refusal::AnswersFull) if lock(&self.graves).forget_first() => {}
                Err(_) => {
                    return Err(Fault::Kept {
                        active: self.active(),
                        max: self.max,
                        mib: self.most_kept >> 20,
                    });
                }
            }
        }
    }

    /// Places that are taken.
    fn active(&self) -> usize {
        self.max - self.places.available_permits()
    }

    /// A session with a place, known to whoever holds it alone.
    pub(super) fn unlisted(
        &self,
        metrics: &Metrics,
        id: String,
        lasting: bool,
    ) -> Result<Arc<Session>, Fault> {
        let permit = Arc::clone(&self.places).try_acquire_owned();
        let permit = permit.map_err(|_| Fault::Full {
            active: self.active(),
            max: self.max,
        })?;
        metrics.sessions_active.inc();
        metrics.sessions_opened.inc();
        let place = Place {
            _permit: permit,
            active: metrics.sessions_active.clone(),
        };
        let touched = Mutex::new(now());
        Ok(Arc::new(Session {
            id,
            lasting,
            slot: Arc::default(),
            request: Mutex::default(),
            touched,
            _place: place,
        }))
    }

    /// A session that can be found by its id.
    pub(super) fn open(
        &self,
        metrics: &Metrics,
        id: String,
        lasting: bool,
    ) -> Result<Arc<Session>, Fault> {
        let mut open = lock(&self.open);
        if let Some(session) = open.get(&id) {
            return Ok(Arc::clone(session));
        }
        let session = self.unlisted(metrics, id.clone(), lasting)?;
        lock(&self.graves).forget(&id);
        open.insert(id, Arc::clone(&session));
        Ok(session)
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<Session>, Fault> {
        let found = lock(&self.open).get(id).cloned();
        found.ok_or_else(|| {
            self.grave(id).map_or_else(
                || Fault::UnknownSession(id.to_owned()),
                |grave| grave.fault(id),
            )
        })
    }

    /// What is remembered of a closed session.
    pub(super) fn grave(&self, id: &str) -> Option<Grave> {
        lock(&self.graves).by_id.get(id).cloned()
    }

    /// Takes a session off the list; its place is free once nobody works on it any more. `false` when it was not there: another
    /// one may have its id by now.
    pub(super) fn close(
        &self,
        metrics: &Metrics,
        session: &Arc<Session>,
        how: How,
        last: Option<Last>,
    ) -> bool {
        let id = &session.id;
        {
            let mut open = lock(&self.open);
            if open.get(id).is_none_or(|open| !Arc::ptr_eq(open, session)) {
                return false;
            }
            open.remove(id);
        }
        metrics.closed(how.name());
        self.bury(id.clone(), Grave { how, last });
        true
    }

    fn bury(&self, id: String, grave: Grave) {
        let mut graves = lock(&self.graves);
        graves.order.push_back((now(), id.clone()));
        graves.by_id.insert(id, grave);
        while graves.order.len() > self.max.max(REMEMBERED) {
            graves.forget_first();
        }
    }

    /// Closes what was idle for too long, and forgets what was closed that long ago.
    pub(super) fn sweep(&self, metrics: &Metrics) {
        let idle: Vec<Arc<Session>> = lock(&self.open)
            .values()
            .filter(|session| session.idle() >= self.ttl)
            .cloned()
            .collect();
        for session in idle {
            // A step that takes long is not idleness; and no step may begin between the look and the closing.
            let Ok(slot) = session.slot.try_lock() else {
                continue;
            };
            if session.idle() >= self.ttl {
                self.close(metrics, &session, How::Expired, None);
            }
            drop(slot);
        }
        let mut graves = lock(&self.graves);
        while graves
            .order
            .front()
            .is_some_and(|(buried, _)| buried.elapsed() >= self.ttl)
        {
            graves.forget_first();
        }
    }

    /// Counts a session that was not on the list.
    pub(super) fn count_closed(metrics: &Metrics, how: How) {
        metrics.closed(how.name());
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }
}

impl Graves {
    fn forget(&mut self, id: &str) {
        if self.by_id.remove(id).is_some() {
            self.order.retain(|(_, other)| other != id);
        }
    }

    /// Forgets the oldest; `false` when there is none.
    fn forget_first(&mut self) -> bool {
        let first = self.order.pop_front();
        first.is_some_and(|(_, id)| self.by_id.remove(&id).is_some())
    }
}

fn now() -> Instant {
    Instant::now()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::super::play::{Info, View};
    use super::*;

    /// The last answer of an episode that keeps `bytes`.
    fn last(sessions: &Sessions, bytes: usize) -> Last {
        let view = View {
            episode_id: String::new(),
            task_id: String::new(),
            question: String::new(),
            data_source: String::new(),
            turn: 0,
            max_turns: 1,
            stop: Vec::new(),
            forced_prefix: None,
            seed: 0,
            terminated: true,
            truncated: false,
            info: Info::default(),
        };
        Last {
            reply: Reply::new(String::new(), None, view),
            request: None,
            room: sessions.room(bytes).unwrap(),
        }
    }

    #[test]
    fn closed_sessions_are_forgotten_where_open_ones_need_the_memory() {
        let metrics = Metrics::register(&mut Registry::default());
        let sessions = Sessions::new(3, Duration::from_mins(10), 100);
        for id in ["a", "b"] {
            let session = sessions.open(&metrics, id.to_owned(), false).unwrap();
            let last = last(&sessions, 30);
            assert!(sessions.close(&metrics, &session, How::Ended, Some(last)));
        }
        let open = sessions.room(60).unwrap();
        let remembered = ["a", "b"].map(|id| sessions.grave(id).is_some());
        assert_eq!(remembered, [false, true], "the older of the two goes first");
        let full = sessions.room(50).unwrap_err();
        assert!(matches!(full, Fault::Kept { max: 3, .. }), "{full:?}");
        assert!(sessions.grave("b").is_none());
        sessions.keep(&open, 10).unwrap();
        let other = sessions.room(50).unwrap();
        assert!(sessions.keep(&open, 51).is_err());
        drop(other);
        sessions.keep(&open, 51).unwrap();
    }

    #[test]
    fn a_name_that_is_used_again_is_remembered_from_its_last_use() {
        let metrics = Metrics::register(&mut Registry::default());
        let sessions = Sessions::new(1, Duration::from_mins(10), 1 << 20);
        for id in ["a", "b", "a"] {
            let session = sessions.open(&metrics, id.to_owned(), false).unwrap();
            assert!(sessions.close(&metrics, &session, How::Ended, None));
        }
        lock(&sessions.graves).forget_first();
        let remembered = ["a", "b"].map(|id| sessions.grave(id).is_some());
        assert_eq!(remembered, [true, false], "the older of the two goes first");
        lock(&sessions.graves).forget_first();
        assert!(sessions.grave("a").is_none());
        assert!(lock(&sessions.graves).order.is_empty());
    }

    #[test]
    fn what_ends_late_does_not_close_the_session_that_has_its_name_now() {
        let metrics = Metrics::register(&mut Registry::default());
        let sessions = Sessions::new(2, Duration::from_mins(10), 1 << 20);
        let open = || sessions.open(&metrics, "a".to_owned(), false).unwrap();
        let before = open();
        assert!(sessions.close(&metrics, &before, How::Closed, None));
        let now = open();
        assert!(!sessions.close(&metrics, &before, How::Failed, None));
        assert!(Arc::ptr_eq(&sessions.find("a").unwrap(), &now));
    }

    #[test]
    fn as_many_are_remembered_as_may_be_open() {
        let metrics = Metrics::register(&mut Registry::default());
        let sessions = Sessions::new(2 * REMEMBERED, Duration::from_mins(10), 1 << 20);
        let open = |number: usize| sessions.open(&metrics, number.to_string(), false).unwrap();
        let all: Vec<Arc<Session>> = (0..2 * REMEMBERED).map(open).collect();
        for session in &all {
            assert!(sessions.close(&metrics, session, How::Ended, None));
        }
        assert!(sessions.grave("0").is_some());
    }
}
