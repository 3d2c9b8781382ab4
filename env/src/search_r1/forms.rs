//! What the settings of the search environment choose from.

use serde::{Deserialize, Serialize};

/// The form in which the policy asks for a search.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SearchForm {
    /// `<search>query</search>`; a turn ends at its tag.
    #[default]
    Tags,
    /// Hermes calls of the tool `search`, whose schema the chat template shows. A turn ends at the end-of-sequence token,
    /// a turn with a call is not an answer, and what a call returns is a tool's message.
    ToolCalls,
}

/// The form of an answer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SearchAnswer {
    /// The text between `<answer>` and `</answer>`; with `form = "tool_calls"` the last of several in a turn.
    #[default]
    Tag,
    /// A turn without a call, after its thoughts. For `form = "tool_calls"`.
    Message,
    /// The text after the only `Answer:` of a turn without a call. For `form = "tool_calls"`.
    Prefix,
}

/// The source of the passages of a search.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Searcher {
    /// The retriever, between turns.
    #[default]
    Retriever,
    /// The policy itself, from what it knows: it writes search and information into one turn, which ends with its answer
    /// (self-search, SSRL, arXiv 2508.10874). For `form = "tags"`.
    Policy,
}

/// The tags of a turn that count. For `form = "tags"`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Take {
    /// The search or answer that is completed first, from its last opening tag on: a tag only mentioned before is not part
    /// of it. Empty ones are not actions.
    #[default]
    FirstCompleted,
    /// The search or answer that is opened first and completed at all, from that opening tag on, empty or not: the regular
    /// expression of Search-R1.
    FirstOpened,
    /// An answer wherever it stands, else the first search, empty or not.
    AnswerFirst,
}

/// What may follow the last tool turn.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClosingTurn {
    /// Nothing: `max_generations` completions are all there are, and a search in the last of them is not executed.
    #[default]
    None,
    /// One more completion, which nothing announces; a search in it is not executed.
    Silent,
    /// One more completion, announced by a sentence at the end of the last observation.
    Reminder,
    /// One more completion, which the driver begins with `<answer>`.
    ForcedAnswer,
}

/// The argument of the tool `search`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QueryArgument {
    /// `query`, a text.
    #[default]
    Query,
    /// `query_list`, a list of texts, searched for together.
    QueryList,
}

impl QueryArgument {
    /// The argument's name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::QueryList => "query_list",
        }
    }
}

/// The consequence of a call that cannot be run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnBadCall {
    /// The fault, with the nearest right name, in the place of a result.
    #[default]
    Notice,
    /// Nothing where it cannot be read or is one too many, as if it had not been written; else a notice.
    Drop,
    /// A search for the empty query.
    EmptyQuery,
}

/// Settings of search calls. For `form = "tool_calls"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CallSettings {
    /// The argument of the tool.
    pub argument: QueryArgument,
    /// Calls of a turn that are run; 0 sets no limit.
    pub most: usize,
    /// The consequence of a call that cannot be run.
    pub on_bad: OnBadCall,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            argument: QueryArgument::default(),
            most: 4,
            on_bad: OnBadCall::default(),
        }
    }
}
