//! The built-in losses. A new one is an entry here, and its function.

use forage_contracts::objective::{LossEntry, Setting, TokenInputs, TokenTerms};

use super::loss::{LOG_RATIO_LIMIT, Ratio, Term, Token, tokens_of};

/// Least sequence ratio of VESPO.
const VESPO_LEAST: f64 = 1e-8;

/// The distance below 1 to which a ratio may fall.
const LOW: Setting = Setting::number("low", "in [0, 1]", |_, low| (0.0..=1.0).contains(&low));
/// The distance above 1 to which a ratio may rise.
const HIGH: Setting = Setting::number("high", "0 or more", |_, high| high >= 0.0);

const fn temperature(name: &'static str) -> Setting {
    Setting::number(name, "above 0", |_, value| value > 0.0)
}

const fn nats(name: &'static str) -> Setting {
    Setting::number(name, "a number of nats", |_, value| value.is_finite())
}

/// Every built-in loss.
pub(super) const LOSSES: &[LossEntry] = &[
    LossEntry {
        settings: &[
            LOW,
            HIGH,
            Setting::optional("dual", "above 1; leave it out for none", |_, dual| {
                dual > 1.0
            }),
        ],
        ..LossEntry::new(
            "ppo_clip",
            "max(-A w, -A clip(w, 1 - low, 1 + high)); for A < 0 at most -A dual. PPO (Schulman et al. 2017), 0.2 and 0.2; \
             clip-higher (DAPO, Yu et al. 2025), 0.2 and 0.28; dual clip (Ye et al. 2020), 3",
            |s, inputs| {
                let (low, high, dual) = (s.number("low"), s.number("high"), s.optional("dual"));
                each(inputs, |token| {
                    let ratio = Ratio::of(token.lp - token.lo);
                    ppo_clip(ratio, token.advantage, low, high, dual)
                })
            },
        )
    },
    LossEntry {
        settings: &[LOW, HIGH],
        ..LossEntry::new(
            "gspo",
            "ppo_clip with the sequence's ratio exp(mean(lp - lo)) at each of its tokens; the token's derivative is that of its \
             own log-probability in place of the mean (GSPO-token, Zheng et al. 2025, 3e-4 and 4e-4), which equals the \
             sequence's under every aggregation here as long as its advantages are equal",
            |s, inputs| gspo(&tokens_of(inputs), s.number("low"), s.number("high")).collect(),
        )
    },
    LossEntry {
        settings: &[LOW, HIGH],
        ..LossEntry::new(
            "luspo",
            "gspo times the sequence's policy tokens, to be averaged over sequences: LUSPO (arXiv 2602.05261, 2e-3 and 2.5e-3; \
             TRL)",
            |s, inputs| {
                let tokens = tokens_of(inputs);
                gspo(&tokens, s.number("low"), s.number("high"))
                    .map(|term| term.scaled(tokens.len() as f64))
                    .collect()
            },
        )
    },
    LossEntry {
        settings: &[
            LOW,
            HIGH,
            Setting::number("spread", "1 or more", |_, spread| spread >= 1.0),
        ],
        reads_sentences: true,
        ..LossEntry::new(
            "sspo",
            "gspo within each sentence, whose low and high are multiplied by its mean entropy over that of the sequence, held within \
             1 / spread and spread: SSPO (arXiv 2511.04256). The factor is assumed, the paper's abstract says no more than that high \
             entropy widens the clip; 1 for none. A sentence ends with a token whose text has a full stop, a mark of question or \
             exclamation or a line's end in it, and with its turn",
            |s, inputs| {
                sspo(
                    inputs,
                    s.number("low"),
                    s.number("high"),
                    s.number("spread"),
                )
                .collect()
            },
        )
    },
    LossEntry {
        settings: &[nats("low"), nats("high")],
        ..LossEntry::new(
            "gmpo",
            "-mean(A) exp(mean of lp - lo, held at high from above where A > 0 and at -low from below where A < 0), means over the \
             tokens with an advantage: GMPO (arXiv 2507.20673, 0.4 and 0.4; verl's geo_mean). In nats, not ratios",
            |s, inputs| gmpo(&tokens_of(inputs), s.number("low"), s.number("high")).collect(),
        )
    },
    LossEntry {
        settings: &[
            Setting::number("low", "0 or more", |_, low| low >= 0.0),
            Setting::number("high", "above low", |s, high| high > s.number("low")),
        ],
        ..LossEntry::new(
            "cispo",
            "-constant(clip(w, low, high)) A lp: CISPO (MiniMax-M1). TRL and ScaleRL 0 and 5, verl 0.8 and 1.2: ratios, not \
             distances from 1",
            |s, inputs| {
                let (low, high) = (s.number("low"), s.number("high"));
                each(inputs, |token| cispo(token, low, high))
            },
        )
    },
    LossEntry {
        settings: &[temperature("positive"), temperature("negative")],
        ..LossEntry::new(
            "sapo",
            "-(4 / tau) sigmoid(tau (w - 1)) A, tau = positive where A > 0, else negative: SAPO (arXiv 2511.20347, 1 and 1.05). \
             The loss at w = 1 is -2 A / tau",
            |s, inputs| {
                let (positive, negative) = (s.number("positive"), s.number("negative"));
                each(inputs, |token| sapo(token, positive, negative))
            },
        )
    },
    LossEntry::new(
        "vespo",
        "-constant(phi) A lp, phi = exp(l + k ln W - l W), ln W the sum of the sequence's lp - lo held within ln 1e-8 and 20; \
         (k, l) = (2, 3) where A >= 0, else (3, 2): VESPO as in TRL, without its sampler weights in W",
        |_, inputs| vespo(&tokens_of(inputs)).collect(),
    ),
    LossEntry {
        settings: &[LOW, HIGH, nats("kl_tau")],
        penalises: |s| s.number("kl_tau").abs() > 0.0,
        ..LossEntry::new(
            "dppo_tv",
            "-A w m + kl_tau (lp - lr)^2 with w = exp(lp - lr); m = 0 where A > 0 and p - q > high, or A <= 0 and p - q < -low, \
             p and q the token's probabilities now and when sampled. Binary total variation (DPPO) as in prime-rl: 0.2, 0.2 \
             and 1e-3",
            |s, inputs| {
                let (low, high, kl_tau) = (s.number("low"), s.number("high"), s.number("kl_tau"));
                each(inputs, |token| dppo_tv(token, low, high, kl_tau))
            },
        )
    },
    LossEntry {
        settings: &[LOW, HIGH],
        ..LossEntry::new(
            "rollout_is",
            "-constant(w if 1 - low < w < 1 + high, else 0) A lp with w = exp(lp - lr): SkyRL's rollout_is",
            |s, inputs| {
                let (low, high) = (s.number("low"), s.number("high"));
                each(inputs, |token| rollout_is(token, low, high))
            },
        )
    },
    LossEntry {
        settings: &[Setting::number("epsilon", "in (0, 1]", |_, epsilon| {
            epsilon > 0.0 && epsilon <= 1.0
        })],
        ..LossEntry::new(
            "a_lol",
            "-max(A, 0) constant(clip(W, 1 - epsilon, 1 + epsilon)) lp, W = exp(sum of lp - lo) over the sequence: A-LoL (arXiv \
             2305.14718), for recorded rollouts and the mean of sequence sums. Its frozen reference is who recorded them here, and \
             its value estimate the group's mean (advantage dr_grpo)",
            |s, inputs| a_lol(&tokens_of(inputs), s.number("epsilon")).collect(),
        )
    },
    LossEntry::new(
        "is_reinforce",
        "-A w without any bound: tinker's importance_sampling, which sums over tokens",
        |_, inputs| {
            each(inputs, |token| {
                let ratio = Ratio::of(token.lp - token.lo);
                Term::free(
                    -token.advantage * ratio.value,
                    -token.advantage * ratio.grad,
                )
            })
        },
    ),
    LossEntry {
        has_ratio: false,
        ..LossEntry::new(
            "reinforce",
            "-A lp: REINFORCE (Williams 1992), GPG",
            |_, inputs| each(inputs, |token| weighted_logprob(token, 1.0, false)),
        )
    },
];

