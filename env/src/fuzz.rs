//! The entry point of fuzzing: every reader of a policy's text at once.

use crate::chat::hermes::{Piece, Stream};
use crate::protocol::{TagEvent, TagParser};
use crate::registry::read_everywhere;

/// Reads what a policy may write: its tags and tool calls, whole and in two parts that are cut at the byte `at` or before it,
/// and as a turn of every environment under every profile.
///
/// # Panics
/// When the cut changes what is read, the tags lose text, or a tool call has no name or no object of arguments.
pub fn read_turn(text: &str, at: usize) {
    let (before, after) = text.split_at(text.floor_char_boundary(at));
    let whole = tags(&[text]);
    let again: String = whole.iter().map(|(_, part)| part.as_str()).collect();
    assert_eq!(again, text);
    assert_eq!(tags(&[before, after]), whole, "cut after {before:?}");
    let pieces = calls(&[text]);
    assert_eq!(calls(&[before, after]), pieces, "cut after {before:?}");
    for piece in &pieces {
        if let Piece::Call(call) = piece {
            assert!(call.arguments.is_object() && !call.name.is_empty());
        }
    }
    read_everywhere(text);
}

/// Tags and runs of text between them, each with whether it is a tag.
fn tags(parts: &[&str]) -> Vec<(bool, String)> {
    let mut events: Vec<(bool, String)> = Vec::new();
    let mut sink = |event: TagEvent<'_>| {
        let (is_tag, text) = match event {
            TagEvent::Text(text) => (false, text),
            TagEvent::Open(tag) => (true, tag.opening()),
            TagEvent::Close(tag) => (true, tag.closing()),
        };
        match events.last_mut() {
            Some((false, last)) if !is_tag => last.push_str(text),
            _ => events.push((is_tag, text.to_owned())),
        }
    };
    let mut parser = TagParser::new();
    for part in parts {
        parser.push(part, &mut sink);
    }
    parser.finish(&mut sink);
    events
}

/// Tool calls and runs of text between them.
fn calls(parts: &[&str]) -> Vec<Piece> {
    let mut stream = Stream::default();
    let mut pieces: Vec<Piece> = parts.iter().flat_map(|part| stream.push(part)).collect();
    pieces.extend(stream.finish());
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}
