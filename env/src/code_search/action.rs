//! What a turn asks for.

use forage_contracts::Tag;
use forage_contracts::environment::{TurnForm, TurnTool};
use serde_json::Value;

use super::settings::{AnswerForm, CodeSearchSettings, Form, Opening};
use super::tools::{READ_TOOL, SEARCH_TOOL, VIEW_TOOL};
use crate::chat::hermes::{self, ToolCall};
use crate::chat::tools::after_thoughts;
use crate::protocol::{Block, PYTHON, first_closed, first_opened};

/// The tool that runs a program.
pub(crate) const PYTHON_TOOL: &str = "python";

/// Why a turn is not an action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodeFault {
    /// Neither a program or call nor an answer.
    #[error("neither code nor an answer")]
    NoAction,
    /// A program was opened and not closed.
    #[error("the python tag is not closed")]
    UnclosedCode,
    /// An answer was opened and not closed.
    #[error("the answer tag is not closed")]
    UnclosedAnswer,
    /// An answer of nothing.
    #[error("the answer is empty")]
    EmptyAnswer,
    /// A tool call that cannot be read.
    #[error("{0}")]
    BadCall(String),
}

/// What a turn asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CodeAction {
    /// Run a program.
    Code(String),
    /// Call tools, in order; at least one of the calls can be read.
    Calls(Vec<Result<ToolCall, CodeFault>>),
    /// End with the answer.
    Answer(String),
    /// Nothing the protocol knows.
    Invalid(CodeFault),
}

/// Strings that end a turn.
pub(super) fn stops(settings: &CodeSearchSettings) -> Vec<String> {
    let action = match settings.form {
        Form::Tags => Some(PYTHON[1]),
        Form::PythonCalls => Some(ToolCall::TAGS[1]),
        // Several calls may stand in one turn.
        Form::FunctionCalls => None,
    };
    let answer = (settings.answer == AnswerForm::Tag).then_some(Tag::Answer.closing());
    action
        .into_iter()
        .chain(answer)
        .map(str::to_owned)
        .collect()
}

/// The actions as tools.
pub(super) fn tools(settings: &CodeSearchSettings) -> Vec<TurnTool> {
    let call = |name, parameter, argument, tool: String, about| {
        let form = TurnForm::Call {
            tool,
            argument,
            list: false,
        };
        TurnTool {
            name,
            about,
            parameter,
            form,
        }
    };
    let python = "Runs a Python program, which may call search_pages, view_sections and read_section; returns what it prints.";
    let mut tools = match settings.form {
        Form::Tags => {
            let form = TurnForm::Tags {
                open: "<python>\n",
                before_close: "\n",
                close: PYTHON[1],
            };
            vec![TurnTool {
                name: "run_python",
                about: python,
                parameter: "code",
                form,
            }]
        }
        Form::PythonCalls => vec![call(
            "run_python",
            "code",
            "code",
            PYTHON_TOOL.to_owned(),
            python,
        )],
        Form::FunctionCalls => {
            let prefix = settings.functions.flavour.prefix();
            let function = |name: &'static str, parameter, about| {
                call(name, parameter, parameter, format!("{prefix}{name}"), about)
            };
            vec![
                function(SEARCH_TOOL, "query", "Finds pages, best first."),
                function(VIEW_TOOL, "page_id", "Lists the sections of a page."),
                function(READ_TOOL, "section_id", "Returns the text of a section."),
            ]
        }
    };
    let about = "Gives the final answer and ends the episode.";
    tools.push(match settings.answer {
        AnswerForm::Tag => {
            let form = TurnForm::Tags {
                open: Tag::Answer.opening(),
                before_close: "",
                close: Tag::Answer.closing(),
            };
            TurnTool {
                name: "answer",
                about,
                parameter: "answer",
                form,
            }
        }
        AnswerForm::Message => TurnTool {
            name: "answer",
            about,
            parameter: "answer",
            form: TurnForm::Text,
        },
    });
    tools
}

