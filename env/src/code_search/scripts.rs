//! Scripted policies that write programs.

use std::sync::Arc;

use forage_contracts::policy::PolicyError;
use forage_contracts::scripted::{Conduct, Hand, OracleStyle, Script, ScriptEntry, Scripted, View};
use forage_contracts::{OracleHop, Tag};

use super::programs::{self, Manner};
use crate::protocol::PYTHON;

const ANSWER: [&str; 2] = Tag::Answer.both();

/// How the oracle looks for a fact and what it reads.
const HAND: Hand = Hand {
    search: |thought, query, style, conduct| {
        let (name, keyword) = OracleHop::name_and_keyword(query);
        let code = match style {
            OracleStyle::Terse | OracleStyle::Spaced => {
                programs::short(name, keyword, manner(conduct))
            }
            OracleStyle::Plain => programs::thorough(name, keyword),
        };
        Tag::turn(thought, PYTHON, &code)
    },
    by_question: |thought, question, _| {
        Tag::turn(thought, PYTHON, &programs::by_question(question))
    },
    read: output,
};

pub(super) const SCRIPTS: &[ScriptEntry] = &[
    ScriptEntry {
        name: ScriptEntry::ORACLE,
        play: |cast| Arc::new(Scripted::oracle(cast, HAND)),
    },
    ScriptEntry {
        name: "one-call",
        play: |cast| Arc::new(Scripted::with_script(OneCall, cast.tokenizer)),
    },
    ScriptEntry {
        name: "broken-code",
        play: |cast| Arc::new(Scripted::with_script(BrokenCode, cast.tokenizer)),
    },
];

fn manner(conduct: Conduct) -> Manner {
    match conduct {
        Conduct::Careful | Conduct::Guess | Conduct::Early => Manner::Careful,
        Conduct::Skim => Manner::Skimming,
        Conduct::Silent => Manner::Silent,
        Conduct::Undefined => Manner::Undefined,
        Conduct::Malformed => Manner::Malformed,
    }
}

/// What a program printed.
fn output(shown: &str) -> Option<&str> {
    let (_, output) = shown.split_once("<python_output>")?;
    let (output, _) = output.rsplit_once("</python_output>")?;
    Some(output.trim())
}

/// Prints the titles found for the question and answers with the first.
struct OneCall;

impl Script for OneCall {
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        if view.shown.is_empty() && !view.must_answer {
            return Ok(Tag::turn("", PYTHON, &programs::titles(view.question())));
        }
        let printed = view
            .shown
            .iter()
            .find_map(|shown| output(shown))
            .unwrap_or_default();
        let title = printed.lines().next().unwrap_or("unknown");
        Ok(Tag::turn("", ANSWER, title))
    }
}

/// Writes programs that do not work until it must answer, and then gives up.
struct BrokenCode;

/// Programs it writes before it gives up.
const ATTEMPTS: usize = 2;

impl Script for BrokenCode {
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        if view.shown.len() < ATTEMPTS && !view.must_answer {
            let programs = programs::broken(view.question());
            let chosen = view.seed.child("draw", &[0]).0 as usize % programs.len();
            return Ok(Tag::turn("", PYTHON, &programs[chosen]));
        }
        Ok(Tag::turn("", ANSWER, "unknown"))
    }
}
