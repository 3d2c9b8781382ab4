//! Values as Python writes them.

use std::fmt::Write;

use serde_json::Value;

/// `repr()` of a value.
pub(super) fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                separate(out, place);
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (place, (key, value)) in entries.iter().enumerate() {
                separate(out, place);
                write_text(out, key);
                out.push_str(": ");
                write_value(out, value);
            }
            out.push('}');
        }
    }
}

fn separate(out: &mut String, place: usize) {
    if place > 0 {
        out.push_str(", ");
    }
}

/// Writes a text in single quotes, or in double quotes where only single ones would need escapes.
fn write_text(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if letter == quote => out.extend(['\\', letter]),
            _ if letter.is_ascii_control() => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\x{:02x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_read_as_python_writes_them() {
        let value =
            json!([{"page_id": "it's", "title": "a\n\"b\" 'c'"}, null, true, 1.5, "é\u{7}"]);
        let expected =
            r#"[{'page_id': "it's", 'title': 'a\n"b" \'c\''}, None, True, 1.5, 'é\x07']"#;
        assert_eq!(repr(&value), expected);
    }
}
