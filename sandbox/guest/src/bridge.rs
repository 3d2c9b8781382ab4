//! The module `_forage_host`: all that the interpreter can ask of its host.

pub(crate) use _forage_host::module_def;

#[link(wasm_import_module = "host")]
unsafe extern "C" {
    /// Asks for a tool; says how long the answer is.
    fn call(pointer: *const u8, length: usize) -> usize;
    /// Copies the answer of the last call.
    fn take(pointer: *mut u8);
    /// Writes to stream 1 or 2; anything but 0 means that the output limit is reached.
    fn write(stream: u32, pointer: *const u8, length: usize) -> u32;
    /// Moves the clock forward by nanoseconds.
    fn advance(nanoseconds: u64);
    /// Fills a buffer from the session's generator.
    fn random(pointer: *mut u8, length: usize);
}

fn ask(request: &[u8]) -> Vec<u8> {
    // SAFETY: the host reads the request and, in `take`, writes exactly the length it announced.
    unsafe {
        let mut answer = vec![0; call(request.as_ptr(), request.len())];
        take(answer.as_mut_ptr());
        answer
    }
}

#[rustpython_derive::pymodule(name = "_forage_host")]
mod _forage_host {
    use rustpython_vm::builtins::{PyDictRef, PyStrRef};
    use rustpython_vm::{AsObject, PyObjectRef, PyResult, VirtualMachine};

    use crate::value;

    fn emit(stream: u32, text: &PyStrRef, vm: &VirtualMachine) -> PyResult<usize> {
        let cleaned;
        let bytes = match text.to_str() {
            Some(valid) => valid.as_bytes(),
            None => {
                // A lone surrogate cannot be printed; CPython says so in the same words.
                cleaned = vm.call_method(text.as_object(), "encode", ("utf-8",))?;
                let bytes = cleaned.downcast_ref::<rustpython_vm::builtins::PyBytes>();
                bytes.map_or(&[][..], |bytes| bytes.as_bytes())
            }
        };
        // SAFETY: the host reads the bytes during the call.
        let full = unsafe { super::write(stream, bytes.as_ptr(), bytes.len()) };
        if full != 0 {
            let forage = vm.import("_forage", 0)?;
            let class = forage.get_attr("OutputLimit", vm)?;
            let error = class.call((vm.ctx.new_str("the code printed more than the limit"),), vm)?;
            return Err(error.downcast().map_err(|_| vm.new_runtime_error("OutputLimit is no exception"))?);
        }
        Ok(text.char_len())
    }

    #[pyfunction]
    fn write_stdout(text: PyStrRef, vm: &VirtualMachine) -> PyResult<usize> {
        emit(1, &text, vm)
    }

    #[pyfunction]
    fn write_stderr(text: PyStrRef, vm: &VirtualMachine) -> PyResult<usize> {
        emit(2, &text, vm)
    }

    /// Calls a tool: `(None, result)`, or the name of an exception and its message.
    #[pyfunction]
    fn call(name: PyStrRef, arguments: PyDictRef, vm: &VirtualMachine) -> PyResult<PyObjectRef> {
        let request = value::request(&name, &arguments, vm)?;
        let answer = super::ask(&request);
        value::answer(&answer, vm)
    }

    #[pyfunction]
    fn advance(seconds: f64) {
        // SAFETY: no memory is involved. The cast saturates.
        unsafe { super::advance((seconds * 1e9) as u64) }
    }

    #[pyfunction]
    fn random(size: usize, vm: &VirtualMachine) -> PyResult<PyObjectRef> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| vm.no_memory_error())?;
        bytes.resize(size, 0);
        // SAFETY: the host fills the buffer of that length during the call.
        unsafe { super::random(bytes.as_mut_ptr(), size) }
        Ok(vm.ctx.new_bytes(bytes).into())
    }
}
