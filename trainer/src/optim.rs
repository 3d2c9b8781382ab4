//! `AdamW` with decoupled weight decay (Loshchilov and Hutter 2019), its state kept by parameter name.
//!
//! Burn's own optimizer keys its state by ids drawn at random in each process; names make a checkpoint's moments
//! readable by any later process and any tool.

mod config;
mod eight_bit;
mod file;
#[cfg(feature = "gpu")]
mod packed;
mod shards;

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use rayon::prelude::*;

pub(crate) use self::config::Curve;
pub use self::config::{AdamWConfig, Decay};
use self::eight_bit::EightBit;
#[cfg(feature = "gpu")]
use self::packed::Packed;
use self::shards::Changed;
use crate::grads::NamedGrads;
#[cfg(feature = "gpu")]
use crate::model::adamw;
use crate::model::{Decoder, Kernels, ModelConfig, host};
use crate::ranks::{Cut, RankError, Ranks, Shard};

/// The moments of one parameter in f32.
#[derive(Clone, Debug)]
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// The moments of some numbers.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each parameter")]
enum Kept {
    Full(Moments),
    EightBit(EightBit),
    /// Moments of 8 bits, on a device with our own kernels.
    #[cfg(feature = "gpu")]
    Packed(Packed),
}

impl Kept {
    /// Changes these numbers of a parameter, of which it has the moments.
    fn step<const D: usize>(
        self,
        by: &Factors,
        kernels: Kernels,
        value: Tensor<D>,
        gradient: Tensor<1>,
    ) -> (Tensor<D>, Self) {
        match self {
            Self::Full(moments) => {
                let change = match kernels {
                    Kernels::Processor => change_in_place,
                    #[cfg(feature = "gpu")]
                    Kernels::Cube => change_on_device,
                    Kernels::Burn => change,
                };
                let (value, moments) = change(by, value, gradient, moments);
                (value, Self::Full(moments))
            }
            Self::EightBit(mut moments) => {
                let value = change_in_8_bits(by, value, gradient, &mut moments);
                (value, Self::EightBit(moments))
            }
            #[cfg(feature = "gpu")]
            Self::Packed(moments) => {
                let (value, moments) = moments.step(by.numbers(), value, gradient);
                (value, Self::Packed(moments))
            }
        }
    }
}

/// The moments of one parameter.
#[derive(Clone, Debug)]
struct Entry {
    /// Numbers of the whole parameter.
    count: usize,
    in_8_bits: bool,
    /// Moments of this shard's numbers; `None` where it has none.
    kept: Option<Kept>,
}

impl Entry {
    /// The entry before the first step, for a parameter with this gradient.
    fn zeros(config: &AdamWConfig, shard: Shard, gradient: &Tensor<1>, kernels: Kernels) -> Self {
        let [count] = gradient.dims();
        let mut entry = Self {
            count,
            in_8_bits: config.quantises(count, kernels),
            kept: None,
        };
        let own = shard.own(entry.cut());
        if own.is_empty() {
            return entry;
        }
        entry.kept = Some(match kernels {
            #[cfg(feature = "gpu")]
            Kernels::Cube if entry.in_8_bits => {
                Kept::Packed(Packed::zeros(own.len(), &gradient.device()))
            }
            _ if entry.in_8_bits => Kept::EightBit(EightBit::zeros(own.len())),
            _ => {
                let gradient = gradient.clone().narrow(0, own.start, own.len());
                Kept::Full(Moments {
                    first: gradient.zeros_like(),
                    second: gradient.zeros_like(),
                })
            }
        });
        entry
    }

    /// The cut of the parameter into shards: one of 8 bits between two blocks.
    fn cut(&self) -> Cut {
        let unit = if self.in_8_bits { eight_bit::BLOCK } else { 1 };
        Cut {
            count: self.count,
            unit,
        }
    }
}

/// The optimizer with its state.
#[derive(Clone, Debug)]
pub(crate) struct AdamW {
    config: AdamWConfig,
    /// Updates done.
    step: u64,
    /// The numbers whose moments are kept here.
    shard: Shard,
    moments: BTreeMap<String, Entry>,
}

impl AdamW {
    /// An optimizer that has done no step.
    pub(crate) fn new(config: AdamWConfig) -> Self {
        Self {
            config,
            step: 0,
            shard: Shard::WHOLE,
            moments: BTreeMap::new(),
        }
    }

    /// Bytes of the moments of so many parameters, the small ones counted like the others.
    pub(crate) fn moments_bytes(parameters: usize, in_8_bits: bool) -> usize {
        2 * if in_8_bits {
            eight_bit::bytes(parameters)
        } else {
            parameters * size_of::<f32>()
        }
    }

    /// Bytes that [`Self::apply`] holds besides: gradients, which go as weights change, and the parameter that is changing once
    /// more where it is not changed in place; `largest` is the number of its numbers. Of a sharded optimizer the updated weights of its
    /// share take the place of gradients that are done with.
    pub(crate) fn applying_bytes(parameters: usize, largest: usize) -> [usize; 2] {
        [parameters, largest].map(|numbers| numbers * size_of::<f32>())
    }

