//! The world itself: how many entities of each kind every split has, and what each is called.

use forage_contracts::Split;
use strum::VariantArray as _;

use super::error::WorldError;
use super::hash::{Shuffle, happens, hash, mix, pick};
use super::names;
use super::paths::Paths;
use super::schema::Kind;
use super::spec::WorldSpec;

/// Version of the generator: changes whenever equal specs would give other text.
pub(super) const GENERATOR_VERSION: u32 = 1;

/// The splits, in the order of their numbers.
pub(super) const SPLITS: [Split; 3] = [Split::Train, Split::Dev, Split::Test];

/// Independent streams of hashes.
pub(super) mod stream {
    pub(crate) const NAMES: u64 = 1;
    pub(crate) const TWINS: u64 = 2;
    pub(crate) const TWIN_SIDE: u64 = 3;
    pub(crate) const PAGES: u64 = 4;
    pub(crate) const LAYOUT: u64 = 5;
    pub(crate) const SENTENCE: u64 = 6;
    pub(crate) const PRONOUN: u64 = 7;
    pub(crate) const FACT: u64 = 8;
    pub(crate) const QUESTION: u64 = 9;
    pub(crate) const HOPS: u64 = 10;
    pub(crate) const WORDS: u64 = 11;
    pub(crate) const TEXT: u64 = 12;
    pub(crate) const RETOLD: u64 = 13;
}

/// One entity: the `local`-th of its kind in its split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Entity {
    pub(super) split: Split,
    pub(super) kind: Kind,
    pub(super) local: u64,
}

impl Entity {
    /// A number no other entity of the world has.
    pub(super) fn number(self) -> u64 {
        (((self.split as u64) << 3 | self.kind as u64) << 40) | self.local
    }
}

/// A generated encyclopedia. Holds the spec and a few counts; everything else is computed when asked for.
#[derive(Clone, Debug)]
pub struct World {
    spec: WorldSpec,
    pub(super) key: u64,
    /// Entities by split and kind.
    pub(super) counts: [[u64; 5]; 3],
    /// Syllables of a place name: three, or four in very large worlds.
    place_syllables: usize,
    pub(super) paths: Paths,
    pub(super) hops_per_thousand: [u64; 4],
    /// Hops of each question of a block, and which of the block's questions with that many hops it is.
    pub(super) deal: Vec<(u8, u16)>,
}

impl World {
    /// Makes the world of a spec. Takes microseconds at any size.
    ///
    /// # Errors
    /// [`WorldError::Pages`], [`WorldError::Share`] or [`WorldError::HopSum`] when the spec is out of range.
    pub fn new(spec: WorldSpec) -> Result<Self, WorldError> {
        spec.check()?;
        let counts = counts(spec.pages);
        let crowded = SPLITS.iter().any(|&split| {
            counts[split as usize][Kind::Place as usize] > names::families(3, split) / 2
        });
        let key = mix(spec.seed ^ mix(u64::from(GENERATOR_VERSION)));
        let hops_per_thousand = spec.difficulty.hops_per_thousand();
        Ok(Self {
            key,
            counts,
            place_syllables: if crowded { 4 } else { 3 },
            paths: Paths::all(),
            hops_per_thousand,
            deal: deal(hops_per_thousand, hash(key, stream::HOPS, 0)),
            spec,
        })
    }

    /// The spec the world was made from.
    pub fn spec(&self) -> &WorldSpec {
        &self.spec
    }

    /// Number of pages, one per entity.
    pub(super) fn pages_count(&self) -> u64 {
        self.spec.pages
    }

    /// Number of entities of `kind` in `split`.
    #[cfg(test)]
    pub(super) fn entities_count(&self, split: Split, kind: Kind) -> u64 {
        self.counts[split as usize][kind as usize]
    }

