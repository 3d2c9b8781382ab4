//! The environment with a toy in place of the sandbox, so that faults can be made; real programs run in `tests/code_search.rs`.

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::Passage;
use forage_contracts::retriever::{Fingerprint, Hit, Query, Retriever, RetrieverError};
use forage_retriever::Bm25Retriever;
use forage_sandbox::{PyError, SandboxError, ToolError, Tools, TurnOutput};
use serde_json::{Map, Value, json};

use super::observation::NOTHING_PRINTED;
use super::settings::FunctionSettings;
use super::turn::FunctionCall;
use super::*;
use crate::check::CheckPlan;
use crate::reward::RewardSet;
use crate::wiki::Wiki;
use crate::wiki::find::SearchMode;

/// Understands one command a line: `search Q`, `read S`, `print X`, `set X`, `get`, `raise`, `loop`, `broken`.
struct Toy {
    tools: Arc<dyn Tools>,
    variable: String,
}

struct Toys;

impl Interpreters for Toys {
    fn open(&self, tools: Arc<dyn Tools>, _seed: u64) -> Box<dyn Interpreter> {
        Box::new(Toy {
            tools,
            variable: "unset".to_owned(),
        })
    }
}

impl Toy {
    fn line(&mut self, line: &str, output: &mut TurnOutput) -> Result<(), SandboxError> {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (tool, argument) = match command {
            "search" => ("search_pages", "query"),
            "read" => ("read_section", "section_id"),
            "print" => {
                output.stdout.push_str(rest);
                output.stdout.push('\n');
                return Ok(());
            }
            "set" => {
                rest.clone_into(&mut self.variable);
                return Ok(());
            }
            "get" => {
                output.stdout.push_str(&self.variable);
                return Ok(());
            }
            "raise" => {
                output.status = Status::Exception;
                output.error = Some(error("NameError", rest));
                return Ok(());
            }
            "loop" => {
                output.status = Status::Timeout;
                output.undone = true;
                return Ok(());
            }
            "import" => return Ok(()),
            _ => {
                return Err(SandboxError::Tool {
                    tool: "none".to_owned(),
                    reason: "out of order".to_owned(),
                });
            }
        };
        let (quiet, rest) = rest
            .strip_prefix("quietly ")
            .map_or((false, rest), |rest| (true, rest));
        let arguments: Map<String, Value> = [(argument.to_owned(), Value::from(rest))]
            .into_iter()
            .collect();
        match self.tools.call(tool, &arguments) {
            Ok(value) if !quiet => output.stdout.push_str(&value.to_string()),
            Ok(_) => {}
            Err(ToolError::Raise { kind, message }) => {
                output.status = Status::Exception;
                output.error = Some(error(kind, &message));
            }
            Err(ToolError::Fault(reason)) => {
                return Err(SandboxError::Tool {
                    tool: tool.to_owned(),
                    reason,
                });
            }
        }
        Ok(())
    }
}

fn error(kind: &str, message: &str) -> PyError {
    let traceback = format!("Traceback (most recent call last):\n{kind}: {message}\n");
    PyError {
        kind: kind.to_owned(),
        message: message.to_owned(),
        traceback,
    }
}

#[async_trait]
impl Interpreter for Toy {
    async fn run(&mut self, code: &str) -> Result<TurnOutput, SandboxError> {
        let mut output = TurnOutput::default();
        for line in code.lines() {
            self.line(line, &mut output)?;
        }
        Ok(output)
    }

    fn reset(&mut self) {
        "unset".clone_into(&mut self.variable);
    }
}

/// A retriever whose index cannot be read.
struct Down;

#[async_trait]
impl Retriever for Down {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint("down".to_owned())
    }

    async fn search(&self, _queries: &[Query], _k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        // Not at once, as a server would.
        tokio::task::yield_now().await;
        let source = std::io::Error::other("disk unplugged");
        Err(RetrieverError::Postings {
            path: "index".into(),
            source,
        })
    }
}

pub(super) fn finder(mode: SearchMode) -> Finder {
    let pages = [
        Passage::new(
            "orlen",
            "Orlen",
            "# Orlen\n\nOrlen is a town.\n\n## People\n\nIts mayor is Ada Brandt.\n",
        ),
        Passage::new(
            "ada_brandt",
            "Ada Brandt",
            "# Ada Brandt\n\nAda Brandt was born in Velm.\n",
        ),
        Passage::new("plain", "Plain", "No heading here."),
    ];
    let wiki = Arc::new(Wiki::in_memory(&pages).expect("a wiki"));
    let passages = Arc::new(Bm25Retriever::in_memory(pages.to_vec()).expect("indexed"));
    Finder::new(wiki, mode, passages).expect("indexed")
}

