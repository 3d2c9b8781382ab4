//! Names the tensor in which a number stopped being finite.

use burn::tensor::Tensor;

use crate::grads::NamedGrads;

/// A tensor with numbers that are not finite. As an error it is the cause behind a refused update.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not finite: {nan} of {of} numbers are NaN, {infinite} infinite")]
pub struct NonFinite {
    /// Path of the parameter.
    pub name: String,
    /// Numbers that are NaN.
    pub nan: usize,
    /// Numbers that are plus or minus infinity.
    pub infinite: usize,
    /// Numbers in the tensor.
    pub of: usize,
}

/// The first gradient, in the order of names, that holds a NaN or an infinity. Copies gradients off the device one by one:
/// for the step that failed, not for each step.
pub(crate) fn first_non_finite(gradients: &NamedGrads) -> Option<NonFinite> {
    gradients
        .0
        .iter()
        .find_map(|(name, gradient)| count(name, gradient))
}

fn count<const D: usize>(name: &str, tensor: &Tensor<D>) -> Option<NonFinite> {
    let data = tensor.to_data();
    let (mut nan, mut infinite) = (0, 0);
    for number in data.iter::<f32>() {
        nan += usize::from(number.is_nan());
        infinite += usize::from(number.is_infinite());
    }
    (nan + infinite > 0).then(|| NonFinite {
        name: name.to_owned(),
        nan,
        infinite,
        of: data.num_elements(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use burn::tensor::Device;

    use super::*;

    #[test]
    fn the_first_gradient_by_name() {
        let vector = |values: &[f32]| Tensor::<1>::from_floats(values, &Device::flex());
        let healthy = vector(&[0.0, -1.0, f32::MAX, f32::MIN_POSITIVE]);
        let mut gradients = NamedGrads(BTreeMap::from([
            ("model.a".to_owned(), healthy),
            ("model.c".to_owned(), vector(&[f32::NAN])),
        ]));
        assert_eq!(first_non_finite(&gradients).unwrap().name, "model.c");
        let broken = vector(&[
            f32::NAN,
            1.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::NEG_INFINITY,
        ]);
        gradients.0.insert("model.b".to_owned(), broken);
        let found = first_non_finite(&gradients).unwrap();
        assert_eq!(
            found,
            NonFinite {
                name: "model.b".into(),
                nan: 2,
                infinite: 3,
                of: 6
            }
        );
        assert_eq!(
            found.to_string(),
            "`model.b` is not finite: 2 of 6 numbers are NaN, 3 infinite"
        );
        gradients.0.retain(|name, _| name == "model.a");
        assert_eq!(first_non_finite(&gradients), None);
    }
}
