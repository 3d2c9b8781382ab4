//! Controls derived from another reward: `inverse` inverts it, `noisy` inverts it at random.

use async_trait::async_trait;
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, SettingError, Task, suggestion};
use serde::Deserialize;
use serde_json::Map;

use super::{Built, Make, Making, Reward, RewardEntry, RewardError, UNIT, draw};

/// The registry's entry of the inverse.
pub(crate) const INVERSE: RewardEntry = RewardEntry {
    name: "inverse",
    about: "control: 1 minus another reward (settings: of = \"em\")",
    always: false,
    judges: None,
    range: UNIT,
    schema: Some(|| schemars::schema_for!(InverseSettings).into()),
    make: Make::Configured(|making| {
        let InverseSettings { of } = making.read()?;
        Ok(Box::new(Altered {
            name: "inverse",
            inner: inner(of.as_deref(), making)?,
            flips: None,
        }))
    }),
};

/// The registry's entry of the noise.
pub(crate) const NOISY: RewardEntry = RewardEntry {
    name: "noisy",
    about: "control: another reward, with probability `flip` 1 minus it, seeded (settings: of = \"em\", flip = 0.1)",
    always: false,
    judges: None,
    range: UNIT,
    schema: Some(|| schemars::schema_for!(NoisySettings).into()),
    make: Make::Configured(|making| {
        let NoisySettings { of, flip } = making.read()?;
        if !(0.0..=1.0).contains(&flip) {
            return Err(SettingError::range("flip", flip, "a probability, 0 to 1"));
        }
        let flips = Some((making.seed.child("reward/noisy", &[]), flip));
        Ok(Box::new(Altered {
            name: "noisy",
            inner: inner(of.as_deref(), making)?,
            flips,
        }))
    }),
};

/// What an altered reward is made of by default: the measure of the episodes.
#[derive(Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct InverseSettings {
    /// The reward that is turned round; the measure of the episodes by default.
    of: Option<String>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct NoisySettings {
    /// The reward that is turned round now and then; the measure of the episodes by default.
    of: Option<String>,
    /// Probability that it is turned round.
    flip: f64,
}

impl Default for NoisySettings {
    fn default() -> Self {
        Self {
            of: None,
            flip: 0.1,
        }
    }
}

/// The reward that is altered: any of range 0 to 1 that can do without settings of its own.
fn inner(of: Option<&str>, making: &Making) -> Result<Box<dyn Reward>, SettingError> {
    let of = of.unwrap_or(making.outcome.measure());
    let usable = |entry: &&'static RewardEntry| {
        entry.fits(making.outcome)
            && entry.range == UNIT
            && ![INVERSE.name, NOISY.name].contains(&entry.name)
    };
    let Some(entry) = making
        .registered
        .iter()
        .filter(usable)
        .find(|entry| entry.name == of)
    else {
        let known = making.registered.iter().filter(usable);
        let suggestion = suggestion(of, known.map(|entry| entry.name));
        return Err(SettingError::new(
            "of",
            format!("is `{of}`, which is not a reward of range 0 to 1 here; {suggestion}"),
        ));
    };
    let plain = Making {
        settings: Map::new(),
        ..making.clone()
    };
    match entry.make.build(&plain) {
        Ok(Built::Alone(reward)) => Ok(reward),
        Ok(Built::Group(_)) => Err(SettingError::new(
            "of",
            format!("is `{of}`, which compares the episodes of a group; name one that does not"),
        )),
        Err(fault) => Err(SettingError::new(
            "of",
            format!("is `{of}`, which cannot do without settings: {fault}"),
        )),
    }
}

/// Another reward, turned round always or by a seeded draw per task and member.
struct Altered {
    name: &'static str,
    inner: Box<dyn Reward>,
    /// Start of the stream and probability; `None` turns round always.
    flips: Option<(Seed, f64)>,
}

#[async_trait]
impl Reward for Altered {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let score = self.inner.score(task, episode).await?;
        let turned = self
            .flips
            .is_none_or(|(seed, flip)| draw(seed, task, episode) < flip);
        Ok(if turned { 1.0 - score } else { score })
    }

    fn needs_golds(&self, task: &Task) -> bool {
        self.inner.needs_golds(task)
    }
}
