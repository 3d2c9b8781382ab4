//! Low-rank adapters: attached, read and written in PEFT's format, merged.
//!
//! An adapted decoder computes `x W + s (x A) B`; the product `A B` is made only by merging. Its base is frozen: gradients
//! and moments exist for `A` and `B` alone (see [`crate::grads::track`]).

mod config;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use burn::module::{Param, ParamId};
use burn::tensor::{DType, Device, Tensor, TensorData};
use forage_env::seed::Seed;
use rand::RngExt;

pub use config::{ALL_PROJECTIONS, LoraConfig, Targets};

use crate::model::{Decoder, Linear, LowRank};
use crate::weights::{
    FileType, Stored, WeightsError, Written, floats, name_list, open_file, save_file,
};

/// An adapter cannot be read or does not fit its base.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct LoraError {
    /// File concerned.
    pub path: PathBuf,
    /// What is wrong and what to do.
    pub message: String,
}

/// Names of PEFT's files.
pub(crate) const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// What PEFT puts before the names of a causal language model.
const PREFIX: &str = "base_model.model.";

/// Attaches a fresh adapter, as PEFT initialises it: `A` uniform in `±1 / sqrt(inputs)`, `B` zero, so that the model is
/// unchanged at first. The same for the same seed.
///
/// # Errors
/// [`LoraError`] when nothing is adapted or a target names nothing.
pub fn attach(decoder: &mut Decoder, config: &LoraConfig, seed: Seed) -> Result<(), LoraError> {
    let fail = |message: String| LoraError {
        path: PathBuf::from("target_modules"),
        message,
    };
    if let Targets::Pattern(pattern) = &config.targets {
        return Err(fail(format!(
            "`{pattern}` is a regular expression; name the modules or use `all-linear`"
        )));
    }
    let device = decoder.device().without_autodiff();
    let mut adapted = BTreeSet::new();
    if matches!(&config.targets, Targets::Names(names) if names.is_empty()) {
        return Err(fail(format!(
            "names no module; there are {}",
            ALL_PROJECTIONS.join(", ")
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
                ALL_PROJECTIONS.join(", ")
            )));
        }
    }
    Ok(())
}

/// `a` is `[inputs, rank]`, `b` `[rank, outputs]`.
fn set(linear: &mut Linear, config: &LoraConfig, (a, b): (Vec<f32>, Vec<f32>), device: &Device) {
    let [inputs, outputs] = linear.shape();
    let param = |values, shape: [usize; 2]| {
        let tensor = Tensor::from_data(TensorData::new(values, shape), (device, DType::F32));
        Param::initialized(ParamId::new(), tensor)
    };
    linear.low_rank = Some(LowRank {
        a: param(a, [inputs, config.rank]),
        b: param(b, [config.rank, outputs]),
        scale: config.scale(),
    });
}

/// Attaches the adapter of a PEFT folder.
///
/// # Errors
/// [`WeightsError`] that names the file, key or tensor at fault.
pub fn load(decoder: &mut Decoder, folder: &Path) -> Result<LoraConfig, WeightsError> {
    let config = LoraConfig::from_file(&folder.join(CONFIG))?;
    let path = folder.join(WEIGHTS);
    let mut tensors: BTreeMap<String, Stored> = open_file(&path)?.into_iter().collect();
    let device = decoder.device().without_autodiff();
    let (mut missing, mut misshapen) = (BTreeSet::new(), BTreeSet::new());
    for (name, linear) in decoder.linears() {
        let [a_name, b_name] = names(&name);
        let found = (tensors.remove(&a_name), tensors.remove(&b_name));
        let expected = config
            .adapts(&name)
            .unwrap_or(found.0.is_some() || found.1.is_some());
        if !expected {
            // Left among the unexpected ones.
            tensors.extend(
                [(a_name, found.0), (b_name, found.1)]
                    .into_iter()
                    .filter_map(|(n, t)| Some((n, t?))),
            );
            continue;
        }
        let [inputs, outputs] = linear.shape();
        let mut part = |name: String, stored: Option<Stored>, shape: [usize; 2]| {
            let Some(stored) = stored else {
                missing.insert(name);
                return None;
            };
            let values = if stored.shape == shape {
                floats(&stored, true)
            } else {
                None
            };
            if values.is_none() {
                misshapen.insert(format!(
                    "{name} ({:?} {:?} instead of {shape:?})",
                    stored.dtype, stored.shape
                ));
            }
            values
        };
        let a = part(a_name, found.0, [config.rank, inputs]);
        let b = part(b_name, found.1, [outputs, config.rank]);
        if let (Some(a), Some(b)) = (a, b) {
            set(linear, &config, (a, b), &device);
        }
    }
    let unexpected: BTreeSet<String> = tensors.into_keys().collect();
    if missing.is_empty() && misshapen.is_empty() && unexpected.is_empty() && decoder.is_adapted() {
        return Ok(config);
    }
    let message = format!(
        "does not fit {CONFIG} and the base model {}: missing {}; unexpected {}; misshapen {}; use the base it was trained on",
        config.base,
        name_list(&missing),
        name_list(&unexpected),
        name_list(&misshapen)
    );
    Err(LoraError { path, message }.into())
}

/// PEFT's names of a module's two matrices.
fn names(module: &str) -> [String; 2] {
    ["lora_A", "lora_B"].map(|part| format!("{PREFIX}{module}.{part}.weight"))
}

/// Writes the adapter of a decoder as a PEFT folder: `adapter_config.json` and `adapter_model.safetensors`, f32.
///
/// # Errors
/// [`WeightsError`] that names the file.
pub fn save(decoder: &Decoder, config: &LoraConfig, folder: &Path) -> Result<(), WeightsError> {
    std::fs::create_dir_all(folder).map_err(|source| WeightsError::Io {
        path: folder.to_owned(),
        source,
    })?;
    let mut tensors = Vec::new();
    for (name, linear) in decoder.clone().linears() {
        if let Some(LowRank { a, b, .. }) = &linear.low_rank {
            let [a_name, b_name] = names(&name);
            tensors.push((
                a_name,
                Written::new(&a.val().swap_dims(0, 1), FileType::F32),
            ));
            tensors.push((
                b_name,
                Written::new(&b.val().swap_dims(0, 1), FileType::F32),
            ));
        }
    }
    let path = folder.join(CONFIG);
    std::fs::write(&path, format!("{:#}\n", config.to_json()))
        .map_err(|source| WeightsError::Io { path, source })?;
    save_file(&folder.join(WEIGHTS), tensors)
}

/// Adds every low-rank change to its weight, which keeps its type and order in memory, and removes it; a weight of 8 bits
/// becomes f32.
pub fn merge(decoder: &mut Decoder) {
    for (_, linear) in decoder.linears() {
        let Some(LowRank { a, b, scale }) = linear.low_rank.take() else {
            continue;
        };
        let (weight, a, b) = (linear.matrix(), a.val(), b.val());
        let dtype = weight.dtype();
        let merged = if dtype == DType::F32 {
            weight + a.matmul(b) * scale
        } else {
            // As loaded: `[outputs, inputs]` in memory.
            let change = b.swap_dims(0, 1).matmul(a.swap_dims(0, 1)) * scale;
            (weight.swap_dims(0, 1).cast(DType::F32) + change)
                .cast(dtype)
                .swap_dims(0, 1)
        };
        linear.set_matrix(merged);
    }
}
