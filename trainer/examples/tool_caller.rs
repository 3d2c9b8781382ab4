//! Trains a tiny chat model that calls a tool, for checks of the policy server: `tool_caller OUT_FOLDER`.

#[path = "../src/tests/tool_caller.rs"]
mod tool_caller;

fn main() {
    let folder = std::env::args()
        .nth(1)
        .expect("usage: tool_caller OUT_FOLDER");
    tool_caller::write(std::path::Path::new(&folder));
}
