//! The entry point of fuzzing: every reader of a policy's text at once.

use crate::chat::hermes::{Piece, Stream};
use crate::protocol::{TagEvent, events};
use crate::registry::read_everywhere;

/// Reads what a policy may write: its tags, its tool calls, whole and in two parts that are cut at the byte `at` or before it, and a turn
/// of every environment under every profile.
///
/// # Panics
/// When the cut changes what is read, the tags lose text, or a tool call has no name or no object of arguments.
pub fn read_turn(text: &str, at: usize) {
    let (before, after) = text.split_at(text.floor_char_boundary(at));
    let again: String = events(text).map(TagEvent::text).collect();
    assert_eq!(again, text);
    let pieces = calls(&[text]);
    assert_eq!(calls(&[before, after]), pieces, "cut after {before:?}");
    for piece in &pieces {
        if let Piece::Call(call) = piece {
            assert!(call.arguments.is_object() && !call.name.is_empty());
        }
    }
    read_everywhere(text);
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
