//! Items of what a policy makes of its instructions: repeated, or half followed.

use std::collections::HashSet;

use forage_contracts::{Reading, Sign, Tag};
use forage_env::chat::hermes::ToolCall;
use forage_env::registry::environments;
use forage_env::reward::normalize;

/// Words in a row, tags among them, that count as repeated instructions.
const RUN: usize = 6;

/// Normalised words. Tags are words of their own: a policy that repeats its instructions repeats them too.
fn words(text: &str) -> String {
    normalize(&text.replace(['<', '>'], " "))
}

/// Tells whether a line of a prompt is a passage, which begins with its number in brackets.
fn is_passage(line: &str) -> bool {
    let number = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    number.is_some_and(|(number, _)| number.parse::<usize>().is_ok())
}

/// A turn that repeats a run of its instructions; the question and the passages of a prompt, which a policy may well repeat, are none of
/// them: any order of passages repeats the numbers of a table. Not where the instructions are shorter than a run.
pub(super) fn echoed_instructions(reading: &Reading<'_>) -> Option<Sign> {
    let episode = reading.episode;
    // An environment may ask it without the blanks around it.
    let question = episode.task.question.trim();
    let lines: Vec<&str> = episode.prompt.split('\n').collect();
    let parts = lines.split(|line| is_passage(line));
    let parts = parts.flat_map(|lines| -> Vec<String> {
        let part = lines.join("\n");
        if question.is_empty() {
            return vec![words(&part)];
        }
        part.split(question).map(words).collect()
    });
    let parts: Vec<String> = parts.collect();
    let parts: Vec<Vec<&str>> = parts
        .iter()
        .map(|part| part.split_whitespace().collect())
        .collect();
    let instructions: HashSet<&[&str]> = parts.iter().flat_map(|part| part.windows(RUN)).collect();
    if instructions.is_empty() || episode.turns.is_empty() {
        return None;
    }
    let repeats = |text: &str| {
        let own = words(text);
        let own: Vec<&str> = own.split_whitespace().collect();
        own.windows(RUN).any(|run| instructions.contains(run))
    };
    let mut turns = episode.turns.iter().map(|turn| turn.policy.as_str());
    Some(Sign::of(turns.find(|text| repeats(text))))
}

/// A block between answer tags that is not the answer: one in another turn, in a thought, or beside it, which a grader that looks for
/// any answer takes. Not where a query is what is asked for.
pub(super) fn stray_answer(reading: &Reading<'_>) -> Option<Sign> {
    let episode = reading.episode;
    if episode.turns.is_empty() || episode.ranking().is_some() {
        return None;
    }
    let given = episode.answer().map(str::trim);
    let mut turns = episode.turns.iter().map(|turn| turn.policy.as_str());
    let stray = |text: &&str| answers(text).any(|block| Some(block) != given);
    Some(Sign::of(turns.find(stray)))
}

/// The contents of the closed answer tags of a text, trimmed.
fn answers(text: &str) -> impl Iterator<Item = &str> {
    let [open, close] = Tag::Answer.both();
    let blocks = text.split(open).skip(1);
    blocks.filter_map(move |rest| rest.split_once(close).map(|(inside, _)| inside.trim()))
}

/// A turn that opens a tag of any environment's protocol more often than it closes it, wherever the tags stand.
pub(super) fn unclosed_tag(reading: &Reading<'_>) -> Option<Sign> {
    let turns = &reading.episode.turns;
    let common = [Tag::Think, Tag::Search, Tag::Answer].map(Tag::both);
    let own = environments().flat_map(|entry| {
        let telemetry = &entry.telemetry;
        telemetry.actions.iter().chain(telemetry.reasoning)
    });
    let tags: Vec<[&str; 2]> = common
        .into_iter()
        .chain([ToolCall::TAGS])
        .chain(own.copied())
        .collect();
    let open = |text: &&str| {
        let unclosed =
            |[open, close]: &[&str; 2]| text.matches(open).count() > text.matches(close).count();
        tags.iter().any(unclosed)
    };
    let mut texts = turns.iter().map(|turn| turn.policy.as_str());
    (!turns.is_empty()).then(|| Sign::of(texts.find(open)))
}
