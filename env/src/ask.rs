//! The place where queries of a policy leave an environment for a retriever.
//!
//! A query that no retriever takes, or that this one refuses for what it is, is its writer's doing: the policy reads why, and the
//! episode goes on. Every other failure is one of ours and ends the episode without a score.
//!
//! A search goes on only as long as somebody waits for it: it ends when the future that asked is dropped, or once the flag of
//! [`within`] is set. Then it fails, and is never an empty answer.

use forage_contracts::retriever::{
    BooleanAnswer, BooleanSearch, CancelFlag, Hit, Query, Retriever, RetrieverError,
};

/// A query that is not searched for, in the words that its writer reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

tokio::task_local! {
    /// Ends the searches of this task.
    static LIMIT: CancelFlag;
}

/// Does `work`, whose searches end once `flag` is set: one that runs on the thread of its caller gives nobody a chance to drop
/// the future that asked.
pub(crate) fn within<F: Future>(flag: CancelFlag, work: F) -> impl Future<Output = F::Output> {
    LIMIT.scope(flag, work)
}

/// Somebody who waits for searches: they end when this is dropped, as it is with the future that holds it.
pub(crate) struct Waiting(CancelFlag);

impl Waiting {
    /// Begins to wait, for as long as the searches of this task may go on.
    pub(crate) fn begin() -> Self {
        let limit = LIMIT.try_with(CancelFlag::clone).unwrap_or_default();
        Self(CancelFlag::when(move || limit.is_cancelled()))
    }

    /// A query whose search is waited for.
    pub(crate) fn asks(&self, query: Query) -> Query {
        Query {
            cancel: self.0.clone(),
            ..query
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

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
    let waiting = Waiting::begin();
    let checked = queries.iter().map(|query| check(query));
    let checked: Vec<Result<(), Refused>> = checked.collect();
    let fit = queries
        .iter()
        .zip(&checked)
        .filter(|(_, fits)| fits.is_ok());
    let fit = fit.map(|(query, _)| waiting.asks(Query::new(*query)));
    let fit: Vec<Query> = fit.collect();
    let mut found = found(retriever, &fit, k).await?.into_iter();
    let answers = checked
        .into_iter()
        .map(|fits| fits.and_then(|()| found.next().unwrap_or_else(|| Ok(Vec::new()))));
    Ok(answers.collect())
}

/// The best `k` passages that a query in boolean syntax matches. How long it may be is a matter of the syntax, which cuts it.
pub(crate) async fn ask_boolean(
    index: &dyn BooleanSearch,
    query: Query,
    k: usize,
) -> Result<Result<BooleanAnswer, Refused>, RetrieverError> {
    let waiting = Waiting::begin();
    let query = waiting.asks(query);
    match index.answer(&query, k).await {
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
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use forage_contracts::Passage;
    use forage_contracts::retriever::Fingerprint;
    use forage_retriever::Bm25Retriever;
    use futures::FutureExt;

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

    /// Searches that never end, and the flag of the last query.
    #[derive(Default)]
    struct Endless(Mutex<CancelFlag>);

    impl Endless {
        fn begin(&self, query: &Query) {
            *self.0.lock().expect("whole") = query.cancel.clone();
        }

        fn is_cancelled(&self) -> bool {
            self.0.lock().expect("whole").is_cancelled()
        }
    }

    #[async_trait]
    impl Retriever for Endless {
        fn fingerprint(&self) -> Fingerprint {
            Fingerprint("endless".to_owned())
        }

        async fn search(
            &self,
            queries: &[Query],
            _k: usize,
        ) -> Result<Vec<Vec<Hit>>, RetrieverError> {
            self.begin(&queries[0]);
            std::future::pending().await
        }
    }

    #[async_trait]
    impl BooleanSearch for Endless {
        async fn answer(&self, query: &Query, _k: usize) -> Result<BooleanAnswer, RetrieverError> {
            self.begin(query);
            std::future::pending().await
        }
    }

    #[test]
    fn a_search_ends_with_the_future_that_asked() {
        let endless = Endless::default();
        let mut asked = Box::pin(ask(&endless, &["town"], 1));
        assert!(asked.as_mut().now_or_never().is_none());
        assert!(!endless.is_cancelled());
        drop(asked);
        assert!(endless.is_cancelled());
        let mut asked = Box::pin(ask_boolean(&endless, Query::new("town"), 1));
        assert!(asked.as_mut().now_or_never().is_none());
        assert!(!endless.is_cancelled());
        drop(asked);
        assert!(endless.is_cancelled());
    }

    #[tokio::test]
    async fn a_search_over_the_limit_of_its_task_fails() {
        let over = CancelFlag::new();
        let found = within(over.clone(), ask(&strict(), &["town"], 1)).await;
        let found = found.expect("in time");
        assert_eq!(found[0].as_ref().expect("searched")[0].id, "a");
        over.cancel();
        let late = within(over, ask(&strict(), &["town"], 1)).await;
        assert!(matches!(late, Err(RetrieverError::Cancelled)), "{late:?}");
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
