//! The place where queries of a policy leave an environment for a retriever.
//!
//! A query that no retriever takes, or that this one refuses for what it is, is its writer's doing: the policy reads why, and the
//! episode goes on. Every other failure is one of ours and ends the episode without a score.

use forage_contracts::retriever::{
    BooleanAnswer, BooleanSearch, Hit, Query, Retriever, RetrieverError,
};

/// A query that is not searched for, in the words that its writer reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

/// Refuses a query that is too long for any retriever.
pub(crate) fn check(query: &str) -> Result<(), Refused> {
    if query.len() <= Query::MAX_BYTES {
        return Ok(());
    }
    let (bytes, most) = (query.len(), Query::MAX_BYTES);
    Err(Refused(format!(
        "the query has {bytes} bytes; at most {most} are searched for"
    )))
}

/// The best `k` passages for each query.
pub(crate) async fn ask(
    retriever: &dyn Retriever,
    queries: &[&str],
    k: usize,
) -> Result<Vec<Result<Vec<Hit>, Refused>>, RetrieverError> {
    let checked = queries.iter().map(|query| check(query));
    let checked: Vec<Result<(), Refused>> = checked.collect();
    let fit = queries
        .iter()
        .zip(&checked)
        .filter(|(_, fits)| fits.is_ok());
    let fit: Vec<Query> = fit.map(|(query, _)| Query::new(*query)).collect();
    let mut found = found(retriever, &fit, k).await?.into_iter();
    let answers = checked
        .into_iter()
        .map(|fits| fits.and_then(|()| found.next().unwrap_or_else(|| Ok(Vec::new()))));
    Ok(answers.collect())
}

/// The best `k` passages that a query in boolean syntax matches. How long it may be is a matter of the syntax, which cuts it.
pub(crate) async fn ask_boolean(
    index: &dyn BooleanSearch,
    query: &Query,
    k: usize,
) -> Result<Result<BooleanAnswer, Refused>, RetrieverError> {
    match index.answer(query, k).await {
        Ok(answer) => Ok(Ok(answer)),
        Err(error) if error.is_refusal() => Ok(Err(Refused(error.to_string()))),
        Err(error) => Err(error),
    }
}

/// Hits of each query. Where the retriever refuses one of several, each is asked for alone: the others are not its writer's fault.
async fn found(
    retriever: &dyn Retriever,
    queries: &[Query],
    k: usize,
) -> Result<Vec<Result<Vec<Hit>, Refused>>, RetrieverError> {
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let alone = match retriever.search(queries, k).await {
        Ok(lists) => return Ok(lists.into_iter().map(Ok).collect()),
        Err(error) if !error.is_refusal() => return Err(error),
        Err(error) if queries.len() == 1 => return Ok(vec![Err(Refused(error.to_string()))]),
        Err(_) => queries.chunks(1),
    };
    let mut answers = Vec::with_capacity(queries.len());
    for query in alone {
        answers.push(match retriever.search(query, k).await {
            Ok(mut lists) => Ok(lists.pop().unwrap_or_default()),
            Err(error) if error.is_refusal() => Err(Refused(error.to_string())),
            Err(error) => return Err(error),
        });
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use forage_contracts::Passage;
    use forage_contracts::retriever::Fingerprint;
    use forage_retriever::Bm25Retriever;

    use super::*;
    use crate::search_r1::{SearchR1, SearchR1Settings};
    use forage_contracts::environment::Action;
    use forage_contracts::seed::Seed;
    use forage_contracts::{ByteTokenizer, Task};

    /// A server that fails on long queries and refuses wildcards.
    struct Strict(Bm25Retriever);

    #[async_trait]
    impl Retriever for Strict {
        fn fingerprint(&self) -> Fingerprint {
            self.0.fingerprint()
        }

        async fn search(
            &self,
            queries: &[Query],
            k: usize,
        ) -> Result<Vec<Vec<Hit>>, RetrieverError> {
            if queries
                .iter()
                .any(|query| query.text.len() > Query::MAX_BYTES)
            {
                return Err(RetrieverError::Stopped);
            }
            if let Some(query) = queries.iter().find(|query| query.text.contains('*')) {
                return Err(RetrieverError::Refused {
                    query: query.text.clone(),
                    refusal: "no wildcards".into(),
                });
            }
            self.0.search(queries, k).await
        }
    }

    fn strict() -> Strict {
        let pages = vec![Passage::new("a", "Orlen", "a town")];
        Strict(Bm25Retriever::in_memory(pages).expect("indexed"))
    }

    #[tokio::test]
    async fn a_query_that_is_too_long_is_refused_alone() {
        let long = "x ".repeat(Query::MAX_BYTES);
        let found = ask(&strict(), &["town", &long, "town"], 1).await;
        let found = found.expect("no fault of ours");
        for place in [0, 2] {
            assert_eq!(found[place].as_ref().expect("searched")[0].id, "a");
        }
        let refused = found[1].clone().expect_err("too long").to_string();
        assert!(refused.contains("131072 bytes; at most 65536"), "{refused}");
        assert_eq!(ask(&strict(), &[&long], 1).await.expect("refused").len(), 1);
    }

    #[tokio::test]
    async fn a_query_that_the_retriever_refuses_is_refused_alone() {
        let found = ask(&strict(), &["town", "t*n"], 1).await;
        let found = found.expect("no fault of ours");
        assert_eq!(found[0].as_ref().expect("searched")[0].id, "a");
        let refused = found[1].clone().expect_err("a wildcard").to_string();
        assert!(refused.contains("no wildcards"), "{refused}");
        assert!(ask(&strict(), &["t*n"], 1).await.expect("refused")[0].is_err());
    }

    #[tokio::test]
    async fn a_policy_reads_that_its_query_is_too_long() {
        let settings = SearchR1Settings::default();
        let factory = SearchR1::factory(settings, Arc::new(strict()), Arc::new(ByteTokenizer));
        let mut env = factory.expect("sound settings").make();
        let task = Task::new("t", "Where is Orlen?");
        env.reset(&task, Seed::root(0)).await.expect("reset");
        let turn = format!("<search>{}</search>", "x ".repeat(Query::MAX_BYTES));
        let action = Action {
            turns_left: 2,
            ..Action::new(turn)
        };
        let step = env.step(&action).await.expect("no fault of ours");
        let read = &step.observation.text;
        assert!(!step.terminated && read.contains("at most 65536"), "{read}");
    }
}
