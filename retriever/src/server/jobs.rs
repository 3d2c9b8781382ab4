//! The workers that search.

use forage_net::{Refusal, ServeError, Ticket, Workers};
use prometheus_client::metrics::gauge::Gauge;
use tokio::task::{JoinError, JoinSet};

use super::fault::Fault;
use super::metrics::Metrics;

/// The threads that search. See the scheduling notes of [`crate::server`].
pub(super) struct Pool {
    workers: Workers,
    threads: usize,
    waiting: Gauge,
    running: Gauge,
}

impl Pool {
    pub(super) fn new(threads: usize, metrics: &Metrics) -> Result<Self, ServeError> {
        Ok(Self {
            workers: Workers::start("search", threads)?,
            threads,
            waiting: metrics.waiting.clone(),
            running: metrics.running.clone(),
        })
    }

    /// Does one job.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        ticket: &Ticket,
        job: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Fault> {
        let mut jobs = JoinSet::new();
        self.start(&mut jobs, ticket, job);
        match jobs.join_next().await {
            Some(done) => done.map_err(|error| broken(&error)),
            None => Err(Refusal::Stopped.into()),
        }
    }

    /// Does jobs `0..count`, at most one per worker at a time, and gives their results in order. Stops at the first
    /// failure. Dropping the future takes back what has not begun.
    pub(super) async fn run_all<
        T: Send + 'static,
        J: Future<Output = Result<T, Fault>> + Send + 'static,
    >(
        &self,
        ticket: &Ticket,
        count: usize,
        job: impl Fn(usize) -> J,
    ) -> Result<Vec<T>, Fault> {
        let mut jobs = JoinSet::new();
        let mut results: Vec<Option<T>> = std::iter::repeat_with(|| None).take(count).collect();
        let mut next = 0;
        loop {
            while next < count && jobs.len() < self.threads {
                let (number, job) = (next, job(next));
                self.start(&mut jobs, ticket, async move { (number, job.await) });
                next += 1;
            }
            let Some(done) = jobs.join_next().await else {
                break;
            };
            let (number, result) = done.map_err(|error| broken(&error))?;
            results[number] = Some(result?);
        }
        results
            .into_iter()
            .collect::<Option<Vec<T>>>()
            .ok_or_else(|| Refusal::Stopped.into())
    }

    fn start<T: Send + 'static>(
        &self,
        jobs: &mut JoinSet<T>,
        ticket: &Ticket,
        job: impl Future<Output = T> + Send + 'static,
    ) {
        let mut stage = Stage::waiting(self.waiting.clone(), self.running.clone());
        let ticket = ticket.clone();
        let task = async move {
            stage.begin();
            let result = job.await;
            drop((stage, ticket));
            result
        };
        jobs.spawn_on(task, self.workers.handle());
    }

    /// Gives up every job, begun or not; their requests get [`Refusal::Stopped`].
    pub(super) fn stop(&self) {
        self.workers.stop();
    }
}

fn broken(error: &JoinError) -> Fault {
    if error.is_panic() {
        Refusal::Panicked.into()
    } else {
        Refusal::Stopped.into()
    }
}

/// Keeps the gauges right however a job ends.
struct Stage {
    waiting: Gauge,
    running: Gauge,
    begun: bool,
}

impl Stage {
    fn waiting(waiting: Gauge, running: Gauge) -> Self {
        waiting.inc();
        Self {
            waiting,
            running,
            begun: false,
        }
    }

    fn begin(&mut self) {
        self.begun = true;
        self.waiting.dec();
        self.running.inc();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.begun {
            self.running.dec()
        } else {
            self.waiting.dec()
        };
    }
}
