//! Admission and the workers that search.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

use super::fault::Fault;

/// A place among the admitted requests. Jobs hold it too: a request that went away counts until its last job ended.
pub(super) type Ticket = Arc<OwnedSemaphorePermit>;

/// The runtime that searches. See the scheduling notes of [`crate::server`].
pub(super) struct Pool {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    places: Arc<Semaphore>,
    workers: usize,
    waiting: Gauge,
    running: Gauge,
}

impl Pool {
    pub(super) fn new(workers: usize, queue: usize, waiting: Gauge, running: Gauge) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(workers).thread_name("search").enable_all().build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            places: Arc::new(Semaphore::new(queue)),
            workers,
            waiting,
            running,
        })
    }

    /// A place, or a refusal at once.
    pub(super) fn admit(&self) -> Result<Ticket, Fault> {
        self.places.clone().try_acquire_owned().map(Arc::new).map_err(|_| Fault::Overloaded)
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
            None => Err(Fault::Stopped),
        }
    }

    /// Does jobs `0..count`, at most one per worker at a time, and gives their results in order. Stops at the first
    /// failure. Dropping the future takes back what has not begun.
    pub(super) async fn run_all<T: Send + 'static, J: Future<Output = Result<T, Fault>> + Send + 'static>(
        &self,
        ticket: &Ticket,
        count: usize,
        job: impl Fn(usize) -> J,
    ) -> Result<Vec<T>, Fault> {
        let mut jobs = JoinSet::new();
        let mut results: Vec<Option<T>> = std::iter::repeat_with(|| None).take(count).collect();
        let mut next = 0;
        loop {
            while next < count && jobs.len() < self.workers {
                let (number, job) = (next, job(next));
                self.start(&mut jobs, ticket, async move { (number, job.await) });
                next += 1;
            }
            let Some(done) = jobs.join_next().await else { break };
            let (number, result) = done.map_err(|error| broken(&error))?;
            results[number] = Some(result?);
        }
        results.into_iter().collect::<Option<Vec<T>>>().ok_or(Fault::Stopped)
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
        jobs.spawn_on(task, &self.handle);
    }

    /// Gives up every job, begun or not; their requests get [`Fault::Stopped`].
    pub(super) fn stop(&self) {
        if let Some(runtime) = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A runtime must not be dropped, which waits for it, where other tasks run.
        self.stop();
    }
}

fn broken(error: &JoinError) -> Fault {
    if error.is_panic() { Fault::Panicked } else { Fault::Stopped }
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
        Self { waiting, running, begun: false }
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
