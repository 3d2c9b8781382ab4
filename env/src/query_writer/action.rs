//! What a turn asks for.

use serde::{Deserialize, Serialize};

/// Opens a query.
pub const QUERY_OPEN: &str = "<query>";
/// Closes a query.
pub const QUERY_CLOSE: &str = "</query>";
/// Opens the reasoning.
pub const REASONING_OPEN: &str = "<reasoning>";
/// Closes the reasoning.
pub const REASONING_CLOSE: &str = "</reasoning>";

/// Which query of a turn counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// The last one completed, from its last opening tag on: a tag only mentioned before is not part of it.
    #[default]
    Last,
    /// From the first opening tag to the next closing one, as SearchLM reads it.
    First,
}

/// Why a turn holds no query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum QueryFault {
    /// No query tag.
    #[error("no query")]
    NoQuery,
    /// A query was opened and not closed.
    #[error("the query tag is not closed")]
    Unclosed,
    /// A query for nothing.
    #[error("the query is empty")]
    Empty,
}

/// A query as the policy wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenQuery {
    /// Trimmed, not empty.
    pub query: String,
    /// Words of the first reasoning block; 0 without one.
    pub reasoning_words: usize,
}

/// Reads the query of a turn.
///
/// # Errors
/// [`QueryFault`] when there is none.
///
/// ```
/// use forage_env::query_writer::{Take, parse};
///
/// let written = parse("<reasoning>two words</reasoning><query> tides AND moon </query>", Take::Last)?;
/// assert_eq!((written.query.as_str(), written.reasoning_words), ("tides AND moon", 2));
/// # Ok::<(), forage_env::query_writer::QueryFault>(())
/// ```
pub fn parse(text: &str, take: Take) -> Result<WrittenQuery, QueryFault> {
    let block = match take {
        Take::Last => last_block(text, QUERY_OPEN, QUERY_CLOSE),
        Take::First => first_block(text, QUERY_OPEN, QUERY_CLOSE),
    };
    match block.map(str::trim) {
        Some("") => Err(QueryFault::Empty),
        None if text.contains(QUERY_OPEN) => Err(QueryFault::Unclosed),
        None => Err(QueryFault::NoQuery),
        Some(query) => {
            let reasoning = first_block(text, REASONING_OPEN, REASONING_CLOSE).unwrap_or_default();
            Ok(WrittenQuery { query: query.to_owned(), reasoning_words: reasoning.split_whitespace().count() })
        }
    }
}

fn first_block<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(open)?;
    after.split_once(close).map(|(content, _)| content)
}

/// The content of the last block that is complete; a closing tag without an opening one ends nothing.
fn last_block<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let mut before = text;
    while let Some((head, _)) = before.rsplit_once(close) {
        let start = head.rfind(close).map_or(0, |end| end + close.len());
        if let Some(opening) = head[start..].rfind(open) {
            return Some(&head[start + opening + open.len()..]);
        }
        before = head;
    }
    None
}

/// A text as a phrase or value of the boolean syntax.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
