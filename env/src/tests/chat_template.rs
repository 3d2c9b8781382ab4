//! Chat templates against transformers, conversations that only grow, and tool calls that the templates write.

use std::path::Path;

use forage_env::chat::Delta;
use forage_env::chat::{ChatError, ChatTemplate, Conversation, Renderer, SpecialTokens, hermes};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const NAMES: [&str; 2] = ["qwen2.5", "qwen3"];

/// What is appended after `turn`, which may have ended itself.
fn after(delta: &Delta, turn: &str) -> String {
    let ended = !delta.end.is_empty() && turn.ends_with(&delta.end);
    [if ended { "" } else { &delta.end }, &delta.rest].concat()
}

fn fixture() -> Value {
    serde_json::from_str(include_str!("../../tests/fixtures/chat_templates.json"))
        .expect("the fixture is JSON")
}

/// A published template; nothing, with a printed reason, where the shared data are missing.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn published(name: &str) -> Option<ChatTemplate> {
    let file = format!("../../shared/data/qwen/chat_template.{name}.jinja");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let Ok(source) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: {} is missing", path.display());
        return None;
    };
    Some(ChatTemplate::from_source(&source, SpecialTokens::default()).expect("a template"))
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn render(
    source: &str,
    messages: Vec<Value>,
    options: Map<String, Value>,
) -> Result<String, ChatError> {
    let template = ChatTemplate::from_source(source, SpecialTokens::default())?;
    template.render(&Conversation {
        messages,
        options,
        ..Conversation::default()
    })
}

#[test]
fn qwen_templates_render_as_in_transformers() {
    let fixture = fixture();
    for name in NAMES {
        let Some(template) = published(name) else {
            return;
        };
        for case in list(&fixture["cases"]) {
            let conversation = Conversation {
                messages: list(&fixture["messages"][case["name"].as_str().expect("named")]),
                tools: if case["tools"] == true {
                    list(&fixture["tools"])
                } else {
                    Vec::new()
                },
                add_generation_prompt: case["prompt"] == true,
                options: object(&case["options"]),
            };
            let rendered = template.render(&conversation);
            assert_eq!(
                rendered.as_deref().ok(),
                case[name].as_str(),
                "{name}: {} {rendered:?}",
                case["name"]
            );
        }
    }
}

/// The templates of Llama 3.1 and `OLMo` 2 in form, with what is peculiar to each.
#[test]
fn templates_of_other_families_render_as_in_transformers_and_append() {
    let fixture = fixture();
    for family in list(&fixture["families"]) {
        let (name, options) = (&family["name"], object(&family["options"]));
        let source = family["template"].as_str().expect("text");
        let template = ChatTemplate::from_source(source, SpecialTokens::default()).expect("Jinja");
        for case in list(&family["cases"]) {
            let conversation = Conversation {
                messages: list(&fixture["messages"][case["name"].as_str().expect("named")]),
                tools: if case["tools"] == true {
                    list(&fixture["tools"])
                } else {
                    Vec::new()
                },
                add_generation_prompt: case["prompt"] == true,
                options: options.clone(),
            };
            let rendered = template.render(&conversation);
            assert_eq!(
                rendered.as_deref().ok(),
                case["text"].as_str(),
                "{name}: {} {rendered:?}",
                case["name"]
            );
        }
        let renderer = Renderer::new(template, Vec::new(), options).expect("appends");
        let delta = renderer.delta(&[user("b")]).expect("appends");
        let (end, rest) = match name.as_str() {
            Some("olmo2") => ("<|endoftext|>", "\n<|user|>\nb\n<|assistant|>\n"),
            _ => (
                "<|eot_id|>",
                "<|start_header_id|>user<|end_header_id|>\n\nb<|eot_id|>\
                 <|start_header_id|>assistant<|end_header_id|>\n\n",
            ),
        };
        assert_eq!((delta.end.as_str(), delta.rest.as_str()), (end, rest));
    }
}

#[test]
fn features_of_templates_work_as_in_transformers() {
    for case in list(&fixture()["features"]) {
        let source = case["template"].as_str().expect("text");
        let rendered = render(source, list(&case["messages"]), object(&case["options"]));
        assert_eq!(
            rendered.as_deref().ok(),
            case["text"].as_str(),
            "{source}\n{rendered:?}"
        );
    }
}

