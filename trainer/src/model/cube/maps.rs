//! Linear maps of a layer as its kernels run them: those with the same input are one, and so are their low-rank changes.

use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;

use super::super::linear::{LOW_RANK, Linear, LowRank};
use super::super::{Kernels, ParameterGrads};
use super::launch::stored;
use super::product::{product, product_in_f32};

/// The low-rank changes of maps that share an input, as one: `s (x A) B` with the matrices A side by side, and every B in rows and
/// columns of its own. Both are there with the scale and without, so that a pass forwards and one back have each what makes its
/// gradients those of A and B without another launch.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    /// `[inputs, ranks]`.
    a: Tensor<2>,
    scaled_a: Tensor<2>,
    /// `[ranks, outputs]`.
    b: Tensor<2>,
    scaled_b: Tensor<2>,
}

impl Changes {
    /// Those of `parts`, whose scale is an adapter's, one for all; `None` where no part is adapted.
    pub(super) fn of(parts: &[&Linear]) -> Option<Self> {
        let changes = parts.iter().filter_map(|part| part.low_rank.as_ref());
        let changes: Vec<&LowRank> = changes.collect();
        let first = changes.first()?;
        let (a, b) = if parts.len() == 1 {
            (first.a.val(), first.b.val())
        } else {
            let a = Tensor::cat(changes.iter().map(|change| change.a.val()).collect(), 1);
            let ranks = a.dims()[1];
            (a, blocks(parts, &first.b.val(), ranks))
        };
        Some(Self {
            scaled_a: a.clone() * first.scale,
            scaled_b: b.clone() * first.scale,
            a,
            b,
        })
    }
}

/// The matrices B of `parts` in rows and columns of their own, zeros elsewhere, `[ranks, outputs]`, of the kind of `like`.
fn blocks(parts: &[&Linear], like: &Tensor<2>, ranks: usize) -> Tensor<2> {
    let outputs: usize = parts.iter().map(|part| part.shape()[1]).sum();
    let mut all = Tensor::<2>::zeros([ranks, outputs], (&like.device(), like.dtype()));
    let (mut row, mut column) = (0, 0);
    for part in parts {
        let [_, width] = part.shape();
        if let Some(change) = &part.low_rank {
            let b = change.b.val();
            let [rank, _] = b.dims();
            all = all.slice_assign([row..row + rank, column..column + width], b);
            row += rank;
        }
        column += width;
    }
    all
}

/// Gradients by the changes of `parts`, one for each matrix, from those by [`Changes`]: `a`, `[inputs, ranks]`, and `b`, `[ranks,
/// outputs]`, both flat. `parts` have their names in the layer.
pub(super) fn separate_changes(
    parts: &[(&str, &Linear)],
    a: Tensor<1>,
    b: Tensor<1>,
) -> Vec<(String, Tensor<1>)> {
    let outputs: usize = parts.iter().map(|(_, part)| part.shape()[1]).sum();
    let ranks = b.dims()[0] / outputs;
    let inputs = a.dims()[0] / ranks;
    let (a, b) = (a.reshape([inputs, ranks]), b.reshape([ranks, outputs]));
    let (mut rank, mut output) = (0, 0);
    let mut taken = Vec::new();
    for (name, part) in parts {
        let [_, width] = part.shape();
        if let Some(change) = &part.low_rank {
            let [own, _] = change.b.val().dims();
            let by_a = a.clone().narrow(1, rank, own);
            let by_b = b.clone().narrow(0, rank, own).narrow(1, output, width);
            for (matrix, gradient) in [("a", by_a), ("b", by_b)] {
                let gradient = gradient.flatten(0, 1);
                taken.push((format!("{name}.{LOW_RANK}.{matrix}"), gradient));
            }
            rank += own;
        }
        output += width;
    }
    taken
}

/// A tensor, `[n, width]`, and another of its shape that the launch which reads it adds to it, where there is one.
pub(super) struct Sum {
    first: Tensor<2>,
    more: Option<Tensor<2>>,
}

impl From<Tensor<2>> for Sum {
    fn from(first: Tensor<2>) -> Self {
        Self { first, more: None }
    }
}

impl Sum {
    /// The sum, by a launch of its own.
    pub(super) fn total(self) -> Tensor<2> {
        match self.more {
            Some(more) => self.first + more,
            None => self.first,
        }
    }

    /// The two summands as arguments of a launch, and whether there is a second one. Without it the first is passed twice, and the kernel
    /// reads it once.
    pub(super) fn stored(self) -> (CubeTensor, CubeTensor, bool) {
        let (first, adds) = (stored(self.first), self.more.is_some());
        let more = self.more.map_or_else(|| first.clone(), stored);
        (first, more, adds)
    }
}

/// A map, or several with the same input as one.
pub(super) struct Map<'a> {
    /// Its name in the layer.
    pub(super) name: &'static str,
    /// The map whose matrix it has.
    pub(super) base: &'a Linear,
    pub(super) changes: Option<&'a Changes>,
}

