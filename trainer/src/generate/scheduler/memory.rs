//! The blocks of sequences: which they share, which they take, and who gives way when there are none left.

use super::{Planned, Scheduler, Sequence, State};
use crate::model::BLOCK_POSITIONS;

impl Scheduler {
    /// Gives back all blocks after position `keep`.
    pub(super) fn cut(&mut self, sequence: &mut Sequence, id: u64, keep: usize) {
        let blocks = keep.div_ceil(BLOCK_POSITIONS);
        if !keep.is_multiple_of(BLOCK_POSITIONS)
            && sequence.computed > keep
            && sequence.names.len() >= blocks
        {
            // The last block is full and has a name: others may rely on the tokens after `keep`, so it is not written.
            let whole = keep / BLOCK_POSITIONS;
            self.pool.release(&sequence.blocks.split_off(whole), id);
            sequence.computed = whole * BLOCK_POSITIONS;
        } else {
            self.pool.release(
                &sequence.blocks.split_off(blocks.min(sequence.blocks.len())),
                id,
            );
            sequence.computed = keep;
        }
        sequence.names.truncate(keep / BLOCK_POSITIONS);
    }

    /// Number of free blocks that a sequence would take.
    pub(super) fn missing_blocks(&self, id: u64) -> usize {
        let sequence = &self.sequences[&id];
        let total = sequence.tokens.len().div_ceil(BLOCK_POSITIONS);
        let beyond = sequence.names.iter().skip(sequence.blocks.len());
        let held_by_others = beyond
            .take_while(|name| sequence.share && self.pool.is_idle(name) == Some(false))
            .count();
        total.saturating_sub(sequence.blocks.len() + held_by_others)
    }

    /// Takes the blocks of a sequence's prompt: shared ones as far as they are known, then fresh ones promised to others.
    pub(super) fn attach(&mut self, id: u64) {
        let Self {
            sequences, pool, ..
        } = self;
        let Some(sequence) = sequences.get_mut(&id) else {
            return;
        };
        sequence.state = State::Running;
        let aligned = sequence.computed == sequence.blocks.len() * BLOCK_POSITIONS;
        if !sequence.share || !aligned {
            return;
        }
        for index in sequence.blocks.len()..sequence.names.len() {
            let name = sequence.names[index];
            let block = match pool.share(&name) {
                Some(block) => block,
                None => match pool.take(id) {
                    Some(block) => {
                        pool.promise(block, name);
                        block
                    }
                    None => break,
                },
            };
            sequence.blocks.push(block);
        }
    }

    /// Skips blocks that others have filled; returns the tokens still to run. The last token always runs.
    pub(super) fn skip_filled(&mut self, id: u64) -> usize {
        let Self {
            sequences,
            pool,
            counts,
            ..
        } = self;
        let Some(sequence) = sequences.get_mut(&id) else {
            return 0;
        };
        while sequence.computed % BLOCK_POSITIONS == 0 {
            let block = sequence.computed / BLOCK_POSITIONS;
            let next = (sequence.computed + BLOCK_POSITIONS).min(sequence.tokens.len() - 1);
            if next <= sequence.computed
                || !sequence
                    .blocks
                    .get(block)
                    .is_some_and(|&block| pool.is_filled(block))
            {
                break;
            }
            // Without what a preempted sequence finds of its own blocks when it runs again.
            counts.cached_prompt_tokens +=
                next.saturating_sub(sequence.counted.max(sequence.computed)) as u64;
            sequence.counted = sequence.counted.max(next);
            sequence.computed = next;
        }
        sequence.tokens.len() - sequence.computed
    }

    /// The number of the next `count` tokens that this sequence may run: it stops before a block that another one fills.
    pub(super) fn fillable(&mut self, id: u64, count: usize) -> usize {
        let Self {
            sequences, pool, ..
        } = self;
        let sequence = &sequences[&id];
        let mut position = sequence.computed;
        while position < sequence.computed + count {
            let block = position / BLOCK_POSITIONS;
            let mine = sequence
                .blocks
                .get(block)
                .is_none_or(|&block| pool.is_filled(block) || pool.claim(block, id));
            if !mine {
                break;
            }
            position = (block + 1) * BLOCK_POSITIONS;
        }
        position.min(sequence.computed + count) - sequence.computed
    }

    /// Reserves blocks for the next `count` tokens, for which others may have to give way. Returns false when this sequence gave way
    /// itself.
    pub(super) fn prepare(
        &mut self,
        id: u64,
        count: usize,
        singles: &[Planned],
        chunks: &[Planned],
    ) -> bool {
        if self.sequences[&id].state != State::Running {
            return false;
        }
        let needed = (self.sequences[&id].computed + count).div_ceil(BLOCK_POSITIONS);
        while self.sequences[&id].blocks.len() < needed {
            if let Some(block) = self.pool.take(id) {
                self.sequences
                    .get_mut(&id)
                    .expect("it is running")
                    .blocks
                    .push(block);
                continue;
            }
            if self.evict_idle() {
                continue;
            }
            // The newest gives way, but never one that is in this pass already.
            let planned = |other: &u64| singles.iter().chain(chunks).any(|part| part.id == *other);
            let Some(newest) = self.running.iter().copied().rfind(|other| !planned(other)) else {
                return false;
            };
            self.preempt(newest);
            if newest == id {
                return false;
            }
        }
        true
    }

    /// Takes the blocks of a sequence that does not run: a kept one that was used longest ago, else the last of those that
    /// wait. What is in the blocks may still be found by name.
    pub(super) fn evict_idle(&mut self) -> bool {
        let idle = self
            .sequences
            .iter()
            .filter(|(_, idle)| idle.state != State::Running && !idle.blocks.is_empty());
        let first = idle.min_by_key(|(_, idle)| match idle.state {
            State::Waiting => (true, u64::MAX - idle.arrived),
            _ => (false, idle.used),
        });
        let Some(id) = first.map(|(&id, _)| id) else {
            return false;
        };
        self.drop_blocks(id);
        true
    }

    fn preempt(&mut self, id: u64) {
        self.counts.preemptions += 1;
        let (running, waiting) = (self.running.len(), self.waiting.len());
        tracing::debug!(sequence = id, running, waiting, "preempted");
        self.drop_blocks(id);
        self.running.retain(|&other| other != id);
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.state = State::Waiting;
            self.waiting.insert(sequence.arrived, id);
        }
    }

    fn drop_blocks(&mut self, id: u64) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            self.pool.release(&sequence.blocks, id);
            sequence.blocks.clear();
            sequence.computed = 0;
        }
    }
}