/// Reads a turn: the program, call or answer that is completed first decides.
///
/// What follows it is ignored, as engines that stop at the tag never produce it; with `Form::FunctionCalls` all calls of
/// the turn count.
pub(crate) fn parse(text: &str, settings: &CodeSearchSettings) -> CodeAction {
    let answer = match settings.answer {
        AnswerForm::Tag => block(
            text,
            Tag::Answer.opening(),
            Tag::Answer.closing(),
            settings.opening,
        ),
        AnswerForm::Message => None,
    };
    let (open, close) = match settings.form {
        Form::Tags => (PYTHON[0], PYTHON[1]),
        Form::PythonCalls | Form::FunctionCalls => (ToolCall::TAGS[0], ToolCall::TAGS[1]),
    };
    let action = block(text, open, close, settings.opening);
    match (answer, action) {
        (Some(answer), Some(action)) if answer.end < action.end => to_answer(answer.content),
        (Some(answer), None) => to_answer(answer.content),
        (_, Some(action)) => match settings.form {
            Form::Tags => CodeAction::Code(dedent(action.content)),
            Form::PythonCalls => program_of(read_call(action.content)),
            Form::FunctionCalls => calls(text),
        },
        (None, None) => match settings.form {
            Form::FunctionCalls if text.contains(ToolCall::TAGS[0]) => calls(text),
            _ if settings.answer == AnswerForm::Message && !text.contains(open) => {
                to_answer(after_thoughts(text))
            }
            _ => CodeAction::Invalid(unfinished(text, settings)),
        },
    }
}

fn block<'a>(text: &'a str, open: &str, close: &str, opening: Opening) -> Option<Block<'a>> {
    match opening {
        Opening::First => first_opened(text, open, close),
        Opening::Last => first_closed(text, open, close),
    }
}

fn to_answer(content: &str) -> CodeAction {
    match content.trim() {
        "" => CodeAction::Invalid(CodeFault::EmptyAnswer),
        answer => CodeAction::Answer(answer.to_owned()),
    }
}

fn unfinished(text: &str, settings: &CodeSearchSettings) -> CodeFault {
    if settings.form == Form::Tags && text.contains(PYTHON[0]) {
        CodeFault::UnclosedCode
    } else if settings.form == Form::PythonCalls && text.contains(ToolCall::TAGS[0]) {
        CodeFault::BadCall("the tool call is not closed".to_owned())
    } else if settings.answer == AnswerForm::Tag && text.contains(Tag::Answer.opening()) {
        CodeFault::UnclosedAnswer
    } else {
        CodeFault::NoAction
    }
}

fn program_of(call: Result<ToolCall, CodeFault>) -> CodeAction {
    match call {
        Ok(call) if call.name != PYTHON_TOOL => {
            let message = format!(
                "there is no tool `{}`; the only one is `{PYTHON_TOOL}`",
                call.name
            );
            CodeAction::Invalid(CodeFault::BadCall(message))
        }
        Ok(call) => match call.arguments.get("code") {
            Some(Value::String(code)) => CodeAction::Code(dedent(code)),
            _ => CodeAction::Invalid(CodeFault::BadCall(
                "the call has no argument `code` with a text".to_owned(),
            )),
        },
        Err(fault) => CodeAction::Invalid(fault),
    }
}

/// All calls of a turn. The last may lack its closing tag.
fn calls(text: &str) -> CodeAction {
    let blocks = text.split(ToolCall::TAGS[0]).skip(1);
    let calls: Vec<_> = blocks
        .map(|block| {
            read_call(
                block
                    .split_once(ToolCall::TAGS[1])
                    .map_or(block, |(content, _)| content),
            )
        })
        .collect();
    if calls.iter().any(Result::is_ok) {
        return CodeAction::Calls(calls);
    }
    let first = calls.into_iter().find_map(Result::err);
    CodeAction::Invalid(first.unwrap_or(CodeFault::NoAction))
}

fn read_call(text: &str) -> Result<ToolCall, CodeFault> {
    hermes::read(text).map_err(|fault| CodeFault::BadCall(fault.to_string()))
}

