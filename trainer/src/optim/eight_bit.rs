//! Moments of 8 bits: a code for each number, a scale for each block (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
//! Quantization", sections 2 and 3).
//!
//! A block's numbers are divided by the largest of them, and each share is kept as the code of the nearest of 256 values: seven decades,
//! every one with twice as many values as the one below, so that large and small shares are off by like parts of themselves; beside them
//! 0 and 1. Of the second moment its root is kept, which spans half as many decades, and never as 0 where it is not: a step is divided by
//! it, and one that is rounded away would make the step as large as epsilon allows. Both differ from the paper.

use std::ops::Range;
use std::sync::LazyLock;

use rayon::prelude::*;

/// Numbers that share a scale.
pub(super) const BLOCK: usize = 256;
/// Parameters of fewer numbers, norms and biases, have moments in f32.
const LEAST: usize = 4096;
/// Decades of the values.
const DECADES: i32 = 7;
/// Blocks per task.
const TASK: usize = 64;

/// Returns whether a parameter of so many numbers is large enough for moments of 8 bits.
pub(super) fn is_worth_it(count: usize) -> bool {
    count >= LEAST
}

/// Bytes of a moment of so many numbers.
pub(super) fn bytes(count: usize) -> usize {
    count + count.div_ceil(BLOCK) * size_of::<f32>()
}

/// The values of the 256 codes.
struct Code {
    /// `[256]`, ascending.
    values: Vec<f32>,
    /// `[255]`: halfway between neighbours; of positive values 0 in the place of the first, so that nothing above 0 becomes 0.
    middles: Vec<f32>,
}

/// The code of first moments.
static SIGNED: LazyLock<Code> = LazyLock::new(|| Code::new(false));
/// The code of the roots of second moments.
static POSITIVE: LazyLock<Code> = LazyLock::new(|| Code::new(true));

impl Code {
    fn new(is_positive: bool) -> Self {
        let mut values = vec![0.0, 1.0];
        for decade in 0..DECADES {
            let parts: i32 = if is_positive {
                2 << decade
            } else {
                1 << decade
            };
            let unit = 10_f64.powi(decade + 1 - DECADES);
            for part in 0..parts {
                // The middle of a part of the decade.
                let place = 0.1 + 0.9 * (f64::from(part) + 0.5) / f64::from(parts);
                let value = (place * unit) as f32;
                values.push(value);
                if !is_positive {
                    values.push(-value);
                }
            }
        }
        values.sort_by(f32::total_cmp);
        let middles = values
            .windows(2)
            .map(|pair| f32::midpoint(pair[0], pair[1]));
        let mut middles: Vec<f32> = middles.collect();
        if is_positive {
            middles[0] = 0.0;
        }
        Self { values, middles }
    }

    /// The code of the value that is nearest to `share`, at most 1 in size.
    fn nearest(&self, share: f32) -> u8 {
        self.middles.partition_point(|&middle| middle < share) as u8
    }
}

/// Codes of 0: of a first moment, and of the root of a second.
#[cfg(feature = "gpu")]
pub(super) fn zeros() -> [u8; 2] {
    [&*SIGNED, &*POSITIVE].map(|code| code.nearest(0.0))
}

/// What a kernel reads: 256 values of first moments, those of roots, 255 middles of the former and a number, and the same of the latter.
#[cfg(any(test, feature = "gpu"))]
pub(super) fn tables() -> Vec<f32> {
    let codes = [&*SIGNED, &*POSITIVE];
    let mut tables: Vec<f32> = codes.iter().flat_map(|code| code.values.clone()).collect();
    for code in codes {
        tables.extend(&code.middles);
        tables.push(1.0);
    }
    tables
}

/// A moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quantised {
    /// `[n]`
    pub(super) codes: Vec<u8>,
    /// `[n / BLOCK]`, rounded up: the largest number of each block.
    pub(super) scales: Vec<f32>,
}

impl Quantised {
    fn zeros(count: usize, code: &Code) -> Self {
        Self {
            codes: vec![code.nearest(0.0); count],
            scales: vec![0.0; count.div_ceil(BLOCK)],
        }
    }

    fn of(numbers: &[f32], code: &Code) -> Self {
        let mut made = Self::zeros(numbers.len(), code);
        let blocks = made.blocks().zip(numbers.par_chunks(BLOCK));
        blocks.for_each(|((codes, scale), numbers)| *scale = narrow(code, numbers, codes));
        made
    }

