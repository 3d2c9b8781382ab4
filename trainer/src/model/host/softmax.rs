//! Softmax and its derivative where training needs them: rows in place, exponentials in vectors, nothing computed that a mask
//! would take away.

use burn::tensor::Tensor;
use pulp::Arch;
use rayon::prelude::*;

use super::lanes::{exp, largest};
use super::{change, read};

const LANES: usize = 16;
/// Numbers per task: large enough to be worth one.
const TASK: usize = 16 * 1024;

/// Weights of causal attention from `scores`, `[heads, rows, keys]` with rows of several heads one after the other, `queries`
/// each: row i sees the first `first + i mod queries + 1` keys. Scores are multiplied with `scale`, above 0.
pub(in crate::model) fn causal_softmax(
    scores: Tensor<3>,
    queries: usize,
    first: usize,
    scale: f32,
) -> Tensor<3> {
    let [_, _, keys] = scores.dims();
    in_rows(scores, keys, |row, line| {
        let (seen, hidden) = line.split_at_mut(first + row % queries + 1);
        softmax_row(seen, scale);
        hidden.fill(0.0);
    })
}

/// The derivative by the scores: `weights (grad - level) scale`, with `grad` and `weights` `[heads, rows, keys]` and `level`
/// `[heads, rows, 1]`, the sum of `grad weights` over a row.
pub(in crate::model) fn softmax_backward(
    weights: Tensor<3>,
    grad: Tensor<3>,
    level: Tensor<3>,
    scale: f32,
) -> Tensor<3> {
    let [_, _, keys] = grad.dims();
    read(weights, |weights| {
        read(level, |level| {
            in_rows(grad, keys, |row, line| {
                let weights = &weights[row * keys..][..keys];
                for (grad, weight) in line.iter_mut().zip(weights) {
                    *grad = weight * (*grad - level[row]) * scale;
                }
            })
        })
    })
}

/// Log-probability of one token of each row of `logits`, `[rows, vocab]`, and the row's entropy, in nats, at the temperatures
/// 1 / `inverses`, `[rows]`.
pub(crate) fn token_scores(
    logits: Tensor<2>,
    ids: &[i32],
    inverses: &[f32],
) -> (Vec<f32>, Vec<f32>) {
    let [rows, vocab] = logits.dims();
    let mut scores = vec![(0.0, 0.0); rows];
    read(logits, |logits| {
        let task = |(first, scores): (usize, &mut [(f32, f32)])| {
            Arch::new().dispatch(|| {
                for (row, score) in scores.iter_mut().enumerate() {
                    let line = &logits[(first + row) * vocab..][..vocab];
                    let inverse = inverses[first + row];
                    let level = Level::of(line, inverse);
                    *score = (
                        line[ids[first + row] as usize] * inverse - level.log_total,
                        level.entropy(),
                    );
                }
            });
        };
        let per = (TASK / vocab).max(1);
        scores
            .par_chunks_mut(per)
            .enumerate()
            .for_each(|(index, scores)| task((index * per, scores)));
    });
    scores.into_iter().unzip()
}

/// Derivative by the logits z, at temperatures T of 1 / `inverses`, of a loss whose derivatives by log-probabilities and
/// entropies of the rows are g and h: (g (1\[target\] - p) - h p (ln p + H)) / T. `entropies` may be empty: none.
pub(crate) fn logit_grads(
    logits: Tensor<2>,
    ids: &[i32],
    logprobs: &[f32],
    entropies: &[f32],
    inverses: &[f32],
) -> Tensor<2> {
    let [_, vocab] = logits.dims();
    in_rows(logits, vocab, |row, line| {
        let inverse = inverses[row];
        let level = Level::of(line, inverse);
        let g = logprobs[row] * inverse;
        if let Some(h) = entropies.get(row).map(|h| h * inverse) {
            let entropy = level.entropy();
            for x in line.iter_mut() {
                let logprob = *x * inverse - level.log_total;
                *x = -exp(logprob.min(0.0)) * (g + h * (logprob + entropy));
            }
        } else {
            for x in line.iter_mut() {
                *x = -exp((*x * inverse - level.log_total).min(0.0)) * g;
            }
        }
        line[ids[row] as usize] += g;
    })
}

/// What normalises a row of logits.
struct Level {
    log_total: f32,
    /// Sum of probability times logit.
    mean: f32,
}

impl Level {
    #[inline(always)]
    fn of(line: &[f32], inverse: f32) -> Self {
        let shift = largest(line) * inverse;
        let (chunks, rest) = line.as_chunks::<LANES>();
        let (mut totals, mut means) = ([0.0_f32; LANES], [0.0_f32; LANES]);
        let mut add = |lane: usize, x: f32| {
            let x = x * inverse - shift;
            let weight = exp(x);
            totals[lane] += weight;
            means[lane] += weight * x;
        };
        for chunk in chunks {
            for lane in 0..LANES {
                add(lane, chunk[lane]);
            }
        }
        for (lane, &x) in rest.iter().enumerate() {
            add(lane, x);
        }
        let total = totals.iter().sum::<f32>();
        Self {
            log_total: shift + total.ln(),
            mean: shift + means.iter().sum::<f32>() / total,
        }
    }

