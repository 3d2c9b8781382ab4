//! One episode's interpreter, from turn to turn.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::budget::Share;
use crate::checkpoint::Checkpoint;
use crate::host::{Turn, micros};
use crate::live::Live;
use crate::spill;
use crate::{SandboxEngine, SandboxError, Status, Tools, TurnOutput, Wait};

/// One episode's interpreter. Its variables live from turn to turn.
///
/// Between turns it takes no more than the lines of memory that it has changed, compressed if it is much, and none of the machine's
/// memory where the process's share is used up. Each turn waits until there is memory for all that it may take.
pub struct Session {
    engine: SandboxEngine,
    tools: Arc<dyn Tools>,
    /// The state that [`Session::reset`] goes back to.
    beginning: Checkpoint,
    state: State,
    echo: bool,
}

enum State {
    Idle(Box<Checkpoint>),
    /// The last turn's thread still puts the interpreter away.
    Settling(mpsc::Receiver<io::Result<Checkpoint>>),
    /// A turn runs, or its caller gave up.
    Lost,
}

impl State {
    /// Waits for the state of the interpreter.
    fn settled(self) -> Result<Checkpoint, SandboxError> {
        match self {
            Self::Idle(state) => Ok(*state),
            Self::Settling(receiver) => match receiver.recv() {
                Ok(state) => state.map_err(SandboxError::Park),
                Err(_) => Err(SandboxError::Abandoned),
            },
            Self::Lost => Err(SandboxError::Abandoned),
        }
    }
}

/// The next turn of a session whose memory found no room: it is not run.
fn lost() -> TurnOutput {
    let message =
        "what the code kept in memory found no room beside what other sessions keep, and is gone";
    let (kind, message) = ("MemoryError", message.to_owned());
    TurnOutput::stopped(Status::Lost, kind, message, Turn::default(), 0)
}

impl Session {
    pub(crate) fn new(
        engine: SandboxEngine,
        checkpoint: Checkpoint,
        tools: Arc<dyn Tools>,
    ) -> Self {
        Self {
            engine,
            tools,
            state: State::Idle(Box::new(checkpoint.clone())),
            beginning: checkpoint,
            echo: false,
        }
    }

    /// True when each turn is one statement that prints its value when it is an expression, as at Python's prompt.
    pub fn echo(&mut self, echo: bool) {
        self.echo = echo;
    }

    /// Runs one program; its variables stay for the next. A program that runs into a limit which stops the interpreter leaves
    /// the state of before it. Dropping the future abandons the session: the program is stopped, and the memory it may take
    /// is given back when its thread has ended.
    ///
    /// # Errors
    /// An infrastructure failure, after which the state is that of before the turn unless it could not be kept. That sessions keep more
    /// than there is room for, in memory and on the disk, is none: the turn ends as [`Status::Lost`].
    pub async fn run(&mut self, code: &str) -> Result<TurnOutput, SandboxError> {
        let limits = self.engine.limits();
        if code.len() > limits.code_bytes {
            let message = format!(
                "the code has {} bytes; at most {} are run",
                code.len(),
                limits.code_bytes
            );
            return Ok(TurnOutput::stopped(
                Status::CodeSize,
                "CodeTooLong",
                message,
                Turn::default(),
                0,
            ));
        }
        let share = self.engine.budget().turn(limits.memory_bytes).await;
        // Dropped with this future: so the turn is stopped when its caller gives up. After the turn nobody looks.
        let (_caller, wait) = Wait::begin();
        let (settle, settled) = mpsc::sync_channel(1);
        let job = Job {
            engine: self.engine.clone(),
            tools: Arc::clone(&self.tools),
            state: std::mem::replace(&mut self.state, State::Lost),
            beginning: self.beginning.clone(),
            code: code.as_bytes().to_vec(),
            echo: self.echo,
            wait,
            share,
        };
        let (reply, output) = oneshot::channel();
        self.engine.spawn(move || job.run(reply, &settle));
        let output = output.await.map_err(|_| SandboxError::Abandoned)?;
        self.state = State::Settling(settled);
        output
    }

