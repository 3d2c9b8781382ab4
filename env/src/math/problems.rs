//! Generated problems: stories of arithmetic and riddles of linear equations.
//!
//! A problem's split follows from its text alone, so that splits share no problem, whatever the seeds are.

use std::collections::HashSet;

use forage_contracts::seed::Seed;
use forage_contracts::{OracleHop, Split, Task};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::answer::gcd;
use crate::settings::SettingsError;

const NAMES: [&str; 12] = [
    "Ada", "Bo", "Chen", "Dina", "Emil", "Fatou", "Gus", "Hana", "Ivo", "Jun", "Kofi", "Lena",
];
const ITEMS: [&str; 12] = [
    "apples", "beads", "cards", "coins", "eggs", "marbles", "nuts", "pears", "pens", "shells",
    "stamps", "stones",
];

/// Problems in a row that are of another split, or known already, before it is said that there are too few.
const MISSES: usize = 1000;

struct Problem {
    question: String,
    /// Each calculation, as Python writes it, and what comes out.
    steps: Vec<OracleHop>,
    answer: String,
}

/// The first problems of a split.
///
/// # Errors
/// When there are fewer of this difficulty.
pub(super) fn questions(
    difficulty: usize,
    split: Split,
    count: usize,
    seed: Seed,
) -> Result<Vec<Task>, SettingsError> {
    let (mut tasks, mut seen, mut misses) = (Vec::new(), HashSet::new(), 0);
    for index in 0.. {
        if tasks.len() == count {
            break;
        }
        if misses == MISSES {
            return Err(SettingsError::Excluded {
                what: "there are fewer problems of this `difficulty` than are asked for",
                fix: "ask for fewer, or raise `difficulty`",
            });
        }
        let mut rng = seed.child("problem", &[difficulty as u64, index]).rng();
        let hard = difficulty as i64;
        let problem = if rng.random_range(0..2_u8) == 0 {
            story(hard, &mut rng)
        } else {
            riddle(hard, &mut rng)
        };
        let fits = split_of(&problem.question) == split;
        if fits && seen.insert(problem.question.clone()) {
            tasks.push(task(problem, split, tasks.len()));
            misses = 0;
        } else {
            misses += 1;
        }
    }
    Ok(tasks)
}

fn task(problem: Problem, split: Split, index: usize) -> Task {
    let name = match split {
        Split::Train => "train",
        Split::Dev => "dev",
        Split::Test => "test",
    };
    Task {
        golds: vec![problem.answer],
        hops: u8::try_from(problem.steps.len()).unwrap_or(u8::MAX),
        oracle: problem.steps,
        data_source: "forage-math".to_owned(),
        split,
        ..Task::new(format!("{name}-{index}"), problem.question)
    }
}

/// Eight problems in ten are for training.
fn split_of(question: &str) -> Split {
    match Seed::root(0).child(question, &[]).0 % 10 {
        0..=7 => Split::Train,
        8 => Split::Dev,
        _ => Split::Test,
    }
}

fn pick(items: &[&'static str], rng: &mut ChaCha8Rng) -> &'static str {
    items[rng.random_range(0..items.len())]
}

fn step(calculation: String, result: String) -> OracleHop {
    OracleHop {
        query: calculation,
        finding: result,
    }
}

/// Things that somebody gains, loses, multiplies and shares, one event after the other.
fn story(difficulty: i64, rng: &mut ChaCha8Rng) -> Problem {
    let (name, item, most) = (pick(&NAMES, rng), pick(&ITEMS, rng), 20 * difficulty);
    let mut value: i64 = rng.random_range(2..=most);
    let mut question = format!("{name} has {value} {item}.");
    let mut steps = Vec::new();
    for _ in 0..difficulty {
        let number: i64 = rng.random_range(2..=most);
        let few: i64 = rng.random_range(2..=4);
        let (event, sign, by) = match rng.random_range(0..4_u8) {
            0 if number < value => (format!("{name} gives {number} away."), '-', number),
            1 if value <= 50 => (format!("Then there are {few} times as many."), '*', few),
            2 if value % few == 0 => {
                let event =
                    format!("{name} shares them out into {few} equal bags and keeps one bag.");
                (event, '/', few)
            }
            _ => (format!("{name} gets {number} more."), '+', number),
        };
        let calculation = format!("{value} {sign} {by}");
        value = match sign {
            '-' => value - by,
            '*' => value * by,
            '/' => value / by,
            _ => value + by,
        };
        question = format!("{question} {event}");
        steps.push(step(calculation, value.to_string()));
    }
    Problem {
        question: format!("{question} How many {item} does {name} have now?"),
        steps,
        answer: value.to_string(),
    }
}

/// An unknown number in an equation that is told in words.
fn riddle(difficulty: i64, rng: &mut ChaCha8Rng) -> Problem {
    let (name, most) = (pick(&NAMES, rng), 20 * difficulty);
    // The unknown is `top / bottom`, and `slope` times it a whole number.
    let bottom: i64 = if difficulty < 4 {
        1
    } else {
        rng.random_range(1..=5)
    };
    let factor: i64 = if difficulty == 1 {
        1
    } else {
        rng.random_range(2..=5)
    };
    let other: i64 = if difficulty < 3 {
        0
    } else {
        rng.random_range(1..=5)
    };
    let least = if difficulty < 3 { 1 } else { -most };
    let top: i64 = rng.random_range(least..=most);
    let plus: i64 = rng.random_range(1..=most);
    let (slope, product) = (factor * bottom, factor * top);
    let (times, right) = (slope + other, product + plus);
    let answer = written(top, bottom);
    let mut steps = vec![step(format!("{right} - {plus}"), product.to_string())];
    if other > 0 {
        steps.push(step(format!("{times} - {other}"), slope.to_string()));
    }
    if slope > 1 {
        steps.push(step(format!("{product} / {slope}"), answer.clone()));
    }
    let (left, right) = (side(times, plus), side(other, right));
    Problem {
        question: format!("{name} thinks of a number: {left} equals {right}. What is the number?"),
        steps,
        answer,
    }
}

/// One side of the equation, in words.
fn side(times: i64, plus: i64) -> String {
    let unknown = match times {
        0 => return plus.to_string(),
        1 => "the number".to_owned(),
        _ => format!("{times} times the number"),
    };
    match plus {
        0 => unknown,
        1.. => format!("{plus} more than {unknown}"),
        _ => format!("{} less than {unknown}", -plus),
    }
}

/// A fraction as an answer is written, reduced.
fn written(top: i64, bottom: i64) -> String {
    let (top, bottom) = (i128::from(top), i128::from(bottom));
    let shared = gcd(top, bottom);
    let (top, bottom) = (top / shared, bottom / shared);
    let sign = if top < 0 { "-" } else { "" };
    match bottom {
        1 => top.to_string(),
        _ => format!("{sign}\\frac{{{}}}{{{bottom}}}", top.abs()),
    }
}
