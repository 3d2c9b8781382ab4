//! Moments of 8 bits on a device: the codes and scales of [`super::eight_bit`], four codes to a word.

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::eight_bit::{BLOCK, EightBit, Quantised, tables, zeros};
use crate::model::{Codes, MOMENT_BLOCK, adamw_of_8_bits};

const _: () = assert!(BLOCK == MOMENT_BLOCK);

/// Codes of a word.
const WORD: usize = size_of::<i32>();

/// The moments of some numbers of a parameter.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    count: usize,
    pub(super) first: Codes,
    /// The root of the second.
    pub(super) root: Codes,
    /// The values of the codes, as the kernel reads them: 4 KiB.
    tables: Tensor<1>,
}

impl Packed {
    pub(super) fn zeros(count: usize, device: &Device) -> Self {
        let moment = |code: u8| Codes {
            words: Tensor::full(
                [count.div_ceil(WORD)],
                i32::from_le_bytes([code; WORD]),
                (device, DType::I32),
            ),
            scales: Tensor::zeros([count.div_ceil(BLOCK)], (device, DType::F32)),
        };
        Self::of_codes(count, zeros().map(moment), device)
    }

    /// The processor's moments, moved to a device.
    pub(super) fn of(moments: &EightBit, device: &Device) -> Self {
        let moment = |moment: &Quantised| {
            let words: Vec<i32> = moment.codes.chunks(WORD).map(word).collect();
            Codes {
                words: Tensor::from_data(
                    TensorData::new(words, [moment.codes.len().div_ceil(WORD)]),
                    (device, DType::I32),
                ),
                scales: floats(moment.scales.clone(), device),
            }
        };
        let codes = [moment(&moments.first), moment(&moments.root)];
        Self::of_codes(moments.first.codes.len(), codes, device)
    }

    fn of_codes(count: usize, [first, root]: [Codes; 2], device: &Device) -> Self {
        Self {
            count,
            first,
            root,
            tables: floats(tables(), device),
        }
    }

    /// The codes of one of the moments.
    ///
    /// # Panics
    /// When the device is lost.
    pub(super) fn codes(&self, moment: &Codes) -> Vec<u8> {
        let words = moment.words.clone().into_data().convert::<i32>();
        let words: Vec<i32> = words.try_into_vec().expect("converted just before");
        let mut codes: Vec<u8> = words.into_iter().flat_map(i32::to_le_bytes).collect();
        codes.truncate(self.count);
        codes
    }

    /// Changes these numbers of a parameter by what [`adamw_of_8_bits`] takes.
    pub(super) fn step<const D: usize>(
        self,
        factors: [f32; 9],
        value: Tensor<D>,
        gradient: Tensor<1>,
    ) -> (Tensor<D>, Self) {
        let moments = [self.first, self.root];
        let (value, [first, root]) =
            adamw_of_8_bits(value, gradient, moments, &self.tables, factors);
        let changed = Self {
            count: self.count,
            first,
            root,
            tables: self.tables,
        };
        (value, changed)
    }

    /// Numbers of both moments.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        2 * self.count
    }
}

/// Four codes, the first lowest; those behind the last are 0.
fn word(codes: &[u8]) -> i32 {
    let mut bytes = [0; WORD];
    bytes[..codes.len()].copy_from_slice(codes);
    i32::from_le_bytes(bytes)
}

fn floats(numbers: Vec<f32>, device: &Device) -> Tensor<1> {
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [count]), (device, DType::F32))
}
