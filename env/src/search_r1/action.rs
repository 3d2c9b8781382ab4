//! What a turn of the search environment asks for.

use forage_contracts::Tag;
use forage_contracts::environment::{TurnForm, TurnTool};
use serde_json::Value;

use super::forms::{
    CallSettings, OnBadCall, QueryArgument, SearchAnswer, SearchForm, Searcher, Take,
};
use super::settings::SearchR1Settings;
use crate::chat::hermes::{self, Piece, ToolCall};
use crate::chat::tools::{self, CallFault, Kind, Parameter, Tool, after_thoughts};
use crate::protocol::{ANSWER_PREFIX, Block, first_closed, first_opened};
use crate::reward::search_r1::blocks;

/// The tool that searches.
pub(crate) const SEARCH: &str = "search";

/// Queries of a turn that are run; published systems ask some ten.
const MOST_QUERIES: usize = 64;

/// What a turn asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    /// Searches by call: the queries of each, or what is wrong with it. At least one call can be run.
    Search(Vec<Result<Vec<String>, CallFault>>),
    /// The end, with an answer.
    Answer(String),
    /// Nothing the protocol knows.
    Invalid {
        /// Why.
        fault: String,
        /// What is wrong with each call that was made.
        calls: Vec<CallFault>,
    },
}

/// Why a turn is not an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum ActionFault {
    /// No search or answer tag.
    #[error("neither a search nor an answer")]
    NoAction,
    /// A search was opened and not closed.
    #[error("the search tag is not closed")]
    UnclosedSearch,
    /// An answer was opened and not closed.
    #[error("the answer tag is not closed")]
    UnclosedAnswer,
    /// A search for nothing.
    #[error("the query is empty")]
    EmptySearch,
    /// An answer of nothing.
    #[error("the answer is empty")]
    EmptyAnswer,
}

/// Reads a turn of the policy.
pub(crate) fn parse(text: &str, settings: &SearchR1Settings) -> Asked {
    match settings.form {
        SearchForm::Tags if settings.searcher == Searcher::Policy => self_searched(text),
        SearchForm::Tags => by_tags(text, settings.take),
        SearchForm::ToolCalls => by_calls(text, settings),
    }
}

fn search(query: &str) -> Asked {
    Asked::Search(vec![Ok(vec![query.trim().to_owned()])])
}

fn answer(text: &str) -> Asked {
    Asked::Answer(text.trim().to_owned())
}

fn invalid(fault: &impl ToString) -> Asked {
    Asked::Invalid {
        fault: fault.to_string(),
        calls: Vec::new(),
    }
}

/// The answer after whatever the policy searched for and told itself.
fn self_searched(text: &str) -> Asked {
    let Some(end) = text.rfind(Tag::Answer.closing()) else {
        return invalid(&unfinished(text));
    };
    let start = text[..end]
        .rfind(Tag::Answer.opening())
        .map(|start| start + Tag::Answer.opening().len());
    match start.map(|start| text[start..end].trim()) {
        None => invalid(&ActionFault::NoAction),
        Some("") => invalid(&ActionFault::EmptyAnswer),
        Some(text) => answer(text),
    }
}

fn by_tags(text: &str, take: Take) -> Asked {
    match take {
        Take::FirstCompleted => first_completed(text),
        Take::FirstOpened => whichever_opens(text),
        Take::AnswerFirst => answer_first(text),
    }
}

/// The search or answer that is completed first, from its last opening tag on, so that a tag only mentioned before is not part of it. What
/// follows is ignored, as engines that stop at the tag never produce it.
fn first_completed(text: &str) -> Asked {
    let closed = |tag: Tag| first_closed(text, tag.opening(), tag.closing());
    match (closed(Tag::Search), closed(Tag::Answer)) {
        (Some(query), other) if other.is_none_or(|other| query.end < other.end) => {
            match query.content.trim() {
                "" => invalid(&ActionFault::EmptySearch),
                query => search(query),
            }
        }
        (_, Some(block)) => match block.content.trim() {
            "" => invalid(&ActionFault::EmptyAnswer),
            text => answer(text),
        },
        (_, None) => invalid(&unfinished(text)),
    }
}

fn block(text: &str, tag: Tag) -> Option<Block<'_>> {
    first_opened(text, tag.opening(), tag.closing())
}

/// As `<(search|answer)>(.*?)</\1>` finds it: an opening tag that nothing closes is passed over.
fn whichever_opens(text: &str) -> Asked {
    match (block(text, Tag::Search), block(text, Tag::Answer)) {
        (Some(query), other) if other.is_none_or(|other| query.start < other.start) => {
            search(query.content)
        }
        (_, Some(block)) => answer(block.content),
        (_, None) => invalid(&unfinished(text)),
    }
}

