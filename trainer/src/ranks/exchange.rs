//! What ranks tell each other in a step: episodes, log-probabilities, how it ended.

use forage_contracts::Episode;

use super::{RankError, Ranks};

/// How a rank sees the end of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vote {
    /// The rank was asked to stop.
    pub stop: bool,
    /// A grave alarm was raised.
    pub pause: bool,
    /// Digest of its weights.
    pub weights: u64,
    /// The gradient's norm, as bits.
    pub norm: u64,
}

impl Ranks {
    /// All episodes of groups that were dealt to ranks, in their order, of which this rank has played `own`. `all` are group and
    /// member of each. What one process would not write down and read again, ranks read again: all hold the same numbers.
    pub(crate) fn episodes(
        &self,
        own: Vec<Episode>,
        all: &[(u64, u64)],
    ) -> Result<Vec<Episode>, RankError> {
        if self.size() == 1 {
            return Ok(own);
        }
        let written = serde_json::to_vec(&own);
        let written = written.map_err(|_| self.wrong(self.rank(), "cannot write its episodes"))?;
        let mut episodes = Vec::with_capacity(all.len());
        for (rank, text) in self.gather(written)?.into_iter().enumerate() {
            let read: Vec<Episode> = serde_json::from_slice(&text)
                .map_err(|_| self.wrong(rank, "sends episodes that cannot be read"))?;
            let found = read.iter().map(|episode| (episode.group, episode.member));
            let dealt = all
                .iter()
                .copied()
                .filter(|(group, _)| self.plays(rank, *group));
            if !found.eq(dealt) {
                return Err(self.wrong(rank, "sends other episodes than were dealt to it"));
            }
            episodes.extend(read);
        }
        episodes.sort_by_key(|episode| (episode.group, episode.member));
        Ok(episodes)
    }

    /// Tells whether a group falls to a rank.
    pub(crate) fn plays(&self, rank: usize, group: u64) -> bool {
        group % self.size() as u64 == rank as u64
    }

    /// `N` numbers of each target of all micro-batches in order, of which this rank has computed its [`Ranks::own`] ones. `targets`
    /// are the numbers of targets of each.
    pub(crate) fn numbers<const N: usize>(
        &self,
        own: Vec<[Vec<f32>; N]>,
        targets: &[usize],
    ) -> Result<Vec<[Vec<f32>; N]>, RankError> {
        if self.size() == 1 {
            return Ok(own);
        }
        let numbers = own.iter().flatten().flatten();
        let mut all = Vec::with_capacity(targets.len());
        for (rank, bytes) in self.gather(to_bytes(numbers))?.into_iter().enumerate() {
            let targets = &targets[super::share(targets.len(), self.size(), rank)];
            let mut numbers = floats(&bytes);
            if bytes.len() != targets.iter().sum::<usize>() * N * size_of::<f32>() {
                return Err(self.wrong(rank, "sends numbers of another step"));
            }
            let mut of = |count| numbers.by_ref().take(count).collect();
            all.extend(targets.iter().map(|&count| [(); N].map(|()| of(count))));
        }
        Ok(all)
    }

    /// What all make of the end of a step: one that is asked to stop stops all. Their weights and gradients must be equal.
    pub(crate) fn agree(&self, own: Vote) -> Result<Vote, RankError> {
        let mut bytes = vec![u8::from(own.stop), u8::from(own.pause)];
        bytes.extend(own.weights.to_le_bytes());
        bytes.extend(own.norm.to_le_bytes());
        let votes = self.gather(bytes)?;
        let mut agreed = own;
        for (rank, vote) in votes.iter().enumerate() {
            let [stop, pause, numbers @ ..] = vote.as_slice() else {
                return Err(self.wrong(rank, "sends no end of a step"));
            };
            if numbers != &votes[0][2..] {
                return Err(self.wrong(
                    rank,
                    "holds other weights than rank 0: its machine computes other numbers, or begins with another policy",
                ));
            }
            agreed.stop |= *stop != 0;
            agreed.pause |= *pause != 0;
        }
        Ok(agreed)
    }
}

/// The numbers as bytes.
pub(super) fn to_bytes<'a>(numbers: impl IntoIterator<Item = &'a f32>) -> Vec<u8> {
    let numbers = numbers.into_iter();
    let mut bytes = Vec::with_capacity(numbers.size_hint().0 * size_of::<f32>());
    numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}

/// The numbers in bytes.
pub(crate) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
