//! `forage-guest-snapshot GUEST.wasm FOLDER TOOLCHAIN`: runs the interpreter's start-up once and writes the module with its
//! memory as it then is, compressed, into the folder, with what it was made from.

mod digest;

use std::path::Path;

use wasmtime::error::Context;
use wasmtime::{Caller, Config, Engine, Extern, ExternType, Instance, Linker, Memory, Module, Result, Store, Val, bail};
use wasmtime_wizer::{InstanceState, SnapshotVal, Wizer};

/// The time that start-up sees, in nanoseconds: that of the sessions.
const CLOCK: u64 = 1_735_689_600_000_000_000;

/// WASI's `EBADF`.
const BAD_DESCRIPTOR: i32 = 8;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, guest, folder, toolchain] = arguments.as_slice() else {
        bail!("usage: forage-guest-snapshot GUEST.wasm FOLDER TOOLCHAIN");
    };
    let wasm = std::fs::read(guest).with_context(|| format!("cannot read {guest}"))?;

    let wizer = Wizer::new();
    let (context, instrumented) = wizer.instrument(&wasm)?;
    let mut config = Config::new();
    // Importing nests deeply. Both are set because one must not exceed the other, though nothing here is asynchronous.
    config.async_stack_size(5 << 20).max_wasm_stack(4 << 20);
    let engine = Engine::new(&config)?;
    let module = Module::new(&engine, &instrumented)?;
    let mut store = Store::new(&engine, ());
    let linker = surroundings(&engine, &module)?;
    let instance = linker.instantiate(&mut store, &module)?;
    instance.get_typed_func::<(), ()>(&mut store, wizer.get_init_func())?.call(&mut store, ())?;
    let snapshot = pollster::block_on(wizer.snapshot(&context, &mut State { store, instance }))?;
    let compressed = compress(&snapshot)?;
    let folder = Path::new(folder);
    let out = folder.join("python.wasm.zst");
    std::fs::write(&out, &compressed).with_context(|| format!("cannot write {}", out.display()))?;
    digest::write(folder, toolchain, &compressed)
}

/// As small as zstd makes it: the file is kept in the repository and in every binary.
fn compress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 22)?;
    encoder.window_log(27)?;
    encoder.long_distance_matching(true)?;
    encoder.set_pledged_src_size(Some(bytes.len() as u64))?;
    std::io::Write::write_all(&mut encoder, bytes)?;
    encoder.finish()
}

/// What start-up asks of WASI: nothing that differs from one machine or moment to another.
fn surroundings(engine: &Engine, module: &Module) -> Result<Linker<()>> {
    let mut linker = Linker::new(engine);
    // Whatever is not replaced below says that there is no such file.
    linker.allow_shadowing(true);
    for import in module.imports() {
        if let ExternType::Func(shape) = import.ty() {
            linker.func_new(import.module(), import.name(), shape, |_, _, results| {
                results.iter_mut().for_each(|result| *result = Val::I32(BAD_DESCRIPTOR));
                Ok(())
            })?;
        }
    }
    let wasi = "wasi_snapshot_preview1";
    linker.func_wrap(wasi, "random_get", |mut caller: Caller<'_, ()>, at: u32, length: u32| -> Result<i32> {
        memory(&mut caller)?.data_mut(&mut caller)[at as usize..][..length as usize].fill(0);
        Ok(0)
    })?;
    linker.func_wrap(wasi, "clock_time_get", |mut caller: Caller<'_, ()>, _: i32, _: i64, at: u32| -> Result<i32> {
        memory(&mut caller)?.write(&mut caller, at as usize, &CLOCK.to_le_bytes())?;
        Ok(0)
    })?;
    for name in ["environ_sizes_get", "args_sizes_get"] {
        linker.func_wrap(wasi, name, |mut caller: Caller<'_, ()>, count: u32, size: u32| -> Result<i32> {
            let memory = memory(&mut caller)?;
            memory.write(&mut caller, count as usize, &[0; 4])?;
            memory.write(&mut caller, size as usize, &[0; 4])?;
            Ok(0)
        })?;
    }
    for name in ["environ_get", "args_get"] {
        linker.func_wrap(wasi, name, |_: u32, _: u32| 0_i32)?;
    }
    // Only a start-up that fails writes anything.
    linker.func_wrap(
        wasi,
        "fd_write",
        |mut caller: Caller<'_, ()>, _: i32, vectors: u32, count: u32, written: u32| -> Result<i32> {
            let memory = memory(&mut caller)?;
            let data = memory.data(&caller);
            let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes")) as usize;
            let mut total = 0;
            for vector in 0..count as usize {
                let at = vectors as usize + 8 * vector;
                let piece = &data[word(at)..][..word(at + 4)];
                eprint!("{}", String::from_utf8_lossy(piece));
                total += piece.len();
            }
            memory.write(&mut caller, written as usize, &(total as u32).to_le_bytes())?;
            Ok(0)
        },
    )?;
    Ok(linker)
}

fn memory(caller: &mut Caller<'_, ()>) -> Result<Memory> {
    caller.get_export("memory").and_then(Extern::into_memory).context("the guest exports its memory")
}

struct State {
    store: Store<()>,
    instance: Instance,
}

impl InstanceState for State {
    async fn global_get(&mut self, name: &str, _: wasmtime_wizer::ValType) -> SnapshotVal {
        let global = self.instance.get_global(&mut self.store, name).expect("instrumented globals are exported");
        match global.get(&mut self.store) {
            Val::I32(value) => SnapshotVal::I32(value),
            Val::I64(value) => SnapshotVal::I64(value),
            Val::F32(bits) => SnapshotVal::F32(bits),
            Val::F64(bits) => SnapshotVal::F64(bits),
            other => panic!("a global of an unexpected type: {other:?}"),
        }
    }

    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        let memory = self.instance.get_memory(&mut self.store, name).expect("instrumented memories are exported");
        contents(memory.data(&self.store));
    }
}
