//! The runtime below every device but the processor: `CubeCL`, which compiles kernels when they are first used.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

use burn::backend::DispatchDevice;
use burn::tensor::{Device, Tensor};
use cubecl::config::streaming::StreamingConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig};

use super::{DeviceError, DeviceSpec, Memory};

/// Sets what holds for every device of the process, before the first is opened.
///
/// - One stream. By default each thread has its own, with a pool of memory that grows to its own peak; a tensor changed in
///   place from another thread than the one that made it is not waited for, and every use of a weight costs two events.
/// - Compiled kernels are kept ([`kernels`]): a process compiles what no process before it has compiled.
///
/// `CUBECL_*` variables have the last word.
pub(super) fn configure() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut config = CubeClRuntimeConfig::default();
        config.streaming = StreamingConfig {
            policy: cubecl::config::streaming::StreamPolicy::Single,
            ..config.streaming
        };
        let kept = kernels();
        config.compilation.cache = kept.is_ok();
        let (folder, name) = match kept {
            Ok(kernels) => (kernels.folder.clone(), kernels.name.clone()),
            Err(why) => {
                tracing::warn!(%why, fix = KERNELS_FIX, "compiled kernels are not kept");
                // Some entries are written whatever the settings say. No folder can be made below a file, so they stay in
                // memory; CubeCL's own default is a file that programs share.
                (std::env::current_exe().unwrap_or_default(), build())
            }
        };
        config.environment.path = CacheConfig::Directory(folder);
        config.environment.name = name;
        // A library user may have set a configuration of their own: theirs stays.
        CubeClRuntimeConfig::try_set(config.override_from_env());
    });
}

/// The fix where compiled kernels are not kept.
pub(crate) const KERNELS_FIX: &str = "remove the folder, or make it yours alone (chmod -R go-w); XDG_CACHE_HOME names the one around it";

/// Why compiled kernels are not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelsError {
    #[error("this user has no cache folder")]
    NoCacheFolder,
    #[error("{0} belongs to another user, or others may write to it")]
    Shared(String),
    #[error("{0} cannot be used: {1}")]
    Unusable(String, #[source] io::Error),
    #[error("{0} cannot be opened: {1}")]
    Unopened(String, #[source] turso::Error),
}

/// A database of compiled kernels that no other process has open, for as long as this lives.
///
/// `CubeCL` opens its database for several processes, with a connection for each kind of entry. In that mode, where the log
/// of an earlier process is still there, Turso 0.8 on Linux takes the reads of other connections of the same process for those of
/// a process that is gone, and panics when they end (tursodatabase/turso#8851, #7213). A database that is open already is
/// shared in the mode it was opened with, so this one is opened first, for one process.
pub(crate) struct Kernels {
    folder: PathBuf,
    /// The file's in the folder, without `.db`.
    name: String,
    /// Held for the file beside: Turso's own lock is the process's, and ends when any handle to the database is closed.
    _lock: File,
    _database: turso::Database,
}

impl Kernels {
    /// Opens the first database of a build that no process has: `BUILD.db`, `BUILD-1.db` and so on.
    fn open(folder: PathBuf, build: &str) -> Result<Self, KernelsError> {
        let mut name = build.to_owned();
        for other in 1_u32.. {
            let path = folder.join(format!("{name}.lock"));
            let unusable = |error| KernelsError::Unusable(path.display().to_string(), error);
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            let lock = options.open(&path).map_err(unusable)?;
            match lock.try_lock() {
                Ok(()) => return Self::locked(folder, name, lock),
                Err(TryLockError::WouldBlock) => name = format!("{build}-{other}"),
                Err(TryLockError::Error(error)) => return Err(unusable(error)),
            }
        }
        unreachable!("no machine runs as many processes")
    }

    fn locked(folder: PathBuf, name: String, lock: File) -> Result<Self, KernelsError> {
        let path = folder.join(format!("{name}.db")).display().to_string();
        let opening = turso::Builder::new_local(&path).build();
        let database = cubecl::future::block_on(opening)
            .map_err(|error| KernelsError::Unopened(path, error))?;
        Ok(Self {
            folder,
            name,
            _lock: lock,
            _database: database,
        })
    }

    /// The folder that all processes of this user keep theirs in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The database of compiled kernels of this process, in the user's cache folder, where nobody else may write to it.
pub(crate) fn kernels() -> Result<&'static Kernels, &'static KernelsError> {
    static KEPT: OnceLock<Result<Kernels, KernelsError>> = OnceLock::new();
    let kept = KEPT.get_or_init(|| {
        let cache = dirs::cache_dir().ok_or(KernelsError::NoCacheFolder)?;
        Kernels::open(private_folder(&cache)?, &build())
    });
    kept.as_ref()
}

/// The folder for compiled kernels in a cache folder, made for this user alone.
fn private_folder(cache: &Path) -> Result<PathBuf, KernelsError> {
    let folder = cache.join("forage/kernels");
    let name = folder.display().to_string();
    match is_private(&folder) {
        Ok(true) => Ok(folder),
        Ok(false) => Err(KernelsError::Shared(name)),
        Err(error) => Err(KernelsError::Unusable(name, error)),
    }
}

/// Makes a folder and tells whether it is this user's and nobody else may write to it.
fn is_private(folder: &Path) -> io::Result<bool> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;

        // A file of this process has the owner that its own files have.
        let own = tempfile::tempfile()?.metadata()?.uid();
        let found = std::fs::metadata(folder)?;
        Ok(found.uid() == own && found.mode() & 0o022 == 0)
    }
    #[cfg(not(unix))]
    {
        Ok(true)
    }
}

