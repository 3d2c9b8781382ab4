//! The state that all sessions share: the compiled interpreter and the threads that run it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Runtime;
use wasmtime::{Config, Engine, ExternType, InstancePre, Module, PoolingAllocationConfig};

use crate::budget::Budget;
use crate::checkpoint::Pages;
use crate::host::{self, Host, Outside};
use crate::instances::Instances;
use crate::live::Live;
use crate::pages;
use crate::{Checkpoint, Limits, SandboxError, Session, Tools, cache};

/// The interval at which running code is asked for the time it has used.
const TICK: Duration = Duration::from_millis(5);
/// Most instances at once: more than the budget lets run and those that wait. Each reserves 4 GiB of addresses, none of memory.
const INSTANCES: u32 = 1024;
/// Stack of the interpreter; Python's own recursion limit is met long before it.
const WASM_STACK: usize = 32 << 20;
/// Stack of the threads it runs on.
const THREAD_STACK: usize = 64 << 20;
/// The time an idle thread stays, with the memory it has freed.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Functions of the interpreter, with room.
const TABLE: usize = 32_000;

/// The compiled interpreter, shared by all sessions. Cheap to clone.
#[derive(Clone)]
pub struct SandboxEngine {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    interpreter: InstancePre<Host>,
    limits: Arc<Limits>,
    budget: &'static Budget,
    /// An instance that never runs, for the memory that all begin with.
    snapshot: OnceLock<Live>,
    /// None for another interpreter than `guest/`: ours has no state outside of its memory, but for the stack pointer, which is where it
    /// began when a turn has ended by itself.
    instances: Option<Instances>,
    /// Runs turns on threads with enough stack, one each, so that the system shares the processors fairly among them.
    threads: Option<Runtime>,
}

/// The options of [`SandboxEngine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// The limits of each turn.
    pub limits: Limits,
    /// The folder where the compiled interpreter is kept between processes; none to compile it anew in each.
    pub cache: Option<PathBuf>,
    /// Memory that all sandboxes of this process share, in bytes; a quarter of what is free when the first is opened unless
    /// given. Engines that give it must agree.
    pub memory_bytes: Option<usize>,
}

impl Default for EngineOptions {
    /// The default limits and `forage` in the user's cache folder, if there is one: never a folder that users share.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            cache: dirs::cache_dir().map(|folder| folder.join("forage")),
            memory_bytes: None,
        }
    }
}

/// Progress of [`SandboxEngine::open_with`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The interpreter is compiled, which takes a while: it is the first time here.
    Compiling,
    /// The machine code could not be stored and will be compiled again the next time.
    NotKept {
        /// The intended place.
        folder: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The disk has less room than the sandboxes share of memory for what programs keep between their turns: programs that keep more
    /// lose their variables ([`crate::Status::Lost`]).
    LittleDisk {
        /// A folder on the disk.
        folder: PathBuf,
        /// The room there, in MiB.
        most_mib: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compiling => f.write_str(
                "compiling the Python interpreter: some 20 seconds of processor time, minutes on a busy machine; only the first time on \
                 this machine",
            ),
            Self::NotKept { folder, reason } => write!(
                f,
                "warning: the compiled interpreter could not be kept in {} ({reason}); it will be compiled again next time",
                folder.display()
            ),
            Self::LittleDisk { folder, most_mib } => write!(
                f,
                "warning: the disk of {} has room for {most_mib} MiB of what programs keep between their turns; those that keep more \
                 lose their variables: free some space there",
                folder.display()
            ),
        }
    }
}

impl SandboxEngine {
    /// Opens the interpreter. The first time on a machine compiles it, which takes some 20 seconds of processor time.
    ///
    /// # Errors
    /// When the machine has no room for it or cannot run it, or the memory of the process's sandboxes does not fit.
    pub fn open(options: &EngineOptions) -> Result<Self, SandboxError> {
        Self::open_with(options, &mut |_| {})
    }

    /// [`SandboxEngine::open`], saying what takes long.
    ///
    /// # Errors
    /// As [`SandboxEngine::open`].
    pub fn open_with(
        options: &EngineOptions,
        notice: &mut dyn FnMut(Notice),
    ) -> Result<Self, SandboxError> {
        let limits = &options.limits;
        let (cache, scratch) = (options.cache.as_deref(), std::env::temp_dir());
        let spill = cache.unwrap_or(&scratch);
        let budget = Budget::of_process(options.memory_bytes, limits.memory_bytes, spill)?;
        if let Some((folder, most_mib)) = budget.spill.cramped() {
            notice(Notice::LittleDisk { folder, most_mib });
        }
        let engine = engine(limits)?;
        let module = cache::load(&engine, cache, notice)?;
        let instances = Some(Instances::default());
        Self::over(engine, &module, limits.clone(), budget, instances)
    }

