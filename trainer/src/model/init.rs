//! Seeded initial weights.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use forage_env::seed::Seed;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Decoder, ModelConfig};

struct Init {
    rng: ChaCha8Rng,
    std: f64,
    path: Vec<String>,
}

impl Init {
    /// A standard normal draw (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.rng.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.rng.random::<f64>()).cos()
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
        let bias = self.path.last().is_some_and(|name| name == "bias");
        param.map(|tensor| {
            let shape = tensor.shape();
            if bias {
                return tensor.zeros_like();
            }
            if D == 1 {
                return tensor.ones_like();
            }
            let count = shape.num_elements();
            let values: Vec<f32> = (0..count).map(|_| (self.std * self.normal()) as f32).collect();
            Tensor::from_data(TensorData::new(values, shape), &tensor.device())
        })
    }
}

/// A decoder with matrices drawn from a normal distribution of standard deviation 0.02 and zero biases: the same
/// weights for the same seed on every machine.
pub fn init_random(config: &ModelConfig, seed: Seed, device: &Device) -> Decoder {
    let decoder = Decoder::new(config, device);
    decoder.map(&mut Init { rng: seed.child("init", &[]).rng(), std: 0.02, path: Vec::new() })
}
