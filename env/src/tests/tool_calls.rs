//! Tool calls in every environment: schemas through the chat template, results as tool messages, faults in words.

use std::path::Path;
use std::sync::Arc;

use forage_contracts::environment::EnvFactory;
use forage_contracts::policy::Sampling;
use forage_contracts::scripted::Scripted;
use forage_contracts::{ByteTokenizer, Ending, Episode, Limit, Resources, Task, Tokenizer};

use super::common::{jobs, library, pages, task};
use forage_env::Wiki;
use forage_env::chat::{ChatTemplate, SpecialTokens};
use forage_env::code_search::CodeTurn;
use forage_env::query_writer::QueryTurn;
use forage_env::registry::make;
use forage_env::reward::RewardSet;
use forage_env::rollout::{ChatSettings, Presentation, Rollout};
use forage_env::search_r1::{Profile, SearchR1, SearchR1Settings};
use forage_env::tokenizer::HfTokenizer;
use forage_retriever::{Bm25Retriever, Passage};
use serde_json::{Value, json};

/// A template with the Hermes form of tools, in bytes: the tests of the protocol need no published files.
const HERMES: &str = "{% if tools %}[tools]{% for tool in tools %}{{ tool | tojson }}{% endfor %}[/tools]{% endif %}\
    {% for message in messages %}[{{ message.role }}]{{ message.content }}[end]{% endfor %}\
    {% if add_generation_prompt %}[assistant]{% endif %}";

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::from_source(source, SpecialTokens::default()).expect("a template")
}

fn call(name: &str, arguments: &Value) -> String {
    format!(
        "<tool_call>\n{}\n</tool_call>",
        json!({"name": name, "arguments": arguments})
    )
}

/// Settings with room for a token per byte.
fn wide(written: Value) -> SearchR1Settings {
    let mut settings = SearchR1Settings::from_value(written).expect("settings");
    (settings.max_turn_tokens, settings.max_episode_tokens) = (2000, 30_000);
    settings.observation.limit_tokens = 0;
    settings
}

fn environment(settings: SearchR1Settings) -> Arc<dyn EnvFactory> {
    SearchR1::factory(settings, library(), Arc::new(ByteTokenizer)).expect("settings are valid")
}

async fn play(
    factory: Arc<dyn EnvFactory>,
    presentation: Presentation,
    tokenizer: Arc<dyn Tokenizer>,
    lines: &[&str],
    task: Task,
) -> Episode {
    let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
    let policy = Scripted::human(Arc::clone(&tokenizer), move |view| {
        lines.get(view.shown.len()).or(lines.last()).cloned()
    });
    let rewards = Arc::new(RewardSet::measure(factory.spec().outcome));
    let presentation = presentation
        .with_tools(&factory.spec().tools)
        .expect("the template knows tools");
    let rollout = Rollout {
        policy: Arc::new(policy),
        tokenizer,
        factory,
        rewards,
        sampling: Sampling::FULL,
        presentation,
    };
    rollout.run(jobs(task, 1)).await.remove(0)
}

/// Plays in bytes with [`HERMES`]; gives the episode and its whole text.
async fn in_bytes(factory: Arc<dyn EnvFactory>, lines: &[&str]) -> (Episode, String) {
    let presentation =
        Presentation::chat(template(HERMES), ChatSettings::default()).expect("appends");
    let episode = play(
        factory,
        presentation,
        Arc::new(ByteTokenizer),
        lines,
        task(),
    )
    .await;
    let text = ByteTokenizer.decode(episode.tokens.ids());
    (episode, text)
}

#[tokio::test]
async fn searches_are_called_and_results_are_messages() {
    let search = |query: &str| call("search", &json!({"query": query}));
    let two = [search("mayor of Orlen"), search("Ada Brandt born")].concat();
    let settings = wide(json!({"form": "tool_calls"}));
    let (episode, text) = in_bytes(environment(settings), &[&two, "<answer>Velm</answer>"]).await;
    assert_eq!(
        (&episode.ending, episode.reward()),
        (&Ending::Answered, Some(1.0))
    );
    assert_eq!(
        episode.queries().collect::<Vec<_>>(),
        ["mayor of Orlen", "Ada Brandt born"]
    );
    let calls = episode.turns[0].kind.calls();
    assert_eq!(calls.len(), 2, "a call is a record");
    let shown = &calls[1].shown;
    assert!(shown.contains(&"Ada Brandt".to_owned()), "{shown:?}");
    assert!(
        text.starts_with("[tools]{\"type\": \"function\", \"function\": {\"name\": \"search\", "),
        "{text}"
    );
    assert_eq!(
        text.matches("[tool]Doc 1(Title: ").count(),
        2,
        "a message for each call: {text}"
    );
    assert!(
        !text.contains("<information>"),
        "no wrapper within a message: {text}"
    );
    let score = episode.score.expect("scored");
    assert!((score.parts["retrieval"] - 1.0).abs() < 1e-6);
}

