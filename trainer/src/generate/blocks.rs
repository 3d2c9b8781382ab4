//! The owners of the cache's blocks: reference counts, and equal prefixes found by digest.
//!
//! A block that is full has a name: the digest of all tokens up to its end. Sequences whose tokens begin the same way
//! share named blocks, at the same time or later: a block nobody refers to keeps its content until its memory is needed.
//! (The scheme of vLLM's prefix cache.)

use std::collections::{BTreeMap, HashMap};

use super::tokens::Tokens;
use crate::model::BLOCK_POSITIONS;

/// Names a full block by everything up to its end.
pub(super) type BlockName = [u8; 32];

/// The names of all full blocks of `tokens`, given the names of the first few.
pub(super) fn extend_names(names: &mut Vec<BlockName>, tokens: &Tokens) {
    let full = tokens.len() / BLOCK_POSITIONS;
    for block in names.len()..full {
        let mut hasher = blake3::Hasher::new();
        if let Some(before) = names.last() {
            hasher.update(before);
        }
        let places = block * BLOCK_POSITIONS..(block + 1) * BLOCK_POSITIONS;
        for token in tokens.at(places).iter() {
            hasher.update(&token.to_le_bytes());
        }
        names.push(*hasher.finalize().as_bytes());
    }
}

#[derive(Clone, Debug, Default)]
struct Block {
    holders: u32,
    name: Option<BlockName>,
    /// `true` once its keys and values are complete: those of a named block may be pending.
    filled: bool,
    /// The sequence that fills it.
    writer: Option<u64>,
    /// Place among the free blocks.
    freed: u64,
}

/// The blocks of a cache.
#[derive(Debug)]
pub(super) struct BlockPool {
    blocks: Vec<Block>,
    named: HashMap<BlockName, u32>,
    /// Blocks nobody holds, those freed first first: their content is given up in this order.
    free: BTreeMap<u64, u32>,
    clock: u64,
}

impl BlockPool {
    pub(super) fn new(count: usize) -> Self {
        let free = (0..count)
            .map(|block| (block as u64, block as u32))
            .collect();
        let blocks = (0..count)
            .map(|block| Block {
                freed: block as u64,
                ..Block::default()
            })
            .collect();
        Self {
            blocks,
            named: HashMap::new(),
            free,
            clock: count as u64,
        }
    }

    pub(super) fn total(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks nobody holds.
    pub(super) fn available(&self) -> usize {
        self.free.len()
    }

    /// A block for `writer`, its old content given up; `None` when all are held.
    pub(super) fn take(&mut self, writer: u64) -> Option<u32> {
        let (_, block) = self.free.pop_first()?;
        let entry = &mut self.blocks[block as usize];
        if let Some(name) = entry.name.take() {
            self.named.remove(&name);
        }
        *entry = Block {
            holders: 1,
            writer: Some(writer),
            ..Block::default()
        };
        Some(block)
    }

    /// The block of this name, held once more.
    pub(super) fn share(&mut self, name: &BlockName) -> Option<u32> {
        let block = *self.named.get(name)?;
        let entry = &mut self.blocks[block as usize];
        if entry.holders == 0 {
            self.free.remove(&entry.freed);
        }
        entry.holders += 1;
        Some(block)
    }

    /// Returns whether a block of this name exists and is held by nobody.
    pub(super) fn is_idle(&self, name: &BlockName) -> Option<bool> {
        self.named
            .get(name)
            .map(|&block| self.blocks[block as usize].holders == 0)
    }

    /// Promises the content of `block` to everyone who asks for `name`.
    pub(super) fn promise(&mut self, block: u32, name: BlockName) {
        if self.named.contains_key(&name) || self.blocks[block as usize].name.is_some() {
            return;
        }
        self.blocks[block as usize].name = Some(name);
        self.named.insert(name, block);
    }

    pub(super) fn is_filled(&self, block: u32) -> bool {
        self.blocks[block as usize].filled
    }

    pub(super) fn fill(&mut self, block: u32) {
        let entry = &mut self.blocks[block as usize];
        entry.filled = true;
        entry.writer = None;
    }

    /// Makes `candidate` the writer of an unfilled block unless another one is; whether it is.
    pub(super) fn claim(&mut self, block: u32, candidate: u64) -> bool {
        let entry = &mut self.blocks[block as usize];
        *entry.writer.get_or_insert(candidate) == candidate
    }

    /// Gives back what `holder` held; another holder may then fill what it did not.
    pub(super) fn release(&mut self, blocks: &[u32], holder: u64) {
        // The last block is freed first: a prefix outlives its continuations.
        for &block in blocks.iter().rev() {
            let entry = &mut self.blocks[block as usize];
            if entry.writer == Some(holder) {
                entry.writer = None;
            }
            entry.holders -= 1;
            if entry.holders > 0 {
                continue;
            }
            if !entry.filled
                && let Some(name) = entry.name.take()
            {
                self.named.remove(&name);
            }
            self.clock += 1;
            entry.freed = self.clock;
            self.free.insert(self.clock, block);
        }
    }

    /// Nobody may rely on what is in `blocks`: it is not found by name any more, and who shares it fills it again.
    pub(super) fn distrust(&mut self, blocks: &[u32]) {
        for &block in blocks {
            let entry = &mut self.blocks[block as usize];
            entry.filled = false;
            if let Some(name) = entry.name.take() {
                self.named.remove(&name);
            }
        }
    }

    /// Forgets all contents: the weights changed. Nobody may hold a block.
    pub(super) fn forget(&mut self) {
        debug_assert_eq!(
            self.free.len(),
            self.blocks.len(),
            "blocks are held while weights change"
        );
        self.named.clear();
        for block in &mut self.blocks {
            block.name = None;
            block.filled = false;
        }
    }
}