    fn entropy(&self) -> f32 {
        self.log_total - self.mean
    }
}

#[inline(always)]
fn softmax_row(row: &mut [f32], scale: f32) {
    let shift = largest(row) * scale;
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = exp(chunk[lane] * scale - shift);
            sums[lane] += chunk[lane];
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *x = exp(*x * scale - shift);
        *sum += *x;
    }
    let inverse = 1.0 / sums.iter().sum::<f32>();
    for x in row {
        *x *= inverse;
    }
}

/// Changes every row of `width` numbers, several at a time.
fn in_rows<const D: usize>(
    x: Tensor<D>,
    width: usize,
    row_change: impl Fn(usize, &mut [f32]) + Sync,
) -> Tensor<D> {
    let per = (TASK / width).max(1);
    let task = |(index, lines): (usize, &mut [f32])| {
        Arch::new().dispatch(|| {
            for (row, line) in lines.chunks_exact_mut(width).enumerate() {
                row_change(index * per + row, line);
            }
        });
    };
    change(x, |numbers| {
        if numbers.len() < 2 * TASK {
            numbers.chunks_mut(per * width).enumerate().for_each(task);
        } else {
            numbers
                .par_chunks_mut(per * width)
                .enumerate()
                .for_each(task);
        }
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::activation::log_softmax;
    use burn::tensor::{Device, Distribution, TensorData};

    use super::*;

    fn draw<const D: usize>(shape: [usize; D], spread: f64) -> Tensor<D> {
        Tensor::random(shape, Distribution::Normal(0.0, spread), &Device::flex())
    }

    fn worst<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
        (a - b).abs().max().into_scalar::<f32>()
    }

    #[test]
    fn attention_weights_and_their_derivative_equal_autodiff() {
        let (heads, group, queries, first) = (2, 3, 5, 37);
        let keys = first + queries;
        let rows = group * queries;
        let (scores, grad) = (
            draw([heads, rows, keys], 4.0),
            draw([heads, rows, keys], 1.0),
        );
        let mask: Vec<f32> = (0..heads * rows * keys)
            .map(|place| {
                if place % keys > first + place / keys % queries {
                    -1e9
                } else {
                    0.0
                }
            })
            .collect();
        let mask: Tensor<3> =
            Tensor::from_data(TensorData::new(mask, [heads, rows, keys]), &Device::flex());
        let leaf = scores.clone().autodiff().require_grad();
        let expected = log_softmax(leaf.clone() * 0.25 + mask.autodiff(), 2).exp();
        let gradients = (expected.clone() * grad.clone().autodiff())
            .sum()
            .backward();
        let weights = causal_softmax(scores, queries, first, 0.25);
        assert!(worst(weights.clone(), expected.inner()) < 1e-6);
        let level = (weights.clone() * grad.clone()).sum_dim(2);
        assert!(
            worst(
                softmax_backward(weights, grad, level, 0.25),
                leaf.grad(&gradients).unwrap()
            ) < 1e-6
        );
    }

    #[test]
    fn token_scores_and_their_derivatives_equal_autodiff() {
        for (rows, vocab, step) in [(1, 5, 0.0), (7, 100, 0.1), (40, 2048, 0.02)] {
            let inverses: Vec<f32> = (0..rows).map(|row| 0.8 + step * row as f32).collect();
            let column = TensorData::new(inverses.clone(), [rows, 1]);
            let inverse = Tensor::<2>::from_data(column, &Device::flex()).autodiff();
            let logits = draw([rows, vocab], 5.0);
            let ids: Vec<i32> = (0..rows).map(|row| (row * 31 % vocab) as i32).collect();
            let (g, h) = (draw([rows], 1.0), draw([rows], 1.0));
            let leaf = logits.clone().autodiff().require_grad();
            let distribution = log_softmax(leaf.clone() * inverse, 1);
            let column = Tensor::<2, burn::tensor::Int>::from_data(
                TensorData::new(ids.clone(), [rows, 1]),
                &Device::flex(),
            );
            let logprobs = distribution.clone().gather(1, column).reshape([rows]);
            let entropies = (distribution.clone().exp() * distribution)
                .sum_dim(1)
                .neg()
                .reshape([rows]);
            let (found, levels) = token_scores(logits.clone(), &ids, &inverses);
            let vector = |values: &[f32]| Tensor::<1>::from_floats(values, &Device::flex());
            assert!(worst(vector(&found), logprobs.clone().inner()) < 1e-5);
            assert!(worst(vector(&levels), entropies.clone().inner()) < 1e-5);
            let loss =
                (logprobs * g.clone().autodiff()).sum() + (entropies * h.clone().autodiff()).sum();
            let expected = leaf.grad(&loss.backward()).unwrap();
            let numbers = |x: Tensor<1>| x.into_data().try_into_vec::<f32>().unwrap();
            let (g, h) = (numbers(g), numbers(h));
            assert!(
                worst(logit_grads(logits, &ids, &g, &h, &inverses), expected) < 1e-5,
                "{rows} {vocab}"
            );
        }
    }
}
