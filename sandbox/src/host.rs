//! The outside world of the interpreter: its streams, its tools, a clock and a generator of its own, and nothing else.
//!
//! Every pointer and length comes from code that is not trusted, and is checked against the memory it points into.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wasmtime::error::Context;
use wasmtime::{
    Caller, Extern, ExternType, Linker, Memory, Module, ResourceLimiter, Result, Val, bail,
};

use crate::record::abridged_arguments;
use crate::{CallRecord, Limits, SandboxError, ToolError, ToolSpec, Tools, Wait};

/// The time at which every session begins: 2025-01-01 00:00:00 UTC, in nanoseconds.
const BEGIN: u64 = 1_735_689_600_000_000_000;
/// The distance that the clock moves each time it is read, in nanoseconds: a loop that waits for it must end.
const TICK: u64 = 1_000;
/// The longest request of a tool, in bytes: as a tree of values it may take seventy times as much, which no budget counts.
const REQUEST_BYTES: usize = 256 << 10;
/// Calls over the limit after which the turn is stopped rather than warned by an exception.
const PATIENCE: usize = 1_000;
/// The most that the interpreter's memory grows by for small objects, in bytes. Its allocator takes whole pages of 64 KiB.
const SMALL_GROWTH: usize = 256 << 10;
/// The part of a session's memory, one in this many, that turns may not take as a whole: see [`Host::most`].
const KEPT: usize = 16;
/// WASI's `EBADF`: the file does not exist.
const BAD_DESCRIPTOR: i32 = 8;
const WASI: &str = "wasi_snapshot_preview1";

/// The surroundings of a session's interpreter, kept in its store.
pub(crate) struct Host {
    tools: Arc<dyn Tools>,
    specs: Vec<ToolSpec>,
    limits: Arc<Limits>,
    pub(crate) outside: Outside,
    pub(crate) turn: Turn,
}

/// The part of a session's state that is not in the interpreter's memory.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    /// Nanoseconds since 1970.
    clock: u64,
    generator: ChaCha8Rng,
}

/// The effects of a turn so far.
#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) calls: Vec<CallRecord>,
    /// Calls beyond the limit.
    refused: usize,
    /// The answer that the interpreter is about to take.
    answer: Vec<u8>,
    /// Processor time of the thread when the turn began.
    begun: Duration,
    /// Processor time of tools.
    tools: Duration,
    /// Time of tools by the clock on the wall.
    waited: Duration,
    /// The interpreter's memory when the turn began, in bytes; none outside of turns.
    memory: Option<usize>,
    /// Set when the interpreter asked for more memory than the turn may take.
    lacked_memory: bool,
    /// Over when the turn's caller has given up.
    wait: Wait,
    pub(crate) fault: Option<SandboxError>,
    pub(crate) limit: Option<Limit>,
}

/// A limit the turn ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Time,
    Memory,
    Output,
    Calls,
}

impl Outside {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            clock: BEGIN,
            generator: ChaCha8Rng::seed_from_u64(seed),
        }
    }
}

impl Turn {
    /// A turn that begins now, on this thread.
    pub(crate) fn new(wait: Wait) -> Self {
        Self {
            begun: processor_time(),
            wait,
            ..Self::default()
        }
    }

    /// The turn of an interpreter that has so much memory, in bytes.
    pub(crate) fn with_memory(self, bytes: usize) -> Self {
        Self {
            memory: Some(bytes),
            ..self
        }
    }
}

impl Host {
    pub(crate) fn new(tools: Arc<dyn Tools>, limits: Arc<Limits>, outside: Outside) -> Self {
        let specs = tools.specs();
        Self {
            tools,
            specs,
            limits,
            outside,
            turn: Turn::default(),
        }
    }

    /// The functions that the code may call.
    pub(crate) fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// Returns true when the turn has used up its time or nobody waits for it. Asked every few milliseconds.
    pub(crate) fn must_stop(&mut self) -> bool {
        if self.turn.wait.is_given_up() {
            return true;
        }
        let over = processor_time()
            .saturating_sub(self.turn.begun)
            .saturating_sub(self.turn.tools)
            >= self.limits.time;
        if over {
            self.turn.limit = Some(Limit::Time);
        }
        over
    }

    /// The memory that a turn may grow to, in bytes, from what is taken: the limit but for a small part, and of that part half of what
    /// is left. So a program that takes all it can get leaves some for the turns after it, which may free what it holds.
    fn most(&self, taken: usize) -> usize {
        let limit = self.limits.memory_bytes;
        (limit - limit / KEPT).max(taken + limit.saturating_sub(taken) / 2)
    }

