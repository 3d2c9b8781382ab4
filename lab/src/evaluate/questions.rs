//! The questions of an evaluation: which look alike, what an oracle knows of them, and what they find as queries, sent as they are.

use std::collections::{BTreeMap, BTreeSet};

use forage_contracts::Passages;
use forage_contracts::environment::Outcome;
use forage_env::registry;
use forage_eval::{Bootstrap, RetrievalReport};
use forage_retriever::{Hit, Index, Query, RetrieverError};

use crate::config::EnvironmentConfig;
use crate::data::{Corpus, Tasks};
use crate::error::Result;
use crate::runtime::runtime;

/// A caveat for the score of an oracle that cannot tell questions apart, or that asks without known queries.
pub(super) fn oracle_caveat(
    environment: &EnvironmentConfig,
    tasks: &Tasks,
) -> Result<Option<String>> {
    let (all, alike) = (tasks.len(), alike(tasks));
    if alike > 0 {
        return Ok(Some(format!(
            "{alike} of {all} questions have the text of another with other answers: the oracle, a script, knows a question by its text and \
             gives the answer of one of them. Its score is not an upper bound"
        )));
    }
    let entry = registry::find(&environment.id)?;
    let does = match (entry.outcome, environment.resolved()?.passages) {
        (Outcome::Answer, _) if entry.questions.is_none() => {
            "searches once, for the question as it is, and gives an accepted answer only where it stands in what it read"
        }
        // The policy's own query ranks the passages.
        (Outcome::Ranking, Passages::Unread { .. }) => "asks for the question's keywords",
        _ => return Ok(None),
    };
    let unknown = tasks.iter().filter(|task| task.oracle.is_empty()).count();
    Ok((unknown > 0).then(|| {
        format!(
            "{unknown} of {all} questions come without known queries: the oracle, a script, {does}. Its score is not an upper bound"
        )
    }))
}

/// The number of questions whose text another question with other answers has.
fn alike(tasks: &Tasks) -> usize {
    let mut golds: BTreeMap<&str, BTreeSet<&[String]>> = BTreeMap::new();
    for task in tasks.iter() {
        let of_text = golds.entry(task.question.trim()).or_default();
        of_text.insert(task.golds.as_slice());
    }
    let same = tasks
        .iter()
        .filter(|task| golds[task.question.trim()].len() > 1);
    same.count()
}

/// Ranks at which the questions are scored.
const CUTOFFS: [usize; 3] = [1, 5, 10];

/// The ranking metrics of the questions; `None` when no task names its evidence, or there is nothing to search.
pub(super) fn question_retrieval(
    corpus: &Corpus,
    tasks: &Tasks,
    bootstrap: Bootstrap,
) -> Result<Option<RetrievalReport>> {
    let mut rankings = BTreeMap::new();
    let mut qrels = BTreeMap::new();
    let depth = CUTOFFS[CUTOFFS.len() - 1];
    let asked: Vec<_> = tasks
        .iter()
        .filter(|task| !task.judgments().is_empty())
        .collect();
    let queries: Vec<Query> = asked
        .iter()
        .map(|task| Query::new(task.question.as_str()))
        .collect();
    let found = match runtime()?.block_on(corpus.retriever.search(&queries, depth)) {
        // An environment without a retriever may have questions that name their evidence.
        Err(RetrieverError::NoPassages) => return Ok(None),
        found => found?,
    };
    for (task, hits) in asked.into_iter().zip(found) {
        let judged = task.judgments().into_owned();
        let mut ranking: Vec<String> = Vec::with_capacity(hits.len());
        for hit in hits {
            let name = name_of(hit, &judged, corpus.index.as_deref())?;
            // Of several passages of a page the first counts.
            if !ranking.contains(&name) {
                ranking.push(name);
            }
        }
        rankings.insert(task.name(), ranking);
        qrels.insert(task.name(), judged);
    }
    if qrels.is_empty() {
        return Ok(None);
    }
    let report = RetrievalReport::of(&rankings, &qrels, &CUTOFFS, bootstrap)?;
    Ok(Some(report))
}

