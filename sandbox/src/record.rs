//! The part of a long text that is recorded. A turn is replayed by running its program again, so that records need only tell
//! what was passed, and whether two calls passed the same.

use serde_json::{Map, Value};

use crate::CallRecord;

/// The longest text that is recorded whole, in bytes.
const WHOLE: usize = 1024;

impl CallRecord {
    /// A text as it is recorded: its first kilobyte, then its length and digest, when it is longer.
    ///
    /// ```
    /// use forage_sandbox::CallRecord;
    ///
    /// assert_eq!(CallRecord::abridged("tides".to_owned()), "tides");
    /// let long = CallRecord::abridged("x".repeat(1_000_000));
    /// assert!(long.starts_with("xxx") && long.contains("1000000 bytes, blake3 ") && long.len() < 1200);
    /// ```
    pub fn abridged(mut text: String) -> String {
        if text.len() > WHOLE {
            let digest = blake3::hash(text.as_bytes()).to_hex();
            let mark = format!("... [{} bytes, blake3 {}]", text.len(), &digest[..16]);
            text.truncate(text.floor_char_boundary(WHOLE));
            text.shrink_to_fit();
            text.push_str(&mark);
        }
        text
    }
}

/// Arguments as they are recorded. A list or dictionary that is too long becomes the beginning of its JSON.
pub(crate) fn abridged_arguments(arguments: Map<String, Value>) -> Map<String, Value> {
    let abridge = |value| match value {
        Value::String(text) => Value::String(CallRecord::abridged(text)),
        Value::Array(_) | Value::Object(_) => {
            let text = value.to_string();
            if text.len() > WHOLE {
                Value::String(CallRecord::abridged(text))
            } else {
                value
            }
        }
        other => other,
    };
    arguments
        .into_iter()
        .map(|(name, value)| (name, abridge(value)))
        .collect()
}
