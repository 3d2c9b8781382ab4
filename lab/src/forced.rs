//! A policy whose first turn is made to open with an action: what conduct alone is worth, without any learning.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use forage_contracts::EnvEntry;
use forage_contracts::policy::{Completion, GenerateRequest, Policy, PolicyError};

/// Writes the same tokens at the beginning of every episode's first turn and lets a policy go on from there: it words its query
/// itself.
pub(crate) struct Forced {
    policy: Arc<dyn Policy>,
    opening: Vec<u32>,
    /// Episodes that are past their first turn.
    begun: Mutex<HashSet<u64>>,
}

impl Forced {
    pub(crate) fn new(policy: Arc<dyn Policy>, opening: Vec<u32>) -> Self {
        Self {
            policy,
            opening,
            begun: Mutex::new(HashSet::new()),
        }
    }

    /// The tag that opens an environment's action: that of the turn by which the environment is checked, which does not end an
    /// episode. `None` where this is not a tag that a completion ends with.
    pub(crate) fn opening(entry: &EnvEntry, stop: &[String]) -> Option<String> {
        let (_, closing) = entry.probe.trim_end().rsplit_once("</")?;
        let ends = stop.iter().any(|stop| *stop == format!("</{closing}"));
        ends.then(|| format!("<{closing}"))
    }

    fn is_first(&self, episode: u64) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.insert(episode)
    }
}

#[async_trait]
impl Policy for Forced {
    fn version(&self) -> u64 {
        self.policy.version()
    }

    async fn generate(&self, mut request: GenerateRequest) -> Result<Completion, PolicyError> {
        let room = request.max_tokens.saturating_sub(self.opening.len());
        if !self.is_first(request.episode) || room == 0 {
            return self.policy.generate(request).await;
        }
        request.tokens.extend(&self.opening);
        request.max_tokens = room;
        let found = self.policy.generate(request).await?;
        Ok(Completion {
            tokens: [self.opening.as_slice(), &found.tokens].concat(),
            logprobs: [vec![0.0; self.opening.len()], found.logprobs].concat(),
            ..found
        })
    }

    fn release(&self, episode: u64) {
        self.begun
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&episode);
        self.policy.release(episode);
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::policy::{Finish, Sampling};
    use forage_contracts::seed::Seed;
    use forage_env::registry;

    use super::*;
    use crate::runtime::runtime;

    /// Writes the number of tokens that it is shown.
    struct Counts;

    #[async_trait]
    impl Policy for Counts {
        fn version(&self) -> u64 {
            3
        }

        async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
            Ok(Completion {
                tokens: vec![request.tokens.len() as u32; request.max_tokens.min(2)],
                logprobs: vec![-1.0; request.max_tokens.min(2)],
                finish: Finish::Stop,
                version: 3,
            })
        }
    }

    #[test]
    fn only_the_first_turn_of_an_episode_is_opened() {
        let policy = Forced::new(Arc::new(Counts), vec![7, 8]);
        let ask = |episode, max_tokens| {
            let request = GenerateRequest {
                episode,
                tokens: vec![1; 5],
                max_tokens,
                stop: Vec::new(),
                ignore_eos: false,
                sampling: Sampling::GREEDY,
                seed: Seed::root(1),
            };
            let found = runtime().unwrap().block_on(policy.generate(request));
            let found = found.unwrap();
            assert_eq!(found.tokens.len(), found.logprobs.len());
            found.tokens
        };
        assert_eq!(ask(1, 4), [7, 8, 7, 7]);
        assert_eq!(ask(1, 4), [5, 5], "the second turn is the policy's own");
        assert_eq!(ask(2, 3), [7, 8, 7], "never more than is asked for");
        assert_eq!(ask(3, 2), [5, 5], "no room for the opening");
        policy.release(1);
        assert_eq!(
            ask(1, 4),
            [7, 8, 7, 7],
            "another episode of the same number"
        );
    }

    #[test]
    fn actions_open_with_the_tag_of_their_environment() {
        let opening = |name: &str, stop: &str| {
            let entry = registry::find(name).unwrap();
            Forced::opening(entry, &[stop.to_owned()])
        };
        assert_eq!(
            opening("search-r1", "</search>").as_deref(),
            Some("<search>")
        );
        assert_eq!(
            opening("code-search", "</python>").as_deref(),
            Some("<python>")
        );
        assert_eq!(opening("search-r1", "</tool_call>"), None);
    }
}
