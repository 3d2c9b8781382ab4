//! What training changed: the weights, parameter by parameter, and what the layers make of given texts.

use burn::tensor::{Tensor, bf16};
use forage_contracts::seed::Seed;
use rand::RngExt;
use safetensors::tensor::View;
use serde::Serialize;

use crate::lora;
use crate::model::{Batch, Kernels, RopeTables};
use crate::ranks::floats;
use crate::weights::{Checkpoint, FileType, Written, parameters};
use crate::workers::Workers;

/// Most products with a matrix and its transpose in search of its largest singular value.
const ITERATIONS: usize = 500;
/// Relative change of that value below which it is found.
const FOUND: f64 = 1e-9;

/// A parameter of two checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeightChange {
    /// Its name in checkpoints.
    pub parameter: String,
    /// Its numbers.
    pub entries: usize,
    /// Numbers that differ.
    pub changed: usize,
    /// Numbers that still differ when both are rounded to bf16, as published checkpoints are kept: the other changes are too small to
    /// show there.
    pub changed_in_bf16: usize,
    /// Euclidean norm of the first.
    pub norm: f64,
    /// Norm of the difference.
    pub difference: f64,
    /// Stable rank of the difference of two matrices: the square of its Frobenius norm over that of its largest singular value, between 1
    /// and its rank. `None` of vectors, and where nothing changed.
    pub stable_rank: Option<f64>,
}

impl Checkpoint {
    /// The changes from these weights to those of `after`, in the order of the decoder; adapters are added to their bases first. `None`
    /// where the two are of different shapes.
    pub fn changes(&self, after: &Self, workers: &Workers) -> Option<Vec<WeightChange>> {
        let [before, after] = [self, after].map(|checkpoint| {
            let mut decoder = checkpoint.decoder.clone();
            lora::merge(&mut decoder);
            parameters(&decoder, FileType::F32)
        });
        let fit = |(a, b): (&(String, Written), &(String, Written))| {
            a.0 == b.0 && a.1.shape() == b.1.shape()
        };
        let fits = before.len() == after.len() && before.iter().zip(&after).all(fit);
        // Read one after the other: they may be on a device.
        let pairs = before.iter().zip(&after).map(|((name, a), (_, b))| {
            let (shape, numbers) = (a.shape(), [a, b].map(numbers));
            change(name, shape, &numbers, workers)
        });
        fits.then(|| pairs.collect())
    }

    /// Linear CKA (Kornblith et al. 2019) between the hidden states of these weights and of those of `other` after each layer, over all
    /// tokens of `texts`: 1 where they are the same up to a rotation and a factor. NaN where the tokens are all alike, as one is.
    /// All hidden states are in memory together.
    pub fn alignment(&self, other: &Self, texts: &[Vec<u32>]) -> Vec<f64> {
        let mut sides = [self, other].map(|checkpoint| checkpoint.states(texts).into_iter());
        let [ours, theirs] = &mut sides;
        ours.zip(theirs).map(|(x, y)| linear_cka(x, y)).collect()
    }

    /// Hidden states after each layer, of all tokens of `texts`.
    fn states(&self, texts: &[Vec<u32>]) -> Vec<Tensor<2>> {
        let Self {
            config, decoder, ..
        } = self;
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
        let rope = RopeTables::new(config, longest, &decoder.device());
        let of = |text: &Vec<u32>| decoder.states(config, &rope, &Batch::new(&[text.as_slice()]));
        let states: Vec<Vec<Tensor<2>>> = texts.iter().map(of).collect();
        let depth = if states.is_empty() {
            0
        } else {
            decoder.depth()
        };
        let layer = |layer: usize| {
            let parts = states.iter().map(|states| states[layer].clone());
            Tensor::cat(parts.collect(), 0)
        };
        (0..depth).map(layer).collect()
    }
}

fn numbers(tensor: &Written) -> Vec<f32> {
    floats(&tensor.data()).collect()
}