/// The name by which a passage is judged: its id, or, as published questions name their evidence, that of its page or its title.
fn name_of(hit: Hit, judged: &BTreeMap<String, i32>, index: Option<&Index>) -> Result<String> {
    if judged.contains_key(&hit.id) {
        return Ok(hit.id);
    }
    let cut = hit.id.rsplit_once('#');
    let page = cut.filter(|(_, number)| number.parse::<usize>().is_ok());
    let page = page.map(|(page, _)| page);
    for name in page.into_iter().chain([hit.title.as_str()]) {
        // What is the id of another passage means that one.
        let is_id = |index: &Index| index.ordinal_of(name).map(|found| found.is_some());
        if judged.contains_key(name) && !index.map_or(Ok(false), is_id)? {
            return Ok(name.to_owned());
        }
    }
    Ok(hit.id)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forage_contracts::Task;
    use forage_retriever::CorpusFormat;

    use super::*;
    use crate::retrieval::RetrieverConfig;

    #[test]
    fn questions_of_one_text_are_alike_where_their_answers_differ() {
        let rows = [
            ("a", "What?", "1"),
            ("b", "What? ", "2"),
            ("c", "Who?", "3"),
            ("d", "Who?", "3"),
        ];
        let tasks = rows.map(|(id, question, gold)| {
            Arc::new(Task {
                golds: vec![gold.to_owned()],
                ..Task::new(id, question)
            })
        });
        assert_eq!(alike(&Arc::from(tasks)), 2);
    }

    #[test]
    fn an_oracle_without_known_queries_is_told_of_where_it_writes_some() {
        let tasks: Tasks = Arc::from([Arc::new(Task::new("a", "What?"))]);
        let caveat = |id: &str| {
            let environment = EnvironmentConfig::plain(id).unwrap();
            oracle_caveat(&environment, &tasks).unwrap()
        };
        for (id, does) in [
            ("search-r1", "searches once"),
            ("query-writer", "asks for the question's keywords"),
        ] {
            let told = caveat(id).unwrap();
            assert!(
                told.starts_with("1 of 1 questions come without known queries")
                    && told.contains(does)
                    && told.ends_with("Its score is not an upper bound"),
                "{told}"
            );
        }
        assert_eq!(caveat("rerank"), None);
    }

    #[test]
    fn evidence_is_found_by_id_page_or_title() {
        let folder = tempfile::tempdir().unwrap();
        let rows = [
            r#"{"_id":"7","title":"Orlen","text":"a town on the Tay"}"#,
            r#"{"_id":"velm#0","title":"Velm","text":"a village on the Tay"}"#,
            r#"{"_id":"velm#1","title":"Velm","text":"its mayor lives by the Tay"}"#,
            r#"{"_id":"8","title":"7","text":"a number"}"#,
        ];
        let path = folder.path().join("corpus.jsonl");
        std::fs::write(&path, rows.join("\n")).unwrap();
        let retrieval = RetrieverConfig::default();
        let passages = Some((path.as_path(), CorpusFormat::BEIR));
        let corpus = Corpus::searchable(None, passages, &retrieval, folder.path()).unwrap();
        let recall = |question: &str, evidence: &str| {
            let task = Task {
                evidence: vec![evidence.to_owned()],
                ..Task::new("t", question)
            };
            let tasks: Tasks = Arc::from([Arc::new(task)]);
            let found = question_retrieval(&corpus, &tasks, Bootstrap::new(1)).unwrap();
            found.unwrap().mean("recall@10").unwrap().estimate
        };
        for evidence in ["7", "Orlen", "velm", "velm#1", "Velm"] {
            let found = recall("Tay", evidence);
            assert!((found - 1.0).abs() < 1e-9, "{evidence}: {found}");
        }
        assert!(recall("Tay", "Ostrava").abs() < 1e-9);
        assert!(recall("number", "7").abs() < 1e-9, "the title of another");
    }
}
