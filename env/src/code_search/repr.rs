//! Values as Python writes them.

use std::fmt::Write;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Characters beyond ASCII that `repr()` escapes: spaces, invisible and unassigned ones.
static ESCAPED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{C}\p{Z}]$").ok());

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
            _ if is_escaped(letter) => {
                // Writing to a string does not fail.
                let _ = match u32::from(letter) {
                    code @ ..0x100 => write!(out, "\\x{code:02x}"),
                    code @ 0x100..0x1_0000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
            _ => out.push(letter),
        }
    }
    out.push(quote);
}

fn is_escaped(letter: char) -> bool {
    if letter.is_ascii() {
        return letter.is_ascii_control();
    }
    ESCAPED
        .as_ref()
        .is_some_and(|escaped| escaped.is_match(letter.encode_utf8(&mut [0; 4])))
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

    #[test]
    fn what_cannot_be_seen_is_escaped_as_python_escapes_it() {
        let text = "a\u{a0}b\u{200b}\u{2028}\u{feff}\u{e000}\u{e0041} e\u{301} 日 😀 —";
        let expected =
            r"'a\xa0b\u200b\u2028\ufeff\ue000\U000e0041 ".to_owned() + "e\u{301} 日 😀 —'";
        assert_eq!(repr(&json!(text)), expected);
    }
}
