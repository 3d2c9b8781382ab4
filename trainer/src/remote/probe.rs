//! The question which weights a server has: a few texts whose log-probabilities are known.

use forage_net::Fault;

use super::config::RemoteKind;
use super::error::{RemoteError, RemoteFault};
use super::server::Server;
use super::weights::Under;
use super::{sglang, vllm};

/// Texts with their log-probabilities under the weights that a server should have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    /// Token ids of each, at least two.
    pub(crate) texts: Vec<Vec<u32>>,
    /// The trainer's log-probabilities of all but the first token of each, nats.
    pub(crate) logprobs: Vec<Vec<f32>>,
    /// Largest mean distance that rounding explains, nats.
    pub(crate) bound: f64,
}

/// The distance of a server's log-probabilities from the trainer's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Gap {
    /// Tokens compared.
    pub(crate) tokens: usize,
    /// Mean absolute difference, nats.
    pub(crate) mean: f64,
    /// Largest absolute difference, nats.
    pub(crate) max: f64,
}

impl Probe {
    fn gap(&self, found: &[Vec<f32>]) -> Gap {
        let pairs = self.logprobs.iter().flatten().zip(found.iter().flatten());
        let (mut gap, mut sum) = (Gap::default(), 0.0);
        for (own, found) in pairs {
            let distance = (f64::from(*own) - f64::from(*found)).abs();
            gap.tokens += 1;
            gap.max = gap.max.max(distance);
            sum += distance;
        }
        gap.mean = sum / gap.tokens.max(1) as f64;
        gap
    }
}

impl Server {
    /// Compares the server's log-probabilities with those of the probe, in one request; one without texts asks nothing.
    ///
    /// # Errors
    /// [`RemoteError::Unverified`] when they are further apart than rounding explains, [`RemoteError::Call`] when the server
    /// does not say.
    pub(crate) async fn verify(&self, probe: &Probe, under: &Under) -> Result<Gap, RemoteError> {
        if probe.texts.is_empty() {
            return Ok(Gap::default());
        }
        let gap = probe.gap(&self.score(&probe.texts, under).await?);
        // A trainer without a number has not been agreed with either.
        if gap.mean <= probe.bound {
            return Ok(gap);
        }
        let Gap { tokens, mean, max } = gap;
        let what = format!(
            "its log-probabilities of {tokens} tokens differ from the trainer's by {mean:.1e} nats on average and {max:.1e} at \
             most, where {:.0e} on average is rounding",
            probe.bound
        );
        let url = self.caller.client.base().to_owned();
        Err(RemoteError::Unverified { url, what })
    }

    /// The server's log-probabilities of all but the first token of each text, nats, at temperature 1.
    async fn score(&self, texts: &[Vec<u32>], under: &Under) -> Result<Vec<Vec<f32>>, RemoteError> {
        let path = match self.kind {
            RemoteKind::Vllm => vllm::COMPLETIONS,
            RemoteKind::Sglang => sglang::GENERATE,
        };
        let attempt = || self.score_once(path, texts, under);
        // As any step of a push.
        let worth = |fault: &RemoteFault| !matches!(fault, RemoteFault::Net(Fault::Timeout { .. }));
        self.caller.retry(path, || Ok(()), worth, attempt).await
    }

    async fn score_once(
        &self,
        path: &str,
        texts: &[Vec<u32>],
        under: &Under,
    ) -> Result<Vec<Vec<f32>>, RemoteFault> {
        let body = match self.kind {
            RemoteKind::Vllm => vllm::score(texts, &self.model, under),
            RemoteKind::Sglang => sglang::score(texts, under),
        };
        let json = body.to_string().into_bytes();
        let answer = self.caller.post(path, json, self.push_timeout).await?;
        match self.kind {
            RemoteKind::Vllm => vllm::scored(&answer, texts),
            RemoteKind::Sglang => sglang::scored(&answer, texts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_a_mean_over_tokens_and_not_over_texts() {
        let probe = Probe {
            texts: vec![vec![1, 2, 3, 4], vec![5, 6]],
            logprobs: vec![vec![-1.0, -2.0, -3.0], vec![-4.0]],
            bound: 0.1,
        };
        let gap = probe.gap(&[vec![-1.0, -2.5, -3.0], vec![-5.5]]);
        let expected = Gap {
            tokens: 4,
            mean: 0.5,
            max: 1.5,
        };
        assert_eq!(gap, expected);
        assert!(probe.gap(&[vec![f32::NAN; 3], vec![-4.0]]).mean.is_nan());
    }
}
