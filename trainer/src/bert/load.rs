//! Tensors of a checkpoint by name, as f32, with every complaint collected.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor, TensorData};
use bytes::Bytes;
use safetensors::SafeTensors;

use crate::weights::{WeightsError, converted, map, name_list, parse, safetensors_files};

/// The weight files of a folder, mapped into memory.
pub(super) struct WeightFiles {
    folder: PathBuf,
    files: Vec<(PathBuf, Bytes)>,
}

impl WeightFiles {
    pub(super) fn read(folder: &Path) -> Result<Self, WeightsError> {
        let load = |path: PathBuf| match map(&path) {
            Ok(bytes) => Ok((path, bytes)),
            Err(source) => Err(WeightsError::Io { path, source }),
        };
        let files = safetensors_files(folder)?
            .into_iter()
            .map(load)
            .collect::<Result<_, WeightsError>>()?;
        Ok(Self {
            folder: folder.to_owned(),
            files,
        })
    }

    /// Adds the content to a digest.
    pub(super) fn hash(&self, hasher: &mut blake3::Hasher) {
        for (_, bytes) in &self.files {
            hasher.update(bytes);
        }
    }

    pub(super) fn open(&self) -> Result<Weights<'_>, WeightsError> {
        let files = self.files.iter();
        let parts = files
            .map(|(path, bytes)| parse(path, bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let prefixed = parts.iter().any(|part| {
            part.tensor("bert.embeddings.word_embeddings.weight")
                .is_ok()
        });
        let prefix = if prefixed { "bert." } else { "" };
        Ok(Weights {
            folder: &self.folder,
            parts,
            prefix,
            missing: RefCell::default(),
            wrong: RefCell::default(),
        })
    }
}

/// Tensors by name. A tensor that is missing or misshapen is read as no numbers at all and reported by [`Self::finish`].
pub(super) struct Weights<'a> {
    folder: &'a Path,
    parts: Vec<SafeTensors<'a>>,
    prefix: &'static str,
    missing: RefCell<BTreeSet<String>>,
    wrong: RefCell<BTreeSet<String>>,
}

impl Weights<'_> {
    /// A tensor of the encoder, whose name may carry the prefix `bert.`.
    pub(super) fn encoder(&self, name: &str, shape: &[usize]) -> Vec<f32> {
        self.get(&format!("{}{name}", self.prefix), shape)
    }

    /// A tensor by its whole name.
    pub(super) fn get(&self, name: &str, shape: &[usize]) -> Vec<f32> {
        let Some(view) = self.parts.iter().find_map(|part| part.tensor(name).ok()) else {
            self.missing.borrow_mut().insert(name.to_owned());
            return Vec::new();
        };
        if view.shape() != shape {
            self.wrong
                .borrow_mut()
                .insert(format!("{name} is {:?} instead of {shape:?}", view.shape()));
            return Vec::new();
        }
        converted(view.dtype(), view.data()).unwrap_or_else(|| {
            self.wrong.borrow_mut().insert(format!(
                "{name} is {:?} instead of F32, F16 or BF16",
                view.dtype()
            ));
            Vec::new()
        })
    }

    /// The shape of a tensor, if it is there.
    pub(super) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.parts
            .iter()
            .find_map(|part| part.tensor(name).ok())
            .map(|view| view.shape().to_vec())
    }

    /// Says what was missing or wrong. Tensors nobody asked for (poolers, heads, buffers) are not a fault.
    pub(super) fn finish(self) -> Result<(), WeightsError> {
        let (missing, wrong) = (self.missing.into_inner(), self.wrong.into_inner());
        if missing.is_empty() && wrong.is_empty() {
            return Ok(());
        }
        let message = format!(
            "does not fit config.json: missing {}; wrong {}; download the checkpoint again or fix config.json",
            name_list(&missing),
            name_list(&wrong)
        );
        Err(WeightsError::Tensors {
            path: self.folder.to_owned(),
            message,
        })
    }
}

/// A tensor of numbers that [`Weights`] gave, or of a single one where it gave none: the folder is refused for that, and no size in
/// its `config.json` has taken memory until then.
pub(super) fn tensor<const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D> {
    let data = if values.is_empty() {
        TensorData::new(vec![0.0_f32], [1; D])
    } else {
        TensorData::new(values, shape)
    };
    Tensor::from_data(data, device)
}
