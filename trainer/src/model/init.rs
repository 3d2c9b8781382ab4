//! Seeded initial weights.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Distribution, Tensor, TensorData, bf16};
use forage_contracts::seed::Seed;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::{Decoder, ModelConfig};
use crate::device::is_processor;
use crate::weights::{Kept, Precision, turned};

/// Numbers drawn by one job: whole vectors of the generator, small enough to share out evenly.
const PIECE: usize = 1 << 14;
/// Standard deviation of the matrices.
const STD: f64 = 0.02;

/// A source of numbers of variance 1.
#[derive(Clone, Copy)]
struct Source {
    draw: fn(&mut ChaCha8Rng) -> f64,
    /// Words of the random stream that one number takes.
    words: u128,
    /// Whether only the distribution matters.
    quick: bool,
}

const NORMAL: Source = Source {
    draw: normal,
    words: 4,
    quick: false,
};
const QUICK: Source = Source {
    draw: four_uniforms,
    words: 2,
    quick: true,
};

struct Init {
    /// A generator at the start of its stream; every number has its own position in it.
    rng: ChaCha8Rng,
    source: Source,
    half: bool,
    /// Draws where the weights are kept, from the device's own generator.
    on_device: bool,
    path: Vec<String>,
    /// Numbers drawn for the parameters before.
    drawn: usize,
}

/// A standard normal draw (Box and Muller).
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// The centred sum of four uniform numbers: close to normal up to 2.5 standard deviations, and never above 3.5.
fn four_uniforms(rng: &mut ChaCha8Rng) -> f64 {
    let bits: u64 = rng.random();
    let sum: u32 = [0, 16, 32, 48]
        .iter()
        .map(|shift| (bits >> shift) as u32 & 0xFFFF)
        .sum();
    (f64::from(sum) - 2.0 * 65_535.0) * (3.0_f64.sqrt() / 65_536.0)
}

impl Init {
    /// The next `count` numbers, the same whatever the number of threads.
    fn draw<T: Kept>(&mut self, count: usize) -> Vec<T> {
        let mut values = vec![T::default(); count];
        let (before, source) = (self.drawn, self.source);
        values
            .par_chunks_mut(PIECE)
            .enumerate()
            .for_each(|(piece, values)| {
                let mut rng = self.rng.clone();
                rng.set_word_pos((before + piece * PIECE) as u128 * source.words);
                for value in values {
                    *value = T::from_f32((STD * (source.draw)(&mut rng)) as f32);
                }
            });
        self.drawn += count;
        values
    }

    fn matrix<const D: usize>(&mut self, shape: &[usize], device: &Device) -> Tensor<D> {
        if self.on_device {
            return self.drawn_there(shape, device);
        }
        let count = shape.iter().product();
        if !self.half {
            return Tensor::from_data(
                TensorData::new(self.draw::<f32>(count), shape),
                (device, DType::F32),
            );
        }
        let values = self.draw::<bf16>(count);
        if self.path.iter().any(|part| part == "embed_tokens") {
            return Tensor::from_data(TensorData::new(values, shape), (device, DType::BF16));
        }
        // As a loaded checkpoint has it: `[out, in]` in memory, seen as `[in, out]`.
        let values = turned(&values, shape[0], |value| value);
        let stored: Vec<usize> = shape.iter().rev().copied().collect();
        Tensor::from_data(TensorData::new(values, stored), (device, DType::BF16)).swap_dims(0, 1)
    }
}

impl Init {
    /// A matrix drawn on the device, in the order in memory that a loaded one has.
    fn drawn_there<const D: usize>(&self, shape: &[usize], device: &Device) -> Tensor<D> {
        let turned = self.half && !self.path.iter().any(|part| part == "embed_tokens");
        let stored: Vec<usize> = if turned {
            shape.iter().rev().copied().collect()
        } else {
            shape.to_vec()
        };
        let drawn =
            Tensor::<D>::random(stored, Distribution::Normal(0.0, STD), (device, DType::F32));
        let drawn = if self.half {
            drawn.cast(DType::BF16)
        } else {
            drawn
        };
        if turned { drawn.swap_dims(0, 1) } else { drawn }
    }
}

impl ModuleMapper for Init {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (shape, device) = (param.lazy_shape(), param.lazy_device());
        let plain = device.clone().without_autodiff();
        let tensor = if self.path.last().is_some_and(|name| name == "bias") {
            Tensor::zeros(shape, (&plain, DType::F32))
        } else if D == 1 {
            Tensor::ones(shape, (&plain, DType::F32))
        } else {
            self.matrix(&shape.to_vec(), &plain)
        };
        let tensor = if device.is_autodiff() {
            tensor.autodiff()
        } else {
            tensor
        };
        let id = param.id;
        param.transform_for_load(tensor, id)
    }
}

