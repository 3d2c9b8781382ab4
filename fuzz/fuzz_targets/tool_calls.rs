//! Any text is a turn with tool calls: the pieces are the same however it is split, and a call is an object of arguments.

#![no_main]

use forage_env::chat::hermes::{Piece, Stream};
use forage_env::registry::read_turn;
use libfuzzer_sys::fuzz_target;

fn read(parts: &[&str]) -> Vec<Piece> {
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

fuzz_target!(|input: (u16, &str)| {
    let (at, text) = input;
    let (before, after) = text.split_at(text.floor_char_boundary(usize::from(at)));
    let whole = read(&[text]);
    assert_eq!(read(&[before, after]), whole);
    for piece in &whole {
        if let Piece::Call(call) = piece {
            assert!(call.arguments.is_object() && !call.name.is_empty());
        }
    }
    read_turn(text);
});
