//! `OLMo` 2: norms after attention and after the feed-forward part, queries and keys normalised over their whole width.

use super::{Family, NormPlacement, Published, QkNorm};

pub(super) const FAMILY: Family = Family {
    qk_norm: QkNorm::Width,
    norms: NormPlacement::After,
    published: &[
        shape("OLMo-2-0425-1B", [16, 2048, 16, 16, 128, 8192, 100_352]),
        shape("OLMo-2-1124-7B", [32, 4096, 32, 32, 128, 11008, 100_352]),
    ],
    ..Family::new("olmo2", "Olmo2ForCausalLM")
};

const fn shape(name: &'static str, sizes: [usize; 7]) -> Published {
    Published {
        name,
        sizes,
        tied: false,
        context: 4096,
        rope_theta: 5e5,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
    }
}
