//! Llama 3, 3.1 and 3.2 (text): no biases, rotary frequencies scaled from 3.1 on.

use super::{Family, Published};
use crate::model::RopeScaling;

pub(super) const FAMILY: Family = Family {
    published: &[
        shape(
            "Llama-3.1-8B",
            [32, 4096, 32, 8, 128, 14336, 128_256],
            false,
            8.0,
        ),
        shape(
            "Llama-3.2-1B",
            [16, 2048, 32, 8, 64, 8192, 128_256],
            true,
            32.0,
        ),
        shape(
            "Llama-3.2-3B",
            [28, 3072, 24, 8, 128, 8192, 128_256],
            true,
            32.0,
        ),
    ],
    ..Family::new("llama", "LlamaForCausalLM")
};

const fn shape(name: &'static str, sizes: [usize; 7], tied: bool, factor: f64) -> Published {
    Published {
        name,
        sizes,
        tied,
        context: 131_072,
        rope_theta: 5e5,
        rope_scaling: Some(RopeScaling {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        }),
        rms_norm_eps: 1e-5,
    }
}