    /// Updates done so far.
    pub(crate) fn steps(&self) -> u64 {
        self.step
    }

    /// Changes the learning rate of the next steps.
    pub(crate) fn set_learning_rate(&mut self, rate: f64) {
        self.config.learning_rate = rate;
    }

    /// Clips the gradients, whose global norm is `norm`, and updates every parameter that has one. Where nothing else holds a
    /// parameter it is changed in place, so that no second copy of the weights is ever in memory. `shape` is the
    /// decoder's. A sharded optimizer updates its share, and gets the others' from `ranks`, all of which call this at the same place.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost: some weights are then of before the update.
    pub(crate) fn apply(
        &mut self,
        decoder: &mut Decoder,
        shape: &ModelConfig,
        mut gradients: NamedGrads,
        norm: f64,
        ranks: &Ranks,
    ) -> Result<(), RankError> {
        if self.is_sharded() && self.shard != ranks.shard() {
            return Err(ranks.wrong(ranks.rank(), "holds a share of the moments of other ranks"));
        }
        gradients.clip(norm, self.config.clip_norm);
        let rate = self.config.rate(self.step);
        self.step += 1;
        let shard = self.shard;
        let mut update = Update {
            kernels: Kernels::of(&decoder.device()),
            optimizer: self,
            gradients,
            rate,
            changed: Changed::default(),
            path: Vec::new(),
        };
        map(decoder, shape, &mut update);
        let changed = update.changed;
        if shard.is_whole() {
            return Ok(());
        }
        changed.spread(decoder, shape, shard, ranks)
    }
}

/// Maps a decoder of this shape, without a second copy of it.
fn map(decoder: &mut Decoder, shape: &ModelConfig, mapper: &mut impl ModuleMapper) {
    // Parameters take memory when they are first used: this one takes none.
    let hollow = Decoder::new(shape, &decoder.device());
    *decoder = std::mem::replace(decoder, hollow).map(mapper);
}

struct Update<'a> {
    optimizer: &'a mut AdamW,
    kernels: Kernels,
    gradients: NamedGrads,
    rate: f64,
    /// The updated numbers of this rank's share, where the optimizer is sharded.
    changed: Changed,
    path: Vec<String>,
}

impl ModuleMapper for Update<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.join(".");
        let Some(gradient) = self.gradients.0.remove(&name) else {
            return param;
        };
        let AdamWConfig {
            beta1,
            beta2,
            epsilon,
            weight_decay,
            ..
        } = self.optimizer.config;
        let step = self.optimizer.step as i32;
        let factors = Factors {
            beta1,
            beta2,
            epsilon,
            first: 1.0 - beta1.powi(step),
            second: 1.0 - beta2.powi(step),
            rate: self.rate,
            decay: if D > 1 {
                1.0 - self.rate * weight_decay
            } else {
                1.0
            },
        };
        let (config, shard, kernels) = (&self.optimizer.config, self.optimizer.shard, self.kernels);
        let entry = self.optimizer.moments.remove(&name);
        let mut entry = entry.unwrap_or_else(|| Entry::zeros(config, shard, &gradient, kernels));
        let kept = entry.kept.take();
        let param = if shard.is_whole() {
            let (id, mut value, mapper) = param.consume();
            if let Some(kept) = kept {
                let (changed, kept) = kept.step(&factors, kernels, value, gradient);
                value = changed;
                entry.kept = Some(kept);
            }
            Param::from_mapped_value(id, value, mapper)
        } else {
            // It is exchanged as a whole when the others' shares have come.
            if let Some(kept) = kept {
                let own = shard.own(entry.cut());
                let value: Tensor<1> = param.val().reshape([entry.count]);
                let [value, gradient] =
                    [value, gradient].map(|all| all.narrow(0, own.start, own.len()));
                let (value, kept) = kept.step(&factors, kernels, value, gradient);
                entry.kept = Some(kept);
                self.changed.add(value);
            }
            self.changed.name(&name, entry.cut());
            param
        };
        self.optimizer.moments.insert(name, entry);
        param
    }
}

/// The numbers of one update.
struct Factors {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    /// The divisor that corrects the bias of the first moment.
    first: f64,
    /// The divisor that corrects the bias of the second moment.
    second: f64,
    rate: f64,
    /// The factor of the weights.
    decay: f64,
}

/// One parameter's update in Burn's operations, on any device.
fn change<const D: usize>(
    by: &Factors,
    value: Tensor<D>,
    gradient: Tensor<1>,
    before: Moments,
) -> (Tensor<D>, Moments) {
    let first = before.first * by.beta1 + gradient.clone() * (1.0 - by.beta1);
    let second = before.second * by.beta2 + gradient.square() * (1.0 - by.beta2);
    let direction = (first.clone() / by.first) / ((second.clone() / by.second).sqrt() + by.epsilon);
    let shape = value.shape();
    (
        value * by.decay - (direction * by.rate).reshape(shape),
        Moments { first, second },
    )
}

