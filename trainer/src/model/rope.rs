//! Rotary position embeddings in the rotate-half form of Hugging Face Qwen (`RoFormer`, Su et al. 2021).

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};

use super::{ModelConfig, host};

/// Cosines and sines of every position; kept outside the module so that they are never saved.
#[derive(Clone, Debug)]
pub struct RopeTables {
    cos: Tensor<2>,
    sin: Tensor<2>,
    /// The same numbers where kernels of the processor reach them.
    host: Arc<(Vec<f32>, Vec<f32>)>,
    half: usize,
}

impl RopeTables {
    /// Tables of `positions` rows and `head_dim / 2` columns, computed in f64 and rounded to f32.
    pub fn new(config: &ModelConfig, positions: usize, device: &Device) -> Self {
        let half = config.head_dim / 2;
        let mut cos = Vec::with_capacity(positions * half);
        let mut sin = Vec::with_capacity(positions * half);
        for position in 0..positions {
            for pair in 0..half {
                // transformers computes the inverse frequency in f32: the same rounding keeps parity at long positions.
                let exponent = (2 * pair) as f32 / config.head_dim as f32;
                let frequency = 1.0_f32 / (config.rope_theta as f32).powf(exponent);
                let angle = position as f32 * frequency;
                cos.push(angle.cos());
                sin.push(angle.sin());
            }
        }
        let table = |values: &Vec<f32>| Tensor::from_data(TensorData::new(values.clone(), [positions, half]), device);
        Self { cos: table(&cos), sin: table(&sin), host: Arc::new((cos, sin)), half }
    }

    /// Rows for the given positions, each `[n, 1, head_dim / 2]`, ready to broadcast over heads.
    pub fn rows(&self, positions: Tensor<1, Int>) -> (Tensor<3>, Tensor<3>) {
        let cos = self.cos.clone().select(0, positions.clone());
        let sin = self.sin.clone().select(0, positions);
        (cos.unsqueeze_dim(1), sin.unsqueeze_dim(1))
    }

    /// Rotates the heads of one token in place, as [`rotate`] does.
    pub(super) fn rotate_in_place(&self, heads: &mut [f32], position: usize) {
        let row = position * self.half..(position + 1) * self.half;
        let (cos, sin) = (&self.host.0[row.clone()], &self.host.1[row]);
        host::rotate_heads(heads, cos, sin);
    }
}

/// Rotates `x` of shape `[n, heads, head_dim]` by the angles of its positions. The derivative by `x` is that by the result,
/// rotated by the negative angles.
pub(super) fn rotate(x: Tensor<3>, cos: &Tensor<3>, sin: &Tensor<3>) -> Tensor<3> {
    if host::runs_on(&x) {
        return host::rotate(x, cos, sin);
    }
    let [n, heads, dim] = x.dims();
    let half = dim / 2;
    let first = x.clone().slice([0..n, 0..heads, 0..half]);
    let second = x.slice([0..n, 0..heads, half..dim]);
    let rotated_first = first.clone() * cos.clone() - second.clone() * sin.clone();
    let rotated_second = second * cos.clone() + first * sin.clone();
    Tensor::cat(vec![rotated_first, rotated_second], 2)
}
