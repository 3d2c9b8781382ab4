//! Low-rank changes of a decoder's maps: attached, moved, merged.

use std::collections::BTreeSet;
use std::path::PathBuf;

use burn::module::{Param, ParamId};
use burn::tensor::{DType, Device, Tensor, TensorData};
use forage_contracts::seed::Seed;
use rand::RngExt;

use super::{LoraConfig, Targets};
use crate::file_error::FileError;
use crate::model::{Decoder, Kernels, Linear, LowRank, PROJECTIONS};

/// Attaches a fresh adapter, as PEFT initialises it: `A` uniform in `±1 / sqrt(inputs)`, `B` zero, so that the model is
/// unchanged at first. The same for the same seed.
///
/// # Errors
/// [`FileError`] when nothing is adapted or a target names nothing.
pub(crate) fn attach(
    decoder: &mut Decoder,
    config: &LoraConfig,
    seed: Seed,
) -> Result<(), FileError> {
    let fail = |message: String| FileError {
        path: PathBuf::from("target_modules"),
        message,
    };
    if let Targets::Pattern(pattern) = &config.targets {
        return Err(fail(format!(
            "`{pattern}` is a regular expression; name the modules or use `all-linear`"
        )));
    }
    let device = decoder.device().without_autodiff();
    let there = PROJECTIONS.map(|(_, name)| name);
    let mut adapted = BTreeSet::new();
    if matches!(&config.targets, Targets::Names(names) if names.is_empty()) {
        return Err(fail(format!(
            "names no module; there are {}",
            there.join(", ")
        )));
    }
    for (name, linear) in decoder.linears() {
        if config.adapts(&name) != Some(true) {
            continue;
        }
        let [inputs, outputs] = linear.shape();
        let mut rng = seed.child(&name, &[]).rng();
        let bound = 1.0 / (inputs as f64).sqrt();
        let a = (0..inputs * config.rank)
            .map(|_| (bound * (2.0 * rng.random::<f64>() - 1.0)) as f32)
            .collect();
        let b = vec![0.0; config.rank * outputs];
        set(linear, config, (a, b), &device);
        adapted.insert(name);
    }
    if let Targets::Names(names) = &config.targets {
        let names_it =
            |name: &String, target: &str| name == target || name.ends_with(&format!(".{target}"));
        let used = |target: &&String| adapted.iter().any(|name| names_it(name, target));
        if let Some(unused) = names.iter().find(|target| !used(target)) {
            return Err(fail(format!(
                "`{unused}` names no linear map of the model; there are {}",
                there.join(", ")
            )));
        }
    }
    Ok(())
}

/// Moves every low-rank change on: numbers of at most `amount`, drawn by the map's name, are added to its `B`.
pub(crate) fn shift(decoder: &mut Decoder, amount: f64) {
    for (name, linear) in decoder.linears() {
        let Some(low_rank) = &mut linear.low_rank else {
            continue;
        };
        let b = low_rank.b.val();
        let shape = b.dims();
        let mut rng = Seed::root(0).child(&name, &[]).rng();
        let drawn: Vec<f32> = (0..shape[0] * shape[1])
            .map(|_| (amount * (2.0 * rng.random::<f64>() - 1.0)) as f32)
            .collect();
        let drawn = TensorData::new(drawn, shape);
        let drawn = Tensor::from_data(drawn, (&b.device(), DType::F32));
        low_rank.b = Param::initialized(ParamId::new(), b + drawn);
    }
}

/// Gives a map its low-rank change: `a` is `[inputs, rank]`, `b` `[rank, outputs]`.
pub(crate) fn set(
    linear: &mut Linear,
    config: &LoraConfig,
    (a, b): (Vec<f32>, Vec<f32>),
    device: &Device,
) {
    let [inputs, outputs] = linear.shape();
    let param = |values, shape: [usize; 2]| {
        let tensor = Tensor::from_data(TensorData::new(values, shape), (device, DType::F32));
        Param::initialized(ParamId::new(), tensor)
    };
    linear.low_rank = Some(LowRank {
        a: param(a, [inputs, config.rank]),
        b: param(b, [config.rank, outputs]),
        scale: config.scale(),
        mask: None,
    });
}

/// Adds every low-rank change to its weight, which keeps its type and order in memory, and removes it; a weight of 8 bits
/// becomes f32.
pub(crate) fn merge(decoder: &mut Decoder) {
    decoder.forget_joined();
    for (_, linear) in decoder.linears() {
        let Some(LowRank { a, b, scale, .. }) = linear.low_rank.take() else {
            continue;
        };
        let (weight, a, b) = (linear.matrix(), a.val(), b.val());
        let kernels = Kernels::of(&weight.device());
        let dtype = weight.dtype();
        let merged = if dtype == DType::F32 {
            weight + kernels.product(a, b) * scale
        } else {
            // As loaded: `[outputs, inputs]` in memory.
            let change = kernels.product(b.swap_dims(0, 1), a.swap_dims(0, 1)) * scale;
            (weight.swap_dims(0, 1).cast(DType::F32) + change)
                .cast(dtype)
                .swap_dims(0, 1)
        };
        linear.set_matrix(merged);
    }
}
