//! Policy losses per token, with their derivatives by the token's log-probability, before aggregation.

use serde::{Deserialize, Serialize};

use super::sequence_loss::{gmpo, gspo, vespo};

/// Log ratios are held within +-20 nats before exp (verl, SkyRL, slime); beyond, the ratio has no derivative.
pub(super) const LOG_RATIO_LIMIT: f64 = 20.0;

/// A policy loss: `lp` the current log-probability of a token, `lo` the one it is compared with, `lr` the sampler's, `A` its
/// advantage, w = exp(lp - lo), and "constant" what carries no gradient.
///
/// At w = 1 every one of them but those scaled on purpose ([`Self::Luspo`] by the length, [`Self::Vespo`] by phi(1) = 1) has
/// the derivative -A by lp, so all are the same on the first update of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyLoss {
    /// max(-A w, -A clip(w, 1 - `low`, 1 + `high`)); for A < 0 no more than -A `dual`. PPO (Schulman et al. 2017), 0.2 and
    /// 0.2; clip-higher (DAPO, Yu et al. 2025), 0.2 and 0.28; dual clip (Ye et al. 2020), 3.
    PpoClip {
        /// How far below 1 the ratio may fall.
        low: f64,
        /// How far above 1 the ratio may rise.
        high: f64,
        /// Bound of the loss of negative advantages as a multiple of -A, above 1; none without it.
        dual: Option<f64>,
    },
    /// [`Self::PpoClip`] with the sequence's ratio exp(mean(lp - lo)) at each of its tokens; the token's derivative is that
    /// of its own log-probability in place of the mean (GSPO-token, Zheng et al. 2025, 3e-4 and 4e-4), which equals the
    /// sequence's under every aggregation here as long as its advantages are equal.
    Gspo {
        /// How far below 1 the ratio may fall.
        low: f64,
        /// How far above 1 the ratio may rise.
        high: f64,
    },
    /// [`Self::Gspo`] times the sequence's policy tokens, to be averaged over sequences: LUSPO (arXiv 2602.05261, 2e-3 and
    /// 2.5e-3; TRL).
    Luspo {
        /// How far below 1 the ratio may fall.
        low: f64,
        /// How far above 1 the ratio may rise.
        high: f64,
    },
    /// -mean(A) exp(mean of lp - lo, held at `high` from above where A > 0 and at -`low` from below where A < 0): GMPO
    /// (arXiv 2507.20673, 0.4 and 0.4; verl's `geo_mean`). In nats, not ratios.
    Gmpo {
        /// Nats below 0.
        low: f64,
        /// Nats above 0.
        high: f64,
    },
    /// -constant(clip(w, `low`, `high`)) A lp: CISPO (`MiniMax-M1`). TRL and `ScaleRL` 0 and 5, verl 0.8 and 1.2.
    Cispo {
        /// Least weight: a ratio, not a distance from 1.
        low: f64,
        /// Greatest weight.
        high: f64,
    },
    /// -(4 / tau) sigmoid(tau (w - 1)) A, tau = `positive` where A > 0, else `negative`: SAPO (arXiv 2511.20347, 1 and
    /// 1.05). The loss at w = 1 is -2 A / tau.
    Sapo {
        /// Temperature of positive advantages.
        positive: f64,
        /// Temperature of the others.
        negative: f64,
    },
    /// -constant(phi) A lp, phi = exp(l + k ln W - l W), ln W the sum of the sequence's lp - lo held within ln 1e-8 and 20;
    /// (k, l) = (2, 3) where A >= 0, else (3, 2): VESPO as in TRL, without its sampler weights in W.
    Vespo,
    /// -A w m + `kl_tau` (lp - lr)^2 with w = exp(lp - lr); m = 0 where A > 0 and p - q > `high`, or A <= 0 and p - q <
    /// -`low`, p and q the token's probabilities now and when sampled. Binary total variation (DPPO) as in prime-rl: 0.2,
    /// 0.2 and 1e-3.
    DppoTv {
        /// Most a probability may have fallen where the advantage is not positive.
        low: f64,
        /// Most a probability may have risen where the advantage is positive.
        high: f64,
        /// Weight of the squared log ratio, on every token.
        kl_tau: f64,
    },
    /// -constant(w if 1 - `low` < w < 1 + `high`, else 0) A lp with w = exp(lp - lr): SkyRL's `rollout_is`.
    RolloutIs {
        /// How far below 1 the ratio may fall.
        low: f64,
        /// How far above 1 the ratio may rise.
        high: f64,
    },
    /// -A w without any bound: tinker's `importance_sampling`, which sums over tokens.
    IsReinforce,
    /// -A lp: REINFORCE (Williams 1992), GPG.
    Reinforce,
}

