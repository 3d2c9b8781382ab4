//! Simulated runs: the course of a healthy GRPO run with its noise.

use std::f64::consts::TAU;

use forage_contracts::seed::Seed;
use forage_trainer::metrics::Row;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The step at which simulated failures begin.
pub(crate) const ONSET: u64 = 100;

/// What distinguishes healthy runs from each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Health {
    /// Reward at first and in the end.
    pub(crate) reward: (f64, f64),
    /// Entropy at first and in the end, nats.
    pub(crate) entropy: (f64, f64),
    /// Policy tokens at first and in the end.
    pub(crate) tokens: (f64, f64),
    /// Episodes per step: the fewer, the more noise in all their means.
    pub(crate) episodes: f64,
    /// Share of groups without variance in the end.
    pub(crate) zero_variance: f64,
}

impl Health {
    pub(crate) const USUAL: Self = Self {
        reward: (0.2, 0.65),
        entropy: (0.6, 0.3),
        tokens: (120.0, 180.0),
        episodes: 128.0,
        zero_variance: 0.5,
    };
}

/// Noise from a seed.
pub(crate) struct Noise(ChaCha8Rng);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Seed::root(seed).rng())
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle): (f64, f64) = (self.0.random(), self.0.random());
        (-2.0 * (1.0 - radius).ln()).sqrt() * (TAU * angle).cos()
    }

    /// `value` times a log-normal factor.
    fn scaled(&mut self, value: f64, sigma: f64) -> f64 {
        value * (sigma * self.normal()).exp()
    }

    /// The mean of `count` yes-or-no facts of probability `share`.
    fn share(&mut self, share: f64, count: f64) -> f64 {
        (0..count as u32)
            .filter(|_| self.0.random::<f64>() < share)
            .count() as f64
            / count
    }

    /// The row of one step of a healthy run of 300.
    pub(crate) fn healthy(&mut self, step: u64, health: &Health) -> Row {
        let part = 1.0 / (1.0 + (-(step as f64 - 100.0) / 40.0).exp());
        let between = |(first, last): (f64, f64)| first + (last - first) * part;
        let mut row = Row::new(step);
        let groups = (health.episodes / 8.0).max(2.0);
        // Rewards within a group go together, so the mean moves more than independent episodes would let it.
        let reward = between(health.reward);
        let spread = 0.5 * (health.reward.1 - health.reward.0).abs().max(0.2)
            / (health.episodes / 3.0).sqrt();
        row.set("reward/mean", reward + spread * self.normal());
        row.set(
            "group/zero_std_frac",
            self.share(health.zero_variance * part, groups),
        );
        row.set("policy/loss", 0.05 * self.normal());
        row.set("policy/entropy", self.scaled(between(health.entropy), 0.15));
        row.set("policy/approx_kl_old", 2e-3 * self.normal());
        row.set("policy/kl_ref", self.scaled(0.05 * part, 0.2));
        let spike = if self.0.random::<f64>() < 0.02 {
            8.0
        } else {
            1.0
        };
        let norm = self.scaled(0.4, 0.35);
        row.set("optim/grad_norm", spike * norm);
        row.set("optim/lr", 1e-6);
        row.set("mismatch/policy_age_mean", 0.0);
        row.set("mismatch/logprob_abs_diff", 0.01);
        row.set("mismatch/ratio_deviation_max", 1.5);
        row.set(
            "response/tokens_mean",
            self.scaled(between(health.tokens), 1.0 / health.episodes.sqrt()),
        );
        row.set("response/repeated_frac", self.scaled(0.12, 0.1));
        row.set("response/truncated_frac", self.share(0.04, health.episodes));
        row.set(
            "action/valid_frac",
            self.share(0.88 + 0.1 * part, 2.0 * health.episodes),
        );
        row.set(
            "search/calls_mean",
            self.scaled(1.2 + 0.4 * part, 1.0 / health.episodes.sqrt()),
        );
        row.set("search/empty_frac", 0.1);
        row.set("query/words_mean", self.scaled(8.0, 0.05));
        row.set("query/distinct_frac", self.scaled(0.8, 0.05));
        row.set("query/stop_word_frac", self.scaled(0.3, 0.1));
        row.set("query/operator_frac", self.share(0.35, health.episodes));
        row.set("query/complexity_mean", 1.2);
        row
    }
}
