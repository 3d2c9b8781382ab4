//! A model family from outside: Mistral 7B since its version 0.3, whose layers are Llama's with attention to all that came before.
//! Earlier versions attend to a window; their `config.json` is refused.

use forage_trainer::{Family, Published};

/// The registry's entry.
pub(crate) const ENTRY: Family = Family {
    published: &[Published {
        name: "Mistral-7B-v0.3",
        sizes: [32, 4096, 32, 8, 128, 14336, 32_768],
        tied: false,
        context: 32_768,
        rope_theta: 1e6,
        rope_scaling: None,
        rms_norm_eps: 1e-5,
    }],
    ..Family::new("mistral", "MistralForCausalLM")
};