    /// Keeps what fits; says whether something did not.
    fn write(&mut self, stream: u32, bytes: &[u8]) -> bool {
        let kept = if stream == 1 {
            &mut self.turn.stdout
        } else {
            &mut self.turn.stderr
        };
        let room = self.limits.output_bytes.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let full = bytes.len() > room;
        if full {
            self.turn.limit = Some(Limit::Output);
        }
        full
    }

    /// Answers a call, or stops the turn.
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        #[derive(Deserialize)]
        struct Request {
            tool: String,
            arguments: Map<String, Value>,
        }
        if self.turn.calls.len() >= self.limits.calls {
            self.turn.limit = Some(Limit::Calls);
            self.turn.refused += 1;
            if self.turn.refused > PATIENCE {
                bail!("the turn goes on calling tools beyond the limit");
            }
            let message = format!("at most {} calls of tools in one turn", self.limits.calls);
            return Ok(raise("ToolCallLimit", &message));
        }
        if request.len() > REQUEST_BYTES {
            return Ok(raise(
                "ValueError",
                "the arguments of the call are too long",
            ));
        }
        let Request {
            tool,
            mut arguments,
        } = serde_json::from_slice(request).context("a call that cannot be read")?;
        // The interpreter binds arguments; code that goes around it is refused here.
        let Some(spec) = self.specs.iter().find(|spec| spec.name == tool) else {
            return Ok(raise("NameError", &format!("name '{tool}' is not defined")));
        };
        let given = arguments.len();
        let bound: Option<Map<String, Value>> = spec
            .parameters
            .iter()
            .map(|parameter| Some((parameter.name.clone(), arguments.remove(&parameter.name)?)))
            .collect();
        let Some(arguments) = bound.filter(|bound| bound.len() == given) else {
            return Ok(raise(
                "TypeError",
                &format!("{tool}() got other arguments than it has parameters"),
            ));
        };
        if self.turn.wait.is_given_up() {
            bail!("nobody waits for the turn");
        }
        if self.turn.waited >= self.limits.tool_time {
            // How many calls it makes is the program's choice.
            let seconds = self.limits.tool_time.as_secs_f64();
            let message = format!("the tools of one turn may take {seconds} s together");
            return Ok(raise("TimeoutError", &message));
        }
        let (wall, processor) = (Instant::now(), processor_time());
        let wait = self
            .turn
            .wait
            .until(wall.checked_add(self.limits.tool_time));
        let result = self.tools.call_within(&tool, &arguments, &wait);
        let wall = wall.elapsed();
        self.turn.tools += processor_time().saturating_sub(processor);
        self.turn.waited += wall;
        let mut record = CallRecord {
            tool,
            arguments: abridged_arguments(arguments),
            size: 0,
            error: None,
            wall_us: micros(wall),
        };
        if wall >= self.limits.tool_time {
            // Also where the tool has failed: it may have given up for that reason.
            let (tool, seconds) = (record.tool, wall.as_secs_f64());
            self.turn.fault = Some(SandboxError::Slow { tool, seconds });
            bail!("a tool takes too long");
        }
        let answer = match result {
            Ok(value) => {
                record.size = size(&value);
                serde_json::to_vec(&json!({ "value": value }))?
            }
            Err(ToolError::Raise { kind, message }) => {
                record.error = Some(CallRecord::abridged(format!("{kind}: {message}")));
                raise(kind, &message)
            }
            Err(ToolError::Fault(reason)) => {
                let tool = record.tool;
                self.turn.fault = Some(SandboxError::Tool { tool, reason });
                bail!("a tool failed");
            }
        };
        self.turn.calls.push(record);
        Ok(answer)
    }
}

/// The memory limit.
impl ResourceLimiter for Host {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let most = match self.turn.memory {
            // A session gets back what it had.
            None => self.limits.memory_bytes,
            // A program that was refused needs some small objects to handle the error.
            Some(begin) if self.turn.lacked_memory && desired - current <= SMALL_GROWTH => {
                self.most(self.most(begin))
            }
            Some(begin) => self.most(begin),
        };
        let fits = desired <= most;
        if !fits {
            self.turn.limit = Some(Limit::Memory);
            self.turn.lacked_memory = true;
        }
        Ok(fits)
    }

    fn table_growing(&mut self, current: usize, _: usize, _: Option<usize>) -> Result<bool> {
        // Only the table of functions that an interpreter begins with.
        Ok(current == 0)
    }
}

/// Processor time that this thread has used.
fn processor_time() -> Duration {
    ThreadTime::now().as_duration()
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn raise(kind: &str, message: &str) -> Vec<u8> {
    json!({ "raise": { "kind": kind, "message": message } })
        .to_string()
        .into_bytes()
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        _ => 1,
    }
}

