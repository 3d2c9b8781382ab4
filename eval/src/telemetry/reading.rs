//! An episode as the common items look at it.

use forage_contracts::{EnvEntry, Episode, Reading, Tag, Turn};
use forage_env::registry::environments;
use forage_env::reward::is_give_up;
use forage_env::reward::normalize;

use crate::measures::episode_measures;

/// Reads an episode; `None` for infrastructure faults.
pub(super) fn read(episode: &Episode) -> Option<Reading<'_>> {
    let measures = episode_measures(episode);
    if measures.is_empty() {
        return None;
    }
    let shown = episode.turns.iter().map(|turn| normalize(&shown(turn)));
    Some(Reading {
        episode,
        measures,
        shown: shown.collect(),
    })
}

/// What a turn showed the policy of passages or output, as written.
pub(crate) fn shown(turn: &Turn) -> String {
    if turn.kind.calls().is_empty() {
        String::new()
    } else {
        forage_env::reward::shown(turn).unwrap_or_else(|| turn.observation.clone())
    }
}

/// The answer, unless it gives up.
pub(super) fn named<'a>(reading: &Reading<'a>) -> Option<&'a str> {
    reading
        .episode
        .answer()
        .filter(|answer| !is_give_up(answer))
}

/// Whether the policy searched, read or called anything.
pub(super) fn tried(reading: &Reading<'_>) -> bool {
    let episode = reading.episode;
    let mut turns = episode.turns.iter();
    turns.any(|turn| !turn.kind.calls().is_empty() || searches_itself(episode, turn))
}

/// The turn that answered.
pub(super) fn last_turn<'a>(reading: &Reading<'a>) -> &'a str {
    let last = reading.episode.turns.last();
    last.map_or("", |turn| turn.policy.as_str())
}

/// Whether a turn plays the search engine too, as self-search asks for: it goes on after its search. Only where searches show what they
/// found between these tags; of an episode without a name of its environment it is supposed. Elsewhere nobody asks for it.
pub(super) fn searches_itself(episode: &Episode, turn: &Turn) -> bool {
    let id = episode.environment.as_str();
    let shows = |entry: &EnvEntry| {
        let observations = entry.telemetry.observations;
        entry.id == id && observations.contains(&Tag::Information.opening())
    };
    if !id.is_empty() && !environments().any(shows) {
        return false;
    }
    let after = turn.policy.split_once(Tag::Search.closing());
    after.is_some_and(|(_, after)| after.contains(Tag::Information.opening()))
}
