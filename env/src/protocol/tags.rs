//! A streaming parser for the tags of the protocol, and the action of one policy turn.

use forage_contracts::Tag;

/// What the parser saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagEvent<'a> {
    /// Text outside of tags; one run of text may arrive in several events.
    Text(&'a str),
    /// An opening tag.
    Open(Tag),
    /// A closing tag.
    Close(Tag),
}

/// Splits text that arrives in chunks into tags and the text between them.
///
/// Tags are recognised literally. Whether they are balanced or nested is for the reader of the events to judge: a stray or
/// unclosed tag is an event like any other. Cutting the text into other chunks changes nothing but where text is split.
#[derive(Clone, Debug, Default)]
pub(crate) struct TagParser {
    /// The end of the last chunk when it may be the start of a tag.
    held: String,
}

/// What stands at a `<`.
enum AtBracket {
    Tag(TagEvent<'static>, usize),
    Unfinished,
    Text,
}

impl TagParser {
    /// A parser at the start of a text.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Reads the next chunk and reports what is certain by now.
    pub(crate) fn push(&mut self, chunk: &str, mut sink: impl FnMut(TagEvent<'_>)) {
        if self.held.is_empty() {
            let held = scan(chunk, &mut sink);
            self.held.push_str(held);
        } else {
            let mut joined = std::mem::take(&mut self.held);
            joined.push_str(chunk);
            let held = scan(&joined, &mut sink);
            self.held.push_str(held);
        }
    }

    /// Ends the text: a tag that was begun and not completed is text.
    pub(crate) fn finish(self, mut sink: impl FnMut(TagEvent<'_>)) {
        if !self.held.is_empty() {
            sink(TagEvent::Text(&self.held));
        }
    }
}

/// Reports the events of `text` and returns its end when that may be the start of a tag.
fn scan<'a>(text: &'a str, sink: &mut impl FnMut(TagEvent<'_>)) -> &'a str {
    let mut reported = 0;
    let mut from = 0;
    while let Some(offset) = text[from..].find('<') {
        let bracket = from + offset;
        match at_bracket(&text[bracket..]) {
            AtBracket::Text => from = bracket + 1,
            AtBracket::Unfinished => {
                report_text(&text[reported..bracket], sink);
                return &text[bracket..];
            }
            AtBracket::Tag(event, length) => {
                report_text(&text[reported..bracket], sink);
                sink(event);
                from = bracket + length;
                reported = from;
            }
        }
    }
    report_text(&text[reported..], sink);
    ""
}

fn report_text(text: &str, sink: &mut impl FnMut(TagEvent<'_>)) {
    if !text.is_empty() {
        sink(TagEvent::Text(text));
    }
}

fn at_bracket(rest: &str) -> AtBracket {
    let mut unfinished = false;
    for tag in Tag::ALL {
        for (literal, event) in [
            (tag.opening(), TagEvent::Open(tag)),
            (tag.closing(), TagEvent::Close(tag)),
        ] {
            if rest.starts_with(literal) {
                return AtBracket::Tag(event, literal.len());
            }
            unfinished |= literal.starts_with(rest);
        }
    }
    if unfinished {
        AtBracket::Unfinished
    } else {
        AtBracket::Text
    }
}

/// Why a turn is not an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub(crate) enum ActionFault {
    /// No search or answer tag.
    #[error("neither a search nor an answer")]
    NoAction,
    /// A search was opened and not closed.
    #[error("the search tag is not closed")]
    UnclosedSearch,
    /// An answer was opened and not closed.
    #[error("the answer tag is not closed")]
    UnclosedAnswer,
    /// A search for nothing.
    #[error("the query is empty")]
    EmptySearch,
    /// An answer of nothing.
    #[error("the answer is empty")]
    EmptyAnswer,
}

/// What a policy turn asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParsedAction {
    /// Search for the query.
    Search(String),
    /// End with the answer.
    Answer(String),
    /// Nothing the protocol knows.
    Invalid(ActionFault),
}

/// Reads the action of one policy turn: the first search or answer that is completed decides, its content trimmed.
///
/// The content starts at the last opening of that tag, so that a tag only mentioned before does not become part of the
/// query. What follows the completed action is ignored, as engines that stop at the tag never produce it.
pub(crate) fn parse_action(turn_text: &str) -> ParsedAction {
    let mut reader = ActionReader::default();
    let mut parser = TagParser::new();
    parser.push(turn_text, |event| reader.read(event));
    parser.finish(|event| reader.read(event));
    reader.finish()
}

#[derive(Default)]
struct ActionReader {
    /// Content since the last opening of the search tag, when it is open.
    search: Option<String>,
    answer: Option<String>,
    decided: Option<ParsedAction>,
}

impl ActionReader {
    fn read(&mut self, event: TagEvent<'_>) {
        if self.decided.is_some() {
            return;
        }
        match event {
            TagEvent::Open(Tag::Search) => {
                self.append(Tag::Search.opening());
                self.search = Some(String::new());
            }
            TagEvent::Open(Tag::Answer) => {
                self.append(Tag::Answer.opening());
                self.answer = Some(String::new());
            }
            TagEvent::Close(Tag::Search) => match self.search.take() {
                Some(content) => self.decided = Some(search(&content)),
                None => self.append(Tag::Search.closing()),
            },
            TagEvent::Close(Tag::Answer) => match self.answer.take() {
                Some(content) => self.decided = Some(answer(&content)),
                None => self.append(Tag::Answer.closing()),
            },
            TagEvent::Open(tag) => self.append(tag.opening()),
            TagEvent::Close(tag) => self.append(tag.closing()),
            TagEvent::Text(text) => self.append(text),
        }
    }

    fn append(&mut self, text: &str) {
        for open in [&mut self.search, &mut self.answer].into_iter().flatten() {
            open.push_str(text);
        }
    }

    fn finish(self) -> ParsedAction {
        let fault = match (self.decided, self.search, self.answer) {
            (Some(action), _, _) => return action,
            (None, _, Some(_)) => ActionFault::UnclosedAnswer,
            (None, Some(_), None) => ActionFault::UnclosedSearch,
            (None, None, None) => ActionFault::NoAction,
        };
        ParsedAction::Invalid(fault)
    }
}

fn search(content: &str) -> ParsedAction {
    match content.trim() {
        "" => ParsedAction::Invalid(ActionFault::EmptySearch),
        query => ParsedAction::Search(query.to_owned()),
    }
}

fn answer(content: &str) -> ParsedAction {
    match content.trim() {
        "" => ParsedAction::Invalid(ActionFault::EmptyAnswer),
        answer => ParsedAction::Answer(answer.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq)]
    enum Owned {
        Text(String),
        Open(Tag),
        Close(Tag),
    }

    fn events<'a>(chunks: impl IntoIterator<Item = &'a str>) -> Vec<Owned> {
        let mut events: Vec<Owned> = Vec::new();
        let mut sink = |event: TagEvent<'_>| match (event, events.last_mut()) {
            (TagEvent::Text(text), Some(Owned::Text(last))) => last.push_str(text),
            (TagEvent::Text(text), _) => events.push(Owned::Text(text.to_owned())),
            (TagEvent::Open(tag), _) => events.push(Owned::Open(tag)),
            (TagEvent::Close(tag), _) => events.push(Owned::Close(tag)),
        };
        let mut parser = TagParser::new();
        for chunk in chunks {
            parser.push(chunk, &mut sink);
        }
        parser.finish(&mut sink);
        events
    }