    /// An engine over an interpreter of one's own: a WebAssembly module that speaks as `guest/` does.
    ///
    /// # Errors
    /// When the module cannot be compiled or asks for more than there is.
    pub fn with_guest(wasm: &[u8], limits: Limits) -> Result<Self, SandboxError> {
        let budget = Budget::of_process(None, limits.memory_bytes, &std::env::temp_dir())?;
        let engine = engine(&limits)?;
        let module = Module::new(&engine, wasm).map_err(|error| interpreter(&error))?;
        Self::over(engine, &module, limits, budget, None)
    }

    fn over(
        engine: Engine,
        module: &Module,
        limits: Limits,
        budget: &'static Budget,
        instances: Option<Instances>,
    ) -> Result<Self, SandboxError> {
        let itself = own_memory(module);
        if limits.memory_bytes <= itself {
            return Err(SandboxError::Interpreter(format!(
                "it takes {} MiB of memory itself, and a turn may have {}; raise `memory_mib`",
                itself.div_ceil(1 << 20),
                limits.memory_bytes >> 20
            )));
        }
        let linker = host::linker(module).map_err(|error| interpreter(&error))?;
        let interpreter = linker
            .instantiate_pre(module)
            .map_err(|error| self::interpreter(&error))?;
        let threads = tokio::runtime::Builder::new_current_thread()
            .thread_name("sandbox")
            .thread_stack_size(THREAD_STACK)
            .thread_keep_alive(KEEP_ALIVE)
            .max_blocking_threads(INSTANCES as usize)
            .build()
            .map_err(|error| SandboxError::Interpreter(error.to_string()))?;
        tick(&engine)?;
        let shared = Shared {
            engine,
            interpreter,
            limits: Arc::new(limits),
            budget,
            snapshot: OnceLock::new(),
            instances,
            threads: Some(threads),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// A fresh interpreter whose code finds `tools`; `seed` decides all its randomness. It takes next to nothing until its
    /// first turn.
    pub fn session(&self, tools: Arc<dyn Tools>, seed: u64) -> Session {
        Session::new(self.clone(), Checkpoint::fresh(seed), tools)
    }

    /// A session that goes on from a checkpoint of another: a fork of its episode. The functions its code sees are those of
    /// the session the checkpoint is of; `tools` answers them.
    pub fn fork(&self, checkpoint: &Checkpoint, tools: Arc<dyn Tools>) -> Session {
        Session::new(self.clone(), checkpoint.clone(), tools)
    }

    /// The limits of each turn.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// An interpreter in a state, whose code finds `tools`.
    pub(crate) fn wake(
        &self,
        tools: Arc<dyn Tools>,
        state: &Checkpoint,
    ) -> Result<Live, SandboxError> {
        let snapshot = self.snapshot()?;
        let host = Host::new(
            tools,
            Arc::clone(&self.shared.limits),
            state.outside.clone(),
        );
        let waiting = match &self.shared.instances {
            Some(instances) => instances.take(state, snapshot.bytes()),
            None => Ok(None),
        };
        if let Some(mut live) = waiting.map_err(|error| interpreter(&error))? {
            live.adopt(host, state.pending);
            return Ok(live);
        }
        let mut live = self.instantiate(host, state.pending)?;
        live.restore(state).map_err(|error| interpreter(&error))?;
        Ok(live)
    }

    /// The state of an interpreter whose turn has ended, which waits from now on.
    pub(crate) fn rest(&self, live: Live) -> io::Result<Checkpoint> {
        let snapshot = self.snapshot().map_err(io::Error::other)?;
        let (memory, budget) = (live.bytes(), self.budget());
        let written = pages::written(memory);
        let pages = Pages::of(memory, snapshot.bytes(), &written, budget)?;
        let state = live.checkpoint(pages);
        if let Some(instances) = &self.shared.instances {
            instances.keep(live, written.len(), &state, budget);
        }
        Ok(state)
    }

    #[cfg(test)]
    pub(crate) fn instances(&self) -> Option<&Instances> {
        self.shared.instances.as_ref()
    }

    fn snapshot(&self) -> Result<&Live, SandboxError> {
        let shared = &self.shared;
        if let Some(snapshot) = shared.snapshot.get() {
            return Ok(snapshot);
        }
        let host = Host::new(Arc::new(()), Arc::clone(&shared.limits), Outside::new(0));
        let made = self.instantiate(host, None)?;
        Ok(shared.snapshot.get_or_init(|| made))
    }

    /// An interpreter as the snapshot has it.
    fn instantiate(&self, host: Host, pending: Option<u64>) -> Result<Live, SandboxError> {
        let shared = &self.shared;
        let made = Live::new(&shared.engine, &shared.interpreter, host, pending);
        made.map_err(|error| SandboxError::Full {
            limit: INSTANCES,
            reason: format!("{error:#}"),
        })
    }

    pub(crate) fn budget(&self) -> &'static Budget {
        self.shared.budget
    }

    /// Runs a job on a thread of its own.
    pub(crate) fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(threads) = &self.shared.threads {
            threads.spawn_blocking(job);
        }
    }

