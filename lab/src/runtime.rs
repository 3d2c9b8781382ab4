//! The Tokio runtime of the process.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

use crate::error::{Context, Result};

/// The runtime that everything here blocks on. It lives as long as the process, so that connections to remote retrievers outlive
/// the call that opened them; a run's own episodes need no thread beside the calling one, the engine has its own.
///
/// # Errors
/// When the system gives it no thread.
pub fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    Ok(RUNTIME.get_or_init(|| made))
}