fn each(inputs: &TokenInputs, term: impl Fn(&Token) -> Term) -> TokenTerms {
    tokens_of(inputs).iter().map(term).collect()
}

fn ppo_clip(ratio: Ratio, advantage: f64, low: f64, high: f64, dual: Option<f64>) -> Term {
    let plain = -advantage * ratio.value;
    let clipped = -advantage * ratio.value.clamp(1.0 - low, 1.0 + high);
    let mut term = Term::free(plain, -advantage * ratio.grad);
    if clipped > plain {
        term = Term {
            value: clipped,
            grad: 0.0,
            bounded: true,
        };
    }
    match dual.map(|dual| -advantage * dual) {
        Some(bound) if advantage < 0.0 && term.value > bound => Term {
            value: bound,
            grad: 0.0,
            bounded: true,
        },
        _ => term,
    }
}

/// -constant(weight) A lp.
fn weighted_logprob(token: &Token, weight: f64, bounded: bool) -> Term {
    let grad = -weight * token.advantage;
    Term {
        value: grad * token.lp,
        grad,
        bounded,
    }
}

fn cispo(token: &Token, low: f64, high: f64) -> Term {
    let ratio = Ratio::of(token.lp - token.lo).value;
    weighted_logprob(
        token,
        ratio.clamp(low, high),
        !(low..=high).contains(&ratio),
    )
}

