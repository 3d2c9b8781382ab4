//! Answers kept for queries that come again, and one search for queries that come at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forage_contracts::retriever::{
    BooleanSearch, Fingerprint, Hit, Query, Retriever, RetrieverError,
};
use futures::FutureExt;
use futures::future::{Shared, WeakShared, join_all};
use quick_cache::sync::Cache;

/// Largest `k` whose answers are kept: a few deep runs must not push out the answers of many rollouts.
const LARGEST_K: usize = 128;

/// Keeps the answers of another retriever.
///
/// Queries are equal when text and filter are equal to the byte: nothing is normalised, because what a text means is the
/// inner retriever's to say. Equal queries that come while one of them is being answered wait for its answer, in one batch
/// or in several; the others of a call go to the inner retriever in one call. A failure is not kept and reaches
/// everyone who waited. Callers that give up leave the search to those who still wait; when the search was ended by the flag
/// of one of them, the others ask anew.
pub struct CachedRetriever {
    shared: Arc<State>,
}

/// The counters of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CacheStats {
    /// Queries answered from the cache.
    pub hits: u64,
    /// Queries that waited for an equal one.
    pub joined: u64,
    /// Queries that were searched for.
    pub misses: u64,
    /// Answers kept now.
    pub entries: u64,
}

/// BLAKE3 of everything that decides an answer.
type Key = [u8; 32];
type Answer = Arc<Vec<Hit>>;
type Answers = Result<Arc<Vec<Answer>>, Arc<RetrieverError>>;
/// One call of the inner retriever, driven by whoever waits for it.
type Flight = Shared<Pin<Box<dyn Future<Output = Answers> + Send>>>;
type WeakFlight = WeakShared<Pin<Box<dyn Future<Output = Answers> + Send>>>;

struct State {
    inner: Arc<dyn Retriever>,
    answers: Cache<Key, Answer>,
    /// Searches under way. Weak, so that a search without a waiting caller is dropped.
    flights: Mutex<HashMap<Key, Seat>>,
    next_flight: AtomicU64,
    hits: AtomicU64,
    joined: AtomicU64,
    misses: AtomicU64,
}

/// The place of a key's answer in a search under way.
struct Seat {
    number: u64,
    flight: WeakFlight,
    place: usize,
}

/// The source of an answer to a query of a call.
enum Source {
    Kept(Answer),
    /// The flight of this call.
    Own(usize),
    Other(Flight, usize),
}