#[test]
fn errors_name_the_place_and_the_mend() {
    let error = |source: &str| render(source, Vec::new(), Map::new()).expect_err("fails");
    let refused = error("a\n{{ raise_exception('roles must alternate') }}");
    assert!(matches!(refused, ChatError::Refused { .. }));
    assert_eq!(
        refused.to_string(),
        "chat template `(given)` line 2 refuses the conversation: roles must alternate"
    );
    let nested = error("{% macro m() %}\n{{ raise_exception('deep') }}{% endmacro %}\n{{ m() }}");
    assert!(
        matches!(nested, ChatError::Refused { ref message, .. } if message == "deep"),
        "{nested}"
    );
    let syntax = error("\n\n{% trans %}x{% endtrans %}");
    assert_eq!(
        syntax.to_string(),
        "chat template `(given)` line 3: unknown statement trans; fix the template or give another one"
    );
    let failed = error("\n{{ messages[0].content }}");
    assert!(
        matches!(failed, ChatError::Render { ref place, .. } if place.ends_with("line 2")),
        "{failed}"
    );
}

#[test]
fn templates_that_do_not_end_are_stopped() {
    for (source, limit) in [
        (
            "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
            "fuel",
        ),
        (
            "{% macro m() %}{% for b in range(90000) %}{% for c in range(90000) %}{% endfor %}{% endfor %}{% endmacro %}{{ m() }}",
            "fuel",
        ),
        (
            "{% for a in range(90000) %}{{ 'x' * 10000000 }}{% endfor %}",
            "64 MiB",
        ),
    ] {
        let error = render(source, Vec::new(), Map::new()).expect_err("fails");
        assert!(matches!(error, ChatError::Endless { .. }), "{error}");
        assert!(error.to_string().contains(limit), "{error}");
    }
    let deep = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    render(deep, Vec::new(), Map::new()).expect_err("a macro that calls itself");
}

#[test]
fn mutated_templates_render_or_fail() {
    let source = "{% for m in messages %}{% if m.role == 'user' and loop.index0 > 0 %}{{ '<|im_start|>' ~ m['role'] + '\\n' }}\
                  {%- set t = m.content | trim | tojson %}{{ t[1:-1].split('a')[-1] }}{% else %}{{ raise_exception('no') }}\
                  {% endif %}{%- endfor %}{{ 1 // 2 ** 3 % 4 }}";
    let parts = [
        "{%", "%}", "{{", "}}", "-", "9", "0", "(", ")", "[", "]", "*", "|", "'", " if ", ".", ":",
        "é",
    ];
    let messages = vec![serde_json::json!({"role": "user", "content": " banana "}); 2];
    let mut rendered = 0;
    for place in (0..source.len()).filter(|&place| source.is_char_boundary(place)) {
        for part in parts {
            for kept in [place, (place + 1).min(source.len())] {
                let mutated = format!("{}{part}{}", &source[..place], &source[kept..]);
                rendered += usize::from(render(&mutated, messages.clone(), Map::new()).is_ok());
            }
        }
    }
    assert!(rendered > 0);
}

#[test]
fn time_is_given_or_there_is_none() {
    let source = "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y %H:%M:%S %j %A %-d %I%p %y') }}{% else %}no{% endif %}";
    let template = ChatTemplate::from_source(source, SpecialTokens::default()).expect("a template");
    let text =
        |template: &ChatTemplate| template.render(&Conversation::default()).expect("renders");
    assert_eq!(text(&template), "no");
    // Written by Python's datetime.fromtimestamp(s, UTC).strftime(...).
    for (seconds, expected) in [
        (0, "01 Jan 1970 00:00:00 001 Thursday 1 12AM 70"),
        (951_782_399, "28 Feb 2000 23:59:59 059 Monday 28 11PM 00"),
        (951_868_800, "01 Mar 2000 00:00:00 061 Wednesday 1 12AM 00"),
        (1_735_646_400, "31 Dec 2024 12:00:00 366 Tuesday 31 12PM 24"),
        (-86_400, "31 Dec 1969 00:00:00 365 Wednesday 31 12AM 69"),
    ] {
        assert_eq!(text(&template.clone().with_time(seconds)), expected);
    }
}

