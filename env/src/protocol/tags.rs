//! The tags of the protocol in a text, and the text between them.

use forage_contracts::Tag;

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagEvent<'a> {
    /// Text without tags, up to the next one.
    Text(&'a str),
    /// An opening tag.
    Open(Tag),
    /// A closing tag.
    Close(Tag),
}

impl<'a> TagEvent<'a> {
    /// The text of the part, unchanged.
    pub(crate) fn text(self) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::Open(tag) => tag.opening(),
            Self::Close(tag) => tag.closing(),
        }
    }
}

/// The parts of a text, in order.
///
/// Tags are recognised literally. Whether they are balanced or nested is for the reader of the parts to judge: a stray or unclosed tag is
/// a part like any other, and a tag that is begun and not completed is text.
pub(crate) fn events(text: &str) -> impl Iterator<Item = TagEvent<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut brackets = rest.match_indices('<').map(|(at, _)| at);
        let event = match brackets.find(|&at| tag_at(&rest[at..]).is_some()) {
            Some(0) => tag_at(rest)?,
            Some(end) => TagEvent::Text(&rest[..end]),
            None if rest.is_empty() => return None,
            None => TagEvent::Text(rest),
        };
        rest = &rest[event.text().len()..];
        Some(event)
    })
}

/// The tag that a text begins with.
fn tag_at(text: &str) -> Option<TagEvent<'static>> {
    let both = |tag| [TagEvent::Open(tag), TagEvent::Close(tag)];
    let mut tags = Tag::ALL.into_iter().flat_map(both);
    tags.find(|tag| text.starts_with(tag.text()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tags_are_found_among_brackets_that_are_not() {
        let found: Vec<TagEvent<'_>> = events("a < b <<think>x</think><answer").collect();
        let expected = [
            TagEvent::Text("a < b <"),
            TagEvent::Open(Tag::Think),
            TagEvent::Text("x"),
            TagEvent::Close(Tag::Think),
            TagEvent::Text("<answer"),
        ];
        assert_eq!(found, expected);
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
        fn nothing_is_lost_and_no_text_holds_a_tag(text in prop_oneof![taggy(), any::<String>()]) {
            let mut again = String::new();
            for event in events(&text) {
                again.push_str(event.text());
                if let TagEvent::Text(text) = event {
                    prop_assert!(!text.is_empty());
                    let mut tags = Tag::ALL.into_iter().flat_map(Tag::both);
                    prop_assert!(tags.all(|tag| !text.contains(tag)), "{}", text);
                }
            }
            prop_assert_eq!(again, text);
        }
    }
}
