//! What can be said of data and tokenizer before anything is played.

use std::collections::{BTreeMap, BTreeSet};

use forage_contracts::environment::Outcome;
use forage_contracts::{EnvEntry, Task};
use forage_env::Contamination;
use forage_trainer::doctor::Check;

use super::{failed, noted, passed};
use crate::config::Resolved;
use crate::data::{Data, Tasks};
use crate::error::Result;
use crate::session::Session;
use crate::splits::Evidence;
use crate::train::{counted, few_questions};

/// Questions whose text is put through the tokenizer.
const READ: usize = 200;

/// Ids of one question that are named.
const NAMED: usize = 3;

/// Share of questions that may hold their answer: those that offer a choice do.
const GIVEN_AWAY: f64 = 0.2;

pub(super) fn checks(config: &Resolved, entry: &EnvEntry, data: &Data) -> Result<Vec<Check>> {
    let plain =
        |tasks: &Tasks| -> Vec<Task> { tasks.iter().map(|task| Task::clone(task)).collect() };
    let (train, dev, test) = (plain(&data.train), plain(&data.dev), plain(&data.test));
    let mut checks = vec![questions(config, data)];
    let alone = Contamination::between(&train, &[]);
    // `data check` reads files alone.
    let of_files = config.data.files.is_some();
    checks.push(duplicates(&train, &alone, of_files));
    checks.push(answers(entry, &train, &dev));
    let given = alone.answer_in_question.len();
    let fix = if of_files {
        "such questions need no search: `forage data check --json` names them"
    } else {
        "such questions need no search: let the environment ask others"
    };
    checks.push(noted(
        "answers in questions",
        format!(
            "{given} of {} questions hold an answer of theirs",
            train.len()
        ),
        given as f64 > GIVEN_AWAY * train.len() as f64,
        fix,
    ));
    for (name, others) in [("leaks into dev", &dev), ("leaks into test", &test)] {
        if !others.is_empty() {
            checks.push(leaks(name, &train, others));
        }
    }
    if let Some(index) = &data.corpus.index {
        let splits = [&data.train, &data.dev, &data.test];
        checks.extend(evidence(Evidence::of(index, &splits, &config.environment)?));
    }
    checks.push(tags(entry, &train));
    Ok(checks)
}

/// Questions that are asked more than once, and those of them that have other answers under the same text.
fn duplicates(train: &[Task], found: &Contamination, of_files: bool) -> Check {
    const NAME: &str = "duplicates";
    let Some(first) = found.duplicates.first() else {
        return passed(NAME, "none");
    };
    let golds: BTreeMap<String, BTreeSet<&String>> = train
        .iter()
        .map(|task| (task.name(), task.golds.iter().collect()))
        .collect();
    let differing = found.duplicates.iter().filter(|repeated| {
        let answers: BTreeSet<_> = repeated.ids.iter().map(|id| golds.get(id)).collect();
        answers.len() > 1
    });
    let differing = differing.count();
    let named = first.ids.iter().take(NAMED).cloned().collect::<Vec<_>>();
    let rest = match first.ids.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let count = found.duplicates.len();
    let text = format!(
        "{} under several ids, {}{rest} for instance",
        counted(count as u64, "question"),
        named.join(" and ")
    );
    if differing > 0 {
        let text = format!("{text}; {differing} with other answers under the same text");
        let fix = "a policy that reads the text alone cannot know which answer is wanted: put into the question what sets them apart, \
                   unless the environment shows it";
        return noted(NAME, text, true, fix);
    }
    let fix = if of_files {
        "a question that is asked twice counts twice: `forage data check --json` lists all"
    } else {
        "a question that is asked twice counts twice: let the environment draw each question once"
    };
    noted(NAME, text, true, fix)
}

fn questions(config: &Resolved, data: &Data) -> Check {
    let [train, dev, test] = [&data.train, &data.dev, &data.test].map(|tasks| tasks.len());
    let found = format!("{train} to learn from, {dev} for validation, {test} held out");
    if train == 0 {
        return failed("questions", found, true, "name questions in [data]");
    }
    let few = few_questions(train, config).is_some();
    let fix = "each comes again within ten steps, and may be learned by heart: use more questions";
    noted("questions", found, few, fix)
}

