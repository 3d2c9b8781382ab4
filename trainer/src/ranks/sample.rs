//! A few numbers of every parameter, by which ranks notice that they hold different weights.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

use crate::model::Decoder;

/// Numbers of a parameter that are looked at.
const NUMBERS: usize = 32;

/// Digest of the middle of every parameter: an update changes all of them.
pub(crate) fn sample(decoder: &Decoder) -> u64 {
    let mut look = Look(blake3::Hasher::new());
    decoder.visit(&mut look);
    let mut first = [0; 8];
    first.copy_from_slice(&look.0.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

struct Look(blake3::Hasher);

impl ModuleVisitor for Look {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let count = value.shape().num_elements();
        let taken = count.min(NUMBERS);
        if taken > 0 {
            let flat = value.reshape([count]);
            let middle = flat.narrow(0, (count - taken) / 2, taken);
            for number in middle.into_data().iter::<f32>() {
                self.0.update(&number.to_le_bytes());
            }
        }
    }
}
