//! Adapters in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::files::{Stored, open_file};
use super::layout::floats;
use super::write::{FileType, Written, save_file};
use super::{WeightsError, name_list};
use crate::file_error::FileError;
use crate::lora::{self, LoraConfig};
use crate::model::{Decoder, LowRank};

/// Names of PEFT's files.
pub(super) const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// What PEFT puts before the names of a causal language model.
const PREFIX: &str = "base_model.model.";

/// Attaches the adapter of a PEFT folder.
///
/// # Errors
/// [`WeightsError`] that names the file, key or tensor at fault.
pub(crate) fn load(decoder: &mut Decoder, folder: &Path) -> Result<LoraConfig, WeightsError> {
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
            lora::set(linear, &config, (a, b), &device);
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
    Err(FileError { path, message }.into())
}

/// Reads an adapter of a run, whose settings are `own`, into the decoder that the run began with.
///
/// # Errors
/// As [`load`]; when the adapter is of another base, or computes otherwise than one of these settings.
pub(crate) fn load_on(
    own: &LoraConfig,
    decoder: &mut Decoder,
    folder: &Path,
) -> Result<(), WeightsError> {
    let found = load(decoder, folder)?;
    let message = if found.base != own.base {
        format!(
            "is of {}, and the run begins with {}; use the version of the program, and the config, that it was started with",
            found.base, own.base
        )
    } else if let Some(key) = found.differing(own) {
        format!(
            "has another {key} than [policy.lora]; give it the {key} that the adapter was trained with"
        )
    } else {
        return Ok(());
    };
    let path = folder.join(CONFIG);
    Err(FileError { path, message }.into())
}

/// PEFT's names of a module's two matrices.
fn names(module: &str) -> [String; 2] {
    ["lora_A", "lora_B"].map(|part| format!("{PREFIX}{module}.{part}.weight"))
}

/// Writes the adapter of a decoder as a PEFT folder: `adapter_config.json` and `adapter_model.safetensors`, f32.
///
/// # Errors
/// [`WeightsError`] that names the file.
pub(crate) fn save(
    decoder: &Decoder,
    config: &LoraConfig,
    folder: &Path,
) -> Result<(), WeightsError> {
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