/// Both answer tags anywhere are an answer, empty where the closing one stands first.
fn answer_first(text: &str) -> Asked {
    if text.contains(Tag::Answer.opening()) && text.contains(Tag::Answer.closing()) {
        return answer(block(text, Tag::Answer).map_or("", |block| block.content));
    }
    match block(text, Tag::Search) {
        Some(block) => search(block.content),
        None => invalid(&unfinished(text)),
    }
}

fn unfinished(text: &str) -> ActionFault {
    if text.contains(Tag::Answer.opening()) {
        ActionFault::UnclosedAnswer
    } else if text.contains(Tag::Search.opening()) {
        ActionFault::UnclosedSearch
    } else {
        ActionFault::NoAction
    }
}

/// The actions as tools for clients that call tools.
pub(super) fn tools(settings: &SearchR1Settings) -> Vec<TurnTool> {
    let tags = |tag: Tag| TurnForm::Tags {
        open: tag.opening(),
        before_close: "",
        close: tag.closing(),
    };
    let search = match (settings.form, settings.calls.argument) {
        (SearchForm::Tags, _) => tags(Tag::Search),
        (SearchForm::ToolCalls, argument) => TurnForm::Call {
            tool: SEARCH.to_owned(),
            argument: argument.name(),
            list: argument == QueryArgument::QueryList,
        },
    };
    let answer = match settings.answer {
        SearchAnswer::Tag => tags(Tag::Answer),
        SearchAnswer::Message => TurnForm::Text,
        SearchAnswer::Prefix => TurnForm::Tags {
            open: "Answer: ",
            before_close: "",
            close: "",
        },
    };
    let about = [
        "Searches; returns the best passages.",
        "Gives the final answer and ends the episode.",
    ];
    vec![
        TurnTool {
            name: SEARCH,
            about: about[0],
            parameter: "query",
            form: search,
        },
        TurnTool {
            name: "answer",
            about: about[1],
            parameter: "answer",
            form: answer,
        },
    ]
}

/// The tool as the chat template shows it.
pub(super) fn tool(settings: &CallSettings) -> Tool {
    let about = "Finds passages with a search engine.";
    match settings.argument {
        QueryArgument::Query => Tool::of_one(
            SEARCH,
            about,
            (settings.argument.name(), "What to search for."),
        ),
        QueryArgument::QueryList => {
            let about_list = "Queries; each is answered with passages of its own.";
            let parameter = Parameter {
                name: settings.argument.name(),
                about: about_list,
                kind: Kind::Texts,
                required: true,
            };
            Tool {
                name: SEARCH.to_owned(),
                about: about.to_owned(),
                parameters: vec![parameter],
            }
        }
    }
}

fn by_calls(text: &str, settings: &SearchR1Settings) -> Asked {
    let CallSettings { most, on_bad, .. } = settings.calls;
    let most = if most == 0 { usize::MAX } else { most };
    let tools = [tool(&settings.calls)];
    let mut content = String::new();
    let mut calls = Vec::new();
    for piece in hermes::pieces(after_thoughts(text)) {
        match piece {
            Piece::Text(text) => content.push_str(&text),
            Piece::Call(call) => calls.push(tools::check(&tools, &call).map(|()| queries(&call))),
            Piece::Malformed(malformed) => calls.push(Err(CallFault::Malformed(malformed.fault))),
        }
    }
    match on_bad {
        OnBadCall::Drop => {
            calls.retain(|call| !matches!(call, Err(CallFault::Malformed(_))));
            calls.truncate(most);
        }
        OnBadCall::EmptyQuery => {
            calls
                .iter_mut()
                .filter(|call| call.is_err())
                .for_each(|call| *call = Ok(vec![String::new()]));
        }
        OnBadCall::Notice => {}
    }
    calls
        .iter_mut()
        .skip(most)
        .for_each(|call| *call = Err(CallFault::TooMany { most }));
    let mut asked = 0;
    for call in &mut calls {
        let more = call.as_ref().map_or(0, Vec::len);
        if asked + more > MOST_QUERIES {
            *call = Err(CallFault::TooManyQueries { most: MOST_QUERIES });
        } else {
            asked += more;
        }
    }
    if calls.iter().any(Result::is_ok) {
        return Asked::Search(calls);
    }
    let calls: Vec<CallFault> = calls.into_iter().filter_map(Result::err).collect();
    match calls.first() {
        Some(fault) => Asked::Invalid {
            fault: fault.to_string(),
            calls,
        },
        None => message(&content, settings.answer),
    }
}

/// The queries of a call that was checked.
fn queries(call: &ToolCall) -> Vec<String> {
    let values = call
        .arguments
        .as_object()
        .into_iter()
        .flat_map(|arguments| arguments.values());
    let texts = values.flat_map(|value| match value {
        Value::Array(list) => list.iter().collect(),
        value => vec![value],
    });
    texts
        .filter_map(Value::as_str)
        .map(|text| text.trim().to_owned())
        .collect()
}

