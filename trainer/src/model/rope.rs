//! Rotary position embeddings in the rotate-half form of Hugging Face (`RoFormer`, Su et al. 2021).

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};

use super::{ModelConfig, RopeScaling, host};

/// Cosines and sines of every position; kept outside the module so that they are never saved.
#[derive(Clone, Debug)]
pub(crate) struct RopeTables {
    /// `[positions, head_dim]`: cosines, then sines.
    angles: Tensor<2>,
    /// The numbers in host memory, for the processor's kernels.
    host: Arc<(Vec<f32>, Vec<f32>)>,
    half: usize,
}

impl RopeTables {
    /// Tables of `positions` rows and `head_dim / 2` columns.
    pub(crate) fn new(config: &ModelConfig, positions: usize, device: &Device) -> Self {
        let frequencies = frequencies(config);
        let half = frequencies.len();
        let angles = (0..positions).flat_map(|position| {
            let angle = move |frequency| position as f32 * frequency;
            frequencies.iter().copied().map(angle)
        });
        let (cos, sin): (Vec<f32>, Vec<f32>) =
            angles.map(|angle| (angle.cos(), angle.sin())).unzip();
        let table = |values: &Vec<f32>| {
            Tensor::<2>::from_data(TensorData::new(values.clone(), [positions, half]), device)
        };
        Self {
            angles: Tensor::cat(vec![table(&cos), table(&sin)], 1),
            host: Arc::new((cos, sin)),
            half,
        }
    }

    /// Bytes of the tables of so many positions: cosines and sines, as tensors and in plain memory.
    pub(crate) fn bytes(config: &ModelConfig, positions: usize) -> usize {
        (positions * config.head_dim / 2) * 2 * 2 * size_of::<f32>()
    }

    /// Rows for the given positions, each `[n, 1, head_dim / 2]`, ready to broadcast over heads.
    pub(crate) fn rows(&self, positions: Tensor<1, Int>) -> (Tensor<3>, Tensor<3>) {
        let angles: Tensor<3> = self.angles.clone().select(0, positions).unsqueeze_dim(1);
        let cos = angles.clone().narrow(2, 0, self.half);
        (cos, angles.narrow(2, self.half, self.half))
    }

    /// Cosines and sines of every position, `[positions, head_dim]`.
    #[cfg(feature = "gpu")]
    pub(super) fn angles(&self) -> &Tensor<2> {
        &self.angles
    }

    /// Rotates the heads of one token in place, as [`super::Kernels::rotate`] does.
    pub(super) fn rotate_in_place(&self, heads: &mut [f32], position: usize) {
        let row = position * self.half..(position + 1) * self.half;
        let (cos, sin) = (&self.host.0[row.clone()], &self.host.1[row]);
        host::rotate_heads(heads, cos, sin);
    }
}

/// The angle by which each pair of numbers turns from one position to the next, in f32 as in transformers: the same rounding
/// keeps parity at long positions.
fn frequencies(config: &ModelConfig) -> Vec<f32> {
    let pairs = 0..config.head_dim / 2;
    let plain = pairs.map(|pair| {
        let exponent = (2 * pair) as f32 / config.head_dim as f32;
        1.0_f32 / (config.rope_theta as f32).powf(exponent)
    });
    let scaled = |frequency: f32, scaling: RopeScaling| {
        let (low, high) = (
            scaling.low_freq_factor as f32,
            scaling.high_freq_factor as f32,
        );
        let length = scaling.original_max_position_embeddings as f32;
        let (factor, wavelength) = (scaling.factor as f32, std::f32::consts::TAU / frequency);
        if wavelength < length / high {
            frequency
        } else if wavelength > length / low {
            frequency / factor
        } else {
            let share = (length / wavelength - low) / (high - low);
            (1.0 - share) * frequency / factor + share * frequency
        }
    };
    match config.rope_scaling {
        Some(scaling) => plain.map(|frequency| scaled(frequency, scaling)).collect(),
        None => plain.collect(),
    }
}
