//! Losses and advantages over plain slices: their entries, inputs and outputs.
//!
//! Log-probabilities are in nats. Slices over tokens hold policy tokens only, in order. Inputs and outputs are `f32`, arithmetic may be
//! `f64`. Losses are minimised.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::registry::Entry;
use crate::setting::SettingError;

/// A number or a flag that a loss or an advantage reads from its table in a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    name: &'static str,
    kind: Kind,
    must: &'static str,
    holds: fn(&Settings, f64) -> bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Optional,
    Flag,
}

impl Setting {
    /// A number that has to be given. `must` says what it must be ("above 0"), `holds` decides.
    pub const fn number(
        name: &'static str,
        must: &'static str,
        holds: fn(&Settings, f64) -> bool,
    ) -> Self {
        Self {
            name,
            kind: Kind::Number,
            must,
            holds,
        }
    }

    /// A number that may be left out.
    pub const fn optional(
        name: &'static str,
        must: &'static str,
        holds: fn(&Settings, f64) -> bool,
    ) -> Self {
        Self {
            kind: Kind::Optional,
            ..Self::number(name, must, holds)
        }
    }

    /// `true` or `false`, to be given.
    pub const fn flag(name: &'static str) -> Self {
        Self {
            kind: Kind::Flag,
            ..Self::number(name, "true or false", |_, _| true)
        }
    }
}

/// The values of an entry's settings.
#[derive(Clone, Copy)]
pub struct Settings {
    declared: &'static [Setting],
    values: [Option<f64>; Settings::MOST],
}

impl Settings {
    /// Most settings of an entry.
    pub const MOST: usize = 4;

    /// The value of a number that has to be given.
    ///
    /// # Panics
    /// When the entry declares no such number.
    pub fn number(&self, name: &str) -> f64 {
        self.optional(name)
            .unwrap_or_else(|| panic!("`{name}` is not a number that has to be given"))
    }

    /// The value of a number that may be left out.
    ///
    /// # Panics
    /// When the entry declares no such number.
    pub fn optional(&self, name: &str) -> Option<f64> {
        let place = self
            .declared
            .iter()
            .position(|setting| setting.name == name);
        self.values[place.unwrap_or_else(|| panic!("`{name}` is not a declared setting"))]
    }

    /// The value of a flag.
    ///
    /// # Panics
    /// When the entry declares no such flag.
    pub fn flag(&self, name: &str) -> bool {
        self.number(name) > 0.0
    }

    /// The values that a table of a configuration gives the declared settings.
    ///
    /// # Errors
    /// When a key is not declared, a value is of another kind, or one that has to be given is missing.
    pub fn read(
        declared: &'static [Setting],
        mut table: BTreeMap<String, Option<SettingValue>>,
    ) -> Result<Self, SettingError> {
        let names: Vec<&str> = declared.iter().map(|setting| setting.name).collect();
        if let Some(other) = table.keys().find(|key| !names.contains(&key.as_str())) {
            let fault = format!("is an unknown setting; there are {}", names.join(", "));
            return Err(SettingError::new(other, fault));
        }
        let mut values = [None; Self::MOST];
        for (setting, value) in declared.iter().zip(&mut values) {
            *value = match (setting.kind, table.remove(setting.name).flatten()) {
                (Kind::Flag, Some(SettingValue::Flag(flag))) => Some(f64::from(u8::from(flag))),
                (Kind::Number | Kind::Optional, Some(SettingValue::Number(number))) => Some(number),
                (Kind::Optional, None) => None,
                _ => {
                    let fault = format!("has to be given: {}", setting.must);
                    return Err(SettingError::new(setting.name, fault));
                }
            };
        }
        Ok(Self { declared, values })
    }

