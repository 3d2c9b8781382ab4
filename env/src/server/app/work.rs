//! The work on an episode: done on threads of its own, within its time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use forage_contracts::retriever::CancelFlag;
use forage_net::Refusal;
use futures::FutureExt;
use tokio::sync::OwnedMutexGuard;

use super::super::fault::{Fault, boundary_name};
use super::super::play::Reply;
use super::super::session::{Failed, How, Session, Slot};
use super::{App, Manner};
use crate::ask::within;
use crate::rollout::stage;

impl App {
    /// Does a piece of an episode on the threads for that, to its end also when its client goes away. What fails, panics or
    /// takes too long ends the episode.
    pub(super) async fn on_workers(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut slot: OwnedMutexGuard<Slot>,
        manner: Manner,
        work: impl Future<Output = Result<(Reply, Slot), stage::Fault>> + Send + 'static,
    ) -> Result<Reply, Fault> {
        let Manner { timeout, request } = manner;
        session.begin(request.clone());
        let (app, session) = (Arc::clone(self), Arc::clone(session));
        let limit = timeout.map_or(self.config.step_timeout, |asked| {
            asked.min(self.config.step_timeout)
        });
        let flight = self.base.enter();
        let done = self.work.handle().spawn(async move {
            // A search on this very thread lets no timer fire: it looks at the time itself, and fails when that is up.
            let late = Arc::new(AtomicBool::new(false));
            let (told, deadline) = (Arc::clone(&late), Instant::now().checked_add(limit));
            let over = CancelFlag::when(move || {
                let over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                told.fetch_or(over, Ordering::Relaxed);
                over
            });
            let work = AssertUnwindSafe(within(over, work)).catch_unwind();
            let done = tokio::time::timeout(limit, work).await;
            session.touch();
            drop(flight);
            let fault = match done {
                Ok(Ok(Ok((reply, next)))) => {
                    *slot = next;
                    return Ok(reply);
                }
                Ok(Err(_panic)) => {
                    app.metrics.failed("panic");
                    Refusal::Panicked.into()
                }
                Ok(Ok(Err(stage::Fault { boundary, message })))
                    if !late.load(Ordering::Relaxed) =>
                {
                    app.metrics.failed(boundary_name(boundary));
                    Fault::Episode {
                        id: session.id.clone(),
                        boundary,
                        message,
                    }
                }
                // The timer was first, or a search.
                Err(_) | Ok(Ok(Err(_))) => {
                    app.metrics.failed("deadline");
                    Fault::Late {
                        id: session.id.clone(),
                        seconds: limit.as_secs_f64(),
                    }
                }
            };
            if !session.lasting {
                app.sessions
                    .close(&app.metrics, &session, How::Failed, None);
            }
            if let Some(request) = request {
                let fault = fault.clone();
                *slot = Slot::Failed(Box::new(Failed { request, fault }));
            }
            Err(fault)
        });
        tokio::select! {
            biased;
            done = done => done.unwrap_or(Err(Refusal::Stopped.into())),
            () = self.base.given_up() => Err(Refusal::Stopped.into()),
        }
    }
}
