//! How long a turn waits for a call of a tool.

use std::time::Instant;

use tokio::sync::watch;

/// A turn's wait for one call of a tool. It is over once the turn's caller has given up, or the call has taken as long as it may:
/// whatever the tool would answer then, nobody reads. The default is never over.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    /// Closed when the caller gives up; `None` where nobody can.
    caller: Option<watch::Receiver<()>>,
    until: Option<Instant>,
}

impl Wait {
    /// A turn's wait, which its caller gives up by dropping what comes with it.
    pub(crate) fn begin() -> (watch::Sender<()>, Self) {
        let (caller, waits) = watch::channel(());
        let wait = Self {
            caller: Some(waits),
            until: None,
        };
        (caller, wait)
    }

    /// The same wait with a deadline; without one, for ever.
    pub(crate) fn until(&self, until: Option<Instant>) -> Self {
        Self {
            caller: self.caller.clone(),
            until,
        }
    }

    /// Tells whether the turn's caller has given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.caller.as_ref().is_some_and(watch::Receiver::is_closed)
    }

    /// Tells whether the call should end: nobody waits for it, or it has taken as long as it may.
    pub fn is_over(&self) -> bool {
        self.is_given_up() || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Waits until the turn's caller has given up. It needs no clock, and does not look at the time of the call.
    pub async fn given_up(&self) {
        if let Some(mut caller) = self.caller.clone() {
            while caller.changed().await.is_ok() {}
        } else {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_wait_is_over_when_its_caller_gives_up_or_its_time_is_up() {
        let (caller, wait) = Wait::begin();
        assert!(wait.until(Some(Instant::now())).is_over() && !wait.is_over());
        let mut given_up = pin!(wait.given_up());
        let mut context = Context::from_waker(Waker::noop());
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        drop(caller);
        assert!(wait.is_over() && wait.until(None).is_over());
        assert!(given_up.as_mut().poll(&mut context).is_ready());
        assert!(!Wait::default().is_over());
    }
}
