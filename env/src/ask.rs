//! The place where queries of a policy leave an environment for a retriever.
//!
//! A query that no retriever takes, or that this one refuses for what it is, is its writer's doing: the policy reads why, and the
//! episode goes on. Every other failure is one of ours and ends the episode without a score.

use forage_contracts::retriever::{Hit, Query, Retriever, RetrieverError};

/// Most bytes of a query: servers refuse longer ones.
const MAX_QUERY_BYTES: usize = 64 << 10;

/// A query that is not searched for, in the words that its writer reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

/// Refuses a query that is too long for any retriever.
pub(crate) fn check(query: &str) -> Result<(), Refused> {
    if query.len() <= MAX_QUERY_BYTES {
        return Ok(());
    }
    let bytes = query.len();
    Err(Refused(format!(
        "the query has {bytes} bytes; at most {MAX_QUERY_BYTES} are searched for"
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
    let found = if fit.is_empty() {
        Vec::new()
    } else {
        retriever.search(&fit, k).await?
    };
    let mut found = found.into_iter();
    let answers = checked
        .into_iter()
        .map(|fits| fits.map(|()| found.next().unwrap_or_default()));
    Ok(answers.collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use forage_contracts::corpus::Passage;
    use forage_contracts::retriever::Fingerprint;
    use forage_retriever::Bm25Retriever;

    use super::*;
    use crate::environment::Action;
    use crate::search_r1::{SearchR1, SearchR1Settings};
    use crate::seed::Seed;
    use crate::task::Task;
    use crate::tokenizer::ByteTokenizer;

    /// A server that fails on what it says it refuses.
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
                .any(|query| query.text.len() > MAX_QUERY_BYTES)
            {
                return Err(RetrieverError::Stopped);
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
        let long = "x ".repeat(MAX_QUERY_BYTES);
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
    async fn a_policy_reads_that_its_query_is_too_long() {
        let settings = SearchR1Settings::default();
        let factory = SearchR1::factory(settings, Arc::new(strict()), Arc::new(ByteTokenizer));
        let mut env = factory.expect("sound settings").make();
        let task = Task::new("t", "Where is Orlen?");
        env.reset(&task, Seed::root(0)).await.expect("reset");
        let turn = format!("<search>{}</search>", "x ".repeat(MAX_QUERY_BYTES));
        let action = Action {
            turns_left: 2,
            ..Action::new(turn)
        };
        let step = env.step(&action).await.expect("no fault of ours");
        let read = &step.observation.text;
        assert!(!step.terminated && read.contains("at most 65536"), "{read}");
    }
}
