//! One interpreter.

use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use wasmtime::error::Context;
use wasmtime::{Engine, InstancePre, Memory, Result, Store, Trap, TypedFunc, UpdateDeadline};

use crate::engine::interpreter;
use crate::host::{Host, Limit, Outside, Turn, micros, slice};
use crate::pages::{self, PAGE};
use crate::{PyError, SandboxEngine, SandboxError, Status, Tools, TurnOutput};

/// The longest reply about a turn that is read, in bytes.
const REPLY_BYTES: u32 = 4 << 20;

/// One episode's interpreter. Its variables live from turn to turn.
pub struct Session {
    engine: SandboxEngine,
    tools: Arc<dyn Tools>,
    /// The state that an undone first turn goes back to.
    beginning: Checkpoint,
    /// Absent while a turn runs, and for good when that turn's caller gave up.
    live: Option<Live>,
    /// True when a turn has run since the beginning.
    used: bool,
    echo: bool,
}

/// The state of an interpreter between turns: what differs from the snapshot all begin with, usually about a megabyte.
#[derive(Clone)]
pub struct Checkpoint {
    outside: Outside,
    /// The seed of a session that has not run anything yet.
    pending: Option<u64>,
    /// Size of the interpreter's memory in bytes.
    size: usize,
    /// Numbers of the pages that are kept, and the pages one after another.
    numbers: Arc<[u32]>,
    pages: Arc<[u8]>,
}

impl Checkpoint {
    /// Its memory in bytes.
    pub fn bytes(&self) -> usize {
        self.pages.len() + std::mem::size_of_val(&*self.numbers)
    }
}

impl Session {
    pub(crate) fn begin(
        engine: SandboxEngine,
        tools: Arc<dyn Tools>,
        seed: u64,
    ) -> Result<Self, SandboxError> {
        let outside = Outside::new(seed);
        let beginning = Checkpoint {
            outside,
            pending: Some(seed),
            size: 0,
            numbers: [].into(),
            pages: [].into(),
        };
        Self::resume(engine, &beginning, tools)
    }

    pub(crate) fn resume(
        engine: SandboxEngine,
        checkpoint: &Checkpoint,
        tools: Arc<dyn Tools>,
    ) -> Result<Self, SandboxError> {
        let live = restored(&engine, &tools, checkpoint)?;
        Ok(Self {
            engine,
            tools,
            beginning: checkpoint.clone(),
            live: Some(live),
            used: false,
            echo: false,
        })
    }

    /// True when each turn is one statement that prints its value when it is an expression, as at Python's prompt.
    pub fn echo(&mut self, echo: bool) {
        self.echo = echo;
    }

    /// Runs one program; its variables stay for the next. A program that runs into a limit which stops the interpreter leaves
    /// the state of before it. Dropping the future abandons the session.
    ///
    /// # Errors
    /// An infrastructure failure, after which the state is that of before the turn.
    pub async fn run(&mut self, code: &str) -> Result<TurnOutput, SandboxError> {
        if let Some(refused) = self.refuse(code) {
            return Ok(refused);
        }
        let job = self.prepare(code)?;
        let (live, output) = self
            .engine
            .spawn(job)
            .await
            .map_err(|_| SandboxError::Abandoned)?;
        self.conclude(live, output)
    }