/// A program without the blank lines around it and, where every line has it, without the indentation of its first line.
fn dedent(code: &str) -> String {
    let code = code.trim_end();
    let blank: usize = code
        .split_inclusive('\n')
        .take_while(|line| line.trim().is_empty())
        .map(str::len)
        .sum();
    let code = &code[blank..];
    let margin = &code[..code.len() - code.trim_start().len()];
    let shared = code
        .lines()
        .all(|line| line.trim().is_empty() || line.starts_with(margin));
    if margin.is_empty() || !shared {
        return code.to_owned();
    }
    let lines: Vec<&str> = code
        .lines()
        .map(|line| line.strip_prefix(margin).unwrap_or(""))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::code_search::Profile;

    fn tags(text: &str) -> CodeAction {
        parse(text, &CodeSearchSettings::default())
    }

    fn code(text: &str) -> CodeAction {
        CodeAction::Code(text.to_owned())
    }

    fn answer(text: &str) -> CodeAction {
        CodeAction::Answer(text.to_owned())
    }

    #[test]
    fn the_first_completed_action_decides() {
        let cases = [
            ("<python>\nprint(1)\n</python>", code("print(1)")),
            ("<python> print(1) </python>", code("print(1)")),
            (
                "<python>\n  if x:\n    y()\n\n  z()\n</python>",
                code("if x:\n  y()\n\nz()"),
            ),
            ("<python>\n  x\n y\n</python>", code("  x\n y")),
            ("I use <python> tags. <python>x</python>", code("x")),
            ("<python>x</python><answer>a</answer>", code("x")),
            ("<answer> a\nb </answer><python>x</python>", answer("a\nb")),
            ("<python>print('<answer>a</answer>", answer("a")),
            ("<python></python>", code("")),
            (
                "<answer> </answer>",
                CodeAction::Invalid(CodeFault::EmptyAnswer),
            ),
            ("<python>x", CodeAction::Invalid(CodeFault::UnclosedCode)),
            ("<answer>x", CodeAction::Invalid(CodeFault::UnclosedAnswer)),
            ("</python>", CodeAction::Invalid(CodeFault::NoAction)),
            ("", CodeAction::Invalid(CodeFault::NoAction)),
        ];
        for (turn, expected) in cases {
            assert_eq!(tags(turn), expected, "{turn}");
        }
        let slm = parse(
            "the <python> tag <python>x</python>",
            &Profile::Slm.settings(),
        );
        assert_eq!(slm, code("tag <python>x"));
    }

    #[test]
    fn a_program_may_come_in_a_tool_call() {
        let settings = CodeSearchSettings {
            form: Form::PythonCalls,
            ..CodeSearchSettings::default()
        };
        let call = |body: &str| parse(&format!("ok <tool_call>\n{body}\n</tool_call>"), &settings);
        assert_eq!(
            call(r#"{"name": "python", "arguments": {"code": "print(1)\n"}}"#),
            code("print(1)")
        );
        assert_eq!(
            call(r#"{"name": "python", "arguments": "{\"code\": \"x\"}"}"#),
            code("x")
        );
        for (body, message) in [
            (
                r#"{"name": "python", "arguments": {}}"#,
                "no argument `code`",
            ),
            (
                r#"{"name": "bash", "arguments": {}}"#,
                "there is no tool `bash`",
            ),
            (r#"{"name": "python""#, "not JSON"),
            (r#"{"arguments": {}}"#, "no `name`"),
            ("[]", "no `name`"),
            (
                r#"{"name": "python", "arguments": [1]}"#,
                "not a JSON object",
            ),
        ] {
            let CodeAction::Invalid(fault) = call(body) else {
                panic!("{body}")
            };
            assert!(fault.to_string().contains(message), "{body}: {fault}");
        }
        assert_eq!(parse("<answer>a</answer>", &settings), answer("a"));
        assert!(matches!(
            parse("<tool_call>{", &settings),
            CodeAction::Invalid(CodeFault::BadCall(_))
        ));
        assert_eq!(stops(&settings), ["</tool_call>", "</answer>"]);
    }

    #[test]
    fn functions_are_called_several_at_a_time_and_a_message_is_an_answer() {
        let settings = Profile::WikiSearchV0.settings();
        let one = r#"<tool_call>{"name": "search_pages", "arguments": {"query": "q"}}</tool_call>"#;
        let CodeAction::Calls(calls) = parse(&format!("{one} and {one}<tool_call>oops"), &settings)
        else {
            panic!("calls")
        };
        assert_eq!(
            calls[1],
            Ok(ToolCall {
                name: "search_pages".to_owned(),
                arguments: json!({"query": "q"})
            })
        );
        assert!(calls.len() == 3 && calls[2].is_err());
        assert_eq!(
            parse("<think>x</think>\nVelm.\n", &settings),
            answer("Velm.")
        );
        assert_eq!(
            parse("<think>x</think>", &settings),
            CodeAction::Invalid(CodeFault::EmptyAnswer)
        );
        assert!(matches!(
            parse("<tool_call>nonsense</tool_call>", &settings),
            CodeAction::Invalid(_)
        ));
        assert!(stops(&settings).is_empty());
        let unclosed = one.trim_end_matches(ToolCall::TAGS[1]);
        assert!(matches!(parse(unclosed, &settings), CodeAction::Calls(_)));
    }

    proptest! {
        #[test]
        fn arbitrary_turns_never_panic(
            pieces in prop::collection::vec(
                prop_oneof![
                    Just("<python>".to_owned()), Just("</python>".to_owned()), Just("<answer>".to_owned()),
                    Just("</answer>".to_owned()), Just("<tool_call>".to_owned()), Just("</tool_call>".to_owned()),
                    Just("{\"name\":\"x\"}".to_owned()), any::<String>(),
                ],
                0..12,
            )
        ) {
            for profile in Profile::ALL {
                parse(&pieces.concat(), &profile.settings());
            }
        }
    }
}
