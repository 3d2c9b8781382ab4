//! The question which weights a server has: what it draws behind a few texts, and the log-probabilities that it gives to that.
//!
//! A vLLM does not say with a completion which whole weights it has, and one that was restarted has those of its start. So after a push of
//! whole weights it is asked for its likeliest tokens as well, and where a connection to it has failed since, whether these still have the
//! same log-probabilities, before a completion is used.

use forage_net::Fault;
use serde_json::Value;

use super::answer::number;
use super::config::RemoteKind;
use super::error::{RemoteError, RemoteFault};
use super::server::Server;
use super::weights::Under;
use super::{sglang, vllm};

/// Texts that a server goes on with, and the trainer's own number for what it draws.
#[derive(Clone, Copy)]
pub(crate) struct Probe<'a> {
    /// Token ids of each, at least one.
    pub(crate) texts: &'a [Vec<u32>],
    /// Tokens to draw behind each.
    pub(crate) drawn: usize,
    /// The trainer's log-probabilities of the ids from a position on, nats, at temperature 1.
    pub(crate) own: &'a (dyn Fn(&[u32], usize) -> Vec<f32> + Sync),
    /// Largest mean distance that rounding explains, nats.
    pub(crate) bound: f64,
}

/// The way tokens are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// Most behind each text.
    pub(super) count: usize,
    pub(super) temperature: f64,
}

/// The likeliest token.
const LIKELIEST: Draw = Draw {
    count: 1,
    temperature: 0.0,
};

/// What a server says under whole weights, by which it is known again.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) version: u64,
    texts: Vec<Vec<u32>>,
    /// Log-probability of the likeliest token after each, nats.
    logprobs: Vec<f32>,
    /// Largest mean distance that rounding explains, nats.
    bound: f64,
}

/// What a server drew behind a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drawn {
    pub(super) tokens: Vec<u32>,
    /// The server's log-probability of each, nats.
    pub(super) logprobs: Vec<f32>,
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

impl Probe<'_> {
    /// Beginnings of the texts, from half of each on: a single one may round more than many together.
    fn beginnings(&self) -> Vec<Vec<u32>> {
        let of = |text: &Vec<u32>| -> Vec<Vec<u32>> {
            let ends = text.len() / 2 + 1..=text.len();
            ends.map(|end| text[..end].to_vec()).collect()
        };
        self.texts.iter().flat_map(of).collect()
    }

    fn gap(&self, found: &[Drawn]) -> Gap {
        let (mut gap, mut sum) = (Gap::default(), 0.0);
        for (text, drawn) in self.texts.iter().zip(found) {
            let ids = [text.as_slice(), &drawn.tokens].concat();
            let own = (self.own)(&ids, text.len());
            for (own, found) in own.iter().zip(&drawn.logprobs) {
                let distance = (f64::from(*own) - f64::from(*found)).abs();
                gap.tokens += 1;
                gap.max = gap.max.max(distance);
                sum += distance;
            }
        }
        gap.mean = sum / gap.tokens.max(1) as f64;
        gap
    }
}

