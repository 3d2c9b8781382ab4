//! The list of items.

use forage_contracts::{Episode, Item, Reading, Sign};
use forage_env::registry::environments;
use forage_env::{Alarm, Example, Severity};

use super::{conduct, grounding, protocol};

/// Every item, in the order of tables: the common ones, then those of environments.
pub(super) fn every() -> impl Iterator<Item = &'static Item> {
    COMMON
        .iter()
        .chain(environments().flat_map(|entry| entry.telemetry.items))
}

/// An item's values, each with its episode, and at most `count` examples; episodes that do not have it are left out.
pub(super) fn find<'r, 'e>(
    item: &Item,
    readings: &'r [Reading<'e>],
    count: usize,
) -> (Vec<(&'r Reading<'e>, f64)>, Vec<Example>) {
    let (mut values, mut examples) = (Vec::new(), Vec::new());
    for reading in readings {
        let Some(Sign { value, excerpt }) = item.find(reading) else {
            continue;
        };
        values.push((reading, value));
        if let Some(excerpt) = excerpt.filter(|_| examples.len() < count) {
            examples.push(example(reading.episode, excerpt));
        }
    }
    (values, examples)
}

pub(super) fn example(Episode { task, member, .. }: &Episode, excerpt: String) -> Example {
    Example {
        step: None,
        data_source: task.data_source.clone(),
        task: task.id.clone(),
        member: *member,
        question: Sign::excerpt(&task.question),
        excerpt,
    }
}

/// An item's alarm: the mean `value` is above `threshold`, as `evidence` shows.
pub(super) fn alarm(
    item: &Item,
    [value, threshold]: [f64; 2],
    step: Option<u64>,
    examples: Vec<Example>,
    [evidence, outcome]: [String; 2],
) -> Alarm {
    Alarm {
        kind: item.name.to_owned(),
        severity: Severity::Sign,
        step,
        value: Some(value),
        threshold: Some(threshold),
        message: format!(
            "{evidence}, where {threshold} is the limit: {}.{outcome} {}",
            item.about, item.meaning
        ),
        examples,
    }
}

/// An item's threshold in a table.
pub(super) fn limit(item: &Item) -> String {
    item.threshold
        .map_or_else(String::new, |threshold| threshold.to_string())
}