impl Decoder {
    /// A decoder with f32 matrices drawn from a normal distribution of standard deviation 0.02 and zero biases: the same
    /// weights for the same seed on every machine.
    pub fn random(config: &ModelConfig, seed: Seed, device: &Device) -> Self {
        filled(config, NORMAL, seed, Precision::Full, device)
    }

    /// The model with a fresh value head, drawn as the matrices of [`Self::random`] are.
    #[must_use]
    pub(crate) fn with_fresh_value_head(self, seed: Seed) -> Self {
        let [hidden] = self.norm().gamma.val().dims();
        let mut rng = seed.rng();
        let weight = (0..hidden).map(|_| (STD * normal(&mut rng)) as f32);
        self.with_value_head(weight.collect(), 0.0)
    }
}

/// As [`Decoder::random`] for large models that are only measured: other numbers, of the same deviation and nearly normal,
/// drawn several times faster. With [`Precision::Half`] they are the same rounded to bf16, kept as a loaded checkpoint
/// keeps them and never all in f32 at once; with [`Precision::Int8`] the matrices of the layers are drawn first. On a GPU they
/// are drawn there, in seconds for the largest, and differ from the processor's.
///
/// # Panics
/// When a matrix cannot be kept in 8 bits: its inputs are not a multiple of 32.
pub(crate) fn init_quick(
    config: &ModelConfig,
    seed: Seed,
    precision: Precision,
    device: &Device,
) -> Decoder {
    filled(config, QUICK, seed, precision, device)
}

fn filled(
    config: &ModelConfig,
    source: Source,
    seed: Seed,
    precision: Precision,
    device: &Device,
) -> Decoder {
    let rng = seed.child("init", &[]).rng();
    let half = matches!(precision, Precision::Half | Precision::Int8);
    let on_device = source.quick && !is_processor(device);
    if on_device {
        device.seed(seed.child("init", &[]).rng().random());
    }
    let mut init = Init {
        rng,
        source,
        half,
        on_device,
        path: Vec::new(),
        drawn: 0,
    };
    let mut decoder = Decoder::new(config, device);
    if precision == Precision::Int8 {
        decoder
            .quantise_layers(|_, linear| linear.map(&mut init))
            .expect("a published shape");
    }
    decoder.map(&mut init)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_models_are_the_same_at_either_precision() {
        let config = ModelConfig {
            num_hidden_layers: 1,
            hidden_size: 256,
            intermediate_size: 512,
            vocab_size: 512,
            ..ModelConfig::published("Qwen3-0.6B").unwrap()
        };
        let random = |precision| {
            let mut decoder = init_quick(&config, Seed::root(3), precision, &Device::flex());
            let mut all = vec![("embedding".to_owned(), decoder.embedding())];
            let linears = decoder.linears();
            all.extend(linears.into_iter().map(|(name, map)| (name, map.matrix())));
            all.into_iter().map(|(name, matrix)| {
                let values = matrix.into_data().convert::<f32>();
                (name, values.try_into_vec::<f32>().unwrap())
            })
        };
        let rounded = |value: &f32| bf16::from_f32(*value).to_f32();
        for (full, half) in random(Precision::Full).zip(random(Precision::Half)) {
            assert!(full.1.iter().map(rounded).eq(half.1), "{}", full.0);
        }
    }

    #[test]
    fn pieces_are_parts_of_one_stream() {
        for source in [NORMAL, QUICK] {
            let mut rng = Seed::root(5).rng();
            let mut init = Init {
                rng: rng.clone(),
                source,
                half: false,
                on_device: false,
                path: Vec::new(),
                drawn: 0,
            };
            let mut found: Vec<f32> = init.draw(7);
            found.extend(init.draw::<f32>(2 * PIECE + 3));
            let serial: Vec<f32> = (0..found.len())
                .map(|_| (STD * (source.draw)(&mut rng)) as f32)
                .collect();
            assert!(found == serial);
        }
    }

    #[test]
    fn both_sources_have_mean_0_and_deviation_1() {
        for source in [NORMAL, QUICK] {
            let mut rng = Seed::root(6).rng();
            let values: Vec<f64> = (0..200_000).map(|_| (source.draw)(&mut rng)).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let variance =
                values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
            assert!(
                mean.abs() < 0.01 && (variance - 1.0).abs() < 0.01,
                "{mean} {variance}"
            );
        }
    }
}
