//! The tags of the protocol.

/// A tag of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// Reasoning.
    Think,
    /// A query.
    Search,
    /// What a search found; written by the environment.
    Information,
    /// The answer.
    Answer,
}

impl Tag {
    /// All tags.
    pub const ALL: [Self; 4] = [Self::Think, Self::Search, Self::Information, Self::Answer];

    /// The opening tag's text.
    pub const fn opening(self) -> &'static str {
        match self {
            Self::Think => "<think>",
            Self::Search => "<search>",
            Self::Information => "<information>",
            Self::Answer => "<answer>",
        }
    }

    /// The closing tag's text.
    pub const fn closing(self) -> &'static str {
        match self {
            Self::Think => "</think>",
            Self::Search => "</search>",
            Self::Information => "</information>",
            Self::Answer => "</answer>",
        }
    }

    /// The opening and the closing tag's text.
    pub const fn both(self) -> [&'static str; 2] {
        [self.opening(), self.closing()]
    }

    /// A turn: the thought between think tags, unless it is empty, then the content between two tags.
    pub fn turn(thought: &str, [opening, closing]: [&str; 2], content: &str) -> String {
        let action = [opening, content, closing].concat();
        if thought.is_empty() {
            return action;
        }
        [
            Self::Think.opening(),
            thought,
            Self::Think.closing(),
            &action,
        ]
        .concat()
    }

    /// The text between the first opening tag and the last closing one, if there are both.
    pub fn inside(self, text: &str) -> Option<&str> {
        let (_, after) = text.split_once(self.opening())?;
        after.rsplit_once(self.closing()).map(|(inside, _)| inside)
    }
}
