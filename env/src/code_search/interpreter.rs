//! What runs the programs: the sandbox, or a stand-in.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use forage_sandbox::{
    EngineOptions, Notice, SandboxEngine, SandboxError, Session, Tools, TurnOutput,
};

use super::settings::LimitSettings;

/// Opens interpreters, one per episode; shared by all.
pub(crate) trait Interpreters: Send + Sync {
    /// A fresh interpreter whose programs find `tools`; `seed` decides its randomness.
    fn open(&self, tools: Arc<dyn Tools>, seed: u64) -> Box<dyn Interpreter>;
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
    fn reset(&mut self);
}

impl Interpreters for SandboxEngine {
    fn open(&self, tools: Arc<dyn Tools>, seed: u64) -> Box<dyn Interpreter> {
        Box::new(self.session(tools, seed))
    }
}

#[async_trait]
impl Interpreter for Session {
    async fn run(&mut self, code: &str) -> Result<TurnOutput, SandboxError> {
        Self::run(self, code).await
    }

    fn reset(&mut self) {
        Self::reset(self);
    }
}

/// The process's sandbox with these limits, opened when first asked for. `notice` hears what takes long.
///
/// # Errors
/// When it cannot be opened, or another one of the process has another `total_mib`.
pub(super) fn sandbox(
    settings: LimitSettings,
    notice: &mut dyn FnMut(Notice),
) -> Result<SandboxEngine, SandboxError> {
    static OPEN: Mutex<Vec<(EngineOptions, SandboxEngine)>> = Mutex::new(Vec::new());
    let options = EngineOptions {
        limits: settings.limits(),
        memory_bytes: settings.total_mib.map(|mib| mib << 20),
        ..EngineOptions::default()
    };
    // Opening under the lock: whoever comes meanwhile would only do the same work again.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, engine)) = open.iter().find(|(known, _)| *known == options) {
        return Ok(engine.clone());
    }
    let engine = SandboxEngine::open_with(&options, notice)?;
    open.push((options, engine.clone()));
    Ok(engine)
}
