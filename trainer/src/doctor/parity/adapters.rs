//! The adapted decoders of the checks.

use burn::tensor::DType;
use forage_contracts::seed::Seed;

use super::Model;
use crate::lora::{self, LoraConfig, Targets};
use crate::model::{Batch, Decoder, Dropout};
use crate::sequence::ids;

impl Model {
    pub(super) fn adapted(&self) -> Decoder {
        adapt(self.decoder.clone())
    }

    pub(super) fn dropping(&self, decoder: &Decoder) -> Decoder {
        let dropout = Dropout {
            rate: 0.2,
            seed: Seed::root(6),
        };
        let ids = ids(self.sequences.iter());
        let keys = Batch::new(&ids).keys(&ids);
        decoder.dropping(dropout, keys)
    }

    pub(super) fn quantised(&self) -> Decoder {
        let mut decoder = self.decoder.clone();
        decoder
            .quantise_layers(|_, linear| linear)
            .expect("inputs are multiples of a block");
        adapt(decoder)
    }

    pub(super) fn merged(&self) -> Vec<f32> {
        let mut decoder = self.adapted().sharing_base(DType::F32);
        lora::merge(&mut decoder);
        self.logits_of(&decoder)
    }
}

fn adapt(mut decoder: Decoder) -> Decoder {
    let config = LoraConfig {
        rank: 4,
        alpha: 8.0,
        rank_stabilised: false,
        dropout: 0.0,
        targets: Targets::AllLinear,
        base: "base".to_owned(),
    };
    lora::attach(&mut decoder, &config, Seed::root(5)).expect("every projection can be adapted");
    // An adapter that changes something.
    lora::shift(&mut decoder, 0.1);
    decoder
}
