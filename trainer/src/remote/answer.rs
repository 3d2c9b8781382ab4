//! The checks that both protocols share between an answer and a completion.

use forage_contracts::policy::{Completion, Finish};

use super::error::RemoteFault;

/// Rounding of a probability of 1 may end a little above it.
const ROUNDING: f64 = 1e-6;

/// Bytes of a body that a fault keeps: far more than is shown, so that no half of a credential is at the end of that.
const BEGINNING: usize = 16 << 10;

/// Why the server says a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Stop,
    Eos,
    /// A limit of the request, or of the server.
    Length,
}

/// A completion as a server reports it.
#[derive(Debug, PartialEq)]
pub(super) struct Sampled {
    pub(super) tokens: Vec<u32>,
    /// Null where the server had no number.
    pub(super) logprobs: Vec<Option<f64>>,
    pub(super) ended: Ended,
    /// The server's name of its weights.
    pub(super) weights: Option<String>,
}

impl Sampled {
    /// The completion, if it is whole. `granted` tokens were asked for of the `wanted` ones: fewer where the context
    /// window ends.
    pub(super) fn completion(
        &self,
        granted: usize,
        wanted: usize,
        version: u64,
    ) -> Result<Completion, RemoteFault> {
        let (count, logprobs) = (self.tokens.len(), self.logprobs.len());
        if count != logprobs {
            return Err(RemoteFault::Counts(format!(
                "{count} tokens with {logprobs} log-probabilities"
            )));
        }
        if count == 0 {
            return Err(RemoteFault::Counts("no tokens at all".to_owned()));
        }
        if count > granted {
            return Err(RemoteFault::Counts(format!(
                "{count} tokens where at most {granted} were asked for"
            )));
        }
        let finish = match self.ended {
            Ended::Stop => Finish::Stop,
            Ended::Eos => Finish::Eos,
            Ended::Length if count == wanted => Finish::Length,
            Ended::Length => Finish::Context,
        };
        let numbers = self
            .logprobs
            .iter()
            .enumerate()
            .map(|(place, &logprob)| number(place, logprob));
        let logprobs = numbers.collect::<Result<_, _>>()?;
        Ok(Completion {
            tokens: self.tokens.clone(),
            logprobs,
            finish,
            version,
        })
    }
}

/// A log-probability of the token at `place`, if it is one.
pub(super) fn number(place: usize, logprob: Option<f64>) -> Result<f32, RemoteFault> {
    match logprob {
        Some(logprob) if (logprob as f32).is_finite() && logprob <= ROUNDING => {
            Ok(logprob.min(0.0) as f32)
        }
        Some(logprob) => Err(RemoteFault::Logprob(format!("{logprob} at token {place}"))),
        None => Err(RemoteFault::Logprob(format!("null at token {place}"))),
    }
}

/// Parses a body as JSON of one form.
pub(super) fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, RemoteFault> {
    serde_json::from_slice(body).map_err(|cause| {
        let start = String::from_utf8_lossy(&body[..body.len().min(BEGINNING)]);
        RemoteFault::Malformed(format!("{cause}; it begins with `{}`", start.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(tokens: usize, logprobs: &[Option<f64>]) -> Sampled {
        let tokens = (0..tokens as u32).collect();
        Sampled {
            tokens,
            logprobs: logprobs.to_vec(),
            ended: Ended::Length,
            weights: None,
        }
    }

    #[test]
    fn only_whole_answers_become_completions() {
        let fault = |tokens, logprobs: &[Option<f64>]| {
            sampled(tokens, logprobs).completion(2, 2, 0).unwrap_err()
        };
        assert!(matches!(fault(2, &[Some(-1.0)]), RemoteFault::Counts(_)));
        assert!(matches!(fault(0, &[]), RemoteFault::Counts(_)));
        assert!(matches!(fault(3, &[Some(-1.0); 3]), RemoteFault::Counts(_)));
        for none in [
            None,
            Some(f64::NAN),
            Some(f64::NEG_INFINITY),
            Some(-1e300),
            Some(1e-3),
        ] {
            let RemoteFault::Logprob(what) = fault(2, &[Some(-1.0), none]) else {
                panic!("{none:?} is refused")
            };
            assert!(what.ends_with("at token 1"), "{what}");
        }
        let whole = sampled(2, &[Some(-0.5), Some(5e-7)])
            .completion(2, 2, 7)
            .unwrap();
        assert_eq!(
            (whole.logprobs, whole.finish, whole.version),
            (vec![-0.5, 0.0], Finish::Length, 7)
        );
    }

    #[test]
    fn a_length_short_of_what_was_wanted_is_the_context() {
        let finish = |granted, wanted| {
            sampled(2, &[Some(-1.0); 2])
                .completion(granted, wanted, 0)
                .unwrap()
                .finish
        };
        assert_eq!(finish(2, 5), Finish::Context, "the window here");
        assert_eq!(finish(5, 5), Finish::Context, "the server's window");
        assert_eq!(finish(2, 2), Finish::Length);
    }
}