impl CachedRetriever {
    /// Keeps up to `entries` answers (at least one) of `inner`; those used least are dropped first.
    pub fn new(inner: Arc<dyn Retriever>, entries: usize) -> Self {
        let shared = State {
            inner,
            answers: Cache::new(entries.max(1)),
            flights: Mutex::default(),
            next_flight: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The counters so far.
    pub(crate) fn stats(&self) -> CacheStats {
        let state = &self.shared;
        CacheStats {
            hits: state.hits.load(Ordering::Relaxed),
            joined: state.joined.load(Ordering::Relaxed),
            misses: state.misses.load(Ordering::Relaxed),
            entries: state.answers.len() as u64,
        }
    }
}

#[async_trait::async_trait]
impl Retriever for CachedRetriever {
    fn fingerprint(&self) -> Fingerprint {
        self.shared.inner.fingerprint()
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        loop {
            let answer = self.search_once(queries, k).await;
            // The search was that of a caller who gave up: those who still wait ask anew.
            let is_ours = |query: &Query| query.cancel.is_cancelled();
            match answer {
                Err(failure)
                    if matches!(failure.root(), RetrieverError::Cancelled)
                        && !queries.iter().any(is_ours) => {}
                answer => return answer,
            }
        }
    }

    /// The inner retriever's; its answers are not kept.
    fn boolean(self: Arc<Self>) -> Option<Arc<dyn BooleanSearch>> {
        Arc::clone(&self.shared.inner).boolean()
    }
}

impl CachedRetriever {
    async fn search_once(
        &self,
        queries: &[Query],
        k: usize,
    ) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let state = &self.shared;
        let fingerprint = state.inner.fingerprint();
        let keys: Vec<Key> = queries
            .iter()
            .map(|query| key(&fingerprint, query, k))
            .collect();
        let (sources, own) = state.board(&keys, queries, k);
        let mut flights: Vec<(Flight, Vec<(usize, usize)>)> = Vec::new();
        let mut answers: Vec<Option<Answer>> = vec![None; queries.len()];
        let mut own_places = Vec::new();
        for (at, source) in sources.into_iter().enumerate() {
            match source {
                Source::Kept(answer) => answers[at] = Some(answer),
                Source::Own(place) => own_places.push((at, place)),
                Source::Other(flight, place) => flights.push((flight, vec![(at, place)])),
            }
        }
        flights.extend(own.map(|flight| (flight, own_places)));
        let landed = join_all(flights.iter().map(|(flight, _)| flight.clone())).await;
        for (result, (_, places)) in landed.into_iter().zip(&flights) {
            let result = result?;
            for &(at, place) in places {
                answers[at] = result.get(place).cloned();
            }
        }
        answers
            .into_iter()
            .map(|answer| Ok(answer.ok_or(RetrieverError::Stopped)?.to_vec()))
            .collect()
    }
}

impl State {
    /// Finds for each query its answer or the search it will come from, starting one for those that have none.
    fn board(
        self: &Arc<Self>,
        keys: &[Key],
        queries: &[Query],
        k: usize,
    ) -> (Vec<Source>, Option<Flight>) {
        let mut sources: Vec<Option<Source>> = Vec::with_capacity(keys.len());
        sources.extend(
            keys.iter()
                .map(|key| self.answers.get(key).map(Source::Kept)),
        );
        if sources.iter().all(Option::is_some) {
            self.hits.fetch_add(keys.len() as u64, Ordering::Relaxed);
            return (sources.into_iter().flatten().collect(), None);
        }
        let mut joined = 0;
        let mut own: Vec<Query> = Vec::new();
        let mut own_keys: Vec<Key> = Vec::new();
        let mut places: HashMap<Key, usize> = HashMap::new();
        let mut flights = self.lock();
        for (source, (key, query)) in sources.iter_mut().zip(keys.iter().zip(queries)) {
            if source.is_some() {
                continue;
            }
            // A search that ended since the first look has put its answer in place before it left.
            *source = Some(
                match (places.get(key), flights.get(key).and_then(Seat::board)) {
                    (Some(&place), _) => {
                        joined += 1;
                        Source::Own(place)
                    }
                    (None, Some((flight, place))) => {
                        joined += 1;
                        Source::Other(flight, place)
                    }
                    (None, None) => {
                        if let Some(answer) = self.answers.get(key) {
                            Source::Kept(answer)
                        } else {
                            places.insert(*key, own.len());
                            own.push(query.clone());
                            own_keys.push(*key);
                            Source::Own(own.len() - 1)
                        }
                    }
                },
            );
        }
        let misses = own.len() as u64;
        let flight = (misses > 0).then(|| {
            let number = self.next_flight.fetch_add(1, Ordering::Relaxed);
            let flight = self.launch(number, own, own_keys.clone(), k);
            for (place, key) in own_keys.into_iter().enumerate() {
                // Only a finished flight has no weak form, and this one has not begun.
                if let Some(weak) = flight.downgrade() {
                    flights.insert(
                        key,
                        Seat {
                            number,
                            flight: weak,
                            place,
                        },
                    );
                }
            }
            flight
        });
        drop(flights);
        self.joined.fetch_add(joined, Ordering::Relaxed);
        self.misses.fetch_add(misses, Ordering::Relaxed);
        self.hits
            .fetch_add(keys.len() as u64 - joined - misses, Ordering::Relaxed);
        (sources.into_iter().flatten().collect(), flight)
    }

    /// The search for queries that are not under way yet; not begun.
    fn launch(
        self: &Arc<Self>,
        number: u64,
        queries: Vec<Query>,
        keys: Vec<Key>,
        k: usize,
    ) -> Flight {
        let landing = Landing {
            state: Arc::clone(self),
            number,
            keys,
        };
        let search = async move {
            let state = &landing.state;
            let searched = AssertUnwindSafe(state.inner.search(&queries, k))
                .catch_unwind()
                .await;
            let lists = searched
                .unwrap_or(Err(RetrieverError::Stopped))
                .map_err(Arc::new)?;
            if lists.len() != queries.len() {
                let retriever = format!(
                    "the retriever with fingerprint {}",
                    state.inner.fingerprint()
                );
                let what = "answer every query of a batch";
                return Err(Arc::new(RetrieverError::Unsupported { retriever, what }));
            }
            let answers: Vec<Answer> = lists.into_iter().map(Arc::new).collect();
            if k <= LARGEST_K {
                for (key, answer) in landing.keys.iter().zip(&answers) {
                    state.answers.insert(*key, Arc::clone(answer));
                }
            }
            Ok(Arc::new(answers))
        };
        let search: Pin<Box<dyn Future<Output = Answers> + Send>> = Box::pin(search);
        search.shared()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Seat>> {
        // The map is whole between any two statements that change it.
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    fn board(&self) -> Option<(Flight, usize)> {
        Some((self.flight.upgrade()?, self.place))
    }
}

/// Takes a search off the list when it is done or dropped.
struct Landing {
    state: Arc<State>,
    number: u64,
    keys: Vec<Key>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut flights = self.state.lock();
        for key in &self.keys {
            // A key may have a newer search already, when this one was given up.
            if let Entry::Occupied(seat) = flights.entry(*key)
                && seat.get().number == self.number
            {
                seat.remove();
            }
        }
    }
}

/// Content address of an answer.
pub(crate) fn key(fingerprint: &Fingerprint, query: &Query, k: usize) -> Key {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &str| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    };
    add(&fingerprint.0);
    add(&query.text);
    for (name, values) in &query.filter.0 {
        add(name);
        add(&values.len().to_string());
        for value in values {
            add(value);
        }
    }
    hasher.update(&(k as u64).to_le_bytes());
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests;
