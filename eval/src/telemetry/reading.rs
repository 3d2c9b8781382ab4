//! An episode as the items look at it.

use std::collections::BTreeMap;

use forage_env::episode::{Episode, Turn};
use forage_env::monitor::Example;
use forage_env::reward::give_up::is_give_up;
use forage_env::reward::grading::normalize;
use forage_env::reward::retrieval;

use crate::measures::episode_measures;

/// What an item found in an episode.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sign {
    /// The item's value of this episode; finite.
    pub(super) value: f64,
    /// What to show of it; nothing where there is nothing to see.
    pub(super) excerpt: Option<String>,
}

impl Sign {
    /// A number without an example.
    pub(super) fn number(value: f64) -> Self {
        Self {
            value,
            excerpt: None,
        }
    }

    /// 0 where `shown` is `None`, else 1 with an excerpt of it.
    pub(super) fn of(shown: Option<&str>) -> Self {
        Self {
            value: f64::from(u8::from(shown.is_some())),
            excerpt: shown.map(excerpt),
        }
    }
}

/// An episode that was scored, and what several items want of it.
pub(super) struct Reading<'a> {
    pub(super) episode: &'a Episode,
    measures: BTreeMap<String, f64>,
    /// By turn, what searches and programs showed the policy, normalised; empty where nothing was.
    pub(super) shown: Vec<String>,
}

impl<'a> Reading<'a> {
    /// `None` for infrastructure faults.
    pub(super) fn of(episode: &'a Episode) -> Option<Self> {
        let measures = episode_measures(episode);
        if measures.is_empty() {
            return None;
        }
        let shown = episode
            .turns
            .iter()
            .map(|turn| normalize(&read(turn)))
            .collect();
        Some(Self {
            episode,
            measures,
            shown,
        })
    }

    /// A metric of [`episode_measures`].
    pub(super) fn measure(&self, name: &str) -> Option<Sign> {
        self.measures
            .get(name)
            .copied()
            .filter(|value| value.is_finite())
            .map(Sign::number)
    }

    /// The answer, unless it gives up.
    pub(super) fn named(&self) -> Option<&'a str> {
        self.episode.answer().filter(|answer| !is_give_up(answer))
    }

    /// Whether the policy searched, read or called anything.
    pub(super) fn tried(&self) -> bool {
        let mut turns = self.episode.turns.iter();
        turns.any(|turn| !turn.kind.calls().is_empty() || searches_itself(turn))
    }

    /// The turn that answered.
    pub(super) fn last_turn(&self) -> &'a str {
        self.episode
            .turns
            .last()
            .map_or("", |turn| turn.policy.as_str())
    }

    pub(super) fn example(&self, excerpt: String) -> Example {
        let Episode { task, member, .. } = self.episode;
        Example {
            step: None,
            data_source: task.data_source.clone(),
            task: task.id.clone(),
            member: *member,
            question: self::excerpt(&task.question),
            excerpt,
        }
    }
}

/// What a turn showed the policy of passages or output, as written.
fn read(turn: &Turn) -> String {
    if turn.kind.calls().is_empty() {
        String::new()
    } else {
        retrieval::shown(turn).unwrap_or_else(|| turn.observation.clone())
    }
}

/// Whether a turn plays the search engine too, as self-search asks for: it goes on after its search.
pub(super) fn searches_itself(turn: &Turn) -> bool {
    turn.policy
        .split_once("</search>")
        .is_some_and(|(_, after)| after.contains("<information>"))
}

/// Longest excerpt, characters.
const SHOWN: usize = 240;

/// The beginning of a text on one line.
pub(super) fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}