    /// [`Session::run`] for callers outside any asynchronous runtime.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_blocking(&mut self, code: &str) -> Result<TurnOutput, SandboxError> {
        if let Some(refused) = self.refuse(code) {
            return Ok(refused);
        }
        let job = self.prepare(code)?;
        let (live, output) = self
            .engine
            .spawn(job)
            .blocking_recv()
            .map_err(|_| SandboxError::Abandoned)?;
        self.conclude(live, output)
    }

    /// The state of now, to come back to or to fork from.
    ///
    /// # Errors
    /// [`SandboxError::Abandoned`].
    pub fn checkpoint(&self) -> Result<Checkpoint, SandboxError> {
        if self.used {
            Ok(self
                .live
                .as_ref()
                .ok_or(SandboxError::Abandoned)?
                .checkpoint())
        } else {
            Ok(self.beginning.clone())
        }
    }

    /// Goes back to a state of this or another session of the same engine.
    ///
    /// # Errors
    /// When too many sessions are alive.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), SandboxError> {
        // The room of the old one may be needed for the new.
        self.live = None;
        self.live = Some(restored(&self.engine, &self.tools, checkpoint)?);
        self.beginning = checkpoint.clone();
        self.used = false;
        Ok(())
    }

    /// Forgets every turn since the session began or was last restored.
    ///
    /// # Errors
    /// As [`Session::restore`].
    pub fn reset(&mut self) -> Result<(), SandboxError> {
        if self.used {
            self.restore(&self.beginning.clone())
        } else {
            Ok(())
        }
    }

    fn refuse(&self, code: &str) -> Option<TurnOutput> {
        let limit = self.engine.limits().code_bytes;
        let too_long = code.len() > limit;
        too_long.then(|| {
            let message = format!("the code has {} bytes; at most {limit} are run", code.len());
            TurnOutput::stopped(Status::CodeSize, "CodeTooLong", message, Turn::new(), 0)
        })
    }

    /// The work of a turn, with the interpreter in it.
    fn prepare(
        &mut self,
        code: &str,
    ) -> Result<impl FnOnce() -> (Live, Outcome) + Send + 'static, SandboxError> {
        let live = self.live.take().ok_or(SandboxError::Abandoned)?;
        let before = if self.used {
            None
        } else {
            Some(self.beginning.clone())
        };
        let (code, echo) = (code.as_bytes().to_vec(), self.echo);
        Ok(move || {
            let mut live = live;
            let before = before.unwrap_or_else(|| live.checkpoint());
            let begun = Instant::now();
            let result = live.turn(&code, echo);
            let wall_us = micros(begun.elapsed());
            (
                live,
                Outcome {
                    before,
                    result,
                    wall_us,
                },
            )
        })
    }

    /// Puts the interpreter back, or the state of before a turn that stopped it.
    fn conclude(&mut self, mut live: Live, outcome: Outcome) -> Result<TurnOutput, SandboxError> {
        let Outcome {
            before,
            result,
            wall_us,
        } = outcome;
        let turn = std::mem::replace(&mut live.store.data_mut().turn, Turn::new());
        match result {
            Ok(reply) => {
                self.live = Some(live);
                self.used = true;
                Ok(logged(TurnOutput::finished(reply, turn, wall_us)))
            }
            Err(stop) => {
                drop(live);
                self.live = Some(restored(&self.engine, &self.tools, &before)?);
                if let Some((tool, reason)) = turn.fault {
                    return Err(SandboxError::Tool { tool, reason });
                }
                Ok(logged(stop.output(turn, self.engine.limits(), wall_us)))
            }
        }
    }
}

fn logged(output: TurnOutput) -> TurnOutput {
    let (calls, us) = (output.calls.len(), output.wall_us);
    tracing::trace!(status = ?output.status, calls, us, "sandbox turn");
    output
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Checkpoint")
            .field("pages", &self.numbers.len())
            .finish_non_exhaustive()
    }
}

fn restored(
    engine: &SandboxEngine,
    tools: &Arc<dyn Tools>,
    checkpoint: &Checkpoint,
) -> Result<Live, SandboxError> {
    let mut live = engine.instantiate(Arc::clone(tools), checkpoint.outside.clone())?;
    live.restore(checkpoint)
        .map_err(|error| interpreter(&error))?;
    Ok(live)
}

/// The outcome of a turn, and the state it goes back to when it is undone.
struct Outcome {
    before: Checkpoint,
    result: Result<Reply, Stop>,
    wall_us: u64,
}

/// The interpreter's report on a turn that it finished.
#[derive(Deserialize)]
pub(crate) struct Reply {
    pub(crate) error: Option<PyError>,
    pub(crate) redefined: Vec<String>,
}

/// The reason why the interpreter did not finish.
struct Stop(wasmtime::Error);

impl Stop {
    fn output(&self, turn: Turn, limits: &crate::Limits, wall_us: u64) -> TurnOutput {
        let (status, kind, message) = match (turn.limit, self.0.downcast_ref::<Trap>()) {
            (Some(Limit::Time), _) => {
                let message = format!(
                    "the code ran longer than {} s of processor time",
                    limits.time.as_secs_f64()
                );
                (Status::Timeout, "TimeLimit", message)
            }
            // Rust's own stack lies at the bottom of the interpreter's memory and overflows out of it.
            (_, Some(Trap::StackOverflow | Trap::MemoryOutOfBounds)) => (
                Status::Stack,
                "StackLimit",
                "the code ran out of stack".to_owned(),
            ),
            (Some(Limit::Memory), _) => {
                let message = format!(
                    "the code needed more than {} MiB of memory",
                    limits.memory_bytes >> 20
                );
                (Status::Memory, "MemoryLimit", message)
            }
            (Some(Limit::Calls), None) => {
                let message = format!("the code went on after its {} calls of tools", limits.calls);
                (Status::Calls, "ToolCallLimit", message)
            }
            _ => (
                Status::Crash,
                "SystemError",
                "the interpreter failed on this code".to_owned(),
            ),
        };
        TurnOutput::stopped(status, kind, message, turn, wall_us)
    }
}

