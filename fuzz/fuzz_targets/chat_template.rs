//! Any text is a chat template: it renders a conversation, at once and piece by piece, or says why not, and comes to an end.

#![no_main]

use forage_env::chat::{ChatTemplate, Conversation, Renderer, SpecialTokens};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, json};

fuzz_target!(|source: &str| {
    let named = |text: &str| Some(text.to_owned());
    let specials = SpecialTokens {
        bos: named("<|begin|>"),
        eos: named("<|end|>"),
        pad: None,
        unk: None,
    };
    let Ok(template) = ChatTemplate::from_source(source, specials) else {
        return;
    };
    let conversation = Conversation {
        messages: vec![
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "Who?"}),
            json!({"role": "assistant", "content": "", "reasoning_content": "So.", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}),
            json!({"role": "tool", "content": "é 東京"}),
        ],
        tools: vec![json!({"type": "function", "function": {"name": "f"}})],
        add_generation_prompt: true,
        ..Conversation::default()
    };
    let rendered = template.render(&conversation);
    if let Ok(text) = &rendered {
        let again = template.render(&conversation);
        assert_eq!(again.ok().as_ref(), Some(text), "it renders otherwise");
    }
    if let Ok(renderer) = Renderer::new(template, conversation.tools, Map::new()) {
        let _ = renderer.opening(&conversation.messages);
    }
});
