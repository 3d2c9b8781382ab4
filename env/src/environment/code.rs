//! What is recorded of a turn that ran code.

use forage_sandbox::Status;
use serde::{Deserialize, Serialize};

/// The tool that searches; its calls are an episode's searches.
pub const SEARCH_TOOL: &str = "search_pages";

/// A turn that ran a program, or called tools directly.
///
/// Nothing of it depends on the clock: the same turn replayed gives an equal record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeTurn {
    /// How the program ended; `None` when it was not run, because the turn was the last one and nobody would have read what
    /// it prints.
    pub status: Option<Status>,
    /// The exception's class, `NameError`, when the program raised.
    pub error: Option<String>,
    /// Whether it printed anything but white space. A direct call of a tool always shows what it returns.
    pub printed: bool,
    /// Its calls of tools, in order.
    pub calls: Vec<ToolCall>,
    /// Tools whose names the program gave to something else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redefined: Vec<String>,
    /// Whether a gold stands both in what the policy was shown and in something a tool has returned in this episode: what
    /// the program only wrote itself was not read.
    #[serde(default)]
    pub gold_read: bool,
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The tool, without a profile's prefix: `search_pages`, `view_sections`, `read_section`.
    pub tool: String,
    /// Its first argument: the query, the page's id or the section's.
    pub argument: String,
    /// Ids of what came back: the pages found, the page whose sections were listed, the section read.
    #[serde(default)]
    pub found: Vec<String>,
    /// How much came back: pages, sections, or characters of a section.
    pub size: usize,
    /// The exception it raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl CodeTurn {
    /// Whether the program ran to its end; `None` when it was not run.
    pub fn worked(&self) -> Option<bool> {
        self.status.map(|status| status == Status::Ok)
    }

    /// Whether it ran to its end and had something from a tool, and printed nothing of it.
    pub fn unprinted(&self) -> bool {
        self.worked() == Some(true) && !self.printed && self.calls.iter().any(|call| call.error.is_none())
    }

    /// The queries it searched for.
    pub fn queries(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().filter(|call| call.tool == SEARCH_TOOL).map(|call| call.argument.as_str())
    }
}