fn sapo(token: &Token, positive: f64, negative: f64) -> Term {
    let tau = if token.advantage > 0.0 {
        positive
    } else {
        negative
    };
    let ratio = Ratio::of(token.lp - token.lo);
    let gate = 1.0 / (1.0 + (-tau * (ratio.value - 1.0)).exp());
    let grad = 4.0 * gate * (1.0 - gate) * ratio.grad;
    Term::free(-4.0 / tau * gate * token.advantage, -grad * token.advantage)
}

fn dppo_tv(token: &Token, low: f64, high: f64, kl_tau: f64) -> Term {
    let moved = token.lp.exp() - token.lr.exp();
    let masked = if token.advantage > 0.0 {
        moved > high
    } else {
        moved < -low
    };
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

fn gspo(tokens: &[Token], low: f64, high: f64) -> impl Iterator<Item = Term> {
    let ratio = Ratio::of(mean(tokens.iter().map(|token| token.lp - token.lo)));
    tokens
        .iter()
        .map(move |token| ppo_clip(ratio, token.advantage, low, high, None))
}

/// # Panics
/// When the sentences have not as many tokens as the sequence.
fn sspo(inputs: &TokenInputs, low: f64, high: f64, spread: f64) -> impl Iterator<Item = Term> {
    let level = mean(inputs.entropies.iter().map(|&entropy| f64::from(entropy)));
    let tokens = tokens_of(inputs);
    let mut terms = Vec::with_capacity(tokens.len());
    let (mut rest, mut entropies) = (tokens.as_slice(), inputs.entropies);
    for &count in inputs.sentences {
        let (sentence, others) = rest.split_at(count);
        let (own, later) = entropies.split_at(count);
        (rest, entropies) = (others, later);
        let entropy = mean(own.iter().map(|&entropy| f64::from(entropy)));
        let width = if level > 0.0 {
            (entropy / level).clamp(1.0 / spread, spread)
        } else {
            1.0
        };
        terms.extend(gspo(sentence, (low * width).min(1.0), high * width));
    }
    assert!(rest.is_empty(), "tokens and those of their sentences");
    terms.into_iter()
}

fn a_lol(tokens: &[Token], epsilon: f64) -> impl Iterator<Item = Term> {
    let ratio = Ratio::of(tokens.iter().map(|token| token.lp - token.lo).sum()).value;
    let held = ratio.clamp(1.0 - epsilon, 1.0 + epsilon);
    let bounded = held.to_bits() != ratio.to_bits();
    tokens.iter().map(move |token| {
        if token.advantage > 0.0 {
            weighted_logprob(token, held, bounded)
        } else {
            Term::free(0.0, 0.0)
        }
    })
}

fn gmpo(tokens: &[Token], low: f64, high: f64) -> impl Iterator<Item = Term> {
    // A token whose loss was taken away has no advantage, and must not weaken the others.
    let counts = |token: &Token| token.advantage.abs() > 0.0;
    // The log ratio that counts, and whether its bound stopped it.
    let held = move |token: &Token| {
        let log_ratio = token.lp - token.lo;
        if token.advantage > 0.0 {
            (log_ratio.min(high), log_ratio > high)
        } else {
            (log_ratio.max(-low), log_ratio < -low)
        }
    };
    let counted: Vec<Token> = tokens.iter().copied().filter(counts).collect();
    let ratio = Ratio::of(mean(counted.iter().map(|token| held(token).0)));
    let advantage = mean(counted.iter().map(|token| token.advantage));
    tokens.iter().map(move |token| {
        if !counts(token) {
            return Term::free(0.0, 0.0);
        }
        let (_, bounded) = held(token);
        Term {
            value: -advantage * ratio.value,
            grad: if bounded {
                0.0
            } else {
                -advantage * ratio.grad
            },
            bounded,
        }
    })
}

fn vespo(tokens: &[Token]) -> impl Iterator<Item = Term> {
    let log_ratio = |token: &Token| (token.lp - token.lo).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
    let sum: f64 = tokens.iter().map(log_ratio).sum();
    let held = sum.clamp(VESPO_LEAST.ln(), LOG_RATIO_LIMIT);
    let bounded = held.to_bits() != sum.to_bits();
    tokens
        .iter()
        .map(move |token| weighted_logprob(token, vespo_phi(held, token.advantage >= 0.0), bounded))
}

/// exp(l + k ln W - l W).
fn vespo_phi(log_ratio: f64, positive: bool) -> f64 {
    let (k, l) = if positive { (2.0, 3.0) } else { (3.0, 2.0) };
    (l + k * log_ratio - l * log_ratio.exp()).exp()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::PolicyLoss;

    /// The loss of one token whose ratio to `lo` and `lr` is `now / before`.
    fn token(loss: PolicyLoss, now: f32, before: f32, advantage: f32) -> TokenTerms {
        let before = [before.ln()];
        loss.tokens(&TokenInputs {
            logprobs: &[now.ln()],
            proximal: &before,
            sampler: &before,
            advantages: &[advantage],
            entropies: &[0.5],
            sentences: &[1],
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
            let settings: Vec<f64> = [0.2, 0.28].into_iter().chain(dual).collect();
            // Just inside the bound, which 1.28 in f32 is not.
            let now = if bounded == 0 {
                ratio * (1.0 - 1e-7)
            } else {
                ratio
            };
            let found = token(PolicyLoss::of("ppo_clip", &settings), now, 1.0, advantage);
            close(found.values[0], expected);
            assert_eq!(found.bounded, bounded, "({ratio}, {advantage}, {dual:?})");
            close(
                found.gradients[0],
                if bounded == 1 { 0.0 } else { expected },
            );
        }
    }

    #[test]
    fn sapo_vectors() {
        let sapo = PolicyLoss::of("sapo", &[1.0, 1.05]);
        for (ratio, advantage, expected) in [
            (1.0, 1.0, -2.0),
            (1.0, -1.0, 1.904_762),
            (1.5, 1.0, -2.489_837),
            (0.5, -1.0, 1.415_938),
        ] {
            close(token(sapo, ratio, 1.0, advantage).values[0], expected);
        }
        close(token(sapo, 1.0, 1.0, -1.0).gradients[0], 1.0);
    }

    #[test]
    fn dppo_vectors() {
        let masked_only = PolicyLoss::of("dppo_tv", &[0.2, 0.2, 0.0]);
        for (now, before, advantage, expected) in [
            (0.9, 0.6, 1.0, 0.0),
            (0.9, 0.6, -1.0, 1.5),
            (0.3, 0.6, -1.0, 0.0),
            (0.75, 0.6, 1.0, -1.25),
        ] {
            close(
                token(masked_only, now, before, advantage).values[0],
                expected,
            );
        }
        let with_kl = PolicyLoss::of("dppo_tv", &[0.2, 0.2, 1e-3]);
        let term = token(with_kl, 0.75, 0.6, 1.0).values[0] + 1.25;
        assert!((term - 4.9793e-5).abs() < 1e-6, "{term}");
        close(token(with_kl, 0.75, 0.6, 0.0).values[0] * 1e4, 0.497_93);
    }

    #[test]
    fn weights_are_constants() {
        let cispo = PolicyLoss::of("cispo", &[0.0, 5.0]);
        close(token(cispo, 0.5, 0.05, 1.0).gradients[0], -5.0);
        close(token(cispo, 0.5, 0.05, 1.0).values[0], -5.0 * 0.5_f32.ln());
        let rollout = PolicyLoss::of("rollout_is", &[0.2, 0.2]);
        assert_eq!(
            token(rollout, 0.5, 0.05, 1.0),
            TokenTerms {
                values: vec![0.0],
                gradients: vec![0.0],
                bounded: 1
            }
        );
        close(token(rollout, 0.55, 0.5, -2.0).gradients[0], 2.2);
    }

    #[test]
    fn vespo_vectors() {
        for (log_ratio, positive, expected) in [
            (-1.0, true, 0.901_551),
            (-1.0, false, 0.176_266),
            (0.0, true, 1.0),
            (0.0, false, 1.0),
            (0.1, true, 0.890_909),
            (0.1, false, 1.093_800),
            (1.0, true, 0.042_645),
            (1.0, false, 0.646_253),
        ] {
            let found = vespo_phi(log_ratio, positive);
            assert!(
                (found - expected).abs() < 2e-6,
                "({log_ratio}, {positive}): {found}"
            );
        }
    }

    #[test]
    fn sequences_share_one_ratio() {
        let inputs = TokenInputs {
            logprobs: &[-0.5, -1.5],
            proximal: &[-1.0, -1.0],
            sampler: &[-1.0, -1.0],
            advantages: &[1.0, 1.0],
            entropies: &[0.5, 0.5],
            sentences: &[2],
        };
        let gspo = PolicyLoss::of("gspo", &[3e-4, 4e-4]).tokens(&inputs);
        assert_eq!(
            (gspo.values, gspo.gradients),
            (vec![-1.0; 2], vec![-1.0; 2])
        );
        let luspo = PolicyLoss::of("luspo", &[2e-3, 2.5e-3]).tokens(&inputs);
        assert_eq!(
            (luspo.values, luspo.gradients),
            (vec![-2.0; 2], vec![-2.0; 2])
        );
        // The first token's 0.5 nats are held at 0.4; the second is free to fall.
        let gmpo = PolicyLoss::of("gmpo", &[0.4, 0.4]);
        let held = gmpo.tokens(&inputs);
        let ratio = (-0.05_f32).exp();
        assert_eq!(
            (held.values, held.gradients, held.bounded),
            (vec![-ratio; 2], vec![0.0, -ratio], 1)
        );
        // A token without an advantage has no bound to meet.
        let flat = gmpo.tokens(&TokenInputs {
            advantages: &[0.0; 2],
            ..inputs
        });
        assert_eq!((flat.gradients, flat.bounded), (vec![0.0; 2], 0));
    }

    #[test]
    fn sentences_have_ratios_and_bounds_of_their_own() {
        let inputs = TokenInputs {
            logprobs: &[-1.0, -0.5, -1.0, -1.0],
            proximal: &[-1.0, -1.0, -1.0, -1.3],
            sampler: &[-1.0; 4],
            advantages: &[1.0; 4],
            entropies: &[0.25, 0.75, 1.5, 1.5],
            sentences: &[2, 2],
        };
        // Sentences of entropy 0.5 and 1.5 where the sequence's is 1: bounds of 0.1 and 0.3 instead of 0.2.
        let sspo = PolicyLoss::of("sspo", &[0.2, 0.2, 2.0]);
        let adaptive = sspo.tokens(&inputs);
        close(adaptive.values[0], -1.1);
        close(adaptive.values[2], -1.161_834);
        assert_eq!(adaptive.bounded, 2);
        let fixed = PolicyLoss::of("sspo", &[0.2, 0.2, 1.0]).tokens(&inputs);
        close(fixed.values[1], -1.2);
        let whole = TokenInputs {
            sentences: &[4],
            ..inputs
        };
        let gspo = PolicyLoss::of("gspo", &[0.2, 0.2]);
        assert_eq!(sspo.tokens(&whole), gspo.tokens(&whole));
    }

    #[test]
    fn bad_answers_are_left_out_by_a_lol() {
        let a_lol = PolicyLoss::of("a_lol", &[0.5]);
        assert_eq!(token(a_lol, 0.5, 0.5, -1.0).gradients, [0.0]);
        close(token(a_lol, 0.6, 0.5, 2.0).gradients[0], -2.4);
        let held = token(a_lol, 0.9, 0.5, 2.0);
        close(held.gradients[0], -3.0);
        assert_eq!(held.bounded, 1);
    }

    #[test]
    fn a_sequence_without_tokens_has_no_loss() {
        let inputs = TokenInputs {
            logprobs: &[],
            proximal: &[],
            sampler: &[],
            advantages: &[],
            entropies: &[],
            sentences: &[],
        };
        for loss in [
            PolicyLoss::of("gspo", &[0.2, 0.2]),
            PolicyLoss::of("sspo", &[0.2, 0.2, 2.0]),
            PolicyLoss::of("a_lol", &[0.9]),
            PolicyLoss::of("gmpo", &[0.4, 0.4]),
            PolicyLoss::of("vespo", &[]),
        ] {
            assert!(loss.tokens(&inputs).values.is_empty());
        }
    }
}
