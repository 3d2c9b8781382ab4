//! Work of concurrent callers done together, on a thread of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use forage_contracts::retriever::RetrieverError;
use tokio::sync::oneshot;

/// The time that the first caller waits for others.
const WINDOW: Duration = Duration::from_millis(2);
/// Items that make a batch full; a single call may bring more.
pub(super) const FULL_BATCH: usize = 256;

/// Collects the items of concurrent calls and hands them to one function. Dropping it ends the thread once the batch in
/// hand is done.
pub(super) struct Batcher<Q, A> {
    jobs: Sender<Job<Q, A>>,
}

/// Gives one answer per item, in order.
type Work<Q, A> = dyn Fn(&[Q]) -> Result<Vec<A>, RetrieverError>;

struct Job<Q, A> {
    items: Vec<Q>,
    reply: oneshot::Sender<Result<Vec<A>, RetrieverError>>,
}

impl<Q: Send + 'static, A: Send + 'static> Batcher<Q, A> {
    /// Starts the thread. `work` gives one answer per item, in order.
    ///
    /// # Errors
    /// [`RetrieverError::Stopped`] when the system has no thread left.
    pub(super) fn start<W>(name: &str, work: W) -> Result<Self, RetrieverError>
    where
        W: Fn(&[Q]) -> Result<Vec<A>, RetrieverError> + Send + 'static,
    {
        let (jobs, inbox) = channel();
        let thread = thread::Builder::new().name(name.to_owned());
        thread
            .spawn(move || serve(&inbox, &work))
            .map_err(|_| RetrieverError::Stopped)?;
        Ok(Self { jobs })
    }

    /// The answers for `items`, in order.
    ///
    /// # Errors
    /// The error of `work`, for everyone in the batch; [`RetrieverError::Stopped`] when it panicked.
    pub(super) async fn submit(&self, items: Vec<Q>) -> Result<Vec<A>, RetrieverError> {
        let (reply, answer) = oneshot::channel();
        self.jobs
            .send(Job { items, reply })
            .map_err(|_| RetrieverError::Stopped)?;
        answer.await.map_err(|_| RetrieverError::Stopped)?
    }
}

fn serve<Q, A>(inbox: &Receiver<Job<Q, A>>, work: &Work<Q, A>) {
    while let Ok(first) = inbox.recv() {
        let mut jobs = collect(inbox, first);
        // Calls that were given up meanwhile need no answer.
        jobs.retain(|job| !job.reply.is_closed());
        if !jobs.is_empty() {
            answer(jobs, work);
        }
    }
}

fn collect<Q, A>(inbox: &Receiver<Job<Q, A>>, first: Job<Q, A>) -> Vec<Job<Q, A>> {
    let end = Instant::now() + WINDOW;
    let mut size = first.items.len();
    let mut jobs = vec![first];
    while size < FULL_BATCH {
        match inbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(job) => {
                size += job.items.len();
                jobs.push(job);
            }
            Err(_) => break,
        }
    }
    jobs
}

fn answer<Q, A>(jobs: Vec<Job<Q, A>>, work: &Work<Q, A>) {
    let mut items = Vec::new();
    let mut waiting = Vec::with_capacity(jobs.len());
    for job in jobs {
        waiting.push((job.reply, job.items.len()));
        items.extend(job.items);
    }
    let done =
        catch_unwind(AssertUnwindSafe(|| work(&items))).unwrap_or(Err(RetrieverError::Stopped));
    let done = done.and_then(|answers| {
        if answers.len() == items.len() {
            Ok(answers)
        } else {
            Err(RetrieverError::Stopped)
        }
    });
    // A caller that has gone takes no reply.
    match done {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for (reply, count) in waiting {
                let _ = reply.send(Ok(answers.by_ref().take(count).collect()));
            }
        }
        Err(failure) => {
            let failure = Arc::new(failure);
            for (reply, _) in waiting {
                let _ = reply.send(Err(Arc::clone(&failure).into()));
            }
        }
    }
}
