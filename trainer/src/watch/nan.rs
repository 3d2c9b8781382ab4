//! Names the tensor in which a number stopped being finite.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

use crate::grads::NamedGrads;
use crate::model::Decoder;

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
pub fn first_non_finite(gradients: &NamedGrads) -> Option<NonFinite> {
    gradients.0.iter().find_map(|(name, gradient)| count(name, gradient))
}

/// The first parameter, in the order of the model from embeddings to head, that holds a NaN or an infinity.
pub fn first_non_finite_parameter(decoder: &Decoder) -> Option<NonFinite> {
    let mut search = Search { path: Vec::new(), found: None };
    decoder.visit(&mut search);
    search.found
}

struct Search {
    path: Vec<String>,
    found: Option<NonFinite>,
}

impl ModuleVisitor for Search {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.found.is_none() {
            self.found = count(&self.path.join("."), &param.val());
        }
    }
}

fn count<const D: usize>(name: &str, tensor: &Tensor<D>) -> Option<NonFinite> {
    let data = tensor.to_data();
    let (mut nan, mut infinite) = (0, 0);
    for number in data.iter::<f32>() {
        nan += usize::from(number.is_nan());
        infinite += usize::from(number.is_infinite());
    }
    (nan + infinite > 0).then(|| NonFinite { name: name.to_owned(), nan, infinite, of: data.num_elements() })
}
