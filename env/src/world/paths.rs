//! Chains of relations a question can follow.

use strum::VariantArray as _;

use super::schema::{Kind, Relation};

/// A chain of one to four relations; each but the last leads to an entity.
pub(super) type Path = Vec<Relation>;

/// All chains by start kind and number of hops.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    by_kind: [[Vec<Path>; 4]; 5],
}

impl Paths {
    /// Lists every chain. A spouse's spouse is left out: it leads back.
    pub(super) fn all() -> Self {
        let mut paths = Self {
            by_kind: Default::default(),
        };
        for hops in 1..=4 {
            for &kind in Kind::VARIANTS {
                let found = paths.extend(kind, hops);
                paths.by_kind[kind as usize][hops - 1] = found;
            }
        }
        paths
    }

    /// Chains of `hops` relations (1 to 4) that start at `kind`.
    pub(super) fn of(&self, kind: Kind, hops: usize) -> &[Path] {
        &self.by_kind[kind as usize][hops - 1]
    }

    fn extend(&self, kind: Kind, hops: usize) -> Vec<Path> {
        if hops == 1 {
            return kind.relations().map(|relation| vec![relation]).collect();
        }
        let mut found = Vec::new();
        for first in kind.relations() {
            let Some(target) = first.target() else {
                continue;
            };
            for rest in self.of(target, hops - 1) {
                if first == Relation::Spouse && rest[0] == Relation::Spouse {
                    continue;
                }
                let mut path = vec![first];
                path.extend_from_slice(rest);
                found.push(path);
            }
        }
        found
    }
}
