//! Draws one token from a row of logits.

use std::cmp::Ordering;

use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;
use pulp::Arch;
use rand::RngExt;

use crate::model::host::exp;

/// A drawn token with its log-probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampled {
    /// Token id.
    pub(super) token: u32,
    /// ln p(token) in nats under the full-vocabulary softmax at the sampling temperature (1 when greedy).
    pub(super) logprob: f32,
}

/// A question to a row of logits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) token: Wanted,
    /// The most likely tokens to report beside it.
    pub(super) top: usize,
}

/// The token that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// The `index`-th token of a completion. The draw depends on the logits, the settings, the seed and the index alone.
    Draw(Sampling, Seed, usize),
    /// This token, at this temperature.
    Score(u32, f32),
}

/// The answer: a token with its log-probability, and the most likely ones, best first.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) sampled: Sampled,
    pub(super) top: Vec<(u32, f32)>,
}

impl Question {
    /// The answer from a row of logits, `[vocab]`; `None` when one is not finite.
    pub(super) fn answer(&self, logits: &[f32]) -> Option<Answer> {
        let temperature = match self.token {
            Wanted::Draw(sampling, ..) => sampling.temperature,
            Wanted::Score(_, temperature) => temperature,
        };
        let distribution = Distribution::new(logits, temperature)?;
        let top = match self.top {
            0 => Vec::new(),
            count => distribution.top(count),
        };
        let sampled = match self.token {
            Wanted::Draw(sampling, seed, index) => distribution.draw(sampling, seed, index),
            Wanted::Score(token, _) => Sampled {
                token,
                logprob: distribution.logprob(token as usize),
            },
        };
        Some(Answer { sampled, top })
    }

    /// The question in the form of a device's kernels; `None` where they cannot answer it: lists of the most likely tokens are made on
    /// the processor.
    #[cfg(feature = "gpu")]
    pub(super) fn on_device(&self) -> Option<crate::model::Choice> {
        use crate::model::{Choice, Cuts, Wanted as There};

        let (temperature, token) = match self.token {
            Wanted::Score(token, temperature) => (temperature, There::Given(token)),
            Wanted::Draw(sampling, ..) if sampling.temperature < COLDEST => (0.0, There::Best),
            Wanted::Draw(sampling, seed, index) => {
                let cuts = Cuts {
                    top_k: sampling.top_k,
                    top_p: sampling.top_p,
                    min_p: sampling.min_p,
                };
                let uniform = uniform(seed, index) as f32;
                (sampling.temperature, There::Drawn(uniform, cuts))
            }
        };
        let sharpness = if temperature >= COLDEST {
            1.0 / temperature
        } else {
            1.0
        };
        (self.top == 0).then_some(Choice { sharpness, token })
    }
}

/// The number from [0, 1) that decides the `index`-th draw of a completion.
fn uniform(seed: Seed, index: usize) -> f64 {
    seed.child("token", &[index as u64]).rng().random()
}

/// The full-vocabulary softmax of a row of logits.
#[derive(Debug)]
struct Distribution<'a> {
    logits: &'a [f32],
    /// `exp((logit - largest) / temperature)`.
    weights: Vec<f32>,
    total: f64,
    best: usize,
    temperature: f64,
}

const LANES: usize = 16;
/// Temperatures below are greedy (as in vLLM): their inverse is not a number to calculate with.
const COLDEST: f32 = 1e-5;

impl<'a> Distribution<'a> {
    /// The softmax of `logits` (`[vocab]`) at a temperature; 0, which is greedy, counts as 1. `None` when a logit is not
    /// finite or there is none.
    fn new(logits: &'a [f32], temperature: f32) -> Option<Self> {
        let temperature = if temperature >= COLDEST {
            f64::from(temperature)
        } else {
            1.0
        };
        let best = argmax(logits)?;
        let mut weights = vec![0.0; logits.len()];
        let scale = (1.0 / temperature) as f32;
        let total = Arch::new().dispatch(|| fill(&mut weights, logits, logits[best], scale));
        Some(Self {
            logits,
            weights,
            total,
            best,
            temperature,
        })
    }

    /// ln p(token), nats.
    fn logprob(&self, token: usize) -> f32 {
        let distance = f64::from(self.logits[token]) - f64::from(self.logits[self.best]);
        (distance / self.temperature - self.total.ln()) as f32
    }

