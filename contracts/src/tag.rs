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
}