/// Every import of the interpreter.
pub(crate) fn linker(module: &Module) -> Result<Linker<Host>> {
    let mut linker = Linker::new(module.engine());
    linker.allow_shadowing(true);
    for import in module.imports() {
        // Whatever of WASI is not given below has no files to work on.
        if let (WASI, ExternType::Func(shape)) = (import.module(), import.ty()) {
            linker.func_new(WASI, import.name(), shape, |_, _, results| {
                for result in results {
                    *result = Val::I32(BAD_DESCRIPTOR);
                }
                Ok(())
            })?;
        }
    }
    link_wasi(&mut linker)?;
    link_tools(&mut linker)?;
    Ok(linker)
}

fn link_wasi(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap(
        WASI,
        "random_get",
        |mut caller: Caller<'_, Host>, at: u32, length: u32| -> Result<i32> {
            fill_random(&mut caller, at, length)?;
            Ok(0)
        },
    )?;
    linker.func_wrap(
        WASI,
        "clock_time_get",
        |mut caller: Caller<'_, Host>, _: i32, _: i64, at: u32| -> Result<i32> {
            let clock = &mut caller.data_mut().outside.clock;
            *clock = clock.saturating_add(TICK);
            let now = clock.to_le_bytes();
            memory(&mut caller)?.write(&mut caller, at as usize, &now)?;
            Ok(0)
        },
    )?;
    for name in ["environ_sizes_get", "args_sizes_get"] {
        linker.func_wrap(
            WASI,
            name,
            |mut caller: Caller<'_, Host>, count: u32, size: u32| -> Result<i32> {
                let memory = memory(&mut caller)?;
                memory.write(&mut caller, count as usize, &[0; 4])?;
                memory.write(&mut caller, size as usize, &[0; 4])?;
                Ok(0)
            },
        )?;
    }
    for name in ["environ_get", "args_get"] {
        linker.func_wrap(WASI, name, |_: u32, _: u32| 0_i32)?;
    }
    linker.func_wrap(WASI, "proc_exit", |_: i32| -> Result<()> {
        bail!("the interpreter left")
    })?;
    Ok(())
}

fn link_tools(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap(
        "host",
        "write",
        |mut caller: Caller<'_, Host>, stream: u32, at: u32, length: u32| -> Result<u32> {
            let memory = memory(&mut caller)?;
            let (data, host) = memory.data_and_store_mut(&mut caller);
            Ok(u32::from(host.write(stream, slice(data, at, length)?)))
        },
    )?;
    linker.func_wrap(
        "host",
        "call",
        |mut caller: Caller<'_, Host>, at: u32, length: u32| -> Result<u32> {
            let memory = memory(&mut caller)?;
            let (data, host) = memory.data_and_store_mut(&mut caller);
            let answer = host.call(slice(data, at, length)?)?;
            let length = u32::try_from(answer.len()).context("an answer of more than 4 GiB")?;
            host.turn.answer = answer;
            Ok(length)
        },
    )?;
    linker.func_wrap(
        "host",
        "take",
        |mut caller: Caller<'_, Host>, at: u32| -> Result<()> {
            let answer = std::mem::take(&mut caller.data_mut().turn.answer);
            memory(&mut caller)?.write(&mut caller, at as usize, &answer)?;
            Ok(())
        },
    )?;
    linker.func_wrap(
        "host",
        "advance",
        |mut caller: Caller<'_, Host>, nanoseconds: u64| {
            let clock = &mut caller.data_mut().outside.clock;
            *clock = clock.saturating_add(nanoseconds);
        },
    )?;
    linker.func_wrap(
        "host",
        "random",
        |mut caller: Caller<'_, Host>, at: u32, length: u32| -> Result<()> {
            fill_random(&mut caller, at, length)
        },
    )?;
    Ok(())
}

fn fill_random(caller: &mut Caller<'_, Host>, at: u32, length: u32) -> Result<()> {
    let memory = memory(caller)?;
    let (data, host) = memory.data_and_store_mut(caller);
    let end = (at as usize)
        .checked_add(length as usize)
        .context("a length beyond memory")?;
    let place = data
        .get_mut(at as usize..end)
        .context("a pointer beyond memory")?;
    host.outside.generator.fill_bytes(place);
    Ok(())
}

fn memory(caller: &mut Caller<'_, Host>) -> Result<Memory> {
    caller
        .get_export("memory")
        .and_then(Extern::into_memory)
        .context("the interpreter exports no memory")
}

/// A piece of the interpreter's memory.
pub(crate) fn slice(data: &[u8], at: u32, length: u32) -> Result<&[u8]> {
    let end = (at as usize)
        .checked_add(length as usize)
        .context("a length beyond memory")?;
    data.get(at as usize..end)
        .context("a pointer beyond memory")
}