/// The answer of a turn without calls.
fn message(content: &str, form: SearchAnswer) -> Asked {
    let found = match form {
        SearchAnswer::Message => Some(content),
        SearchAnswer::Tag => blocks("answer", content).pop(),
        SearchAnswer::Prefix => match content.split(ANSWER_PREFIX).collect::<Vec<_>>()[..] {
            [_, text] => Some(text),
            _ => None,
        },
    };
    match found.map(str::trim) {
        None if form == SearchAnswer::Tag => invalid(&unfinished(content)),
        None => invalid(&format!("not exactly one `{ANSWER_PREFIX}`")),
        Some("") => invalid(&ActionFault::EmptyAnswer),
        Some(text) => answer(text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Profile;
    use super::*;

    fn of(profile: Profile, turn: &str) -> Asked {
        parse(turn, &profile.settings())
    }

    fn searched(queries: &[&[&str]]) -> Asked {
        Asked::Search(
            queries
                .iter()
                .map(|list| Ok(list.iter().map(|&query| query.to_owned()).collect()))
                .collect(),
        )
    }

    fn call(arguments: &str) -> String {
        format!("<tool_call>\n{{\"name\": \"search\", \"arguments\": {arguments}}}\n</tool_call>")
    }

    #[test]
    fn published_readers_differ_on_the_same_turn() {
        let cases = [
            (
                "<search>q</search><answer>a</answer>",
                searched(&[&["q"]]),
                answer("a"),
            ),
            (
                "<answer>a</answer><search>q</search>",
                answer("a"),
                answer("a"),
            ),
            (
                "the <search> tag, then <search>q</search>",
                searched(&[&["tag, then <search>q"]]),
                searched(&[&["tag, then <search>q"]]),
            ),
            ("<search>q<answer>a</answer>", answer("a"), answer("a")),
            ("<search></search>", searched(&[&[""]]), searched(&[&[""]])),
            (
                "</answer> <answer>",
                invalid(&ActionFault::UnclosedAnswer),
                answer(""),
            ),
            (
                "<search>q",
                invalid(&ActionFault::UnclosedSearch),
                invalid(&ActionFault::UnclosedSearch),
            ),
            (
                "",
                invalid(&ActionFault::NoAction),
                invalid(&ActionFault::NoAction),
            ),
        ];
        for (turn, search_r1, skyrl) in cases {
            assert_eq!(of(Profile::SearchR1V02, turn), search_r1, "{turn}");
            assert_eq!(of(Profile::Slime, turn), search_r1, "{turn}");
            assert_eq!(of(Profile::Skyrl, turn), skyrl, "{turn}");
        }
        let ours = of(Profile::Forage, "the <search> tag, then <search>q</search>");
        assert_eq!(ours, searched(&[&["q"]]));
        assert_eq!(
            of(Profile::Forage, "<search></search>"),
            invalid(&ActionFault::EmptySearch)
        );
    }

    #[test]
    fn the_first_completed_action_decides() {
        let cases = [
            ("<search> q </search>", searched(&[&["q"]])),
            ("<search>q</search><answer>a</answer>", searched(&[&["q"]])),
            ("<answer>a\nb</answer> tail", answer("a\nb")),
            ("<think>I may <search>q</search>", searched(&[&["q"]])),
            (
                "the <search> tag, then <search>q</search>",
                searched(&[&["q"]]),
            ),
            ("<search>q <answer>a</answer>", answer("a")),
            ("<search>q <answer>a</answer></search>", answer("a")),
            ("</search><answer>a</answer>", answer("a")),
            ("</search><search>q</search>", searched(&[&["q"]])),
            ("<answer>a < b</answer>", answer("a < b")),
            (
                "<answer><think>x</think></answer>",
                answer("<think>x</think>"),
            ),
            ("<search></search>", invalid(&ActionFault::EmptySearch)),
            ("<answer> \n</answer>", invalid(&ActionFault::EmptyAnswer)),
            ("<search>q", invalid(&ActionFault::UnclosedSearch)),
            ("<answer>a</answer", invalid(&ActionFault::UnclosedAnswer)),
            ("<SEARCH>q</SEARCH>", invalid(&ActionFault::NoAction)),
            ("", invalid(&ActionFault::NoAction)),
        ];
        for (turn, expected) in cases {
            assert_eq!(of(Profile::Forage, turn), expected, "{turn}");
        }
    }

    #[test]
    fn calls_are_read_as_each_system_reads_them() {
        let (one, two) = (
            call("{\"query_list\": [\"a\", \"b\"]}"),
            call("{\"query_list\": [\"c\"]}"),
        );
        let both = [one.as_str(), &two].concat();
        assert_eq!(of(Profile::Tinker, &both), searched(&[&["a", "b"], &["c"]]));
        assert_eq!(
            of(Profile::Verl, &both),
            searched(&[&["a", "b"]]),
            "the first call alone"
        );
        let single = call("{\"query\": \"q\"}");
        assert_eq!(
            of(Profile::Torchtitan, &[single.as_str(), &single].concat()),
            searched(&[&["q"], &["q"]])
        );
        let broken = "<tool_call>{\"name\": </tool_call>";
        assert_eq!(of(Profile::Torchtitan, broken), searched(&[&[""]]));
        let Asked::Invalid { calls, .. } = of(Profile::Verl, broken) else {
            panic!("no answer tag")
        };
        assert!(calls.is_empty(), "dropped without a word");
        let graded = format!("{broken}<answer>a</answer>");
        assert_eq!(
            of(Profile::Verl, &graded),
            answer("a"),
            "a syntax error makes it the last message"
        );
    }

    #[test]
    fn of_two_answers_each_system_takes_its_own() {
        let turn = "<answer>a</answer> or rather <answer> b </answer>, not <answer>c";
        for (profile, taken) in [
            (Profile::SearchR1V02, "a"),
            (Profile::Slime, "a"),
            (Profile::Verl, "b"),
        ] {
            assert_eq!(of(profile, turn), answer(taken), "{profile:?}");
        }
    }

    #[test]
    fn bad_calls_are_answered_with_what_is_wrong() {
        let settings = SearchR1Settings {
            form: SearchForm::ToolCalls,
            ..SearchR1Settings::default()
        };
        let read = |turn: &str| parse(turn, &settings);
        let Asked::Search(calls) =
            read(&[call("{\"query\": \"q\"}"), call("{\"qury\": \"q\"}")].concat())
        else {
            panic!("one call can be run")
        };
        assert_eq!(calls[0], Ok(vec!["q".to_owned()]));
        assert!(
            calls[1]
                .as_ref()
                .expect_err("a fault")
                .to_string()
                .contains("did you mean `query`?")
        );
        for (turn, words) in [
            (
                "<tool_call>{\"name\": \"serch\", \"arguments\": {\"query\": \"q\"}}</tool_call>",
                "did you mean `search`?",
            ),
            ("<tool_call>{\"name\": \"search\"", "not closed"),
            ("<tool_call>{name}</tool_call>", "not JSON"),
            ("no call", "neither a search nor an answer"),
        ] {
            let Asked::Invalid { fault, calls } = read(turn) else {
                panic!("{turn}")
            };
            assert!(fault.contains(words), "{turn}: {fault}");
            assert_eq!(calls.len(), usize::from(turn.contains("tool_call")));
        }
        let many = call("{\"query\": \"q\"}").repeat(5);
        let Asked::Search(calls) = read(&many) else {
            panic!("four can be run")
        };
        assert_eq!(calls.iter().filter(|call| call.is_ok()).count(), 4);
        assert_eq!(calls[4], Err(CallFault::TooMany { most: 4 }));
        assert_eq!(
            read("<think><tool_call>x</think><answer> a </answer>"),
            answer("a")
        );
    }

    #[test]
    fn a_turn_has_so_many_queries_and_no_more() {
        let list = |count: usize| {
            let queries = vec!["q"; count];
            call(&serde_json::json!({ "query_list": queries }).to_string())
        };
        let turn = [list(MOST_QUERIES - 1), list(2), list(1)].concat();
        let Asked::Search(calls) = of(Profile::Tinker, &turn) else {
            panic!("two calls can be run")
        };
        let run = calls.iter().map(|call| call.as_ref().map_or(0, Vec::len));
        assert_eq!(run.collect::<Vec<_>>(), [MOST_QUERIES - 1, 0, 1]);
        let Asked::Invalid { fault, calls } = of(Profile::Tinker, &list(MOST_QUERIES + 1)) else {
            panic!("too many")
        };
        assert!(fault.contains("a turn may have 64 queries"), "{fault}");
        assert_eq!(calls.len(), 1);
    }

    #[test]
    fn messages_are_answers() {
        assert_eq!(
            of(Profile::Torchtitan, "<think>x</think>\n\nVelm.\n"),
            answer("Velm.")
        );
        assert_eq!(
            of(Profile::Torchtitan, " "),
            invalid(&ActionFault::EmptyAnswer)
        );
        assert_eq!(
            of(Profile::Tinker, "I found it. Answer: Velm"),
            answer("Velm")
        );
        for turn in ["Velm", "Answer: a Answer: b"] {
            assert!(
                matches!(of(Profile::Tinker, turn), Asked::Invalid { .. }),
                "{turn}"
            );
        }
        assert!(matches!(of(Profile::Verl, "Velm"), Asked::Invalid { .. }));
    }
}
