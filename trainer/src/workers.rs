//! Data-parallel gradients: micro-batches on threads, summed in a fixed order.
//!
//! The result does not depend on the number of workers: the cut is fixed before, and gradients are added in the order of
//! the cut.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Device;

use crate::device::is_processor;
use crate::grads::NamedGrads;
use crate::model::ModelConfig;

/// Hidden size from which on a model's products are split over threads rather than its micro-batches.
const WIDE: usize = 512;

/// Bytes of the activations of a micro-batch that are kept in any case, however much memory there is.
pub(crate) const KEPT_BYTES: usize = 96 << 20;

/// Threads for gradient work, and the activations that they keep.
#[derive(Clone, Debug)]
pub struct Workers {
    pools: Vec<Arc<rayon::ThreadPool>>,
    kept_bytes: usize,
}

impl Workers {
    /// `count` workers of one thread each.
    ///
    /// # Panics
    /// When the operating system cannot start a thread.
    pub fn new(count: usize) -> Self {
        Self {
            pools: (0..count.max(1)).map(|_| pool(1)).collect(),
            kept_bytes: KEPT_BYTES,
        }
    }

    /// Keeps up to `kept_bytes` of each micro-batch's activations instead of computing them again: this trades memory for time and
    /// changes no result. A [`MemoryPlan`](crate::memory::MemoryPlan) says how much there is room for.
    #[must_use]
    pub fn keeping(self, kept_bytes: usize) -> Self {
        Self { kept_bytes, ..self }
    }

    /// Bytes of the activations of a micro-batch that are kept at most.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The workers that suit a model and its device. On the processor a small model has one micro-batch per thread; a large one has one
    /// micro-batch at a time, which bounds memory, and splits its products over threads. Another device works on one micro-batch at a
    /// time, which fills it.
    ///
    /// # Panics
    /// When the operating system cannot start a thread.
    pub fn for_model(threads: usize, model: &ModelConfig, device: &Device) -> Self {
        if is_processor(device) && Self::micro_batches_at_a_time(threads, model) > 1 {
            Self::new(threads)
        } else {
            Self {
                pools: vec![pool(threads)],
                kept_bytes: KEPT_BYTES,
            }
        }
    }

    /// Micro-batches that [`Self::for_model`] runs at a time on the processor.
    pub fn micro_batches_at_a_time(threads: usize, model: &ModelConfig) -> usize {
        if model.hidden_size < WIDE {
            threads.max(1)
        } else {
            1
        }
    }

    /// Micro-batches that run at a time.
    pub fn at_a_time(&self) -> usize {
        self.pools.len()
    }

    /// Threads of all workers together.
    pub fn threads(&self) -> usize {
        self.pools
            .iter()
            .map(|pool| pool.current_num_threads())
            .sum()
    }

    /// The number of micro-batches of a step whose tensors [`Self::gradients`] holds at once where `workers` run.
    pub(crate) fn running(workers: usize, micro_batches: usize) -> usize {
        workers.min(micro_batches).max(1)
    }

    /// The number of sums that [`Self::gradients`] holds beside the gradients of those: the first of a step is its own sum. Where one runs
    /// at a time it adds to the sum what is complete, so that only the rest of its gradients is beside it.
    pub(crate) fn sums(micro_batches: usize) -> usize {
        usize::from(micro_batches > 1)
    }

    /// A pool of as many threads for work whose kernels split by themselves: generation.
    ///
    /// # Panics
    /// When the operating system cannot start a thread.
    pub fn kernel_pool(&self) -> Arc<rayon::ThreadPool> {
        pool(self.threads())
    }

