//! The state of an interpreter between turns, in one of the forms that the budget has room for.

use std::io::{self, Read, Write};
use std::sync::Arc;

use memmap2::MmapMut;

use crate::budget::{self, Budget, Share};
use crate::host::Outside;
use crate::pages::{self, LINE, Lines, PAGE, page};
use crate::spill::Extent;

/// The fastest of zstd's usual levels.
const LEVEL: i32 = 1;
/// The most that is kept as it is, in bytes. The usual state of a session is smaller, and compressing it takes longer than a turn.
const PLAIN: usize = 512 << 10;

/// The state of an interpreter between turns: what differs from the snapshot all begin with, usually about 100 KiB.
#[derive(Clone)]
pub struct Checkpoint {
    pub(crate) outside: Outside,
    /// The seed of a session that has not run anything yet.
    pub(crate) pending: Option<u64>,
    /// Size of the interpreter's memory in bytes.
    pub(crate) size: usize,
    pub(crate) pages: Arc<Pages>,
}

/// What differs from the snapshot in an interpreter's memory.
#[derive(Default)]
pub(crate) struct Pages {
    pub(crate) places: Arc<Places>,
    /// The bytes of the lines that differ, one after another.
    content: Content,
    /// The part of the budget that they take.
    _share: Option<Share>,
}

/// Where a memory differs from the snapshot.
#[derive(Default)]
pub(crate) struct Places {
    /// Numbers of the pages that differ, in order.
    numbers: Vec<u32>,
    /// The lines of each that differ.
    lines: Vec<Lines>,
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
        let places = &*self.pages.places;
        content + size_of_val(&*places.numbers) + size_of_val(&*places.lines)
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Checkpoint")
            .field("pages", &self.pages.places.numbers.len())
            .finish_non_exhaustive()
    }
}

impl Pages {
    /// The lines in which the pages of `memory` with these numbers differ from the snapshot: as they are if there are few, else
    /// compressed, in a file where the budget has no room for them.
    pub(crate) fn of(
        memory: &[u8],
        snapshot: &[u8],
        written: &[u32],
        budget: &'static Budget,
    ) -> io::Result<Self> {
        let places = Places::of(memory, snapshot, written);
        let parts = places.pages().flat_map(|(number, lines)| {
            pages::parts(lines).map(move |part| &page(memory, number)[part])
        });
        let (content, share) = keep(parts, places.bytes(), budget)?;
        Ok(Self {
            places: Arc::new(places),
            content,
            _share: share,
        })
    }

    /// Writes every line to its place in a memory that is as the snapshot has it.
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
        for (number, lines) in self.places.pages() {
            let from = number as usize * PAGE;
            let page = memory.get_mut(from..from + PAGE);
            let other = || io::Error::other("a checkpoint of another interpreter");
            let page = page.ok_or_else(other)?;
            for part in pages::parts(lines) {
                source.read_exact(&mut page[part])?;
            }
        }
        Ok(())
    }
}

impl Places {
    fn of(memory: &[u8], snapshot: &[u8], written: &[u32]) -> Self {
        let differing = written.iter().filter_map(|&number| {
            let lines = pages::difference(page(snapshot, number), page(memory, number));
            (lines != 0).then_some((number, lines))
        });
        let (numbers, lines) = differing.unzip();
        Self { numbers, lines }
    }

    fn pages(&self) -> impl Iterator<Item = (u32, Lines)> {
        self.numbers.iter().copied().zip(self.lines.iter().copied())
    }

    /// Bytes of the lines.
    fn bytes(&self) -> usize {
        let count = |lines: &Lines| lines.count_ones() as usize;
        self.lines.iter().map(count).sum::<usize>() * LINE
    }

    /// Makes the snapshot again of a memory that differs from it in these places.
    pub(crate) fn take_back(&self, memory: &mut [u8], snapshot: &[u8]) {
        for (number, lines) in self.pages() {
            let from = number as usize * PAGE;
            let (own, other) = (&mut memory[from..from + PAGE], page(snapshot, number));
            for part in pages::parts(lines) {
                own[part.clone()].copy_from_slice(&other[part]);
            }
        }
    }
}

/// Keeps `length` bytes in the cheapest form for which there is room.
fn keep<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    length: usize,
    budget: &'static Budget,
) -> io::Result<(Content, Option<Share>)> {
    if length <= PLAIN
        && let Some(share) = budget.keep(length)
    {
        let mut bytes = Vec::with_capacity(length);
        parts.for_each(|part| bytes.extend_from_slice(part));
        return Ok((Content::Plain(bytes), Some(share)));
    }
    let most = zstd::zstd_safe::compress_bound(length) + PAGE;
    if let Some(mut share) = budget.keep(most) {
        // Only what is written takes memory.
        let mut bytes = MmapMut::map_anon(most)?;
        let cursor = compress(parts, io::Cursor::new(&mut bytes[..]))?;
        let length = cursor.position() as usize;
        budget::trim(&mut share, length);
        return Ok((Content::Packed { bytes, length }, Some(share)));
    }
    let mut extent = budget.spill.reserve(most as u64)?;
    let length = compress(parts, extent.cursor())?.done;
    extent.shrink(length);
    Ok((Content::Spilled(extent), None))
}

fn compress<'a, W: Write>(parts: impl Iterator<Item = &'a [u8]>, to: W) -> io::Result<W> {
    let mut encoder = zstd::Encoder::new(to, LEVEL)?;
    for part in parts {
        encoder.write_all(part)?;
    }
    encoder.finish()
}
