//! The interpreter as machine code: compiled once per machine and kept in a folder.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use wasmtime::{Engine, Module};

use crate::engine::Notice;
use crate::error::SandboxError;

/// The interpreter as `guest/build.sh` makes it: WebAssembly, compressed.
const GUEST: &[u8] = include_bytes!("../guest/python.wasm.zst");

/// What is kept is named after the interpreter and the compiler with its settings.
fn key(engine: &Engine) -> String {
    let mut compiler = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut compiler);
    format!("python-{}-{:016x}", &blake3::hash(GUEST).to_hex()[..16], compiler.finish())
}

/// The interpreter's module: from the cache, or compiled and put there.
///
/// A file of the cache carries its own digest in its name; one that is damaged or of another machine is made again. When the
/// result cannot be kept, it is used all the same and `notice` hears of it.
pub(crate) fn load(engine: &Engine, folder: &Path, notice: &mut dyn FnMut(Notice)) -> Result<Module, SandboxError> {
    let key = key(engine);
    if let Some(module) = find(engine, folder, &key) {
        return Ok(module);
    }
    // One process compiles while the others wait; without a folder to lock each does it for itself.
    let lock = fs::create_dir_all(folder).and_then(|()| File::create(folder.join("lock")));
    let _held = match lock {
        Ok(file) => file.lock().is_ok().then_some(file),
        Err(_) => None,
    };
    if let Some(module) = find(engine, folder, &key) {
        return Ok(module);
    }
    notice(Notice::Compiling);
    let wasm = zstd::decode_all(GUEST).map_err(|error| SandboxError::Interpreter(error.to_string()))?;
    let module = Module::new(engine, wasm).map_err(|error| SandboxError::Interpreter(format!("{error:#}")))?;
    if let Err(source) = keep(&module, folder, &key) {
        notice(Notice::NotKept { folder: folder.to_owned(), reason: source.to_string() });
    }
    Ok(module)
}

/// Loads what was compiled before; removes what is no longer what it was.
fn find(engine: &Engine, folder: &Path, key: &str) -> Option<Module> {
    let entries = fs::read_dir(folder).ok()?;
    let of_key =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(key));
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(of_key) {
        if let Some(module) = open(engine, &path) {
            return Some(module);
        }
        let _ = fs::remove_file(&path);
    }
    None
}

fn open(engine: &Engine, path: &Path) -> Option<Module> {
    let digest = path.file_stem()?.to_str()?.rsplit('-').next()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path).ok()?).ok()?;
    if hasher.finalize().to_hex().as_str() != digest {
        return None;
    }
    // SAFETY: the bytes are what `keep` wrote after compiling: their digest is that of their name. Loading machine code that
    // someone else has put there under a matching name is no more than that person could do to this program anyway.
    #[expect(unsafe_code, reason = "machine code of our own, checked by its digest")]
    unsafe { Module::deserialize_file(engine, path) }.ok()
}

/// Writes the compiled module beside its place and renames it.
fn keep(module: &Module, folder: &Path, key: &str) -> std::io::Result<()> {
    let bytes = module.serialize().map_err(|error| std::io::Error::other(format!("{error:#}")))?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&bytes)?;
    file.as_file().sync_all()?;
    let name = format!("{key}-{}.cwasm", blake3::hash(&bytes).to_hex());
    file.persist(folder.join(name)).map_err(|error| error.error)?;
    Ok(())
}
