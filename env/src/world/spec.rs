//! The user's choices for a world: its size, seed and difficulty.

use serde::{Deserialize, Serialize};

use super::error::WorldError;

/// Everything that determines a world. Equal specs give equal worlds on every machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldSpec {
    /// Number of pages, one per entity: 100 to 5,000,000.
    pub pages: u64,
    /// Seed of names, facts, wording and questions.
    pub seed: u64,
    /// The difficulty of the questions.
    #[serde(default)]
    pub difficulty: Difficulty,
}

/// The difficulty of the questions of a world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Difficulty {
    /// Shares of questions with 1, 2, 3 and 4 hops; they add up to 1 and are kept to a thousandth.
    pub hops: [f32; 4],
    /// Share of questions worded without the keyword that finds the evidence, in `[0, 1]`.
    pub paraphrase: f32,
    /// Share of entities that are given a twin whose name differs in one syllable, in `[0, 1]`. Names that lie near by
    /// chance come on top: under 5 % of people, more among the shorter names of places in large worlds.
    pub near_names: f32,
    /// Share of entities whose facts are told again in other words, in `[0, 1]`: each fact that names another entity in a passage of its
    /// own, without its keyword. Questions that meet such a fact have several relevant passages.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(extend("default" = 0.0))]
    pub retold: f32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(share: &f32) -> bool {
    share.to_bits() == 0
}

impl Default for Difficulty {
    fn default() -> Self {
        Self {
            hops: [0.4, 0.3, 0.2, 0.1],
            paraphrase: 0.5,
            near_names: 0.2,
            retold: 0.0,
        }
    }
}

impl Difficulty {
    /// Questions per thousand with 1, 2, 3 and 4 hops, by largest remainder.
    pub(super) fn hops_per_thousand(&self) -> [u64; 4] {
        let exact = self.hops.map(|share| f64::from(share) * 1000.0);
        let mut counts = exact.map(|value| value as u64);
        let mut order = [0, 1, 2, 3];
        order.sort_by(|&a, &b| {
            let rest = |i: usize| exact[i] - exact[i].floor();
            rest(b).total_cmp(&rest(a)).then(a.cmp(&b))
        });
        let total: u64 = counts.iter().sum();
        for &hop in order.iter().take(1000_u64.saturating_sub(total) as usize) {
            counts[hop] += 1;
        }
        counts
    }

    fn check(&self) -> Result<(), WorldError> {
        for value in self.hops {
            check_share("hops", value)?;
        }
        check_share("paraphrase", self.paraphrase)?;
        check_share("near_names", self.near_names)?;
        check_share("retold", self.retold)?;
        let sum: f32 = self.hops.iter().sum();
        if (sum - 1.0).abs() > 1e-3 {
            return Err(WorldError::HopSum { sum });
        }
        Ok(())
    }
}

impl WorldSpec {
    /// Fewest pages of a world.
    pub(crate) const MIN_PAGES: u64 = 100;
    /// Most pages of a world.
    pub const MAX_PAGES: u64 = 5_000_000;

    /// A world of `pages` pages with the default difficulty.
    pub fn new(pages: u64, seed: u64) -> Self {
        Self {
            pages,
            seed,
            difficulty: Difficulty::default(),
        }
    }

    /// Checks sizes and shares.
    ///
    /// # Errors
    /// [`WorldError::Pages`], [`WorldError::Share`] or [`WorldError::HopSum`], naming the setting.
    pub fn check(&self) -> Result<(), WorldError> {
        if !(Self::MIN_PAGES..=Self::MAX_PAGES).contains(&self.pages) {
            return Err(WorldError::Pages { pages: self.pages });
        }
        self.difficulty.check()
    }
}

fn check_share(field: &'static str, value: f32) -> Result<(), WorldError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(WorldError::Share { field, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_out_of_range_name_the_setting() {
        let message = |spec: WorldSpec| spec.check().map_err(|e| e.to_string());
        assert!(message(WorldSpec::new(100, 1)).is_ok());
        assert_eq!(
            message(WorldSpec::new(99, 1)),
            Err("world has pages = 99; write a number from 100 to 5000000".to_owned())
        );
        let mut spec = WorldSpec::new(100, 1);
        spec.difficulty.hops = [0.5, 0.0, 0.0, 0.0];
        assert!(matches!(spec.check(), Err(WorldError::HopSum { .. })));
        spec.difficulty = Difficulty {
            paraphrase: f32::NAN,
            ..Difficulty::default()
        };
        assert!(matches!(
            spec.check(),
            Err(WorldError::Share {
                field: "paraphrase",
                ..
            })
        ));
    }

    #[test]
    fn unknown_keys_are_errors_and_difficulty_has_a_default() {
        let spec: WorldSpec = serde_json::from_str(r#"{"pages":200,"seed":3}"#).expect("valid");
        assert_eq!(spec, WorldSpec::new(200, 3));
        assert!(serde_json::from_str::<WorldSpec>(r#"{"pages":200,"seed":3,"page":1}"#).is_err());
        assert!(serde_json::from_str::<Difficulty>(r#"{"hop":[1,0,0,0]}"#).is_err());
    }

    #[test]
    fn hop_shares_fill_a_thousand() {
        assert_eq!(
            Difficulty {
                hops: [0.7, 0.3, 0.0, 0.0],
                ..Difficulty::default()
            }
            .hops_per_thousand(),
            [700, 300, 0, 0]
        );
        let thirds = Difficulty {
            hops: [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0],
            ..Difficulty::default()
        };
        assert_eq!(thirds.hops_per_thousand().iter().sum::<u64>(), 1000);
        assert_eq!(
            Difficulty::default()
                .hops_per_thousand()
                .iter()
                .sum::<u64>(),
            1000
        );
    }
}
