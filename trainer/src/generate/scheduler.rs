//! Decides which tokens of which sequences go through the model next. It knows tokens and blocks, no model.
//!
//! Each pass holds one token of every sequence that decodes, and chunks of prompts up to a number of tokens, so that a
//! long prompt holds nobody up. A sequence keeps the place of its first turn: of more than can run, those that began are
//! brought to their end before others begin, while what they computed is still in the cache. When memory is short, sequences
//! kept between turns lose their blocks first, then the one that came last; its tokens are run again later.

mod memory;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::blocks::{BlockName, BlockPool, extend_names};
use super::tokens::Tokens;
use crate::model::BLOCK_POSITIONS;

/// Sizes of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Most sequences in one pass.
    pub(super) sequences: usize,
    /// Most tokens in one pass.
    pub(super) tokens: usize,
}

/// What a sequence needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing until its next turn.
    Kept,
    /// A place among those that run.
    Waiting,
    /// Its turn in every pass.
    Running,
}

#[derive(Debug)]
struct Sequence {
    tokens: Tokens,
    /// Tokens whose keys and values are in the cache.
    computed: usize,
    blocks: Vec<u32>,
    /// Names of its full blocks, from when it first runs.
    names: Vec<BlockName>,
    state: State,
    /// `true` where blocks of others may be used: not for a sequence that needs the hidden state of every token.
    share: bool,
    /// Pass of the last use.
    used: u64,
    /// Order of arrival, that of its first turn.
    arrived: u64,
    /// Tokens of the present turn's prompt that were counted as found in the cache, or could not be any more.
    counted: usize,
}

/// Tokens of one sequence in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) id: u64,
    pub(super) start: usize,
    pub(super) count: usize,
    /// `true` where the next token is known after this pass.
    pub(super) last: bool,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) preemptions: u64,
    /// Prompt tokens that were asked for.
    pub(super) prompt_tokens: u64,
    /// Prompt tokens that were in the cache already.
    pub(super) cached_prompt_tokens: u64,
}

/// All sequences and the blocks they hold.
#[derive(Debug)]
pub(super) struct Scheduler {
    limits: Limits,
    pool: BlockPool,
    sequences: BTreeMap<u64, Sequence>,
    /// Sequences by order of arrival.
    waiting: BTreeMap<u64, u64>,
    /// Running sequences in order of arrival.
    running: Vec<u64>,
    pass: u64,
    arrivals: u64,
    pub(super) counts: Counts,
}

impl Scheduler {
    pub(super) fn new(limits: Limits, blocks: usize) -> Self {
        Self {
            limits,
            pool: BlockPool::new(blocks),
            sequences: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: Vec::new(),
            pass: 0,
            arrivals: 0,
            counts: Counts::default(),
        }
    }

    /// Most positions one sequence can have.
    pub(super) fn capacity(&self) -> usize {
        self.pool.total() * BLOCK_POSITIONS
    }

