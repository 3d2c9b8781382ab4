//! Scripted policies that solve problems whose steps are known: in words, in code that nobody runs, and at once.

use std::sync::Arc;

use forage_contracts::scripted::{Cast, Conduct, Haste, OracleStyle, ScriptEntry, Scripted};
use forage_contracts::seed::Seed;
use forage_contracts::{OracleHop, Task};

use super::{BOX, in_box};

pub(super) const SCRIPTS: &[ScriptEntry] = &[
    ScriptEntry {
        name: ScriptEntry::ORACLE,
        play: |cast| Arc::new(solver(cast, in_words)),
    },
    ScriptEntry {
        name: "coder",
        play: |cast| Arc::new(solver(cast, in_code)),
    },
];

/// The ways to write a calculation and its result.
type Write = fn(calculation: &str, result: &str) -> String;

fn in_words(calculation: &str, result: &str) -> String {
    format!("{calculation} = {result}\n")
}

fn in_code(calculation: &str, result: &str) -> String {
    format!("```python\nprint({calculation})\n```\nThat is {result}.\n")
}

/// Writes steps in its usual way where haste has no share in how they are written.
fn solver(cast: Cast, usual: Write) -> Scripted {
    let haste = cast.haste;
    Scripted::knowing(cast, move |task, _, style, conduct| {
        let write = habit(haste, &task.question, usual);
        Ok(solution(task, write, style, conduct))
    })
}

/// How the steps of a problem are written; `None` where none is. It depends on the problem alone, and not on how its solution ends.
fn habit(haste: Haste, question: &str, usual: Write) -> Option<Write> {
    let hash = Seed::root(0).child("habit", &[]).child(question, &[]).0;
    let share = hash as f64 / u64::MAX as f64;
    if share < haste.direct {
        None
    } else if share < haste.direct + haste.code {
        Some(in_code)
    } else {
        Some(usual)
    }
}

/// The steps, then the answer in a box.
fn solution(task: &Task, write: Option<Write>, style: OracleStyle, conduct: Conduct) -> String {
    let gold = task.golds.first().map_or("", String::as_str);
    let known: &[OracleHop] = match (style, conduct) {
        (OracleStyle::Terse | OracleStyle::Spaced, _) | (_, Conduct::Guess) => &[],
        (_, Conduct::Skim) => &task.oracle[..task.oracle.len().min(1)],
        _ => &task.oracle[..],
    };
    let steps = write.map_or_else(String::new, |write| {
        let steps = known.iter().map(|hop| write(&hop.query, &hop.finding));
        steps.collect()
    });
    let end = match conduct {
        Conduct::Careful | Conduct::Early => in_box(gold),
        // A number of the problem.
        Conduct::Guess => {
            let mut numbers = task.question.split(|letter: char| !letter.is_ascii_digit());
            in_box(numbers.find(|number| !number.is_empty()).unwrap_or("0"))
        }
        // What the first step gives.
        Conduct::Skim => in_box(known.first().map_or(gold, |hop| hop.finding.as_str())),
        Conduct::Silent => gold.to_owned(),
        Conduct::Undefined | Conduct::Malformed => [BOX, gold].concat(),
    };
    [steps, end].concat()
}
