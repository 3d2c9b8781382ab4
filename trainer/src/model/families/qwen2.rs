//! Qwen2 and Qwen2.5: biases on q, k and v.

use super::{Family, Published};

pub(super) const FAMILY: Family = Family {
    qkv_bias: true,
    published: &[
        shape("Qwen2.5-0.5B", [24, 896, 14, 2, 64, 4864, 151_936], true),
        shape("Qwen2.5-1.5B", [28, 1536, 12, 2, 128, 8960, 151_936], true),
        shape("Qwen2.5-3B", [36, 2048, 16, 2, 128, 11008, 151_936], true),
        shape("Qwen2.5-7B", [28, 3584, 28, 4, 128, 18944, 152_064], false),
        shape("Qwen2.5-14B", [48, 5120, 40, 8, 128, 13824, 152_064], false),
        shape("Qwen2.5-32B", [64, 5120, 40, 8, 128, 27648, 152_064], false),
    ],
    ..Family::new("qwen2", "Qwen2ForCausalLM")
};

const fn shape(name: &'static str, sizes: [usize; 7], tied: bool) -> Published {
    Published {
        name,
        sizes,
        tied,
        context: 32_768,
        rope_theta: 1e6,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
    }
}