    /// Codes and scale of every block.
    fn blocks(&mut self) -> impl IndexedParallelIterator<Item = (&mut [u8], &mut f32)> {
        let scales = self.scales.par_iter_mut();
        self.codes.par_chunks_mut(BLOCK).zip(scales)
    }

    fn widened(&self, code: &Code) -> Vec<f32> {
        let mut numbers = vec![0.0; self.codes.len()];
        let blocks = numbers
            .chunks_mut(BLOCK)
            .zip(self.codes.chunks(BLOCK))
            .zip(&self.scales);
        for ((numbers, codes), &scale) in blocks {
            widen(code, codes, scale, numbers);
        }
        numbers
    }

    /// The codes and scales of the numbers `own`, which are whole blocks.
    fn part(&self, own: &Range<usize>) -> Self {
        Self {
            codes: self.codes[own.clone()].to_vec(),
            scales: self.scales[own.start / BLOCK..own.end.div_ceil(BLOCK)].to_vec(),
        }
    }

    /// Returns whether there is a scale for every block.
    fn is_whole(&self) -> bool {
        self.scales.len() == self.codes.len().div_ceil(BLOCK)
    }
}

/// The moments of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EightBit {
    pub(super) first: Quantised,
    /// The root of the second.
    pub(super) root: Quantised,
}

impl EightBit {
    pub(super) fn zeros(count: usize) -> Self {
        Self {
            first: Quantised::zeros(count, &SIGNED),
            root: Quantised::zeros(count, &POSITIVE),
        }
    }

    /// Quantises moments in f32.
    pub(super) fn of(first: &[f32], second: &[f32]) -> Self {
        let roots: Vec<f32> = second.iter().map(|number| number.sqrt()).collect();
        Self {
            first: Quantised::of(first, &SIGNED),
            root: Quantised::of(&roots, &POSITIVE),
        }
    }

    /// Moments read from a file; `None` where its parts do not fit each other.
    pub(super) fn from_parts(first: Quantised, root: Quantised) -> Option<Self> {
        let fit = first.codes.len() == root.codes.len();
        (fit && first.is_whole() && root.is_whole()).then_some(Self { first, root })
    }

    /// The moments of the numbers `own`, which are whole blocks but for the last one of the parameter.
    pub(super) fn part(&self, own: &Range<usize>) -> Self {
        Self {
            first: self.first.part(own),
            root: self.root.part(own),
        }
    }

    /// The moments in f32, the first and the second.
    pub(super) fn widened(&self) -> [Vec<f32>; 2] {
        let mut second = self.root.widened(&POSITIVE);
        square(&mut second);
        [self.first.widened(&SIGNED), second]
    }

    /// Hands each block to `change` in f32: parameter, gradient, first and second moment.
    pub(super) fn update(
        &mut self,
        value: &mut [f32],
        gradient: &[f32],
        change: impl Fn(&mut [f32], &[f32], &mut [f32], &mut [f32]) + Sync,
    ) {
        let blocks = value.par_chunks_mut(BLOCK).zip(gradient.par_chunks(BLOCK));
        let blocks = blocks.zip(self.first.blocks()).zip(self.root.blocks());
        blocks.with_min_len(TASK).for_each(
            |(((value, gradient), (firsts, first_scale)), (roots, root_scale))| {
                let (mut first, mut second) = ([0.0; BLOCK], [0.0; BLOCK]);
                let (first, second) = (&mut first[..value.len()], &mut second[..value.len()]);
                widen(&SIGNED, firsts, *first_scale, first);
                widen(&POSITIVE, roots, *root_scale, second);
                square(second);
                change(value, gradient, first, second);
                for number in &mut *second {
                    *number = number.sqrt();
                }
                *first_scale = narrow(&SIGNED, first, firsts);
                *root_scale = narrow(&POSITIVE, second, roots);
            },
        );
    }
}

fn square(numbers: &mut [f32]) {
    for number in numbers {
        *number *= *number;
    }
}

/// The numbers of a block.
fn widen(code: &Code, codes: &[u8], scale: f32, numbers: &mut [f32]) {
    for (number, &at) in numbers.iter_mut().zip(codes) {
        *number = code.values[usize::from(at)] * scale;
    }
}