    #[test]
    fn tags_are_found_among_brackets_that_are_not() {
        assert_eq!(
            events(["a < b <<thi", "nk>x</think", "><answer"]),
            [
                Owned::Text("a < b <".to_owned()),
                Owned::Open(Tag::Think),
                Owned::Text("x".to_owned()),
                Owned::Close(Tag::Think),
                Owned::Text("<answer".to_owned()),
            ]
        );
    }

    #[test]
    fn the_first_completed_action_decides() {
        let search = |query: &str| ParsedAction::Search(query.to_owned());
        let answer = |text: &str| ParsedAction::Answer(text.to_owned());
        let cases = [
            ("<search> q </search>", search("q")),
            ("<search>q</search><answer>a</answer>", search("q")),
            ("<answer>a\nb</answer> tail", answer("a\nb")),
            ("<think>I may <search>q</search>", search("q")),
            ("the <search> tag, then <search>q</search>", search("q")),
            ("<search>q <answer>a</answer>", answer("a")),
            ("</search><answer>a</answer>", answer("a")),
            ("<answer>a < b</answer>", answer("a < b")),
            (
                "<answer><think>x</think></answer>",
                answer("<think>x</think>"),
            ),
            (
                "<search></search>",
                ParsedAction::Invalid(ActionFault::EmptySearch),
            ),
            (
                "<answer> \n</answer>",
                ParsedAction::Invalid(ActionFault::EmptyAnswer),
            ),
            (
                "<search>q",
                ParsedAction::Invalid(ActionFault::UnclosedSearch),
            ),
            (
                "<answer>a</answer",
                ParsedAction::Invalid(ActionFault::UnclosedAnswer),
            ),
            (
                "<SEARCH>q</SEARCH>",
                ParsedAction::Invalid(ActionFault::NoAction),
            ),
            ("", ParsedAction::Invalid(ActionFault::NoAction)),
        ];
        for (turn, expected) in cases {
            assert_eq!(parse_action(turn), expected, "{turn}");
        }
    }

    fn taggy() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("<"),
            Just("</"),
            Just("<search>"),
            Just("</search>"),
            Just("<answer>"),
            Just("</answer>"),
            Just("<think>"),
            Just("<info"),
            Just("é"),
            Just(" q ")
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn chunking_does_not_matter(text in prop_oneof![taggy(), any::<String>()], cuts in prop::collection::vec(0_usize..200, 0..12)) {
            let mut bounds: Vec<usize> = cuts.into_iter().filter(|&cut| text.is_char_boundary(cut)).collect();
            bounds.extend([0, text.len()]);
            bounds.sort_unstable();
            let chunks = bounds.windows(2).map(|pair| &text[pair[0]..pair[1]]);
            prop_assert_eq!(events(chunks), events([text.as_str()]));
        }

        #[test]
        fn a_stream_reads_the_same_at_every_split(text in taggy()) {
            let whole = events([text.as_str()]);
            for (split, _) in text.char_indices() {
                let (before, after) = text.split_at(split);
                prop_assert_eq!(&events([before, after]), &whole, "split at {}", split);
            }
        }

        #[test]
        fn nothing_is_lost_and_nothing_panics(text in prop_oneof![taggy(), any::<String>()]) {
            let mut again = String::new();
            for event in events([text.as_str()]) {
                match event {
                    Owned::Text(text) => again.push_str(&text),
                    Owned::Open(tag) => again.push_str(tag.opening()),
                    Owned::Close(tag) => again.push_str(tag.closing()),
                }
            }
            prop_assert_eq!(again, text.clone());
            parse_action(&text);
        }
    }
}