#[tokio::test]
async fn faults_of_calls_are_told_in_the_place_of_results() {
    let (episode, text) = in_bytes(
        environment(wide(json!({"form": "tool_calls", "max_generations": 5}))),
        &[
            &call("serch", &json!({})),
            "<tool_call>{broken</tool_call>",
            "nothing",
            "<answer>Velm</answer>",
        ],
    )
    .await;
    assert_eq!(episode.reward(), Some(1.0));
    assert!(
        text.contains("[tool]there is no tool `serch`; did you mean `search`?[end]"),
        "{text}"
    );
    assert!(text.contains("[tool]the tool call is not JSON"), "{text}");
    assert!(
        text.contains("[user]\nThat was not a valid action. To search, call the tool search."),
        "{text}"
    );
    let faults: Vec<bool> = episode
        .turns
        .iter()
        .map(|turn| turn.kind.is_invalid())
        .collect();
    assert_eq!(faults, [true, true, true, false]);
    let last = in_bytes(
        environment(wide(json!({"form": "tool_calls", "max_generations": 1}))),
        &["nothing"],
    )
    .await
    .0;
    assert_eq!(
        last.ending,
        Ending::Truncated {
            limit: Limit::Turns
        }
    );
}

#[tokio::test]
async fn profiles_with_calls_play_as_published() {
    let list = call(
        "search",
        &json!({"query_list": ["mayor of Orlen", "Ada Brandt born"]}),
    );
    let written = |name: &str| json!({"profile": name});
    let (tinker, text) = in_bytes(
        environment(wide(written("tinker"))),
        &[&list, "It is so. Answer: velm"],
    )
    .await;
    assert_eq!(
        (tinker.answer(), tinker.reward()),
        (Some("velm"), Some(1.0))
    );
    assert!(
        text.contains("[tool]Query: mayor of Orlen\nDocument 1:\n")
            && text.contains("\nQuery: Ada Brandt born\n")
    );
    let (malformed, _) = in_bytes(environment(wide(written("tinker"))), &[&list, "Velm"]).await;
    assert!(matches!(malformed.ending, Ending::Malformed { .. }));
    // verl runs the first call alone and none of the second generation.
    let both = [list.as_str(), &list].concat();
    let (verl, text) = in_bytes(environment(wide(written("verl"))), &[&both, &list]).await;
    assert_eq!(
        verl.ending,
        Ending::Truncated {
            limit: Limit::Turns
        }
    );
    assert!(
        text.matches("[tool]{\"result\": \"").count() == 1 && text.contains("...(truncated)..."),
        "{text}"
    );
    let single = call("search", &json!({"query": "Ada Brandt born"}));
    let (titan, _) = in_bytes(
        environment(wide(written("torchtitan"))),
        &["<tool_call>?</tool_call>", &single, "Velm."],
    )
    .await;
    assert_eq!((titan.answer(), titan.reward()), (Some("Velm."), Some(1.0)));
    assert_eq!(
        titan.queries().collect::<Vec<_>>(),
        ["", "Ada Brandt born"],
        "a broken call searches for nothing"
    );
}

#[tokio::test]
async fn silent_closing_turns_run_no_search() {
    let settings = SearchR1Settings {
        max_generations: 1,
        ..wide(json!({"profile": "search_r1_v02"}))
    };
    assert_eq!(environment(settings.clone()).spec().max_turns, 2);
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(ByteTokenizer);
    let search = "<search>mayor of Orlen</search>";
    let played = |lines: &'static [&'static str]| {
        play(
            environment(settings.clone()),
            Presentation::RAW,
            Arc::clone(&tokenizer),
            lines,
            task(),
        )
    };
    let episode = played(&["<search>mayor of Orlen</search>"]).await;
    assert_eq!(episode.turns.len(), 2);
    assert!(
        episode.turns[0].observation.ends_with("</information>\n\n"),
        "nothing announces the last turn"
    );
    assert_eq!(episode.turns[1].policy, search);
    assert!(episode.turns[1].kind.calls()[0].shown.is_empty());
    let answered = played(&["<search>mayor of Orlen</search>", "<answer>Velm</answer>"]).await;
    assert_eq!(answered.reward(), Some(1.0));
}

fn resources(tokenizer: Arc<dyn Tokenizer>) -> Resources {
    let wiki = Arc::new(Wiki::in_memory(&pages()).expect("a wiki"));
    let passages = pages()
        .into_iter()
        .map(|page| Passage {
            id: page.title.clone(),
            ..page
        })
        .collect();
    let retriever = Bm25Retriever::in_memory(passages).expect("an index");
    Resources::new(Arc::new(retriever), tokenizer).with_open_wiki(wiki)
}

