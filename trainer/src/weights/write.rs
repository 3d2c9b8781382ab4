//! A decoder into safetensors files with Hugging Face names.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor, bf16};
use rayon::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::View;

use super::WeightsError;
use super::disk::{pretty, write};
use super::files::{INDEX, SINGLE};
use super::fill::{hf_name, is_projection};
use crate::model::{Decoder, LOW_RANK, Linear};

/// Type of the numbers in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileType {
    /// 4 bytes per weight; nothing is lost.
    #[default]
    F32,
    /// 2 bytes per weight, rounded to nearest: what published checkpoints use.
    Bf16,
}

impl FileType {
    /// Its name in `config.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// How weights are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SaveOptions {
    /// Type of every tensor.
    pub file_type: FileType,
    /// Most bytes of tensors per file; more than one file get an index. Transformers cuts at 5 GB too.
    pub shard_bytes: usize,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            file_type: FileType::F32,
            shard_bytes: 5_000_000_000,
        }
    }
}

/// Writes `model.safetensors`, or shards and their index, into `folder`. One tensor at a time is copied; an
/// adapter is left out.
///
/// # Errors
/// [`WeightsError::Tensors`] that names the file.
pub(crate) fn save_decoder_as(
    folder: &Path,
    decoder: &Decoder,
    options: SaveOptions,
) -> Result<(), WeightsError> {
    let mut shards: Vec<Vec<(String, Written)>> = vec![Vec::new()];
    let (mut held, mut total) = (0, 0);
    for (name, tensor) in parameters(decoder, options.file_type) {
        let length = tensor.data_len();
        if held > 0 && held + length > options.shard_bytes {
            shards.push(Vec::new());
            held = 0;
        }
        held += length;
        total += length;
        shards
            .last_mut()
            .expect("there is a first shard")
            .push((name, tensor));
    }
    if shards.len() == 1 {
        return save_file(&folder.join(SINGLE), shards.remove(0));
    }
    let count = shards.len();
    let mut map = serde_json::Map::new();
    for (number, shard) in shards.into_iter().enumerate() {
        let file = format!("model-{:05}-of-{count:05}.safetensors", number + 1);
        map.extend(
            shard
                .iter()
                .map(|(name, _)| (name.clone(), file.clone().into())),
        );
        save_file(&folder.join(&file), shard)?;
    }
    let index = serde_json::json!({ "metadata": { "total_size": total }, "weight_map": map });
    write(&folder.join(INDEX), pretty(&index).as_bytes())
}

/// Writes named tensors as one safetensors file.
pub(crate) fn save_file(path: &Path, tensors: Vec<(String, Written)>) -> Result<(), WeightsError> {
    // Versions of transformers before 5 refuse files that do not say which library's layout they have.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let fail = |error: String| WeightsError::Tensors {
        path: path.to_owned(),
        message: format!("cannot be written: {error}; check the free space of the disk"),
    };
    // The crate writes by way of a private temporary file; the rights are to be those of any new file.
    let rights = std::fs::File::create(path).and_then(|file| Ok(file.metadata()?.permissions()));
    safetensors::serialize_to_file(tensors, Some(metadata), path)
        .map_err(|error| fail(error.to_string()))?;
    rights
        .and_then(|rights| std::fs::set_permissions(path, rights))
        .map_err(|error| fail(error.to_string()))
}

/// Every parameter in the order of the decoder, by its name in checkpoints; a matrix of 8 bits is widened when its turn comes.
pub(crate) fn parameters(decoder: &Decoder, file_type: FileType) -> Vec<(String, Written)> {
    let mut copy = decoder.clone();
    let maps = copy.linears().into_iter();
    let of_8_bits = maps.filter(|(_, linear)| linear.is_quantised());
    let mut collect = Collect {
        file_type,
        of_8_bits: of_8_bits
            .map(|(name, linear)| (name, linear.clone()))
            .collect(),
        path: Vec::new(),
        found: Vec::new(),
    };
    decoder.visit(&mut collect);
    collect.found
}

struct Collect {
    file_type: FileType,
    /// Maps whose matrices are not parameters, by their names in checkpoints.
    of_8_bits: BTreeMap<String, Linear>,
    path: Vec<String>,
    found: Vec<(String, Written)>,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
        let name = self.path.join(".");
        if let Some(linear) = self.of_8_bits.remove(&name) {
            let [inputs, outputs] = linear.shape();
            let written = Written {
                shape: vec![outputs, inputs],
                file_type: self.file_type,
                fetch: Box::new(move || linear.matrix().swap_dims(0, 1).into_data()),
            };
            self.found.push((format!("{name}.weight"), written));
        }
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.path.iter().any(|part| part == LOW_RANK) {
            return;
        }
        let tensor = param.val();
        let tensor = if is_projection(&self.path, D) {
            tensor.swap_dims(0, 1)
        } else {
            tensor
        };
        self.found
            .push((hf_name(&self.path), Written::new(&tensor, self.file_type)));
    }
}

/// A tensor on its way into a file: converted when its turn comes.
pub(crate) struct Written {
    shape: Vec<usize>,
    file_type: FileType,
    fetch: Box<dyn Fn() -> burn::tensor::TensorData>,
}

impl Written {
    /// A tensor written in the order it has here.
    pub(crate) fn new<const D: usize>(tensor: &Tensor<D>, file_type: FileType) -> Self {
        let shape = tensor.dims().to_vec();
        let tensor = tensor.clone();
        Self {
            shape,
            file_type,
            fetch: Box::new(move || tensor.clone().into_data()),
        }
    }
}

impl View for Written {
    fn dtype(&self) -> Dtype {
        match self.file_type {
            FileType::F32 => Dtype::F32,
            FileType::Bf16 => Dtype::BF16,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let data = (self.fetch)();
        let same = match self.file_type {
            FileType::F32 => DType::F32,
            FileType::Bf16 => DType::BF16,
        };
        if data.dtype() == same && cfg!(target_endian = "little") {
            return Cow::Owned(data.as_bytes().to_vec());
        }
        let data = data.convert::<f32>();
        let values = data.as_slice::<f32>().expect("just converted to f32");
        Cow::Owned(match self.file_type {
            FileType::F32 => values
                .par_iter()
                .flat_map_iter(|value| value.to_le_bytes())
                .collect(),
            FileType::Bf16 => values
                .par_iter()
                .flat_map_iter(|&value| bf16::from_f32(value).to_le_bytes())
                .collect(),
        })
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.file_type.bytes()
    }
}

/// Writes the weights as one f32 safetensors file with Hugging Face names. A tied head is not written twice; an
/// adapter is left out.
///
/// # Errors
/// [`WeightsError::Tensors`] that names the file.
#[cfg(test)]
pub(crate) fn save_decoder(path: &Path, decoder: &Decoder) -> Result<(), WeightsError> {
    save_file(path, parameters(decoder, FileType::F32))
}
