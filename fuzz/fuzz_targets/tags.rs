//! Any text is a turn: its tags lose nothing, its tool calls are the same however it is split, and every profile reads an action.

#![no_main]

use forage_env::read_turn;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &str)| {
    let (at, text) = input;
    read_turn(text, usize::from(at));
});