    /// Runs `job` for 0..`jobs`, in any order, on all workers; results come back in order.
    pub fn map<T: Send>(&self, jobs: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= jobs {
                    return done;
                }
                done.push((index, job(index)));
            }
        };
        let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
            let handles: Vec<_> = self
                .pools
                .iter()
                .map(|pool| scope.spawn(|| pool.install(work)))
                .collect();
            let joined = handles.into_iter().map(|handle| match handle.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.flatten().collect()
        });
        results.sort_by_key(|&(index, _)| index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Sum of the gradients that `job` gives for micro-batches 0..`jobs`, and what else it returned. One that returns nothing
    /// contributes nothing.
    pub(crate) fn gradients<T: Send>(
        &self,
        jobs: usize,
        job: impl Fn(usize) -> Option<(NamedGrads, T)> + Sync,
    ) -> (NamedGrads, Vec<T>) {
        let (mut sums, rests) = self.gradients_of_parts(&Parts::one(jobs), |index, sum| {
            let (gradients, rest) = job(index)?;
            sum.add(gradients);
            Some(rest)
        });
        (sums.pop().unwrap_or_default(), rests)
    }

    /// As [`Self::gradients`], with the sum of each part by itself; one sum of all where the parts are [`Parts::folded`]. `job` adds to
    /// the sum that it is given: that of its part so far where one job runs at a time, and an empty one where there are several, whose
    /// gradients wait for their turn. It adds each parameter's gradient once, so the bits are the same.
    pub(crate) fn gradients_of_parts<T: Send>(
        &self,
        parts: &Parts,
        job: impl Fn(usize, &mut NamedGrads) -> Option<T> + Sync,
    ) -> (Vec<NamedGrads>, Vec<T>) {
        let sum = Mutex::new(Sum::new(parts));
        let locked = || sum.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = self.at_a_time() == 1;
        self.map(parts.jobs(), |index| {
            let mut gradients = NamedGrads::default();
            if alone {
                gradients = locked().lend(index);
            }
            let rest = job(index, &mut gradients);
            locked().take(index, gradients, rest);
        });
        let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
        (sum.totals, sum.rests)
    }
}

/// Jobs in parts, neighbours together, each part of which has a sum of its own.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The number of the first job behind each.
    ends: Vec<usize>,
    /// Adds the sum of a part to that of the parts before it as soon as it is complete, so that there is one sum.
    folded: bool,
}

impl Parts {
    /// All in one.
    pub(crate) fn one(jobs: usize) -> Self {
        Self::new(vec![jobs], true)
    }

    /// Jobs of all parts.
    pub(crate) fn jobs(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Parts that end before these jobs.
    pub(crate) fn new(ends: Vec<usize>, folded: bool) -> Self {
        Self { ends, folded }
    }
}

/// Gradients added up in the order of the jobs, part by part. Jobs are begun in order, so no more than one per worker waits for its
/// turn: a step needs memory for its workers, not for its micro-batches.
struct Sum<'a, T> {
    next: usize,
    early: BTreeMap<usize, (NamedGrads, Option<T>)>,
    parts: &'a Parts,
    /// Sums of the parts that were begun; for folded parts, that of all complete ones and that of the current one.
    totals: Vec<NamedGrads>,
    rests: Vec<T>,
}

impl<'a, T> Sum<'a, T> {
    fn new(parts: &'a Parts) -> Self {
        Self {
            next: 0,
            early: BTreeMap::new(),
            parts,
            totals: Vec::new(),
            rests: Vec::new(),
        }
    }

    /// Returns whether a job is the first of its part.
    fn begins(&self, index: usize) -> bool {
        index == 0 || self.parts.ends.contains(&index)
    }

    /// The sum of a job's part so far, until [`Self::take`] has it back; all jobs before it are done.
    fn lend(&mut self, index: usize) -> NamedGrads {
        if self.begins(index) {
            return NamedGrads::default();
        }
        let sum = self.totals.last_mut();
        sum.map(std::mem::take).unwrap_or_default()
    }

    fn take(&mut self, index: usize, gradients: NamedGrads, rest: Option<T>) {
        self.early.insert(index, (gradients, rest));
        while let Some((gradients, rest)) = self.early.remove(&self.next) {
            let begins = self.begins(self.next);
            self.next += 1;
            if begins {
                self.totals.push(NamedGrads::default());
            }
            if let Some(total) = self.totals.last_mut() {
                total.add(gradients);
            }
            self.rests.extend(rest);
            if self.parts.folded && self.totals.len() > 1 && self.parts.ends.contains(&self.next) {
                let complete = self.totals.pop().unwrap_or_default();
                self.totals[0].add(complete);
            }
        }
    }
}

fn pool(threads: usize) -> Arc<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.max(1))
        .build();
    Arc::new(pool.expect("a thread can be started"))
}
