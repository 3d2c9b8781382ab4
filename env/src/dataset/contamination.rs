//! Questions that stand in two places: what would make a held-out score say less than it seems.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use forage_contracts::Task;
use serde::Serialize;

use crate::reward::grading::{exact_match, normalize};

/// The findings. Questions are named by data set and id, as [`Task::name`] does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Contamination {
    /// Questions looked at.
    pub questions: usize,
    /// Questions they were held against; 0 when there were none.
    pub against: usize,
    /// Questions that are asked more than once, white space, case, articles and punctuation other than the signs of formulas aside.
    pub duplicates: Vec<Repeated>,
    /// Questions that hold an answer of theirs, yes and no aside.
    pub answer_in_question: Vec<String>,
    /// Questions whose answer a grader of prompt and response takes from the prompt: an episode without an answer is right there.
    pub answer_in_prompt: Vec<String>,
    /// Questions that the other set asks too.
    pub same_question: Vec<Leak>,
    /// Questions whose answer is an answer in the other set; yes, no and numbers say nothing and are passed over.
    pub same_answer: Vec<Leak>,
    /// Questions whose evidence is evidence in the other set.
    pub same_evidence: Vec<Leak>,
}

/// What graders of prompt and response take for an answer where there is none: the example of Search-R1's published prompt, and
/// the word between the tags in its notices.
const PROMPTED: [&str; 2] = ["Beijing", "and"];

/// One question under several ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repeated {
    /// As it is first asked.
    pub question: String,
    /// Every question that asks it, in order.
    pub ids: Vec<String>,
}

/// A question and what it shares with the other set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Leak {
    /// The question.
    pub id: String,
    /// The first question of the other set that shares it.
    pub with: String,
    /// The question, answer or passage that both have.
    pub shared: String,
}

impl Contamination {
    /// Tells whether the two sets share a question or a passage. An answer they share tells little: trades, places and years are
    /// the answers of many questions.
    pub fn leaks(&self) -> bool {
        !(self.same_question.is_empty() && self.same_evidence.is_empty())
    }
}

impl Contamination {
    /// Looks through `tasks` for questions asked twice or that give their answer away, and holds them against `others`
    /// (training questions against held-out ones, in either order).
    pub fn between<T: Borrow<Task>>(tasks: &[T], others: &[T]) -> Self {
        let tasks: Vec<&Task> = tasks.iter().map(<T as Borrow<Task>>::borrow).collect();
        let others: Vec<&Task> = others.iter().map(<T as Borrow<Task>>::borrow).collect();
        let mut asked: BTreeMap<String, Vec<&Task>> = BTreeMap::new();
        for &task in &tasks {
            asked
                .entry(compared(&task.question))
                .or_default()
                .push(task);
        }
        let repeated = asked
            .values()
            .filter(|tasks| tasks.len() > 1)
            .map(|tasks| Repeated {
                question: tasks[0].question.clone(),
                ids: tasks.iter().map(|task| task.name()).collect(),
            });
        let question = |task: &Task| BTreeSet::from([compared(&task.question)]);
        let evidence = |task: &Task| {
            let judged = task
                .qrels
                .iter()
                .filter(|(_, grade)| **grade > 0)
                .map(|(id, _)| id);
            task.evidence.iter().chain(judged).cloned().collect()
        };
        Self {
            questions: tasks.len(),
            against: others.len(),
            duplicates: repeated.collect(),
            answer_in_question: tasks
                .iter()
                .filter(|task| gives_away(task))
                .map(|task| task.name())
                .collect(),
            answer_in_prompt: tasks
                .iter()
                .filter(|task| {
                    PROMPTED
                        .iter()
                        .any(|answer| exact_match(answer, &task.golds))
                })
                .map(|task| task.name())
                .collect(),
            same_question: shared(&tasks, &others, question),
            same_answer: shared(&tasks, &others, telling_answers),
            same_evidence: shared(&tasks, &others, evidence),
        }
    }
}

/// Punctuation by which formulas differ: `1+2` and `1-2`, `\frac{1}{23}` and `\frac{12}{3}`.
const SIGNS: [char; 10] = ['+', '-', '*', '/', '=', '<', '>', '^', '_', '{'];

