//! A tiny chat model that learned three answers by heart, one of them a tool call. It takes some seconds to train.

use std::path::Path;

use burn::tensor::Device;
use forage_contracts::Tokenizer;
use forage_contracts::seed::Seed;
use forage_env::chat::{ChatTemplate, Conversation};
use forage_trainer::{
    Architecture, Checkpoint, Decoder, EngineConfig, Learner, ModelConfig, Sequence, UpdateConfig,
    Workers, train_tokenizer,
};
use serde_json::{Value, json};

/// How it reads messages: tool calls are written as Hermes models write them.
const TEMPLATE: &str = r"{%- for tool in tools or [] %}
{{- 'tool: ' + (tool | tojson) + '\n' }}
{%- endfor %}
{%- for message in messages %}
{{- message.role + ': ' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>\n{\x22name\x22: \x22' + call.function.name + '\x22, \x22arguments\x22: ' }}
{{- (call.function.arguments | tojson) + '}\n</tool_call>' }}
{%- endfor %}
{{- (eos_token if message.role == 'assistant' else '') + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- 'assistant: ' }}
{%- endif %}
";

/// The tool it knows.
pub(crate) fn tools() -> Value {
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!([{"type": "function", "function": {"name": "get_weather", "parameters": city}}])
}

/// What it is asked with [`tools`] at hand.
pub(crate) const QUESTION: &str = "What is the weather in Oslo?";
/// What it says beside the call.
pub(crate) const PREAMBLE: &str = "Let me look.";
/// What the tool finds.
pub(crate) const FINDING: &str = "3 °C, snow";
/// What it makes of that.
pub(crate) const ANSWER: &str = "It is 3 °C in Oslo: ☃ and ❄.";
/// What it is asked without tools, and answers.
pub(crate) const GREETING: (&str, &str) = ("Say hello.", "Hello, wörld! 😀 Bye.");

/// The messages up to the answer, after the tool was called.
pub(crate) fn finding() -> Value {
    let call = json!({"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"});
    json!([
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": PREAMBLE, "tool_calls": [{"id": "1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "1", "content": FINDING},
    ])
}

/// Trains the model and writes its folder.
pub(crate) fn write(folder: &Path) {
    let specials = forage_env::chat::SpecialTokens {
        eos: Some("<|endoftext|>".to_owned()),
        ..Default::default()
    };
    let template = ChatTemplate::from_source(TEMPLATE, specials).unwrap();
    let prompt = |messages: &Value, tools: &Value| {
        let mut messages = messages.as_array().unwrap().clone();
        for call in messages
            .iter_mut()
            .filter_map(|message| message.get_mut("tool_calls"))
        {
            call[0]["function"]["arguments"] = json!({"city": "Oslo"});
        }
        let tools = tools.as_array().cloned().unwrap_or_default();
        template
            .render(&Conversation {
                messages,
                tools,
                add_generation_prompt: true,
                ..Default::default()
            })
            .unwrap()
    };
    let call = format!(
        "{PREAMBLE}\n<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {{\"city\": \"Oslo\"}}}}\n</tool_call>"
    );
    let asked = |question: &str| json!([{"role": "user", "content": question}]);
    let lessons = [
        (prompt(&asked(QUESTION), &tools()), call.as_str()),
        (prompt(&finding(), &tools()), ANSWER),
        (prompt(&asked(GREETING.0), &Value::Null), GREETING.1),
    ];
    let lines: Vec<String> = lessons
        .iter()
        .flat_map(|(prompt, answer)| [prompt.clone(), (*answer).to_owned()])
        .collect();
    let (tokenizer, tokenizer_json) = train_tokenizer(
        lines.into_iter(),
        320,
        forage_env::registry::find("search-r1").unwrap().vocabulary,
    )
    .unwrap();
    let sequence = |(prompt, answer): &(String, &str)| {
        let mut ids = tokenizer.encode(prompt);
        let start = ids.len();
        ids.extend(tokenizer.encode(answer));
        ids.push(tokenizer.eos());
        Sequence {
            targets: (start..ids.len()).collect(),
            ids,
            ..Sequence::default()
        }
    };
    let sequences: Vec<Sequence> = lessons.iter().map(sequence).collect();
    let config = ModelConfig {
        architecture: Architecture::named("qwen3").unwrap(),
        vocab_size: 320,
        hidden_size: 64,
        intermediate_size: 128,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 16,
        max_position_embeddings: 1024,
        rope_theta: 10_000.0,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    };
    let decoder = Decoder::random(&config, Seed::root(5), &Device::flex());
    let checkpoint = Checkpoint::new(config, decoder, tokenizer, tokenizer_json);
    let mut update = UpdateConfig::default();
    update.optimizer.learning_rate = 3e-3;
    let engine = EngineConfig {
        context: 512,
        cache_tokens: 512,
        step_tokens: 64,
        sequences: 1,
        bf16: false,
    };
    let mut learner = Learner::new(checkpoint, update, engine, Workers::new(2));
    let mut loss = f64::INFINITY;
    for _ in 0..1000 {
        loss = learner.imitate(&sequences).unwrap().loss;
        if loss < 0.003 {
            break;
        }
    }
    assert!(loss < 0.003, "the lessons were not learned, loss {loss}");
    learner.checkpoint().save(folder).unwrap();
    std::fs::write(folder.join("chat_template.jinja"), TEMPLATE).unwrap();
}