#[test]
fn templates_of_a_folder_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    let load = || ChatTemplate::load(folder.path());
    assert!(load().expect("no template").is_none());
    write(
        "tokenizer_config.json",
        r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null}"#,
    );
    assert!(load().expect("no template").is_none());
    let config = |template: Value| {
        json!({"eos_token": {"content": "</s>"}, "chat_template": template}).to_string()
    };
    write(
        "tokenizer_config.json",
        &config(
            json!([{"name": "x", "template": "x"}, {"name": "default", "template": "d{{ eos_token }}"}]),
        ),
    );
    let text =
        |template: &ChatTemplate| template.render(&Conversation::default()).expect("renders");
    assert_eq!(text(&load().expect("loads").expect("has one")), "d</s>");
    write(
        "tokenizer_config.json",
        &config(json!([{"name": "x", "template": "x"}])),
    );
    assert!(
        load()
            .expect_err("no default")
            .to_string()
            .contains("tokenizer_config.json")
    );
    write(
        "chat_template.jinja",
        "own{{ eos_token }}{{ bos_token is defined }}",
    );
    assert_eq!(
        text(&load().expect("loads").expect("has one")),
        "own</s>False"
    );
    write("chat_template.jinja", "a\n{% if %}");
    let error = load().expect_err("no Jinja").to_string();
    assert!(error.contains("chat_template.jinja` line 2"), "{error}");
    write("tokenizer_config.json", "{");
    assert!(matches!(load(), Err(ChatError::File { .. })));
}

fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

/// Plays turns through a renderer; checks that pieces only extend, and returns the whole text.
fn played(renderer: &Renderer, opening: &[Value], turns: &[(String, Vec<Value>)]) -> String {
    let mut text = renderer.opening(opening).expect("opens");
    for (turn, messages) in turns {
        text.push_str(turn);
        let before = text.clone();
        text.push_str(&after(&renderer.delta(messages).expect("appends"), turn));
        assert!(text.starts_with(&before));
    }
    text
}

#[test]
fn deltas_close_turns_that_are_open() {
    for name in NAMES {
        let Some(template) = published(name) else {
            return;
        };
        let renderer = Renderer::new(template, Vec::new(), Map::new()).expect("appends");
        assert_eq!(renderer.end(), "<|im_end|>");
        let delta = renderer.delta(&[user("next")]).expect("appends");
        let rest = "\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(
            after(&delta, "<search>x</search>"),
            format!("<|im_end|>{rest}")
        );
        assert_eq!(after(&delta, "done<|im_end|>"), rest);
        let results = [
            json!({"role": "tool", "content": "a"}),
            json!({"role": "tool", "content": "b"}),
        ];
        let rest = "\n<|im_start|>user\n<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response><|im_end|>\n\
                    <|im_start|>assistant\n";
        assert_eq!(renderer.delta(&results).expect("appends").rest, rest);
        assert_eq!(
            renderer.delta(&[]).expect("appends").rest,
            "\n<|im_start|>assistant\n"
        );
        let quoting = renderer
            .delta(&[user("ASSISTANT-TURN-4f1d7c")])
            .expect("appends");
        assert!(
            quoting
                .rest
                .starts_with("\n<|im_start|>user\nASSISTANT-TURN-4f1d7c<|im_end|>")
        );
    }
}

#[test]
fn thoughts_of_earlier_turns_stay() {
    let Some(template) = published("qwen3") else {
        return;
    };
    let options = object(&json!({"enable_thinking": false}));
    let renderer = Renderer::new(template, Vec::new(), options).expect("appends");
    let turns = [(
        "<think>\nhm\n</think>\n\nfirst<|im_end|>".to_owned(),
        vec![user("more")],
    )];
    let text = played(&renderer, &[user("a")], &turns);
    let expected = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n<think>\nhm\n</think>\n\n\
                    first<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(text, expected);
}

