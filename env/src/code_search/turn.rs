//! The record of a turn that ran a program or called functions.

use forage_contracts::environment::{Call, TurnKind};
use forage_contracts::{Direction, Episode, Metric};
use forage_sandbox::Status;
use serde::{Deserialize, Serialize};

use super::action::PYTHON_TOOL;
use super::tools::SEARCH_TOOL;

/// A turn that ran a program, or called functions directly: the payload of its `Call`.
///
/// Nothing of it depends on the clock: the same turn replayed gives an equal record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CodeTurn {
    /// The way the program ended; `None` when it was not run, because the turn was the last one and nobody would have read what
    /// it prints.
    pub status: Option<Status>,
    /// The exception's class, `NameError`, when the program raised; of a long name the beginning, length and digest.
    pub error: Option<String>,
    /// Whether it printed anything but white space. A direct call of a function always shows what it returns.
    pub printed: bool,
    /// Its calls of functions, in order.
    pub calls: Vec<FunctionCall>,
    /// Functions whose names the program gave to something else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redefined: Vec<String>,
}

/// One call of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FunctionCall {
    /// The function, without a profile's prefix: `search_pages`, `view_sections`, `read_section`.
    pub tool: String,
    /// Its first argument: the query, the page's id or the section's; of a long one the beginning, length and digest.
    pub argument: String,
    /// Ids of what came back: the pages found, the page whose sections were listed, the section read.
    #[serde(default)]
    pub found: Vec<String>,
    /// The amount that came back: pages, sections, or characters of a section.
    pub size: usize,
    /// The exception it raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl FunctionCall {
    /// Tells whether anything came back.
    pub(super) fn gave(&self) -> bool {
        self.error.is_none() && self.size > 0
    }
}

impl CodeTurn {
    /// Reads a turn; `None` where it neither ran a program nor called functions.
    pub(crate) fn of(kind: &TurnKind) -> Option<Self> {
        match kind.calls() {
            [call] => Self::read(call),
            _ => None,
        }
    }

    /// Reads a call; `None` of other tools.
    pub(super) fn read(call: &Call) -> Option<Self> {
        if call.tool != PYTHON_TOOL {
            return None;
        }
        Self::deserialize(&call.payload).ok()
    }

    /// The turns of an episode that ran code.
    pub(crate) fn all(episode: &Episode) -> impl Iterator<Item = Self> + Clone {
        let turns = episode.turns.iter();
        turns.filter_map(|turn| Self::of(&turn.kind))
    }

    /// The turn as it is recorded. A search that raised, `search_pages(None)` for instance, looked for nothing and is not a query.
    pub(crate) fn record(self, gold_read: bool) -> TurnKind {
        let searched = |call: &&FunctionCall| call.tool == SEARCH_TOOL && call.error.is_none();
        let searches = self.calls.iter().filter(searched);
        TurnKind::call(Call {
            queries: searches.map(|call| call.argument.clone()).collect(),
            gold_read,
            payload: serde_json::json!(self),
            ..Call::new(PYTHON_TOOL)
        })
    }

    /// Tells whether the program ran to its end; `None` when it was not run.
    pub(crate) fn worked(&self) -> Option<bool> {
        self.status.map(|status| status == Status::Ok)
    }

    /// Tells whether it ran to its end and had something from a function, and printed nothing of it.
    pub(crate) fn unprinted(&self) -> bool {
        self.worked() == Some(true) && !self.printed && self.calls.iter().any(FunctionCall::gave)
    }
}

/// The measures of an episode.
pub(super) const DECLARED: &[Metric] = &[
    Metric::new(
        "working_code_rate",
        ["share", "programs"],
        Direction::Higher,
        "Programs that ran to their ends",
    ),
    Metric::new(
        "unprinted_results",
        ["share", "programs"],
        Direction::Lower,
        "Programs that had something from a function and printed nothing",
    ),
];

/// Hands over the measures of an episode whose programs were run.
pub(super) fn measures(episode: &Episode, set: &mut dyn FnMut(&'static str, f64)) {
    let run = CodeTurn::all(episode).filter(|turn| turn.status.is_some());
    let run: Vec<CodeTurn> = run.collect();
    if run.is_empty() {
        return;
    }
    let mut share = |name, holds: fn(&CodeTurn) -> bool| {
        let holding = run.iter().filter(|turn| holds(turn)).count();
        set(name, holding as f64 / run.len() as f64);
    };
    share("working_code_rate", |turn| turn.worked() == Some(true));
    share("unprinted_results", CodeTurn::unprinted);
}
