//! Reference fixtures written by `tests/fixtures/make_fixtures.py`.

pub(crate) mod problem;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor};
use serde_json::Value;

use crate::model::Decoder;

pub(crate) fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub(crate) fn json(name: &str) -> Value {
    let text = std::fs::read_to_string(fixtures().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Asserts that `load` names the file at `path` and the fault where a folder, an endless device or more than `most` MiB stand in
/// its place. What was there is put back.
pub(crate) fn assert_bounded(path: &Path, most: u64, load: impl Fn() -> String) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let check = |told: &str| {
        let error = load();
        assert!(error.contains(name) && error.contains(told), "{error}");
    };
    let before = std::fs::read(path).ok();
    let _ = std::fs::remove_file(path);
    std::fs::create_dir(path).unwrap();
    check("not a regular file");
    std::fs::remove_dir(path).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/dev/zero", path).unwrap();
        check("not a regular file");
        std::fs::remove_file(path).unwrap();
    }
    let file = std::fs::File::create(path).unwrap();
    file.set_len((most << 20) + 1).unwrap();
    check(&format!("more than {most} MiB"));
    std::fs::remove_file(path).unwrap();
    if let Some(before) = before {
        std::fs::write(path, before).unwrap();
    }
}

pub(crate) fn floats(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_f64().unwrap())
        .collect()
}

/// Values, as f32, and type of every parameter by its path in the decoder.
#[derive(Default)]
struct Values {
    path: Vec<String>,
    found: BTreeMap<String, (Vec<f32>, DType)>,
}

impl ModuleVisitor for Values {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let data = param.val().into_data();
        let dtype = data.dtype();
        self.found.insert(
            self.path.join("."),
            (data.convert::<f32>().try_into_vec().unwrap(), dtype),
        );
    }
}

pub(crate) fn parameters(decoder: &Decoder) -> BTreeMap<String, (Vec<f32>, DType)> {
    let mut values = Values::default();
    decoder.visit(&mut values);
    values.found
}