impl Server {
    /// Compares the server's log-probabilities of tokens that it draws with the trainer's, in one request; a probe without texts asks
    /// nothing. Of texts that are given a server need not know them: vLLM 0.32 with adapters ends at a request for these.
    ///
    /// # Errors
    /// [`RemoteError::Unverified`] when they are further apart than rounding explains, [`RemoteError::Call`] when the server
    /// does not say.
    pub(crate) async fn verify(
        &self,
        probe: &Probe<'_>,
        under: &Under,
    ) -> Result<Gap, RemoteError> {
        if probe.texts.is_empty() {
            return Ok(Gap::default());
        }
        let draw = Draw {
            count: probe.drawn,
            temperature: 1.0,
        };
        let gap = probe.gap(&self.draw(probe.texts, draw, under).await?);
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

    /// What the server says under the whole weights of a version, which it was seen to have; none where the probe asks nothing.
    pub(super) async fn mark(
        &self,
        probe: &Probe<'_>,
        version: u64,
    ) -> Result<Option<Mark>, RemoteError> {
        let texts = probe.beginnings();
        if texts.is_empty() {
            return Ok(None);
        }
        let under = Under {
            version,
            adapter: None,
        };
        let drawn = self.draw(&texts, LIKELIEST, &under).await?;
        Ok(Some(Mark {
            version,
            texts,
            logprobs: firsts(&drawn),
            bound: probe.bound,
        }))
    }

    /// Asks whether the server still says the same.
    pub(super) async fn has(&self, mark: &Mark) -> Result<bool, RemoteFault> {
        let under = Under {
            version: mark.version,
            adapter: None,
        };
        let found = firsts(&self.draw_once(&mark.texts, LIKELIEST, &under).await?);
        let distances = mark.logprobs.iter().zip(&found);
        let sum: f64 = distances
            .map(|(before, found)| (f64::from(*before) - f64::from(*found)).abs())
            .sum();
        Ok(sum / found.len().max(1) as f64 <= mark.bound)
    }

    async fn draw(
        &self,
        texts: &[Vec<u32>],
        draw: Draw,
        under: &Under,
    ) -> Result<Vec<Drawn>, RemoteError> {
        let attempt = || self.draw_once(texts, draw, under);
        // As any step of a push.
        let worth = |fault: &RemoteFault| !matches!(fault, RemoteFault::Net(Fault::Timeout { .. }));
        let path = self.path();
        self.caller.retry(path, || Ok(()), worth, attempt).await
    }

    async fn draw_once(
        &self,
        texts: &[Vec<u32>],
        draw: Draw,
        under: &Under,
    ) -> Result<Vec<Drawn>, RemoteFault> {
        let (path, count) = (self.path(), draw.count);
        let post = |body: Value| {
            let json = body.to_string().into_bytes();
            self.caller.post(path, json, self.push_timeout)
        };
        let drawn = match self.kind {
            RemoteKind::Sglang => sglang::drawn(&post(sglang::draw(texts, draw, under)).await?)?,
            RemoteKind::Vllm => {
                let ask = |names| {
                    let sent = post(vllm::draw(texts, draw, &self.model, under, names));
                    async move { vllm::drawn(&sent.await?, texts) }
                };
                self.with_token_ids(ask).await?
            }
        };
        if drawn.len() != texts.len() {
            let (found, asked) = (drawn.len(), texts.len());
            return Err(RemoteFault::Counts(format!(
                "{found} answers for {asked} texts"
            )));
        }
        for Drawn { tokens, .. } in &drawn {
            if tokens.len() > count {
                let found = tokens.len();
                return Err(RemoteFault::Counts(format!(
                    "{found} tokens where at most {count} were asked for"
                )));
            }
            self.check_ids(tokens)?;
        }
        Ok(drawn)
    }
}

/// The log-probability of the first token behind each text, nats.
fn firsts(drawn: &[Drawn]) -> Vec<f32> {
    let first = |drawn: &Drawn| drawn.logprobs.first().copied();
    drawn.iter().filter_map(first).collect()
}

impl Drawn {
    /// What a server drew, if it is whole.
    pub(super) fn of(tokens: Vec<u32>, logprobs: &[Option<f64>]) -> Result<Self, RemoteFault> {
        if tokens.is_empty() || tokens.len() != logprobs.len() {
            let (tokens, logprobs) = (tokens.len(), logprobs.len());
            return Err(RemoteFault::Counts(format!(
                "{tokens} tokens with {logprobs} log-probabilities"
            )));
        }
        let logprobs = logprobs
            .iter()
            .enumerate()
            .map(|(place, &logprob)| number(place, logprob));
        Ok(Self {
            logprobs: logprobs.collect::<Result<_, _>>()?,
            tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_a_mean_over_tokens_and_not_over_texts() {
        let texts = [vec![1], vec![5, 6]];
        let own = |ids: &[u32], first: usize| -> Vec<f32> {
            ids[first..].iter().map(|&id| -(id as f32)).collect()
        };
        let probe = Probe {
            texts: &texts,
            drawn: 3,
            own: &own,
            bound: 0.1,
        };
        let drawn = |tokens: &[u32], logprobs: &[f32]| Drawn {
            tokens: tokens.to_vec(),
            logprobs: logprobs.to_vec(),
        };
        let gap = probe.gap(&[drawn(&[1, 2, 3], &[-1.0, -2.5, -3.0]), drawn(&[4], &[-5.5])]);
        let expected = Gap {
            tokens: 4,
            mean: 0.5,
            max: 1.5,
        };
        assert_eq!(gap, expected);
        let nothing = drawn(&[1], &[f32::NAN]);
        assert!(probe.gap(&[nothing.clone(), nothing]).mean.is_nan());
    }

    #[test]
    fn half_an_answer_is_a_fault() {
        assert!(Drawn::of(vec![1, 2], &[Some(-1.0), Some(-2.0)]).is_ok());
        for (tokens, logprobs) in [
            (vec![], vec![]),
            (vec![1, 2], vec![Some(-1.0)]),
            (vec![1], vec![None]),
        ] {
            assert!(Drawn::of(tokens, &logprobs).is_err());
        }
    }
}
