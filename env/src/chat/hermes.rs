//! Tool calls as the Hermes and Qwen models write them.
//!
//! `<tool_call>`, a JSON object with `name` and `arguments`, `</tool_call>`; several in a turn, with text around them.
//! A call ends at the first closing tag, as in other readers of this format, even within a JSON string. White space
//! before a call, between calls and after the last one is layout and no text. Thoughts are text: cut them off first where
//! a model may quote the tag in them.

use serde_json::Value;

/// Opens a call.
const OPEN: &str = "<tool_call>";
/// Closes a call.
const CLOSE: &str = "</tool_call>";

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// An object; empty where the call names no arguments. A string with JSON in it is read.
    pub arguments: Value,
}

impl ToolCall {
    /// The tags around a call.
    pub const TAGS: [&str; 2] = [OPEN, CLOSE];
}

/// A block that is not a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The block as written, tags included.
    pub text: String,
    /// The fault.
    pub(crate) fault: Fault,
}

/// The fault of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The text ends within the call.
    #[error("the tool call is not closed; end it with </tool_call>")]
    Unclosed,
    /// The content is not JSON.
    #[error("the tool call is not JSON: {0}")]
    Json(String),
    /// The name is missing.
    #[error("the tool call has no `name`; write {{\"name\": ..., \"arguments\": {{...}}}}")]
    NoName,
    /// The arguments are neither an object nor a string with one.
    #[error("the `arguments` of the tool call are not a JSON object")]
    Arguments,
}

/// A turn, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parsed {
    /// The text around the calls.
    pub content: String,
    /// Calls in order.
    pub calls: Vec<ToolCall>,
    /// Blocks that are not calls, in order.
    pub malformed: Vec<Malformed>,
}

/// A finding of a [`Stream`].
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text outside calls.
    Text(String),
    /// A call.
    Call(ToolCall),
    /// A block that is not a call.
    Malformed(Malformed),
}

/// Reads a whole turn, its pieces in order.
pub(crate) fn pieces(text: &str) -> Vec<Piece> {
    let mut stream = Stream::default();
    let mut pieces = stream.push(text);
    pieces.extend(stream.finish());
    pieces
}

/// Reads a whole turn.
pub(crate) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => parsed.content.push_str(&text),
            Piece::Call(call) => parsed.calls.push(call),
            Piece::Malformed(malformed) => parsed.malformed.push(malformed),
        }
    }
    parsed
}

/// Reads a turn as it is written. However the turn is split, the pieces are those of the whole, texts joined.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// The undecided text: the content of a call, or white space and a possible beginning of a tag.
    held: String,
    /// Bytes of a call's content known to hold no closing tag.
    searched: usize,
    inside: bool,
    /// True when nothing but white space has followed a call.
    after_call: bool,
}

impl Stream {
    /// Takes in more of the turn and returns what it decides.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        while if self.inside {
            self.close(&mut pieces)
        } else {
            self.open(&mut pieces)
        } {}
        pieces
    }

    /// Ends the turn.
    pub fn finish(&mut self) -> Vec<Piece> {
        let Self {
            held,
            inside,
            after_call,
            ..
        } = std::mem::take(self);
        if inside {
            return vec![Piece::Malformed(Malformed {
                text: [OPEN, &held].concat(),
                fault: Fault::Unclosed,
            })];
        }
        if held.is_empty() || (after_call && held.trim_end().is_empty()) {
            return Vec::new();
        }
        vec![Piece::Text(held)]
    }

    /// Looks for the opening tag; returns whether it was there.
    fn open(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let found = self.held.find(OPEN);
        let end = found.unwrap_or_else(|| self.held.len() - partial(&self.held));
        let text = self.held[..end].trim_end();
        let written = text.len();
        if written > 0 {
            pieces.push(Piece::Text(text.to_owned()));
            self.after_call = false;
        }
        self.inside = found.is_some();
        self.held
            .drain(..found.map_or(written, |start| start + OPEN.len()));
        self.searched = 0;
        self.inside
    }

    /// Looks for the closing tag; returns whether it was there.
    fn close(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let Some(start) = self.held[self.searched..].find(CLOSE) else {
            let undecided = self.held.len().saturating_sub(CLOSE.len() - 1);
            self.searched = self.held.floor_char_boundary(undecided);
            return false;
        };
        let start = self.searched + start;
        let content = &self.held[..start];
        pieces.push(match read(content) {
            Ok(call) => Piece::Call(call),
            Err(fault) => Piece::Malformed(Malformed {
                text: [OPEN, content, CLOSE].concat(),
                fault,
            }),
        });
        self.held.drain(..start + CLOSE.len());
        self.inside = false;
        self.after_call = true;
        true
    }
}

/// Length of the longest end of `text` that begins an opening tag.
fn partial(text: &str) -> usize {
    let most = text.len().min(OPEN.len() - 1);
    (1..=most)
        .rev()
        .find(|&length| text.ends_with(&OPEN[..length]))
        .unwrap_or(0)
}

