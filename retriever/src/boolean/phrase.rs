//! Phrases, decided by the positions of their terms.

use std::io;
use std::ops::Range;

use super::Part;
use crate::bm25::Located;

/// The order in which the terms of a leaf must stand.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Phrase {
    pub(super) part: Part,
    /// The position in the phrase of each of the leaf's sources.
    pub(super) offsets: Vec<usize>,
    /// Most extra words between the terms.
    pub(super) slop: u32,
}

impl Phrase {
    /// The number of matches within these positions, each by `1 / (1 + extra words)`: Lucene's phrase frequency; zero for none.
    ///
    /// `places` has the positions of each term, ascending. The terms have to come in order, at least as far apart as in the phrase; with
    /// every next term taken as early as it comes, the match that begins at a place is the shortest there.
    pub(super) fn frequency<'a>(
        &self,
        places: impl Fn(usize) -> &'a [u32],
        within: &Range<u32>,
    ) -> f32 {
        let [first, .., last] = self.offsets[..] else {
            return 0.0;
        };
        let length = (last - first) as u32;
        // Later places of the first term never go with earlier ones of the others.
        let mut taken = vec![0; self.offsets.len()];
        let mut frequency = 0.0;
        for &start in places(0) {
            let mut end = start;
            for (number, offsets) in self.offsets.windows(2).enumerate() {
                let least = end + (offsets[1] - offsets[0]) as u32;
                let (later, at) = (places(number + 1), &mut taken[number + 1]);
                *at += later[*at..]
                    .iter()
                    .take_while(|&&place| place < least)
                    .count();
                let Some(&next) = later.get(*at) else {
                    return frequency;
                };
                end = next;
            }
            let extra = end - start - length;
            if within.contains(&start) && within.contains(&end) && extra <= self.slop {
                frequency += 1.0 / (1.0 + extra as f32);
            }
        }
        frequency
    }
}

/// The positions of a term in one document after the other.
pub(super) struct Places {
    postings: Located,
    /// The document whose positions these are.
    doc: Option<u32>,
    positions: Vec<u32>,
}

impl Places {
    pub(super) fn new(postings: Located) -> Self {
        Self {
            postings,
            doc: None,
            positions: Vec::new(),
        }
    }

    /// Moves to a document that holds the term; none may be before an earlier one.
    pub(super) fn read(&mut self, doc: u32) -> io::Result<()> {
        if self.doc != Some(doc) {
            if self.postings.seek(doc) != doc {
                return Err(io::Error::other(format!(
                    "document {doc} has a frequency and no positions"
                )));
            }
            self.postings.positions(&mut self.positions)?;
            self.doc = Some(doc);
        }
        Ok(())
    }

    pub(super) fn get(&self) -> &[u32] {
        &self.positions
    }
}
