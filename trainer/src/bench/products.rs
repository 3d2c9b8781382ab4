//! Products of matrices by each kernel that could compute them: what `forage bench products` prints.

use std::time::Instant;

use burn::tensor::{DType, Device, Tensor, TensorData};
use forage_contracts::seed::Seed;
use rand::RngExt;
use serde::Serialize;
use serde_json::{Value, json};

use crate::model::{all_product_kernels, product_by, product_kernels};

/// A product of `[rows, inner]` and `[inner, columns]`.
#[derive(Clone, Debug)]
pub struct Product {
    /// Rows, columns and the inner dimension.
    pub shape: [usize; 3],
    /// True for a matrix that is stored by columns: the left one, the right one.
    pub by_columns: [bool; 2],
    /// True for bf16, false for f32: the type of both matrices, the type of the result.
    pub in_bf16: [bool; 2],
}

/// Time and error of one kernel on a product.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    /// The name in `CubeK`.
    kernel: String,
    /// True for the kernel that training and generation use.
    chosen: bool,
    /// Why the kernel does not compute this product.
    refused: Option<String>,
    /// Seconds of the first launch, in which the kernel is compiled unless it is kept.
    first_s: f64,
    /// Microseconds of a launch among many.
    micros: f64,
    /// The largest difference to f64 in two corners of the result, relative to the largest number there.
    error: f64,
}

/// Rows and columns of a corner that is compared.
const CORNER: usize = 8;
/// Bytes of matrices that a round goes through: more than a card's cache holds.
const BYTES: usize = 400 << 20;
/// Timed rounds, after one that is not.
const ROUNDS: usize = 3;
/// Seconds of a round.
const ROUND: f64 = 0.02;

/// Numbers between -1 and 1, of which rows in memory repeat after a while: drawing takes longer than multiplying.
fn drawn([rows, columns]: [usize; 2], of: DType, device: &Device, seed: u64) -> Tensor<2> {
    const ROWS: usize = 1021;
    let mut rng = Seed::root(seed).rng();
    let kept = rows.min(ROWS);
    let numbers = (0..kept * columns).map(|_| 2.0 * rng.random::<f32>() - 1.0);
    let data = TensorData::new(numbers.collect::<Vec<f32>>(), [kept, columns]);
    let block = Tensor::<2>::from_data(data, (device, DType::F32)).cast(of);
    Tensor::cat(vec![block; rows.div_ceil(kept)], 0).narrow(0, 0, rows)
}

fn numbers(x: Tensor<2>) -> Vec<f64> {
    x.cast(DType::F32).into_data().iter::<f64>().collect()
}

/// The largest difference of `out` to `a b` in f64 where the corner begins, and the largest number there.
fn off(
    [a, b]: &[Tensor<2>; 2],
    out: &Tensor<2>,
    [row, column]: [usize; 2],
    [rows, columns]: [usize; 2],
) -> (f64, f64) {
    let inner = a.dims()[1];
    let left = numbers(a.clone().narrow(0, row, rows));
    let right = numbers(b.clone().narrow(1, column, columns));
    let found = numbers(out.clone().narrow(0, row, rows).narrow(1, column, columns));
    let (mut most, mut largest) = (0_f64, 0_f64);
    for (place, found) in found.into_iter().enumerate() {
        let (row, column) = (place / columns, place % columns);
        let exact: f64 = (0..inner)
            .map(|at| left[row * inner + at] * right[at * columns + column])
            .sum();
        let difference = (found - exact).abs();
        // A NaN counts as the largest error: `max` would ignore it.
        most = most.max(if difference.is_nan() {
            f64::INFINITY
        } else {
            difference
        });
        largest = largest.max(exact.abs());
    }
    (most, largest)
}

impl Product {
    /// The types of both matrices and of the result.
    fn types(&self) -> [DType; 2] {
        self.in_bf16
            .map(|half| if half { DType::BF16 } else { DType::F32 })
    }

    fn matrices(&self, device: &Device, seed: u64) -> [Tensor<2>; 2] {
        let [rows, columns, inner] = self.shape;
        let one = |index: usize, [rows, columns]: [usize; 2]| {
            let seed = 2 * seed + index as u64;
            if self.by_columns[index] {
                drawn([columns, rows], self.types()[0], device, seed).transpose()
            } else {
                drawn([rows, columns], self.types()[0], device, seed)
            }
        };
        [one(0, [rows, inner]), one(1, [inner, columns])]
    }

    /// Runs each kernel, or those whose name contains one of `only`, and tells what each did. A kernel that never returns does not
    /// return here.
    pub fn measure(&self, only: &[String], device: &Device, mut tell: impl FnMut(Value)) {
        let [rows, columns, inner] = self.shape;
        let bytes = (rows + columns) * inner * self.types()[0].size();
        let sets = (BYTES / bytes).clamp(1, 8) as u64;
        let sets: Vec<_> = (0..sets).map(|set| self.matrices(device, set)).collect();
        let once = |strategy: &_, [a, b]: &[Tensor<2>; 2]| {
            product_by(strategy, a.clone(), b.clone(), self.types()[1])
        };
        let chosen = product_kernels(rows, self.types()[0])
            .swap_remove(0)
            .to_string();
        for strategy in all_product_kernels() {
            let kernel = strategy.to_string();
            if !only.is_empty() && !only.iter().any(|part| kernel.contains(part)) {
                continue;
            }
            let begin = Instant::now();
            let first = once(&strategy, &sets[0]).map_err(|why| format!("{why:?}"));
            let first = first.and_then(|out| {
                device
                    .sync()
                    .map_err(|why| format!("{why:?}"))
                    .map(|()| out)
            });
            let mut found = Measured {
                chosen: kernel == chosen,
                kernel,
                refused: None,
                first_s: begin.elapsed().as_secs_f64(),
                micros: f64::NAN,
                error: f64::NAN,
            };
            let out = match first {
                Ok(out) => out,
                Err(why) => {
                    found.refused = Some(why);
                    tell(json!(found));
                    continue;
                }
            };
            let corner = [rows.min(CORNER), columns.min(CORNER)];
            let last = [rows - corner[0], columns - corner[1]];
            let corners = [[0, 0], last].map(|place| off(&sets[0], &out, place, corner));
            found.error = corners[0].0.max(corners[1].0) / corners[0].1.max(corners[1].1);
            let mut launches = sets.len();
            let mut best = f64::INFINITY;
            for round in 0..=ROUNDS {
                let begin = Instant::now();
                for launch in 0..launches {
                    drop(once(&strategy, &sets[launch % sets.len()]));
                }
                drop(device.sync());
                let each = begin.elapsed().as_secs_f64() / launches as f64;
                if round > 0 {
                    best = best.min(each);
                }
                launches = ((ROUND / each) as usize).clamp(3, 200);
            }
            found.micros = best * 1e6;
            tell(json!(found));
        }
    }
}
