//! The documents of a run of [`WINDOW`] consecutive ones that hold a source, and how often each does.

use std::io;

use tantivy::TERMINATED;
use tantivy::postings::BlockSegmentPostings;

use super::Part;
use super::plan::Place;
use crate::bm25::{Located, Postings};

pub(super) const WINDOW: usize = 4096;
const WORDS: usize = WINDOW / 64;
/// Documents of a full postings block.
const FULL_BLOCK: usize = 128;

/// One bit per document of a window.
pub(super) type Bits = [u64; WORDS];

/// Hands the documents of a set to `visit`, by their place in the window, ascending.
pub(super) fn each(bits: &Bits, mut visit: impl FnMut(usize)) {
    for (number, &word) in bits.iter().enumerate() {
        let mut bits = word;
        while bits != 0 {
            visit(number * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

/// Nothing.
pub(super) const NONE: Bits = [0; WORDS];

/// A source in one segment, moved along window by window.
pub(super) struct Stream<'a> {
    kind: StreamKind<'a>,
    pub(super) bits: Bits,
    /// Valid where the bit is set.
    freqs: Box<[u32]>,
}

enum StreamKind<'a> {
    Cursors(Vec<Cursor>),
    InPart {
        cursors: Vec<Located>,
        part: Part,
        postings: &'a Postings,
        places: Vec<u32>,
    },
    /// Documents, ascending.
    List(&'a [u32]),
    /// A bit per document.
    Set(&'a [u64]),
}

struct Cursor {
    blocks: BlockSegmentPostings,
    at: usize,
}

impl Cursor {
    fn doc(&self) -> u32 {
        self.blocks.doc(self.at)
    }

    fn fill(&mut self, base: u32, end: u32, bits: &mut Bits, freqs: &mut [u32]) {
        if self.doc() < base {
            self.at = self.blocks.seek(base);
        }
        loop {
            let docs = self.blocks.docs();
            let length = docs.len();
            let open = &docs[self.at.min(length)..];
            let count = open.partition_point(|&doc| doc < end);
            for (&doc, &freq) in open[..count]
                .iter()
                .zip(&self.blocks.freqs()[self.at.min(length)..])
            {
                add(doc - base, freq, bits, freqs);
            }
            self.at += count;
            if self.at < length || length < FULL_BLOCK {
                return;
            }
            self.blocks.advance();
            self.at = 0;
        }
    }
}

/// Adds occurrences in a document of the window; none leave it out.
fn add(slot: u32, freq: u32, bits: &mut Bits, freqs: &mut [u32]) {
    let slot = slot as usize;
    let bit = u64::from(freq > 0) << (slot % 64);
    freqs[slot] = if bits[slot / 64] >> (slot % 64) & 1 == 0 {
        freq
    } else {
        freqs[slot].saturating_add(freq)
    };
    bits[slot / 64] |= bit;
}

impl<'a> Stream<'a> {
    pub(super) fn open(place: &'a Place, postings: &'a Postings) -> io::Result<Self> {
        let kind = match place {
            Place::List(docs) => StreamKind::List(docs),
            Place::Set(set) => StreamKind::Set(set.words()),
            Place::InPart(infos, part) => StreamKind::InPart {
                cursors: (infos.iter().map(|info| postings.located(info)))
                    .collect::<io::Result<_>>()?,
                part: *part,
                postings,
                places: Vec::new(),
            },
            Place::Postings(infos) => {
                let mut cursors = Vec::with_capacity(infos.len());
                for info in infos {
                    cursors.push(Cursor {
                        blocks: postings.blocks(info)?,
                        at: 0,
                    });
                }
                StreamKind::Cursors(cursors)
            }
        };
        let counted = matches!(kind, StreamKind::Cursors(_) | StreamKind::InPart { .. });
        Ok(Self {
            kind,
            bits: NONE,
            freqs: vec![0; if counted { WINDOW } else { 0 }].into_boxed_slice(),
        })
    }

    /// Moves to the window that begins at `base`, a multiple of 64 not before the last one.
    pub(super) fn fill(&mut self, base: u32) -> io::Result<()> {
        self.bits = NONE;
        let end = base.saturating_add(WINDOW as u32).min(TERMINATED);
        match &mut self.kind {
            StreamKind::List(docs) => {
                let inside = from(docs, base).iter().take_while(|&&doc| doc < end);
                for slot in inside.map(|doc| (doc - base) as usize) {
                    self.bits[slot / 64] |= 1 << (slot % 64);
                }
            }
            StreamKind::Set(set) => {
                let words = set.iter().skip(base as usize / 64);
                for (slot, word) in self.bits.iter_mut().zip(words) {
                    *slot = *word;
                }
            }
            StreamKind::Cursors(cursors) => {
                for cursor in cursors {
                    cursor.fill(base, end, &mut self.bits, &mut self.freqs);
                }
            }
            StreamKind::InPart {
                cursors,
                part,
                postings,
                places,
            } => {
                for cursor in cursors {
                    let mut doc = cursor.seek(base);
                    while doc < end {
                        cursor.positions(places)?;
                        let freq = part.count(places, postings.text_position(doc));
                        add(doc - base, freq, &mut self.bits, &mut self.freqs);
                        doc = cursor.advance();
                    }
                }
            }
        }
        Ok(())
    }

    /// The first document at or after `base`, which is not before the last window; `TERMINATED` for none.
    pub(super) fn next_from(&self, base: u32) -> u32 {
        match &self.kind {
            // A cursor that is not filled up to `base` may be before it; the next window shows.
            StreamKind::Cursors(cursors) => cursors
                .iter()
                .map(Cursor::doc)
                .min()
                .map_or(TERMINATED, |doc| doc.max(base)),
            StreamKind::InPart { cursors, .. } => cursors
                .iter()
                .map(Located::doc)
                .min()
                .map_or(TERMINATED, |doc| doc.max(base)),
            StreamKind::List(docs) => from(docs, base).first().copied().unwrap_or(TERMINATED),
            StreamKind::Set(set) => {
                let words = set.iter().enumerate().skip(base as usize / 64);
                let found = words
                    .filter(|(_, word)| **word != 0)
                    .map(|(slot, _)| slot as u32 * 64)
                    .next();
                found.map_or(TERMINATED, |doc| doc.max(base))
            }
        }
    }

    pub(super) fn holds(&self, slot: usize) -> bool {
        self.bits[slot / 64] >> (slot % 64) & 1 == 1
    }

    /// Occurrences in a document it holds.
    pub(super) fn freq(&self, slot: usize) -> u32 {
        self.freqs.get(slot).copied().unwrap_or(1)
    }
}

/// The documents of a list that are at or after `base`.
fn from(docs: &[u32], base: u32) -> &[u32] {
    &docs[docs.partition_point(|&doc| doc < base)..]
}