/// A name for this build of the program. `CubeCL` finds kernels of another build by their source and then panics where two of
/// them share one, so builds keep their kernels apart.
fn build() -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let file = std::env::current_exe().and_then(std::fs::metadata).ok();
    let mut hasher = DefaultHasher::new();
    file.as_ref().map(std::fs::Metadata::len).hash(&mut hasher);
    file.and_then(|file| file.modified().ok()).hash(&mut hasher);
    format!("build-{:016x}", hasher.finish())
}

/// Computes something on a device that this process opens for the first time.
pub(super) fn start(spec: DeviceSpec, device: &Device) -> Result<(), DeviceError> {
    static STARTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let name = spec.to_string();
    if started.contains(&name) {
        return Ok(());
    }
    let device = device.clone();
    // The runtime panics where it cannot go on.
    let run = move || {
        let sum = Tensor::<1>::from_floats([1.0, 2.0], &device) + 1.0;
        sum.into_data()
            .convert::<f32>()
            .try_into_vec::<f32>()
            .map(drop)
            .map_err(|error| format!("{error:?}"))
    };
    let fault = match std::thread::spawn(run).join() {
        Ok(Ok(())) => {
            started.push(name);
            return Ok(());
        }
        Ok(Err(fault)) => fault,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            text.or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("the runtime panicked")
                .to_owned()
        }
    };
    Err(DeviceError::Broken {
        spec,
        fault: fault.trim().to_owned(),
    })
}

/// Returns whether a device adds up tensors with others of its kind in this process: CUDA's do, with NCCL.
pub(super) fn has_collectives(device: &Device) -> bool {
    match device.as_dispatch() {
        DispatchDevice::Cube(cube) => cube.client().has_device_transport(),
        _ => false,
    }
}

/// The memory of a device; `None` for the processor.
pub(super) fn memory(device: &Device) -> Option<Memory> {
    // A software driver names no size.
    const UNKNOWN: u64 = 4 << 30;
    match device.as_dispatch() {
        DispatchDevice::Cube(cube) => {
            let client = cube.client();
            let memory = &client.properties().memory;
            Some(Memory {
                bytes: memory.max_memory().unwrap_or(UNKNOWN),
                largest_buffer: memory.max_page_size,
            })
        }
        _ => None,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use cubecl::future::block_on;

    use super::*;

    #[test]
    fn kernels_are_kept_where_nobody_else_may_write() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("forage/kernels");
        assert!(is_private(&folder).unwrap());
        for (mode, expected) in [(0o755, true), (0o775, false), (0o777, false)] {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_private(&folder).unwrap(), expected, "{mode:o}");
        }
        let why = private_folder(place.path()).unwrap_err().to_string();
        let named = format!("{} belongs to another user, or", folder.display());
        assert!(why.starts_with(&named), "{why}");
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(is_private(&place.path().join("file/kernels")).is_err());
    }

    fn open(folder: &Path, build: &str) -> Kernels {
        Kernels::open(folder.to_owned(), build).unwrap()
    }

    #[test]
    fn a_database_of_kernels_is_one_processes_alone() {
        let place = tempfile::tempdir().unwrap();
        let mut held: Vec<_> = (0..3).map(|_| open(place.path(), "build")).collect();
        drop(held.remove(1));
        held.push(open(place.path(), "build"));
        let names: Vec<_> = held.iter().map(|kernels| kernels.name.as_str()).collect();
        assert_eq!(names, ["build", "build-2", "build-1"]);
    }

    /// Opens a database as `CubeCL` does.
    fn connect(path: &Path) -> turso::Connection {
        let path = path.display().to_string();
        let builder = turso::Builder::new_local(&path).experimental_multiprocess_wal(true);
        block_on(builder.build()).unwrap().connect().unwrap()
    }

    #[test]
    fn connections_of_several_threads_read_while_others_are_opened() {
        let place = tempfile::tempdir().unwrap();
        // What a process leaves that was ended: entries in the log that are not in the file yet.
        let (before, left) = (place.path().join("before.db"), place.path().join("left.db"));
        let connection = connect(&before);
        let table = "CREATE TABLE entries (key INTEGER PRIMARY KEY, value BLOB)";
        block_on(connection.execute(table, ())).unwrap();
        for key in 0..200_i64 {
            let entry = "INSERT INTO entries VALUES (?1, zeroblob(3000))";
            block_on(connection.execute(entry, (key,))).unwrap();
        }
        for end in ["", "-wal"] {
            let named = |path: &Path| format!("{}{end}", path.display());
            std::fs::copy(named(&before), named(&left)).unwrap();
        }
        let _kernels = open(place.path(), "left");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let connection = connect(&left);
                        let count = connection.query("SELECT count(*) FROM entries", ());
                        let mut rows = block_on(count).unwrap();
                        let row = block_on(rows.next()).unwrap().unwrap();
                        assert_eq!(row.get::<i64>(0).unwrap(), 200);
                    }
                });
            }
        });
        assert!(!place.path().join("left.db-tshm").exists());
    }
}
