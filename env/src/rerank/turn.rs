//! The record of a turn about passages, and the metrics, measures and telemetry that read it.

use forage_contracts::environment::{Call, TurnKind};
use forage_contracts::{Direction, EnvTelemetry, Episode, Item, Metric};
use serde::{Deserialize, Serialize};

use super::form::{Fault, Verdict};

/// The tool under which a turn is recorded.
pub(super) const RANK: &str = "rank";

/// A turn about passages: the payload of a `Call` whose documents are those of the window, best first, or of the last turn the
/// whole ranking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankTurn {
    /// What was mended. Empty: the turn was written as it was asked for.
    repairs: Vec<Fault>,
    /// Ids of the candidates as the first stage ranks them; in the last turn only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    baseline: Vec<String>,
}

impl RankTurn {
    /// The turn as it is recorded, with the ids that it ranks and, of the last one, those of the first stage.
    pub(super) fn record(verdict: Verdict, shown: Vec<String>, baseline: Vec<String>) -> TurnKind {
        let payload = serde_json::json!(Self {
            repairs: verdict.faults,
            baseline,
        });
        let call = Call {
            shown,
            payload,
            ..Call::new(RANK)
        };
        TurnKind::call(if verdict.scores.is_empty() {
            call
        } else {
            call.with("scores", verdict.scores)
        })
    }

    fn read(call: &Call) -> Option<Self> {
        let payload = (call.tool == RANK).then_some(&call.payload)?;
        Self::deserialize(payload).ok()
    }

    /// The turns of an episode, each beside its call.
    fn all(episode: &Episode) -> impl Iterator<Item = (&Call, Self)> {
        let calls = episode.calls();
        calls.filter_map(|call| Some((call, Self::read(call)?)))
    }

    fn count(&self, fault: Fault) -> f64 {
        self.repairs.iter().filter(|found| **found == fault).count() as f64
    }
}

/// Whether the ranking of an episode is the order of the first stage; `None` without a ranking of two.
fn is_kept(episode: &Episode) -> Option<bool> {
    let ranking = episode.ranking()?;
    let (_, last) = RankTurn::all(episode).last()?;
    (ranking.len() > 1).then(|| ranking == last.baseline)
}

const fn mean(
    name: &'static str,
    of: [&'static str; 2],
    better: Direction,
    about: &'static str,
) -> Metric {
    Metric::new(name, of, better, about)
}

/// The metrics of a step's turns and rankings, then the measures of an episode.
pub(super) const DECLARED: &[Metric] = &[
    mean(
        "rank/sound_frac",
        ["share", "turns"],
        Direction::Higher,
        "Turns about passages that needed no repair",
    ),
    mean(
        "rank/unanswered_frac",
        ["share", "turns"],
        Direction::Lower,
        "Turns about passages without an answer",
    ),
    mean(
        "rank/missing_mean",
        ["passages", "turns"],
        Direction::Lower,
        "Passages that a turn leaves out",
    ),
    mean(
        "rank/extra_mean",
        ["passages", "turns"],
        Direction::Lower,
        "Passages that a turn names again, and second picks",
    ),
    mean(
        "rank/unknown_mean",
        ["names", "turns"],
        Direction::Lower,
        "Names in a turn that no passage has",
    ),
    mean(
        "rank/out_of_range_mean",
        ["scores", "turns"],
        Direction::Lower,
        "Scores of a turn below 0 or above 10",
    ),
    mean(
        "rank/kept_frac",
        ["share", "rankings"],
        Direction::Neither,
        "Rankings in the order of the first stage",
    ),
    mean(
        "rank_repairs",
        ["repairs", "episodes"],
        Direction::Lower,
        "Repairs of what was written about passages",
    ),
    mean(
        "rank_kept",
        ["share", "rankings"],
        Direction::Neither,
        "Rankings in the order of the first stage",
    ),
];

/// Hands over the metrics of a step's turns; nothing where no passages are ranked.
pub(super) fn describe(episodes: &[&Episode], set: &mut dyn FnMut(&str, f64)) {
    let turns = episodes.iter().copied().flat_map(RankTurn::all);
    let turns: Vec<RankTurn> = turns.map(|(_, turn)| turn).collect();
    if turns.is_empty() {
        return;
    }
    let mut mean = |name: &str, of: &dyn Fn(&RankTurn) -> f64| {
        let sum: f64 = turns.iter().map(of).sum();
        set(name, sum / turns.len() as f64);
    };
    mean("rank/sound_frac", &|turn| {
        f64::from(u8::from(turn.repairs.is_empty()))
    });
    mean("rank/unanswered_frac", &|turn| turn.count(Fault::NoAnswer));
    mean("rank/missing_mean", &|turn| turn.count(Fault::Missing));
    mean("rank/extra_mean", &|turn| turn.count(Fault::Extra));
    mean("rank/unknown_mean", &|turn| turn.count(Fault::Unknown));
    mean("rank/out_of_range_mean", &|turn| turn.count(Fault::Range));
    let kept: Vec<bool> = episodes.iter().copied().filter_map(is_kept).collect();
    if !kept.is_empty() {
        let count = kept.iter().filter(|kept| **kept).count();
        set("rank/kept_frac", count as f64 / kept.len() as f64);
    }
}

/// Hands over the measures of an episode; nothing where no passages are ranked.
pub(super) fn measures(episode: &Episode, set: &mut dyn FnMut(&'static str, f64)) {
    let repairs: Vec<usize> = RankTurn::all(episode)
        .map(|(_, turn)| turn.repairs.len())
        .collect();
    if !repairs.is_empty() {
        set("rank_repairs", repairs.into_iter().sum::<usize>() as f64);
    }
    if let Some(kept) = is_kept(episode) {
        set("rank_kept", f64::from(u8::from(kept)));
    }
}

pub(super) const TELEMETRY: EnvTelemetry = EnvTelemetry {
    items: &[
        Item::measured(
            "rank_repairs",
            "repairs of what a ranking's turns said of their passages",
        ),
        Item::measured(
            "rank_kept",
            "share of the rankings in the order of the first stage",
        ),
    ],
    ..EnvTelemetry::COMMON
};