fn task() -> Task {
    Task {
        golds: vec!["Velm".to_owned()],
        hops: 2,
        data_source: "test".to_owned(),
        ..Task::new("t1", "Where was the mayor of Orlen born? {turns}")
    }
}

fn made(settings: Value) -> Arc<dyn EnvFactory> {
    let settings = CodeSearchSettings::from_value(settings).expect("valid settings");
    let finder = finder(settings.functions.search);
    CodeSearch::factory(settings, finder, Some(Arc::new(Toys))).expect("sound settings")
}

/// Plays turns, given without the tags around programs, and returns the steps.
async fn play(settings: Value, turns: &[&str]) -> Vec<Step> {
    let mut env = made(settings).make();
    env.reset(&task(), Seed::root(0)).await.expect("reset");
    let mut steps = Vec::new();
    for (number, turn) in turns.iter().enumerate() {
        let text = if turn.contains('<') || turn.contains("no tag") {
            (*turn).to_owned()
        } else {
            format!("<think>so</think><python>\n{turn}\n</python>")
        };
        let action = Action {
            turns_left: env.spec().max_turns - number - 1,
            ..Action::new(text)
        };
        steps.push(env.step(&action).await.expect("a step"));
    }
    steps
}

fn code(step: &Step) -> CodeTurn {
    CodeTurn::of(&step.kind).expect("a program")
}

fn text(step: &Step) -> &str {
    &step.observation.text
}

#[tokio::test]
async fn programs_print_and_answers_end() {
    let steps = play(
        json!({}),
        &[
            "search mayor",
            "print hello\nraise x",
            "<answer>Velm</answer>",
        ],
    )
    .await;
    assert!(
        text(&steps[0])
            .starts_with("\n<python_output>\n[{\"page_id\":\"orlen\",\"title\":\"Orlen\"}]")
    );
    assert_eq!(code(&steps[0]).calls[0].found, ["orlen"]);
    assert_eq!(steps[0].kind.queries().collect::<Vec<_>>(), ["mayor"]);
    let expected = "\n<python_output>\nhello\nTraceback (most recent call last):\nNameError: x\n</python_output>\n";
    assert_eq!(text(&steps[1]), expected);
    assert_eq!(
        (code(&steps[1]).error.as_deref(), code(&steps[1]).worked()),
        (Some("NameError"), Some(false))
    );
    assert!(steps[2].terminated && text(&steps[2]).is_empty());
}

#[test]
fn a_program_that_was_given_nothing_forgets_to_print_nothing() {
    let silent = |size| CodeTurn {
        status: Some(Status::Ok),
        calls: vec![FunctionCall {
            tool: "search_pages".to_owned(),
            argument: "mayor".to_owned(),
            found: Vec::new(),
            size,
            error: None,
        }],
        ..CodeTurn::default()
    };
    assert!(silent(1).unprinted() && !silent(0).unprinted());
}

#[tokio::test]
async fn empty_programs_and_silent_ones_are_told() {
    let steps = play(json!({}), &["", "read quietly orlen:people", "print x"]).await;
    for step in &steps[..2] {
        assert!(text(step).contains(NOTHING_PRINTED));
        assert!(!code(step).printed && code(step).worked() == Some(true));
    }
    assert_eq!(
        (code(&steps[0]).unprinted(), code(&steps[1]).unprinted()),
        (false, true)
    );
    assert!(text(&steps[2]).ends_with(REMINDER));
    let slm = play(json!({"profile": "slm"}), &["", "no tag"]).await;
    assert_eq!(text(&slm[0]), "\n<python_output>\n\n</python_output>\n");
    assert_eq!(text(&slm[1]), REMINDER);
}

#[tokio::test]
async fn a_gold_is_read_when_a_tool_gave_it_and_it_was_shown() {
    let turns = [
        "read quietly ada_brandt:full",
        "print Velm it is",
        "print nothing",
    ];
    let steps = play(json!({}), &turns).await;
    assert_eq!(
        steps
            .iter()
            .map(|step| step.kind.calls()[0].gold_read)
            .collect::<Vec<_>>(),
        [false, true, false]
    );
    let invented = play(json!({}), &["print Velm"]).await;
    assert!(!invented[0].kind.calls()[0].gold_read);
    let mut hidden = steps[1].kind.clone();
    hidden.hide();
    assert!(!hidden.calls()[0].gold_read);
    assert_eq!(CodeTurn::of(&hidden), CodeTurn::of(&steps[1].kind));
}

