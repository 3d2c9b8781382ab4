//! The parts that all requests of a server share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::response::Response;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::body::{Bodies, Held, receive};
use super::flights::{Flight, Flights};
use super::refusal::{Refusal, Refuse};
use super::traffic::Traffic;

/// A place among the admitted requests, and the memory of the request's body. Whatever works on a request holds it, so a request
/// whose client went away counts until that work has ended.
#[derive(Clone, Debug)]
pub struct Ticket {
    _place: Arc<OwnedSemaphorePermit>,
    _body: Held,
}

impl Ticket {
    /// The place alone, for work that needs nothing of the body's size any more. What is left of the body's bytes counts by itself.
    #[must_use]
    pub fn without_body(self) -> Self {
        Self {
            _body: Held::default(),
            ..self
        }
    }
}

/// Bodies over this are not read by the threads that move bytes.
const READ_HERE: usize = 64 * 1024;

/// Requests whose heavy work is done at a time: half of the cores are for what the server is there for.
fn heavy() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// Limits that every server has.
#[derive(Clone, Debug)]
pub struct BaseConfig {
    /// Most bytes in a request body, below 4 GiB.
    pub max_body_bytes: usize,
    /// Most requests admitted at a time, running and waiting together.
    pub queue: usize,
    /// The token that requests must carry, when set; health and readiness are open to all.
    pub token: Option<String>,
    /// Longest time for work in flight to finish once the server is told to stop.
    pub drain: Duration,
    /// Most connections at a time, and at most three quarters of the descriptors that the process may open. Beyond that the
    /// one that has waited longest for its client is closed; while all are being answered, new ones wait.
    pub max_connections: usize,
}

impl Default for BaseConfig {
    fn default() -> Self {
        Self {
            max_body_bytes: 8 * 1024 * 1024,
            queue: 512,
            token: None,
            // Schedulers kill what has not ended half a minute after they asked.
            drain: Duration::from_secs(10),
            max_connections: 2048,
        }
    }
}

/// Admission, counters and the end of a server.
#[derive(Debug)]
pub struct Base {
    /// The limits.
    pub config: BaseConfig,
    pub(super) traffic: Traffic,
    registry: Registry,
    places: Arc<Semaphore>,
    pub(super) bodies: Arc<Bodies>,
    heavy: Arc<Semaphore>,
    pub(super) flights: Arc<Flights>,
    /// True once work in flight must end.
    gave_up: watch::Sender<bool>,
}

impl Base {
    /// Prepares a server whose metrics are called `prefix_...`; `register` adds its own to those of all servers, and
    /// `buckets` are the upper ends of the latencies, in seconds. Gives what `register` gives beside it.
    pub fn new<M>(
        config: BaseConfig,
        prefix: &str,
        buckets: &'static [f64],
        register: impl FnOnce(&mut Registry) -> M,
    ) -> (Arc<Self>, M) {
        let mut registry = Registry::with_prefix(prefix);
        let traffic = Traffic::register(&mut registry, buckets);
        let metrics = register(&mut registry);
        let base = Self {
            places: Arc::new(Semaphore::new(config.queue.min(Semaphore::MAX_PERMITS))),
            bodies: Arc::new(Bodies::new(config.max_body_bytes)),
            heavy: Arc::new(Semaphore::new(heavy())),
            config,
            traffic,
            registry,
            flights: Arc::default(),
            gave_up: watch::Sender::new(false),
        };
        (Arc::new(base), metrics)
    }

    /// Returns true once new work is refused because the server stops.
    pub fn draining(&self) -> bool {
        self.flights.draining()
    }

    /// Counts work that a server which stops waits for, until the guard is dropped.
    pub fn enter(&self) -> impl Send + Sync + use<> {
        self.flights.enter()
    }

    /// The whole body. Its memory counts until the request is answered and the bytes are dropped.
    ///
    /// # Errors
    /// A [`Refusal`] when it breaks off, is late or too large, or there are too many others.
    pub async fn receive(&self, body: Body) -> Result<Bytes, Refusal> {
        receive(body, self.config.max_body_bytes).await
    }