    /// Waits for a session's work outside of any runtime.
    pub(crate) fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        match &self.shared.threads {
            Some(threads) => threads.block_on(work),
            None => Err(SandboxError::Abandoned),
        }
    }
}

impl std::fmt::Debug for SandboxEngine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SandboxEngine")
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The last owner may be a task of another runtime, which must not wait for threads.
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

pub(crate) fn interpreter(error: &wasmtime::Error) -> SandboxError {
    SandboxError::Interpreter(format!("{error:#}"))
}

/// The memory that an interpreter begins with, in bytes.
fn own_memory(module: &Module) -> usize {
    let export = module.get_export("memory");
    let memory = export.as_ref().and_then(ExternType::memory);
    memory.map_or(0, |memory| {
        memory.minimum().saturating_mul(memory.page_size()) as usize
    })
}

/// The compiler and runtime. Where the addresses of a pool are not to be had (a limit on virtual memory), each session
/// reserves its own.
fn engine(limits: &Limits) -> Result<Engine, SandboxError> {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_core_instances(INSTANCES)
        .total_memories(INSTANCES)
        .total_tables(INSTANCES)
        .max_memory_size(limits.memory_bytes.max(64 << 20))
        .table_elements(TABLE);
    let pooled = Engine::new(config().allocation_strategy(pool));
    pooled
        .or_else(|_| Engine::new(&config()))
        .map_err(|error| interpreter(&error))
}

fn config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .memory_init_cow(true)
        // The same bits for the same code on every machine.
        .cranelift_nan_canonicalization(true)
        // Nobody reads traces of the interpreter's own code, and what they need is a third of its size.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        // Nothing runs asynchronously, but the one size may not exceed the other.
        .async_stack_size(WASM_STACK + (1 << 20))
        .max_wasm_stack(WASM_STACK);
    config
}

/// Starts the thread that makes running code look at its time, for as long as there is an engine.
fn tick(engine: &Engine) -> Result<(), SandboxError> {
    let engine = engine.weak();
    let beat = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(TICK);
        }
    };
    let started = std::thread::Builder::new()
        .name("sandbox-clock".to_owned())
        .spawn(beat);
    started
        .map(|_| ())
        .map_err(|error| SandboxError::Interpreter(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_that_asks_for_something_is_a_warning() {
        let folder = PathBuf::from("cache");
        let kept = Notice::NotKept {
            folder: folder.clone(),
            reason: "is full".to_owned(),
        };
        let disk = Notice::LittleDisk {
            folder,
            most_mib: 7,
        };
        for (notice, words) in [
            (kept, "cache (is full)"),
            (disk, "cache has room for 7 MiB"),
        ] {
            let text = notice.to_string();
            assert!(
                text.starts_with("warning: ") && text.contains(words),
                "{text}"
            );
        }
        let compiling = Notice::Compiling.to_string();
        assert!(!compiling.contains("warning") && compiling.contains("20 seconds"));
    }

    #[test]
    fn a_limit_that_leaves_programs_no_memory_is_refused() {
        let guest = wat::parse_str("(module (memory (export \"memory\") 528))").unwrap();
        let open = |mib: usize| {
            let limits = Limits {
                memory_bytes: mib << 20,
                ..Limits::default()
            };
            SandboxEngine::with_guest(&guest, limits)
        };
        let error = open(32).unwrap_err().to_string();
        assert!(
            error.contains("takes 33 MiB") && error.contains("have 32; raise `memory_mib`"),
            "{error}"
        );
        assert!(open(33).is_err() && open(34).is_ok());
    }
}