/// What questions are compared with. One without any answer is only loaded where the weighted rewards do without.
fn answers(entry: &EnvEntry, train: &[Task], dev: &[Task]) -> Check {
    let is_open = |task: &&Task| entry.outcome == Outcome::Answer && task.golds.is_empty();
    let lacks = |task: &&Task| match entry.outcome {
        Outcome::Answer => !is_open(task) && task.golds.iter().all(|gold| gold.trim().is_empty()),
        Outcome::Ranking => task.judgments().is_empty(),
    };
    let blank = |task: &&Task| {
        entry.outcome == Outcome::Answer && task.golds.iter().any(|gold| gold.trim().is_empty())
    };
    let all = || train.iter().chain(dev);
    let without: Vec<String> = all().filter(lacks).map(Task::name).collect();
    let fix = "no episode can earn anything there: mend or remove the rows";
    if let Some(first) = without.first() {
        let found = format!(
            "{} questions have none, {first} for instance",
            without.len()
        );
        return failed("answers", found, true, fix);
    }
    let blanks = all().filter(blank).count();
    let open = all().filter(is_open).count();
    let found = if blanks > 0 {
        format!("{blanks} questions have an empty one among others")
    } else if open > 0 {
        format!("{open} questions have none, which the weighted rewards do without")
    } else {
        "every question has one".to_owned()
    };
    noted(
        "answers",
        found,
        blanks > 0,
        "an empty answer counts as right there: remove it",
    )
}

fn leaks(name: &'static str, train: &[Task], others: &[Task]) -> Check {
    let found = Contamination::between(others, train);
    if let Some(first) = found.same_question.first() {
        let text = format!(
            "{} of {} questions are learned from, {} for instance",
            found.same_question.len(),
            others.len(),
            first.id
        );
        return failed(
            name,
            text,
            true,
            "remove them on one side: `forage data check FILE --against OTHER` names all, and those of one file that train_share cuts \
             without --against; `questions` of a class gives each split its own",
        );
    }
    let evidence = found.same_evidence.len();
    let text = if evidence == 0 {
        format!("none of {} questions", others.len())
    } else {
        format!(
            "no question, and the evidence of {evidence} of {}",
            others.len()
        )
    };
    let fix = "passages that answer training questions answer these too: fine where both search one encyclopedia, else split by passage";
    noted(name, text, evidence > 0, fix)
}

/// The check of how much of the evidence is in the index; `None` where no question names any. A run without any of it there may still
/// begin where passages have no titles: questions may name their evidence by these, and find their answers in the index all the same.
fn evidence(evidence: Evidence) -> Option<Check> {
    let looked_up = evidence.looked_up;
    let wrong = evidence.unknown.is_some();
    let all =
        || format!("that of {looked_up} questions was looked up, and all of it is in the index");
    let found = evidence.unknown.unwrap_or_else(all);
    let fix = "name it as the index does, or search the corpus that the questions were made for";
    let judge = if evidence.is_elsewhere { failed } else { noted };
    (looked_up > 0).then(|| judge("evidence", found, wrong, fix))
}

/// Tags of the protocol in what the policy is asked.
fn tags(entry: &EnvEntry, train: &[Task]) -> Check {
    let tagged = |task: &&Task| {
        let texts = task.golds.iter().chain([&task.question]);
        let mut texts = texts.map(String::as_str);
        texts.any(|text| entry.vocabulary.tags.iter().any(|tag| text.contains(tag)))
    };
    let count = train.iter().filter(tagged).count();
    let found = match train.iter().find(tagged) {
        None => "no question or answer holds one of the protocol".to_owned(),
        Some(first) => format!(
            "{count} questions hold one of the protocol, {} for instance",
            first.name()
        ),
    };
    let fix = "graders that read the prompt take them for the policy's: remove them";
    noted("tags in questions", found, count > 0, fix)
}

pub(super) fn tokenizer(
    config: &Resolved,
    entry: &EnvEntry,
    session: &Session,
    tasks: &Tasks,
    has_template: bool,
) -> Vec<Check> {
    let tokenizer = &*session.format.tokenizer;
    let returns = |text: &str| tokenizer.decode(&tokenizer.encode(text)) == text;
    let mut checks = Vec::new();
    let tags = entry.vocabulary.tags;
    if !tags.is_empty() {
        let lost: Vec<&str> = tags.iter().copied().filter(|tag| !returns(tag)).collect();
        let most = tags.iter().map(|tag| tokenizer.encode(tag).len()).max();
        let found = if lost.is_empty() {
            format!(
                "all {} come back as written, of {} tokens at most",
                tags.len(),
                most.unwrap_or(0)
            )
        } else {
            format!("{} do not come back as they were written", lost.join(" "))
        };
        let fix =
            "no turn could be read: use a checkpoint whose tokenizer keeps them, or tool calls";
        checks.push(failed("tags", found, !lost.is_empty(), fix));
    }
    let texts: Vec<&str> = tasks
        .iter()
        .take(READ)
        .map(|task| task.question.as_str())
        .collect();
    let lost = texts.iter().filter(|text| !returns(text)).count();
    checks.push(noted(
        "questions come back",
        format!("{} of {} do", texts.len() - lost, texts.len()),
        lost > 0,
        "the tokenizer normalises text: the policy reads other words than the data has",
    ));
    // The log only grows: an observation is appended to what the policy sampled, never tokenised together with it.
    let grows = |text: &&str| {
        let tag = tags.last().copied().unwrap_or("\n");
        let mut ids = tokenizer.encode(text);
        ids.extend(tokenizer.encode(tag));
        tokenizer.decode(&ids) == format!("{text}{tag}")
    };
    let kept = texts.iter().filter(|text| grows(text)).count();
    checks.push(noted(
        "prefixes",
        format!("{kept} of {} texts stay a prefix when text is appended", texts.len()),
        kept + lost < texts.len(),
        "appended text changes what stood before: the policy reads something else than the record shows",
    ));
    let chats = config.policy.chat.is_some();
    let fix = "an instruct checkpoint expects its template: write [policy.chat], unless this is a base model";
    checks.push(if chats {
        passed(
            "chat template",
            "opening, turns and tools are rendered, each a prefix of the next",
        )
    } else {
        let found = if has_template {
            "the checkpoint has one, and episodes are running text"
        } else {
            "episodes are running text"
        };
        noted("chat template", found.to_owned(), has_template, fix)
    });
    checks
}

