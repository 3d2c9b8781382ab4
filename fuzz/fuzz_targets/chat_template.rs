//! Any text is a chat template: it renders a conversation, or says why not, and comes to an end.

#![no_main]

use forage_env::chat::{ChatTemplate, Conversation, SpecialTokens};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::from_source(source, SpecialTokens::default()) else {
        return;
    };
    let conversation = Conversation {
        messages: vec![
            json!({"role": "user", "content": "Who?"}),
            json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}),
            json!({"role": "tool", "content": "é 東京"}),
        ],
        tools: vec![json!({"type": "function", "function": {"name": "f"}})],
        add_generation_prompt: true,
        ..Conversation::default()
    };
    let _ = template.render(&conversation);
});
