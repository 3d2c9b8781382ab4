//! Between Python's objects and JSON.

use rustpython_vm::builtins::{PyDict, PyDictRef, PyFloat, PyInt, PyList, PyStr, PyStrRef, PyTuple};
use rustpython_vm::{AsObject, PyObject, PyObjectRef, PyResult, VirtualMachine};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// How deep arguments may be nested.
const DEPTH: usize = 32;

#[derive(Serialize)]
struct Request {
    tool: String,
    arguments: Map<String, Value>,
}

/// The host's answer to a call.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Value(Value),
    Raise { kind: String, message: String },
}

/// A call as the host reads it.
pub(crate) fn request(tool: &PyStrRef, arguments: &PyDictRef, vm: &VirtualMachine) -> PyResult<Vec<u8>> {
    let mut bound = Map::new();
    for (key, value) in arguments {
        let name = text(key.as_object(), vm)?;
        let plain = to_json(&value, DEPTH, vm).map_err(|error| {
            let reason = match error {
                Unfit::Type(class) => format!("must be plain data (str, int, float, bool, None, list or dict), not {class}"),
                Unfit::Depth => format!("is nested deeper than {DEPTH} levels"),
                Unfit::Number => "holds a number that is too large or not finite".to_owned(),
            };
            vm.new_type_error(format!("{}() argument '{name}' {reason}", tool.to_string_lossy()))
        })?;
        bound.insert(name, plain);
    }
    let request = Request { tool: tool.to_string_lossy().into_owned(), arguments: bound };
    serde_json::to_vec(&request).map_err(|error| vm.new_runtime_error(error.to_string()))
}

/// `(None, value)` or `(kind, message)`.
pub(crate) fn answer(bytes: &[u8], vm: &VirtualMachine) -> PyResult<PyObjectRef> {
    let answer = serde_json::from_slice(bytes).map_err(|error| vm.new_runtime_error(error.to_string()))?;
    let pair = match answer {
        Answer::Value(value) => vec![vm.ctx.none(), to_python(value, vm)?],
        Answer::Raise { kind, message } => vec![vm.ctx.new_str(kind).into(), vm.ctx.new_str(message).into()],
    };
    Ok(vm.ctx.new_tuple(pair).into())
}

/// Why an object cannot leave the interpreter.
enum Unfit {
    Type(String),
    Depth,
    Number,
}

fn text(object: &PyObject, vm: &VirtualMachine) -> PyResult<String> {
    Ok(object.str(vm)?.to_string_lossy().into_owned())
}

fn to_json(object: &PyObject, depth: usize, vm: &VirtualMachine) -> Result<Value, Unfit> {
    let Some(below) = depth.checked_sub(1) else { return Err(Unfit::Depth) };
    if vm.is_none(object) {
        return Ok(Value::Null);
    }
    if object.class().is(vm.ctx.types.bool_type) {
        return Ok(Value::Bool(object.is(&vm.ctx.true_value)));
    }
    if let Some(string) = object.downcast_ref::<PyStr>() {
        return Ok(Value::String(string.to_string_lossy().into_owned()));
    }
    if let Some(int) = object.downcast_ref::<PyInt>() {
        let number = i64::try_from(int.as_bigint()).map_err(|_| Unfit::Number)?;
        return Ok(Value::Number(number.into()));
    }
    if let Some(float) = object.downcast_ref::<PyFloat>() {
        return Number::from_f64(float.to_f64()).map(Value::Number).ok_or(Unfit::Number);
    }
    if let Some(list) = object.downcast_ref::<PyList>() {
        let items: Vec<PyObjectRef> = list.borrow_vec().to_vec();
        return items.iter().map(|item| to_json(item, below, vm)).collect();
    }
    if let Some(tuple) = object.downcast_ref::<PyTuple>() {
        return tuple.as_slice().iter().map(|item| to_json(item, below, vm)).collect();
    }
    if object.downcast_ref::<PyDict>().is_some() {
        let dict: PyDictRef = object.to_owned().downcast().map_err(|_| Unfit::Type("dict".to_owned()))?;
        let mut map = Map::new();
        for (key, value) in &dict {
            let Some(name) = key.downcast_ref::<PyStr>() else {
                return Err(Unfit::Type(format!("a dict with a key of type {}", key.class().name())));
            };
            map.insert(name.to_string_lossy().into_owned(), to_json(&value, below, vm)?);
        }
        return Ok(Value::Object(map));
    }
    Err(Unfit::Type(object.class().name().to_string()))
}

/// The host's values as Python's.
pub(crate) fn to_python(value: Value, vm: &VirtualMachine) -> PyResult<PyObjectRef> {
    Ok(match value {
        Value::Null => vm.ctx.none(),
        Value::Bool(bool) => vm.ctx.new_bool(bool).into(),
        Value::Number(number) => match number.as_i64() {
            Some(int) => vm.ctx.new_int(int).into(),
            None => vm.ctx.new_float(number.as_f64().unwrap_or(f64::NAN)).into(),
        },
        Value::String(string) => vm.ctx.new_str(string).into(),
        Value::Array(items) => {
            let items: PyResult<Vec<PyObjectRef>> = items.into_iter().map(|item| to_python(item, vm)).collect();
            vm.ctx.new_list(items?).into()
        }
        Value::Object(map) => {
            let dict = vm.ctx.new_dict();
            for (key, value) in map {
                dict.set_item(key.as_str(), to_python(value, vm)?, vm)?;
            }
            dict.into()
        }
    })
}
