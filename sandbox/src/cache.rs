//! The interpreter as machine code: compiled once per machine and kept in a folder.

use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use wasmtime::{Engine, Module};

use crate::engine::{Notice, interpreter};
use crate::error::SandboxError;

/// The interpreter as `guest/build.sh` makes it: WebAssembly, compressed.
const GUEST: &[u8] = include_bytes!("../guest/python.wasm.zst");

/// Files are named after the interpreter and the compiler with its settings.
fn key(engine: &Engine) -> String {
    let mut compiler = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut compiler);
    format!(
        "python-{}-{:016x}",
        &blake3::hash(GUEST).to_hex()[..16],
        compiler.finish()
    )
}

/// The interpreter's module: from the cache, or compiled and put there.
///
/// A file of the cache carries its own digest in its name; one that is damaged or of another machine is made again. When the
/// result cannot be kept, or there is no folder, it is used all the same and `notice` hears of it.
pub(crate) fn load(
    engine: &Engine,
    folder: Option<&Path>,
    notice: &mut dyn FnMut(Notice),
) -> Result<Module, SandboxError> {
    let Some(folder) = folder else {
        notice(Notice::Compiling);
        notice(Notice::NotKept {
            folder: "the user's cache folder".into(),
            reason: "there is none; set HOME or XDG_CACHE_HOME".to_owned(),
        });
        return compile(engine);
    };
    let key = key(engine);
    let private = private(folder);
    let kept = || {
        private
            .as_ref()
            .ok()
            .and_then(|()| find(engine, folder, &key))
    };
    if let Some(module) = kept() {
        return Ok(module);
    }
    // One process compiles while the others wait; without a folder to lock each does it for itself.
    let lock = match &private {
        Ok(()) => File::create(folder.join("lock")),
        Err(error) => Err(io::Error::other(error.to_string())),
    };
    let _held = match lock {
        Ok(file) => file.lock().is_ok().then_some(file),
        Err(_) => None,
    };
    if let Some(module) = kept() {
        return Ok(module);
    }
    notice(Notice::Compiling);
    let module = compile(engine)?;
    if let Err(source) = private.and_then(|()| keep(&module, folder, &key)) {
        notice(Notice::NotKept {
            folder: folder.to_owned(),
            reason: source.to_string(),
        });
    }
    Ok(module)
}

fn compile(engine: &Engine) -> Result<Module, SandboxError> {
    let wasm =
        zstd::decode_all(GUEST).map_err(|error| SandboxError::Interpreter(error.to_string()))?;
    Module::new(engine, wasm).map_err(|error| interpreter(&error))
}

/// Loads the code that was compiled before; removes a file that was changed.
fn find(engine: &Engine, folder: &Path, key: &str) -> Option<Module> {
    let entries = fs::read_dir(folder).ok()?;
    let of_key = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(key))
    };
    for path in entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(of_key)
    {
        match open(engine, &path) {
            Ok(Some(module)) => return Some(module),
            Ok(None) => {
                let _ = fs::remove_file(&path);
            }
            // Another time it may be readable: too many files are open, or the disk failed.
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "compiled code cannot be read");
            }
        }
    }
    None
}

/// The module of a file; none of one that was changed, or that others may write to.
fn open(engine: &Engine, path: &Path) -> io::Result<Option<Module>> {
    let name = path.file_stem().and_then(|name| name.to_str());
    let digest = name.and_then(|name| name.rsplit('-').next());
    let file = File::open(path)?;
    if !is_private(&file.metadata()?)? {
        return Ok(None);
    }
    // In pieces that stay in the processor's cache: the 70 MB are mapped afterwards, so that processes share them and read
    // what they run.
    let mut found = blake3::Hasher::new();
    found.update_reader(&file)?;
    if Some(found.finalize().to_hex().as_str()) != digest {
        return Ok(None);
    }
    // SAFETY: this very file was hashed, and it holds what `keep` wrote after compiling: its digest is that of its name. Only this
    // user can write to it, and this program never does: `keep` renames a file of its own to this place, `find` unlinks.
    #[expect(unsafe_code, reason = "machine code of our own, checked by its digest")]
    let module = unsafe { Module::deserialize_open_file(engine, file) };
    Ok(module.ok())
}

