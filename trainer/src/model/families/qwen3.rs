//! Qwen3: every query and key head is normalised, and nothing has a bias.

use super::{Family, Published, QkNorm};

pub(super) const FAMILY: Family = Family {
    qk_norm: QkNorm::Head,
    published: &[
        shape("Qwen3-0.6B", [28, 1024, 16, 8, 128, 3072, 151_936], true),
        shape("Qwen3-1.7B", [28, 2048, 16, 8, 128, 6144, 151_936], true),
        shape("Qwen3-4B", [36, 2560, 32, 8, 128, 9728, 151_936], true),
        shape("Qwen3-8B", [36, 4096, 32, 8, 128, 12288, 151_936], false),
        shape("Qwen3-14B", [40, 5120, 40, 8, 128, 17408, 151_936], false),
        shape("Qwen3-32B", [64, 5120, 64, 8, 128, 25600, 151_936], false),
    ],
    ..Family::new("qwen3", "Qwen3ForCausalLM")
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
