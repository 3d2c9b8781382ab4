//! The items of telemetry: numbers of an episode by which conduct is known, each with the mean above which it is a finding.

use std::collections::BTreeMap;

use crate::environment::Call;
use crate::episode::Episode;

/// Longest excerpt, characters.
const EXCERPT: usize = 240;

/// The value of an item in one episode.
#[derive(Clone, Debug, PartialEq)]
pub struct Sign {
    /// The value; finite.
    pub value: f64,
    /// The place in the episode where it shows; `None` where there is nothing to see.
    pub excerpt: Option<String>,
}

impl Sign {
    /// The beginning of a text on one line, as alarms show it.
    pub fn excerpt(text: &str) -> String {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(EXCERPT) {
            Some((end, _)) => format!("{} ...", &line[..end]),
            None => line,
        }
    }

    /// A number, shown by the beginning of `shown`.
    pub fn new(value: f64, shown: Option<&str>) -> Self {
        Self {
            value,
            excerpt: shown.map(Self::excerpt),
        }
    }

    /// A number without an example.
    pub fn number(value: f64) -> Self {
        Self::new(value, None)
    }

    /// 0 where `shown` is `None`, else 1 with the beginning of it.
    pub fn of(shown: Option<&str>) -> Self {
        Self::new(f64::from(u8::from(shown.is_some())), shown)
    }
}

/// A scored episode as items look at it.
#[derive(Clone, Debug)]
pub struct Reading<'a> {
    /// The episode.
    pub episode: &'a Episode,
    /// Its measures by name: the common ones, the parts of its score, and those of its environment.
    pub measures: BTreeMap<String, f64>,
    /// By turn, the text that calls showed the policy, normalised as answers are; empty where nothing was shown.
    pub shown: Vec<String>,
}

impl Reading<'_> {
    /// A measure, where the episode has it.
    pub fn measure(&self, name: &str) -> Option<Sign> {
        let value = self.measures.get(name).copied();
        value.filter(|value| value.is_finite()).map(Sign::number)
    }
}

/// Looks an item up in an episode; `None` where the episode does not have it.
type Look = fn(&Reading<'_>) -> Option<Sign>;

/// A number of every episode that has it. Its mean over questions is in the tables of `forage telemetry`.
///
/// ```
/// # use forage_contracts::{Item, Sign};
/// const WORDS: Item = Item::new("answer_words", "words of the answer", |reading| {
///     let answer = reading.episode.answer()?;
///     Some(Sign::number(answer.split_whitespace().count() as f64))
/// });
/// const LONG: Item = WORDS.watched(40.0, "Answers are essays. Pay for short ones.");
/// assert_eq!(LONG.threshold, Some(40.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Its name in tables, files and alarms.
    pub name: &'static str,
    /// A description of its mean.
    pub about: &'static str,
    /// The mean above which an alarm is raised; above 0 ten episodes must have the item, at 0 a single episode is
    /// enough. `None` for what is neither good nor bad.
    pub threshold: Option<f64>,
    /// The probable cause of a mean above the threshold and the fix; empty without a threshold.
    pub meaning: &'static str,
    /// Its value of one episode; without it the measure of the same name.
    look: Option<Look>,
}

impl Item {
    /// The measure of this name as an item.
    pub const fn measured(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            threshold: None,
            meaning: "",
            look: None,
        }
    }

    /// An item with a look of its own.
    pub const fn new(name: &'static str, about: &'static str, look: Look) -> Self {
        Self {
            look: Some(look),
            ..Self::measured(name, about)
        }
    }

    /// The same item with a threshold. `meaning` names the probable cause of a mean above it, and the fix.
    #[must_use]
    pub const fn watched(self, threshold: f64, meaning: &'static str) -> Self {
        Self {
            threshold: Some(threshold),
            meaning,
            ..self
        }
    }

    /// Its value of an episode.
    pub fn find(&self, reading: &Reading<'_>) -> Option<Sign> {
        match self.look {
            Some(look) => look(reading),
            None => reading.measure(self.name),
        }
    }
}

/// The part of telemetry that an environment owns.
#[derive(Clone, Copy, Debug)]
pub struct EnvTelemetry {
    /// Items that mean something for its episodes alone, in the order of tables; their looks find nothing elsewhere.
    pub items: &'static [Item],
    /// Whether a call that asked for something found anything; `None` for calls that asked for nothing, and for those
    /// whose record says so by itself ([`Call::queries`], [`Call::shown`]).
    pub found: fn(&Call) -> Option<bool>,
    /// Tags between which its policies act; the rest of a turn is thought.
    pub actions: &'static [[&'static str; 2]],
    /// Tags around a policy's reasoning, beside those of [`Tag::Think`](crate::Tag::Think).
    pub reasoning: &'static [[&'static str; 2]],
    /// Opening tags of what the environment shows; a policy that writes one forges an observation.
    pub observations: &'static [&'static str],
    /// Whether its policies can search: elsewhere neither an answer nor a run without a search is a sign.
    pub searches: bool,
}

impl EnvTelemetry {
    /// The items that every environment has, and no more.
    pub const COMMON: Self = Self {
        items: &[],
        found: |_| None,
        actions: &[],
        reasoning: &[],
        observations: &[],
        searches: false,
    };
}
