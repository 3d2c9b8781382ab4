//! Feeds mutated turns to every parser of model text: nothing may panic, and a stream must read what the whole reads.
//!
//! `cargo run --release -p forage-env --example parser_fuzz -- [INPUTS] [SEED]`
//!
//! Prints one line of JSON. The same seed gives the same inputs; an input that breaks something is in the panic's message.

#![allow(
    clippy::print_stdout,
    reason = "the example's purpose is to print what it measured"
)]

use std::error::Error;
use std::time::Instant;

use forage_env::read_turn;

/// Valid turns of every protocol.
const TURNS: [&str; 12] = [
    "<think>I need the mayor.</think><search> mayor of Orlen </search>",
    "<think>a < b</think>\n<answer>Ada Brandt</answer>",
    "\n\n<information>Doc 1(Title: \"Orlen\") a town</information>\n\n<think>b</think><answer>c</answer>",
    "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"mayor of Orlen\"}}\n</tool_call>",
    "I look.\n<tool_call>{\"name\": \"search\", \"arguments\": {\"query_list\": [\"a\", \"é\"]}}</tool_call>\n",
    "<tool_call>{\"name\": \"python\", \"arguments\": \"{\\\"code\\\": \\\"print(1)\\\"}\"}</tool_call>",
    "<python>\nfor page in search_pages(\"Velm\"):\n    print(page[\"title\"])\n</python>",
    "<reasoning>two words</reasoning><query>\"Ada Brandt\" AND (born OR birth)</query>",
    "<tool_call>{\"name\": \"submit_query\", \"arguments\": {\"query\": \"tides AND moon\"}}</tool_call>",
    "So it is. Answer: Velm",
    "<|im_start|>assistant\n<think>😀</think><answer>東京</answer><|im_end|>",
    "</think></answer><answer><search>",
];

/// Pieces that matter to the parsers.
const PIECES: [&str; 20] = [
    "<think>",
    "</think>",
    "<search>",
    "</search>",
    "<answer>",
    "</answer>",
    "<information>",
    "</information>",
    "<tool_call>",
    "</tool_call>",
    "<python>",
    "</python>",
    "<query>",
    "</query>",
    "<",
    "</",
    "{\"name\": \"",
    "\\u00e9",
    "é",
    "\n",
];

/// Marsaglia's xorshift: fast, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    /// A place between two letters.
    fn place(&mut self, text: &str) -> usize {
        text.floor_char_boundary(self.below(text.len() + 1))
    }
}

/// A turn with up to six changes: pieces put in, parts left out or doubled, another turn's part put in, letters changed.
fn mutated(dice: &mut Dice, text: &mut String) {
    text.clear();
    text.push_str(TURNS[dice.below(TURNS.len())]);
    for _ in 0..dice.below(7) {
        let (left, right) = (dice.place(text), dice.place(text));
        let range = left.min(right)..left.max(right);
        match dice.below(5) {
            0 => text.insert_str(left, PIECES[dice.below(PIECES.len())]),
            1 => text.replace_range(range, ""),
            2 if text.len() < 400 => {
                let part = text[range.clone()].to_owned();
                text.insert_str(range.end, &part);
            }
            3 if text.len() < 400 => {
                let other = TURNS[dice.below(TURNS.len())];
                let start = dice.place(other);
                text.insert_str(left, &other[start..]);
            }
            _ => {
                let letter = char::from_u32(dice.below(0x300) as u32).unwrap_or('\u{fffd}');
                text.insert(left, letter);
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let inputs = numbers.first().copied().unwrap_or(1_000_000) as usize;
    let mut dice = Dice(
        numbers
            .get(1)
            .copied()
            .unwrap_or(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            | 1,
    );
    let (mut bytes, mut actions, mut found_calls) = (0_usize, 0_usize, 0_usize);
    let mut text = String::new();
    let began = Instant::now();
    for _ in 0..inputs {
        mutated(&mut dice, &mut text);
        let [calls, acts] = read_turn(&text, dice.place(&text));
        found_calls += calls;
        actions += acts;
        bytes += text.len();
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{{\"bench\":\"parser_fuzz\",\"held\":true,\"figures\":{{\"inputs\":{inputs},\"seconds\":{seconds:.1},\
         \"inputs_per_second\":{:.0},\"mean_bytes\":{:.0},\"actions\":{actions},\"calls\":{found_calls}}}}}",
        inputs as f64 / seconds,
        bytes as f64 / inputs.max(1) as f64,
    );
    Ok(())
}
