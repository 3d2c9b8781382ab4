//! Gradients by parameter name: summed over micro-batches in a fixed order, measured, clipped.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor};

use crate::model::{Decoder, LOW_RANK};

/// One flat gradient per parameter, keyed by its path.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedGrads(pub BTreeMap<String, Tensor<1>>);

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
        let squares: Vec<Tensor<1>> = self
            .0
            .values()
            .map(|gradient| gradient.clone().square().sum())
            .collect();
        if squares.is_empty() {
            return 0.0;
        }
        // One number per parameter, read back together.
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
