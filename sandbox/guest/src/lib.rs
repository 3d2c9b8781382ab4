//! The interpreter inside the sandbox. Its host instantiates it once per session from a snapshot taken after
//! [`initialize`], writes into [`buffer`] and calls [`start`] once and [`run`] for each turn. Both answer with JSON at
//! [`reply_pointer`].

mod annotations;
mod bridge;
mod turn;
mod value;

use std::cell::RefCell;

use rustpython_vm::compiler::Mode;
use rustpython_vm::{Interpreter, Settings, VirtualMachine};

use turn::Python;

/// Memory that sessions begin with beside what start-up took, in bytes: a session that needs no more has a memory of the size of every
/// other's, so that its host can use the instance for another.
const ROOM: usize = 2 << 20;

thread_local! {
    static PYTHON: RefCell<Option<(Interpreter, Python)>> = const { RefCell::new(None) };
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static REPLY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" {
    /// The constructors of C's library. That they are called by hand keeps the linker from calling them at every entry.
    fn __wasm_call_ctors();
}

/// Starts the interpreter and imports what most programs need. Runs once, when the snapshot is made.
#[unsafe(export_name = "wizer-initialize")]
pub extern "C" fn initialize() {
    // SAFETY: called once, before anything else.
    unsafe { __wasm_call_ctors() }
    let mut settings = Settings::default();
    settings.isolated = true;
    settings.import_site = false;
    settings.install_signal_handlers = false;
    settings.write_bytecode = false;
    settings.hash_seed = Some(0);
    let builder = Interpreter::builder(settings);
    let modules = rustpython_stdlib::stdlib_module_defs(&builder.ctx);
    let bridge = bridge::module_def(&builder.ctx);
    let library = include!(concat!(env!("OUT_DIR"), "/frozen.rs"));
    let interpreter =
        builder.add_native_modules(&modules).add_native_module(bridge).add_frozen_modules(library).build();
    let python = interpreter.enter(Python::new);
    PYTHON.set(Some((interpreter, python)));
    // The allocator gives nothing back to the host.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(ROOM)));
}

/// Makes room for `length` bytes of input and says where.
#[unsafe(no_mangle)]
pub extern "C" fn buffer(length: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.resize(length, 0);
        input.as_mut_ptr()
    })
}

/// Begins a session: the input is a [`turn::Start`].
#[unsafe(no_mangle)]
pub extern "C" fn start() {
    let input = INPUT.take();
    with_python(|python, vm| python.start(&input, vm));
}

/// Runs the code in the input; the reply is a [`turn::Reply`]. With `echo` the code is one statement and an expression's
/// value is printed, as at Python's prompt.
#[unsafe(no_mangle)]
pub extern "C" fn run(echo: u32) {
    let code = INPUT.take();
    let mode = if echo == 0 { Mode::Exec } else { Mode::Single };
    let reply = with_python(|python, vm| python.run(&code, mode, vm));
    REPLY.set(serde_json::to_vec(&reply).unwrap_or_default());
}

/// Where the reply begins.
#[unsafe(no_mangle)]
pub extern "C" fn reply_pointer() -> *const u8 {
    REPLY.with_borrow(|reply| reply.as_ptr())
}

/// How long it is.
#[unsafe(no_mangle)]
pub extern "C" fn reply_length() -> usize {
    REPLY.with_borrow(Vec::len)
}

fn with_python<T>(act: impl FnOnce(&Python, &VirtualMachine) -> T) -> T {
    PYTHON.with_borrow(|python| {
        let (interpreter, python) = python.as_ref().expect("the snapshot is taken after initialize");
        interpreter.enter(|vm| act(python, vm))
    })
}