/// The shapes of other families: headers around each message (Llama 3), brackets around the user's (Mistral), a role
/// of another name and turns that must alternate (Gemma).
#[test]
fn other_families_append_too() {
    let llama = "{{ bos_token }}{% for m in messages %}{{ '<|h|>' + m.role + '<|/h|>\n\n' + m.content | trim + '<|eot|>' }}\
                 {% endfor %}{% if add_generation_prompt %}{{ '<|h|>assistant<|/h|>\n\n' }}{% endif %}";
    let mistral = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}\
                   {% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}";
    let gemma = "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
                 {{ raise_exception('alternate') }}{% endif %}{% set role = 'model' if m.role == 'assistant' else m.role %}\
                 {{ '<t>' + role + '\n' + m.content | trim + '</t>\n' }}{% endfor %}\
                 {% if add_generation_prompt %}{{ '<t>model\n' }}{% endif %}";
    for (source, end) in [(llama, "<|eot|>"), (mistral, "</s>"), (gemma, "</t>")] {
        let specials = SpecialTokens {
            bos: Some("<s>".to_owned()),
            ..SpecialTokens::default()
        };
        let template = ChatTemplate::from_source(source, specials).expect("a template");
        let renderer = Renderer::new(template.clone(), Vec::new(), Map::new()).expect("appends");
        assert_eq!(renderer.end(), end);
        let turns = [
            ("one".to_owned(), vec![user("b")]),
            (format!("two{end}"), vec![user("c")]),
        ];
        let assistant = |content: &str| json!({"role": "assistant", "content": content});
        let messages = vec![
            user("a"),
            assistant("one"),
            user("b"),
            assistant("two"),
            user("c"),
        ];
        let pieces = renderer.pieces(&messages, &[1, 3]).expect("appends");
        let written: Vec<&str> = pieces
            .iter()
            .filter(|piece| piece.written)
            .map(|piece| piece.text.as_str())
            .collect();
        assert_eq!(written, [format!("one{end}"), format!("two{end}")]);
        let finished = Conversation {
            messages: messages.clone(),
            ..Conversation::default()
        };
        let together: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(together, template.render(&finished).expect("renders"));
        let whole = Conversation {
            messages,
            add_generation_prompt: true,
            ..Conversation::default()
        };
        let text = played(&renderer, &[user("a")], &turns);
        assert_eq!(text, template.render(&whole).expect("renders"));
        assert_eq!(text.matches("<s>").count(), 1);
    }
}

#[test]
fn templates_that_do_not_append_are_refused() {
    let refused = |source: &str| {
        let template =
            ChatTemplate::from_source(source, SpecialTokens::default()).expect("a template");
        Renderer::new(template, Vec::new(), Map::new()).expect_err("refused")
    };
    let last_only =
        "{% for m in messages %}{{ m.content }}{% if loop.last %}<end>{% endif %}{% endfor %}";
    let drops = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
    for source in [last_only, drops] {
        let error = refused(source);
        assert!(matches!(error, ChatError::NotAppending { .. }), "{error}");
        assert!(error.to_string().contains("several turns"), "{error}");
    }
}

#[test]
fn a_finished_conversation_is_cut_where_it_only_grew() {
    let assistant = |content: &str| json!({"role": "assistant", "content": content});
    let messages = [
        user("a"),
        assistant("<think>\nhm\n</think>\n\none"),
        user("b"),
        assistant("two"),
    ];
    for (name, grows) in [("qwen2.5", true), ("qwen3", false)] {
        let Some(template) = published(name) else {
            return;
        };
        let renderer = Renderer::new(template, Vec::new(), Map::new()).expect("appends");
        // Qwen3 strips the thought of the first turn once a second question follows.
        let all = renderer.pieces(&messages, &[1, 3]);
        assert_eq!(all.is_ok(), grows, "{name}");
        if let Err(error) = all {
            assert!(
                matches!(&error, ChatError::NotAppending { message, .. } if message.contains("message 2")),
                "{error}"
            );
        }
        let last = renderer.pieces(&messages, &[3]).expect("appends");
        assert!(
            last[0].text.contains("one<|im_end|>")
                && last[0].text.ends_with("<|im_start|>assistant\n")
        );
        assert!(last[1].written && last[1].text.ends_with("two<|im_end|>"));
        assert_eq!(last[2].text, "\n");
    }
}

