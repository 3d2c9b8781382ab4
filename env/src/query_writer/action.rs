//! What a turn asks for.

use serde::{Deserialize, Serialize};

use crate::chat::hermes::{self, Piece};
use crate::chat::tools::{self, CallFault, Tool, after_thoughts};
use crate::protocol::{Block, QUERY_CLOSE, QUERY_OPEN, REASONING, first_opened, last_closed};

/// The form in which the policy gives its query.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QueryForm {
    /// Between `<query>` and `</query>`.
    #[default]
    Tags,
    /// As the argument of a Hermes call of `submit_query`, whose schema the chat template shows.
    ToolCalls,
}

/// The tool that takes a query.
pub(crate) const SUBMIT_QUERY: &str = "submit_query";

/// The query of a turn that counts. For `form = "tags"`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Take {
    /// The last one completed, from its last opening tag on: a tag only mentioned before is not part of it.
    #[default]
    Last,
    /// From the first opening tag to the next closing one, as SearchLM reads it.
    First,
}

/// Why a turn holds no query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryFault {
    /// No query tag.
    #[error("no query")]
    NoQuery,
    /// A query was opened and not closed.
    #[error("the query tag is not closed")]
    Unclosed,
    /// A query for nothing.
    #[error("the query is empty")]
    Empty,
    /// The call of the tool cannot be used.
    #[error("{0}")]
    Call(#[from] CallFault),
}

/// A query as the policy wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenQuery {
    /// Trimmed, not empty.
    pub query: String,
    /// Words of the first reasoning block; 0 without one.
    pub reasoning_words: usize,
}

/// Reads the query of a turn.
///
/// # Errors
/// `QueryFault` when there is none.
pub(crate) fn parse(text: &str, take: Take) -> Result<WrittenQuery, QueryFault> {
    let block = match take {
        Take::Last => last_closed(text, QUERY_OPEN, QUERY_CLOSE),
        Take::First => first_opened(text, QUERY_OPEN, QUERY_CLOSE).map(|block| block.content),
    };
    match block.map(str::trim) {
        Some("") => Err(QueryFault::Empty),
        None if text.contains(QUERY_OPEN) => Err(QueryFault::Unclosed),
        None => Err(QueryFault::NoQuery),
        Some(query) => {
            let reasoning = first_opened(text, REASONING[0], REASONING[1]);
            let words = |block: Block<'_>| block.content.split_whitespace().count();
            Ok(WrittenQuery {
                query: query.to_owned(),
                reasoning_words: reasoning.map_or(0, words),
            })
        }
    }
}

/// The tool as the chat template shows it.
pub(super) fn tool() -> Tool {
    let about =
        "Runs a query in boolean syntax; what it finds is judged, and no other query can follow.";
    Tool::of_one(SUBMIT_QUERY, about, ("query", "The query."))
}

/// Reads the query of a turn's last call; what stands around the calls is its reasoning.
///
/// # Errors
/// `QueryFault` when there is none.
pub(crate) fn parse_call(text: &str) -> Result<WrittenQuery, QueryFault> {
    let mut last = Err(QueryFault::NoQuery);
    for piece in hermes::pieces(after_thoughts(text)) {
        last = match piece {
            Piece::Text(_) => continue,
            Piece::Malformed(malformed) => Err(CallFault::from(malformed.fault).into()),
            Piece::Call(call) => tools::check(&[tool()], &call)
                .map_err(QueryFault::from)
                .map(|()| call),
        };
    }
    let call = last?;
    let query = call.arguments["query"]
        .as_str()
        .unwrap_or_default()
        .trim()
        .to_owned();
    if query.is_empty() {
        return Err(QueryFault::Empty);
    }
    let reasoning_words = hermes::parse(text).content.split_whitespace().count();
    Ok(WrittenQuery {
        query,
        reasoning_words,
    })
}

/// A text as a phrase or value of the boolean syntax, where straight and curly quotes all end one.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        if matches!(letter, '"' | '\u{201c}' | '\u{201d}' | '\\') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use forage_contracts::Passage;
    use forage_contracts::retriever::Query;
    use forage_retriever::Bm25Retriever;

    use super::*;

    #[test]
    fn a_quoted_text_may_hold_every_kind_of_quote() {
        let ids = [
            "ab",
            "a\"b",
            "a\u{201c}b",
            "a\u{201d}b",
            "a\\b",
            "a\\\u{201d}",
        ];
        let passages = ids.map(|id| Passage::new(id, "Title", "text"));
        let index = Bm25Retriever::in_memory(passages.to_vec()).unwrap();
        for id in ids {
            let query = Query::new(format!("id:{}", quoted(id)));
            let answer = index.search_boolean(&query, ids.len()).unwrap();
            let found: Vec<&str> = answer.hits.iter().map(|hit| hit.id.as_str()).collect();
            assert_eq!(found, [id]);
            assert!(answer.issues.is_empty(), "{id}: {:?}", answer.issues);
        }
    }
}
