//! Items of how an episode is played: tags, searches, surrender.

use forage_contracts::{Episode, Reading, Sign, Tag, Turn};
use forage_env::chat::hermes::ToolCall;
use forage_env::registry::environments;
use forage_env::reward::is_give_up;

use super::reading::{last_turn, named, searches_itself, tried};

/// What chat templates write around the result of a call, in every environment.
const TOOL_RESPONSE: &str = "<tool_response>";

/// Words of the answer.
pub(super) fn answer_words(reading: &Reading<'_>) -> Option<Sign> {
    let answer = reading.episode.answer()?;
    Some(Sign::number(answer.split_whitespace().count() as f64))
}

/// Tags around reasoning, of all environments.
fn reasoning_tags() -> impl Iterator<Item = [&'static str; 2]> {
    let own = environments().flat_map(|entry| entry.telemetry.reasoning);
    std::iter::once(Tag::Think.both()).chain(own.copied())
}

/// Share of the turns with a closed block of reasoning.
pub(super) fn reasoning(reading: &Reading<'_>) -> Option<Sign> {
    let turns = &reading.episode.turns;
    let blocks: Vec<[&str; 2]> = reasoning_tags().collect();
    let reasons = |text: &str| {
        blocks
            .iter()
            .any(|[open, close]| text.contains(open) && text.contains(close))
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
    let forgery = || turns.iter().find_map(|turn| forged(reading.episode, turn));
    (!turns.is_empty()).then(|| Sign::of(forgery()))
}

/// What a turn forges, from the environment's tag on. A policy that is its own search engine writes such tags by order.
pub(super) fn forged<'a>(episode: &Episode, turn: &'a Turn) -> Option<&'a str> {
    let text = turn.policy.as_str();
    let own = environments().flat_map(|entry| entry.telemetry.observations);
    let tags = own.copied().chain([TOOL_RESPONSE]);
    let by_order = |tag: &str| tag == Tag::Information.opening() && searches_itself(episode, turn);
    let start = tags
        .filter(|tag| !by_order(tag))
        .filter_map(|tag| text.find(tag))
        .min()?;
    Some(&text[start..])
}

/// Returns whether the policy could search, as the environment's entry says; of an episode without a name of its environment it is
/// supposed.
pub(super) fn searches(reading: &Reading<'_>) -> bool {
    let id = reading.episode.environment.as_str();
    id.is_empty() || environments().any(|entry| entry.id == id && entry.telemetry.searches)
}

/// An answer that names something and was given without a search, where something could be searched.
pub(super) fn unsearched_answer(reading: &Reading<'_>) -> Option<Sign> {
    named(reading)?;
    searches(reading).then(|| Sign::of((!tried(reading)).then(|| last_turn(reading))))
}

/// An answer that gives up before anything was tried.
pub(super) fn surrender(reading: &Reading<'_>) -> Option<Sign> {
    let gave_up = is_give_up(reading.episode.answer()?) && !tried(reading);
    searches(reading).then(|| Sign::of(gave_up.then(|| last_turn(reading))))
}

/// An answer that gives up.
pub(super) fn give_up(reading: &Reading<'_>) -> Option<Sign> {
    let sign = reading.measure("give_up_rate")?;
    Some(Sign::of((sign.value > 0.0).then(|| last_turn(reading))))
}

/// Share of an episode's searches that were made before, with the query made again.
pub(super) fn repeated_queries(reading: &Reading<'_>) -> Option<Sign> {
    let sign = reading.measure("repeated_queries")?;
    let last = reading.episode.queries().last();
    Some(Sign::new(sign.value, last.filter(|_| sign.value > 0.0)))
}

/// What the policy wrote of its own in a turn: not its queries, programs, calls and answers, and no tags.
pub(super) fn thoughts(text: &str) -> String {
    let common = [Tag::Answer.both(), ToolCall::TAGS];
    let own = environments().flat_map(|entry| entry.telemetry.actions);
    let actions: Vec<[&str; 2]> = own.copied().chain(common).collect();
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let next = |rest: &str| {
        let found = actions
            .iter()
            .filter_map(|[open, close]| Some((rest.find(open)?, *open, *close)));
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
    let tags = reasoning_tags().flatten();
    tags.fold(kept, |text, tag| text.replace(tag, " "))
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