#[test]
fn calls_that_templates_write_are_read() {
    let fixture = fixture();
    for case in list(&fixture["cases"]) {
        let messages = list(&fixture["messages"][case["name"].as_str().expect("named")]);
        for name in NAMES {
            let Some(text) = case[name].as_str().filter(|_| case["tools"] == false) else {
                continue;
            };
            let written: Vec<&Value> = messages
                .iter()
                .filter_map(|message| message["tool_calls"].as_array())
                .flatten()
                .collect();
            let read = hermes::parse(text).calls;
            assert_eq!(read.len(), written.len(), "{text}");
            for (read, written) in read.iter().zip(written) {
                let function = written.get("function").unwrap_or(written);
                assert_eq!(function["name"], read.name.as_str());
                // Qwen2.5 quotes arguments that are given as a string, Qwen3 does not; both are read as objects.
                let arguments = &function["arguments"];
                let arguments = arguments
                    .as_str()
                    .map(|text| serde_json::from_str(text).expect("JSON"));
                assert_eq!(
                    arguments.as_ref().unwrap_or(&function["arguments"]),
                    &read.arguments
                );
            }
        }
    }
}

/// Contents without thoughts, tags and outer white space, which templates treat in ways of their own.
fn content() -> impl Strategy<Value = String> {
    "[a-zé漢😀]([a-z \n漢.{}%\"]{0,12}[a-z.])?"
}

/// What follows a turn: a message of the user, or results of tools.
fn between() -> impl Strategy<Value = Vec<Value>> {
    let results = proptest::collection::vec(content(), 1..3);
    prop_oneof![
        content().prop_map(|text| vec![user(&text)]),
        results.prop_map(|texts| texts
            .iter()
            .map(|text| json!({"role": "tool", "content": text}))
            .collect()),
    ]
}

/// Any JSON, often shaped like a message.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z<>/|_ \n{}%é]{0,12}".prop_map(Value::from),
        Just(json!("user")),
        Just(json!("assistant")),
        Just(json!("tool")),
        Just(json!("</think>")),
    ];
    let key = prop_oneof![
        Just("role".to_owned()),
        Just("content".to_owned()),
        Just("tool_calls".to_owned()),
        Just("function".to_owned()),
        Just("reasoning_content".to_owned()),
        "[a-z]{1,4}",
    ];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn pieces_add_up_to_the_whole(
        system in proptest::option::of(content()),
        first in content(),
        turns in proptest::collection::vec((content(), between()), 1..5),
    ) {
        let mut messages: Vec<Value> = system.iter().map(|text| json!({"role": "system", "content": text})).collect();
        messages.push(user(&first));
        for name in NAMES {
            let Some(template) = published(name) else { return Ok(()) };
            let renderer = Renderer::new(template.clone(), Vec::new(), Map::new()).expect("appends");
            let text = played(&renderer, &messages, &turns);
            let mut all = messages.clone();
            for (turn, between) in &turns {
                all.push(json!({"role": "assistant", "content": turn}));
                all.extend_from_slice(between);
            }
            let whole = Conversation { messages: all, add_generation_prompt: true, ..Conversation::default() };
            prop_assert_eq!(text, template.render(&whole).expect("renders"), "{}", name);
        }
    }

    #[test]
    fn any_messages_render_or_are_refused(
        messages in proptest::collection::vec(anything(), 0..4),
        tools in proptest::collection::vec(anything(), 0..2),
        options in proptest::collection::vec(("[a-z_]{1,8}", anything()), 0..3),
    ) {
        for name in NAMES {
            let Some(template) = published(name) else { return Ok(()) };
            let conversation = Conversation {
                messages: messages.clone(),
                tools: tools.clone(),
                add_generation_prompt: true,
                options: options.iter().cloned().collect(),
            };
            if let Ok(text) = template.render(&conversation) {
                prop_assert!(text.ends_with("<|im_start|>assistant\n"));
            }
            let renderer = Renderer::new(template, tools.clone(), Map::new());
            if let Ok(delta) = renderer.and_then(|renderer| renderer.delta(&messages)) {
                prop_assert_eq!(delta.end, "<|im_end|>");
            }
        }
    }

    #[test]
    fn any_template_compiles_or_is_refused(
        pieces in proptest::collection::vec(prop_oneof![
            Just("{% ".to_owned()), Just(" %}".to_owned()), Just("{{ ".to_owned()), Just(" }}".to_owned()),
            Just("generation".to_owned()), Just("endgeneration".to_owned()), Just("for m in messages".to_owned()),
            Just("endfor".to_owned()), Just("m.content".to_owned()), Just(" | tojson".to_owned()), "[ -~\n]{0,4}",
        ], 0..12),
    ) {
        let _ = render(&pieces.concat(), vec![user("a")], Map::new());
    }
}
