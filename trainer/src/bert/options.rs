//! What a caller may decide about an encoder or a reranker; what is left open is read from the folder.

use serde::{Deserialize, Serialize};

use crate::device::DeviceSpec;
use forage_retriever::TextKind;

/// The family of an encoder, which fixes what is written before a text and the default pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EncoderFamily {
    /// E5: `query: ` before queries, `passage: ` before passages; mean pooling.
    E5,
    /// English BGE: an instruction before queries, nothing before passages; CLS pooling.
    Bge,
    /// `MiniLM` and all others: no prefixes; mean pooling.
    Plain,
}

impl EncoderFamily {
    /// What is written before a text, as Search-R1 does (its source: the model cards).
    pub(crate) fn prefix(self, kind: TextKind) -> &'static str {
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
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        match (name.contains("e5"), name.contains("bge")) {
            (true, _) => Some(Self::E5),
            (false, true) => Some(Self::Bge),
            (false, false) => None,
        }
    }
}

/// How the hidden states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pooling {
    /// The mean over all tokens, special ones included.
    Mean,
    /// The first token's.
    Cls,
}

/// How to run an encoder. `None` reads the folder; see the table in `bert.rs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EncoderOptions {
    /// Family, which decides the prefixes.
    pub family: Option<EncoderFamily>,
    /// Pooling.
    pub pooling: Option<Pooling>,
    /// Longest text in tokens, prefix and special tokens included; longer ones lose their end.
    pub max_tokens: Option<usize>,
    /// Whether vectors are scaled to length 1.
    pub normalise: Option<bool>,
    /// The device to run on.
    pub device: DeviceSpec,
    /// Processor threads; `None` for as many as there are cores.
    pub threads: Option<usize>,
}

/// How to run a reranker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RerankerOptions {
    /// Longest pair in tokens, special ones included; `None` for 512 or the model's positions if fewer. The longer of
    /// query and passage loses its end first.
    pub max_tokens: Option<usize>,
    /// The device to run on.
    pub device: DeviceSpec,
    /// Processor threads; `None` for as many as there are cores.
    pub threads: Option<usize>,
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