#[tokio::test]
async fn pages_are_read_by_calls() {
    let settings = json!({
        "form": "function_calls", "answer": "message", "tools": "template",
        "max_turn_tokens": 2000, "max_episode_tokens": 30_000,
    });
    let factory =
        make("code-search", settings, resources(Arc::new(ByteTokenizer))).expect("an environment");
    let names = |factory: &Arc<dyn EnvFactory>| -> Vec<String> {
        let tools = factory.spec().tools.iter();
        tools
            .map(|tool| {
                tool["function"]["name"]
                    .as_str()
                    .expect("a name")
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(
        names(&factory),
        ["search_pages", "view_sections", "read_section"]
    );
    let turns = [
        [
            call("search_pages", &json!({"query": "Orlen"})),
            call("read_section", &json!({"sectionid": "x"})),
        ]
        .concat(),
        call("read_section", &json!({"section_id": "ada_brandt:full"})),
        "Velm".to_owned(),
    ];
    let turns: Vec<&str> = turns.iter().map(String::as_str).collect();
    let (episode, text) = in_bytes(factory, &turns).await;
    assert_eq!(episode.reward(), Some(1.0));
    assert!(
        !text.contains("<tool_response>"),
        "the template has its own: {text}"
    );
    assert!(
        text.contains("unexpected keyword argument 'sectionid'; it takes section_id[end]"),
        "{text}"
    );
    assert!(text.contains("was born in Velm"), "{text}");
    let python = json!({"form": "python_calls", "tools": "template"});
    let python =
        make("code-search", python, resources(Arc::new(ByteTokenizer))).expect("an environment");
    assert_eq!(names(&python), ["python"]);
    assert!(
        python.spec().tools[0]["function"]["description"]
            .as_str()
            .is_some_and(|text| text.contains("search_pages(query, n)"))
    );
}

#[tokio::test]
async fn a_turn_calls_functions_as_often_as_a_program_may() {
    let settings = json!({
        "form": "function_calls", "answer": "message", "tools": "template", "limits": {"calls": 2},
        "max_turn_tokens": 2000, "max_episode_tokens": 30_000,
    });
    let factory =
        make("code-search", settings, resources(Arc::new(ByteTokenizer))).expect("an environment");
    let search = |query: &str| call("search_pages", &json!({"query": query}));
    let three = [search("Orlen"), search("Ada Brandt"), search("Velm")].concat();
    let (episode, text) = in_bytes(factory, &[&three, "Velm"]).await;
    let turn = CodeTurn::of(&episode.turns[0].kind).expect("calls of functions");
    let asked = turn.calls.iter().map(|call| call.argument.as_str());
    assert_eq!(asked.collect::<Vec<_>>(), ["Orlen", "Ada Brandt"]);
    assert_eq!(text.matches("[tool]").count(), 3, "{text}");
    assert_eq!(text.matches("not run: a turn may have 2 calls").count(), 1);
    assert_eq!(episode.reward(), Some(1.0));
}

#[tokio::test]
async fn queries_are_submitted_by_calls() {
    let settings =
        json!({"form": "tool_calls", "max_turn_tokens": 2000, "max_episode_tokens": 30_000});
    let factory = |settings| {
        make("query-writer", settings, resources(Arc::new(ByteTokenizer))).expect("an environment")
    };
    let submitted = call("submit_query", &json!({"query": "Orlen AND mayor"}));
    let turn = ["I need the town.\n", &submitted].concat();
    let (episode, text) = in_bytes(factory(settings.clone()), &[&turn]).await;
    let written = QueryTurn::of(&episode).expect("a query");
    assert_eq!(
        (written.query.as_str(), written.reasoning_words),
        ("Orlen AND mayor", 4)
    );
    assert!(
        text.contains("\"name\": \"submit_query\"") && text.contains("call the tool submit_query"),
        "{text}"
    );
    let wrong = call("submit_query", &json!({"text": "Orlen"}));
    let (episode, _) = in_bytes(factory(settings), &[&wrong]).await;
    let Ending::Malformed { fault } = &episode.ending else {
        panic!("{:?}", episode.ending)
    };
    assert!(
        fault.contains("has no argument `text`; there are query"),
        "{fault}"
    );
}

/// A tokenizer that drops what stands between brackets, as one with special tokens for calls may.
struct Dropping;

impl Tokenizer for Dropping {
    fn encode(&self, text: &str) -> Vec<u32> {
        ByteTokenizer.encode(text)
    }

    fn decode(&self, ids: &[u32]) -> String {
        ByteTokenizer
            .decode(ids)
            .replace("<tool_call>", "")
            .replace("</tool_call>", "")
    }

    fn eos(&self) -> u32 {
        ByteTokenizer.eos()
    }

    fn vocab_size(&self) -> usize {
        ByteTokenizer.vocab_size()
    }
}

#[test]
fn what_cannot_work_is_refused_at_start_with_the_mend() {
    let tools = environment(Profile::Torchtitan.settings())
        .spec()
        .tools
        .clone();
    let raw = Presentation::RAW
        .with_tools(&tools)
        .expect_err("no template")
        .to_string();
    assert!(raw.contains("add [policy.chat]"), "{raw}");
    let chat = |source: &str| {
        Presentation::chat(template(source), ChatSettings::default()).expect("appends")
    };
    let ignoring = HERMES.replace("{% if tools %}", "{% if false %}");
    let error = chat(&ignoring)
        .with_tools(&tools)
        .expect_err("ignores tools")
        .to_string();
    assert!(
        error.contains("shows nothing of the environment's tools")
            && error.contains("form = \"tags\""),
        "{error}"
    );
    let silent = HERMES.replace(
        "[{{ message.role }}]{{ message.content }}",
        "{% if message.role != 'tool' %}[{{ message.role }}]{{ message.content }}{% endif %}",
    );
    let error = chat(&silent)
        .with_tools(&tools)
        .expect_err("drops results")
        .to_string();
    assert!(error.contains("leaves out what a tool returns"), "{error}");
    assert!(chat(HERMES).with_tools(&tools).is_ok() && Presentation::RAW.with_tools(&[]).is_ok());
    for (id, settings) in [
        ("search-r1", json!({"profile": "verl"})),
        ("code-search", json!({"form": "function_calls"})),
        ("query-writer", json!({"form": "tool_calls"})),
    ] {
        let error = make(id, settings, resources(Arc::new(Dropping)))
            .err()
            .expect("refused");
        let cause = std::error::Error::source(&error)
            .expect("a cause")
            .to_string();
        assert!(
            cause.contains("does not give <tool_call> back"),
            "{id}: {cause}"
        );
    }
    let mixed = make(
        "code-search",
        json!({"tools": "template"}),
        resources(Arc::new(ByteTokenizer)),
    )
    .err();
    assert!(mixed.is_some(), "tags have no tool");
}

/// A Qwen model's files; nothing, with a printed reason, where the shared data are missing.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn qwen(name: &str) -> Option<(ChatTemplate, Arc<dyn Tokenizer>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/qwen");
    let Ok(source) = std::fs::read_to_string(folder.join(format!("chat_template.{name}.jinja")))
    else {
        eprintln!("skipped: {} is missing", folder.display());
        return None;
    };
    let file = folder.join(format!("tokenizer.{name}.json"));
    let tokenizer = HfTokenizer::from_file(&file, "<|im_end|>").expect("a tokenizer");
    Some((template(&source), Arc::new(tokenizer)))
}

#[tokio::test]
async fn qwen_reads_tools_and_results_as_its_template_writes_them() {
    for name in ["qwen2.5", "qwen3"] {
        let Some((template, tokenizer)) = qwen(name) else {
            return;
        };
        let chat = Presentation::chat(template.clone(), ChatSettings::default()).expect("appends");
        let settings =
            SearchR1Settings::from_value(json!({"form": "tool_calls"})).expect("settings");
        let factory =
            SearchR1::factory(settings, library(), Arc::clone(&tokenizer)).expect("settings");
        let tools = factory.spec().tools.clone();
        let search = call("search", &json!({"query": "Ada Brandt born"}));
        let lines = [search.as_str(), "<answer>Velm</answer>"];
        let episode = play(factory, chat, Arc::clone(&tokenizer), &lines, task()).await;
        assert_eq!(
            (&episode.ending, episode.reward()),
            (&Ending::Answered, Some(1.0)),
            "{name}"
        );
        let text = tokenizer.decode(episode.tokens.ids());
        let arguments = json!({"query": "Ada Brandt born"});
        let observation = episode.turns[0]
            .observation
            .replace("\n\n<information>", "")
            .replace("</information>\n\n", "");
        let messages = vec![
            json!({"role": "user", "content": episode.prompt}),
            json!({"role": "assistant", "content": "", "tool_calls": [{"name": "search", "arguments": arguments}]}),
            json!({"role": "tool", "content": observation}),
        ];
        let whole = forage_env::chat::Conversation {
            messages,
            tools,
            add_generation_prompt: true,
            ..forage_env::chat::Conversation::default()
        };
        let mut rendered = template.render(&whole).expect("renders");
        if name == "qwen3" {
            // The template writes an empty thought into a last assistant turn, and JSON with blanks.
            rendered = rendered.replace("<think>\n\n</think>\n\n", "");
        }
        let spaced = |text: &str| text.replace("\": ", "\":").replace(", \"", ",\"");
        assert_eq!(
            spaced(&text),
            spaced(&[&rendered, lines[1], "<|im_end|>"].concat()),
            "{name}"
        );
    }
}