/// As [`change`], in one launch.
#[cfg(feature = "gpu")]
fn change_on_device<const D: usize>(
    by: &Factors,
    value: Tensor<D>,
    gradient: Tensor<1>,
    before: Moments,
) -> (Tensor<D>, Moments) {
    let moments = [before.first, before.second];
    let (value, [first, second]) = adamw(value, gradient, moments, by.numbers());
    (value, Moments { first, second })
}

/// Numbers per task.
const TASK: usize = 1 << 14;

/// As [`change`], to the bit, in one pass over the processor's memory: several passes would hold several copies of the largest
/// parameter, which is a fifth of a small language model.
fn change_in_place<const D: usize>(
    by: &Factors,
    value: Tensor<D>,
    gradient: Tensor<1>,
    before: Moments,
) -> (Tensor<D>, Moments) {
    let (mut first, mut second) = (None, None);
    let value = host::read(gradient, |gradient| {
        host::change(value, |value| {
            first = Some(host::change(before.first, |first| {
                second = Some(host::change(before.second, |second| {
                    by.apply(value, gradient, first, second);
                }));
            }));
        })
    });
    let made = "made with the value";
    (
        value,
        Moments {
            first: first.expect(made),
            second: second.expect(made),
        },
    )
}

/// As [`change_in_place`], beside moments of 8 bits.
fn change_in_8_bits<const D: usize>(
    by: &Factors,
    value: Tensor<D>,
    gradient: Tensor<1>,
    moments: &mut EightBit,
) -> Tensor<D> {
    let numbers = by.numbers();
    host::read(gradient, |gradient| {
        host::change(value, |value| {
            moments.update(value, gradient, |value, gradient, first, second| {
                step_of(&numbers, value, gradient, first, second);
            });
        })
    })
}

impl Factors {
    /// What the kernels compute with: the decay of the first moment and 1 minus it, the same of the second, and the rest in order.
    fn numbers(&self) -> [f32; 9] {
        [
            self.beta1,
            1.0 - self.beta1,
            self.beta2,
            1.0 - self.beta2,
            self.first,
            self.second,
            self.epsilon,
            self.rate,
            self.decay,
        ]
        .map(|number| number as f32)
    }

    /// All slices are `[n]`.
    fn apply(&self, value: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32]) {
        let numbers = self.numbers();
        let tasks = value.par_chunks_mut(TASK).zip(gradient.par_chunks(TASK));
        let tasks = tasks
            .zip(first.par_chunks_mut(TASK))
            .zip(second.par_chunks_mut(TASK));
        tasks.for_each(|(((value, gradient), first), second)| {
            step_of(&numbers, value, gradient, first, second);
        });
    }
}

/// One step by [`Factors::numbers`]; all slices are `[n]`.
fn step_of(
    numbers: &[f32; 9],
    value: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    let &[
        beta1,
        rest1,
        beta2,
        rest2,
        bias1,
        bias2,
        epsilon,
        rate,
        decay,
    ] = numbers;
    for (((value, gradient), first), second) in
        value.iter_mut().zip(gradient).zip(first).zip(second)
    {
        *first = *first * beta1 + gradient * rest1;
        *second = *second * beta2 + gradient * gradient * rest2;
        let direction = (*first / bias1) / ((*second / bias2).sqrt() + epsilon);
        *value = *value * decay - direction * rate;
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;

    #[test]
    fn one_pass_gives_the_bits_of_burns_operations() {
        let device = Device::flex();
        let draw =
            |spread: f64| Tensor::<1>::random([40_000], Distribution::Normal(0.0, spread), &device);
        let (mut value, mut moments) = (
            draw(0.02).reshape([200, 200]),
            Moments {
                first: draw(0.0),
                second: draw(0.0),
            },
        );
        let bits = |tensor: Tensor<1>| {
            let numbers: Vec<f32> = tensor.into_data().try_into_vec().unwrap();
            numbers.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
        };
        for step in 1..4 {
            let by = Factors {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                first: 1.0 - 0.9_f64.powi(step),
                second: 1.0 - 0.999_f64.powi(step),
                rate: 1e-3,
                decay: 1.0 - 1e-5,
            };
            let gradient = draw(1e-3);
            let (slow, kept) = change::<2>(&by, value.clone(), gradient.clone(), moments.clone());
            (value, moments) = change_in_place(&by, value, gradient, moments);
            assert_eq!(
                bits(value.clone().flatten(0, 1)),
                bits(slow.flatten(0, 1)),
                "step {step}"
            );
            assert_eq!(bits(moments.first.clone()), bits(kept.first), "step {step}");
            assert_eq!(
                bits(moments.second.clone()),
                bits(kept.second),
                "step {step}"
            );
        }
    }
}