/// The codes of a block; returns its scale.
fn narrow(code: &Code, numbers: &[f32], codes: &mut [u8]) -> f32 {
    let largest = |most: f32, number: &f32| most.max(number.abs());
    let scale = numbers.iter().fold(0.0, largest);
    for (at, number) in codes.iter_mut().zip(numbers) {
        let share = if scale > 0.0 { number / scale } else { 0.0 };
        *at = code.nearest(share);
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::common::{floats, json};

    fn numbers(value: &serde_json::Value) -> Vec<f32> {
        floats(value)
            .into_iter()
            .map(|number| number as f32)
            .collect()
    }

    #[test]
    fn values_are_those_that_pytorch_reads_from_the_bits() {
        let fixture = json("moments.json");
        for (code, name) in [(&*SIGNED, "signed"), (&*POSITIVE, "unsigned")] {
            let expected = numbers(&fixture[name]);
            assert_eq!(code.values.len(), expected.len());
            for (found, expected) in code.values.iter().zip(expected) {
                assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{name}");
            }
        }
    }

    #[test]
    fn three_steps_equal_pytorchs() {
        let fixture = json("moments.json");
        let mut value = numbers(&fixture["parameter"]);
        let mut moments = EightBit::zeros(value.len());
        for (step, gradient) in (1..).zip(fixture["gradients"].as_array().unwrap()) {
            let by = crate::optim::Factors {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                first: 1.0 - 0.9_f64.powi(step),
                second: 1.0 - 0.999_f64.powi(step),
                rate: 1e-2,
                decay: 1.0 - 1e-2 * 0.1,
            }
            .numbers();
            moments.update(
                &mut value,
                &numbers(gradient),
                |value, gradient, first, second| {
                    crate::optim::step_of(&by, value, gradient, first, second);
                },
            );
        }
        let [first, second] = moments.widened();
        for (name, found) in [("after", value), ("first", first), ("second", second)] {
            // What lies halfway between two values may fall to either.
            let apart = found
                .iter()
                .zip(numbers(&fixture[name]))
                .filter(|(found, expected)| {
                    (*found - expected).abs() > 1e-7 + 1e-5 * expected.abs()
                })
                .count();
            assert!(apart <= 2, "{name}: {apart} of {} differ", found.len());
        }
    }

    #[test]
    fn a_search_in_the_tables_finds_the_nearest_code() {
        let tables = tables();
        assert_eq!(tables.len(), 1024);
        // The steps of the kernel.
        let found = |table: usize, share: f32| {
            let mut code = 0_usize;
            for step in 0..8 {
                let next = code + (0x80_usize >> step);
                if tables[table * 256 + next - 1] < share {
                    code = next;
                }
            }
            code
        };
        for (table, code) in [&*SIGNED, &*POSITIVE].into_iter().enumerate() {
            assert_eq!(tables[table * 256..][..256], code.values);
            let around = |&value: &f32| [value.next_down(), value, value.next_up()];
            let shares = code.values.iter().chain(&code.middles).flat_map(around);
            for share in shares.filter(|share| table == 0 || *share >= 0.0) {
                let nearest = usize::from(code.nearest(share));
                assert_eq!(found(table + 2, share), nearest, "{share}");
                assert!(table == 0 || share == 0.0 || nearest > 0, "{share}");
            }
        }
    }

    #[test]
    fn codes_are_the_nearest_and_no_root_is_lost() {
        let count = 3 * BLOCK + 7;
        let spread = |place: usize| 10_f32.powi(-((place % 7) as i32)) * (1.0 + place as f32 / 1e3);
        let first: Vec<f32> = (0..count)
            .map(|place| spread(place) * if place % 2 == 0 { 1.0 } else { -1.0 })
            .collect();
        let second: Vec<f32> = (0..count).map(|place| spread(place).powi(4)).collect();
        let moments = EightBit::of(&first, &second);
        let [first_back, second_back] = moments.widened();
        for (place, (number, back)) in first.iter().zip(&first_back).enumerate() {
            let scale = moments.first.scales[place / BLOCK];
            let off = |value: f32| (number - scale * value).abs();
            let least = SIGNED.values.iter().map(|&value| off(value));
            let least = least.fold(f32::MAX, f32::min);
            assert!(
                (number - back).abs() <= least + 1e-6 * scale,
                "{number} {back}"
            );
        }
        assert!(second_back.iter().all(|&number| number > 0.0));

        let EightBit { first, root } = moments.clone();
        let short = Quantised {
            scales: vec![1.0],
            ..root.clone()
        };
        assert_eq!(EightBit::from_parts(first.clone(), short), None);
        assert_eq!(EightBit::from_parts(first, root), Some(moments));
        assert_eq!(bytes(512), 512 + 2 * 4);
    }
}
