//! Tags of programs, queries and calls, and the text between a pair of tags.

/// Opens and closes a program.
pub(crate) const PYTHON: [&str; 2] = ["<python>", "</python>"];
/// Opens a query that its episode is judged by.
pub(crate) const QUERY_OPEN: &str = "<query>";
/// Closes such a query.
pub(crate) const QUERY_CLOSE: &str = "</query>";
/// Opens and closes the reasoning before a query.
pub(crate) const REASONING: [&str; 2] = ["<reasoning>", "</reasoning>"];
/// Announces an answer without tags.
pub(crate) const ANSWER_PREFIX: &str = "Answer:";

/// Begins the line above the passages of a query.
pub(crate) const QUERY: &str = "Query: ";
/// Begins passages that are written as JSON, behind which a string and `}` follow.
pub(crate) const RESULT: &str = "{\"result\": ";

/// A complete block: the text between an opening and a closing tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The text between the tags.
    pub(crate) content: &'a str,
    /// Start of the opening tag, in bytes.
    pub(crate) start: usize,
    /// End of the closing tag, in bytes.
    pub(crate) end: usize,
}

/// The block from the first opening tag to the next closing one.
pub(crate) fn first_opened<'a>(text: &'a str, open: &str, close: &str) -> Option<Block<'a>> {
    let start = text.find(open)?;
    let inside = start + open.len();
    let close_at = inside + text[inside..].find(close)?;
    Some(Block {
        content: &text[inside..close_at],
        start,
        end: close_at + close.len(),
    })
}

/// The block that ends where that of [`first_opened`] does and begins at the last opening tag before: a tag that was only
/// mentioned is not part of it.
pub(crate) fn first_closed<'a>(text: &'a str, open: &str, close: &str) -> Option<Block<'a>> {
    let block = first_opened(text, open, close)?;
    let close_at = block.end - close.len();
    let start = text[..close_at].rfind(open).unwrap_or(block.start);
    Some(Block {
        content: &text[start + open.len()..close_at],
        start,
        ..block
    })
}

/// The last block that is complete, from its last opening tag on; a closing tag without an opening one ends nothing.
pub(crate) fn last_closed<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_begin_and_end_where_their_rule_says() {
        let text = "a <q> b <q>c</q> <q>d</q> </q>";
        let content = |block: Option<Block<'_>>| block.map(|block| block.content.to_owned());
        let found = content(first_opened(text, "<q>", "</q>"));
        assert_eq!(found.as_deref(), Some(" b <q>c"));
        let found = content(first_closed(text, "<q>", "</q>"));
        assert_eq!(found.as_deref(), Some("c"));
        assert_eq!(last_closed(text, "<q>", "</q>"), Some("d"));
        assert_eq!(last_closed("</q> <q>", "<q>", "</q>"), None);
        let block = first_closed(text, "<q>", "</q>").expect("a block");
        assert_eq!(&text[block.start..block.end], "<q>c</q>");
    }
}