/// The policy tokens of one sequence; every slice `[n]`.
#[derive(Clone, Copy, Debug)]
pub struct TokenInputs<'a> {
    /// Log-probabilities under the weights being trained, nats.
    pub logprobs: &'a [f32],
    /// Under the weights at the start of the step, recomputed by the trainer; the sampler's where it computes none.
    pub proximal: &'a [f32],
    /// As the sampler reported them.
    pub sampler: &'a [f32],
    /// Advantages.
    pub advantages: &'a [f32],
}

/// Values and derivatives of `n` tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenTerms {
    /// `[n]`: each token's loss.
    pub values: Vec<f32>,
    /// `[n]`: derivative by the token's own log-probability, per nat.
    pub gradients: Vec<f32>,
    /// Tokens at which a bound of the loss acts.
    pub bounded: usize,
}

/// One token of [`TokenInputs`].
#[derive(Clone, Copy)]
pub(super) struct Token {
    pub(super) lp: f64,
    pub(super) lo: f64,
    pub(super) lr: f64,
    pub(super) advantage: f64,
}

/// One token of [`TokenTerms`].
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) value: f64,
    pub(super) grad: f64,
    pub(super) bounded: bool,
}

impl Term {
    pub(super) fn free(value: f64, grad: f64) -> Self {
        Self { value, grad, bounded: false }
    }

    pub(super) fn scaled(self, factor: f64) -> Self {
        Self { value: self.value * factor, grad: self.grad * factor, ..self }
    }
}

impl FromIterator<Term> for TokenTerms {
    fn from_iter<I: IntoIterator<Item = Term>>(terms: I) -> Self {
        let mut found = Self::default();
        for term in terms {
            found.values.push(term.value as f32);
            found.gradients.push(term.grad as f32);
            found.bounded += usize::from(term.bounded);
        }
        found
    }
}

impl TokenInputs<'_> {
    /// # Panics
    /// When the slices differ in number.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let count = self.logprobs.len();
        let lengths = [self.proximal.len(), self.sampler.len(), self.advantages.len()];
        assert!(
            lengths.iter().all(|&length| length == count),
            "{count} log-probabilities, but {lengths:?} beside them"
        );
        let token = |at: usize| Token {
            lp: f64::from(self.logprobs[at]),
            lo: f64::from(self.proximal[at]),
            lr: f64::from(self.sampler[at]),
            advantage: f64::from(self.advantages[at]),
        };
        (0..count).map(token).collect()
    }
}

/// exp of a log ratio, and its derivative by the log-probability above the line.
#[derive(Clone, Copy)]
pub(super) struct Ratio {
    pub(super) value: f64,
    pub(super) grad: f64,
}

impl Ratio {
    pub(super) fn of(log_ratio: f64) -> Self {
        let value = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp();
        Self { value, grad: if log_ratio.abs() <= LOG_RATIO_LIMIT { value } else { 0.0 } }
    }
}

impl PolicyLoss {
    /// Whether tokens without advantage have a loss.
    pub fn has_penalty(&self) -> bool {
        matches!(self, Self::DppoTv { kl_tau, .. } if kl_tau.abs() > 0.0)
    }

