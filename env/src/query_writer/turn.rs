//! The record of a query that its episode is judged by.

use forage_contracts::Episode;
use forage_contracts::environment::{Call, TurnKind};
use forage_contracts::retriever::ParseIssue;
use forage_retriever::QueryShape;
use serde::{Deserialize, Serialize};

use super::action::SUBMIT_QUERY;

/// A query that was written to be judged by what it finds: a `Call` with its payload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueryTurn {
    /// The query as parsed; not empty.
    #[serde(skip)]
    pub query: String,
    /// Ids of what it found, best first.
    #[serde(skip)]
    pub found: Vec<String>,
    /// Repairs without which it could not be run. Empty: its syntax is valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<ParseIssue>,
    /// Ids of the best passages for the question's own keywords: what the query has to beat.
    pub keywords_found: Vec<String>,
    /// Words between reasoning tags.
    pub reasoning_words: usize,
}

impl QueryTurn {
    /// The query of an episode, if the policy wrote one.
    pub(crate) fn of(episode: &Episode) -> Option<Self> {
        let turns = episode.turns.iter().rev();
        let mut calls = turns.flat_map(|turn| turn.kind.calls());
        calls.find_map(Self::read)
    }

    /// The query of a call; `None` of other calls.
    pub(crate) fn read(call: &Call) -> Option<Self> {
        if call.tool != SUBMIT_QUERY {
            return None;
        }
        Some(Self {
            query: call.queries.first()?.clone(),
            found: call.shown.clone(),
            ..Self::deserialize(&call.payload).ok()?
        })
    }

    /// The turn as it is recorded.
    pub(crate) fn record(self) -> TurnKind {
        let payload = serde_json::json!(self);
        TurnKind::call(Call {
            queries: vec![self.query],
            shown: self.found,
            payload,
            ..Call::new(SUBMIT_QUERY)
        })
    }

    /// Tells whether the query could be run as it was written.
    pub(crate) fn is_valid(&self) -> bool {
        self.repairs.is_empty()
    }

    /// The parts of the query.
    pub(crate) fn shape(&self) -> QueryShape {
        QueryShape::of(&self.query)
    }
}

/// Hands over the measures of an episode's query.
pub(super) fn measures(episode: &Episode, set: &mut dyn FnMut(&'static str, f64)) {
    if let Some(turn) = QueryTurn::of(episode) {
        let shape = turn.shape();
        set("query_words", shape.words as f64);
        set("query_complexity", shape.complexity() as f64);
    }
}
