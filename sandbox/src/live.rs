//! A running interpreter.

use std::sync::Arc;

use serde::Deserialize;
use wasmtime::error::Context;
use wasmtime::{Engine, InstancePre, Memory, Result, Store, Trap, TypedFunc, UpdateDeadline};

use crate::checkpoint::{Checkpoint, Pages, Places};
use crate::host::{Host, Limit, Turn, slice};
use crate::{Limits, PyError, Status, TurnOutput};

/// The longest reply about a turn that is read, in bytes.
const REPLY_BYTES: u32 = 4 << 20;

/// The interpreter's report on a turn that it finished.
#[derive(Deserialize)]
pub(crate) struct Reply {
    pub(crate) error: Option<PyError>,
    pub(crate) redefined: Vec<String>,
}

/// The reason why the interpreter did not finish.
pub(crate) struct Stop(wasmtime::Error);

impl Stop {
    pub(crate) fn output(&self, turn: Turn, limits: &Limits, wall_us: u64) -> TurnOutput {
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
                (Status::Memory, "MemoryError", message)
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
        TurnOutput {
            undone: true,
            ..TurnOutput::stopped(status, kind, message, turn, wall_us)
        }
    }
}

/// An instance of the interpreter.
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
        pending: Option<u64>,
    ) -> Result<Self> {
        let mut store = Store::new(engine, host);
        store.limiter(|host| host);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| {
            if context.data_mut().must_stop() {
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
            pending,
            reply_pointer: instance.get_typed_func(&mut store, "reply_pointer")?,
            reply_length: instance.get_typed_func(&mut store, "reply_length")?,
            store,
        })
    }

    /// Runs one program.
    pub(crate) fn turn(&mut self, turn: Turn, code: &[u8], echo: bool) -> Result<Reply, Stop> {
        let memory = self.memory.data_size(&self.store);
        self.store.data_mut().turn = turn.with_memory(memory);
        self.store.set_epoch_deadline(1);
        self.reply_to(code, echo).map_err(Stop)
    }

    /// The effects of the turn that has ended.
    pub(crate) fn take_turn(&mut self) -> Turn {
        std::mem::take(&mut self.store.data_mut().turn)
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
        let reply = slice(self.bytes(), at, length)?;
        let reply: Reply = serde_json::from_slice(reply).context("a reply that cannot be read")?;
        // Whether the interpreter outlives the want of memory is chance: a program that does not catch the error ends alike.
        let uncaught = matches!(&reply.error, Some(error) if error.kind == "MemoryError");
        let refused = matches!(self.store.data().turn.limit, Some(Limit::Memory));
        wasmtime::ensure!(!(uncaught && refused), "no memory");
        Ok(reply)
    }

    /// Seeds the interpreter and gives it its tools, before the first turn.
    fn start(&mut self, seed: u64) -> Result<()> {
        let start = serde_json::json!({ "seed": seed, "tools": self.store.data().specs() });
        self.input(start.to_string().as_bytes())?;
        self.start.call(&mut self.store, ())
    }

    fn input(&mut self, bytes: &[u8]) -> Result<()> {
        let at = self
            .buffer
            .call(&mut self.store, u32::try_from(bytes.len())?)?;
        self.memory.write(&mut self.store, at as usize, bytes)?;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    /// The state of now, with these differences to the snapshot.
    pub(crate) fn checkpoint(&self, pages: Pages) -> Checkpoint {
        Checkpoint {
            outside: self.store.data().outside.clone(),
            pending: self.pending,
            size: self.bytes().len(),
            pages: Arc::new(pages),
        }
    }

    /// Goes on as another session's, whose memory is the same.
    pub(crate) fn adopt(&mut self, host: Host, pending: Option<u64>) {
        *self.store.data_mut() = host;
        self.pending = pending;
    }

    /// Takes back what differs from the snapshot.
    pub(crate) fn reset(&mut self, places: &Places, snapshot: &[u8]) {
        places.take_back(self.memory.data_mut(&mut self.store), snapshot);
    }

    /// Brings an instance whose memory is as the snapshot has it, or larger by zeros, to a state.
    pub(crate) fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let missing = checkpoint
            .size
            .saturating_sub(self.memory.data_size(&self.store));
        self.memory.grow(&mut self.store, (missing >> 16) as u64)?;
        let memory = self.memory.data_mut(&mut self.store);
        checkpoint.pages.write_to(memory)?;
        Ok(())
    }
}
