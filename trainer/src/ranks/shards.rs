//! Shards: tensors cut into a share for each rank, which updates its own alone and keeps nobody else's moments (`ZeRO` stage 1,
//! Rajbhandari et al. 2020).
//!
//! Every tensor is cut into neighbouring parts of one size, so that ranks have as much as each other whatever the sizes of tensors.
//! Updated weights go around: a rank sends its share to the next one in pieces, and passes on what comes from the one before until
//! all have it. Moments go to rank 0, a tensor at a time as it asks for them, while it writes a checkpoint.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use super::exchange::{floats, to_bytes};
use super::sum::PIECE;
use super::{RankError, Ranks, share};

/// The place of a rank among those that tensors are cut for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    rank: usize,
    size: usize,
}

/// A tensor of `count` numbers that is cut at multiples of `unit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) count: usize,
    pub(crate) unit: usize,
}

impl Shard {
    /// The shard of a process that keeps everything.
    pub(crate) const WHOLE: Self = Self { rank: 0, size: 1 };

    pub(crate) fn is_whole(self) -> bool {
        self.size == 1
    }

    /// Ranks that tensors are cut for.
    pub(crate) fn size(self) -> usize {
        self.size
    }

    /// The numbers of a tensor that are this rank's.
    pub(crate) fn own(self, cut: Cut) -> Range<usize> {
        self.of(self.rank, cut)
    }

    /// The numbers of a tensor that are those of `rank`: as many units as any other rank's, or one more.
    pub(crate) fn of(self, rank: usize, Cut { count, unit }: Cut) -> Range<usize> {
        let units = share(count.div_ceil(unit), self.size, rank);
        (units.start * unit).min(count)..(units.end * unit).min(count)
    }
}

impl Ranks {
    /// The shard of this rank.
    pub(crate) fn shard(&self) -> Shard {
        Shard {
            rank: self.rank(),
            size: self.size(),
        }
    }

    /// Begins to bring what each rank has of some tensors to all: `own` by this one, as many numbers as `counts` says of each rank.
    /// All ranks call this at the same place, and take the numbers in the same order.
    pub(crate) fn all_gather(&self, own: Vec<f32>, counts: Vec<usize>) -> Coming<'_> {
        Coming {
            ranks: self,
            exchange: self.next_exchange(),
            own: own.into(),
            come: counts.iter().map(|_| VecDeque::new()).collect(),
            left: counts,
        }
    }

    /// Begins what rank 0 asks of the others, each of which [`Ranks::answer`]s at the same place.
    pub(crate) fn ask(&self) -> Questions<'_> {
        Questions {
            ranks: self,
            exchange: self.next_exchange(),
        }
    }

    /// Answers the questions of rank 0 until it says that there are no more; `answer` returns `None` for a question that it does not know.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost, or rank 0 asks for what there is not.
    pub(crate) fn answer<'a>(
        &self,
        answer: impl Fn(&str) -> Option<Cow<'a, [u8]>>,
    ) -> Result<(), RankError> {
        let (exchange, first) = (self.next_exchange(), self.link(0)?);
        loop {
            let question = first.receive(exchange)?;
            if question.is_empty() {
                return Ok(());
            }
            let answer = std::str::from_utf8(&question).ok().and_then(&answer);
            let answer = answer.ok_or_else(|| self.wrong(0, "asks for what no rank holds"))?;
            first.send(exchange, &(answer.len() as u64).to_le_bytes())?;
            for piece in answer.chunks(PIECE * size_of::<f32>()) {
                first.send(exchange, piece)?;
            }
        }
    }
}

/// Shares of all ranks on their way to this one.
pub(crate) struct Coming<'a> {
    ranks: &'a Ranks,
    exchange: u32,
    /// Numbers of this rank's share that are not sent yet.
    own: VecDeque<f32>,
    /// Numbers of each rank's share that have not come.
    left: Vec<usize>,
    /// Numbers of each rank that have come and are not taken yet: a piece or less.
    come: Vec<VecDeque<f32>>,
}

impl Coming<'_> {
    /// Takes the next numbers of a rank's share.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost, or has fewer numbers than it should.
    pub(crate) fn take(&mut self, rank: usize, into: &mut [f32]) -> Result<(), RankError> {
        let mut filled = 0;
        while filled < into.len() {
            if self.come[rank].is_empty() {
                if self.left[rank] == 0 {
                    return Err(self.ranks.wrong(rank, "has too few weights"));
                }
                self.round()?;
            }
            let count = self.come[rank].len().min(into.len() - filled);
            let numbers = self.come[rank].drain(..count);
            let places = into[filled..].iter_mut().zip(numbers);
            places.for_each(|(place, number)| *place = number);
            filled += count;
        }
        Ok(())
    }

    /// Exchanges a piece of each rank's share, once around the ring. A rank is at most as many pieces ahead of the next one as there are
    /// other ranks, which bounds what waits at a slow one.
    fn round(&mut self) -> Result<(), RankError> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let next = self.ranks.link((rank + 1) % size)?;
        let before = (rank + size - 1) % size;
        let previous = self.ranks.link(before)?;
        let counts: Vec<usize> = self.left.iter().map(|&left| left.min(PIECE)).collect();
        for (left, count) in self.left.iter_mut().zip(&counts) {
            *left -= count;
        }
        let own: Vec<f32> = self.own.drain(..counts[rank]).collect();
        let mut piece = to_bytes(&own);
        self.come[rank].extend(own);
        for behind in 1..size {
            next.send(self.exchange, &piece)?;
            piece = previous.receive(self.exchange)?;
            let from = (rank + size - behind) % size;
            if piece.len() != counts[from] * size_of::<f32>() {
                return Err(self
                    .ranks
                    .wrong(before, "sends another piece of the weights"));
            }
            self.come[from].extend(floats(&piece));
        }
        Ok(())
    }
}

/// Questions of rank 0 to the others, asked one at a time, so that it holds one answer at most.
pub(crate) struct Questions<'a> {
    ranks: &'a Ranks,
    exchange: u32,
}

impl Questions<'_> {
    /// The answer of a rank, which must have so many bytes; `question` is some text.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost, or has another answer.
    pub(crate) fn ask(
        &self,
        rank: usize,
        question: &str,
        bytes: usize,
    ) -> Result<Vec<u8>, RankError> {
        let other = || self.ranks.wrong(rank, "holds moments of another size");
        let link = self.ranks.link(rank)?;
        link.send(self.exchange, question.as_bytes())?;
        if link.receive(self.exchange)? != (bytes as u64).to_le_bytes() {
            return Err(other());
        }
        let mut answer = Vec::with_capacity(bytes);
        while answer.len() < bytes {
            let piece = link.receive(self.exchange)?;
            if piece.is_empty() || piece.len() > bytes - answer.len() {
                return Err(other());
            }
            answer.extend(piece);
        }
        Ok(answer)
    }

    /// Tells the others that there is no more question.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    pub(crate) fn end(self) -> Result<(), RankError> {
        let mut others = 1..self.ranks.size();
        others.try_for_each(|rank| self.ranks.link(rank)?.send(self.exchange, &[]))
    }
}
