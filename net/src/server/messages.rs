//! Messages over connections that were upgraded: they count among the bodies, within the same bounds of size and time.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::body::{ARRIVAL, Bodies, FREE, Held, PATIENCE};
use super::refusal::Refusal;

/// The messages that a client sends once its connection was upgraded to a WebSocket. Every request carries it among its
/// extensions.
#[derive(Clone, Debug, Default)]
pub struct Messages(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Set by the upgrade: before it, bodies are counted where they are read.
    bodies: OnceLock<Arc<Bodies>>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes since the last message was taken.
    received: usize,
    held: Held,
    /// When they became more than are free.
    large: Option<Instant>,
    refused: Option<Refusal>,
    ended: bool,
}

/// What becomes of bytes that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// They are handed on.
    Keep,
    /// They are thrown away: most clients look for an answer only after they have sent everything.
    Discard,
    /// There were too many to throw away.
    End,
}

impl Messages {
    /// From now on bytes belong to messages.
    pub(super) fn begin(&self, bodies: &Arc<Bodies>) {
        // A connection is upgraded once.
        let _ = self.0.bodies.set(Arc::clone(bodies));
    }

    /// Counts bytes that arrived.
    pub(super) fn arrived(&self, bytes: usize) -> Fate {
        let Some(bodies) = self.0.bodies.get() else {
            return Fate::Keep;
        };
        let mut state = self.state();
        let before = state.received;
        state.received = before.saturating_add(bytes);
        if state.refused.is_some() {
            return if state.received > Self::most(bodies.limit) {
                Fate::End
            } else {
                Fate::Discard
            };
        }
        // The frames around a message and the beginning of the next one do not make it larger.
        let counted = if state.received > bodies.limit.saturating_add(FREE) {
            let limit = bodies.limit;
            Err(Refusal::TooLarge { limit })
        } else {
            let more = state.received.saturating_sub(FREE) - before.saturating_sub(FREE);
            state.held.more(more, bodies)
        };
        let kept = counted.is_ok();
        state.refused = counted.err();
        let grew = state.received > FREE && state.large.is_none();
        if grew {
            state.large = Some(Instant::now());
        }
        drop(state);
        if grew || !kept {
            self.0.changed.notify_one();
        }
        if kept { Fate::Keep } else { Fate::Discard }
    }

    /// The client's side has ended, or what is sent to it does not arrive.
    pub(super) fn end(&self) {
        self.state().ended = true;
    }

    /// Returns true once the client's side has ended: nobody is there to be told anything.
    pub fn ended(&self) -> bool {
        self.state().ended
    }

    /// Bytes of a message after which nothing more of it is read, where bodies have at most `limit`.
    pub fn most(limit: usize) -> usize {
        limit.saturating_add(FREE).saturating_mul(PATIENCE)
    }

    /// The last message is done with: its memory is there for others.
    pub fn taken(&self) {
        let mut state = self.state();
        if state.refused.is_none() {
            state.received = 0;
            state.held = Held::default();
            state.large = None;
        }
    }

    /// Completes when the message that is arriving is refused: it is too large or too slow, or others take the memory. What
    /// still comes of it is thrown away, and the connection is of no further use.
    pub async fn refused(&self) -> Refusal {
        loop {
            let (refused, large) = {
                let state = self.state();
                (state.refused.clone(), state.large)
            };
            if let Some(refusal) = refused {
                return refusal;
            }
            let late = async {
                match large {
                    Some(large) => sleep_until(large + ARRIVAL).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.0.changed.notified() => {}
                () = late => {
                    let mut state = self.state();
                    // Another one may be arriving by now.
                    if state.large == large && state.refused.is_none() {
                        state.refused = Some(Refusal::SlowBody);
                    }
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMIT: usize = 1024 * 1024;

    fn upgraded(bodies: &Arc<Bodies>) -> Messages {
        let messages = Messages::default();
        messages.begin(bodies);
        messages
    }

    #[tokio::test]
    async fn one_that_is_too_large_is_refused_and_thrown_away() {
        let messages = upgraded(&Arc::new(Bodies::new(LIMIT)));
        assert_eq!(messages.arrived(LIMIT), Fate::Keep);
        messages.taken();
        assert_eq!(messages.arrived(LIMIT + FREE), Fate::Keep);
        assert_eq!(messages.arrived(1), Fate::Discard);
        assert_eq!(messages.refused().await, Refusal::TooLarge { limit: LIMIT });
        messages.taken();
        assert_eq!(messages.arrived(LIMIT), Fate::Discard);
        assert_eq!(messages.arrived(Messages::most(LIMIT)), Fate::End);
    }

    #[tokio::test]
    async fn they_take_their_memory_from_that_of_all_bodies() {
        let bodies = Arc::new(Bodies::new(LIMIT));
        let all: Vec<Messages> = (0..64).map(|_| upgraded(&bodies)).collect();
        for messages in &all {
            assert_eq!(messages.arrived(LIMIT + FREE), Fate::Keep);
        }
        let next = upgraded(&bodies);
        // As with bodies, the beginning is free.
        assert_eq!(next.arrived(FREE), Fate::Keep);
        assert_eq!(next.arrived(1), Fate::Discard);
        assert_eq!(next.refused().await, Refusal::BodiesFull);
        all[0].taken();
        let other = upgraded(&bodies);
        assert_eq!(other.arrived(LIMIT + FREE), Fate::Keep);
        drop(all);
        assert_eq!(upgraded(&bodies).arrived(LIMIT), Fate::Keep);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_one_has_so_much_time_to_arrive() {
        let messages = upgraded(&Arc::new(Bodies::new(LIMIT)));
        let refused = |limit| tokio::time::timeout(limit, messages.refused());
        assert_eq!(messages.arrived(FREE), Fate::Keep);
        refused(ARRIVAL * 2).await.unwrap_err();
        assert_eq!(messages.arrived(1), Fate::Keep);
        refused(ARRIVAL / 2).await.unwrap_err();
        messages.taken();
        assert_eq!(messages.arrived(FREE + 1), Fate::Keep);
        refused(ARRIVAL.saturating_sub(Duration::from_secs(1)))
            .await
            .unwrap_err();
        let late = refused(Duration::from_secs(2)).await;
        assert_eq!(late.unwrap(), Refusal::SlowBody);
        assert_eq!(messages.arrived(1), Fate::Discard);
    }

    #[test]
    fn nothing_is_counted_before_the_upgrade() {
        let messages = Messages::default();
        assert_eq!(messages.arrived(usize::MAX), Fate::Keep);
        assert!(!messages.ended());
        messages.end();
        assert!(messages.ended());
    }
}
