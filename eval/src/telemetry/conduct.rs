//! Items of how an episode is played: tags, searches, surrender.

use forage_env::code_search::CodeTurn;
use forage_env::episode::Turn;
use forage_env::protocol::{CALL_OPEN, PYTHON_OPEN, REASONING_CLOSE, REASONING_OPEN, Tag};
use forage_env::reward::give_up::is_give_up;

use super::reading::{Reading, Sign, searches_itself};

/// What the environment writes around what it shows.
const ENVIRONMENT_TAGS: [&str; 2] = ["<python_output>", "<tool_response>"];

/// Words of the answer.
pub(super) fn answer_words(reading: &Reading<'_>) -> Option<Sign> {
    let answer = reading.episode.answer()?;
    Some(Sign::number(answer.split_whitespace().count() as f64))
}

/// Share of the turns with a closed block of reasoning.
pub(super) fn reasoning(reading: &Reading<'_>) -> Option<Sign> {
    let turns = &reading.episode.turns;
    let blocks = [
        (Tag::Think.opening(), Tag::Think.closing()),
        (REASONING_OPEN, REASONING_CLOSE),
    ];
    let reasons = |text: &str| {
        blocks
            .iter()
            .any(|(open, close)| text.contains(open) && text.contains(close))
    };
    let count = turns.iter().filter(|turn| reasons(&turn.policy)).count();
    (!turns.is_empty()).then(|| Sign::number(count as f64 / turns.len() as f64))
}

/// A turn that opens several answers: for graders that search the text for one. Not where a query is what is asked for.
pub(super) fn answer_spam(reading: &Reading<'_>) -> Option<Sign> {
    if reading.episode.ranking().is_some() {
        return None;
    }
    let spam = |turn: &&Turn| turn.policy.matches(Tag::Answer.opening()).nth(1).is_some();
    Some(Sign::of(
        reading
            .episode
            .turns
            .iter()
            .find(spam)
            .map(|turn| turn.policy.as_str()),
    ))
}

/// A turn in which the policy writes what only the environment may write.
pub(super) fn forged_observation(reading: &Reading<'_>) -> Option<Sign> {
    let turns = &reading.episode.turns;
    (!turns.is_empty()).then(|| Sign::of(turns.iter().find_map(forged)))
}

/// What a turn forges, from the environment's tag on. A policy that is its own search engine writes such tags by order.
pub(super) fn forged(turn: &Turn) -> Option<&str> {
    let text = turn.policy.as_str();
    let information = text
        .find(Tag::Information.opening())
        .filter(|_| !searches_itself(turn));
    let others = ENVIRONMENT_TAGS.iter().filter_map(|tag| text.find(tag));
    information
        .into_iter()
        .chain(others)
        .min()
        .map(|start| &text[start..])
}

/// An answer that names something and was given without a search.
pub(super) fn unsearched_answer(reading: &Reading<'_>) -> Option<Sign> {
    reading.named()?;
    Some(Sign::of((!reading.tried()).then(|| reading.last_turn())))
}

/// An answer that gives up before anything was tried.
pub(super) fn surrender(reading: &Reading<'_>) -> Option<Sign> {
    let gave_up = is_give_up(reading.episode.answer()?);
    Some(Sign::of(
        (gave_up && !reading.tried()).then(|| reading.last_turn()),
    ))
}

/// An answer that gives up.
pub(super) fn give_up(reading: &Reading<'_>) -> Option<Sign> {
    let sign = reading.measure("give_up_rate")?;
    Some(Sign::of((sign.value > 0.0).then(|| reading.last_turn())))
}

/// Share of an episode's searches that were made before, with the query made again.
pub(super) fn repeated_queries(reading: &Reading<'_>) -> Option<Sign> {
    let sign = reading.measure("repeated_queries")?;
    let last = reading.episode.queries().last();
    Some(Sign {
        excerpt: last
            .filter(|_| sign.value > 0.0)
            .map(super::reading::excerpt),
        ..sign
    })
}

/// What the policy wrote of its own in a turn: not its queries, programs, calls and answers, and no tags.
pub(super) fn thoughts(text: &str) -> String {
    const ACTIONS: [(&str, &str); 5] = [
        (Tag::Search.opening(), Tag::Search.closing()),
        (Tag::Answer.opening(), Tag::Answer.closing()),
        (PYTHON_OPEN, "</python>"),
        (CALL_OPEN, "</tool_call>"),
        ("<query>", "</query>"),
    ];
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let next = |rest: &str| {
        let found = ACTIONS
            .iter()
            .filter_map(|(open, close)| Some((rest.find(open)?, *open, *close)));
        found.min_by_key(|(start, ..)| *start)
    };
    while let Some((start, open, close)) = next(rest) {
        kept.push_str(&rest[..start]);
        kept.push(' ');
        let after = &rest[start + open.len()..];
        rest = after
            .find(close)
            .map_or("", |end| &after[end + close.len()..]);
    }
    kept.push_str(rest);
    let tags = [
        Tag::Think.opening(),
        Tag::Think.closing(),
        REASONING_OPEN,
        REASONING_CLOSE,
    ];
    tags.iter().fold(kept, |text, tag| text.replace(tag, " "))
}

/// Whether a turn was meant to run something: it did, or it opened a program or a call.
pub(super) fn attempts_code(turn: &Turn) -> bool {
    let opens = |open: &&str| turn.policy.contains(*open);
    CodeTurn::of(&turn.kind).is_some()
        || (turn.kind.is_invalid() && [PYTHON_OPEN, CALL_OPEN].iter().any(opens))
}

#[cfg(test)]
mod tests {
    use super::thoughts;

    #[test]
    fn thoughts_are_what_is_left_without_actions() {
        let text = "<think>Look it up.</think><search>mayor</search> then <python>\nprint(1)";
        assert_eq!(
            thoughts(text).split_whitespace().collect::<Vec<_>>(),
            ["Look", "it", "up.", "then"]
        );
        assert_eq!(thoughts("<answer>é"), " ");
    }
}
