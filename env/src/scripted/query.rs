//! Queries in boolean syntax, as scripts write them.

use std::sync::Arc;

use super::engine::{Script, Scripted, View, Written};
use super::oracle::{Conduct, OracleStyle};
use super::{program, read};
use crate::policy::PolicyError;
use crate::query_writer::{keyword_query, quoted};
use crate::task::Task;
use crate::tokenizer::Tokenizer;

/// The oracle's turn for a task. Without known queries all it has are the question's keywords.
pub(super) fn written(task: &Task, conduct: Conduct, style: OracleStyle) -> Written {
    let hops: Vec<(&str, &str)> = task.oracle.iter().map(|hop| program::name_and_keyword(&hop.query)).collect();
    let Some(&(name, keyword)) = hops.first() else {
        let query = keyword_query(&task.question).split(' ').collect::<Vec<_>>().join(" OR ");
        return Written::Query { reasoning: String::new(), query };
    };
    let query = match conduct {
        Conduct::Careful => careful(&hops),
        Conduct::Guess => keyword.to_owned(),
        Conduct::Skim => name.to_owned(),
        Conduct::Silent => return Written::Raw(format!("{name} {keyword}")),
        // A field that does not exist, and a quote that is never closed.
        Conduct::Undefined => format!("subject:{}", joined(name, keyword)),
        Conduct::Malformed => format!("\"{name} AND {keyword}"),
    };
    let reasoning = match style {
        OracleStyle::Terse => String::new(),
        OracleStyle::Plain => format!("The passage names {name} and tells its {keyword}."),
    };
    Written::Query { reasoning, query }
}

fn careful(hops: &[(&str, &str)]) -> String {
    if let [(name, keyword)] = hops {
        return joined(name, keyword);
    }
    hops.iter().map(|(name, keyword)| format!("({})", joined(name, keyword))).collect::<Vec<_>>().join(" OR ")
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
#[derive(Clone, Copy, Debug)]
pub struct KeywordWriterScript;

/// [`KeywordWriterScript`] as a policy.
pub type KeywordWriter = Scripted<KeywordWriterScript>;

impl Scripted<KeywordWriterScript> {
    /// The policy.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self::with_script(KeywordWriterScript, tokenizer)
    }
}

impl Script for KeywordWriterScript {
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError> {
        Ok(Written::Query { reasoning: String::new(), query: keyword_query(read::question(view.prompt)) })
    }
}

/// Writes turns without a query and queries that have to be repaired.
#[derive(Clone, Copy, Debug)]
pub struct BrokenQueryScript;

/// [`BrokenQueryScript`] as a policy.
pub type BrokenQuery = Scripted<BrokenQueryScript>;

impl Scripted<BrokenQueryScript> {
    /// The policy; what it breaks is drawn from the requests' seeds.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self::with_script(BrokenQueryScript, tokenizer)
    }
}

impl Script for BrokenQueryScript {
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError> {
        let keywords = keyword_query(read::question(view.prompt));
        let turns = [
            keywords.clone(),
            format!("<query>{keywords}"),
            "<query> </query>".to_owned(),
            format!("<query>({keywords} AND</query>"),
            format!("<query>\"{keywords}</query>"),
        ];
        let chosen = view.seed.child("draw", &[0]).0 as usize % turns.len();
        Ok(Written::Raw(turns[chosen].clone()))
    }
}
