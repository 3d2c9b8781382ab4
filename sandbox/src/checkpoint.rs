//! The state of an interpreter between turns, in one of the forms that the budget has room for.

use std::io::{self, Read, Write};
use std::sync::Arc;

use memmap2::MmapMut;

use crate::budget::{self, Budget, Share};
use crate::host::Outside;
use crate::pages::PAGE;
use crate::spill::Extent;

/// The fastest of zstd's usual levels: pages of Python's objects shrink to a fifth.
const LEVEL: i32 = 1;

/// The state of an interpreter between turns: what differs from the snapshot all begin with, usually about a megabyte.
#[derive(Clone)]
pub struct Checkpoint {
    pub(crate) outside: Outside,
    /// The seed of a session that has not run anything yet.
    pub(crate) pending: Option<u64>,
    /// Size of the interpreter's memory in bytes.
    pub(crate) size: usize,
    pub(crate) pages: Arc<Pages>,
}

/// Pages of an interpreter's memory.
#[derive(Default)]
pub(crate) struct Pages {
    /// Their numbers, in order.
    numbers: Vec<u32>,
    /// Their bytes, one page after another.
    content: Content,
    /// The part of the budget that they take.
    _share: Option<Share>,
}

enum Content {
    Plain(Vec<u8>),
    /// Compressed. A mapping of its own is the system's again at once when it is dropped, from whatever thread.
    Packed {
        bytes: MmapMut,
        length: usize,
    },
    Spilled(Extent),
}

impl Default for Content {
    fn default() -> Self {
        Self::Plain(Vec::new())
    }
}

impl Checkpoint {
    /// The state before the first turn.
    pub(crate) fn fresh(seed: u64) -> Self {
        Self {
            outside: Outside::new(seed),
            pending: Some(seed),
            size: 0,
            pages: Arc::default(),
        }
    }

    /// Its memory in bytes; what lies in a file is not counted.
    pub fn bytes(&self) -> usize {
        let content = match &self.pages.content {
            Content::Plain(bytes) => bytes.len(),
            Content::Packed { length, .. } => *length,
            Content::Spilled(_) => 0,
        };
        content + size_of_val(&*self.pages.numbers)
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Checkpoint")
            .field("pages", &self.pages.numbers.len())
            .finish_non_exhaustive()
    }
}

/// The pages of `memory` with these numbers.
fn of<'a>(memory: &'a [u8], numbers: &'a [u32]) -> impl Iterator<Item = &'a [u8]> {
    numbers
        .iter()
        .map(|&number| &memory[number as usize * PAGE..][..PAGE])
}

impl Pages {
    /// A plain copy; `share` is its part of the budget.
    pub(crate) fn copied(memory: &[u8], numbers: Vec<u32>, share: Share) -> Self {
        let mut bytes = Vec::with_capacity(numbers.len() * PAGE);
        of(memory, &numbers).for_each(|page| bytes.extend_from_slice(page));
        Self {
            numbers,
            content: Content::Plain(bytes),
            _share: Some(share),
        }
    }

    /// The pages of `memory`, compressed.
    pub(crate) fn parked(
        memory: &[u8],
        numbers: Vec<u32>,
        budget: &'static Budget,
    ) -> io::Result<Self> {
        let pages = of(memory, &numbers);
        let most = zstd::zstd_safe::compress_bound(numbers.len() * PAGE) + PAGE;
        let (content, share) = if let Some(mut share) = budget.keep(most) {
            // Only what is written takes memory.
            let mut bytes = MmapMut::map_anon(most)?;
            let cursor = compress(pages, io::Cursor::new(&mut bytes[..]))?;
            let length = cursor.position() as usize;
            budget::trim(&mut share, length);
            (Content::Packed { bytes, length }, Some(share))
        } else {
            let mut extent = budget.spill.reserve(most as u64)?;
            let length = compress(pages, extent.cursor())?.done;
            extent.shrink(length);
            (Content::Spilled(extent), None)
        };
        Ok(Self {
            numbers,
            content,
            _share: share,
        })
    }

    /// Writes every page to its place.
    pub(crate) fn write_to(&self, memory: &mut [u8]) -> io::Result<()> {
        match &self.content {
            Content::Plain(bytes) => self.read_from(&bytes[..], memory),
            Content::Packed { bytes, length } => {
                self.read_from(zstd::Decoder::with_buffer(&bytes[..*length])?, memory)
            }
            Content::Spilled(extent) => {
                self.read_from(zstd::Decoder::new(extent.cursor())?, memory)
            }
        }
    }

    fn read_from(&self, mut source: impl Read, memory: &mut [u8]) -> io::Result<()> {
        for &number in &self.numbers {
            let from = number as usize * PAGE;
            let page = memory.get_mut(from..from + PAGE);
            let other = || io::Error::other("a checkpoint of another interpreter");
            source.read_exact(page.ok_or_else(other)?)?;
        }
        Ok(())
    }
}

fn compress<'a, W: Write>(pages: impl Iterator<Item = &'a [u8]>, to: W) -> io::Result<W> {
    let mut encoder = zstd::Encoder::new(to, LEVEL)?;
    for page in pages {
        encoder.write_all(page)?;
    }
    encoder.finish()
}