    /// The loss of each token of one sequence and its derivative.
    ///
    /// The derivatives are those of the sum over the sequence's tokens, under one weight for all of them.
    ///
    /// # Panics
    /// When the slices of `inputs` differ in number.
    pub fn tokens(&self, inputs: &TokenInputs) -> TokenTerms {
        let tokens = inputs.tokens();
        let each = |term: &dyn Fn(&Token) -> Term| tokens.iter().map(term).collect();
        match *self {
            Self::PpoClip { low, high, dual } => {
                each(&|token| ppo_clip(Ratio::of(token.lp - token.lo), token.advantage, low, high, dual))
            }
            Self::Gspo { low, high } => gspo(&tokens, low, high).collect(),
            Self::Luspo { low, high } => {
                gspo(&tokens, low, high).map(|term| term.scaled(tokens.len() as f64)).collect()
            }
            Self::Gmpo { low, high } => gmpo(&tokens, low, high).collect(),
            Self::Vespo => vespo(&tokens).collect(),
            Self::Cispo { low, high } => each(&|token| cispo(token, low, high)),
            Self::Sapo { positive, negative } => each(&|token| sapo(token, positive, negative)),
            Self::DppoTv { low, high, kl_tau } => each(&|token| dppo_tv(token, low, high, kl_tau)),
            Self::RolloutIs { low, high } => each(&|token| rollout_is(token, low, high)),
            Self::IsReinforce => each(&|token| {
                let ratio = Ratio::of(token.lp - token.lo);
                Term::free(-token.advantage * ratio.value, -token.advantage * ratio.grad)
            }),
            Self::Reinforce => each(&|token| weighted_logprob(token, 1.0, false)),
        }
    }
}

pub(super) fn ppo_clip(ratio: Ratio, advantage: f64, low: f64, high: f64, dual: Option<f64>) -> Term {
    let plain = -advantage * ratio.value;
    let clipped = -advantage * ratio.value.clamp(1.0 - low, 1.0 + high);
    let mut term = Term::free(plain, -advantage * ratio.grad);
    if clipped > plain {
        term = Term { value: clipped, grad: 0.0, bounded: true };
    }
    match dual.map(|dual| -advantage * dual) {
        Some(bound) if advantage < 0.0 && term.value > bound => Term { value: bound, grad: 0.0, bounded: true },
        _ => term,
    }
}

/// -constant(weight) A lp.
pub(super) fn weighted_logprob(token: &Token, weight: f64, bounded: bool) -> Term {
    let grad = -weight * token.advantage;
    Term { value: grad * token.lp, grad, bounded }
}

fn cispo(token: &Token, low: f64, high: f64) -> Term {
    let ratio = Ratio::of(token.lp - token.lo).value;
    weighted_logprob(token, ratio.clamp(low, high), !(low..=high).contains(&ratio))
}

fn sapo(token: &Token, positive: f64, negative: f64) -> Term {
    let tau = if token.advantage > 0.0 { positive } else { negative };
    let ratio = Ratio::of(token.lp - token.lo);
    let gate = 1.0 / (1.0 + (-tau * (ratio.value - 1.0)).exp());
    let grad = 4.0 * gate * (1.0 - gate) * ratio.grad;
    Term::free(-4.0 / tau * gate * token.advantage, -grad * token.advantage)
}

fn dppo_tv(token: &Token, low: f64, high: f64, kl_tau: f64) -> Term {
    let moved = token.lp.exp() - token.lr.exp();
    let masked = if token.advantage > 0.0 { moved > high } else { moved < -low };
    let log_ratio = token.lp - token.lr;
    let ratio = Ratio::of(log_ratio);
    let kept = if masked { 0.0 } else { -token.advantage };
    Term {
        value: kept * ratio.value + kl_tau * log_ratio * log_ratio,
        grad: kept * ratio.grad + 2.0 * kl_tau * log_ratio,
        bounded: masked,
    }
}

