//! One fault of a request body, written as `FastAPI` writes it.

use serde::{Serialize, Serializer};

/// Bytes of a key, and of what is said of a value, at most: both may repeat what a client wrote, which may be megabytes.
const MAX_SHOWN: usize = 300;

/// A step on the way to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A key of an object, or its beginning.
    Key(String),
    /// A place in a list, or a byte offset of the body for JSON that does not parse.
    Index(usize),
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Key(key) => serializer.serialize_str(key),
            Self::Index(index) => serializer.serialize_u64(*index as u64),
        }
    }
}

impl From<&str> for Place {
    fn from(key: &str) -> Self {
        Self::Key(key[..key.floor_char_boundary(MAX_SHOWN)].to_owned())
    }
}

impl From<usize> for Place {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// One fault of a request body: `{"type", "loc", "msg"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// pydantic's name of the fault: `missing`, `string_type`, `int_parsing`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// From `body` to the value.
    pub loc: Vec<Place>,
    /// In words, not too many.
    pub msg: String,
}

impl Problem {
    /// A fault at a place in the body.
    pub(crate) fn new(kind: &'static str, path: Vec<Place>, msg: impl Into<String>) -> Self {
        let mut loc = vec![Place::from("body")];
        loc.extend(path);
        let mut msg = msg.into();
        msg.truncate(msg.floor_char_boundary(MAX_SHOWN));
        Self { kind, loc, msg }
    }
}
