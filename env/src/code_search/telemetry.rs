//! Items of telemetry of programs that search.

use forage_contracts::policy::Finish;
use forage_contracts::{EnvTelemetry, Item, Reading, Sign, Turn};
use forage_sandbox::Status;

use super::turn::{CodeTurn, FunctionCall};
use crate::chat::hermes::ToolCall;
use crate::protocol::PYTHON;

pub(super) const TELEMETRY: EnvTelemetry = EnvTelemetry {
    items: ITEMS,
    found: |call| {
        let calls = CodeTurn::read(call)?.calls;
        (!calls.is_empty()).then(|| calls.iter().any(FunctionCall::gave))
    },
    actions: &[PYTHON],
    observations: &["<python_output>"],
    searches: true,
    ..EnvTelemetry::COMMON
};

const ITEMS: &[Item] = &[
    Item::new(
        "overlong_code",
        "share of the programs cut by a limit before their end, or longer than the sandbox takes",
        overlong_code,
    )
    .watched(
        0.1,
        "Programs are more elaborate than the limit allows, and nothing of them is run. Raise max_turn_tokens, or pay for \
         short programs.",
    ),
    Item::new(
        "unprinted_results",
        "share of the programs that had something from a function and printed nothing",
        unprinted_results,
    )
    .watched(
        0.2,
        "The policy forgets to print. The prompt should say that a value that is not printed is not shown.",
    ),
    Item::new(
        "redefined_tools",
        "share of the episodes with programs in which one takes a tool's name for something else",
        |reading| {
            let shown = || first(reading, |code| !code.redefined.is_empty());
            first(reading, |_| true).map(|_| Sign::of(shown()))
        },
    )
    .watched(
        0.05,
        "The policy writes the functions it should call, and reads what it made up. The prompt should forbid it.",
    ),
];

/// Share of the programs that were too long: cut by a limit of tokens before their end, or longer than the sandbox takes.
fn overlong_code(reading: &Reading<'_>) -> Option<Sign> {
    let turns = reading.episode.turns.iter();
    let attempts: Vec<&Turn> = turns.filter(|turn| attempts_code(turn)).collect();
    let overlong = attempts.iter().filter(|turn| is_overlong(turn));
    let shown = overlong.clone().next().map(|turn| turn.policy.as_str());
    (!attempts.is_empty())
        .then(|| Sign::new(overlong.count() as f64 / attempts.len() as f64, shown))
}

/// Whether a turn was meant to run something: it did, or it opened a program or a call.
fn attempts_code(turn: &Turn) -> bool {
    let opens = |open: &&str| turn.policy.contains(*open);
    CodeTurn::of(&turn.kind).is_some()
        || (turn.kind.is_invalid() && [PYTHON[0], ToolCall::TAGS[0]].iter().any(opens))
}

fn is_overlong(turn: &Turn) -> bool {
    let open = |opening: &str, closing: &str| {
        let last = turn.policy.rfind(opening);
        last.is_some_and(|start| !turn.policy[start..].contains(closing))
    };
    let cut = matches!(turn.finish, Finish::Length | Finish::Context)
        && (open(PYTHON[0], PYTHON[1]) || open(ToolCall::TAGS[0], ToolCall::TAGS[1]));
    let status = CodeTurn::of(&turn.kind).and_then(|code| code.status);
    cut || status == Some(Status::CodeSize)
}

/// Share of the programs that had something from a function and printed nothing.
fn unprinted_results(reading: &Reading<'_>) -> Option<Sign> {
    let sign = reading.measure("unprinted_results")?;
    let shown = first(reading, CodeTurn::unprinted);
    Some(Sign::new(sign.value, shown))
}

/// The first turn that ran a program which `holds`.
fn first<'a>(reading: &Reading<'a>, holds: impl Fn(&CodeTurn) -> bool) -> Option<&'a str> {
    let turns = reading.episode.turns.iter();
    let mut ran = turns.filter_map(|turn| Some((turn, CodeTurn::of(&turn.kind)?)));
    let found = ran.find(|(_, code)| holds(code));
    found.map(|(turn, _)| turn.policy.as_str())
}
