//! Cheap stable hashes and a keyed permutation: what makes every index of a world readable on its own.

/// `SplitMix64`'s output function.
pub(super) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Hash of `value` under `key` in the stream `stream`.
pub(super) fn hash(key: u64, stream: u64, value: u64) -> u64 {
    mix(mix(key ^ mix(stream)) ^ value)
}

/// Maps a uniform 64-bit hash to `0..n`; 0 when `n` is 0.
pub(super) fn pick(hash: u64, n: u64) -> u64 {
    ((u128::from(hash) * u128::from(n)) >> 64) as u64
}

/// Returns true for an event of probability `share` that happens at this hash.
pub(super) fn happens(hash: u64, share: f32) -> bool {
    ((hash >> 40) as f64) < f64::from(share) * f64::from(1_u32 << 24)
}

/// A keyed permutation of `0..n`: a Feistel network with cycle walking, so no table is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shuffle {
    n: u64,
    key: u64,
    half_bits: u32,
}

impl Shuffle {
    const ROUNDS: u64 = 6;

    /// The permutation of `0..n` under `key`.
    pub(super) fn new(n: u64, key: u64) -> Self {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        Self {
            n,
            key: mix(key),
            half_bits: bits.div_ceil(2).max(1),
        }
    }

    /// The image of `index`. Indices from `n` on wrap around.
    pub(super) fn at(self, index: u64) -> u64 {
        if self.n <= 1 {
            return 0;
        }
        let mut value = index % self.n;
        loop {
            value = self.rounds(value);
            if value < self.n {
                return value;
            }
        }
    }

    fn rounds(self, value: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..Self::ROUNDS {
            let next = left ^ (mix(self.key.wrapping_add(round << 58) ^ right) & mask);
            left = right;
            right = next;
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shuffle_visits_everything_once(n in 1_u64..3000, key: u64) {
            let shuffle = Shuffle::new(n, key);
            let mut seen: Vec<u64> = (0..n).map(|i| shuffle.at(i)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn hashes_are_the_same_on_every_machine() {
        assert_eq!(mix(0), 0xE220_A839_7B1D_CDAF);
        assert!(
            happens(0, 0.1)
                && !happens(u64::MAX, 0.9)
                && happens(u64::MAX, 1.0)
                && !happens(0, 0.0)
        );
    }
}