fn change(
    name: &str,
    shape: &[usize],
    [before, after]: &[Vec<f32>; 2],
    workers: &Workers,
) -> WeightChange {
    let count = |differ: fn(f32, f32) -> bool| {
        let pairs = before.iter().zip(after);
        pairs.filter(|(a, b)| differ(**a, **b)).count()
    };
    let difference: Vec<f32> = before.iter().zip(after).map(|(a, b)| b - a).collect();
    let length = |values: &[f32]| {
        let squares = values.iter().map(|&x| f64::from(x).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let norm = length(&difference);
    let stable_rank = match *shape {
        [_, columns] if norm > 0.0 => {
            let largest = largest_singular_value(&difference, columns, workers);
            Some((norm / largest).powi(2))
        }
        _ => None,
    };
    WeightChange {
        parameter: name.to_owned(),
        entries: before.len(),
        changed: count(|a, b| a.to_bits() != b.to_bits()),
        changed_in_bf16: count(|a, b| bf16::from_f32(a).to_bits() != bf16::from_f32(b).to_bits()),
        norm: length(before),
        difference: norm,
        stable_rank,
    }
}

/// The largest singular value of a matrix with so many columns that is not 0, by power iteration from a vector that is always the same.
fn largest_singular_value(matrix: &[f32], columns: usize, workers: &Workers) -> f64 {
    let rows: Vec<&[f32]> = matrix.chunks(columns).collect();
    let parts: Vec<&[&[f32]]> = rows
        .chunks(rows.len().div_ceil(workers.threads().max(1)))
        .collect();
    let mut rng = Seed::root(0).child("power iteration", &[]).rng();
    let mut vector: Vec<f64> = (0..columns).map(|_| rng.random_range(0.5..1.5)).collect();
    let mut largest = 0.0_f64;
    for _ in 0..ITERATIONS {
        // The transpose times the matrix times the vector, of which each part of the rows gives a summand.
        let products = workers.map(parts.len(), |part| {
            let mut sum = vec![0.0; columns];
            for row in parts[part] {
                let wide = || row.iter().map(|&x| f64::from(x));
                let along: f64 = wide().zip(&vector).map(|(a, x)| a * x).sum();
                sum.iter_mut()
                    .zip(wide())
                    .for_each(|(sum, a)| *sum += along * a);
            }
            sum
        });
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        vector.fill(0.0);
        for product in products {
            vector
                .iter_mut()
                .zip(product)
                .for_each(|(sum, x)| *sum += x);
        }
        let stretched = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        let found = (stretched / length).sqrt();
        // Far from 1 it would leave the range of numbers.
        for x in &mut vector {
            *x /= stretched;
        }
        let settled = (found - largest).abs() <= FOUND * found;
        largest = found;
        if settled {
            break;
        }
    }
    largest
}

/// Linear CKA of two sets of states of the same tokens, `[tokens, width]` each, whose widths may differ.
fn linear_cka(x: Tensor<2>, y: Tensor<2>) -> f64 {
    let size = |x: &Tensor<2>| x.clone().square().sum().sqrt();
    // What is centred is brought to the same size first: squares of squares leave the range of f32 soon.
    let centred = |x: Tensor<2>| {
        let x = x.clone() - x.mean_dim(0);
        let scale = size(&x);
        x / scale.unsqueeze()
    };
    let [x, y] = [x, y].map(centred);
    let product = |a: &Tensor<2>, b: &Tensor<2>| {
        let kernels = Kernels::of_type(&a.device(), a.dtype());
        size(&kernels.product(a.clone().transpose(), b.clone()))
    };
    let found = product(&x, &y).square() / (product(&x, &x) * product(&y, &y));
    f64::from(found.into_scalar::<f32>())
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use serde_json::Value;

    use super::*;
    use crate::model::{Decoder, ModelConfig};
    use crate::tests::common::problem::checkpoint;
    use crate::tests::common::{fixtures, floats, json};
    use crate::weights::adapter;

    /// The model of a fixture, with somebody else's tokenizer: it has none.
    fn tiny(name: &str) -> Checkpoint {
        let folder = fixtures().join(name);
        let config = ModelConfig::from_file(&folder.join("config.json")).unwrap();
        let decoder = Decoder::load(&folder, &config, &Device::flex()).unwrap();
        let Checkpoint {
            tokenizer,
            tokenizer_json,
            ..
        } = checkpoint(1);
        Checkpoint::new(config, decoder, tokenizer, tokenizer_json)
    }

    fn close(found: f64, expected: &Value, what: &str) {
        let expected = expected.as_f64().unwrap();
        let gap = (found - expected).abs();
        assert!(
            gap <= 1e-5 * expected.abs().max(1.0),
            "{what}: {found} is not {expected}"
        );
    }

    /// Sums of an adapter in another order may round to another side: of some `flips` numbers.
    fn equals(found: &WeightChange, expected: &Value, flips: u64) {
        let what = &found.parameter;
        let counts = [found.entries, found.changed, found.changed_in_bf16];
        for (count, key) in counts
            .into_iter()
            .zip(["entries", "changed", "changed_in_bf16"])
        {
            let gap = (count as u64).abs_diff(expected[key].as_u64().unwrap());
            assert!(gap <= flips, "{what}: {key} is {count}");
        }
        close(found.norm, &expected["norm"], what);
        close(found.difference, &expected["difference"], what);
        assert_eq!(
            found.stable_rank.is_some(),
            expected["stable_rank"].is_f64(),
            "{what}"
        );
        if let Some(rank) = found.stable_rank {
            close(rank, &expected["stable_rank"], what);
        }
    }

    #[test]
    fn changes_of_matrices_equal_numpy() {
        let workers = Workers::new(2);
        let fixture = json("changes.json");
        let matrices = fixture["matrices"].as_array().unwrap();
        assert!(matrices.len() > 3);
        for matrix in matrices {
            let side = |key: &str| floats(&matrix[key]).into_iter().map(|x| x as f32).collect();
            let shape: Vec<usize> = floats(&matrix["shape"])
                .into_iter()
                .map(|x| x as usize)
                .collect();
            let found = change("matrix", &shape, &[side("a"), side("b")], &workers);
            equals(&found, matrix, 0);
        }
    }

    #[test]
    fn changes_and_alignment_of_an_adapted_model_equal_numpy() {
        let fixture = json("changes.json");
        let base = tiny("tiny_qwen2");
        let mut adapted = base.clone();
        adapter::load(&mut adapted.decoder, &fixtures().join("lora/pattern")).unwrap();
        let workers = Workers::new(2);
        let found = base.changes(&adapted, &workers).unwrap();
        let expected = fixture["adapted"]["changes"].as_object().unwrap();
        assert_eq!(found.len(), expected.len());
        for change in &found {
            equals(change, &expected[&change.parameter], 3);
        }
        let changed = found.iter().filter(|change| change.changed > 0);
        assert_eq!(changed.count(), 2, "the adapter's two");
        let texts: Vec<Vec<u32>> = fixture["adapted"]["texts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| floats(text).into_iter().map(|id| id as u32).collect())
            .collect();
        let found = base.alignment(&adapted, &texts);
        let expected = fixture["adapted"]["cka"].as_array().unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.into_iter().zip(expected) {
            close(found, expected, "CKA");
        }
        assert!(base.alignment(&adapted, &[]).is_empty());
        assert_eq!(base.changes(&tiny("tiny_qwen3"), &workers), None);
    }
}