/// A question as it is compared with others: its words as those of answers are, with the signs of formulas between them.
fn compared(question: &str) -> String {
    let mut found = String::with_capacity(question.len());
    for part in question.split_inclusive(SIGNS) {
        found.push_str(&normalize(part));
        found.extend(part.chars().next_back().filter(|last| SIGNS.contains(last)));
    }
    found
}

/// The first thing that each task shares with one of the others.
fn shared(
    tasks: &[&Task],
    others: &[&Task],
    parts: impl Fn(&Task) -> BTreeSet<String>,
) -> Vec<Leak> {
    let mut owners: HashMap<String, &Task> = HashMap::new();
    for &other in others {
        for part in parts(other) {
            owners.entry(part).or_insert(other);
        }
    }
    let leak = |task: &Task| {
        let (part, owner) = parts(task)
            .into_iter()
            .find_map(|part| owners.get(&part).map(|owner| (part.clone(), *owner)))?;
        Some(Leak {
            id: task.name(),
            with: owner.name(),
            shared: part,
        })
    };
    tasks.iter().copied().filter_map(leak).collect()
}

/// Answers that name something.
fn telling_answers(task: &Task) -> BTreeSet<String> {
    let telling = |answer: &String| {
        !["", "yes", "no", "true", "false"].contains(&answer.as_str())
            && !answer.chars().all(|c| c.is_ascii_digit())
    };
    task.golds
        .iter()
        .map(|gold| normalize(gold))
        .filter(telling)
        .collect()
}

/// Tells whether the question holds an answer as whole words.
fn gives_away(task: &Task) -> bool {
    let question = format!(" {} ", normalize(&task.question));
    telling_answers(task)
        .iter()
        .any(|answer| question.contains(&format!(" {answer} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, question: &str, gold: &str, evidence: &[&str]) -> Task {
        Task {
            golds: vec![gold.to_owned()],
            evidence: evidence.iter().map(|&id| id.to_owned()).collect(),
            ..Task::new(id.to_owned(), question.to_owned())
        }
    }

    #[test]
    fn what_two_sets_share_is_named() {
        let train = [
            task("a", "Who leads the choir?", "Ada", &["p1"]),
            task("b", "who leads  choir", "Bea", &["p2"]),
            task("c", "Is Rome older than Paris?", "yes", &["p3"]),
            task("d", "Was it Rome or Paris that fell in 476?", "Rome", &[]),
        ];
        let test = [
            task("x", "Who leads the choir!", "the ADA", &["p9"]),
            task("y", "Is it?", "Yes", &["p3"]),
            task("z", "When?", "476", &[]),
            task("v", "Where were they held in 2008?", "beijing", &[]),
        ];
        let found = Contamination::between(&train, &test);
        assert_eq!(found.duplicates.len(), 1);
        assert_eq!(found.duplicates[0].ids, ["a", "b"]);
        assert_eq!(found.answer_in_question, ["d"]);
        let ids = |leaks: &[Leak]| {
            leaks
                .iter()
                .map(|leak| format!("{}-{}", leak.id, leak.with))
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&found.same_question), ["a-x", "b-x"]);
        assert_eq!(ids(&found.same_answer), ["a-x"]);
        assert_eq!(ids(&found.same_evidence), ["c-y"]);
        assert!(found.leaks());
        let answers =
            Contamination::between(&train[..1], &[task("w", "Who sang?", "Ada", &["p8"])]);
        assert!(!answers.leaks() && answers.same_answer.len() == 1);
        let alone = Contamination::between(&test, &[]);
        assert_eq!(alone.answer_in_prompt, ["v"]);
        let alone = Contamination::between(&train, &[]);
        assert!(!alone.leaks() && alone.duplicates.len() == 1);
    }

    #[test]
    fn formulas_differ_by_their_signs() {
        let asked = [
            task("a", "What is $1+2$?", "3", &[]),
            task("b", "What is $1-2$?", "-1", &[]),
            task("c", "Compute $\\frac{1}{23}$.", "x", &[]),
            task("d", "Compute $\\frac{12}{3}$.", "y", &[]),
            task("e", "what is the $1 + 2$", "3", &[]),
        ];
        let found = Contamination::between(&asked, &asked[1..2]);
        assert_eq!(found.duplicates.len(), 1);
        assert_eq!(found.duplicates[0].ids, ["a", "e"]);
        let same: Vec<&str> = found
            .same_question
            .iter()
            .map(|leak| leak.id.as_str())
            .collect();
        assert_eq!(same, ["b"]);
    }
}