    /// The `count` most likely tokens with their log-probabilities, best first, equal ones by id.
    fn top(&self, count: usize) -> Vec<(u32, f32)> {
        let ranked = self.ranked(count);
        ranked
            .into_iter()
            .map(|token| (token as u32, self.logprob(token)))
            .collect()
    }

    /// Draws the `index`-th token of a completion. The draw depends on the logits, the settings, `seed` and `index` alone.
    fn draw(&self, sampling: Sampling, seed: Seed, index: usize) -> Sampled {
        let token = if sampling.temperature < COLDEST {
            self.best
        } else {
            let uniform = uniform(seed, index);
            match self.kept(sampling) {
                Some(kept) => {
                    let weights: Vec<f32> = kept.iter().map(|&token| self.weights[token]).collect();
                    let total = weights.iter().copied().map(f64::from).sum();
                    kept[pick(&weights, total, uniform)]
                }
                None => pick(&self.weights, self.total, uniform),
            }
        };
        Sampled {
            token: token as u32,
            logprob: self.logprob(token),
        }
    }

    /// The tokens that top-k, then top-p among those, then min-p leave, best first; `None` when nothing is cut.
    fn kept(&self, sampling: Sampling) -> Option<Vec<usize>> {
        let Sampling {
            top_p,
            top_k,
            min_p,
            ..
        } = sampling;
        let vocab = self.weights.len();
        let most = if top_k == 0 { vocab } else { top_k.min(vocab) };
        if most == vocab && top_p >= 1.0 && min_p <= 0.0 {
            return None;
        }
        // A nucleus is usually small, so the vocabulary is ranked only as far as needed.
        let mut size = if top_p < 1.0 { most.min(256) } else { most };
        let mass = |tokens: &[usize]| {
            tokens
                .iter()
                .map(|&token| f64::from(self.weights[token]))
                .sum::<f64>()
        };
        let mut ranked = self.ranked(size);
        let whole = if most == vocab {
            self.total
        } else {
            mass(&self.ranked(most))
        };
        let wanted = f64::from(top_p) * whole;
        while size < most && mass(&ranked) < wanted {
            size = (size * 8).min(most);
            ranked = self.ranked(size);
        }
        if top_p < 1.0 {
            let mut sum = 0.0;
            let full = ranked.iter().position(|&token| {
                sum += f64::from(self.weights[token]);
                sum >= wanted
            });
            ranked.truncate(full.map_or(ranked.len(), |last| last + 1));
        }
        ranked.retain(|&token| token == self.best || self.weights[token] >= min_p);
        Some(ranked)
    }

    /// The `count` most likely tokens, best first, equal ones by id.
    fn ranked(&self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.logits.len()).collect();
        let by = |a: &usize, b: &usize| -> Ordering {
            self.logits[*b].total_cmp(&self.logits[*a]).then(a.cmp(b))
        };
        let count = count.min(order.len());
        if count < order.len() {
            order.select_nth_unstable_by(count, by);
            order.truncate(count);
        }
        order.sort_unstable_by(by);
        order
    }
}

/// Writes the weights and returns their sum.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "it is compiled for an instruction set only where it is inlined"
)]
fn fill(weights: &mut [f32], logits: &[f32], largest: f32, scale: f32) -> f64 {
    let mut sums = [0.0_f64; LANES];
    let (chunks, rest) = weights.as_chunks_mut::<LANES>();
    let (logit_chunks, logit_rest) = logits.as_chunks::<LANES>();
    for (chunk, logits) in chunks.iter_mut().zip(logit_chunks) {
        for ((sum, weight), logit) in sums.iter_mut().zip(chunk).zip(logits) {
            *weight = exp((*logit - largest) * scale);
            *sum += f64::from(*weight);
        }
    }
    for ((sum, weight), logit) in sums.iter_mut().zip(rest).zip(logit_rest) {
        *weight = exp((*logit - largest) * scale);
        *sum += f64::from(*weight);
    }
    sums.iter().sum()
}

/// Index of the largest value, the first one of equals; `None` when a value is not finite.
fn argmax(logits: &[f32]) -> Option<usize> {
    let finite = logits
        .iter()
        .fold(true, |finite, logit| finite & logit.is_finite());
    let largest = logits.iter().fold(f32::NEG_INFINITY, |largest, &logit| {
        if logit > largest { logit } else { largest }
    });
    if !finite {
        return None;
    }
    logits.iter().position(|&logit| logit >= largest)
}

