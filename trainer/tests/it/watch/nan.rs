//! Tensors that are not finite are named with their counts.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor};
use forage_trainer::grads::NamedGrads;
use forage_trainer::watch::{NonFinite, first_non_finite, first_non_finite_parameter};

use crate::common::tiny;

#[test]
fn the_first_gradient_by_name() {
    let vector = |values: &[f32]| Tensor::<1>::from_floats(values, &Device::flex());
    let healthy = vector(&[0.0, -1.0, f32::MAX, f32::MIN_POSITIVE]);
    let mut gradients =
        NamedGrads(BTreeMap::from([("model.a".to_owned(), healthy), ("model.c".to_owned(), vector(&[f32::NAN]))]));
    assert_eq!(first_non_finite(&gradients).unwrap().name, "model.c");
    let broken = vector(&[f32::NAN, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::NEG_INFINITY]);
    gradients.0.insert("model.b".to_owned(), broken);
    let found = first_non_finite(&gradients).unwrap();
    assert_eq!(found, NonFinite { name: "model.b".into(), nan: 2, infinite: 3, of: 6 });
    assert_eq!(found.to_string(), "`model.b` is not finite: 2 of 6 numbers are NaN, 3 infinite");
    gradients.0.retain(|name, _| name == "model.a");
    assert_eq!(first_non_finite(&gradients), None);
}

/// Divides the parameters whose path ends so by zero.
struct Break {
    ends: &'static str,
    path: Vec<String>,
    /// Paths of what was broken.
    broken: Vec<String>,
}

impl ModuleMapper for Break {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join(".");
        if !path.ends_with(self.ends) {
            return param;
        }
        self.broken.push(path);
        let (id, value, mapper) = param.consume();
        Param::from_mapped_value(id, value / 0.0, mapper)
    }
}

#[test]
fn the_first_parameter_of_a_decoder_in_the_models_order() {
    let decoder = tiny("tiny_qwen2", &Device::flex()).decoder;
    assert_eq!(first_non_finite_parameter(&decoder), None);
    let mut mapper = Break { ends: "1.mlp.up_proj.weight", path: Vec::new(), broken: Vec::new() };
    let decoder = decoder.map(&mut mapper);
    let found = first_non_finite_parameter(&decoder).unwrap();
    assert_eq!(mapper.broken, std::slice::from_ref(&found.name));
    assert_eq!(found.nan + found.infinite, found.of);
    // A tensor before it is found first.
    mapper.ends = "0.mlp.down_proj.weight";
    let decoder = decoder.map(&mut mapper);
    assert_eq!(Some(first_non_finite_parameter(&decoder).unwrap().name), mapper.broken.last().cloned());
}
