//! Attention of training on random numbers: what `forage bench attention` writes for `bench/kernels` to compare with `PyTorch`.

use std::ops::Range;
use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use forage_contracts::seed::Seed;
use rand::RngExt;

use crate::file_error::FileError;
use crate::model::{Batch, Dense, Heads, Kernels};
use crate::weights::{FileType, Written};

/// Mixes sequences that begin with `shared` tokens in common and go on with as many of their own as `own` says, forwards and back, and
/// writes numbers and results to `file` as safetensors in f32: `queries`, `keys`, `values`, `mixed` and the gradient `grad` by it,
/// `by_queries`, `by_keys`, `by_values`, each `[rows, heads, head_dim]`. Returns the rows of each sequence's tokens.
///
/// The shape is heads of queries, heads of keys and values, numbers of a head.
///
/// # Errors
/// Those of writing the file.
pub fn write_attention(
    file: &Path,
    device: &Device,
    [heads, kv_heads, dim]: [usize; 3],
    shared: usize,
    own: &[usize],
) -> Result<Vec<Vec<usize>>, FileError> {
    let sequence = |(index, own): (usize, &usize)| -> Vec<u32> {
        let rest = (0..*own as u32).map(|place| (index as u32 + 1) << 20 | place);
        (0..shared as u32).chain(rest).collect()
    };
    let sequences: Vec<Vec<u32>> = own.iter().enumerate().map(sequence).collect();
    let batch = Batch::new(&sequences.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let rows = batch.ids().len();
    let draw = |seed: u64, heads: usize| {
        let mut rng = Seed::root(seed).rng();
        let numbers = (0..rows * heads * dim).map(|_| 4.0 * rng.random::<f32>() - 2.0);
        let data = TensorData::new(numbers.collect::<Vec<f32>>(), [rows, heads, dim]);
        Tensor::<3>::from_data(data, device)
    };
    let projections = Heads {
        queries: draw(1, heads),
        keys: draw(2, kv_heads),
        values: draw(3, kv_heads),
    };
    let grad = draw(4, heads);
    let dense = Dense::unrotated([heads, kv_heads], &batch, device, Kernels::of(device));
    let mixed = dense.mix(&projections);
    let grads = dense.mix_backward(&projections, &mixed, &grad.clone().flatten::<2>(1, 2));
    let mixed = mixed.values.reshape([rows, heads, dim]);
    let tensors = [
        ("queries", &projections.queries),
        ("keys", &projections.keys),
        ("values", &projections.values),
        ("grad", &grad),
        ("mixed", &mixed),
        ("by_queries", &grads.queries),
        ("by_keys", &grads.keys),
        ("by_values", &grads.values),
    ];
    let written = tensors.map(|(name, tensor)| (name, Written::new(tensor, FileType::F32)));
    safetensors::serialize_to_file(written, None, file).map_err(|error| FileError {
        path: file.to_owned(),
        message: format!("cannot be written: {error}"),
    })?;
    let spans = batch.spans().iter();
    Ok(spans
        .map(|span| span.ranges().flat_map(Range::into_iter).collect())
        .collect())
}