fn pick(weights: &[f32], total: f64, uniform: f64) -> usize {
    let mut remaining = uniform * total;
    let mut last = 0;
    for (index, &weight) in weights.iter().enumerate() {
        if weight > 0.0 {
            remaining -= f64::from(weight);
            last = index;
            if remaining < 0.0 {
                break;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, -1.0];

    fn sample(logits: &[f32], sampling: Sampling, seed: Seed, index: usize) -> Option<Sampled> {
        Some(Distribution::new(logits, sampling.temperature)?.draw(sampling, seed, index))
    }

    fn counts(sampling: Sampling, draws: usize) -> Vec<f64> {
        let mut counts = vec![0.0; LOGITS.len()];
        for index in 0..draws {
            counts[sample(&LOGITS, sampling, Seed::root(5), index)
                .unwrap()
                .token as usize] += 1.0 / draws as f64;
        }
        counts
    }

    fn softmax(temperature: f64) -> Vec<f64> {
        let weights: Vec<f64> = LOGITS
            .iter()
            .map(|&logit| (f64::from(logit) / temperature).exp())
            .collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        for temperature in [1.0, 0.5] {
            let seen = counts(
                Sampling {
                    temperature,
                    ..Sampling::FULL
                },
                20_000,
            );
            for (seen, expected) in seen.iter().zip(softmax(f64::from(temperature))) {
                assert!((seen - expected).abs() < 0.015, "{seen} {expected}");
            }
        }
    }

    #[test]
    fn logprob_is_of_the_full_vocabulary_even_under_top_p() {
        let sampling = Sampling {
            top_p: 0.5,
            ..Sampling::FULL
        };
        let drawn = sample(&LOGITS, sampling, Seed::root(1), 0).unwrap();
        assert_eq!(drawn.token, 1, "only the best token stays at top_p 0.5");
        assert!((f64::from(drawn.logprob) - softmax(1.0)[1].ln()).abs() < 1e-6);
        let seen = counts(
            Sampling {
                top_p: 0.8,
                ..Sampling::FULL
            },
            5_000,
        );
        assert!(seen[0] == 0.0 && seen[3] == 0.0 && seen[2] > 0.2);
    }

    #[test]
    fn cuts_keep_what_they_say() {
        let kept = |sampling: Sampling| -> Vec<usize> {
            let seen = counts(sampling, 3_000);
            (0..LOGITS.len())
                .filter(|&token| seen[token] > 0.0)
                .collect()
        };
        assert_eq!(
            kept(Sampling {
                top_k: 1,
                ..Sampling::FULL
            }),
            [1]
        );
        assert_eq!(
            kept(Sampling {
                top_k: 3,
                ..Sampling::FULL
            }),
            [0, 1, 2]
        );
        // Shares of the best one: e^-2, 1, e^-1, e^-3.
        assert_eq!(
            kept(Sampling {
                min_p: 0.2,
                ..Sampling::FULL
            }),
            [1, 2]
        );
        // Among the best three, .665 .245 .090: the first two hold .91.
        assert_eq!(
            kept(Sampling {
                top_k: 3,
                top_p: 0.9,
                ..Sampling::FULL
            }),
            [1, 2]
        );
        assert_eq!(
            kept(Sampling {
                top_p: 0.999_999,
                ..Sampling::FULL
            }),
            [0, 1, 2, 3]
        );
    }

    #[test]
    fn the_best_tokens_come_with_their_logprobs() {
        let distribution = Distribution::new(&LOGITS, 1.0).unwrap();
        let top = distribution.top(2);
        assert_eq!(
            top.iter().map(|&(token, _)| token).collect::<Vec<_>>(),
            [1, 2]
        );
        assert!((f64::from(top[1].1) - softmax(1.0)[2].ln()).abs() < 1e-6);
    }

    #[test]
    fn greedy_takes_the_best_and_non_finite_is_reported() {
        assert_eq!(
            sample(&LOGITS, Sampling::GREEDY, Seed::root(1), 9)
                .unwrap()
                .token,
            1
        );
        let cold = Sampling {
            temperature: 1e-39,
            ..Sampling::FULL
        };
        assert_eq!(
            sample(&LOGITS, cold, Seed::root(1), 9),
            sample(&LOGITS, Sampling::GREEDY, Seed::root(1), 9)
        );
        assert_eq!(
            sample(&[0.0, f32::NAN], Sampling::FULL, Seed::root(1), 0),
            None
        );
    }
}