/// A running interpreter.
pub(crate) struct Live {
    store: Store<Host>,
    memory: Memory,
    buffer: TypedFunc<u32, u32>,
    start: TypedFunc<(), ()>,
    run: TypedFunc<u32, ()>,
    /// The seed to start with, until that is done.
    pending: Option<u64>,
    reply_pointer: TypedFunc<(), u32>,
    reply_length: TypedFunc<(), u32>,
}

impl Live {
    pub(crate) fn new(
        engine: &Engine,
        interpreter: &InstancePre<Host>,
        host: Host,
    ) -> Result<Self> {
        let mut store = Store::new(engine, host);
        store.limiter(|host| host);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| {
            if context.data_mut().out_of_time() {
                Ok(UpdateDeadline::Interrupt)
            } else {
                Ok(UpdateDeadline::Continue(1))
            }
        });
        let instance = interpreter.instantiate(&mut store)?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .context("no memory")?;
        Ok(Self {
            memory,
            buffer: instance.get_typed_func(&mut store, "buffer")?,
            start: instance.get_typed_func(&mut store, "start")?,
            run: instance.get_typed_func(&mut store, "run")?,
            pending: None,
            reply_pointer: instance.get_typed_func(&mut store, "reply_pointer")?,
            reply_length: instance.get_typed_func(&mut store, "reply_length")?,
            store,
        })
    }

    /// Seeds the interpreter and gives it its tools, before the first turn.
    fn start(&mut self, seed: u64) -> Result<()> {
        let start = serde_json::json!({ "seed": seed, "tools": self.store.data().specs() });
        self.input(start.to_string().as_bytes())?;
        self.start.call(&mut self.store, ())
    }

    fn turn(&mut self, code: &[u8], echo: bool) -> Result<Reply, Stop> {
        self.store.data_mut().turn = Turn::new();
        self.store.set_epoch_deadline(1);
        self.reply_to(code, echo).map_err(Stop)
    }

    fn reply_to(&mut self, code: &[u8], echo: bool) -> Result<Reply> {
        if let Some(seed) = self.pending.take() {
            self.start(seed)?;
        }
        self.input(code)?;
        self.run.call(&mut self.store, u32::from(echo))?;
        let at = self.reply_pointer.call(&mut self.store, ())?;
        let length = self.reply_length.call(&mut self.store, ())?;
        wasmtime::ensure!(length <= REPLY_BYTES, "a reply of {length} bytes");
        let reply = slice(self.memory.data(&self.store), at, length)?;
        serde_json::from_slice(reply).context("a reply that cannot be read")
    }

    fn input(&mut self, bytes: &[u8]) -> Result<()> {
        let at = self
            .buffer
            .call(&mut self.store, u32::try_from(bytes.len())?)?;
        self.memory.write(&mut self.store, at as usize, bytes)?;
        Ok(())
    }

    fn checkpoint(&self) -> Checkpoint {
        let memory = self.memory.data(&self.store);
        let numbers = pages::written(memory);
        let mut kept = Vec::with_capacity(numbers.len() * PAGE);
        for &number in &numbers {
            let from = number as usize * PAGE;
            kept.extend_from_slice(&memory[from..from + PAGE]);
        }
        let outside = self.store.data().outside.clone();
        Checkpoint {
            outside,
            pending: self.pending,
            size: memory.len(),
            numbers: numbers.into(),
            pages: kept.into(),
        }
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.pending = checkpoint.pending;
        let missing = checkpoint
            .size
            .saturating_sub(self.memory.data_size(&self.store));
        self.memory.grow(&mut self.store, (missing >> 16) as u64)?;
        let memory = self.memory.data_mut(&mut self.store);
        for (&number, page) in checkpoint
            .numbers
            .iter()
            .zip(checkpoint.pages.chunks_exact(PAGE))
        {
            let from = number as usize * PAGE;
            memory
                .get_mut(from..from + PAGE)
                .context("a checkpoint of another interpreter")?
                .copy_from_slice(page);
        }
        Ok(())
    }
}
