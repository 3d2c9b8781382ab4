//! Families of encoders: what is written before a text, and how its hidden states become one vector.

use forage_retriever::TextKind;

/// The family of an encoder, which fixes what is written before a text and the default pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncoderFamily {
    /// E5: `query: ` before queries, `passage: ` before passages; mean pooling.
    E5,
    /// English BGE: an instruction before queries, nothing before passages; CLS pooling.
    Bge,
    /// `MiniLM` and all others: no prefixes; mean pooling.
    Plain,
}

impl EncoderFamily {
    /// The words before a text, as Search-R1 writes them (its source: the model cards).
    pub(super) fn prefix(self, kind: TextKind) -> &'static str {
        match (self, kind) {
            (Self::E5, TextKind::Query) => "query: ",
            (Self::E5, TextKind::Passage) => "passage: ",
            (Self::Bge, TextKind::Query) => {
                "Represent this sentence for searching relevant passages: "
            }
            (Self::Bge, TextKind::Passage) | (Self::Plain, _) => "",
        }
    }

    /// The family a model's name tells: `e5` or `bge` anywhere in it, whatever the case.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        match (name.contains("e5"), name.contains("bge")) {
            (true, _) => Some(Self::E5),
            (false, true) => Some(Self::Bge),
            (false, false) => None,
        }
    }
}

/// The way from the hidden states of a text to one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    /// The mean over all tokens, special ones included.
    Mean,
    /// The first token's.
    Cls,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_family() {
        assert_eq!(
            EncoderFamily::from_name("intfloat/E5-base-v2"),
            Some(EncoderFamily::E5)
        );
        assert_eq!(
            EncoderFamily::from_name("bge-small-en-v1.5"),
            Some(EncoderFamily::Bge)
        );
        assert_eq!(EncoderFamily::from_name("all-MiniLM-L6-v2"), None);
    }
}
