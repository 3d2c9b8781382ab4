//! The value head of a critic in a file of its own: `weight`, `[1, hidden]`, and `bias`, `[1]`, both f32.

use std::collections::BTreeMap;
use std::path::Path;

use super::WeightsError;
use super::files::{Stored, open_file};
use super::layout::floats;
use super::write::{FileType, Written, save_file};
use crate::model::{Decoder, Linear};

/// Writes a value head.
///
/// # Errors
/// [`WeightsError`] that names the file.
pub(crate) fn save(head: &Linear, path: &Path) -> Result<(), WeightsError> {
    let weight = Written::new(&head.matrix().swap_dims(0, 1), FileType::F32);
    let mut tensors = vec![("weight".to_owned(), weight)];
    if let Some(bias) = &head.bias {
        tensors.push(("bias".to_owned(), Written::new(&bias.val(), FileType::F32)));
    }
    save_file(path, tensors)
}

/// Puts the value head of a file in place of the decoder's own head.
///
/// # Errors
/// [`WeightsError`] when the file is missing, damaged or of another model.
pub(crate) fn load(decoder: Decoder, path: &Path) -> Result<Decoder, WeightsError> {
    let tensors: BTreeMap<String, Stored> = open_file(path)?.into_iter().collect();
    let [hidden] = decoder.norm().gamma.val().dims();
    let numbers = |name: &str, shape: &[usize]| {
        let stored = tensors.get(name).filter(|stored| stored.shape == shape);
        let found = stored.and_then(|stored| floats(stored, false));
        found.ok_or_else(|| WeightsError::Tensors {
            path: path.to_owned(),
            message: format!(
                "has no `{name}` of shape {shape:?}; resume from an earlier checkpoint"
            ),
        })
    };
    let (weight, bias) = (numbers("weight", &[1, hidden])?, numbers("bias", &[1])?);
    Ok(decoder.with_value_head(weight, bias[0]))
}