/// Makes the folder, for this user alone, or checks that nobody else can put machine code there.
fn private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    if is_private(&fs::metadata(folder)?)? {
        Ok(())
    } else {
        let reason = "it belongs to another user, or others may write to it; remove it or take their permission";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
    }
}

/// Whether this user owns a file or folder and nobody else may write to it.
#[cfg(unix)]
fn is_private(metadata: &Metadata) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    // A file of this process has the owner that its own files have, without a call of the system that is not safe.
    let own = tempfile::tempfile()?.metadata()?.uid();
    Ok(metadata.uid() == own && metadata.mode() & 0o022 == 0)
}

#[cfg(not(unix))]
fn is_private(_: &Metadata) -> io::Result<bool> {
    Ok(true)
}

/// Writes the compiled module beside its place and renames it.
fn keep(module: &Module, folder: &Path, key: &str) -> io::Result<()> {
    let bytes = module
        .serialize()
        .map_err(|error| io::Error::other(format!("{error:#}")))?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&bytes)?;
    file.as_file().sync_all()?;
    let name = format!("{key}-{}.cwasm", blake3::hash(&bytes).to_hex());
    file.persist(folder.join(name))
        .map_err(|error| error.error)?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_kept_module_is_found_unless_others_may_write_to_it_or_have_changed_it() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::new(&wasmtime::Config::new()).unwrap();
        let module = Module::new(&engine, b"\0asm\x01\0\0\0").unwrap();
        let kept = || {
            keep(&module, folder.path(), "tiny").unwrap();
            let mut files = fs::read_dir(folder.path()).unwrap();
            files.next().unwrap().unwrap().path()
        };
        let found = || find(&engine, folder.path(), "tiny").is_some();
        kept();
        assert!(found() && found());
        for mode in [0o666, 0o620] {
            let path = kept();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(!found() && !path.exists(), "{mode:o}");
        }
        let path = kept();
        let mut bytes = fs::read(&path).unwrap();
        bytes.push(0);
        fs::write(&path, bytes).unwrap();
        assert!(!found() && !path.exists());
    }

    #[test]
    fn what_cannot_be_read_this_time_stays() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::new(&wasmtime::Config::new()).unwrap();
        // A folder is opened, but not read, as any user.
        let path = folder.path().join("tiny-0.cwasm");
        fs::DirBuilder::new().create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(open(&engine, &path).is_err());
        let lost = folder.path().join("tiny-1.cwasm");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &lost).unwrap();
        assert!(find(&engine, folder.path(), "tiny").is_none());
        assert!(path.is_dir() && lost.is_symlink());
    }

    #[test]
    fn machine_code_that_others_could_have_written_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, file) = (folder.path().join("a/cache"), folder.path().join("file"));
        private(&cache).unwrap();
        assert_eq!(
            fs::metadata(&cache).unwrap().permissions().mode() & 0o777,
            0o700
        );
        private(&cache).expect("it is there already");
        fs::write(&file, "code").unwrap();
        let allowed = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            is_private(&fs::metadata(path).unwrap()).unwrap()
        };
        for (mode, expected) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
            assert_eq!(allowed(&file, mode), expected, "{mode:o}");
        }
        assert!(!allowed(&cache, 0o777));
        let error = private(&cache).unwrap_err().to_string();
        assert!(error.contains("others may write"), "{error}");
        // Only a privileged test can give a file away.
        if allowed(&file, 0o600) && chown(&file, Some(65_534), None).is_ok() {
            assert!(!allowed(&file, 0o600), "it belongs to another user");
        }
    }
}