    /// A place among the admitted requests.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] at once when there is none, [`Refusal::Stopped`] when the server stops.
    pub fn admit(&self) -> Result<Ticket, Refusal> {
        if self.draining() {
            return Err(Refusal::Stopped);
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        Ok(Ticket {
            _place: Arc::new(place.map_err(|_| Refusal::Overloaded)?),
            _body: Held::of_request(),
        })
    }

    /// Receives the body, then takes a place: whoever sends slowly holds none. Refusing only then keeps the connection
    /// usable, and the body has arrived with the head nearly always.
    ///
    /// # Errors
    /// As [`Self::receive`] and [`Self::admit`].
    pub async fn admitted(&self, body: Body) -> Result<(Ticket, Bytes), Refusal> {
        let body = self.receive(body).await?;
        Ok((self.admit()?, body))
    }

    /// Reads a request: here when it is small, else as [`Self::heavy`] work, since health checks must not wait for megabytes.
    ///
    /// # Errors
    /// What `read` refuses, and as [`Self::heavy`].
    pub async fn read<T: Send + 'static, F: From<Refusal> + Send + 'static>(
        &self,
        body: Bytes,
        read: impl FnOnce(&[u8]) -> Result<T, F> + Send + 'static,
    ) -> Result<T, F> {
        if body.len() <= READ_HERE {
            return read(&body);
        }
        self.heavy(move || read(&body)).await
    }

    /// Does work that would hold up others, on a blocking thread, where the turns of a few requests come one after the other.
    /// Dropped before its turn, it is not done. Once begun it goes on when its client goes away, and keeps its turn until it ends.
    ///
    /// # Errors
    /// The work's own, and [`Refusal::Panicked`].
    pub async fn heavy<T: Send + 'static, F: From<Refusal> + Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, F> + Send + 'static,
    ) -> Result<T, F> {
        let turn = Arc::clone(&self.heavy).acquire_owned().await;
        let turn = turn.map_err(|_| Refusal::Stopped)?;
        let work = move || {
            let _turn = turn;
            work()
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| Refusal::Panicked)?
    }

    /// Ends all work in flight.
    pub(super) fn give_up(&self) {
        self.gave_up.send_replace(true);
    }

    /// Completes when all work in flight is to end.
    pub async fn given_up(&self) {
        let mut gave_up = self.gave_up.subscribe();
        // The sender lives as long as this does.
        let _ = gave_up.wait_for(|given_up| *given_up).await;
    }

    /// Begins to count and measure a request.
    pub fn observed(self: &Arc<Self>, route: &'static str) -> Observed {
        self.traffic.in_flight.inc();
        Observed {
            base: Arc::clone(self),
            route,
            begin: Instant::now(),
            answered: false,
            _flight: self.flights.enter(),
        }
    }

    /// Answers a request, counted and measured, also when its client goes away before the end.
    pub(super) async fn observe<F: Refuse>(
        self: &Arc<Self>,
        route: &'static str,
        work: impl Future<Output = Result<Response, F>>,
    ) -> Response {
        let observed = self.observed(route);
        let response = match self.unless_given_up(work).await {
            Ok(response) => response,
            Err(fault) => self.refuse(fault),
        };
        observed.answered(response.status().as_u16());
        response
    }

    /// Does work unless it must end now.
    ///
    /// # Errors
    /// The work's own, and [`Refusal::Stopped`].
    pub async fn unless_given_up<T, F: From<Refusal>>(
        &self,
        work: impl Future<Output = Result<T, F>>,
    ) -> Result<T, F> {
        tokio::select! {
            outcome = work => outcome,
            () = self.given_up() => Err(Refusal::Stopped.into()),
        }
    }

    /// Counts an answer of any kind to what is not a request of its own, a message of a connection say.
    pub fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.traffic.answered(route, status, took);
    }

    /// Counts a failure by its stable name.
    pub fn failed(&self, cause: &'static str) {
        self.traffic.failed(cause);
    }

    /// Counts a fault and writes its answer.
    pub fn refuse<F: Refuse>(&self, fault: F) -> Response {
        self.traffic.failed(fault.cause());
        fault.into_response()
    }

    /// All metrics, as `/metrics` answers them.
    pub(super) fn exposition(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string cannot fail");
        text
    }
}

/// A request between its head and the end of its answer. Dropped before that, its client went away.
#[derive(Debug)]
pub struct Observed {
    base: Arc<Base>,
    route: &'static str,
    begin: Instant,
    answered: bool,
    _flight: Flight,
}

impl Observed {
    /// Counts the answer, which is complete.
    pub fn answered(mut self, status: u16) {
        self.answered = true;
        let took = self.begin.elapsed();
        self.base.traffic.answered(self.route, status, took);
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        if !self.answered {
            self.base.traffic.cancelled.inc();
        }
        self.base.traffic.in_flight.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::super::body::HELD;
    use super::*;

    #[tokio::test]
    async fn a_ticket_without_its_body_keeps_the_place_alone() {
        let config = BaseConfig {
            queue: 1,
            ..BaseConfig::default()
        };
        let base = Base::new(config, "test", &[1.0], |_| ()).0;
        let all = 64 << 20;
        let held = Held::default();
        held.more(all, &base.bodies).unwrap();
        let ticket = HELD.scope(held, async { base.admit() }).await.unwrap();
        let more = |bytes: usize| Held::default().more(bytes, &base.bodies);
        assert!(matches!(more(1), Err(Refusal::BodiesFull)));
        let place = ticket.without_body();
        more(all).unwrap();
        assert!(matches!(base.admit(), Err(Refusal::Overloaded)));
        drop(place);
        base.admit().unwrap();
    }
}
