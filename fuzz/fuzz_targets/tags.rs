//! Any text is a turn: the tags are the same however it is split, nothing is lost, and every profile reads an action.

#![no_main]

use forage_env::protocol::{TagEvent, TagParser};
use forage_env::registry::read_turn;
use libfuzzer_sys::fuzz_target;

/// What the events say, runs of text joined, and the text again.
fn read(parts: &[&str]) -> (Vec<(bool, String)>, String) {
    let mut events: Vec<(bool, String)> = Vec::new();
    let mut again = String::new();
    let mut sink = |event: TagEvent<'_>| {
        let (is_tag, text) = match event {
            TagEvent::Text(text) => (false, text),
            TagEvent::Open(tag) => (true, tag.opening()),
            TagEvent::Close(tag) => (true, tag.closing()),
        };
        again.push_str(text);
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
    (events, again)
}

fuzz_target!(|input: (u16, &str)| {
    let (at, text) = input;
    let (before, after) = text.split_at(text.floor_char_boundary(usize::from(at)));
    let whole = read(&[text]);
    assert_eq!(whole.1, text);
    assert_eq!(read(&[before, after]), whole);
    read_turn(text);
});