#[cfg(test)]
mod tests {
    use forage_env::registry;

    use super::*;

    fn task(id: &str, question: &str, gold: &str) -> Task {
        Task {
            golds: vec![gold.to_owned()],
            ..Task::new(id, question)
        }
    }

    fn status(check: &Check) -> &'static str {
        match (check.holds, check.fix) {
            (true, None) => "pass",
            (true, Some(_)) => "warn",
            (false, _) => "fail",
        }
    }

    #[test]
    fn evidence_that_nobody_looked_up_passes_nothing() {
        let found = |looked_up, unknown: Option<&str>, is_elsewhere| {
            let unknown = unknown.map(str::to_owned);
            evidence(Evidence {
                looked_up,
                unknown,
                is_elsewhere,
                refusal: None,
            })
        };
        assert_eq!(found(0, None, false), None);
        let check = found(2, None, false).unwrap();
        assert!(
            status(&check) == "pass" && check.found.contains("of 2 questions"),
            "{check:?}"
        );
        assert_eq!(status(&found(2, Some("gone"), false).unwrap()), "warn");
        assert_eq!(status(&found(2, Some("gone"), true).unwrap()), "fail");
    }

    #[test]
    fn questions_of_one_text_with_other_answers_are_told() {
        let told = |second: &str| {
            let train = [
                task("a", "Who sings?", "Ada"),
                task("b", "Who sings?", second),
            ];
            let check = duplicates(&train, &Contamination::between(&train, &[]), false);
            (status(&check).to_owned(), check.found)
        };
        let (state, same) = told("Ada");
        assert!(
            state == "warn"
                && same.starts_with("1 question under several ids")
                && !same.contains("answers"),
            "{same}"
        );
        let (state, other) = told("Bea");
        assert!(
            state == "warn" && other.ends_with("1 with other answers under the same text"),
            "{other}"
        );
    }

    #[test]
    fn empty_answers_leaks_and_tags_are_named() {
        let entry = registry::find("search-r1").unwrap();
        let good = [
            task("a", "Who sings?", "Ada"),
            task("b", "Who sleeps?", "Bea"),
        ];
        let check = answers(entry, &good, &[]);
        assert_eq!(
            (status(&check), check.found.as_str()),
            ("pass", "every question has one")
        );
        let check = answers(entry, &good, &[task("c", "Who cooks?", " ")]);
        assert!(
            status(&check) == "fail" && check.found.contains("c for instance"),
            "{check:?}"
        );
        let mut partly = task("d", "Who reads?", "Dora");
        partly.golds.push(String::new());
        assert_eq!(status(&answers(entry, &[partly], &[])), "warn");
        let check = answers(entry, &good, &[Task::new("e", "Which card is next?")]);
        assert!(
            status(&check) == "pass" && check.found.starts_with("1 questions have none"),
            "{check:?}"
        );

        assert_eq!(
            status(&leaks("leaks", &good, &[task("x", "Who cooks?", "Cy")])),
            "pass"
        );
        let check = leaks("leaks", &good, &[task("x", "who sings", "Ada")]);
        assert!(
            status(&check) == "fail"
                && check.found.starts_with("1 of 1")
                && check.fix.is_some_and(|fix| fix.contains("of a class")),
            "{check:?}"
        );
        let shared = |id: &str, question: &str| Task {
            evidence: vec!["p1".to_owned()],
            ..task(id, question, "Ada")
        };
        let check = leaks(
            "leaks",
            &[shared("a", "Who sings?")],
            &[shared("x", "Who cooks?")],
        );
        assert_eq!(status(&check), "warn");

        assert_eq!(status(&tags(entry, &good)), "pass");
        let check = tags(entry, &[task("t", "Say <answer>Ada</answer>.", "Ada")]);
        assert!(
            status(&check) == "warn" && check.found.contains("t for instance"),
            "{check:?}"
        );
    }
}
