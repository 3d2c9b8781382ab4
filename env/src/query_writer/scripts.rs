//! Scripted policies that write queries in boolean syntax.

use std::sync::Arc;

use forage_contracts::policy::PolicyError;
use forage_contracts::scripted::{Conduct, OracleStyle, Script, ScriptEntry, Scripted, View};
use forage_contracts::{OracleHop, Task};

use super::action::quoted;
use super::keywords::keyword_query;
use crate::protocol::{QUERY_CLOSE, QUERY_OPEN, REASONING};

pub(super) const SCRIPTS: &[ScriptEntry] = &[
    ScriptEntry {
        name: ScriptEntry::ORACLE,
        play: |cast| {
            Arc::new(Scripted::knowing(cast, |task, _, style, conduct| {
                Ok(solution(task, conduct, style))
            }))
        },
    },
    ScriptEntry {
        name: "keywords",
        play: |cast| Arc::new(Scripted::with_script(Keywords, cast.tokenizer)),
    },
    ScriptEntry {
        name: "broken-query",
        play: |cast| Arc::new(Scripted::with_script(BrokenQuery, cast.tokenizer)),
    },
];

/// A turn of one query, after reasoning unless that is empty.
fn written(reasoning: &str, query: &str) -> String {
    let query = [QUERY_OPEN, query, QUERY_CLOSE].concat();
    if reasoning.is_empty() {
        query
    } else {
        [REASONING[0], reasoning, REASONING[1], &query].concat()
    }
}

/// The oracle's turn for a task: the names of all hops as phrases, each with what is asked of it. Without known queries all it has are
/// the question's keywords.
fn solution(task: &Task, conduct: Conduct, style: OracleStyle) -> String {
    let hops: Vec<(&str, &str)> = task
        .oracle
        .iter()
        .map(|hop| OracleHop::name_and_keyword(&hop.query))
        .collect();
    let Some(&(name, keyword)) = hops.first() else {
        let query = keyword_query(&task.question)
            .split(' ')
            .collect::<Vec<_>>()
            .join(" OR ");
        return written("", &query);
    };
    let query = match conduct {
        Conduct::Careful | Conduct::Early => careful(&hops),
        Conduct::Guess => keyword.to_owned(),
        Conduct::Skim => name.to_owned(),
        Conduct::Silent => return format!("{name} {keyword}"),
        // A field that does not exist, and a quote that is never closed.
        Conduct::Undefined => format!("subject:{}", joined(name, keyword)),
        Conduct::Malformed => format!("\"{name} AND {keyword}"),
    };
    let reasoning = match style {
        OracleStyle::Terse | OracleStyle::Spaced => String::new(),
        OracleStyle::Plain => format!("The passage names {name} and tells its {keyword}."),
    };
    written(&reasoning, &query)
}

fn careful(hops: &[(&str, &str)]) -> String {
    if let [(name, keyword)] = hops {
        return joined(name, keyword);
    }
    hops.iter()
        .map(|(name, keyword)| format!("({})", joined(name, keyword)))
        .collect::<Vec<_>>()
        .join(" OR ")
}

/// The name as a phrase, and what is asked of it.
fn joined(name: &str, keyword: &str) -> String {
    match keyword {
        "" => quoted(name),
        keyword if keyword.contains(' ') => format!("{} AND {}", quoted(name), quoted(keyword)),
        keyword => format!("{} AND {keyword}", quoted(name)),
    }
}

/// Writes the question's keywords: what a query-writing policy has to beat.
struct Keywords;

impl Script for Keywords {
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        Ok(written("", &keyword_query(view.question())))
    }
}

/// Writes turns without a query and queries that have to be repaired.
struct BrokenQuery;

impl Script for BrokenQuery {
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        let keywords = keyword_query(view.question());
        let turns = [
            keywords.clone(),
            format!("<query>{keywords}"),
            "<query> </query>".to_owned(),
            format!("<query>({keywords} AND</query>"),
            format!("<query>\"{keywords}</query>"),
        ];
        let chosen = view.seed.child("draw", &[0]).0 as usize % turns.len();
        Ok(turns[chosen].clone())
    }
}
