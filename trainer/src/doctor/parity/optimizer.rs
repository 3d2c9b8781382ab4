//! Clipping, and steps of `AdamW`: with moments in f32 and in 8 bits, of one rank and of two.

use burn::tensor::Tensor;
use forage_contracts::seed::Seed;
use rand::RngExt;

use super::{Model, all};
use crate::grads::NamedGrads;
use crate::model::Decoder;
use crate::optim::{AdamW, AdamWConfig};
use crate::ranks::Ranks;

/// The gradients of a step, by its number.
type Gradients = fn(&Model, &Decoder, u64) -> NamedGrads;

fn config(moments_in_8_bits: bool) -> AdamWConfig {
    AdamWConfig {
        learning_rate: 1e-2,
        warmup_steps: 0,
        weight_decay: 0.1,
        moments_in_8_bits,
        ..AdamWConfig::default()
    }
}

impl Model {
    pub(super) fn clipped(&self) -> Vec<f32> {
        let mut gradients = self.gradients_of(&self.decoder);
        let norm = gradients.global_norm();
        gradients.clip(norm, norm / 3.0);
        let mut found = all(gradients);
        // The norm would hide the rest if it stood beside it as it is.
        found.push((norm / 1e3) as f32);
        found
    }

    pub(super) fn stepped(&self) -> Vec<f32> {
        self.learned(config(false), Self::own, &Ranks::alone())
    }

    pub(super) fn stepped_in_8_bits(&self) -> Vec<f32> {
        self.learned(config(true), Self::drawn, &Ranks::alone())
    }

    pub(super) fn sharded(&self) -> Vec<f32> {
        self.learned_by_two(config(false), Self::own)
    }

    pub(super) fn sharded_in_8_bits(&self) -> Vec<f32> {
        self.learned_by_two(config(true), Self::drawn)
    }

    /// Logits after three steps.
    fn learned(&self, config: AdamWConfig, gradients: Gradients, ranks: &Ranks) -> Vec<f32> {
        let mut optimizer = AdamW::new(config);
        optimizer.deal(ranks.shard());
        let mut decoder = self.decoder.clone();
        for step in 0..3 {
            let gradients = gradients(self, &decoder, step);
            let norm = gradients.global_norm();
            optimizer
                .apply(&mut decoder, &self.config, gradients, norm, ranks)
                .expect("no rank is lost");
        }
        self.logits_of(&decoder)
    }

    /// The same of two ranks on one device, each of which has a share of the moments: the logits of both.
    fn learned_by_two(&self, config: AdamWConfig, gradients: Gradients) -> Vec<f32> {
        let config = AdamWConfig {
            sharded: true,
            ..config
        };
        let device = self.decoder.device();
        let ranks = Ranks::here(&[device.clone(), device]).expect("this machine can call itself");
        std::thread::scope(|scope| {
            let learn = |ranks: Ranks| {
                scope.spawn(move || {
                    let found = self.learned(config, gradients, &ranks);
                    ranks.leave(None);
                    found
                })
            };
            let threads: Vec<_> = ranks.into_iter().map(learn).collect();
            let found = threads
                .into_iter()
                .map(|thread| thread.join().expect("no rank panics"));
            found.flatten().collect()
        })
    }

    /// Those of the loss.
    fn own(&self, decoder: &Decoder, _step: u64) -> NamedGrads {
        self.gradients_of(decoder)
    }

    /// Random numbers with the same bits on both sides: no difference between sums decides how a moment is rounded.
    fn drawn(&self, decoder: &Decoder, step: u64) -> NamedGrads {
        let device = decoder.device();
        let draw = |(place, (name, like)): (u64, (String, Tensor<1>))| {
            let mut rng = Seed::root(3).child("gradient", &[step, place]).rng();
            let numbers = (0..like.dims()[0]).map(|_| rng.random_range(-1e-2_f32..1e-2));
            let numbers: Vec<f32> = numbers.collect();
            let gradient = Tensor::<1>::from_floats(numbers.as_slice(), &device);
            (name, gradient)
        };
        let gradients = (0..).zip(self.gradients_of(decoder).0);
        NamedGrads(gradients.map(draw).collect())
    }
}