    /// Positions of blocks that are held.
    pub(super) fn held_positions(&self) -> usize {
        (self.pool.total() - self.pool.available()) * BLOCK_POSITIONS
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A new turn of sequence `id`, which may be known from an earlier one. `tokens` must not be empty.
    pub(super) fn submit(&mut self, id: u64, tokens: Arc<[u32]>, share: bool) {
        let mut kept = self
            .sequences
            .remove(&id)
            .filter(|known| known.state == State::Kept);
        if let Some(sequence) = kept.as_mut() {
            let same = sequence.tokens.in_common(&tokens);
            // The last token always runs again: its successor is what is asked for.
            let keep = sequence.computed.min(same).min(tokens.len() - 1);
            self.cut(sequence, id, keep);
            sequence.tokens = Tokens::new(Arc::clone(&tokens));
        }
        self.arrivals += 1;
        let mut sequence = kept.unwrap_or_else(|| Sequence {
            tokens: Tokens::new(tokens),
            computed: 0,
            blocks: Vec::new(),
            names: Vec::new(),
            state: State::Waiting,
            share,
            used: self.pass,
            arrived: self.arrivals,
            counted: 0,
        });
        sequence.state = State::Waiting;
        self.counts.prompt_tokens += sequence.tokens.len() as u64;
        self.counts.cached_prompt_tokens += sequence.computed as u64;
        sequence.counted = sequence.computed;
        self.waiting.insert(sequence.arrived, id);
        self.sequences.insert(id, sequence);
    }

    /// Tokens of a sequence so far.
    pub(super) fn length(&self, id: u64) -> usize {
        self.sequences
            .get(&id)
            .map_or(0, |sequence| sequence.tokens.len())
    }

    /// Appends a drawn token, which runs next.
    pub(super) fn push(&mut self, id: u64, token: u32) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.tokens.push(token);
            extend_names(&mut sequence.names, &sequence.tokens);
        }
    }

    /// Ends the turn and keeps the blocks for the next one.
    pub(super) fn keep(&mut self, id: u64) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            match sequence.state {
                State::Kept => {}
                State::Waiting => {
                    self.waiting.remove(&sequence.arrived);
                }
                State::Running => self.running.retain(|&other| other != id),
            }
            sequence.state = State::Kept;
        }
    }

    /// Ends the sequence.
    pub(super) fn release(&mut self, id: u64) {
        self.keep(id);
        if let Some(sequence) = self.sequences.remove(&id) {
            self.pool.release(&sequence.blocks, id);
        }
    }

    /// Ends the sequence and drops the blocks that it filled, which may be wrong.
    pub(super) fn discard(&mut self, id: u64) {
        if let Some(sequence) = self.sequences.get(&id) {
            self.pool.distrust(&sequence.blocks);
        }
        self.release(id);
    }

    /// Drops the whole cache after a change of weights. Sequences stay and run again.
    pub(super) fn forget(&mut self) {
        for (&id, sequence) in &mut self.sequences {
            self.pool.release(&sequence.blocks, id);
            sequence.blocks.clear();
            sequence.computed = 0;
            if sequence.state == State::Running {
                sequence.state = State::Waiting;
                self.waiting.insert(sequence.arrived, id);
            }
        }
        self.running.clear();
        self.pool.forget();
    }

    /// The tokens of a planned part and the blocks it reads and writes.
    pub(super) fn part(&self, planned: &Planned) -> (Cow<'_, [u32]>, &[u32]) {
        let sequence = &self.sequences[&planned.id];
        let places = planned.start..planned.start + planned.count;
        (sequence.tokens.at(places), &sequence.blocks)
    }

    /// The tokens that go through the model next: single ones first. Empty when nobody wants anything.
    pub(super) fn plan(&mut self) -> Vec<Planned> {
        self.pass += 1;
        self.admit();
        let mut plan: Vec<Planned> = Vec::new();
        let mut chunks: Vec<Planned> = Vec::new();
        let mut budget = self.limits.tokens.max(self.running.len());
        // In order of arrival: the newest has to give way.
        for id in self.running.clone() {
            let rest = self.skip_filled(id);
            if rest == 1 && self.prepare(id, 1, &plan, &chunks) {
                plan.push(self.planned(id, 1));
                budget -= 1;
            }
        }
        for id in self.running.clone() {
            let rest = self.skip_filled(id);
            let count = rest.min(budget);
            if rest > 1 && count > 0 {
                let count = self.fillable(id, count);
                if count > 0 && self.prepare(id, count, &plan, &chunks) {
                    chunks.push(self.planned(id, count));
                    budget -= count;
                }
            }
        }
        // One token of a prompt runs like a token that was drawn.
        let (singles, longer): (Vec<_>, Vec<_>) =
            chunks.into_iter().partition(|part| part.count == 1);
        plan.extend(singles);
        plan.extend(longer);
        plan
    }

    fn planned(&mut self, id: u64, count: usize) -> Planned {
        let sequence = self
            .sequences
            .get_mut(&id)
            .expect("a running sequence is known");
        sequence.used = self.pass;
        let last = sequence.computed + count == sequence.tokens.len();
        Planned {
            id,
            start: sequence.computed,
            count,
            last,
        }
    }

    /// Records that the planned tokens went through the model.
    pub(super) fn commit(&mut self, plan: &[Planned]) {
        for part in plan {
            let Some(sequence) = self.sequences.get_mut(&part.id) else {
                continue;
            };
            sequence.computed = part.start + part.count;
            sequence.counted = sequence.counted.max(sequence.computed);
            let full = part.start / BLOCK_POSITIONS..sequence.computed / BLOCK_POSITIONS;
            for block in full {
                self.pool.fill(sequence.blocks[block]);
                if sequence.share {
                    self.pool
                        .promise(sequence.blocks[block], sequence.names[block]);
                }
            }
        }
    }

    /// Lets waiting sequences run, in order of arrival, while there is memory for their prompts.
    fn admit(&mut self) {
        while self.running.len() < self.limits.sequences {
            let Some((_, &id)) = self.waiting.first_key_value() else {
                return;
            };
            if let Some(sequence) = self.sequences.get_mut(&id) {
                // Only now: until then it has no memory of its own beside the others with its prompt.
                extend_names(&mut sequence.names, &sequence.tokens);
            }
            while self.pool.available() < self.missing_blocks(id) && self.evict_idle() {}
            let needed = self.missing_blocks(id);
            // A sequence alone may take everything: it was checked on arrival that it fits.
            if self.pool.available() < needed && !self.running.is_empty() {
                return;
            }
            self.waiting.pop_first();
            let arrived = |id: &u64| self.sequences[id].arrived;
            let place = self
                .running
                .partition_point(|other| arrived(other) < arrived(&id));
            self.running.insert(place, id);
            self.attach(id);
            let (running, waiting) = (self.running.len(), self.waiting.len());
            tracing::trace!(sequence = id, running, waiting, "admitted");
        }
    }
}

#[cfg(test)]
mod tests;
