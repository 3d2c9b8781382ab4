//! Gradients by parameter name: summed over micro-batches in a fixed order, measured, clipped.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor};

use crate::model::{Decoder, LOW_RANK};
#[cfg(feature = "gpu")]
use crate::model::{Kernels, sums_of_squares};

/// One flat gradient per parameter, keyed by its path.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedGrads(pub BTreeMap<String, Tensor<1>>);

/// Numbers whose squares Burn adds up at once. It adds up twice as many on all threads, in the order in which they are done.
const SQUARES: usize = 1 << 21;

/// Sums of squares of parts of a gradient, whose bits depend on nothing but its numbers.
fn squares(gradient: &Tensor<1>) -> Vec<Tensor<1>> {
    #[cfg(feature = "gpu")]
    if Kernels::of(&gradient.device()) == Kernels::Cube {
        return vec![sums_of_squares(gradient.clone())];
    }
    let [count] = gradient.dims();
    let sum = |first: usize| {
        let part = gradient
            .clone()
            .narrow(0, first, SQUARES.min(count - first));
        part.square().sum()
    };
    (0..count).step_by(SQUARES).map(sum).collect()
}

struct Collect<'a> {
    gradients: &'a Gradients,
    path: Vec<String>,
    found: BTreeMap<String, Tensor<1>>,
}

impl ModuleVisitor for Collect<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = param.val().grad(self.gradients) {
            let count = gradient.shape().num_elements();
            self.found
                .insert(self.path.join("."), gradient.reshape([count]));
        }
    }
}

impl NamedGrads {
    /// Reads the gradient of every parameter of `decoder`.
    pub(crate) fn collect(decoder: &Decoder, gradients: &Gradients) -> Self {
        let mut visitor = Collect {
            gradients,
            path: Vec::new(),
            found: BTreeMap::new(),
        };
        decoder.visit(&mut visitor);
        Self(visitor.found)
    }

    /// Adds another micro-batch's gradients.
    pub(crate) fn add(&mut self, other: Self) {
        for (name, gradient) in other.0 {
            let sum = match self.0.remove(&name) {
                Some(before) => before + gradient,
                None => gradient,
            };
            self.0.insert(name, sum);
        }
    }

    /// Euclidean norm over all parameters together.
    ///
    /// # Panics
    /// When the device is lost.
    pub(crate) fn global_norm(&self) -> f64 {
        let squares: Vec<Tensor<1>> = self.0.values().flat_map(squares).collect();
        if squares.is_empty() {
            return 0.0;
        }
        // A few numbers per parameter, read back together.
        let squares = Tensor::cat(squares, 0).into_data().convert::<f32>();
        let squares: Vec<f32> = squares.try_into_vec().expect("converted just before");
        squares.into_iter().map(f64::from).sum::<f64>().sqrt()
    }

    /// Scales all gradients so that their global norm is at most `limit`, as `torch.nn.utils.clip_grad_norm_` does.
    /// `norm` is the value of [`Self::global_norm`].
    pub(crate) fn clip(&mut self, norm: f64, limit: f64) {
        let scale = limit / (norm + 1e-6);
        if scale < 1.0 {
            for gradient in self.0.values_mut() {
                *gradient = gradient.clone() * scale;
            }
        }
    }
}

struct Track {
    /// Whether the decoder has an adapter, beside which the base is frozen.
    adapted: bool,
    /// Inside a low-rank change.
    low_rank: bool,
}

impl ModuleMapper for Track {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.low_rank |= name == LOW_RANK;
    }

    fn exit_module(&mut self, name: &str, _container_type: &str) {
        self.low_rank &= name != LOW_RANK;
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        let value = value.inner().autodiff();
        let learns = self.low_rank || !self.adapted;
        Param::from_mapped_value(
            id,
            if learns { value.require_grad() } else { value },
            mapper,
        )
    }
}

/// The same weights as fresh leaves of the autodiff graph; of an adapted decoder only those of the adapter, so that the
/// frozen base gets neither gradients nor moments. The numbers are shared, not copied. For a loss of one's own through
/// Burn's autodiff; training's derivatives are written out, in [`crate::backward`].
///
/// Every thread that runs a backward pass needs leaves of its own: Burn joins graphs that share a leaf, and joining a
/// graph while another thread walks it deadlocks.
pub(crate) fn track(decoder: &Decoder) -> Decoder {
    decoder.clone().map(&mut Track {
        adapted: decoder.is_adapted(),
        low_rank: false,
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn the_norm_of_a_large_gradient_is_the_same_each_time() {
        let numbers: Vec<f32> = (0..5_000_000_usize)
            .map(|place| (place * 7919 % 10_007) as f32 / 1e4 - 0.4)
            .collect();
        let gradient = Tensor::from_floats(numbers.as_slice(), &Device::flex());
        let gradients = NamedGrads(BTreeMap::from([("large".to_owned(), gradient)]));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build();
        let pool = pool.unwrap();
        let norm = || {
            let gradients = gradients.clone();
            pool.install(move || gradients.global_norm())
        };
        let first = norm();
        let squares = numbers.iter().map(|&number| f64::from(number).powi(2));
        assert!((first / squares.sum::<f64>().sqrt() - 1.0).abs() < 1e-5);
        for _ in 0..30 {
            assert_eq!(norm().to_bits(), first.to_bits());
        }
    }
}
