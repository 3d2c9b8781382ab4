//! Tensors of a folder into a decoder, by their Hugging Face names.

use std::collections::BTreeSet;
use std::path::Path;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{AllocationProperty, Bytes, DType, Device, Shape, Tensor, TensorData, bf16};
use safetensors::Dtype;

use super::files::{Stored, WeightFiles};
use super::{WeightsError, layout, name_list};
use crate::file_error::FileError;
use crate::model::{Decoder, ModelConfig};

/// The form in which the matrices of a model are kept in memory; norms and biases are always f32.
///
/// Matrices that stay in the file are memory-mapped: they take no memory of their own, load in no time and are shared
/// between processes. Such a matrix is stored `[out, in]` as in the file and seen as `[in, out]` through its strides;
/// the embedding is `[vocab, hidden]` in both. Kernels that read it in place go through the backend's primitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// f32, `[in, out]` in order: what training needs.
    #[default]
    Full,
    /// bf16: stays in the file where the file holds it, else rounded into memory.
    Half,
    /// What the file holds, f32 or bf16, in the file; f16 becomes f32.
    Stored,
    /// Matrices of the layers as 8-bit integers, 32 of which share a scale; embedding and head as [`Self::Half`].
    Int8,
}

impl Decoder {
    /// Reads the weights of a folder into a decoder of the given shape, as f32.
    ///
    /// # Errors
    /// As `load_decoder_as`.
    pub fn load(
        folder: &Path,
        config: &ModelConfig,
        device: &Device,
    ) -> Result<Self, WeightsError> {
        load_decoder_as(folder, config, Precision::Full, device)
    }
}

/// Reads the weights of a folder into a decoder of the given shape, tensor by tensor: beside the weights themselves no
/// more memory is taken than one matrix needs.
///
/// A tied checkpoint may carry `lm_head.weight` as a copy of the embedding; a head that differs from it is refused,
/// because the config and the weights then describe different models.
///
/// # Errors
/// [`WeightsError`] that names what is missing, unexpected, misshapen or of a type that is not read.
pub(crate) fn load_decoder_as(
    folder: &Path,
    config: &ModelConfig,
    precision: Precision,
    device: &Device,
) -> Result<Decoder, WeightsError> {
    let files = WeightFiles::open(folder)?;
    let stored = files.tensors.values();
    let held: usize = stored.map(|one| one.shape.iter().product::<usize>()).sum();
    // Whatever else does not fit is told tensor by tensor; this much of it could not even be allocated.
    if config.parameters() / 16 > held {
        return Err(WeightsError::Tensors {
            path: folder.to_owned(),
            message: format!(
                "does not fit config.json: it asks for {} weights, and the files hold {held}; download the checkpoint again or \
                 fix config.json",
                config.parameters()
            ),
        });
    }
    let mut fill = Fill {
        files: &files,
        precision,
        path: Vec::new(),
        faults: Faults::default(),
    };
    let mut decoder = Decoder::new(config, device);
    if precision == Precision::Int8 {
        fill.precision = Precision::Stored;
        let fault = decoder.quantise_layers(|name, linear| {
            fill.path = name.split('.').map(str::to_owned).collect();
            linear.map(&mut fill)
        });
        fault.map_err(|error| WeightsError::Tensors {
            path: folder.to_owned(),
            message: error.to_string(),
        })?;
        (fill.precision, fill.path) = (Precision::Half, Vec::new());
    }
    let decoder = decoder.map(&mut fill);
    let mut faults = fill.faults;
    faults.unexpected = files
        .tensors
        .keys()
        .filter(|name| !faults.known.contains(*name))
        .cloned()
        .collect();
    if config.tie_word_embeddings && faults.unexpected.remove(HEAD) {
        check_tied(&files)?;
    }
    faults.report(folder)?;
    Ok(decoder)
}

/// Reads the weights of a run's checkpoint, which must be of the shape that the run began with.
///
/// # Errors
/// As [`load_decoder_as`]; when the shape is another one.
pub(crate) fn load_decoder_like(
    folder: &Path,
    shape: &ModelConfig,
    device: &Device,
) -> Result<Decoder, WeightsError> {
    let path = folder.join("config.json");
    let config = ModelConfig::from_file(&path)?;
    if let Some(key) = config.differing_size(shape) {
        let message = format!(
            "has another {key} than the policy that the run begins with; let policy.checkpoint name the model that was trained here"
        );
        return Err(FileError { path, message }.into());
    }
    Decoder::load(folder, &config, device)
}

const HEAD: &str = "lm_head.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";

fn check_tied(files: &WeightFiles) -> Result<(), WeightsError> {
    let same = |head: &Stored, embedding: &Stored| {
        head.dtype == embedding.dtype && head.bytes == embedding.bytes
    };
    match (files.tensors.get(HEAD), files.tensors.get(EMBEDDING)) {
        (Some(head), Some(embedding)) if !same(head, embedding) => Err(WeightsError::Tensors {
            path: files.folder.clone(),
            message: format!(
                "{HEAD} differs from {EMBEDDING} although config.json says tie_word_embeddings; set it to false to use \
                 the head"
            ),
        }),
        _ => Ok(()),
    }
}

