//! Items of programs that search.

use forage_env::code_search::{CodeTurn, Status};
use forage_env::episode::Turn;
use forage_env::policy::Finish;
use forage_env::protocol::{CALL_CLOSE, CALL_OPEN, PYTHON_CLOSE, PYTHON_OPEN};

use super::conduct::attempts_code;
use super::reading::{Reading, Sign, excerpt};

/// Share of the programs that were too long: cut by a limit of tokens before their end, or longer than the sandbox takes.
pub(super) fn overlong_code(reading: &Reading<'_>) -> Option<Sign> {
    let attempts = reading
        .episode
        .turns
        .iter()
        .filter(|turn| attempts_code(turn));
    let overlong: Vec<&Turn> = attempts.clone().filter(|turn| is_overlong(turn)).collect();
    let count = attempts.count();
    let shown = overlong.first().map(|turn| excerpt(&turn.policy));
    (count > 0).then(|| Sign {
        value: overlong.len() as f64 / count as f64,
        excerpt: shown,
    })
}

fn is_overlong(turn: &Turn) -> bool {
    let open = |opening: &str, closing: &str| {
        turn.policy
            .rfind(opening)
            .is_some_and(|start| !turn.policy[start..].contains(closing))
    };
    let cut = matches!(turn.finish, Finish::Length | Finish::Context)
        && (open(PYTHON_OPEN, PYTHON_CLOSE) || open(CALL_OPEN, CALL_CLOSE));
    let status = CodeTurn::of(&turn.kind).and_then(|code| code.status);
    cut || status == Some(Status::CodeSize)
}

/// A program that gives a tool's name to something else.
pub(super) fn redefined_tools(reading: &Reading<'_>) -> Option<Sign> {
    code_sign(reading, |code| !code.redefined.is_empty())
}

/// Share of the programs that had something from a function and printed nothing.
pub(super) fn unprinted_results(reading: &Reading<'_>) -> Option<Sign> {
    let sign = reading.measure("unprinted_results")?;
    let shown = code_sign(reading, CodeTurn::unprinted).and_then(|sign| sign.excerpt);
    Some(Sign {
        excerpt: shown,
        ..sign
    })
}

/// 1 with the first program for which `holds`, where programs were run.
fn code_sign(reading: &Reading<'_>, holds: impl Fn(&CodeTurn) -> bool) -> Option<Sign> {
    let mut turns = reading
        .episode
        .turns
        .iter()
        .filter_map(|turn| Some((turn, CodeTurn::of(&turn.kind)?)));
    turns.clone().next()?;
    Some(Sign::of(
        turns
            .find(|(_, code)| holds(code))
            .map(|(turn, _)| turn.policy.as_str()),
    ))
}
