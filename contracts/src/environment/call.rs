//! The record of a turn: calls, an answer, or a fault.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The record of one tool call; a search is one too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The tool: `search`, `python`, `sql`.
    pub tool: String,
    /// Arguments by name, without the queries.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
    /// Queries that were sent to a retriever, in order: the call's own, or those of the program that it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<String>,
    /// Ids of the documents that the policy was shown, best first; of a call that ended the episode, the ranking that it is
    /// judged by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<String>,
    /// Whether a gold answer stands both in what the policy was shown and in what a tool returned; false where the
    /// environment does not look.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gold_read: bool,
    /// Facts of the environment. Others read three things of it. Where there is any, an observation may hold what the passages do not, so
    /// the reward `retrieval` goes by `gold_read`. Where episodes end in a ranking, `gain` reads `baseline`, the ids of the ranking that
    /// has to be beaten, in the call that ends the episode, and `syntax` reads `repairs`, those made to what the policy wrote, in every
    /// call.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub payload: Value,
}

impl Call {
    /// A call of `tool` without arguments.
    pub fn new(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            ..Self::default()
        }
    }

    /// A search that showed documents of these ids.
    pub fn search(queries: Vec<String>, shown: Vec<String>) -> Self {
        Self {
            queries,
            shown,
            ..Self::new("search")
        }
    }

    /// The same call with an argument.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.arguments.insert(name.to_owned(), value.into());
        self
    }
}

/// The meaning of a turn, as its environment understood it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", from = "Recorded")]
pub enum TurnKind {
    /// Calls of tools, in order.
    Calls {
        /// At least one.
        calls: Vec<Call>,
    },
    /// An answer.
    Answer {
        /// The answer as parsed.
        answer: String,
    },
    /// Text that the protocol does not define.
    Invalid {
        /// The reason.
        fault: String,
    },
}

impl TurnKind {
    /// One call.
    pub fn call(call: Call) -> Self {
        Self::Calls { calls: vec![call] }
    }

    /// A search of one query that showed documents of these ids.
    pub fn search(query: impl Into<String>, shown: Vec<String>) -> Self {
        Self::call(Call::search(vec![query.into()], shown))
    }

    /// An answer.
    pub fn answer(answer: impl Into<String>) -> Self {
        Self::Answer {
            answer: answer.into(),
        }
    }

    /// A turn that is not an action.
    pub fn invalid(fault: impl Into<String>) -> Self {
        Self::Invalid {
            fault: fault.into(),
        }
    }

    /// Whether the environment did not understand the turn.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid { .. })
    }

    /// The calls of the turn; none of an answer or a fault.
    pub fn calls(&self) -> &[Call] {
        match self {
            Self::Calls { calls } => calls,
            Self::Answer { .. } | Self::Invalid { .. } => &[],
        }
    }

    /// The queries of the turn, in order.
    pub fn queries(&self) -> impl Iterator<Item = &str> {
        let queries = self.calls().iter().flat_map(|call| &call.queries);
        queries.map(String::as_str)
    }

    /// Removes from the record what the policy did not see because of a limit.
    pub fn hide(&mut self) {
        if let Self::Calls { calls } = self {
            for call in calls {
                call.shown.clear();
                call.gold_read = false;
            }
        }
    }
}

/// [`TurnKind`] as records of all versions hold it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum Recorded {
    Calls {
        calls: Vec<Call>,
    },
    Answer {
        answer: String,
    },
    Invalid {
        fault: String,
    },
    // The next three are in records made before every turn was a list of calls.
    Search {
        query: String,
        #[serde(default)]
        more: Vec<String>,
        shown: Vec<String>,
    },
    Code(Map<String, Value>),
    Query(Map<String, Value>),
}

impl From<Recorded> for TurnKind {
    fn from(recorded: Recorded) -> Self {
        match recorded {
            Recorded::Calls { calls } => Self::Calls { calls },
            Recorded::Answer { answer } => Self::Answer { answer },
            Recorded::Invalid { fault } => Self::Invalid { fault },
            Recorded::Search { query, more, shown } => {
                let queries = std::iter::once(query).chain(more).collect();
                Self::call(Call::search(queries, shown))
            }
            Recorded::Code(mut facts) => {
                let gold_read = facts.remove("gold_read") == Some(Value::Bool(true));
                let calls = facts.get("calls").and_then(Value::as_array);
                let searches = calls.into_iter().flatten();
                let searches = searches.filter(|call| call["tool"] == "search_pages");
                let queries = searches
                    .filter_map(|call| text(&call["argument"]))
                    .collect();
                Self::call(Call {
                    queries,
                    gold_read,
                    payload: facts.into(),
                    ..Call::new("python")
                })
            }
            Recorded::Query(mut facts) => {
                let queries = facts.remove("query").iter().filter_map(text).collect();
                let found = facts.remove("found").unwrap_or_default();
                let shown = found.as_array().into_iter().flatten();
                Self::call(Call {
                    queries,
                    shown: shown.filter_map(text).collect(),
                    payload: facts.into(),
                    ..Call::new("submit_query")
                })
            }
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(record: Value) -> TurnKind {
        serde_json::from_value(record).expect("a record")
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let sql = Call::new("sql").with("statement", "SELECT 1");
        let search = Call::search(vec!["a".to_owned()], vec!["7".to_owned()]);
        let calls = vec![sql, search];
        for kind in [
            TurnKind::Calls { calls },
            TurnKind::answer("Ada"),
            TurnKind::invalid("no tag"),
        ] {
            let record = serde_json::to_value(&kind).expect("JSON");
            assert_eq!(read(record), kind);
        }
        let record = serde_json::to_value(TurnKind::search("a", Vec::new())).expect("JSON");
        let written = json!({"kind": "calls", "calls": [{"tool": "search", "queries": ["a"]}]});
        assert_eq!(record, written, "what is empty is left out");
    }

    #[test]
    fn records_of_before_turns_were_calls_are_read() {
        let kind = read(json!({"kind": "search", "query": "a", "more": ["b"], "shown": ["7"]}));
        assert_eq!(kind.queries().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(kind.calls()[0].shown, ["7"]);
        let calls = json!([
            {"tool": "search_pages", "argument": "a", "found": ["7"], "size": 1},
            {"tool": "read_section", "argument": "7:0", "size": 80},
        ]);
        let old = json!({
            "kind": "code", "status": "ok", "error": null, "printed": true, "calls": calls, "gold_read": true,
        });
        let kind = read(old);
        assert_eq!(kind.queries().collect::<Vec<_>>(), ["a"]);
        assert!(kind.calls()[0].gold_read && kind.calls()[0].payload["printed"] == true);
        let old = json!({
            "kind": "query", "query": "a AND b", "found": ["3", "1"], "keywords_found": ["1"], "reasoning_words": 2,
        });
        let kind = read(old);
        assert_eq!(kind.calls()[0].shown, ["3", "1"]);
        assert_eq!(kind.calls()[0].payload["reasoning_words"], 2);
    }
}
