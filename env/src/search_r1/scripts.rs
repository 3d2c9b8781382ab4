//! Scripted policies that search between tags.

use std::sync::Arc;

use forage_contracts::Tag;
use forage_contracts::policy::PolicyError;
use forage_contracts::scripted::{Hand, Script, ScriptEntry, Scripted, View};
use forage_contracts::seed::Seed;

const SEARCH: [&str; 2] = Tag::Search.both();
const ANSWER: [&str; 2] = Tag::Answer.both();

/// How the oracle searches and what it reads.
const HAND: Hand = Hand {
    search: |thought, query, style, _| Tag::turn(thought, SEARCH, &style.between_tags(query)),
    by_question: |thought, question, style| {
        Tag::turn(thought, SEARCH, &style.between_tags(question))
    },
    read: |shown| Tag::Information.inside(shown),
};

pub(super) const SCRIPTS: &[ScriptEntry] = &[
    ScriptEntry {
        name: ScriptEntry::ORACLE,
        play: |cast| Arc::new(Scripted::oracle(cast, HAND)),
    },
    ScriptEntry {
        name: "search-title",
        play: |cast| Arc::new(Scripted::with_script(SearchThenTitle, cast.tokenizer)),
    },
    ScriptEntry {
        name: "random",
        play: |cast| Arc::new(Scripted::with_script(Random, cast.tokenizer)),
    },
];

/// Searches for the question and answers with the first title.
struct SearchThenTitle;

impl Script for SearchThenTitle {
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        if view.shown.is_empty() && !view.must_answer {
            return Ok(Tag::turn("", SEARCH, view.question()));
        }
        let title = view.titles().next().unwrap_or("unknown");
        Ok(Tag::turn("", ANSWER, title))
    }
}

/// Searches for random words of the question, or answers with a random title it has seen.
struct Random;

impl Script for Random {
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        let titles: Vec<&str> = view.titles().collect();
        let searches = !view.must_answer && (titles.is_empty() || draw(view.seed, 0, 2) == 0);
        if searches {
            let words: Vec<&str> = view.question().split_whitespace().collect();
            let count = 1 + draw(view.seed, 1, 4);
            let chosen = (0..count)
                .filter_map(|number| words.get(draw(view.seed, 2 + number, words.len())))
                .copied();
            let query = chosen.collect::<Vec<_>>().join(" ");
            return Ok(Tag::turn("", SEARCH, &query));
        }
        let title = titles
            .get(draw(view.seed, 1, titles.len()))
            .copied()
            .unwrap_or("unknown");
        Ok(Tag::turn("", ANSWER, title))
    }
}

/// The `number`-th draw below `bound`; 0 when `bound` is 0.
fn draw(seed: Seed, number: usize, bound: usize) -> usize {
    let value = seed.child("draw", &[number as u64]).0;
    value.checked_rem(bound as u64).unwrap_or(0) as usize
}