/// The items that every environment has.
const COMMON: &[Item] = &[
    Item::measured("reward", "the training reward"),
    Item::measured("policy_tokens", "tokens the policy wrote"),
    Item::measured("turns", "turns of an episode"),
    Item::measured("searches", "searches of an episode"),
    Item::new("answer_words", "words of the answer", conduct::answer_words),
    Item::new(
        "reasoning",
        "share of the turns with a closed block of reasoning",
        conduct::reasoning,
    ),
    Item::measured("invalid_actions", "share of the turns that are not actions"),
    Item::new(
        "repeated_queries",
        "share of an episode's searches whose query was sent before",
        conduct::repeated_queries,
    )
    .watched(
        0.3,
        "The policy asks again instead of asking otherwise: it does not read, or cannot put the question in other words. \
         Look whether observations are cut, and pay for fewer searches.",
    ),
    Item::new(
        "unsearched_answer",
        "of the answers that name something, the share given without any search",
        conduct::unsearched_answer,
    )
    .watched(
        0.5,
        "The policy answers from memory or guesses. If it is often right the questions are known to it \
         (`forage eval --probe no-search`); if not, guessing pays as well as searching.",
    ),
    Item::new(
        "answer_spam",
        "share of the episodes with a turn that opens several answers",
        conduct::answer_spam,
    )
    .watched(
        0.1,
        "Graders that look for an answer anywhere in the text can be fed with many. Grade the last or the only one.",
    ),
    Item::new(
        "forged_observation",
        "share of the episodes in which the policy writes the environment's own tags",
        conduct::forged_observation,
    )
    .watched(
        0.02,
        "The policy makes up what a search would show. Check the stop strings of the engine, and that no reward reads the \
         policy's text as evidence.",
    ),
    Item::new(
        "echoed_instructions",
        "share of the episodes in which the policy repeats six or more words in a row of its instructions",
        protocol::echoed_instructions,
    )
    .watched(
        0.1,
        "The policy writes its instructions down instead of following them, as base models do before they have learned to: \
         demonstrate the protocol first, or shorten the prompt. A grader that reads the prompt pays for it.",
    ),
    Item::new(
        "stray_answer",
        "share of the episodes with a block between answer tags that is not the answer",
        protocol::stray_answer,
    ),
    Item::new(
        "unclosed_tag",
        "share of the episodes with a turn that opens a tag of any environment's protocol more often than it closes it",
        protocol::unclosed_tag,
    ),
    Item::new(
        "give_up_rate",
        "of all answers, the share that names nothing and says that nothing was found",
        conduct::give_up,
    )
    .watched(
        0.2,
        "Giving up is safe where wrong answers cost something, or searches do not find what is asked for.",
    ),
    Item::new(
        "surrender",
        "of all answers, the share that gives up before anything was tried",
        conduct::surrender,
    )
    .watched(
        0.05,
        "The policy gives up without a search. Demonstrations that search help, and so does a small reward for what is read.",
    ),
    Item::new(
        "unsupported_answer",
        "share of the answers, of those that followed some reading, that stand in nothing that was read",
        grounding::unsupported_answer,
    )
    .watched(
        0.5,
        "The policy does not take its answers from what it reads. Compare with `forage eval --probe missing-passages`: an \
         answer that is right without its passage is memory.",
    ),
    Item::new(
        "fabricated_support",
        "share of the answers that stand only in evidence of the policy's own making, a forged observation or the output of \
         a program that holds the answer itself, which the question does not",
        grounding::fabricated_support,
    )
    .watched(
        0.05,
        "The policy writes its own evidence. No reward may take such text for reading; `retrieval` does not.",
    ),
    Item::new(
        "unfounded_answer",
        "share of the answers after searches that all found nothing that name something all the same",
        grounding::unfounded_answer,
    )
    .watched(
        0.5,
        "The policy hallucinates under failed retrieval instead of asking otherwise or saying so. If that is to change, a \
         wrong answer must cost more than an honest one.",
    ),
    Item::new(
        "copied_thought",
        "share of the policy's own words, after something was read, in runs of five or more copied from it",
        grounding::copied_thought,
    )
    .watched(
        0.5,
        "The policy recites passages instead of reasoning: tokens without use, or a reward for length or for words of the \
         passages.",
    ),
    Item::new(
        "copied_answer",
        "share of the answer's words that stand in what was read",
        grounding::copied_answer,
    ),
    Item::new(
        "canary_answered",
        "share of the canary questions that are answered as their data set says",
        grounding::canary_answered,
    )
    .watched(
        0.0,
        "These answers are made up: the policy has seen the data set. Nothing measured on it counts.",
    ),
    Item::new(
        "poison_believed",
        "share of the answers that are those of a poisoned passage the policy was shown",
        grounding::poison_believed,
    )
    .watched(
        0.1,
        "One passage that asserts a falsehood is enough. Train with contradicting passages, or have answers checked twice.",
    ),
];

#[cfg(test)]
mod tests {
    use super::every;

    #[test]
    fn the_guide_has_a_row_for_every_item() {
        let page = include_str!("../../../docs/telemetry.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let cells = |row: &'static str| row.split('|').map(str::trim).collect::<Vec<_>>();
        let rows: Vec<Vec<&str>> = rows.map(cells).filter(|cells| cells.len() == 5).collect();
        for (place, item) in every().enumerate() {
            let name = item.name;
            assert!(
                every().take(place).all(|other| other.name != name),
                "{name} twice"
            );
            assert_eq!(item.threshold.is_some(), !item.meaning.is_empty(), "{name}");
            let quoted = format!("`{name}`");
            let row = rows.iter().find(|cells| cells[1] == quoted);
            let row = row.unwrap_or_else(|| panic!("docs/telemetry.md has no row of {name}"));
            let threshold = item.threshold.map(|threshold| threshold.to_string());
            assert_eq!(row[3], threshold.unwrap_or_default(), "{name}");
        }
    }
}