impl Map<'_> {
    /// The product with `x`, `[n, inputs]`, to which that of the changes is to be added, and [`Self::narrow`].
    pub(super) fn forward(&self, x: Tensor<2>) -> (Sum, Option<Tensor<2>>) {
        let first = self.base.product(Kernels::Cube, x.clone());
        let narrow = self.narrow(x);
        let changed = self.changes.zip(narrow.clone());
        let more = changed.map(|(changes, narrow)| product(narrow, changes.b.clone()));
        (Sum { first, more }, narrow)
    }

    /// `s x A`, `[n, ranks]`, where there are changes.
    pub(super) fn narrow(&self, x: Tensor<2>) -> Option<Tensor<2>> {
        let changes = self.changes?;
        Some(product(x, changes.scaled_a.clone()))
    }

    /// The gradient by the input from `grad`, that by the product, and where there are changes the one by `x A`.
    pub(super) fn backward(&self, grad: Tensor<2>) -> (Sum, Option<Tensor<2>>) {
        let matrix = self.base.matrix_in(grad.dtype());
        let first = product(grad.clone(), matrix.transpose());
        let Some(changes) = self.changes else {
            return (first.into(), None);
        };
        let by_narrow = product(grad, changes.scaled_b.clone().transpose());
        let more = Some(product(by_narrow.clone(), changes.a.clone().transpose()));
        (Sum { first, more }, Some(by_narrow))
    }

    /// Adds the gradients by what learns, from the input `x`, the gradient by the product, [`Self::narrow`] and the gradient by `x A`.
    /// `path` is the layer's.
    pub(super) fn learn(
        &self,
        parameters: &mut ParameterGrads,
        path: &str,
        [x, grad]: [Tensor<2>; 2],
        narrow: [Option<Tensor<2>>; 2],
    ) {
        let path = format!("{path}.{}", self.name);
        if parameters.base_learns() {
            let by_matrix = product_in_f32(x.transpose(), grad);
            parameters.add(format!("{path}.weight"), by_matrix);
        } else if let [Some(narrow), Some(by_narrow)] = narrow {
            let by_a = product_in_f32(x.transpose(), by_narrow);
            let by_b = product_in_f32(narrow.transpose(), grad);
            parameters.add(format!("{path}.{LOW_RANK}.a"), by_a);
            parameters.add(format!("{path}.{LOW_RANK}.b"), by_b);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;
    use crate::lora::{self, LoraConfig, Targets};

    const INPUTS: usize = 5;

    fn wave(count: usize, phase: f32) -> Vec<f32> {
        let numbers = 0..count;
        numbers
            .map(|place| (place as f32 * 0.7 + phase).sin())
            .collect()
    }

    fn matrix(rows: usize, width: usize, phase: f32) -> Tensor<2> {
        let data = TensorData::new(wave(rows * width, phase), [rows, width]);
        Tensor::from_data(data, &Device::flex())
    }

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    /// Maps with the same input, of which the second is not adapted.
    fn maps() -> [Linear; 3] {
        let config = LoraConfig {
            rank: 2,
            alpha: 3.0,
            rank_stabilised: false,
            dropout: 0.0,
            targets: Targets::AllLinear,
            base: String::new(),
        };
        let device = Device::flex();
        [(4, true), (2, false), (3, true)].map(|(outputs, adapted)| {
            let mut map = Linear::new(INPUTS, outputs, false, &device);
            let phase = outputs as f32;
            map.set_matrix(matrix(INPUTS, outputs, phase));
            if adapted {
                let (a, b) = (
                    wave(INPUTS * 2, phase + 0.1),
                    wave(2 * outputs, phase + 0.2),
                );
                lora::set(&mut map, &config, (a, b), &device);
            }
            map
        })
    }

    #[test]
    fn joined_changes_and_their_gradients_are_those_of_each_map() {
        let maps = maps();
        let [one, two, three] = &maps;
        let joined = Changes::of(&[one, two, three]).unwrap();
        assert!(Changes::of(&[two]).is_none());
        let x = matrix(7, INPUTS, 0.5);
        let of = |map: &Linear| {
            let [_, outputs] = map.shape();
            map.low_rank.as_ref().map_or_else(
                || Tensor::zeros([7, outputs], &Device::flex()),
                |change| x.clone().matmul(change.a.val()).matmul(change.b.val()) * change.scale,
            )
        };
        let expected = numbers(Tensor::cat(maps.iter().map(of).collect(), 1));
        for (a, b) in [(&joined.scaled_a, &joined.b), (&joined.a, &joined.scaled_b)] {
            let found = numbers(x.clone().matmul(a.clone()).matmul(b.clone()));
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            }
        }

        let [a, b] = [&joined.a, &joined.b].map(|matrix| matrix.clone().flatten::<1>(0, 1));
        let taken = separate_changes(&[("one", one), ("two", two), ("three", three)], a, b);
        let names: Vec<&str> = taken.iter().map(|(name, _)| name.as_str()).collect();
        let all =
            ["one", "three"].map(|name| ["a", "b"].map(|part| format!("{name}.low_rank.{part}")));
        assert_eq!(names, all.concat());
        let [first, last] = [one, three].map(|map| map.low_rank.as_ref().unwrap());
        let expected = [&first.a, &first.b, &last.a, &last.b];
        for ((name, found), expected) in taken.into_iter().zip(expected) {
            assert_eq!(numbers(found), numbers(expected.val()), "{name}");
        }
    }

    #[test]
    fn maps_that_share_a_matrix_keep_their_own() {
        let [mut one, mut two, mut three] = maps();
        let before = [&one, &two, &three].map(|map| numbers(map.matrix()));
        let joined = Linear::share([&mut one, &mut two, &mut three]);
        let after = [&one, &two, &three].map(|map| numbers(map.matrix()));
        assert_eq!(before, after);
        assert_eq!(joined.shape(), [INPUTS, 9]);
        let parts = [&one, &two, &three].map(Linear::matrix);
        let side_by_side = Tensor::cat(Vec::from(parts), 1);
        assert_eq!(numbers(joined.matrix()), numbers(side_by_side));
    }
}
