//! What runs the programs: the sandbox, or a stand-in.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use forage_sandbox::{
    EngineOptions, Limits, Notice, SandboxEngine, SandboxError, Session, Tools, TurnOutput,
};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most sessions of the sandbox alive at once; whoever comes later waits for an episode to end. A little less than the
/// sandbox has room for, which would be a fault rather than a wait.
const SESSIONS: usize = 1000;
static ROOM: Semaphore = Semaphore::const_new(SESSIONS);

/// Opens interpreters, one per episode; shared by all.
#[async_trait]
pub(crate) trait Interpreters: Send + Sync {
    /// A fresh interpreter whose programs find `tools`; `seed` decides its randomness.
    ///
    /// # Errors
    /// A failure of ours.
    async fn open(
        &self,
        tools: Arc<dyn Tools>,
        seed: u64,
    ) -> Result<Box<dyn Interpreter>, SandboxError>;
}

/// One episode's interpreter.
#[async_trait]
pub(crate) trait Interpreter: Send {
    /// Runs a program; its variables stay for the next.
    ///
    /// # Errors
    /// A failure of ours, which says nothing about the program.
    async fn run(&mut self, code: &str) -> Result<TurnOutput, SandboxError>;

    /// Forgets everything.
    ///
    /// # Errors
    /// A failure of ours.
    fn reset(&mut self) -> Result<(), SandboxError>;
}

/// A session and its place among those alive.
struct Placed {
    session: Session,
    _place: Option<SemaphorePermit<'static>>,
}

#[async_trait]
impl Interpreters for SandboxEngine {
    async fn open(
        &self,
        tools: Arc<dyn Tools>,
        seed: u64,
    ) -> Result<Box<dyn Interpreter>, SandboxError> {
        // The semaphore is never closed, so a place always comes.
        let place = ROOM.acquire().await.ok();
        Ok(Box::new(Placed {
            session: self.session(tools, seed)?,
            _place: place,
        }))
    }
}

#[async_trait]
impl Interpreter for Placed {
    async fn run(&mut self, code: &str) -> Result<TurnOutput, SandboxError> {
        self.session.run(code).await
    }

    fn reset(&mut self) -> Result<(), SandboxError> {
        self.session.reset()
    }
}

/// The process's sandbox with these limits, opened when first asked for. `notice` hears what takes long.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn sandbox(
    limits: &Limits,
    notice: &mut dyn FnMut(Notice),
) -> Result<SandboxEngine, SandboxError> {
    static OPEN: Mutex<Vec<(Limits, SandboxEngine)>> = Mutex::new(Vec::new());
    // Opening under the lock: whoever comes meanwhile would only do the same work again.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, engine)) = open.iter().find(|(known, _)| known == limits) {
        return Ok(engine.clone());
    }
    let options = EngineOptions {
        limits: limits.clone(),
        ..EngineOptions::default()
    };
    let engine = SandboxEngine::open_with(&options, notice)?;
    open.push((limits.clone(), engine.clone()));
    Ok(engine)
}

/// A notice in words.
pub(super) fn words(notice: &Notice) -> String {
    match notice {
        Notice::Compiling => {
            "compiling the Python interpreter, which is done once on a machine".to_owned()
        }
        Notice::NotKept { folder, reason } => {
            format!(
                "the compiled interpreter cannot be kept in {}: {reason}; it will be compiled again",
                folder.display()
            )
        }
        _ => "opening the sandbox".to_owned(),
    }
}