fn rollout_is(token: &Token, low: f64, high: f64) -> Term {
    let ratio = Ratio::of(token.lp - token.lr).value;
    let inside = ratio > 1.0 - low && ratio < 1.0 + high;
    weighted_logprob(token, if inside { ratio } else { 0.0 }, !inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss of one token whose ratio to `lo` and `lr` is `now / before`.
    fn token(loss: PolicyLoss, now: f32, before: f32, advantage: f32) -> TokenTerms {
        let before = [before.ln()];
        loss.tokens(&TokenInputs {
            logprobs: &[now.ln()],
            proximal: &before,
            sampler: &before,
            advantages: &[advantage],
        })
    }

    fn close(found: f32, expected: f32) {
        assert!((found - expected).abs() < 2e-6, "{found} is not {expected}");
    }

    #[test]
    fn ppo_clip_vectors() {
        for (ratio, advantage, dual, expected, bounded) in [
            (0.5, 1.0, None, -0.5, 0),
            (0.5, -1.0, None, 0.8, 1),
            (1.28, 1.0, None, -1.28, 0),
            (1.5, 1.0, None, -1.28, 1),
            (1.5, -1.0, None, 1.5, 0),
            (4.0, -1.0, None, 4.0, 0),
            (4.0, -1.0, Some(3.0), 3.0, 1),
            (4.0, 1.0, Some(3.0), -1.28, 1),
        ] {
            // Just inside the bound, which 1.28 in f32 is not.
            let now = if bounded == 0 { ratio * (1.0 - 1e-7) } else { ratio };
            let found = token(PolicyLoss::PpoClip { low: 0.2, high: 0.28, dual }, now, 1.0, advantage);
            close(found.values[0], expected);
            assert_eq!(found.bounded, bounded, "({ratio}, {advantage}, {dual:?})");
            close(found.gradients[0], if bounded == 1 { 0.0 } else { expected });
        }
    }

    #[test]
    fn sapo_vectors() {
        let sapo = PolicyLoss::Sapo { positive: 1.0, negative: 1.05 };
        for (ratio, advantage, expected) in
            [(1.0, 1.0, -2.0), (1.0, -1.0, 1.904_762), (1.5, 1.0, -2.489_837), (0.5, -1.0, 1.415_938)]
        {
            close(token(sapo, ratio, 1.0, advantage).values[0], expected);
        }
        close(token(sapo, 1.0, 1.0, -1.0).gradients[0], 1.0);
    }

    #[test]
    fn dppo_vectors() {
        let masked_only = PolicyLoss::DppoTv { low: 0.2, high: 0.2, kl_tau: 0.0 };
        for (now, before, advantage, expected) in
            [(0.9, 0.6, 1.0, 0.0), (0.9, 0.6, -1.0, 1.5), (0.3, 0.6, -1.0, 0.0), (0.75, 0.6, 1.0, -1.25)]
        {
            close(token(masked_only, now, before, advantage).values[0], expected);
        }
        let with_kl = PolicyLoss::DppoTv { low: 0.2, high: 0.2, kl_tau: 1e-3 };
        let term = token(with_kl, 0.75, 0.6, 1.0).values[0] + 1.25;
        assert!((term - 4.9793e-5).abs() < 1e-6, "{term}");
        close(token(with_kl, 0.75, 0.6, 0.0).values[0] * 1e4, 0.497_93);
    }

    #[test]
    fn weights_are_constants() {
        let cispo = PolicyLoss::Cispo { low: 0.0, high: 5.0 };
        close(token(cispo, 0.5, 0.05, 1.0).gradients[0], -5.0);
        close(token(cispo, 0.5, 0.05, 1.0).values[0], -5.0 * 0.5_f32.ln());
        let rollout = PolicyLoss::RolloutIs { low: 0.2, high: 0.2 };
        assert_eq!(token(rollout, 0.5, 0.05, 1.0), TokenTerms { values: vec![0.0], gradients: vec![0.0], bounded: 1 });
        close(token(rollout, 0.55, 0.5, -2.0).gradients[0], 2.2);
    }
}