#[tokio::test]
async fn state_is_kept_or_fresh() {
    let turns = ["set 7", "get"];
    assert!(text(&play(json!({}), &turns).await[1]).contains("\n7\n"));
    assert!(text(&play(json!({"state": "fresh"}), &turns).await[1]).contains("\nunset\n"));
}

#[tokio::test]
async fn the_last_turn_is_announced_and_its_program_not_run() {
    let steps = play(json!({"max_generations": 2}), &["print 1", "broken"]).await;
    assert!(text(&steps[0]).ends_with(&format!("</python_output>\n{REMINDER}")));
    assert!(text(&steps[1]).is_empty() && code(&steps[1]).status.is_none());
    let single = play(
        json!({"max_generations": 1, "final_reminder": true}),
        &["no tag"],
    )
    .await;
    assert!(!single[0].terminated && !text(&single[0]).contains(REMINDER));
}

#[tokio::test]
async fn turns_without_an_action_are_answered_as_configured() {
    for (on_invalid, expected) in [
        ("notice", prompt::notice(Form::Tags)),
        ("empty", "\n<python_output>\n\n</python_output>\n"),
        ("silent", ""),
    ] {
        let steps = play(json!({"on_invalid": on_invalid}), &["no tag"]).await;
        assert_eq!(text(&steps[0]), expected);
        assert!(matches!(&steps[0].kind, TurnKind::Invalid { .. }));
    }
    assert!(play(json!({"on_invalid": "end"}), &["no tag"]).await[0].terminated);
}

#[tokio::test]
async fn limits_are_told_in_words() {
    let steps = play(json!({"limits": {"time_ms": 1500}}), &["print a\nloop"]).await;
    let expected = "a\nThe program was stopped: it ran for more than 1.5 s. What it did to variables is undone.";
    assert!(text(&steps[0]).contains(expected), "{}", text(&steps[0]));
    assert_eq!(
        (code(&steps[0]).status, &code(&steps[0]).error),
        (Some(Status::Timeout), &None)
    );
}