    /// BLAKE3 (hexadecimal) of the spec and the generator's version: equal exactly when the text is.
    pub fn fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"forage-world");
        hasher.update(&GENERATOR_VERSION.to_le_bytes());
        hasher.update(&self.spec.pages.to_le_bytes());
        hasher.update(&self.spec.seed.to_le_bytes());
        for count in self.hops_per_thousand {
            hasher.update(&count.to_le_bytes());
        }
        hasher.update(&self.spec.difficulty.paraphrase.to_bits().to_le_bytes());
        hasher.update(&self.spec.difficulty.near_names.to_bits().to_le_bytes());
        if self.spec.difficulty.retold > 0.0 {
            // Worlds that tell every fact once keep the fingerprint they had before there were others.
            hasher.update(&self.spec.difficulty.retold.to_bits().to_le_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The entity whose page has this index; page order is shuffled so that any stretch of it mixes splits and kinds.
    pub(super) fn entity(&self, index: u64) -> Entity {
        let mut rest = Shuffle::new(self.spec.pages, hash(self.key, stream::PAGES, 0)).at(index);
        for split in SPLITS {
            let size: u64 = self.counts[split as usize].iter().sum();
            if rest < size {
                return self.entity_in(split, rest);
            }
            rest -= size;
        }
        self.entity_in(Split::Train, 0)
    }

    /// The `rest`-th entity of a split, kind after kind.
    pub(super) fn entity_in(&self, split: Split, mut rest: u64) -> Entity {
        for &kind in Kind::VARIANTS {
            let size = self.counts[split as usize][kind as usize];
            if rest < size {
                return Entity {
                    split,
                    kind,
                    local: rest,
                };
            }
            rest -= size;
        }
        Entity {
            split,
            kind: Kind::Person,
            local: 0,
        }
    }

    /// The entity's name, unique in the world.
    pub(super) fn name(&self, entity: Entity) -> String {
        let Entity { split, kind, local } = entity;
        let syllables = match kind {
            Kind::Person => 4,
            Kind::Place => self.place_syllables,
            _ => 3,
        };
        let space = hash(self.key, stream::NAMES, (split as u64) << 3 | kind as u64);
        let frames = names::frames(kind);
        let families = names::families(syllables, split);
        let (slot, twin) = self.slot(space, local, self.counts[split as usize][kind as usize]);
        let code = Shuffle::new(families * frames.len() as u64, space).at(slot);
        let (before, after) = frames[(code / families) as usize];
        let word = names::word(syllables, split, code % families, twin);
        if kind == Kind::Person {
            return format!("{} {}", names::spell(&word[..2]), names::spell(&word[2..]));
        }
        format!("{before}{}{after}", names::spell(&word))
    }

    /// Slot of the name permutation and side of the twin family: neighbours share a slot when they are near twins.
    fn slot(&self, space: u64, local: u64, count: u64) -> (u64, bool) {
        let first = local & !1;
        let twins = first + 1 < count
            && happens(
                hash(space, stream::TWINS, first),
                self.spec.difficulty.near_names,
            );
        if twins {
            return (first, local & 1 == 1);
        }
        (local, hash(space, stream::TWIN_SIDE, local) & 1 == 1)
    }

    /// An invented two-syllable word of the split, for regions and rivers.
    pub(super) fn free_word(split: Split, draw: u64) -> String {
        let family = pick(draw, names::families(2, split));
        names::spell(&names::word(2, split, family, draw & 1 == 1))
    }
}

/// Shuffles a block of questions that holds each hop count as often as its share says.
fn deal(hops_per_thousand: [u64; 4], key: u64) -> Vec<(u8, u16)> {
    let sorted: Vec<u8> = (1..)
        .zip(hops_per_thousand)
        .flat_map(|(hops, n)| std::iter::repeat_n(hops, n as usize))
        .collect();
    let order = Shuffle::new(sorted.len() as u64, key);
    let mut dealt = [0_u16; 5];
    let mut block = Vec::with_capacity(sorted.len());
    for place in 0..sorted.len() {
        let hops = sorted[order.at(place as u64) as usize];
        block.push((hops, dealt[usize::from(hops)]));
        dealt[usize::from(hops)] += 1;
    }
    block
}

/// Entities by split and kind: splits 70 / 10 / 20 %, kinds 40 / 20 / 15 / 15 / 10 %; people are even in number because
/// they marry each other.
fn counts(pages: u64) -> [[u64; 5]; 3] {
    let (dev, test) = (pages / 10, pages / 5);
    [pages - dev - test, dev, test].map(|size| {
        let [mut places, works, organisations, events] =
            [20, 15, 15, 10].map(|percent| (size * percent / 100).max(1));
        let mut people = size - places - works - organisations - events;
        if people % 2 == 1 {
            people -= 1;
            places += 1;
        }
        [people, places, works, organisations, events]
    })
}