/// The Hugging Face name of a parameter of the decoder: Burn calls the weights of a normalisation gamma.
pub(super) fn hf_name(path: &[String]) -> String {
    let name = path.join(".");
    name.strip_suffix(".gamma")
        .map_or_else(|| name.clone(), |module| format!("{module}.weight"))
}

/// Whether a parameter is the matrix of a projection, stored `[out, in]` in files and `[in, out]` in the decoder.
pub(super) fn is_projection(path: &[String], dimensions: usize) -> bool {
    dimensions == 2 && !path.iter().any(|part| part == "embed_tokens")
}

#[derive(Default)]
struct Faults {
    known: BTreeSet<String>,
    missing: BTreeSet<String>,
    unexpected: BTreeSet<String>,
    misshapen: BTreeSet<String>,
    types: BTreeSet<String>,
}

impl Faults {
    fn report(&self, folder: &Path) -> Result<(), WeightsError> {
        let path = folder.to_owned();
        if !self.types.is_empty() {
            let message = format!(
                "is quantised or of a type that is not read: {}; use the f32, f16 or bf16 release of the model",
                name_list(&self.types)
            );
            return Err(WeightsError::Tensors { path, message });
        }
        let all = [
            ("missing", &self.missing),
            ("unexpected", &self.unexpected),
            ("misshapen", &self.misshapen),
        ];
        if all.iter().all(|(_, names)| names.is_empty()) {
            return Ok(());
        }
        let lists: Vec<String> = all
            .iter()
            .map(|(kind, names)| format!("{kind} {}", name_list(names)))
            .collect();
        let message = format!(
            "does not fit config.json: {}; download the checkpoint again or fix config.json",
            lists.join("; ")
        );
        Err(WeightsError::Tensors { path, message })
    }
}

struct Fill<'a> {
    files: &'a WeightFiles,
    precision: Precision,
    path: Vec<String>,
    faults: Faults,
}

impl Fill<'_> {
    /// The tensor of a parameter of this shape, on a plain device.
    fn tensor<const D: usize>(&mut self, shape: &Shape, device: &Device) -> Option<Tensor<D>> {
        let name = hf_name(&self.path);
        self.faults.known.insert(name.clone());
        let Some(stored) = self.files.tensors.get(&name) else {
            self.faults.missing.insert(name);
            return None;
        };
        let projection = is_projection(&self.path, D);
        let mut expected = shape.to_vec();
        if projection {
            expected.reverse();
        }
        if stored.shape != expected {
            self.faults.misshapen.insert(format!(
                "{name} ({:?} instead of {expected:?})",
                stored.shape
            ));
            return None;
        }
        let tensor = if D == 1 || self.precision == Precision::Full {
            full(stored, shape, projection, device)
        } else {
            kept(stored, projection, self.precision, device)
        };
        if tensor.is_none() {
            self.faults
                .types
                .insert(format!("{name} ({:?})", stored.dtype));
        }
        tensor
    }
}

/// A tensor as f32 in the order of the decoder.
fn full<const D: usize>(
    stored: &Stored,
    shape: &Shape,
    projection: bool,
    device: &Device,
) -> Option<Tensor<D>> {
    let values = layout::floats(stored, projection)?;
    Some(Tensor::from_data(
        TensorData::new(values, shape.clone()),
        (device, DType::F32),
    ))
}

/// A matrix in the order of the file: the file's own bytes where they can be used as they are.
fn kept<const D: usize>(
    stored: &Stored,
    projection: bool,
    precision: Precision,
    device: &Device,
) -> Option<Tensor<D>> {
    let aligned = |size: usize| (stored.bytes.as_ptr() as usize).is_multiple_of(size);
    let shape = Shape::from(stored.shape.clone());
    let mapped = |dtype| {
        let bytes = Bytes::from_shared(stored.bytes.clone(), AllocationProperty::File);
        TensorData::from_bytes(bytes, shape.clone(), dtype)
    };
    let data = match (stored.dtype, precision) {
        (Dtype::BF16, _) if aligned(2) => mapped(DType::BF16),
        (Dtype::F32, Precision::Stored) if aligned(4) => mapped(DType::F32),
        (Dtype::F32 | Dtype::F16, Precision::Stored) => TensorData::new(
            layout::converted::<f32>(stored.dtype, &stored.bytes)?,
            shape,
        ),
        _ => TensorData::new(
            layout::converted::<bf16>(stored.dtype, &stored.bytes)?,
            shape,
        ),
    };
    let dtype = data.dtype();
    let tensor = Tensor::<D>::from_data(data, (device, dtype));
    Some(if projection {
        tensor.swap_dims(0, 1)
    } else {
        tensor
    })
}

impl ModuleMapper for Fill<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        // Asking a parameter for its value would draw random numbers first.
        let (shape, device) = (param.lazy_shape(), param.lazy_device());
        let Some(tensor) = self.tensor(&shape, &device.clone().without_autodiff()) else {
            return param;
        };
        let tensor = if device.is_autodiff() {
            tensor.autodiff()
        } else {
            tensor
        };
        let id = param.id;
        param.transform_for_load(tensor, id)
    }
}