async fn fault(factory: Arc<dyn EnvFactory>, code: &str) -> EnvError {
    let mut env = factory.make();
    env.reset(&task(), Seed::root(0)).await.expect("reset");
    let text = format!("<python>{code}</python>");
    let step = env.step(&Action::new(text)).await;
    step.expect_err("a fault")
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_ours_are_errors_and_never_output() {
    assert!(matches!(
        fault(made(json!({})), "broken").await,
        EnvError::Failed {
            boundary: Boundary::Sandbox,
            ..
        }
    ));
    let wiki = Arc::clone(finder(SearchMode::Pages).wiki());
    let finder = Finder::new(wiki, SearchMode::Passages, Arc::new(Down)).expect("nothing to index");
    // The toy calls tools on the thread of the test, which may not wait: the sandbox has threads of its own.
    let tools = Arc::new(PageTools::new(finder, FunctionSettings::default()));
    let query: Map<String, Value> = [("query".to_owned(), Value::from("x"))]
        .into_iter()
        .collect();
    let called = {
        let tools = Arc::clone(&tools);
        tokio::task::spawn_blocking(move || tools.call("search_pages", &query))
            .await
            .expect("no panic")
    };
    assert!(matches!(called, Err(ToolError::Fault(_))));
    assert!(matches!(
        tools.take_fault(),
        Some(RetrieverError::Postings { .. })
    ));
    assert!(tools.take_calls().is_empty());
}

#[tokio::test]
async fn functions_are_called_directly() {
    let call = |name: &str, arguments: Value| {
        format!(
            "<tool_call>\n{}\n</tool_call>",
            json!({"name": name, "arguments": arguments})
        )
    };
    let two = [
        call("search_pages", json!({"query": "Ada Brandt"})),
        call(
            "read_section",
            json!({"section_id": "ada_brandt:ada_brandt"}),
        ),
    ];
    let v0 = play(
        json!({"profile": "wiki_search_v0"}),
        &[&two.concat(), "no tag at all"],
    )
    .await;
    let expected = "\n<tool_response>\n[{'page_id': 'ada_brandt', 'title': 'Ada Brandt'}]\n</tool_response>\n\
                    \n<tool_response>\n# Ada Brandt\n\nAda Brandt was born in Velm.\n\n</tool_response>\n";
    assert_eq!(text(&v0[0]), expected);
    assert!(v0[0].kind.calls()[0].gold_read && code(&v0[0]).calls.len() == 2);
    assert_eq!(v0[1].kind, TurnKind::answer("no tag at all"));

    let missing = call("wiki_read_section", json!({"section_id": "orlen:x"}));
    let unknown = call("wiki_view_sections", json!({"page_id": "x"}));
    let v1 = play(
        json!({"profile": "wiki_search_v1"}),
        &[&[missing, unknown].concat()],
    )
    .await;
    assert!(text(&v1[0]).contains("\nSection not found: orlen:x\n"));
    assert!(text(&v1[0]).contains("\nError executing tool wiki_view_sections: 'x'\n"));
    assert_eq!(code(&v1[0]).worked(), Some(false));

    let wrong = [
        call("search_pages", json!({})),
        call("search_pages", json!({"query": "x", "top_k": 3})),
        call("search", json!({})),
        "<tool_call>{</tool_call>".to_owned(),
    ];
    let steps = play(
        json!({"form": "function_calls"}),
        &[&wrong.concat(), &wrong[3]],
    )
    .await;
    for message in [
        "missing 1 required positional argument: 'query'",
        "unexpected keyword argument 'top_k'; it takes query, n\n",
        "there is no tool 'search'; there are search_pages, view_sections, read_section\n",
        "is not JSON",
    ] {
        assert!(text(&steps[0]).contains(message), "{message}");
    }
    assert!(matches!(&steps[1].kind, TurnKind::Invalid { .. }));
}

#[tokio::test]
async fn a_search_that_raised_is_no_query() {
    let call = |query: Value| {
        let call = json!({"name": "search_pages", "arguments": {"query": query}});
        format!("<tool_call>\n{call}\n</tool_call>")
    };
    let queries = [Value::Null, json!(["Ada"]), json!("Ada Brandt")];
    let calls = queries.map(call).concat();
    let steps = play(json!({"form": "function_calls"}), &[&calls]).await;
    let errors = code(&steps[0]).calls.into_iter().map(|call| call.error);
    let errors: Vec<bool> = errors.map(|error| error.is_some()).collect();
    assert_eq!(errors, [true, true, false]);
    assert_eq!(steps[0].kind.queries().collect::<Vec<_>>(), ["Ada Brandt"]);
}

#[tokio::test]
async fn prompts_are_filled_in_once() {
    let mut env = made(json!({"prompt": {"text": "{question} {turns}"}})).make();
    let opening = env.reset(&task(), Seed::root(0)).await.expect("reset").text;
    assert_eq!(opening, "Where was the mayor of Orlen born? {turns} 4");
}

#[tokio::test]
async fn the_contract_holds_in_every_form() {
    let rewards = RewardSet::exact_match();
    let python = "<tool_call>{\"name\": \"python\", \"arguments\": {\"code\": \"search mayor\"}}</tool_call>";
    let function =
        "<tool_call>{\"name\": \"search_pages\", \"arguments\": {\"query\": \"q\"}}</tool_call>";
    let message = CheckPlan {
        gold: |task| task.golds[0].clone(),
        empty: String::new(),
        wrong: "certainly not this".to_owned(),
        ..CheckPlan::of(&ENTRY)
    };
    for (settings, probe, plan) in [
        (
            json!({}),
            "<python>search mayor</python>",
            CheckPlan::of(&ENTRY),
        ),
        (
            json!({"profile": "slm"}),
            "<python>search mayor</python>",
            CheckPlan::of(&ENTRY),
        ),
        (
            json!({"form": "python_calls"}),
            python,
            CheckPlan::of(&ENTRY),
        ),
        (
            json!({"form": "function_calls"}),
            function,
            CheckPlan::of(&ENTRY),
        ),
        (json!({"profile": "wiki_search_v0"}), function, message),
    ] {
        let plan = CheckPlan {
            probe: probe.to_owned(),
            invalid: "<tool_call>x</tool_call>".to_owned(),
            ..plan
        };
        let factory = made(settings.clone());
        let checked = plan
            .check(factory.as_ref(), &[task()], &rewards, Seed::root(0))
            .await;
        assert_eq!(checked, Ok(()), "{settings}");
    }
}

#[test]
fn programs_need_a_sandbox() {
    let refused = CodeSearch::factory(
        CodeSearchSettings::default(),
        finder(SearchMode::Pages),
        None,
    );
    assert!(matches!(refused, Err(SettingsError::Excluded { .. })));
}