    /// The first declared settings with these values, the others without.
    ///
    /// # Panics
    /// When fewer are declared.
    pub fn of(declared: &'static [Setting], given: &[f64]) -> Self {
        assert!(given.len() <= declared.len(), "more values than settings");
        let mut values = [None; Self::MOST];
        for (value, &given) in values.iter_mut().zip(given) {
            *value = Some(given);
        }
        Self { declared, values }
    }

    /// JSON schema of a table with the declared settings.
    pub fn schema(declared: &[Setting]) -> Value {
        let form = |setting: &Setting| {
            let form = match setting.kind {
                Kind::Flag => "boolean",
                Kind::Number | Kind::Optional => "number",
            };
            json!({"type": form, "description": format!("Must be {}.", setting.must)})
        };
        let properties: Map<String, Value> = declared
            .iter()
            .map(|setting| (setting.name.to_owned(), form(setting)))
            .collect();
        let required: Vec<&str> = declared
            .iter()
            .filter(|setting| setting.kind != Kind::Optional)
            .map(|setting| setting.name)
            .collect();
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// When a value is outside of its range.
    pub fn check(&self) -> Result<(), SettingError> {
        for (setting, value) in self.pairs() {
            if let Some(value) = value
                && !(setting.holds)(self, value)
            {
                let fault = format!("is {value}: it must be {}", setting.must);
                return Err(SettingError::new(setting.name, fault));
            }
        }
        Ok(())
    }

    /// Whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    fn pairs(&self) -> impl Iterator<Item = (&'static Setting, Option<f64>)> {
        self.declared.iter().zip(self.values)
    }
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.values)
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.pairs().filter_map(|(setting, value)| {
            let written = match setting.kind {
                Kind::Flag => SettingValue::Flag(value? > 0.0),
                Kind::Number | Kind::Optional => SettingValue::Number(value?),
            };
            Some((setting.name, written))
        }))
    }
}

/// A value of a setting as it is written.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// `true` or `false`.
    Flag(bool),
    /// A number.
    Number(f64),
}

/// One registered loss.
///
/// ```
/// # use forage_contracts::objective::{LossEntry, TokenTerms};
/// const ENTRY: LossEntry = LossEntry::new("plain", "-A lp", |_, inputs| TokenTerms {
///     values: inputs.advantages.iter().zip(inputs.logprobs).map(|(a, lp)| -a * lp).collect(),
///     gradients: inputs.advantages.iter().map(|a| -a).collect(),
///     bounded: 0,
/// });
/// assert_eq!(ENTRY.name, "plain");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LossEntry {
    /// The name in configurations.
    pub name: &'static str,
    /// The formula and its source.
    pub about: &'static str,
    /// The settings that it reads from its table in a configuration, at most four.
    pub settings: &'static [Setting],
    /// The loss of each token of one sequence and its derivative, under one weight for all tokens.
    pub tokens: fn(&Settings, &TokenInputs) -> TokenTerms,
    /// Returns whether tokens without advantage have a loss.
    pub penalises: fn(&Settings) -> bool,
    /// `true` where a ratio weighs tokens of another policy, which replayed rollouts need.
    pub has_ratio: bool,
    /// `true` where it reads the ends of sentences; otherwise each turn may count as one sentence.
    pub reads_sentences: bool,
}

impl LossEntry {
    /// A loss without settings, with a ratio, and of no effect where there is no advantage.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        tokens: fn(&Settings, &TokenInputs) -> TokenTerms,
    ) -> Self {
        Self {
            name,
            about,
            settings: &[],
            tokens,
            penalises: |_| false,
            has_ratio: true,
            reads_sentences: false,
        }
    }
}

impl Entry for LossEntry {
    const KIND: &'static str = "loss";

    fn label(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }
}

