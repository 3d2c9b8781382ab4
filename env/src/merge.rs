//! Settings as written over those of a profile.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The settings `base` with what is written in their place, table by table. A prompt is replaced as a whole: its tables are
/// choices.
///
/// # Errors
/// When a key is unknown or a value has the wrong type.
pub(crate) fn over<T: Serialize + DeserializeOwned>(
    base: &T,
    written: Value,
) -> Result<T, serde_json::Error> {
    let mut value = serde_json::to_value(base)?;
    merge(&mut value, written);
    serde_json::from_value(value)
}

fn merge(base: &mut Value, written: Value) {
    match (base, written) {
        (Value::Object(base), Value::Object(written)) => {
            for (key, value) in written {
                match base.get_mut(&key) {
                    Some(known) if known.is_object() && value.is_object() && key != "prompt" => {
                        merge(known, value);
                    }
                    _ => {
                        base.insert(key, value);
                    }
                }
            }
        }
        (base, written) => *base = written,
    }
}