/// Reads what stands between the tags of a call.
pub(crate) fn read(content: &str) -> Result<ToolCall, Fault> {
    let value: Value =
        serde_json::from_str(content.trim()).map_err(|error| Fault::Json(error.to_string()))?;
    let name = value
        .get("name")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
        .ok_or(Fault::NoName)?;
    let arguments = match value.get("arguments") {
        None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| Fault::Arguments)?,
        Some(arguments) => arguments.clone(),
    };
    if !arguments.is_object() {
        return Err(Fault::Arguments);
    }
    Ok(ToolCall {
        name: name.to_owned(),
        arguments,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
        let mut joined: Vec<Piece> = Vec::new();
        for piece in pieces {
            match (joined.last_mut(), piece) {
                (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
                (_, piece) => joined.push(piece),
            }
        }
        joined
    }

    fn streamed(parts: &[&str]) -> Vec<Piece> {
        let mut stream = Stream::default();
        let mut pieces: Vec<Piece> = parts.iter().flat_map(|part| stream.push(part)).collect();
        pieces.extend(stream.finish());
        joined(pieces)
    }

    #[test]
    fn calls_and_text_are_told_apart() {
        let text = "I look.\n<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q\": \"a < b\"}}\n</tool_call>\n\
                    <tool_call>{\"name\":\"stop\"}</tool_call>\n\nDone \n";
        let call = |name: &str, arguments| {
            Piece::Call(ToolCall {
                name: name.to_owned(),
                arguments,
            })
        };
        let text_piece = |text: &str| Piece::Text(text.to_owned());
        let expected = vec![
            text_piece("I look."),
            call("search", json!({"q": "a < b"})),
            call("stop", json!({})),
            text_piece("\n\nDone \n"),
        ];
        assert_eq!(streamed(&[text]), expected);
        assert_eq!(parse(text).content, "I look.\n\nDone \n");
        assert_eq!(
            parse("<tool_call>{\"name\":\"a\",\"arguments\":\"{\\\"x\\\":1}\"}</tool_call>\n"),
            Parsed {
                calls: vec![ToolCall {
                    name: "a".to_owned(),
                    arguments: json!({"x": 1})
                }],
                ..Parsed::default()
            }
        );
        assert_eq!(parse(" a <tool_cal\n").content, " a <tool_cal\n");
    }

    #[test]
    fn what_is_no_call_is_kept_with_its_fault() {
        for (text, fault) in [
            ("<tool_call>\n{\"name\": \"a\"", Fault::Unclosed),
            ("<tool_call>{}</tool_call>", Fault::NoName),
            ("<tool_call>[1]</tool_call>", Fault::NoName),
            ("<tool_call>{\"name\": 3}</tool_call>", Fault::NoName),
            (
                "<tool_call>{\"name\": \"a\", \"arguments\": [1]}</tool_call>",
                Fault::Arguments,
            ),
            (
                "<tool_call>{\"name\": \"a\", \"arguments\": \"x\"}</tool_call>",
                Fault::Arguments,
            ),
        ] {
            let malformed = vec![Malformed {
                text: text.to_owned(),
                fault,
            }];
            assert_eq!(
                parse(text),
                Parsed {
                    malformed,
                    ..Parsed::default()
                },
                "{text}"
            );
        }
        let parsed = parse("a<tool_call>{'name': 1}</tool_call>b");
        assert_eq!(parsed.content, "ab");
        assert!(
            matches!(&parsed.malformed[0].fault, Fault::Json(message) if message.contains("line 1 column 2"))
        );
    }

    /// Text from the pieces that matter to the reader, in any order.
    fn turns() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("<tool_call>".to_owned()),
            Just("</tool_call>".to_owned()),
            Just("{\"name\": \"é\", \"arguments\": {\"x\": \"😀\"}}".to_owned()),
            Just("{\"name\": \"f\", \"arguments\": \"{}\"}".to_owned()),
            Just("\n".to_owned()),
            Just("<tool_".to_owned()),
            Just("</tool_call".to_owned()),
            "[ -~é\n]{0,6}",
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn a_stream_reads_the_same_at_every_split(text in turns()) {
            let whole = streamed(&[&text]);
            for (split, _) in text.char_indices() {
                let (before, after) = text.split_at(split);
                prop_assert_eq!(&streamed(&[before, after]), &whole, "split at {}", split);
            }
            let mut letters = [0; 4];
            let single: Vec<String> = text.chars().map(|letter| letter.encode_utf8(&mut letters).to_owned()).collect();
            prop_assert_eq!(streamed(&single.iter().map(String::as_str).collect::<Vec<_>>()), whole);
        }

        #[test]
        fn nothing_but_layout_is_lost(text in turns()) {
            let parsed = parse(&text);
            let solid = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).count();
            let blocks = parsed.malformed.iter().map(|block| solid(&block.text)).sum::<usize>();
            let outside = text.split(OPEN).enumerate().map(|(place, part)| match part.split_once(CLOSE) {
                Some((_, after)) if place > 0 => after,
                _ => part,
            });
            if parsed.calls.is_empty() {
                prop_assert_eq!(solid(&parsed.content) + blocks, solid(&text));
            } else {
                prop_assert!(outside.map(solid).sum::<usize>() >= solid(&parsed.content));
            }
        }

        #[test]
        fn any_text_is_read(text in any::<String>()) {
            parse(&text);
        }
    }
}
