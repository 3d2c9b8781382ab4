//! Retrieval: 1 when some gold stands in something a search showed, after normalisation.
//!
//! Of a turn that ran code, what the policy was shown must hold the gold, and so must something a tool returned: a gold the
//! program printed out of nothing was not read.

use std::borrow::Cow;
use std::sync::LazyLock;

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::{Episode, Tag, Task, Turn};
use regex::{Captures, Regex};

use super::grading::{normalize, stands_in};
use super::{Make, Reward, RewardEntry, RewardError, UNIT, indicator};
use crate::protocol::{QUERY, RESULT};

/// The registry's entry.
pub(crate) const ENTRY: RewardEntry = RewardEntry {
    name: "retrieval",
    about: "a gold stands in something a search showed",
    always: true,
    judges: Some(Outcome::Answer),
    range: UNIT,
    schema: None,
    make: Make::Plain(|_| Box::new(Retrieval)),
};

/// Retrieval: 1 when some gold stands in something a search showed, after normalisation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retrieval;

#[async_trait]
impl Reward for Retrieval {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(was_read(task, episode)))
    }
}

/// Whether some gold answer occurs in what the policy read.
pub(super) fn was_read(task: &Task, episode: &Episode) -> bool {
    let golds: Vec<String> = task
        .golds
        .iter()
        .map(|gold| normalize(gold))
        .filter(|gold| !gold.is_empty())
        .collect();
    let by_search = episode.turns.iter().filter_map(shown).any(|text| {
        let text = normalize(&text);
        golds.iter().any(|gold| stands_in(gold, &text))
    });
    by_search || episode.calls().any(|call| call.gold_read)
}

/// The text that calls showed, without the wrapper and without the queries repeated in it; `None` where the environment
/// judges by itself what was read (`Call::gold_read`).
pub fn shown(turn: &Turn) -> Option<String> {
    let calls = turn.kind.calls();
    if calls.is_empty() || calls.iter().any(|call| !call.payload.is_null()) {
        return None;
    }
    let text = turn.observation.trim();
    let text = text
        .strip_prefix(Tag::Information.opening())
        .unwrap_or(text);
    let text = text
        .strip_suffix(Tag::Information.closing())
        .unwrap_or(text);
    Some(passages(text, turn.kind.queries()))
}

/// The passages in an observation: without the queries repeated above them, which the policy wrote itself, and with the escapes of JSON
/// undone.
pub(crate) fn passages<'a>(text: &str, queries: impl Iterator<Item = &'a str>) -> String {
    let text = unescaped(text);
    let (mut kept, mut rest) = (String::with_capacity(text.len()), &*text);
    for query in queries {
        let line = [QUERY, query].concat();
        let line = line.trim_end();
        if let Some((before, after)) = rest.split_once(line) {
            kept.push_str(before);
            rest = after;
            continue;
        }
        // A limit may have cut the line.
        let starts = line.char_indices().map(|(end, _)| &line[..end]);
        let mut starts = starts.rev().take_while(|start| start.len() > QUERY.len());
        rest = starts
            .find_map(|start| rest.strip_suffix(start))
            .unwrap_or(rest);
    }
    kept.push_str(rest);
    kept
}

/// An escape in JSON; those of a letter that has two are one.
static ESCAPE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?:\\u[0-9a-f]{4})+|\\["\\/bfnrt]"#).ok());

/// The text with the escapes undone that passages have as JSON. It need not be JSON any more: a limit may have cut it.
fn unescaped(text: &str) -> Cow<'_, str> {
    match ESCAPE.as_ref() {
        Some(escape) if text.contains(RESULT) => {
            escape.replace_all(text, |found: &Captures<'_>| {
                let read = serde_json::from_str::<String>(&format!("\"{}\"", &found[0]));
                read.unwrap_or_else(|_| found[0].to_owned())
            })
        }
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::environment::{Call, TurnKind};
    use forage_contracts::policy::Finish;

    use super::super::tests::{episode, task};
    use super::*;

    fn read(queries: &[&str], observation: &str) -> bool {
        let queries = queries.iter().map(|&query| query.to_owned()).collect();
        let turn = Turn {
            policy: String::new(),
            finish: Finish::Stop,
            kind: TurnKind::call(Call::search(queries, Vec::new())),
            observation: observation.to_owned(),
            reward: 0.0,
        };
        let searched = Episode {
            turns: vec![turn],
            ..episode("", None)
        };
        was_read(&task("t", &["Velm", "Zoë"]), &searched)
    }

    #[test]
    fn a_query_that_is_repeated_was_not_read() {
        let both = ["mayor of Orlen", "Velm"];
        for text in [
            "Query: mayor of Orlen\nDocument 1:\nOrlen\nQuery: Velm",
            "Query: mayor of Orlen\nQuery: Velm\nDocument 1:\nOrlen",
            "<information>Query: mayor of Orlen\nQuery: Velm</information>",
            r#"{"result": "Query: mayor of Orlen\nDocument 1:\nOrlen\nQuery: Velm"}"#,
            r#"{"result": "Query: mayor of Orlen\nQuery: Velm"#,
        ] {
            assert!(!read(&both, text), "{text}");
        }
        assert!(!read(&["Velm Orlen"], "Query: Velm Or"), "cut");
        assert!(!read(&["\"Zoë\""], r#"{"result": "Query: \"Zo\u00eb\""}"#));
        for text in [
            "Query: mayor of Orlen\nDocument 1:\nVelm\nQuery: Velm",
            "Query: mayor of Orlen\nQuery: Velm\nDocument 1:\nVelm",
            r#"{"result": "Query: mayor of Orlen\nDocument 1:\nVelm\nQuery: Velm"}"#,
            "Doc 1(Title: \"Velm\") a village",
        ] {
            assert!(read(&both, text), "{text}");
        }
    }

    #[test]
    fn passages_in_json_are_read_as_they_were() {
        assert!(read(
            &["q"],
            r#"{"result": "Doc 1: \"A\"\nZo\u00eb \ud83d\ude00"}"#
        ));
        assert!(read(
            &["q"],
            r#"{"result": "Zo\u00eb ...(truncated)...8d\ude"#
        ));
        assert!(!read(&["q"], r"Zo\u00eb"), "no JSON");
    }
}