/// The policy tokens of one sequence; every slice `[n]` but the last.
#[derive(Clone, Copy, Debug)]
pub struct TokenInputs<'a> {
    /// Log-probabilities under the weights being trained, nats.
    pub logprobs: &'a [f32],
    /// Old log-probabilities, nats, the denominator of the ratio: recomputed by the trainer under the weights at the start of the step,
    /// else the sampler's.
    pub proximal: &'a [f32],
    /// Log-probabilities that the sampler reported, nats.
    pub sampler: &'a [f32],
    /// Advantages.
    pub advantages: &'a [f32],
    /// Entropies of the policy under the weights being trained, nats. They carry no gradient.
    pub entropies: &'a [f32],
    /// `[sentences]`: tokens of each, in order; their sum is `n`.
    pub sentences: &'a [usize],
}

/// Values and derivatives of `n` tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenTerms {
    /// `[n]`: each token's loss.
    pub values: Vec<f32>,
    /// `[n]`: derivative by the token's own log-probability, per nat.
    pub gradients: Vec<f32>,
    /// Tokens at which the loss is clipped.
    pub bounded: usize,
}

/// One registered advantage.
#[derive(Clone, Copy, Debug)]
pub struct AdvantageEntry {
    /// The name in configurations.
    pub name: &'static str,
    /// The formula and its source.
    pub about: &'static str,
    /// The settings that it reads from its table in a configuration, at most four.
    pub settings: &'static [Setting],
    /// One outcome per group, in order. Groups without a gradient still count in the statistics of the batch, as in the systems named; a
    /// group of one counts where its reward needs no baseline.
    pub of_batch: fn(&Settings, &[Group]) -> Vec<GroupOutcome>,
    /// `true` where it compares members with the mean of their group alone, as credit by turn requires.
    pub by_mean: bool,
    /// `true` where it reads how far the policy has left its reference.
    pub reads_reference: bool,
}

impl AdvantageEntry {
    /// An advantage of rewards alone, without settings, that credit by turn does not build on.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        of_batch: fn(&Settings, &[Group]) -> Vec<GroupOutcome>,
    ) -> Self {
        Self {
            name,
            about,
            settings: &[],
            of_batch,
            by_mean: false,
            reads_reference: false,
        }
    }
}

impl Entry for AdvantageEntry {
    const KIND: &'static str = "advantage";

    fn label(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }
}

/// One group: the episodes of one prompt.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// `[G]`: one finite reward per member.
    pub rewards: &'a [f32],
    /// `[G]`: policy tokens of each member.
    pub tokens: &'a [usize],
    /// `[G]`: sum over a member's policy tokens of the policy's log-probability less the reference's, before the batch is learned
    /// from, nats; 0 unless the advantage reads it.
    pub shifts: &'a [f32],
}

/// The outcome of comparing the rewards of a group; `T` holds the advantages.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupOutcome<T = Vec<f32>> {
    /// One advantage per member; after credit by turn one list per member.
    Learn(T),
    /// Every member has the same reward, so that there is no gradient.
    ZeroVariance,
    /// Fewer than two members finished, and the advantage compares members.
    TooSmall,
    /// The rewards differ, but this advantage is undefined or 0 for each of them: the two best tie (pass@k), the mean is not
    /// positive (`MaxRL`).
    NoDirection,
}

impl GroupOutcome {
    /// The outcome of a group in which nothing can be compared: fewer than two members, or equal rewards.
    pub fn without_lesson(rewards: &[f32]) -> Option<Self> {
        if rewards.len() < 2 {
            return Some(Self::TooSmall);
        }
        rewards
            .iter()
            .all(|reward| reward.to_bits() == rewards[0].to_bits())
            .then_some(Self::ZeroVariance)
    }
}

impl<T> GroupOutcome<T> {
    /// Applies `learn` to the advantages.
    pub fn map<U>(self, learn: impl FnOnce(T) -> U) -> GroupOutcome<U> {
        match self {
            Self::Learn(advantages) => GroupOutcome::Learn(learn(advantages)),
            Self::ZeroVariance => GroupOutcome::ZeroVariance,
            Self::TooSmall => GroupOutcome::TooSmall,
            Self::NoDirection => GroupOutcome::NoDirection,
        }
    }
}