    /// [`Session::run`] for callers outside any asynchronous runtime.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_blocking(&mut self, code: &str) -> Result<TurnOutput, SandboxError> {
        let engine = self.engine.clone();
        engine.block_on(self.run(code))
    }

    /// The state of now, to come back to or to fork from. Waits a moment when a turn has only just ended.
    ///
    /// # Errors
    /// [`SandboxError::Abandoned`], or a state that could not be kept.
    pub fn checkpoint(&mut self) -> Result<Checkpoint, SandboxError> {
        let state = std::mem::replace(&mut self.state, State::Lost).settled()?;
        self.state = State::Idle(Box::new(state.clone()));
        Ok(state)
    }

    /// Goes back to a state of this or another session of the same engine.
    pub fn restore(&mut self, checkpoint: &Checkpoint) {
        self.state = State::Idle(Box::new(checkpoint.clone()));
        self.beginning = checkpoint.clone();
    }

    /// Forgets every turn since the session began or was last restored.
    pub fn reset(&mut self) {
        self.restore(&self.beginning.clone());
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Session").finish_non_exhaustive()
    }
}

/// A turn on its thread.
struct Job {
    engine: SandboxEngine,
    tools: Arc<dyn Tools>,
    state: State,
    /// The state after one that found no room.
    beginning: Checkpoint,
    code: Vec<u8>,
    echo: bool,
    wait: Wait,
    /// The memory that the turn may take, until all of it is put away.
    share: Option<Share>,
}

/// What a turn leaves.
enum Left {
    Running(Live),
    Undone(Checkpoint),
}

impl Job {
    fn run(
        self,
        reply: oneshot::Sender<Result<TurnOutput, SandboxError>>,
        settle: &mpsc::SyncSender<io::Result<Checkpoint>>,
    ) {
        let Self {
            engine,
            tools,
            state,
            beginning,
            code,
            echo,
            wait,
            share,
        } = self;
        let begun = state
            .settled()
            .and_then(|before| Ok((engine.wake(tools, &before)?, before)));
        // Nobody listens any more when the caller gave up.
        let (live, before) = match begun {
            Ok(begun) => begun,
            Err(SandboxError::Park(error)) if spill::is_full(&error) => {
                let _ = reply.send(Ok(logged(lost())));
                drop(share);
                let _ = settle.send(Ok(beginning));
                return;
            }
            Err(error) => return drop(reply.send(Err(error))),
        };
        let (output, left) = turn(&engine, live, before, Turn::new(wait), (&code, echo));
        let _ = reply.send(output);
        let state = match left {
            Left::Running(live) => engine.rest(live),
            Left::Undone(before) => Ok(before),
        };
        drop(share);
        let _ = settle.send(state);
    }
}

fn turn(
    engine: &SandboxEngine,
    mut live: Live,
    before: Checkpoint,
    turn: Turn,
    (code, echo): (&[u8], bool),
) -> (Result<TurnOutput, SandboxError>, Left) {
    let begun = Instant::now();
    let result = live.turn(turn, code, echo);
    let wall_us = micros(begun.elapsed());
    let mut turn = live.take_turn();
    match result {
        Ok(reply) => {
            let output = logged(TurnOutput::finished(reply, turn, wall_us));
            (Ok(output), Left::Running(live))
        }
        Err(stop) => {
            let output = match turn.fault.take() {
                Some(fault) => Err(fault),
                None => Ok(logged(stop.output(turn, engine.limits(), wall_us))),
            };
            (output, Left::Undone(before))
        }
    }
}

fn logged(output: TurnOutput) -> TurnOutput {
    let (calls, us) = (output.calls.len(), output.wall_us);
    tracing::trace!(status = ?output.status, calls, us, "sandbox turn");
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    #[test]
    fn want_of_room_is_told_to_the_program_and_a_disk_that_fails_is_a_fault_of_ours() {
        let guest = wat::parse_str("(module)").unwrap();
        let engine = SandboxEngine::with_guest(&guest, Limits::default()).unwrap();
        let after = |error: io::Error| {
            let mut session = engine.session(Arc::new(()), 0);
            let (settle, settled) = mpsc::sync_channel(1);
            settle.send(Err(error)).unwrap();
            session.state = State::Settling(settled);
            session.run_blocking("print(x)")
        };
        for kind in [
            io::ErrorKind::QuotaExceeded,
            io::ErrorKind::StorageFull,
            io::ErrorKind::FileTooLarge,
        ] {
            let output = after(kind.into()).expect("the turn counts");
            assert_eq!(output.status, Status::Lost, "{kind}");
            assert_eq!(output.error.unwrap().kind, "MemoryError");
        }
        for error in [
            io::Error::from_raw_os_error(5),
            io::ErrorKind::PermissionDenied.into(),
        ] {
            let fault = after(error).unwrap_err();
            assert!(matches!(fault, SandboxError::Park(_)), "{fault}");
        }
    }
}
